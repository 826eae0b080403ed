//! First words of doc comments: a noun (a type, a field) or a verb (a function).

use super::{Finding, Tree};

/// Openings that tell a reader nothing, with what to write in their place.
const RIDDLES: [(&str, &str); 7] = [
    ("What", "name the thing: a noun, or a verb for a function"),
    ("Whether", "write \"True if\" or \"Checks that\""),
    ("Whose", "name the owner: a noun"),
    ("Which", "name the choice: \"Kind of\", \"Policy of\""),
    ("How", "name the quantity or the options: \"Number of\", \"Options of\""),
    ("Where", "name the place: \"Position of\", \"Path of\""),
    ("Who", "name the role: \"Owner of\", \"Receiver of\""),
];

/// Crates that still have such openings. The list only shrinks.
const NOT_YET: [&str; 6] = [
    "crates/adapters/bench/",
    "crates/adapters/latency/",
    "crates/adapters/probe/",
    "crates/adapters/replay/",
    "crates/adapters/report/",
    "crates/adapters/sqlite-vfs/",
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
        // A heading, such as `# Errors`, ends with its line.
        let goes_on = !doc.trim().is_empty() && !doc.trim_start().starts_with("# ");
        let starts = !std::mem::replace(&mut within, goes_on);
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
        let text = [
            "//! What it is.",
            "",
            "/// Counts",
            "/// What is counted.",
            "fn a() {}",
            "/// Whether it holds.",
            "fn b() {}",
            "/// Bytes.",
            "///",
            "/// Whose they are.",
            "fn c() {}",
            "// What is this?",
            "/// Runs.",
            "/// # Errors",
            "/// What failed.",
            "/// Where it stops.",
            "fn d() {}",
            "/// How many.",
            "fn e() {}",
        ]
        .join("\n");
        let found = |path: &str| -> Vec<usize> {
            check(&Tree::of(&[(path, text.as_str())])).into_iter().map(|f| f.line).collect()
        };
        assert_eq!(found("crates/sim/nand/src/lib.rs"), [1, 6, 10, 15, 18]);
        assert_eq!(found(&format!("{}src/lib.rs", NOT_YET[0])), [0; 0]);
    }
}
