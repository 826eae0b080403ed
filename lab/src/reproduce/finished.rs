//! Finished runs in a file, so that a long session goes on where it was stopped.
//!
//! ```text
//! {"schema": "syncline.reproduce.runs/1", "build": "...", "form": "full"}      the first line
//! {"run": "...", "figures": {"name": "0.25"}}                  one for each run
//! ```
//!
//! Promises
//! - A figure comes back bit for bit: its text is the shortest that reads as the same number.
//! - Runs of another build or form are refused, never mixed in. So is a file of something else,
//!   which stays as it is.
//! - A line that was cut while it was written is dropped, and its run is made again.
//!
//! Block traces are not kept. Tested here and in `lab/tests/reproduce`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::reproduce::measured::Measured;

/// Schema name of the file.
const SCHEMA: &str = "syncline.reproduce.runs/1";

#[derive(Deserialize, Serialize, PartialEq)]
struct Head {
    schema: String,
    build: String,
    form: String,
}

#[derive(Deserialize, Serialize)]
struct Line {
    run: String,
    figures: BTreeMap<String, String>,
}

/// The file, open for more runs, and those it has.
#[derive(Debug)]
pub struct Finished {
    file: File,
    runs: HashMap<String, Measured>,
}

impl Finished {
    /// Opens `path`, or creates it, for runs of `build` in the full or the short form.
    pub fn open(path: &Path, build: &str, full: bool) -> Result<Finished> {
        let host = |err| LabError::host(path, &err);
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(path).map_err(host)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(host)?;
        let form = if full { "full" } else { "short" }.to_owned();
        let head = Head { schema: SCHEMA.to_owned(), build: build.to_owned(), form };
        let first = text.lines().next();
        let runs = match first.map(serde_json::from_str::<Head>) {
            None => {
                append(&mut file, &head).map_err(host)?;
                HashMap::new()
            }
            Some(Ok(there)) if there == head && text.contains('\n') => {
                // Whole lines only.
                text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
                file.set_len(text.len() as u64).map_err(host)?;
                text.lines().skip(1).map(run).collect::<Option<_>>().ok_or_else(|| damaged(path))?
            }
            Some(_) => {
                return Err(LabError::Usage(format!(
                    "{} has no runs of this build and form; name another file or remove it",
                    path.display()
                )));
            }
        };
        Ok(Finished { file, runs })
    }

    /// The run with this key.
    pub(super) fn get(&self, key: &str) -> Option<&Measured> {
        self.runs.get(key)
    }

    /// Appends a run.
    pub(super) fn add(&mut self, key: &str, measured: &Measured) -> Result<()> {
        let figures = measured.names().filter_map(|name| {
            measured.get(name).map(|value| (name.to_owned(), value.to_string()))
        });
        let figures = figures.collect();
        let line = Line { run: key.to_owned(), figures };
        append(&mut self.file, &line).map_err(LabError::io("file of finished runs"))
    }
}

fn run(line: &str) -> Option<(String, Measured)> {
    let line: Line = serde_json::from_str(line).ok()?;
    let mut measured = Measured::default();
    for (name, value) in line.figures {
        measured = measured.with(&name, value.parse().ok()?);
    }
    Some((line.run, measured))
}

fn append(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let line = serde_json::to_string(line)? + "\n";
    file.write_all(line.as_bytes())
}

fn damaged(path: &Path) -> LabError {
    LabError::Corrupt(format!("{} is damaged; remove it", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_bit_for_bit_and_a_cut_line_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        let third = 1.0 / 3.0;
        let measured = Measured::default().with("a", third).with("b", f64::INFINITY);
        let mut file = Finished::open(&path, "one", true).unwrap();
        file.add("r", &measured).unwrap();
        file.add("cut", &measured).unwrap();
        drop(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 4]).unwrap();

        let mut again = Finished::open(&path, "one", true).unwrap();
        assert_eq!(again.get("r").unwrap().get("a").unwrap().to_bits(), third.to_bits());
        assert_eq!(again.get("r").unwrap().get("b"), Some(f64::INFINITY));
        assert!(again.get("cut").is_none());
        again.add("more", &measured).unwrap();
        assert!(Finished::open(&path, "one", true).unwrap().get("more").is_some());

        for (build, full) in [("two", true), ("one", false)] {
            let err = Finished::open(&path, build, full).unwrap_err();
            assert!(matches!(err, LabError::Usage(_)), "{err}");
        }
        for other in ["a note without a line end", "a note\nof two lines"] {
            std::fs::write(&path, other).unwrap();
            assert!(matches!(Finished::open(&path, "one", true), Err(LabError::Usage(_))));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), other);
        }
        std::fs::write(&path, text.replace("figures", "fig")).unwrap();
        assert!(matches!(Finished::open(&path, "one", true), Err(LabError::Corrupt(_))));
    }
}
