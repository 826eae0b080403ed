//! Commands that documents and code name exist: targets of the Makefile behind `make`, names of
//! `xtask/runs.toml` behind `cargo xtask run`, files behind `lab/scripts/` and `lab/plans/`.
//!
//! `make` begins a command behind a quote, a backquote or `$ `, and at the start of a line of a
//! code block.

use super::docs::exists;
use super::{Finding, Tree};
use crate::run;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let text = |path: &str| tree.files.get(path).map(String::as_str).unwrap_or_default();
    let runs = match run::names(text(run::TABLE)) {
        Ok(runs) => runs,
        Err(error) => return vec![Finding::new(run::TABLE, 0, error)],
    };
    let rules = text("Makefile").lines().filter_map(|line| line.split_once(':'));
    let targets: Vec<&str> = rules.map(|(target, _)| target).collect();
    let mut findings = Vec::new();
    // The change log tells of commands of its time.
    for (path, text) in tree.files.iter().filter(|(path, _)| *path != "CHANGELOG.md") {
        let mut fenced = false;
        // In code it is a sentence that begins so.
        let quote = if path.ends_with(".rs") { '`' } else { '"' };
        for (number, line) in text.lines().enumerate() {
            fenced ^= path.ends_with(".md") && line.trim_start().starts_with("```");
            let mut say = |message| findings.push(Finding::new(path, number + 1, message));
            let begins = |before: &str| {
                before.ends_with(['`', quote])
                    || before.ends_with("$ ")
                    || fenced && before.is_empty()
            };
            for name in named(line, "make ", begins) {
                if !targets.contains(&name) {
                    say(format!("the Makefile has no {name}: see its head and `cargo xtask run`"));
                }
            }
            for folder in ["lab/scripts/", "lab/plans/"] {
                for (at, _) in line.match_indices(folder) {
                    let file = file_at(&line[at..]);
                    if !file.ends_with('/') && !exists(tree, file) {
                        say(format!("there is no {file}: correct the path"));
                    }
                }
            }
            for name in named(line, "cargo xtask run ", |_| true) {
                if !runs.iter().any(|run| run == name) {
                    say(format!("no run is called {name}: see `cargo xtask run`"));
                }
            }
        }
    }
    findings
}

/// The path that a text begins with.
fn file_at(text: &str) -> &str {
    let part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    text[..text.find(|c| !part(c)).unwrap_or(text.len())].trim_end_matches('.')
}

/// The words behind `command`, of those with a fitting text before it.
fn named<'a>(
    line: &'a str,
    command: &'a str,
    fits: impl Fn(&str) -> bool,
) -> impl Iterator<Item = &'a str> {
    let behind = move |(at, _): (usize, &str)| {
        let rest = &line[at + command.len()..];
        let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let end = rest.find(|c| !part(c)).unwrap_or(rest.len());
        (end > 0 && !rest.starts_with('-') && fits(&line[..at])).then(|| &rest[..end])
    };
    line.match_indices(command).filter_map(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_are_not_there_are_found() {
        let table = "[[subject]]\nname = \"S\"\n[[subject.run]]\nname = \"long\"\nhelp = \"\"\n\
                     command = \"\"\n";
        let text = "`MAKE test` `MAKE gone`, MAKE them\n```\nMAKE lost # MAKE it\n```\nMAKE it\n\
                    RUN long; RUN short; RUN NAME\nLAB/a.sh x; LAB/b.sh, LAB/.\n";
        // This file also passes.
        let text = text.replace("MAKE", "make").replace("RUN", "cargo xtask run");
        let text = text.replace("LAB", "lab/scripts");
        let script = concat!("lab/scripts/", "a.sh");
        let files = [
            ("Makefile", "test: x\n"),
            (run::TABLE, table),
            ("docs/a.md", text.as_str()),
            (script, ""),
        ];
        let lines: Vec<usize> = check(&Tree::of(&files)).into_iter().map(|f| f.line).collect();
        assert_eq!(lines, [1, 3, 6, 7]);
    }
}
