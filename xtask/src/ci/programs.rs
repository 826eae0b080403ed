//! The test programs: one build makes and lists them, each is then run as cargo would run it.
//!
//! Two programs run at a time. A target that measures real time or mounts is named in its manifest
//! and has the machine to itself. One whose tests wait more than they compute runs more of them at
//! once:
//!
//! ```toml
//! [package.metadata.ci]
//! alone = ["it"]
//! waits = ["it"]
//! ```

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// A built test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The package it tests.
    pub package: String,
    /// Name of the test target: `it`, or that of the library or program whose unit tests it has.
    pub target: String,
    /// The program.
    pub path: PathBuf,
    /// The package's directory, in which it runs.
    pub dir: PathBuf,
    /// No other program runs beside it.
    pub is_alone: bool,
    /// Its tests wait more than they compute.
    pub waits: bool,
}

/// Tests at once, for each processor, of a program whose tests wait.
const WAITING: usize = 2;

impl Program {
    /// Its name in reports.
    pub fn name(&self) -> String {
        format!("{} {}", self.package, self.target)
    }

    /// The command that runs it, with the environment that cargo gives it.
    pub fn command(&self, cargo: &Command) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.dir).env("CARGO", cargo.get_program());
        command.env("CARGO_MANIFEST_DIR", &self.dir).env("CARGO_PKG_NAME", &self.package);
        if self.waits {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            command.env("RUST_TEST_THREADS", (WAITING * processors).to_string());
        }
        command
    }
}

/// The program in one line of `cargo test --no-run --message-format=json`, if it has one.
pub fn of_message(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| Some(message.pointer(pointer)?.as_str()?.to_owned());
    let test = message.pointer("/profile/test")?.as_bool()?;
    // A bench is built to be linted.
    let bench = message.pointer("/target/kind/0")?.as_str()? == "bench";
    if !test || bench || text("/reason")? != "compiler-artifact" {
        return None;
    }
    let manifest = PathBuf::from(text("/manifest_path")?);
    let target = text("/target/name")?;
    let says = std::fs::read_to_string(&manifest).unwrap_or_default();
    Some(Program {
        package: package(&text("/package_id")?).to_owned(),
        is_alone: names(&says, "alone", &target),
        waits: names(&says, "waits", &target),
        target,
        path: text("/executable")?.into(),
        dir: manifest.parent()?.to_owned(),
    })
}

/// True if the manifest's list `key` names the target.
fn names(manifest: &str, key: &str, target: &str) -> bool {
    let Ok(manifest) = manifest.parse::<toml::Table>() else { return false };
    let mut found = manifest.get("package");
    for key in ["metadata", "ci", key] {
        found = found.and_then(|table| table.get(key));
    }
    let targets = found.and_then(toml::Value::as_array);
    targets.is_some_and(|targets| targets.iter().any(|name| name.as_str() == Some(target)))
}

/// The name in `path+file:///DIR/NAME#VERSION` or `path+file:///DIR#NAME@VERSION`.
fn package(id: &str) -> &str {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next().unwrap_or(place),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_manifest_names_the_targets_that_run_alone_or_wait() {
        let manifest = "[package]\nname = \"a\"\n[package.metadata.ci]\nalone = [\"it\"]\n";
        assert!(names(manifest, "alone", "it") && !names(manifest, "waits", "it"));
        assert!(!names(manifest, "alone", "a"));
        assert!(!names("[package]\nname = \"a\"\n", "alone", "it"));
    }

    fn message(test: bool, id: &str) -> String {
        message_of("test", test, id)
    }

    fn message_of(kind: &str, test: bool, id: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{id}",
            "manifest_path":"/w/fs/Cargo.toml",
            "target":{{"name":"it","kind":["{kind}"]}},"profile":{{"test":{test}}},
            "executable":"/t/it-1"}}"#
        )
    }

    #[test]
    fn test_programs_are_found_among_the_messages() {
        let id = "path+file:///w/fs#syncline-fs@0.1.0";
        let program = of_message(&message(true, id)).unwrap();
        assert_eq!(program.name(), "syncline-fs it");
        assert_eq!(program.dir, Path::new("/w/fs"));
        let short = message(true, "path+file:///w/xtask#0.1.0");
        assert_eq!(of_message(&short).unwrap().package, "xtask");
        assert_eq!(of_message(&message(false, id)), None);
        assert_eq!(of_message(&message_of("bench", true, id)), None);
        assert_eq!(of_message(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(of_message("running 3 tests"), None);
    }
}
