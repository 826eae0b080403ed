//! Documents do not promise what is not there.

use std::collections::BTreeSet;

use super::modules::normal;
use super::{Finding, Tree};

const GUARANTEES: &str = "docs/GUARANTEES.md";
/// One page, of lines that a terminal shows.
const README: &str = "README.md";
const README_LINES_MAX: usize = 110;
const README_COLUMNS_MAX: usize = 120;
const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 300;
/// Line above the table of crates.
const CRATES_MARK: &str = "<!-- crates -->";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(text) = tree.files.get(GUARANTEES) {
        guarantees(tree, text, &mut findings);
    }
    for (path, max) in [(README, README_LINES_MAX), (ARCHITECTURE, ARCHITECTURE_LINES_MAX)] {
        let lines = tree.files.get(path).map_or(0, |text| text.lines().count());
        if lines > max {
            let message = format!("{lines} lines, at most {max}: move details behind links");
            findings.push(Finding::new(path, 0, message));
        }
    }
    if let Some(text) = tree.files.get(README) {
        columns(text, &mut findings);
    }
    if let Some(text) = tree.files.get(ARCHITECTURE) {
        crates(tree, text, &mut findings);
    }
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        links(tree, path, text, &mut findings);
        counts(path, text, &mut findings);
    }
    findings
}

/// Lines of README that are too long; code, tables and pictures are no lines of text.
fn columns(text: &str, findings: &mut Vec<Finding>) {
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        let fence = line.starts_with("```");
        fenced ^= fence;
        let columns = line.chars().count();
        if !fenced && !fence && !line.starts_with(['|', '!']) && columns > README_COLUMNS_MAX {
            let message = format!(
                "{columns} columns, at most {README_COLUMNS_MAX}: break it; a source goes behind \
                 a link"
            );
            findings.push(Finding::new(README, number + 1, message));
        }
    }
}

/// The table of crates has every package of the repository once, and nothing else.
fn crates(tree: &Tree, text: &str, findings: &mut Vec<Finding>) {
    let packages: BTreeSet<&str> = tree
        .files
        .iter()
        .filter(|(_, manifest)| manifest.contains("[package]"))
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"))
        .collect();
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != CRATES_MARK).skip(3);
    let mut named = BTreeSet::new();
    for (number, line) in lines.take_while(|(_, line)| line.starts_with('|')) {
        let cell = line.split('|').nth(1).unwrap_or_default();
        for name in cell.split('`').skip(1).step_by(2) {
            if !packages.contains(name) || !named.insert(name) {
                let message = format!("{name} is no crate or stands twice: correct the table");
                findings.push(Finding::new(ARCHITECTURE, number + 1, message));
            }
        }
    }
    for missing in packages.difference(&named) {
        let message = format!("the table under {CRATES_MARK} lacks {missing}: add it to a row");
        findings.push(Finding::new(ARCHITECTURE, 0, message));
    }
}

/// Sets that grow by one file or line each: a count of them in prose is wrong with the next one.
const GROWING: [&str; 5] = ["policies", "crates", "profiles", "importers", "subcommands"];
const NUMBERS: [&str; 14] = [
    "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "twenty", "thirty",
];

fn counts(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (number, line) in text.lines().enumerate() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
            .collect();
        for (count, thing) in words.iter().zip(words.iter().skip(1)) {
            let counted = NUMBERS.contains(&count.as_str()) || count.parse::<u32>().is_ok();
            if counted && GROWING.contains(&thing.as_str()) {
                let message =
                    format!("\"{count} {thing}\" is wrong with the next one: leave the count out");
                findings.push(Finding::new(path, number + 1, message));
            }
        }
    }
}

/// In every table whose last column is headed "test", each row names functions that exist.
fn guarantees(tree: &Tree, text: &str, findings: &mut Vec<Finding>) {
    let functions = functions(tree);
    let mut in_table = false;
    let mut rows = 0;
    for (number, line) in text.lines().enumerate() {
        let Some(cell) = last_cell(line) else {
            in_table = false;
            continue;
        };
        if !in_table {
            in_table = cell.to_lowercase().contains("test");
            continue;
        }
        if cell.chars().all(|c| "-: ".contains(c)) {
            continue;
        }
        rows += 1;
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            let message = "this guarantee names no test: put its function name in backquotes";
            findings.push(Finding::new(GUARANTEES, number + 1, message));
        }
        for name in names {
            let function = name.rsplit("::").next().unwrap_or(name);
            if !functions.contains(function) {
                let message = format!("there is no test `{function}`: write it or correct the row");
                findings.push(Finding::new(GUARANTEES, number + 1, message));
            }
        }
    }
    if rows == 0 {
        let message = "no table with a last column \"test\": guarantees without tests are claims";
        findings.push(Finding::new(GUARANTEES, 0, message));
    }
}

