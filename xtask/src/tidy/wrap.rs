//! `tidy --fix`: breaks comment lines that are too long, which rustfmt does not.
//!
//! The words that do not fit move to the next line of the same paragraph, or to a new line.
//! Drawings, tables, fenced code and comments behind code are left to the author.

use super::text::LINE_COLUMNS_MAX;

/// The text with its long comment lines broken, or nothing if there is nothing to do.
pub fn fixed(text: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut fenced = false;
    let mut changed = false;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].clone();
        if let Some(comment) = Comment::of(&line) {
            if comment.text.starts_with("```") {
                fenced = !fenced;
            } else if !fenced && let Some((kept, rest)) = comment.split() {
                let continuation = lines.get(at + 1).and_then(|next| comment.continued_by(next));
                let rest = format!("{}{rest}", comment.next_prefix());
                match continuation {
                    Some(words) => lines[at + 1] = format!("{rest} {words}"),
                    None => lines.insert(at + 1, rest),
                }
                lines[at] = kept;
                changed = true;
            }
        } else {
            fenced = false;
        }
        at += 1;
    }
    changed.then(|| lines.join("\n") + "\n")
}

/// A line that is a comment and nothing else.
struct Comment<'a> {
    line: &'a str,
    /// Indentation, slashes and the spaces after them.
    prefix: &'a str,
    text: &'a str,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let code = line.trim_start();
        let rest = ["//!", "///", "//"].iter().find_map(|marker| code.strip_prefix(marker))?;
        let text = rest.trim_start();
        Some(Self { line, prefix: &line[..line.len() - text.len()], text })
    }

    /// A list item's mark, with its space.
    fn bullet(&self) -> &'a str {
        let mark = self.text.split(' ').next().unwrap_or_default();
        let number = mark.strip_suffix('.').is_some_and(|n| n.parse::<u8>().is_ok());
        if matches!(mark, "-" | "*") || number {
            self.text.get(..=mark.len()).unwrap_or_default()
        } else {
            ""
        }
    }

    fn next_prefix(&self) -> String {
        format!("{}{}", self.prefix, " ".repeat(self.bullet().len()))
    }

    /// True if breaking the line would destroy something.
    fn drawn(&self) -> bool {
        let reference = self.text.starts_with('[') && self.text.split(' ').count() == 2;
        reference || self.text.starts_with(['|', '#']) || self.text.contains("  ")
    }

    /// The line up to the last break that fits and keeps code spans whole, and what is behind it.
    fn split(&self) -> Option<(String, &'a str)> {
        if self.line.chars().count() <= LINE_COLUMNS_MAX || self.drawn() {
            return None;
        }
        let first = self.line.len() - self.text.len() + self.bullet().len();
        let fits = |at: &usize| {
            let kept = &self.line[..*at];
            *at > first
                && kept.chars().count() <= LINE_COLUMNS_MAX
                && kept.matches('`').count().is_multiple_of(2)
        };
        let at = self.line.match_indices(' ').map(|(at, _)| at).rfind(fits)?;
        Some((self.line[..at].to_owned(), &self.line[at + 1..]))
    }

    /// The words of `next`, if it continues this paragraph.
    fn continued_by<'b>(&self, next: &'b str) -> Option<&'b str> {
        let next = Comment::of(next)?;
        let same = next.prefix == self.next_prefix() && !next.text.is_empty();
        let plain = next.bullet().is_empty() && !next.drawn() && !next.text.starts_with("```");
        (same && plain).then_some(next.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `start`, words up to column `columns`, of which the last is `end`.
    fn line(start: &str, columns: usize) -> String {
        let mut line = start.to_owned();
        while line.len() + 5 <= columns - 4 {
            line.push_str(" word");
        }
        line.push_str(&"s".repeat(columns - 4 - line.len()));
        line + " end"
    }

    #[test]
    fn words_move_to_the_next_line_of_the_paragraph() {
        let text = format!("{}\n/// of it.\nfn a() {{}}\n", line("///", 104));
        let fixed = fixed(&text).unwrap();
        let lines: Vec<&str> = fixed.lines().collect();
        assert!(lines[0].len() <= 100 && lines[0].contains("word"));
        assert_eq!(lines[1..], ["/// end of it.", "fn a() {}"]);
        assert!(super::fixed(&fixed).is_none());
    }

    #[test]
    fn list_items_and_ends_of_paragraphs_get_a_new_line() {
        let text = format!("{}\n//! - next\n", line("//! -", 104));
        let fixed = fixed(&text).unwrap();
        assert_eq!(fixed.lines().skip(1).collect::<Vec<_>>(), ["//!   end", "//! - next"]);
        let text = format!("{}\n    let a = 1;\n", line("    //", 104));
        let fixed = super::fixed(&text).unwrap();
        assert_eq!(fixed.lines().skip(1).collect::<Vec<_>>(), ["    // end", "    let a = 1;"]);
    }

    #[test]
    fn drawings_tables_code_and_fitting_lines_stay() {
        for start in ["//! |", "//! a  b", "let a = 1; //", "/// #"] {
            assert_eq!(fixed(&line(start, 110)), None, "{start}");
        }
        assert_eq!(fixed(&format!("//! ```text\n{}\n//! ```\n", line("//!", 110))), None);
        assert_eq!(fixed(&line("///", 100)), None);
    }

    #[test]
    fn code_spans_stay_whole() {
        let mut text = line("///", 92);
        text.push_str(" `code span here` x");
        let fixed = fixed(&text).unwrap();
        assert_eq!(fixed.lines().nth(1), Some("/// `code span here` x"));
    }
}
