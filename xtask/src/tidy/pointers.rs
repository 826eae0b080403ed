//! Paths, source files and tests that documents and doc comments name in backquotes exist, and code
//! blocks that are marked as a file equal it.
//!
//! A path is looked for from the root, from the crate of the file that names it, from that file's
//! own directory, and, for `crate/src/...`, below each floor of `crates`. A source file without a
//! folder is looked for in the crate of the file that names it. A name with four or more
//! underscores is a test, which some source file has.

use std::collections::BTreeSet;

use super::docs::functions;
use super::modules::normal;
use super::{Finding, Tree};

/// First parts that make a word in backquotes a path of this repository.
const TOPS: [&str; 11] = [
    "crates/",
    "lab/",
    "tests/",
    "src/",
    "examples/",
    "benches/",
    "docs/",
    "scripts/",
    "profiles/",
    "baselines/",
    "xtask/",
];

/// Fewest underscores of a name in backquotes that must be a test.
const TEST_UNDERSCORES_MIN: usize = 4;
/// Prefixes of functions and fields of the kernel.
const KERNEL_PREFIXES: [&str; 5] = ["__", "ext4_", "f2fs_", "jbd2_", "s_"];

/// Mark of a code block that shows a file.
const FILE_MARK: &str = "<!-- file: ";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let known = Known::of(tree);
    let mut findings = Vec::new();
    for (path, text) in &tree.files {
        let document = path.ends_with(".md");
        if !document && !path.ends_with(".rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if !document && !line.starts_with("///") && !line.starts_with("//!") {
                continue;
            }
            for word in line.split('`').skip(1).step_by(2) {
                if let Some(message) = known.refusal(path, word, document) {
                    findings.push(Finding::new(path, number + 1, message));
                }
            }
        }
        if document {
            blocks(tree, path, text, &mut findings);
        }
    }
    findings
}

/// The path in a word in backquotes, if it is one of this repository.
fn named_path(word: &str) -> Option<&str> {
    let rust = word.ends_with(".rs") && word.contains('/');
    let wild = |c: char| c.is_whitespace() || "*<>{}$()[]=…".contains(c);
    let ours = rust || TOPS.iter().any(|top| word.starts_with(top));
    (ours && !word.contains(wild) && !word.contains("...") && !word.starts_with('/'))
        .then(|| word.trim_end_matches('/').split(':').next().unwrap_or(word))
}

/// The function in a word in backquotes, if it is a test by its length and no name of the kernel.
fn named_test(word: &str) -> Option<&str> {
    let name = word.rsplit("::").next().unwrap_or(word);
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let theirs = KERNEL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let underscores = name.bytes().filter(|byte| *byte == b'_').count();
    (name.chars().all(plain) && underscores >= TEST_UNDERSCORES_MIN && !theirs).then_some(name)
}

/// The source file in a word in backquotes, if it is one without a folder.
fn named_file(word: &str) -> Option<&str> {
    let stem = word.strip_suffix(".rs")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    (!stem.is_empty() && stem.chars().all(plain)).then_some(word)
}

/// Every file, directory and function.
struct Known<'a> {
    paths: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
    packages: Vec<&'a str>,
}

impl<'a> Known<'a> {
    fn of(tree: &'a Tree) -> Self {
        let mut paths = BTreeSet::new();
        for path in tree.files.keys() {
            paths.insert(path.as_str());
            paths.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        }
        let packages = tree.files.keys().filter_map(|path| path.strip_suffix("/Cargo.toml"));
        Self { paths, functions: functions(tree), packages: packages.collect() }
    }

    /// The finding for a word in backquotes of `from` that names nothing.
    fn refusal(&self, from: &str, word: &str, document: bool) -> Option<String> {
        if let Some(named) = named_path(word) {
            let missing = !self.has(from, named);
            return missing
                .then(|| format!("there is no {named}: correct the path or leave it out"));
        }
        if let Some(named) = named_file(word).filter(|_| !document) {
            let missing = !self.has_file(from, named);
            return missing
                .then(|| format!("this crate has no {named}: name its path from `crates`"));
        }
        let named = named_test(word).filter(|name| !self.functions.contains(name))?;
        Some(format!("there is no test `{named}`: correct the name or leave it out"))
    }

