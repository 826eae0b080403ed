//! Option tables: one row an option, from which parsing, help and documentation come.
//!
//! ```text
//!   row  ──> apply    `name=value` checked against the row's form, set in the target
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
    /// Form of the value, with the function that sets it.
    pub form: Form<T>,
    /// Effect of the option, in a sentence.
    pub help: &'static str,
    /// The option may change while mounted.
    pub live: bool,
    /// The value that a target has, as it would be given, or `on` for a word that holds; `None` for
    /// an option that only sets what another one shows, and one that is given more than once.
    pub show: fn(&T) -> Option<String>,
}

/// A word of [`Form::Choice`] with its setter.
pub type Word<T> = (&'static str, fn(&mut T));

/// Form of an option's value. Each form has a setter that takes a value of this form.
pub enum Form<T: 'static> {
    /// The name alone.
    Flag(fn(&mut T)),
    /// A number from `low` to `high`; its unit is the word shown for it.
    Number {
        /// Least value.
        low: u32,
        /// Largest value.
        high: u32,
        /// Word for the value in help.
        unit: &'static str,
        /// Sets the number.
        set: fn(&mut T, u32),
    },
    /// As [`Form::Number`], or the name alone, or one of a few words.
    OptionalNumber {
        /// Least value.
        low: u32,
        /// Largest value.
        high: u32,
        /// Word for the value in help.
        unit: &'static str,
        /// Value of the name alone.
        alone: u32,
        /// Sets the number.
        set: fn(&mut T, u32),
        /// Words in place of a number.
        words: &'static [Word<T>],
    },
    /// Bytes, or a number with K, M or G; from `low` to `high` bytes.
    Size {
        /// Least value, in bytes.
        low: u64,
        /// Largest value, in bytes.
        high: u64,
        /// Sets the number of bytes.
        set: fn(&mut T, u64),
    },
    /// One of these words, each with its setter.
    Choice(&'static [Word<T>]),
    /// Any text but none.
    Text {
        /// Word for the value in help.
        word: &'static str,
        /// Sets the text, or refuses it.
        set: fn(&mut T, &str) -> Result<()>,
    },
}

impl<T> Form<T> {
    /// Reads a value and sets it in `target`.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for a value of another form; `item` is named in the message.
    fn apply(&self, target: &mut T, item: &str, value: Option<&str>) -> Result<()> {
        let bad = |text: String| FsError::invalid(format!("mount option `{item}`: {text}"));
        let number = |low: u32, high: u32, value: &str| match value.parse::<u32>() {
            Ok(number) if (low..=high).contains(&number) => Ok(number),
            _ => Err(bad(format!("give a number, {low} to {high}"))),
        };
        match (self, value) {
            (Form::Flag(set), None) => set(target),
            (Form::Flag(_), Some(_)) => {
                return Err(bad("it takes no value; leave out the `=`".to_owned()));
            }
            (Form::OptionalNumber { alone, set, .. }, None) => set(target, *alone),
            (Form::OptionalNumber { low, high, set, words, .. }, Some(value)) => {
                match words.iter().find(|(word, _)| *word == value) {
                    Some((_, set)) => set(target),
                    None => set(target, number(*low, *high, value)?),
                }
            }
            (Form::Number { low, high, set, .. }, Some(value)) => {
                set(target, number(*low, *high, value)?);
            }
            (Form::Size { low, high, set }, Some(value)) => match size(value) {
                Some(bytes) if (*low..=*high).contains(&bytes) => set(target, bytes),
                _ if *high == u64::MAX => {
                    return Err(bad(format!("give a size from {}, as 256M", size_text(*low))));
                }
                _ => {
                    let (low, high) = (size_text(*low), size_text(*high));
                    return Err(bad(format!("give a size from {low} to {high}, as 256M")));
                }
            },
            (Form::Choice(words), value) => {
                let Some((_, set)) = words.iter().find(|(word, _)| Some(*word) == value) else {
                    return Err(bad(format!("give one of {}", join(words, ", "))));
                };
                set(target);
            }
            (Form::Text { set, .. }, Some(value)) if !value.is_empty() => set(target, value)?,
            (Form::Number { .. } | Form::Size { .. } | Form::Text { .. }, _) => {
                return Err(bad("bad or missing value".to_owned()));
            }
        }
        Ok(())
    }

    /// The form in help: `=SECONDS`, `=file|policy`, `[=MS]`, or nothing.
    fn usage(&self) -> String {
        match self {
            Form::Flag(_) => String::new(),
            Form::Number { unit, .. } => format!("={unit}"),
            Form::OptionalNumber { unit, words, .. } => format!("[={unit}|{}]", join(words, "|")),
            Form::Size { .. } => "=SIZE".to_owned(),
            Form::Choice(words) => format!("={}", join(words, "|")),
            Form::Text { word, .. } => format!("={word}"),
        }
    }
}

fn join<T>(words: &[Word<T>], between: &str) -> String {
    words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(between)
}

impl<T: Default> OptionSpec<T> {
    /// The option as it is written, `commit=SECONDS`.
    pub fn usage(&self) -> String {
        format!("{}{}", self.name, self.form.usage())
    }

    /// A candidate for a list of options, for completion: the name, with `=` if a value follows.
    /// Behind the `=` in `begun`: the option with each word that may follow.
    pub fn candidates(&self, begun: &str) -> Vec<String> {
        match &self.form {
            Form::Flag(_) | Form::OptionalNumber { .. } => vec![self.name.to_owned()],
            Form::Choice(words) if begun.split_once('=').is_some_and(|(n, _)| n == self.name) => {
                words.iter().map(|(word, _)| format!("{}={word}", self.name)).collect()
            }
            _ => vec![format!("{}=", self.name)],
        }
    }

    /// The option as it would be given for what a target has.
    pub fn item(&self, target: &T) -> Option<String> {
        let value = (self.show)(target)?;
        Some(match &self.form {
            Form::Flag(_) => self.name.to_owned(),
            _ => format!("{}={value}", self.name),
        })
    }

    /// The value without the option; `None` where there is none to show.
    pub fn default_value(&self) -> Option<String> {
        (self.show)(&T::default())
    }
}

/// Sets the option `item`, which is `name` or `name=value`, in `target`. `None`: no row has the
/// name.
///
/// # Errors
/// [`FsError::Invalid`] for a value that the row refuses.
pub fn apply<T>(table: &[OptionSpec<T>], target: &mut T, item: &str) -> Option<Result<()>> {
    let (name, value) = match item.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (item, None),
    };
    let row = table.iter().find(|row| row.name == name)?;
    let done = row.form.apply(target, item, value);
    // `sync=packed` is meant for `log=packed`.
    let other = table.iter().find(|row| match (&row.form, value) {
        (Form::Choice(words), Some(value)) => words.iter().any(|(word, _)| *word == value),
        _ => false,
    });
    Some(match (done, &row.form, other, value) {
        (Err(FsError::Invalid(text)), Form::Choice(_), Some(other), Some(value)) => {
            Err(FsError::invalid(format!("{text}, or `{}={value}`", other.name)))
        }
        (done, ..) => done,
    })
}

