//! The product with the oldest Rust that it promises: `rust-version` of the workspace.
//!
//! Checked are libraries and programs without their tests, which need the laboratory.

use std::path::Path;
use std::process::Command;

use super::Planned;

/// Crates whose manifests name a newer Rust.
const NEWER: [&str; 9] = [
    "syncline-fuzz-targets",
    "syncline-lab",
    "syncline-model",
    "syncline-nand",
    "syncline-py",
    "syncline-sqlite",
    "syncline-testkit",
    "syncline-wasm",
    "xtask",
];
/// All but `qcow2`, whose imago needs Rust 1.87.
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "syncline-c/default"];

pub fn plan(root: &Path) -> Planned {
    let version = match minimal(root) {
        Ok(version) => version,
        Err(reason) => return Planned::Fail(reason),
    };
    let Some(toolchain) = installed(&version) else {
        let next = format!("rustup toolchain install {version}.0 --profile minimal");
        return Planned::Skip(format!("no Rust {version}; {next}"));
    };
    // The variable CARGO is a program of another toolchain.
    let mut check = Command::new("rustup");
    check.current_dir(root).args(["run", &toolchain, "cargo", "check", "--locked"]);
    check.args(["--workspace", "--target-dir", "target/msrv"]).args(FEATURES);
    check.args(NEWER.iter().flat_map(|name| ["--exclude", name]));
    Planned::Run(check)
}

/// `rust-version` of the workspace, as `1.85`.
fn minimal(root: &Path) -> Result<String, String> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"));
    let manifest = manifest.map_err(|error| format!("Cargo.toml: {error}"))?;
    let manifest: toml::Table = manifest.parse().map_err(|error| format!("Cargo.toml: {error}"))?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")?.as_str());
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml: no workspace.package.rust-version".into())
}

/// The name of a toolchain of that version, if rustup has one.
fn installed(version: &str) -> Option<String> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    find(&listed, version).map(str::to_owned)
}

fn find<'a>(listed: &'a str, version: &str) -> Option<&'a str> {
    let mut names = listed.lines().filter_map(|line| line.split_whitespace().next());
    names.find(|name| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['.', '-'])))
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn any_patch_of_the_version_is_found() {
        let listed = "stable-x86_64-unknown-linux-gnu (active, default)\n\
                      1.8.0-x86_64-unknown-linux-gnu\n1.85.1-x86_64-unknown-linux-gnu\n";
        assert_eq!(find(listed, "1.85"), Some("1.85.1-x86_64-unknown-linux-gnu"));
        let whole = "1.85-x86_64-unknown-linux-gnu";
        assert_eq!(find(whole, "1.85"), Some(whole));
        assert_eq!(find(listed, "1.86"), None);
    }
}