    fn has_file(&self, from: &str, named: &str) -> bool {
        let package = self.packages.iter().filter(|package| from.starts_with(**package));
        let package = package.max_by_key(|package| package.len()).copied().unwrap_or_default();
        let end = format!("/{named}");
        self.paths.iter().any(|path| path.starts_with(package) && path.ends_with(&end))
    }

    fn has(&self, from: &str, named: &str) -> bool {
        let dir = from.rsplit_once('/').map_or("", |(dir, _)| dir);
        let own = self.packages.iter().filter(|package| from.starts_with(**package));
        let floors = self.packages.iter().filter_map(|package| package.rsplit_once('/'));
        let floors = floors.map(|(floor, _)| floor.to_owned());
        let own = own.flat_map(|package| [(*package).to_owned(), format!("{package}/src")]);
        let mut bases = own.chain([dir.to_owned(), String::new()]).chain(floors);
        bases.any(|base| self.paths.contains(normal(&format!("{base}/{named}")).as_str()))
    }
}

/// The block under `<!-- file: PATH -->` is the file without its comment head.
fn blocks(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix(FILE_MARK).and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let block = lines[number + 1..].iter().skip(1).take_while(|line| !line.starts_with("```"));
        let block: Vec<&str> = block.copied().collect();
        let Some(file) = tree.files.get(name) else {
            let message = format!("there is no {name}: correct the mark");
            findings.push(Finding::new(path, number + 1, message));
            continue;
        };
        let code = file.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
        if !code.eq(block.iter().copied()) {
            let message = format!("the block differs from {name}: copy the file's code here");
            findings.push(Finding::new(path, number + 1, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        check(&Tree::of(files)).into_iter().map(|f| (f.path, f.line)).collect()
    }

    #[test]
    fn paths_in_documents_and_doc_comments_exist() {
        let source = "//! Tested in `tests/a.rs` and `tests/gone.rs`, see `log/tail.rs`.\n\
            let path = \"`tests/gone.rs`\"; // `tests/gone.rs`\n/// `src/lib.rs:7`, `src/x.rs`\n";
        let files = [
            ("crates/core/fs/Cargo.toml", ""),
            ("crates/core/fs/src/lib.rs", source),
            ("crates/core/fs/src/log/tail.rs", ""),
            ("crates/core/fs/tests/a.rs", ""),
            ("docs/A.md", "`fs/src/lib.rs` `fs/src/no.rs`\n`crates/core` `crates/*/no` `a b.rs`\n"),
        ];
        let lib = "crates/core/fs/src/lib.rs".to_owned();
        assert_eq!(found(&files), [(lib.clone(), 1), (lib, 3), ("docs/A.md".to_owned(), 1)]);
    }

    #[test]
    fn source_files_and_tests_exist() {
        let source = [
            "//! See `tail.rs`, `gone.rs`, `other.rs`, `a_cut_of_the_log_recovers`.",
            "/// `ext4_mb_group_or_file`, `a_cut_of_a_log_is_lost`.",
            "fn a_cut_of_the_log_recovers() {}",
        ]
        .join("\n");
        let files = [
            ("crates/core/fs/Cargo.toml", ""),
            ("crates/core/fs/src/lib.rs", source.as_str()),
            ("crates/core/fs/src/log/tail.rs", ""),
            ("crates/core/jbd2/Cargo.toml", ""),
            ("crates/core/jbd2/src/other.rs", ""),
            ("docs/A.md", "`gone.rs` of another project, `a_cut_of_the_log_is_lost`\n"),
        ];
        let lib = "crates/core/fs/src/lib.rs".to_owned();
        let findings = [(lib.clone(), 1), (lib.clone(), 1), (lib, 2), ("docs/A.md".to_owned(), 1)];
        assert_eq!(found(&files), findings);
    }

    #[test]
    fn blocks_that_show_a_file_equal_it() {
        let file = ("crates/a/examples/x.rs", "//! Head.\n\nfn main() {}\n");
        let document = |code: &str| {
            format!("<!-- file: crates/a/examples/x.rs -->\n```rust\n{code}\n```\nafter\n")
        };
        assert!(found(&[file, ("README.md", &document("fn main() {}"))]).is_empty());
        assert_eq!(found(&[file, ("README.md", &document("fn main() { }"))]).len(), 1);
        assert_eq!(found(&[("README.md", &document("fn main() {}"))]).len(), 1);
    }
}
