//! The language of the cases: from text to assertions.
//!
//! ```text
//!   # a comment                         case <title>          starts a case: a fresh directory
//!   each t in file dir; ...; end        repeats the lines between, with $t in their words
//!   [as UID:GID[:GROUP,..]] OPERATION WORD.. [-> ANSWER[|ANSWER..]]
//! ```
//!
//! An operation without an answer must succeed. Words cannot have blanks; `$name` stands for what
//! would be long or cannot be written (see [`expand`]).

use std::os::unix::ffi::OsStringExt;
use std::{ffi::OsString, path::Path};

/// Repetitions within repetitions, at most.
const DEPTH_MAX: usize = 4;

/// One line that is carried out.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// Line of the file, from 1.
    pub line: usize,
    /// The line itself, with the words of repetitions.
    pub text: String,
}

/// A case: steps in one directory.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub title: String,
    pub steps: Vec<Step>,
}

/// The cases of a file's text.
pub(crate) fn parse(text: &str) -> Result<Vec<Case>, String> {
    let lines: Vec<(usize, String)> = text
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim().to_owned()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let mut flat = Vec::new();
    repeat(&lines, 0, &mut flat)?;
    let mut cases: Vec<Case> = Vec::new();
    for (line, text) in flat {
        if let Some(title) = text.strip_prefix("case ") {
            cases.push(Case { title: title.to_owned(), steps: Vec::new() });
        } else if let Some(case) = cases.last_mut() {
            case.steps.push(Step { line, text });
        } else {
            return Err(format!("line {line}: {text}: no case before it; write `case <title>`"));
        }
    }
    Ok(cases)
}

fn repeat(
    lines: &[(usize, String)],
    depth: usize,
    flat: &mut Vec<(usize, String)>,
) -> Result<(), String> {
    let mut rest = lines;
    while let Some(((line, text), after)) = rest.split_first() {
        rest = after;
        let Some(head) = text.strip_prefix("each ") else {
            flat.push((*line, text.clone()));
            continue;
        };
        let Some((name, values)) = head.split_once(" in ") else {
            return Err(format!("line {line}: {text}: write `each <name> in <words>`"));
        };
        if depth == DEPTH_MAX {
            return Err(format!("line {line}: repetitions are nested too deep; make a case of it"));
        }
        let Some(end) = end_of(rest) else {
            return Err(format!("line {line}: {text}: it has no `end`; add one"));
        };
        for value in values.split_whitespace() {
            let variable = format!("${name}");
            let body: Vec<_> = rest[..end]
                .iter()
                .map(|(line, text)| (*line, text.replace(&variable, value)))
                .collect();
            repeat(&body, depth + 1, flat)?;
        }
        rest = &rest[end + 1..];
    }
    Ok(())
}

/// Returns the line of the `end` that closes the repetition whose body starts here.
fn end_of(lines: &[(usize, String)]) -> Option<usize> {
    let mut open = 0_usize;
    for (at, (_, text)) in lines.iter().enumerate() {
        if text.starts_with("each ") {
            open += 1;
        } else if text == "end" {
            if open == 0 {
                return Some(at);
            }
            open -= 1;
        }
    }
    None
}

/// A word with its variable, if it is one: `$n255` a name of 255 bytes (any number), `$p4095` a
/// path of 4,095 bytes that ends in the name f or ff, `$bytes` a name that is no UTF-8, `$empty`,
/// `$other/..` a directory on another file system.
pub(crate) fn expand(word: &str, other: &Path) -> OsString {
    if let Some(rest) = word.strip_prefix("$other") {
        let mut path = other.as_os_str().to_owned();
        path.push(rest);
        return path;
    }
    if let Some(at) = word.find("$n") {
        let digits: String = word[at + 2..].chars().take_while(char::is_ascii_digit).collect();
        let long = "n".repeat(digits.parse().unwrap_or(0));
        return format!("{}{long}{}", &word[..at], &word[at + 2 + digits.len()..]).into();
    }
    if let Some(digits) = word.strip_prefix("$p") {
        let bytes: usize = digits.parse().unwrap_or(0);
        let name = if bytes.is_multiple_of(2) { "ff" } else { "f" };
        return format!("{}{name}", "./".repeat(bytes.saturating_sub(name.len()) / 2)).into();
    }
    match word {
        "$empty" => OsString::new(),
        "$bytes" => OsString::from_vec(vec![0xff, 0xfe, b'\n', 0x80]),
        _ => word.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let cases = parse(text).unwrap();
        cases.into_iter().flat_map(|c| c.steps).map(|s| format!("{} {}", s.line, s.text)).collect()
    }

    #[test]
    fn repetitions_nest() {
        let text = "case a\neach x in 1 2\neach y in 3 4\nmake $x$y\nend\nls $x\nend\nls .";
        let wanted =
            ["4 make 13", "4 make 14", "6 ls 1", "4 make 23", "4 make 24", "6 ls 2", "8 ls ."];
        assert_eq!(texts(text), wanted);
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        let said = |text: &str| parse(text).unwrap_err();
        assert!(said("mkdir d").contains("no case"));
        assert!(said("case a\neach x in 1").contains("no `end`"));
        assert!(said("case a\neach x").contains("each <name> in"));
        let deep = "each x in 1\n".repeat(6) + &"end\n".repeat(6);
        assert!(said(&format!("case a\n{deep}")).contains("too deep"));
    }

    #[test]
    fn variables() {
        let long = |word| expand(word, Path::new("/o")).len();
        assert_eq!(
            (long("$n255"), long("a/$n3/b"), long("$p4095"), long("$p4096")),
            (255, 7, 4095, 4096)
        );
        assert_eq!(expand("$other/x", Path::new("/o")), "/o/x");
        assert_eq!(expand("plain", Path::new("/o")), "plain");
    }
}
