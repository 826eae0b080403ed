//! First words of doc comments: a noun (a type, a field) or a verb (a function).

use super::{Finding, Tree};

/// Openings that tell a reader nothing, with what to write in their place.
const RIDDLES: [(&str, &str); 3] = [
    ("What", "name the thing: a noun, or a verb for a function"),
    ("Whether", "write \"True if\", \"Reports whether\" or a noun"),
    ("Whose", "name the owner: a noun"),
];

/// Crates that still have such openings. The list only shrinks.
const NOT_YET: [&str; 19] = [
    "crates/adapters/cli/",
    "crates/adapters/control/",
    "crates/adapters/export/",
    "crates/adapters/fuse/",
    "crates/core/buffer/",
    "crates/core/cache/",
    "crates/core/checksum/",
    "crates/core/device/",
    "crates/core/fs/",
    "crates/core/jbd2/",
    "crates/core/ondisk/",
    "crates/libs/flashlite/",
    "crates/libs/preload/",
    "crates/libs/recorder/",
    "crates/libs/recorder-c/",
    "crates/test/model/",
    "crates/test/posix/",
    "crates/test/testkit/",
    "swarm/",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let clean = |path: &str| !NOT_YET.iter().any(|prefix| path.starts_with(prefix));
    tree.rust_files().filter(|(path, _)| clean(path)).flat_map(|(p, t)| openings(p, t)).collect()
}

fn openings(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut within = false;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(doc) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            within = false;
            continue;
        };
        let starts = !std::mem::replace(&mut within, !doc.trim().is_empty());
        let first = doc.split_whitespace().next().unwrap_or_default();
        let riddle = RIDDLES.iter().find(|(word, _)| starts && *word == first);
        if let Some((word, instead)) = riddle {
            let message = format!("a doc comment begins with \"{word}\": {instead}");
            findings.push(Finding::new(path, number + 1, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn riddles_are_found_where_a_doc_begins() {
        let text = "//! What it is.\n\n/// Counts\n/// What is counted.\nfn a() {}\n/// \
            Whether it holds.\nfn b() {}\n/// Bytes.\n///\n/// Whose they are.\nfn c() {}\n\
            // What is this?\n";
        let found = |path: &str| -> Vec<usize> {
            check(&Tree::of(&[(path, text)])).into_iter().map(|f| f.line).collect()
        };
        assert_eq!(found("crates/sim/nand/src/lib.rs"), [1, 6, 10]);
        assert_eq!(found("crates/core/fs/src/lib.rs"), [0; 0]);
    }
}
