//! A line that is typed at a terminal, with Tab, the lines before it and the usual keys.
//!
//! ```text
//!   keys -> Line (text, cursor) -> drawn again after each key -> the line, without its end
//!                 Tab -> candidates of the caller -> their common begin, or a list of them
//! ```
//!
//! Promises: the terminal is as before when a line is there, also after an error. Tested in
//! `tests/it/shell.rs`, through a terminal.

use std::io::{self, Read, Write};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Columns of a terminal that does not say how many it has.
const COLUMNS: usize = 80;

/// A line as it was typed, or the reason why there is none.
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C.
    Cancelled,
    /// Ctrl-D on an empty line, or the terminal is gone.
    End,
}

/// Candidates for the end of a line: where the word begins, and the words, as they are typed.
pub(super) type Complete<'a> = &'a dyn Fn(&str) -> (usize, Vec<String>);

/// A terminal without echo and signals, until it is dropped.
struct Raw(Termios);

impl Raw {
    fn new() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[derive(Default)]
struct Line {
    text: Vec<char>,
    cursor: usize,
}

impl Line {
    fn set(&mut self, text: &str) {
        self.text = text.chars().collect();
        self.cursor = self.text.len();
    }

    fn insert(&mut self, text: &str) {
        let new: Vec<char> = text.chars().collect();
        let count = new.len();
        self.text.splice(self.cursor..self.cursor, new);
        self.cursor += count;
    }

    fn before_cursor(&self) -> String {
        self.text.iter().take(self.cursor).collect()
    }

    fn draw(&self, prompt: &str) -> io::Result<()> {
        // A terminal that does not know it says 0.
        let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { COLUMNS } else { columns };
        let room = columns.saturating_sub(prompt.chars().count() + 1).max(8);
        let first = (self.cursor + 1).saturating_sub(room);
        let shown: String = self.text.iter().skip(first).take(room).collect();
        let back = shown.chars().count() - (self.cursor - first);
        let mut out = io::stdout().lock();
        write!(out, "\r\x1b[K{prompt}{shown}")?;
        if back > 0 {
            write!(out, "\x1b[{back}D")?;
        }
        out.flush()
    }
}

/// Reads a line. `history` has the lines before it, the last one last.
pub(super) fn read(
    input: &mut dyn Read,
    prompt: &str,
    history: &[String],
    complete: Complete<'_>,
) -> io::Result<Typed> {
    let _raw = Raw::new()?;
    let (mut line, mut at, mut tabs) = (Line::default(), history.len(), 0);
    let typed = loop {
        line.draw(prompt)?;
        let Some(key) = key(input)? else { break Typed::End };
        tabs = if key == "\t" { tabs + 1 } else { 0 };
        match key.as_str() {
            "\r" | "\n" => break Typed::Line(line.text.iter().collect()),
            "\x03" => break Typed::Cancelled,
            "\x04" if line.text.is_empty() => break Typed::End,
            "\t" => tab(&mut line, complete, tabs > 1)?,
            "\x7f" | "\x08" if line.cursor > 0 => {
                line.cursor -= 1;
                line.text.remove(line.cursor);
            }
            "\x04" | "\x1b[3~" if line.cursor < line.text.len() => {
                line.text.remove(line.cursor);
            }
            "\x15" => drop(line.text.drain(..std::mem::take(&mut line.cursor))),
            "\x0b" => line.text.truncate(line.cursor),
            "\x01" | "\x1b[H" | "\x1bOH" => line.cursor = 0,
            "\x05" | "\x1b[F" | "\x1bOF" => line.cursor = line.text.len(),
            "\x1b[D" | "\x1bOD" | "\x02" => line.cursor = line.cursor.saturating_sub(1),
            "\x1b[C" | "\x1bOC" | "\x06" => line.cursor = (line.cursor + 1).min(line.text.len()),
            "\x1b[A" | "\x1bOA" | "\x10" if at > 0 => {
                at -= 1;
                line.set(history.get(at).map_or("", String::as_str));
            }
            "\x1b[B" | "\x1bOB" | "\x0e" if at < history.len() => {
                at += 1;
                line.set(history.get(at).map_or("", String::as_str));
            }
            text if !text.chars().any(char::is_control) => line.insert(text),
            _ => {}
        }
    };
    let end = if matches!(typed, Typed::Cancelled) { "^C\r\n" } else { "\r\n" };
    io::stdout().write_all(end.as_bytes())?;
    io::stdout().flush()?;
    Ok(typed)
}

/// A letter, or the bytes that a special key sends; `None` at the end.
fn key(input: &mut dyn Read) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return Ok(None);
        }
        bytes.extend(byte);
        let is_sequence = bytes.first() == Some(&0x1b);
        let is_open = match bytes.as_slice() {
            [0x1b] | [0x1b, b'[' | b'O'] => true,
            [0x1b, b'[', .., last] => last.is_ascii_digit() || *last == b';',
            _ => false,
        };
        match std::str::from_utf8(&bytes) {
            Ok(text) if !is_sequence || !is_open => return Ok(Some(text.to_owned())),
            Err(err) if err.error_len().is_some() => bytes.clear(),
            _ => {}
        }
    }
}

/// Adds what all candidates begin with. `again`: lists them, if that is nothing.
fn tab(line: &mut Line, complete: Complete<'_>, again: bool) -> io::Result<()> {
    let before = line.before_cursor();
    let (start, found) = complete(&before);
    let word = before.get(start..).unwrap_or_default();
    let Some(mut common) = found.first().cloned() else { return Ok(()) };
    for one in &found {
        let same = common.chars().zip(one.chars()).take_while(|(a, b)| a == b).count();
        common = common.chars().take(same).collect();
    }
    if let Some(more) = common.strip_prefix(word).filter(|more| !more.is_empty()) {
        line.insert(more);
    } else if again {
        let mut out = io::stdout().lock();
        write!(out, "\r\n{}\r\n", found.join("  "))?;
    }
    if let ([one], false) = (found.as_slice(), common.ends_with('/')) {
        if one.as_str() == common && line.text.get(line.cursor.wrapping_sub(1)) != Some(&' ') {
            line.insert(" ");
        }
    }
    Ok(())
}
