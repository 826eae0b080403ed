//! Marked blocks of documents, filled from stored results.
//!
//! `<!-- figures: NAME -->` ... `<!-- end -->`: NAME is a declared table, or a run whose stored
//! results are a table or a text of their own. Under each block stands where its figures come from,
//! or a link to the document that says so.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::spec::{Spec, Table};
use super::store::{self, Results};
use super::{picture, render};

const BEGIN: &str = "<!-- figures: ";
const END: &str = "<!-- end -->";
/// Longest command that a caption shows; beyond, and of several, it names the run.
const COMMAND_CHARS_MAX: usize = 120;

/// Every document with marks, as it should be, and every picture; by path relative to the root.
pub fn documents(root: &Path, spec: &Spec) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    for path in markdown_files(root)? {
        let Ok(text) = std::fs::read_to_string(root.join(&path)) else { continue };
        if text.contains(BEGIN) {
            let block = |name: &str| block(root, spec, name);
            let filled = filled(&text, &block).map_err(|error| format!("{path}: {error}"))?;
            files.push((path, filled));
        }
    }
    for table in &spec.tables {
        if let Some(path) = &table.svg {
            files.push((path.clone(), picture::svg(table, &results(root, table)?)?));
        }
    }
    Ok(files)
}

/// Tables and stored results that no document shows.
pub fn unused(root: &Path, spec: &Spec) -> Result<Vec<String>, String> {
    let mut shown = BTreeSet::new();
    for path in markdown_files(root)? {
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        shown.extend(text.lines().filter_map(marked).map(str::to_owned));
    }
    let (drawn, lost): (Vec<&Table>, Vec<&Table>) =
        spec.tables.iter().partition(|t| t.svg.is_some() || shown.contains(&t.name));
    let mut unused: Vec<String> = lost.iter().map(|table| table.name.clone()).collect();
    shown.extend(drawn.iter().flat_map(|table| table.runs.iter().cloned()));
    unused.extend(store::ids(root)?.into_iter().filter(|id| !shown.contains(id)));
    Ok(unused)
}

/// The name in the first line of a block.
fn marked(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(" -->")
}

fn markdown_files(root: &Path) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git cannot be run: {error}; install git"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// The text with the blocks between marks replaced.
fn filled(text: &str, block: &dyn Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        out += line;
        out.push('\n');
        let Some(name) = marked(line) else { continue };
        out += &block(name)?;
        if !lines.by_ref().any(|line| line == END) {
            return Err(format!("the block {name} has no {END}: add the line"));
        }
        out += END;
        out.push('\n');
    }
    Ok(out)
}

fn results(root: &Path, table: &Table) -> Result<Vec<Results>, String> {
    table.runs.iter().map(|id| store::read(root, id)).collect()
}

fn block(root: &Path, spec: &Spec, name: &str) -> Result<String, String> {
    let Some(table) = spec.table(name) else {
        if !store::exists(root, name) {
            return Err(format!(
                "no table or results are called {name}: declare it in docs/figures"
            ));
        }
        let results = store::read(root, name)?;
        let body = if results.text.is_empty() {
            let mut cells = vec![results.columns.clone()];
            cells.extend(results.rows.iter().cloned());
            render::markdown(&cells)
        } else {
            return Ok(format!("```\n{}\n```\n", results.text));
        };
        let scope = results.scope.clone();
        return Ok(format!("{body}\n{}\n", caption(&scope, "", std::slice::from_ref(&results))));
    };
    let results = results(root, table)?;
    let body = if table.lines.is_empty() {
        render::markdown(&render::cells(table, &results)?)
    } else {
        let text = results.iter().flat_map(|run| run.text.lines());
        lines(text, &table.lines)
    };
    if let Some(source) = &table.source {
        return Ok(format!("{body}\n{}\n", short_caption(&table.note, source)));
    }
    let scope = match table.scope.as_str() {
        "whole" => "Whole runs with write-back and unmount",
        "foreground" => "Foreground: up to the last acknowledged call",
        // The note of the table says it.
        _ => "",
    };
    Ok(format!("{body}\n{}\n", caption(scope, &table.note, &results)))
}

