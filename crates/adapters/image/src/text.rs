//! Text for a terminal: names without what a terminal acts on, tables with aligned columns.

use std::borrow::Cow;

/// Reports whether a terminal acts on a character, or shows what follows it in another order.
pub fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn escaped(text: &str, keep: &[char]) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if keep.contains(&c) || !acts(c) => safe.push(c),
            '\n' => safe += "\\n",
            '\t' => safe += "\\t",
            '\r' => safe += "\\r",
            _ if c.is_ascii() => safe += &format!("\\x{:02x}", u32::from(c)),
            _ => safe += &format!("\\u{{{:x}}}", u32::from(c)),
        }
    }
    safe
}

/// Text of several lines without what a terminal acts on: labels and names are those of images,
/// archives and traces of others.
pub fn printable(text: &str) -> Cow<'_, str> {
    const KEPT: [char; 2] = ['\n', '\t'];
    if !text.contains(|c| acts(c) && !KEPT.contains(&c)) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(escaped(text, &KEPT))
}

/// As [`printable`], for a line or a cell of a table: a name with a line's end makes no second one.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.contains(acts) { Cow::Owned(escaped(text, &[])) } else { Cow::Borrowed(text) }
}

/// Rows with aligned columns; those for which `right` says so to the right. The crate comfy-table
/// would bring a terminal library, but these tables wrap and colour nothing.
pub fn table(rows: &[Vec<String>], right: &[bool]) -> String {
    let safe = |row: &Vec<String>| row.iter().map(|cell| line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(safe).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            if right.get(column) == Some(&true) {
                line += &format!("{cell:>width$}  ");
            } else {
                line += &format!("{cell:<width$}  ");
            }
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        let text = "a\x1b]0;x\x07b\nc\td\u{9b}31m\u{202e}é\r";
        assert_eq!(printable(text), "a\\x1b]0;x\\x07b\nc\td\\u{9b}31m\\u{202e}é\\r");
        assert_eq!(line("a\nb\tc\x7f"), "a\\nb\\tc\\x7f");
        assert!(matches!(printable("plain\n"), Cow::Borrowed(_)));
        assert_eq!(table(&[vec!["a\nb".to_owned(), "c".to_owned()]], &[]), "a\\nb  c\n");
    }
}
