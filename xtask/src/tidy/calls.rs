//! Drawings of calls: a code block under `<!-- calls: DIR -->` in a document.
//!
//! ```text
//!  sync.rs        fsync_file -> fsync_range -> fsync
//!  flush/file.rs  write_back -> write_pass -> collect_job, write_jobs
//! ```
//!
//! Each line is a source file below DIR and chains of its functions, separated by `;`. A function
//! calls everything of the next link. The last link may be functions of files further below. Calls
//! go down only, so a call of the first line enters each file once: a file stands on one line, has
//! the functions, and imports no function of those above it; types may come from anywhere.

use super::{Finding, Tree};

const MARK: &str = "<!-- calls: ";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(dir) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->"))
            else {
                continue;
            };
            let block = lines[number + 1..].iter().skip(1).enumerate();
            let block = block.take_while(|(_, line)| !line.starts_with("```"));
            let rows: Vec<Row> = block.map(|(at, line)| Row::of(number + 3 + at, line)).collect();
            for (line, message) in wrong(tree, dir, &rows) {
                findings.push(Finding::new(path, line, message));
            }
        }
    }
    findings
}

/// One line of a drawing.
struct Row<'a> {
    line: usize,
    file: &'a str,
    /// Chains of links of functions.
    chains: Vec<Vec<Vec<&'a str>>>,
}

impl<'a> Row<'a> {
    fn of(line: usize, text: &'a str) -> Row<'a> {
        let (file, chains) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let link = |link: &'a str| link.split(',').map(str::trim).collect();
        let chain = |chain: &'a str| chain.split("->").map(link).collect();
        Row { line, file, chains: chains.split(';').map(chain).collect() }
    }
}

fn wrong(tree: &Tree, dir: &str, rows: &[Row<'_>]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let text_of = |row: &Row<'_>| tree.files.get(&format!("{dir}/{}", row.file));
    for (at, row) in rows.iter().enumerate() {
        let Some(text) = text_of(row) else {
            found.push((row.line, format!("there is no {dir}/{}: correct the name", row.file)));
            continue;
        };
        let (above, below) = (&rows[..at], &rows[at + 1..]);
        if above.iter().any(|other| other.file == row.file) {
            found.push((row.line, format!("{} is entered twice: one line a file", row.file)));
        }
        for upper in above.iter().filter(|upper| has_import(text, &module(dir, upper.file))) {
            let message = format!("{} imports from {}, which is above it", row.file, upper.file);
            found.push((row.line, message));
        }
        for links in row.chains.iter().flat_map(|chain| chain.windows(2)) {
            for (caller, callee) in pairs(&links[0], &links[1]) {
                let calls = body(text, caller).is_some_and(|body| has_call(body, callee));
                if !calls {
                    let message = format!("{caller} does not call {callee}: correct the drawing");
                    found.push((row.line, message));
                }
            }
        }
        for name in row.chains.iter().filter_map(|chain| chain.last()).flatten() {
            let there = |text: &String| body(text, name).is_some();
            if !there(text) && !below.iter().filter_map(text_of).any(there) {
                found.push((row.line, format!("neither {} nor a file below has {name}", row.file)));
            }
        }
    }
    found
}

fn pairs<'a>(
    callers: &'a [&'a str],
    callees: &'a [&'a str],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    callers.iter().flat_map(|caller| callees.iter().map(move |callee| (*caller, *callee)))
}

/// Path of a source file as an import names it, with what follows.
fn module(dir: &str, file: &str) -> String {
    let dir = dir.split_once("/src/").map_or("", |(_, dir)| dir);
    format!(
        "crate::{}::{}::",
        dir.replace('/', "::"),
        file.trim_end_matches(".rs").replace('/', "::")
    )
}

/// True if a function of a module is imported, or called by its path.
fn has_import(text: &str, module: &str) -> bool {
    text.split(module).skip(1).any(|rest| {
        let items = rest.split([';', '(']).next().unwrap_or(rest);
        items.split([',', '{']).any(|item| item.trim().starts_with(char::is_lowercase))
    })
}

/// Body of a function: up to the brace in the column where its line begins.
fn body<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at =
        [format!("fn {name}("), format!("fn {name}<")].iter().find_map(|sig| text.find(sig))?;
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let indent: String = text[start..].chars().take_while(|c| *c == ' ').collect();
    let rest = &text[at..];
    let end = rest.find(&format!("\n{indent}}}")).unwrap_or(rest.len());
    Some(&rest[rest.find('{').unwrap_or(0).min(end)..end])
}

fn has_call(body: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    body.match_indices(&format!("{name}(")).any(|(at, _)| !body[..at].ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: (&str, &str) = (
        "c/fs/src/data/sync.rs",
        "use crate::data::flush::file::write_back;\n\
         pub fn fsync(a: u8) -> u8 {\n    one();\n    write_back(a)\n}\n\
         fn one() {\n}\n",
    );
    const FILE: (&str, &str) = (
        "c/fs/src/data/flush/file.rs",
        "impl A {\n    fn write_back<T>(a: T) -> T {\n        a\n    }\n}\n",
    );

    fn said(rows: &str, files: &[(&str, &str)]) -> Vec<String> {
        let text = format!("<!-- calls: c/fs/src/data -->\n```\n{rows}\n```\n");
        let mut all = vec![("docs/A.md", text.as_str())];
        all.extend(files);
        check(&Tree::of(&all)).into_iter().map(|f| format!("{}: {}", f.line, f.message)).collect()
    }

    #[test]
    fn a_drawing_that_is_right_passes() {
        let rows = " sync.rs       fsync -> one; fsync -> write_back\n flush/file.rs   write_back";
        assert_eq!(said(rows, &[SYNC, FILE]), [""; 0]);
    }

    #[test]
    fn calls_that_are_not_there_are_found() {
        let rows = "sync.rs one -> write_back\nflush/file.rs write_back";
        assert_eq!(
            said(rows, &[SYNC, FILE]),
            ["3: one does not call write_back: correct the drawing"]
        );
        let gone = said("sync.rs fsync -> write_back", &[SYNC, FILE]);
        assert_eq!(gone, ["3: neither sync.rs nor a file below has write_back"]);
        assert_eq!(
            said("gone.rs fsync", &[SYNC]),
            ["3: there is no c/fs/src/data/gone.rs: correct the name"]
        );
    }

    #[test]
    fn calls_upward_and_second_entries_are_found() {
        let rows = "flush/file.rs write_back\nsync.rs fsync -> one";
        assert_eq!(
            said(rows, &[SYNC, FILE]),
            ["4: sync.rs imports from flush/file.rs, which is above it"]
        );
        let twice = "sync.rs fsync -> one\nsync.rs one";
        assert_eq!(said(twice, &[SYNC]), ["4: sync.rs is entered twice: one line a file"]);
    }
}
