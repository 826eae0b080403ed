//! Option tables: one row an option, from which parsing, help and documentation come.
//!
//! ```text
//!   row  ──> apply    `name=value` checked against the row's kind, set in the target
//!        ──> help     `name=VALUE  text [default]`, for the command line and the man page
//!        ──> document a row of a Markdown table
//!        ──> nearest  the name that was meant
//! ```
//!
//! The default of an option is what the target's `Default` has: the row shows a value, it does not
//! state one. Tested here and in `tests/it/options.rs`.

use crate::error::{FsError, Result};

/// One option of a table whose options are set in a `T`.
pub struct OptionSpec<T: 'static> {
    /// Name before the `=`.
    pub name: &'static str,
    /// Form of the value.
    pub kind: Kind,
    /// Effect of the option, in a sentence.
    pub help: &'static str,
    /// The option may change while mounted.
    pub live: bool,
    /// Takes a value that has the right form.
    pub set: fn(&mut T, Given<'_>) -> Result<()>,
    /// The value that a target has, as it would be given; `None` for an option that only sets what
    /// another one shows.
    pub show: fn(&T) -> Option<String>,
}

/// Form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The name alone.
    Flag,
    /// A number from `low` to `high`; its unit is the word shown for it.
    Number {
        /// Least value.
        low: u32,
        /// Largest value.
        high: u32,
        /// Word for the value in help.
        unit: &'static str,
    },
    /// As [`Kind::Number`], or the name alone.
    OptionalNumber {
        /// Least value.
        low: u32,
        /// Largest value.
        high: u32,
        /// Word for the value in help.
        unit: &'static str,
    },
    /// Bytes, or a number with K, M or G; from `low` to `high` bytes.
    Size {
        /// Least value, in bytes.
        low: u64,
        /// Largest value, in bytes.
        high: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text but none; its word in help.
    Text(&'static str),
}

/// A value of the form that its row asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given<'a> {
    /// The name stood alone.
    Alone,
    /// Of [`Kind::Number`] and [`Kind::OptionalNumber`].
    Number(u32),
    /// Of [`Kind::Size`], in bytes.
    Size(u64),
    /// Of [`Kind::Choice`] and [`Kind::Text`].
    Text(&'a str),
}

impl<'a> Given<'a> {
    /// The number; `alone` where the name stood alone.
    pub fn number_or(self, alone: u32) -> u32 {
        if let Given::Number(number) = self { number } else { alone }
    }

    /// The number of a row whose kind has one.
    pub fn number(self) -> u32 {
        self.number_or(0)
    }

    /// The bytes of a row of sizes.
    pub fn size(self) -> u64 {
        if let Given::Size(bytes) = self { bytes } else { 0 }
    }

    /// The word or text of a row that has one.
    pub fn text(self) -> &'a str {
        if let Given::Text(text) = self { text } else { "" }
    }
}

impl Kind {
    /// Reads a value.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for one of another form; `item` is named in the message.
    fn read<'a>(&self, item: &str, value: Option<&'a str>) -> Result<Given<'a>> {
        let bad = |text: String| FsError::invalid(format!("mount option `{item}`: {text}"));
        match (*self, value) {
            (Kind::Flag | Kind::OptionalNumber { .. }, None) => Ok(Given::Alone),
            (Kind::Flag, Some(_)) => Err(bad("it takes no value; leave out the `=`".to_owned())),
            (
                Kind::Number { low, high, .. } | Kind::OptionalNumber { low, high, .. },
                Some(value),
            ) => match value.parse::<u32>() {
                Ok(number) if (low..=high).contains(&number) => Ok(Given::Number(number)),
                _ => Err(bad(format!("give a number, {low} to {high}"))),
            },
            (Kind::Size { low, high }, Some(value)) => match size(value) {
                Some(bytes) if (low..=high).contains(&bytes) => Ok(Given::Size(bytes)),
                _ if high == u64::MAX => {
                    Err(bad(format!("give a size from {}, as 256M", size_text(low))))
                }
                _ => {
                    let (low, high) = (size_text(low), size_text(high));
                    Err(bad(format!("give a size from {low} to {high}, as 256M")))
                }
            },
            (Kind::Choice(words), Some(value)) if words.contains(&value) => Ok(Given::Text(value)),
            (Kind::Choice(words), _) => Err(bad(format!("give one of {}", words.join(", ")))),
            (Kind::Text(_), Some(value)) if !value.is_empty() => Ok(Given::Text(value)),
            _ => Err(bad("bad or missing value".to_owned())),
        }
    }

    /// The form in help: `=SECONDS`, `=file|policy`, `[=MS]`, or nothing.
    fn form(&self) -> String {
        match self {
            Kind::Flag => String::new(),
            Kind::Number { unit, .. } => format!("={unit}"),
            Kind::OptionalNumber { unit, .. } => format!("[={unit}]"),
            Kind::Size { .. } => "=SIZE".to_owned(),
            Kind::Choice(words) => format!("={}", words.join("|")),
            Kind::Text(word) => format!("={word}"),
        }
    }
}

