//! Exact table of dependencies between crates: arrows point down only.
//!
//! ```text
//!   cli -> fuse  export  nfs     adapters; fuse, nfs -> control
//!   cli -> syncline -> image
//!   lab -> cli, nand; syncline-py -> lab, image
//!   fs -> jbd2 -> cache, ondisk; fs -> buffer; control -> buffer, ondisk
//!   buffer  nand -> device
//!   ondisk  buffer  recorder  flashlite -> base
//! ```

use super::{Finding, Tree};

/// For each crate the crates of ours that it uses, no more and no fewer. A name that is not here is
/// not a crate yet.
const BELOW: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("device", &[]),
    ("ondisk", &["base"]),
    ("nand", &["device"]),
    ("buffer", &["base", "device"]),
    ("cache", &[]),
    ("jbd2", &["device", "ondisk", "base"]),
    ("fs", &["device", "base", "ondisk", "buffer", "cache", "jbd2"]),
    ("flashlite", &["base"]),
    ("preload", &["flashlite"]),
    ("recorder", &["base"]),
    ("image", &["device", "ondisk", "fs"]),
    ("syncline", &["device", "ondisk", "fs", "image"]),
    ("syncline-c", &["syncline", "flashlite", "recorder"]),
    ("sqlite", &["device", "fs", "syncline"]),
    ("control", &["base", "buffer", "device", "fs", "ondisk"]),
    ("fuse", &["control", "device", "base", "fs"]),
    ("export", &["device"]),
    ("nfs", &["control", "device", "fs"]),
    ("wasm", &["device", "ondisk", "fs", "image"]),
    (
        "cli",
        &[
            "buffer",
            "control",
            "device",
            "export",
            "flashlite",
            "fs",
            "fuse",
            "image",
            "nfs",
            "ondisk",
            "recorder",
            "syncline",
        ],
    ),
    (
        "lab",
        &[
            "buffer",
            "cache",
            "cli",
            "control",
            "device",
            "export",
            "flashlite",
            "fs",
            "fuse",
            "image",
            "nand",
            "recorder",
            "sqlite",
        ],
    ),
    ("syncline-py", &["syncline", "nand", "lab", "fs", "image"]),
    ("testkit", &["device"]),
    ("model", &["device", "fs", "testkit"]),
    (
        "fuzz_targets",
        &[
            "base",
            "cli",
            "device",
            "ondisk",
            "buffer",
            "fs",
            "flashlite",
            "lab",
            "recorder",
            "fuse",
            "export",
            "image",
            "nfs",
            "control",
            "syncline",
            "testkit",
        ],
    ),
    ("fuzz", &["fuzz_targets"]),
    ("xtask", &[]),
];

/// The public crate, and before a `-` the start of the other names.
const OURS: &str = "syncline";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        let Some(dir) = path.strip_suffix("/Cargo.toml") else { continue };
        let Ok(manifest) = text.parse::<toml::Table>() else {
            findings.push(Finding::new(path, 0, "not TOML: correct it"));
            continue;
        };
        if manifest.contains_key("package") {
            package(path, dir, &manifest, &mut findings);
            unused(tree, path, dir, &manifest, &mut findings);
        }
    }
    findings
}

fn package(path: &str, dir: &str, manifest: &toml::Table, findings: &mut Vec<Finding>) {
    let name = dir.rsplit('/').next().unwrap_or(dir);
    let mut say = |message: String| findings.push(Finding::new(path, 0, message));
    let Some((_, below)) = BELOW.iter().find(|(known, _)| *known == name) else {
        say(format!("crate {name} has no place in the layers: add it to the table in arrows.rs"));
        return;
    };
    for dependency in dependencies(manifest, "dependencies") {
        if !below.contains(&dependency.as_str()) {
            say(format!(
                "{name} must not use {dependency}, arrows point down only: move the shared part \
                 down, or pass it in as a parameter"
            ));
        }
    }
    let used = dependencies(manifest, "dependencies");
    for listed in below.iter().filter(|listed| !used.iter().any(|name| name == *listed)) {
        say(format!("{name} does not use {listed}: take {listed} out of its row in arrows.rs"));
    }
    for dependency in dependencies(manifest, "dev-dependencies") {
        if matches!(dependency.as_str(), "cli" | "fuse" | "export") {
            say(format!("tests of {name} must not use {dependency}: put them into {dependency}"));
        }
    }
    let lints = manifest.get("lints").and_then(|l| l.get("workspace"));
    if lints.and_then(toml::Value::as_bool) != Some(true) {
        say("does not inherit the lints: add [lints] workspace = true".to_owned());
    }
}

