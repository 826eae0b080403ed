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

pub fn check(tree: &Tree) -> Vec<Finding> {
    tree.rust_files().flat_map(|(path, text)| openings(path, text)).collect()
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
        let found = check(&Tree::of(&[("crates/sim/nand/src/lib.rs", text.as_str())]));
        let lines: Vec<usize> = found.into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 6, 10, 15, 18]);
    }
}