impl<T: Default> OptionSpec<T> {
    /// The option as it is written, `commit=SECONDS`.
    pub fn usage(&self) -> String {
        format!("{}{}", self.name, self.kind.form())
    }

    /// The value without the option; `None` where there is none to show.
    pub fn default_value(&self) -> Option<String> {
        (self.show)(&T::default())
    }
}

/// Sets the option `item`, which is `name` or `name=value`, in `target`. Several rows may have one
/// name; the first whose kind takes the value counts. `None`: no row has the name.
///
/// # Errors
/// [`FsError::Invalid`] for a value that the last row of that name refuses.
pub fn apply<T>(table: &[OptionSpec<T>], target: &mut T, item: &str) -> Option<Result<()>> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (item, None),
    };
    let mut rows = table.iter().filter(|row| row.name == name).peekable();
    while let Some(row) = rows.next() {
        match row.kind.read(item, value) {
            Ok(given) => return Some((row.set)(target, given)),
            Err(_) if rows.peek().is_some() => {}
            Err(err) => return Some(Err(err)),
        }
    }
    None
}

/// The error for an option that no table has; names the nearest of `names`.
pub fn unknown<'a>(item: &str, names: impl Iterator<Item = &'a str>) -> FsError {
    let name = item.split_once('=').map_or(item, |(name, _)| name);
    let near = names.min_by_key(|known| distance(name, known)).unwrap_or("ro");
    FsError::invalid(format!("unknown mount option `{item}`; the nearest is `{near}`"))
}

/// Rows as lines of help, indented by two, the text wrapped at `columns`.
pub fn help<T: Default>(table: &[OptionSpec<T>], columns: usize) -> String {
    let mut out = String::new();
    for row in table {
        out.push_str(&format!("  {}\n", row.usage()));
        let mut text = row.help.to_owned();
        if let Some(value) = row.default_value() {
            text.push_str(&format!(" [default: {value}]"));
        }
        if row.live {
            text.push_str(" [may change while mounted]");
        }
        let mut line = String::new();
        for word in text.split(' ') {
            if !line.is_empty() && 8 + line.len() + 1 + word.len() > columns {
                out.push_str(&format!("        {line}\n"));
                line.clear();
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        out.push_str(&format!("        {line}\n"));
    }
    out
}

/// Rows as a Markdown table.
pub fn markdown<T: Default>(table: &[OptionSpec<T>]) -> String {
    let mut out = "| option | default | effect |\n| --- | --- | --- |\n".to_owned();
    for row in table {
        let usage = row.usage().replace('|', "\\|");
        let value = row.default_value().map_or(String::new(), |value| format!("`{value}`"));
        let live = if row.live { " May change while mounted (`syncline ctl set`)." } else { "" };
        out.push_str(&format!("| `{usage}` | {value} | {}{live} |\n", row.help));
    }
    out
}

/// Bytes of `64M`: a number, or one with K, M or G.
fn size(value: &str) -> Option<u64> {
    let (digits, shift) = match value.char_indices().last()? {
        (at, 'k' | 'K') => (&value[..at], 10),
        (at, 'm' | 'M') => (&value[..at], 20),
        (at, 'g' | 'G') => (&value[..at], 30),
        _ => (value, 0),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1u64 << shift))
}

/// Bytes as an option takes them, in the largest unit that has no fraction.
pub fn size_text(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or(bytes.to_string(), |(shift, letter)| format!("{}{letter}", bytes >> shift))
}

/// Levenshtein distance, for "the nearest is".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        assert_eq!(size("64M"), Some(64 << 20));
        assert_eq!(size("1k"), Some(1024));
        assert_eq!(
            (size(""), size("M"), size("-1"), size("99999999999G")),
            (None, None, None, None)
        );
        assert_eq!(size_text(256 << 20), "256M");
        assert_eq!(size_text(1000), "1000");
        assert_eq!(size_text(0), "0");
    }

    #[test]
    fn kinds_refuse_other_forms() {
        let number = Kind::Number { low: 1, high: 9, unit: "N" };
        assert_eq!(number.read("a=9", Some("9")), Ok(Given::Number(9)));
        for (kind, value) in [
            (number, Some("10")),
            (number, None),
            (Kind::Flag, Some("1")),
            (Kind::Choice(&["a", "b"]), Some("c")),
            (Kind::Text("FILE"), Some("")),
            (Kind::Size { low: 1 << 20, high: u64::MAX }, Some("4")),
        ] {
            assert!(matches!(kind.read("x", value), Err(FsError::Invalid(_))), "{kind:?}");
        }
    }
}