/// Dependencies that the manifest has and no source file names.
fn unused(tree: &Tree, path: &str, dir: &str, manifest: &toml::Table, findings: &mut Vec<Finding>) {
    let source = format!("{dir}/src/");
    for dependency in dependencies(manifest, "dependencies") {
        let name = match dependency.as_str() {
            OURS => format!("{OURS}::"),
            other => format!("{OURS}_{}", other.replace('-', "_")),
        };
        let mut files = tree.rust_files().filter(|(file, _)| file.starts_with(&source));
        if !files.any(|(_, text)| text.contains(&name)) {
            let message = format!(
                "no source file names {name}: take {dependency} out of the manifest and of the \
                 crate's row in arrows.rs"
            );
            findings.push(Finding::new(path, 0, message));
        }
    }
}

/// Our crates in a dependency table, also in those for one target.
fn dependencies(manifest: &toml::Table, kind: &str) -> Vec<String> {
    let mut tables = vec![manifest.get(kind)];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().map(|target| target.get(kind)));
    }
    tables
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_table)
        .flat_map(toml::Table::keys)
        .filter_map(|key| match key.strip_prefix(OURS)? {
            "" => Some(key.clone()),
            rest => rest.strip_prefix('-').map(|name| name.replace('-', "_")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages but those about arrows that the table has and the manifest has not.
    fn found(dir: &str, rest: &str) -> Vec<String> {
        let of_the_table = |message: &String| {
            !message.contains("does not use") && !message.contains("no source file names")
        };
        all(dir, rest).into_iter().filter(of_the_table).collect()
    }

    fn all(dir: &str, rest: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"x\"\n[lints]\nworkspace = true\n{rest}");
        let tree = Tree::of(&[(&format!("crates/{dir}/Cargo.toml"), &text)]);
        check(&tree).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn arrows_up_are_found() {
        let on = |kind: &str, name: &str| format!("[{kind}]\nsyncline-{name}.workspace = true\n");
        assert!(found("jbd2", &on("dependencies", "ondisk")).is_empty());
        assert!(found("jbd2", &on("dependencies", "fs"))[0].contains("jbd2 must not use fs"));
        assert!(found("fs", &on("dependencies", "model"))[0].contains("must not use model"));
        assert!(found("cli", &on("dependencies", "testkit"))[0].contains("must not use testkit"));
        assert!(found("fs", &on("dev-dependencies", "model")).is_empty());
        assert!(found("fs", &on("dev-dependencies", "cli"))[0].contains("put them into cli"));
        assert_eq!(found("device", &on("target.'cfg(unix)'.dependencies", "nand")).len(), 1);
    }

    #[test]
    fn an_arrow_that_nobody_uses_is_found() {
        let device = "[dependencies]\nsyncline-device.workspace = true\n";
        assert!(all("nand", device).iter().all(|message| message.contains("no source file")));
        assert_eq!(all("nand", "").len(), 1);
        assert!(all("nand", "")[0].contains("nand does not use device"));
        let dev = "[dev-dependencies]\nsyncline-device.workspace = true\n";
        assert_eq!(all("nand", dev).len(), 1);
    }

    #[test]
    fn an_arrow_that_no_source_file_needs_is_found() {
        let manifest = "[package]\nname = \"x\"\n[lints]\nworkspace = true\n[dependencies]\n\
                        syncline-device.workspace = true\n";
        let with = |source: &str| {
            let files =
                [("lab/models/nand/Cargo.toml", manifest), ("lab/models/nand/src/lib.rs", source)];
            check(&Tree::of(&files)).len()
        };
        assert_eq!(with("use syncline_device::Clock;"), 0);
        assert_eq!(with("use syncline_ondisk::Superblock;"), 1);
    }

    #[test]
    fn strangers_and_missing_lints_are_found() {
        assert!(found("novel", "")[0].contains("no place in the layers"));
        let tree = Tree::of(&[("crates/core/fs/Cargo.toml", "[package]\nname = \"x\"\n")]);
        let messages: Vec<String> = check(&tree).into_iter().map(|f| f.message).collect();
        assert!(messages.iter().any(|message| message.contains("[lints]")));
    }

    #[test]
    fn the_table_has_no_circle() {
        for (index, (name, below)) in BELOW.iter().enumerate() {
            for (nth, one) in below.iter().enumerate() {
                assert!(!below[..nth].contains(one), "{name} -> {one} twice");
                let at = BELOW.iter().position(|(known, _)| known == one);
                assert!(at.is_some_and(|at| at < index), "{name} -> {one}");
            }
        }
    }
}
