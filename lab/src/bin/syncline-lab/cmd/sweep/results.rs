//! The directory of a sweep, as `syncline.sweeps` has it: `plan.json`, `.lock`, and `rows.jsonl`
//! with a line for each finished row. Parts of Parquet that Python wrote are read, none is made.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use parquet::schema::types::Type;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value};

use syncline_cli::error::{Failure, Result, plain};

/// Results that one driver writes.
pub(super) struct Results {
    directory: PathBuf,
    journal: File,
    /// Held while this is there.
    _lock: File,
    /// Rows by key, with the error of those that failed.
    pub rows: HashMap<String, Option<String>>,
}

impl Results {
    /// Creates the directory, or continues in it.
    pub fn open(directory: &Path, plan: &Value, resume: bool) -> Result<Results> {
        let at = explained(directory);
        fs::create_dir_all(directory).map_err(&at)?;
        let lock = File::create(directory.join(".lock")).map_err(&at)?;
        let held = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if held == Err(rustix::io::Errno::WOULDBLOCK) {
            return Err(refused(directory, "another sweep writes there; wait for it"));
        }
        held.map_err(|err| at(err.into()))?;
        let path = directory.join("plan.json");
        if path.exists() {
            if !resume {
                return Err(refused(directory, "has results; resume, or name a new directory"));
            }
            compare(directory, &fs::read_to_string(&path).map_err(&at)?, plan)?;
        }
        let temporary = directory.join("plan.json.tmp");
        fs::write(&temporary, format!("{plan:#}")).map_err(&at)?;
        fs::rename(&temporary, &path).map_err(&at)?;
        let journal = directory.join("rows.jsonl");
        let mut rows = in_parts(directory)?;
        let whole = in_journal(&journal, &mut rows).map_err(&at)?;
        let journal = OpenOptions::new().create(true).append(true).open(&journal).map_err(&at)?;
        // A line that a killed driver did not end.
        journal.set_len(whole).map_err(&at)?;
        Ok(Results { directory: directory.to_owned(), journal, _lock: lock, rows })
    }

    /// Keeps a row: it is in the file when this returns.
    pub fn add(&mut self, row: Map<String, Value>) -> Result<()> {
        let key = row["key"].as_str().unwrap_or_default().to_owned();
        let error = row["error"].as_str().map(str::to_owned);
        let line = format!("{}\n", Value::Object(row));
        self.journal.write_all(line.as_bytes()).map_err(explained(&self.directory))?;
        self.rows.insert(key, error);
        Ok(())
    }
}

fn refused(directory: &Path, text: &str) -> Failure {
    Failure::Failed(format!("{}: {text}", directory.display()))
}

fn explained(directory: &Path) -> impl Fn(std::io::Error) -> Failure {
    let next = "make room or give access, then resume: rows that are there are kept";
    move |err| refused(directory, &format!("{}; {next}", plain(&err)))
}

/// Only the same kind of sweep by the same version can be resumed.
fn compare(directory: &Path, before: &str, plan: &Value) -> Result<()> {
    let before: Value = serde_json::from_str(before).unwrap_or_default();
    if before["what"] != plan["what"] {
        let text = format!("holds a sweep of {}; name a new directory", before["what"]);
        return Err(refused(directory, &text));
    }
    if before["version"] != plan["version"] {
        let text = format!(
            "rows are by {}, this is {}; resume with the same version, or name a new directory",
            before["version"], plan["version"]
        );
        return Err(refused(directory, &text));
    }
    Ok(())
}

/// Takes the lines of a journal; returns the bytes of those that are whole.
fn in_journal(path: &Path, rows: &mut HashMap<String, Option<String>>) -> std::io::Result<u64> {
    let text = match fs::read(path) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        read => read?,
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    for line in text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: Value = serde_json::from_slice(line)?;
        let error = row["error"].as_str().map(str::to_owned);
        rows.insert(row["key"].as_str().unwrap_or_default().to_owned(), error);
    }
    Ok(whole as u64)
}

/// Keys and errors of the rows in parts.
fn in_parts(directory: &Path) -> Result<HashMap<String, Option<String>>> {
    let mut rows = HashMap::new();
    for entry in fs::read_dir(directory).map_err(explained(directory))? {
        let path = entry.map_err(explained(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("part-") && name.ends_with(".parquet") {
            let file = File::open(&path).map_err(|err| Failure::host(&path, &err))?;
            take_part(file, &mut rows).map_err(|err| {
                Failure::Failed(format!("{}: {err}; remove it, its rows run again", path.display()))
            })?;
        }
    }
    Ok(rows)
}

fn take_part(
    file: File,
    rows: &mut HashMap<String, Option<String>>,
) -> std::result::Result<(), parquet::errors::ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let whole = reader.metadata().file_metadata().schema().clone();
    let wanted = whole.get_fields().iter().filter(|f| ["key", "error"].contains(&f.name()));
    let projection = Type::group_type_builder(whole.name()).with_fields(wanted.cloned().collect());
    for row in reader.get_row_iter(Some(projection.build()?))? {
        let row = row?;
        // In the order of the file: the key first.
        rows.insert(row.get_string(0)?.clone(), row.get_string(1).ok().cloned());
    }
    Ok(())
}
