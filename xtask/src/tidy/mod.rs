//! The house rules as checks. Each message names the remedy.
//!
//! Every rule is a function from a [`Tree`] (the repository's text files in memory) to findings, so
//! that its tests, which stand below each rule, are small fixtures: for each rule one that must be
//! found (the canary) and one that must not.
//!
//! | file | rules |
//! |---|---|
//! | `text` | file length, line length, words that do not belong into the repository |
//! | `code` | `unwrap`, reasons of `expect`, clock/thread/file use, `forbid(unsafe_code)` |
//! | `arrows` | which crate may use which; inherited lints |
//! | `inside` | which module of a crate may use which; circles of modules |
//! | `calls` | drawings of calls in documents: straight down, each file once |
//! | `commands` | targets of make and names of `cargo xtask run` that documents and code name |
//! | `headings` | `# Errors` of doc comments stands alone |
//! | `pointers` | paths, files and tests named in documents and docs; blocks that show a file |
//! | `modes` | questions for the mode of `sync=` outside of the engines of `fs` |
//! | `modules` | source files that no `mod` reaches |
//! | `examples` | `doctest = false` in crates whose documentation has no examples |
//! | `docs` | GUARANTEES names existing tests; ARCHITECTURE the crates; links; README is one page |
//! | `published` | fields of crates that are published; `publish = false` of the others |
//! | `wrap` | `tidy --fix`: breaks long comment lines |
//! | `licences` | licences of all dependencies (needs cargo, not part of the tree) |
//!
//! Clippy has the rest by `clippy.toml` and the manifest: function length, unfinished code, proofs
//! of `unsafe`.

mod arrows;
mod calls;
mod code;
mod commands;
mod docs;
mod examples;
mod headings;
mod inside;
mod licences;
mod modes;
mod modules;
mod pointers;
pub mod published;
mod text;
mod wrap;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The text files of the repository by path relative to its root, with `/` between parts.
#[derive(Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
    /// Files that are not text: pictures.
    others: BTreeSet<String>,
}

/// One broken rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    /// From 1; 0 where the finding is about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl Tree {
    /// Every file that git knows or would add.
    fn read(root: &Path) -> Result<Self, String> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git cannot be run: {error}; install git"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("git ls-files failed: {said}; run this in a git checkout"));
        }
        let mut tree = Self::default();
        for name in output.stdout.split(|byte| *byte == 0) {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            // What is not there any more is in neither.
            match std::fs::read_to_string(root.join(name)) {
                Ok(text) => drop(tree.files.insert(name.to_owned(), text)),
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    tree.others.insert(name.to_owned());
                }
                Err(_) => {}
            }
        }
        Ok(tree)
    }

    fn rust_files(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(|(path, _)| path.ends_with(".rs"))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self { files: files.collect(), ..Self::default() }
    }
}

/// True if a Rust file is test code as a whole.
fn is_test_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (file, folders) = parts.split_last().expect("a split has a part");
    // The first folder `tests` holds crates, not test files.
    let in_dir = |name: &str| folders.iter().skip(1).any(|folder| *folder == name);
    in_dir("tests")
        || in_dir("benches")
        || *file == "tests.rs"
        || file.ends_with("_tests.rs")
        || path.starts_with("tests/fuzz_targets/")
        || path.starts_with("tests/model/")
        || path.starts_with("tests/testkit/")
}

fn check(tree: &Tree) -> Vec<Finding> {
    let rules = [
        text::check,
        code::check,
        arrows::check,
        inside::check,
        modes::check,
        modules::check,
        headings::check,
        docs::check,
        examples::check,
        published::check,
        pointers::check,
        calls::check,
        commands::check,
    ];
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(tree)).collect();
    findings.sort();
    findings
}

/// Repairs what can be repaired without a decision: comment lines that are too long.
pub fn fix(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (path, text) in tree.rust_files() {
        let Some(fixed) = wrap::fixed(text) else { continue };
        if let Err(error) = std::fs::write(root.join(path), fixed) {
            eprintln!("{path} cannot be written: {error}");
            return ExitCode::FAILURE;
        }
        println!("{path}: long comment lines broken");
    }
    ExitCode::SUCCESS
}

/// Runs every rule on the repository at `root`, prints findings; fails if there are any.
pub fn run(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings = check(&tree);
    findings.extend(licences::check(root));
    for finding in &findings {
        match finding.line {
            0 => println!("{}: {}", finding.path, finding.message),
            line => println!("{}:{line}: {}", finding.path, finding.message),
        }
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing found", tree.files.len());
        return ExitCode::SUCCESS;
    }
    println!("tidy: {} findings", findings.len());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_files_are_known() {
        assert!(is_test_file("crates/core/fs/tests/a.rs"));
        assert!(is_test_file("crates/core/fs/src/dir/tests.rs"));
        assert!(is_test_file("tests/testkit/src/tree.rs"));
        assert!(!is_test_file("crates/core/fs/src/dir.rs"));
        assert!(!is_test_file("tests/crash/src/lib.rs"));
    }
}