/// The error for an option that no table has; names the nearest of `names`, if one is near: every
/// third letter may be wrong.
pub fn unknown<'a>(item: &str, names: impl Iterator<Item = &'a str>) -> FsError {
    let name = item.split_once('=').map_or(item, |(name, _)| name);
    let near = names.map(|known| (distance(name, known), known));
    let near = near.filter(|(wrong, _)| *wrong <= name.len().div_ceil(3));
    let nearest = near.min_by_key(|(wrong, _)| *wrong).map(|(_, known)| known);
    let hint = nearest.map_or(String::new(), |near| format!("; the nearest is `{near}`"));
    FsError::invalid(format!("unknown mount option `{item}`{hint}"))
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
pub fn size(value: &str) -> Option<u64> {
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
    fn the_nearest_name_is_near() {
        let text = |item| unknown(item, ["ro", "noatime"].into_iter()).to_string();
        assert!(text("noatmie").ends_with("; the nearest is `noatime`"), "{}", text("noatmie"));
        assert_eq!(text("foo=1"), "invalid argument: unknown mount option `foo=1`");
    }

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
    fn forms_set_their_values_and_refuse_others() {
        #[derive(Default, Debug, PartialEq)]
        struct Target(u64, String);
        let number =
            || Form::Number { low: 1, high: 9, unit: "N", set: |t: &mut Target, n| t.0 = n.into() };
        let optional = || Form::OptionalNumber {
            low: 1,
            high: 9,
            unit: "N",
            alone: 4,
            set: |t: &mut Target, n| t.0 = n.into(),
            words: &[("word", |t: &mut Target| t.0 = 5)],
        };
        let size = || Form::Size { low: 1 << 20, high: u64::MAX, set: |t: &mut Target, n| t.0 = n };
        let choice = || Form::Choice(&[("a", |t: &mut Target| t.0 = 1), ("b", |t| t.0 = 2)]);
        let text = || Form::Text {
            word: "FILE",
            set: |t: &mut Target, text| {
                t.1 = text.to_owned();
                Ok(())
            },
        };
        let flag = || Form::Flag(|t: &mut Target| t.0 = 7);
        for (form, value, set) in [
            (number(), Some("9"), Target(9, String::new())),
            (optional(), None, Target(4, String::new())),
            (optional(), Some("word"), Target(5, String::new())),
            (size(), Some("1M"), Target(1 << 20, String::new())),
            (choice(), Some("b"), Target(2, String::new())),
            (text(), Some("x"), Target(0, "x".to_owned())),
            (flag(), None, Target(7, String::new())),
        ] {
            let mut target = Target::default();
            assert_eq!(form.apply(&mut target, "o", value), Ok(()), "{}", form.usage());
            assert_eq!(target, set);
        }
        for (form, value) in [
            (number(), Some("10")),
            (number(), None),
            (optional(), Some("")),
            (size(), Some("4")),
            (size(), None),
            (choice(), Some("c")),
            (choice(), None),
            (text(), Some("")),
            (text(), None),
            (flag(), Some("1")),
        ] {
            let mut target = Target::default();
            let refused = form.apply(&mut target, "o", value);
            assert!(matches!(refused, Err(FsError::Invalid(_))), "{} {value:?}", form.usage());
            assert_eq!(target, Target::default());
        }
    }
}
