//! Documents of the command line as columns of a row, and as the text that Python's `json.dumps`
//! makes of them, byte for byte: rows and keys of both drivers are the same.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Serializer, Value};

use super::plan::{Column, Task};

/// Mode of `bench` where the options name none.
pub(super) const SYNC: &str = "eager";

/// As `json.dumps(value, sort_keys=True)`.
pub(super) fn python(value: &Value) -> String {
    let mut text = Vec::new();
    // Neither memory nor a value of JSON can fail here.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut text, Python));
    String::from_utf8(text).unwrap_or_default()
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> Result<()> {
        to.write_all(b": ")
    }

    /// Rust and Python take the same digits, and an exponent from the same sizes on.
    fn write_f64<W: ?Sized + Write>(&mut self, to: &mut W, value: f64) -> Result<()> {
        let text = format!("{value:?}");
        match text.split_once('e') {
            None => to.write_all(text.as_bytes()),
            Some((digits, exponent)) => {
                let (sign, exponent) = match exponent.strip_prefix('-') {
                    Some(exponent) => ('-', exponent),
                    None => ('+', exponent),
                };
                write!(to, "{}e{sign}{exponent:0>2}", digits.trim_end_matches(".0"))
            }
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, text: &str) -> Result<()> {
        for letter in text.chars() {
            if letter.is_ascii() && letter != '\x7f' {
                to.write_all(&[letter as u8])?;
            } else {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(to, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }
}

/// The document with the trace's name as the plan has it, and of `bench` the one run.
pub(super) fn named(mut document: Value, task: &Task, sync: &str) -> Value {
    match task.get("what") {
        Some("cache") => document["trace"]["path"] = task.fields["trace"].clone(),
        Some("replay") => document["trace"] = task.fields["trace"].clone(),
        Some("bench") => {
            // The workload `replay` runs in both modes, whatever it is told.
            if let Some(runs) = document["runs"].as_array_mut() {
                runs.retain(|run| run["config"]["sync"] == sync);
                runs.truncate(1);
            }
        }
        _ => {}
    }
    document
}

/// The row of a task: its configuration, its figures, and the document or an error.
pub(super) fn row(
    task: &Task,
    version: &str,
    columns: &[Column],
    found: std::result::Result<Value, String>,
) -> Map<String, Value> {
    let (document, error) = match found {
        Ok(document) => (document, Value::Null),
        Err(error) => (Value::Null, error.into()),
    };
    let mut row = task.fields.clone();
    row.insert("key".to_owned(), task.key().into());
    row.insert("version".to_owned(), version.into());
    row.insert("error".to_owned(), error);
    let run = match document.get("runs") {
        Some(runs) => &runs[0],
        None => &document,
    };
    for column in columns {
        row.insert(column.name.clone(), figure(run, column));
    }
    let text = if document.is_null() { Value::Null } else { python(&document).into() };
    row.insert("document".to_owned(), text);
    row
}

/// A figure of a document; null where it has none, as without a device.
fn figure(run: &Value, column: &Column) -> Value {
    let step = |at: &'_ Value, name: &str| match at {
        Value::Array(list) => name.parse().ok().and_then(|n: usize| list.get(n)).cloned(),
        at => at.get(name).cloned(),
    };
    let found = column.place.split('.').try_fold(run.clone(), |at, name| step(&at, name));
    match (found, column.kind.as_str()) {
        (Some(Value::Number(number)), "int64") if number.is_f64() => {
            (number.as_f64().unwrap_or_default() as i64).into()
        }
        (Some(Value::Number(number)), "float64") => number.as_f64().into(),
        (found, _) => found.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_that_of_python() {
        let value = json!({"b": [1, 2.0, -0.5], "a": {"x": null, "y": true}, "": []});
        assert_eq!(python(&value), r#"{"": [], "a": {"x": null, "y": true}, "b": [1, 2.0, -0.5]}"#);
        let numbers = json!([1e16, 9.5e15, 1e-4, 0.00001, 1.25e-7, 1e22, 5e-324, 0.1, 1e100]);
        let text =
            "[1e+16, 9500000000000000.0, 0.0001, 1e-05, 1.25e-07, 1e+22, 5e-324, 0.1, 1e+100]";
        assert_eq!(python(&numbers), text);
        assert_eq!(
            python(&json!("é\u{7f}😀\n\"\u{1}/")),
            r#""\u00e9\u007f\ud83d\ude00\n\"\u0001/""#
        );
    }

    #[test]
    fn digits_of_a_document_survive() {
        // Half a unit off where the parser is only nearly exact.
        for text in ["0.6000000000000001", "8.41470984807896507e-01", "1.7976931348623157e308"] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(value.as_f64(), text.parse().ok());
        }
    }
}
