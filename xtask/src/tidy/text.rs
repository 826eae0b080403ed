//! Rules on lines and words.

use super::{Finding, Tree, is_test_file};

/// Lines of a source file; beyond, it is two concerns.
const FILE_LINES_MAX: usize = 800;
/// The same for tests.
const TEST_FILE_LINES_MAX: usize = 1500;
/// From here on the module documentation gives the reason, in a sentence that starts with
/// [`LONG_BECAUSE`].
const FILE_LINES_EXPLAINED: usize = 500;
const LONG_BECAUSE: &str = "This file is long because";
/// Columns of a line of Rust.
pub(super) const LINE_COLUMNS_MAX: usize = 100;

/// Words that do not belong into the repository, and why. Spelled in two parts, so that this file
/// passes.
const WORDS: [(&str, &str); 9] = [
    (concat!("/wo", "rk/"), "a path of one machine; use a relative path or an argument"),
    (concat!("/fa", "rm/"), "a path of one machine; use a relative path or an argument"),
    (concat!("/home", "/user"), "a path of one machine; use a relative path or an argument"),
    (concat!("/tmp/", "wt/"), "a path of one machine; use a relative path or an argument"),
    (concat!("C", "EO"), "a person of the process, not of the product; say what must hold"),
    (concat!("sub", "agent"), "a tool of the process, not of the product; leave it out"),
    (concat!("index.", "crates.io"), "a registry host; cargo's defaults name it"),
    (concat!("FIX", "ME"), "unfinished; finish it or file an issue"),
    (concat!("X", "XX"), "unfinished; finish it or file an issue"),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        length(path, text, &mut findings);
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX {
                let message = format!("{columns} columns, at most {LINE_COLUMNS_MAX}: break it");
                findings.push(Finding::new(path, number + 1, message));
            }
        }
    }
    for (path, text) in &tree.files {
        if path != "Cargo.lock" {
            words(path, text, &mut findings);
        }
    }
    findings
}

fn length(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    let test = is_test_file(path);
    let max = if test { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    if lines > max {
        let message = format!("{lines} lines, at most {max}: move one concern to its own file");
        findings.push(Finding::new(path, 0, message));
    }
    let doc: String = text
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.trim_start_matches("//!"))
        .collect();
    if lines > FILE_LINES_EXPLAINED && !test && !doc.contains(LONG_BECAUSE) {
        let message = format!(
            "{lines} lines, and past {FILE_LINES_EXPLAINED} the module documentation says why: \
             split it, or add a sentence \"{LONG_BECAUSE} ...\""
        );
        findings.push(Finding::new(path, 0, message));
    }
}

fn words(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate() {
        for (word, why) in WORDS {
            if line.match_indices(word).any(|(at, _)| stands_alone(line, at, word)) {
                findings.push(Finding::new(path, number + 1, format!("\"{word}\": {why}")));
            }
        }
    }
}

/// True if no letter, digit or path part continues the word at `at` on an end that could.
fn stands_alone(line: &str, at: usize, word: &str) -> bool {
    let before = line[..at].chars().next_back();
    let after = line[at + word.len()..].chars().next();
    let part = |c: char| c.is_alphanumeric() || "_.$})".contains(c);
    let left = !before.is_some_and(part);
    let right = word.ends_with('/') || !after.is_some_and(char::is_alphanumeric);
    left && right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|f| f.message).collect()
    }

    #[test]
    fn long_lines() {
        let fits = "x".repeat(100);
        assert_eq!(found("a.rs", &fits), [""; 0]);
        assert_eq!(found("a.rs", &"é".repeat(100)), [""; 0]);
        assert_eq!(found("a.rs", &format!("{fits}x")).len(), 1);
        assert_eq!(found("a.md", &format!("{fits}x")), [""; 0]);
    }

    #[test]
    fn long_files() {
        let lines = |n| "\n".repeat(n);
        assert_eq!(found("src/a.rs", &lines(500)), [""; 0]);
        let said = found("src/a.rs", &lines(501));
        assert!(said[0].contains("This file is long because"), "{said:?}");
        let doc = "//! Things. This file is long because of tables.\n";
        assert_eq!(found("src/a.rs", &format!("{doc}{}", lines(600))), [""; 0]);
        assert!(found("src/a.rs", &format!("{doc}{}", lines(800)))[0].starts_with("801 lines"));
        assert_eq!(found("a/tests/a.rs", &lines(1500)), [""; 0]);
        assert_eq!(found("a/tests/a.rs", &lines(1501)).len(), 1);
    }

    #[test]
    fn words_of_the_process() {
        for (word, _) in WORDS {
            assert_eq!(found("a.md", &format!("see {word} here")).len(), 1, "{word}");
        }
        assert_eq!(found("a.md", concat!("net", "/wo", "rk/", "x")), [""; 0]);
        assert_eq!(found("a.md", concat!("C", "EO", "S")), [""; 0]);
        assert_eq!(found("a.md", concat!("mktemp X", "XX", "X")), [""; 0]);
    }
}