/// A code block of the lines that begin with one of the words.
fn lines<'a>(text: impl Iterator<Item = &'a str>, first: &[String]) -> String {
    let shown = text.filter(|line| first.iter().any(|word| line.starts_with(word)));
    format!("```\n{}\n```\n", shown.map(str::trim_end).collect::<Vec<_>>().join("\n"))
}

/// The caption of a table whose source another document shows.
fn short_caption(note: &str, source: &str) -> String {
    format!("*{note}; [how]({source}).*")
}

/// One line: the part of the run, the kind of time, where it was measured, the command.
fn caption(scope: &str, note: &str, runs: &[Results]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !part.is_empty() && !parts.contains(&part) {
            parts.push(part);
        }
    };
    add(scope.to_owned());
    add(note.to_owned());
    for run in runs {
        add(match run.kind.as_str() {
            "exact" => "exact".to_owned(),
            "virtual" => "virtual time".to_owned(),
            _ => "real time".to_owned(),
        });
        add(run.host.clone());
        add(run.kernel.clone());
        if run.kind != "exact" || !run.origin.is_empty() {
            let place = [run.date.as_str(), run.commit.as_str()];
            let place: Vec<&str> = place.into_iter().filter(|part| !part.is_empty()).collect();
            add(place.join(", commit "));
        }
        add(run.origin.clone());
        match run.commands.as_slice() {
            [] => {}
            [one] if one.len() <= COMMAND_CHARS_MAX => add(format!("`{one}`")),
            _ => add(format!("run `{}` of {}/runs.toml", run.id, super::DIR)),
        }
    }
    format!("*{}.*", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_replaced_and_the_rest_stays() {
        let text = "a\n<!-- figures: t -->\nold\nold\n<!-- end -->\nb\n";
        let new = |name: &str| Ok(format!("new {name}\n"));
        let expected = "a\n<!-- figures: t -->\nnew t\n<!-- end -->\nb\n";
        assert_eq!(filled(text, &new).unwrap(), expected);
        assert_eq!(filled(expected, &new).unwrap(), expected);
        assert!(filled("<!-- figures: t -->\nx\n", &new).unwrap_err().contains("no <!-- end -->"));
        let unknown = |name: &str| Err(format!("no {name}"));
        assert_eq!(filled(text, &unknown).unwrap_err(), "no t");
    }

    #[test]
    fn some_lines_of_a_text_are_shown() {
        let text = "name rate\nsqlite/insert 1 \nsqlite/update 2\n";
        let first = ["name".to_owned(), "sqlite/insert".to_owned()];
        assert_eq!(lines(text.lines(), &first), "```\nname rate\nsqlite/insert 1\n```\n");
    }

    #[test]
    fn results_that_nobody_shows_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let git = Command::new("git").args(["init", "-q"]).current_dir(root).status();
        assert!(git.is_ok_and(|status| status.success()));
        std::fs::create_dir_all(root.join(super::super::DIR)).unwrap();
        for id in ["a", "b", "c"] {
            std::fs::write(root.join(super::super::DIR).join(format!("{id}.json")), "{}").unwrap();
        }
        std::fs::write(root.join("a.md"), "<!-- figures: t -->\n<!-- figures: c -->\n").unwrap();
        let mut spec = Spec::default();
        let table = |name: &str| format!("[[table]]\nname = \"{name}\"\nruns = [\"a\"]\n");
        spec.add(&(table("t") + &table("u"))).unwrap();
        assert_eq!(unused(root, &spec).unwrap(), ["u", "b"]);
    }

    #[test]
    fn captions_say_where_wall_clock_figures_come_from() {
        let mut run = Results { kind: "wall".to_owned(), ..Results::default() };
        run.date = "2026-11-23".to_owned();
        run.commit = "abc".to_owned();
        run.commands = vec!["make demo".to_owned()];
        let said = caption("Foreground", "", std::slice::from_ref(&run));
        assert_eq!(said, "*Foreground; real time; 2026-11-23, commit abc; `make demo`.*");
        (run.id, run.commands) = ("a".to_owned(), vec!["make demo".to_owned(); 2]);
        let said = caption("", "", &[run]);
        assert!(said.ends_with("commit abc; run `a` of docs/figures/runs.toml.*"), "{said}");
        assert_eq!(short_caption("A", "b.md#c"), "*A; [how](b.md#c).*");
    }
}