fn last_cell(line: &str) -> Option<&str> {
    let line = line.trim().strip_prefix('|')?;
    line.trim_end_matches('|').rsplit('|').next().map(str::trim)
}

/// Names of all functions in Rust files.
pub(super) fn functions(tree: &Tree) -> BTreeSet<&str> {
    let word_end = |c: char| !(c.is_alphanumeric() || c == '_');
    tree.rust_files()
        .flat_map(|(_, text)| text.split("fn ").skip(1))
        .filter_map(|rest| rest.split(word_end).next())
        .collect()
}

fn links(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Code spans are not links.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for target in targets(&plain) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !exists(tree, &normal(&format!("{dir}/{file}"))) {
                let message = format!("the link to {target} leads nowhere: correct or remove it");
                findings.push(Finding::new(path, number + 1, message));
            }
        }
    }
}

/// The targets of `[text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let mut found: Vec<&str> =
        line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        found.extend(target.split_whitespace().next());
    }
    found
}

/// True if a tracked file has this path, or some file is below it.
pub(super) fn exists(tree: &Tree, path: &str) -> bool {
    let below = format!("{path}/");
    path.is_empty()
        || tree.files.contains_key(path)
        || tree.others.contains(path)
        || tree.files.keys().any(|file| file.starts_with(&below))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(tree: &Tree) -> Vec<(String, usize)> {
        check(tree).into_iter().map(|f| (f.path, f.line)).collect()
    }

    #[test]
    fn guarantees_name_tests_that_exist() {
        let source = ("crates/a/tests/t.rs", "#[test]\nfn survives_a_cut() {}\n");
        let table = |row: &str| format!("# G\n\n| operation | test |\n| --- | --- |\n{row}\n");
        let tree = |row: &str| Tree::of(&[source, (GUARANTEES, &table(row))]);
        assert!(check(&tree("| fsync | `crash::survives_a_cut` |")).is_empty());
        assert_eq!(lines(&tree("| fsync | `survives_two` |")), [(GUARANTEES.to_owned(), 5)]);
        assert_eq!(lines(&tree("| fsync | surely |")), [(GUARANTEES.to_owned(), 5)]);
        assert_eq!(lines(&tree("")), [(GUARANTEES.to_owned(), 0)]);
    }

    #[test]
    fn the_readme_is_one_page() {
        let tree = |text: &str| Tree::of(&[(README, text)]);
        let long = "x".repeat(README_COLUMNS_MAX + 1);
        let fits = format!("{}\n| {long} |\n```\n{long}\n```\n", &long[1..]);
        assert!(check(&tree(&fits)).is_empty());
        assert_eq!(lines(&tree(&format!("a\n*{long}*\n"))), [(README.to_owned(), 2)]);
        let page = "x\n".repeat(README_LINES_MAX);
        assert!(check(&tree(&page)).is_empty());
        assert_eq!(lines(&tree(&format!("{page}x\n"))), [(README.to_owned(), 0)]);
    }

    #[test]
    fn the_table_of_crates_is_that_of_the_folders() {
        let manifest = "[package]\nname = \"x\"\n";
        let found = |cells: &str| {
            let text = format!("# A\n{CRATES_MARK}\n| crates |\n| --- |\n{cells}\n`gone`\n");
            let files = [
                ("crates/a/Cargo.toml", manifest),
                ("lab/b/Cargo.toml", manifest),
                ("Cargo.toml", "[workspace]\n"),
                (ARCHITECTURE, text.as_str()),
            ];
            lines(&Tree::of(&files)).into_iter().map(|(_, line)| line).collect::<Vec<_>>()
        };
        assert_eq!(found("| `crates/a` | `x` |\n| `lab/b` | |"), [0; 0]);
        assert_eq!(found("| `crates/a`, `lab/b` | |"), [0; 0]);
        assert_eq!(found("| `crates/a` | |"), [0]);
        assert_eq!(found("| `crates/a`, `lab/b`, `lab/c` | |\n| `crates/a` | |"), [5, 6]);
    }

    #[test]
    fn counts_of_what_grows_are_found() {
        let text = "Twelve policies, and 27 crates.\nTwelve pages of policies; its crates.\n";
        let tree = Tree::of(&[("docs/a.md", text)]);
        let there: Vec<usize> = check(&tree).into_iter().map(|f| f.line).collect();
        assert_eq!(there, [1, 1]);
    }

    #[test]
    fn links_lead_somewhere() {
        let text = "[a](b.md) [c](../README.md#x) [d](#here) [e](https://x.y/z) `[f](gone)`\n\
                    [g](gone.md)\n```\n[h](gone.md)\n```\n[i]: gone.md\n[j](sub)\n";
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", ""),
            ("README.md", ""),
            ("docs/sub/x", ""),
        ]);
        assert_eq!(lines(&tree), [("docs/a.md".to_owned(), 2), ("docs/a.md".to_owned(), 6)]);
    }
}
