//! Records in directories by device, program and day, as DuckDB, Polars, Dask and Spark read them.
//!
//! ```text
//!   DIR/device_name=phone-17/app=mail/day=2026-01-31/part-TRACE-0.parquet
//! ```
//!
//! Each file is a trace file of ours; `time_ns` counts from midnight (UTC) of its day. At most
//! [`OPEN_MAX`] are written at once: the one that waited longest is ended for another, and its
//! partition goes on in a next part. Files get their names when all are whole, so an import that
//! fails leaves none. The same trace again replaces its parts.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use syncline_lab::trace::{Header, NameId, Names, Record, Sink, TraceWriter};
use syncline_lab::{LabError, Result};

use crate::args::TraceImport;
use syncline_cli::format;

/// Files that are written at once. Each takes up to 32 MiB.
const OPEN_MAX: usize = 16;
const DAY_NS: u64 = 86_400 * 1_000_000_000;

/// One partition: the name of the program, and the day since 1970.
type Key = (NameId, u64);

struct Part {
    key: Key,
    temporary: PathBuf,
    path: PathBuf,
    writer: Option<TraceWriter<BufWriter<File>>>,
}

impl Part {
    fn end(&mut self, names: &Names) -> Result<()> {
        match self.writer.take() {
            Some(writer) => writer.finish(names).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Gone already after it was renamed.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Writer of all partitions of one trace.
pub(super) struct Partitions {
    root: PathBuf,
    header: Header,
    device: String,
    app: Option<String>,
    stem: String,
    start_ns: u64,
    /// Those that are written now, the latest at the end.
    open: Vec<Part>,
    ended: Vec<Part>,
    /// Parts so far in each directory: two names of programs may share one.
    parts: HashMap<PathBuf, u32>,
    records: u64,
}

impl Partitions {
    /// Begins with no file.
    pub(super) fn new(args: &TraceImport, header: Header, started_ns: Option<u64>) -> Partitions {
        let stem = args.input.trace.file_stem().unwrap_or_default().to_string_lossy();
        Partitions {
            root: args.output.clone(),
            header,
            device: escaped(&args.device_name),
            app: args.app.as_deref().map(escaped),
            stem: escaped(&stem),
            // The argument ends in the year 2200.
            start_ns: args.start.map(|s| s * 1_000_000_000).or(started_ns).unwrap_or(0),
            open: Vec::new(),
            ended: Vec::new(),
            parts: HashMap::new(),
            records: 0,
        }
    }

    /// Gives all files their names. Returns records and files.
    pub(super) fn finish(mut self, names: &Names) -> Result<(u64, usize)> {
        for mut part in self.open.drain(..) {
            part.end(names)?;
            self.ended.push(part);
        }
        for part in &self.ended {
            fs::rename(&part.temporary, &part.path).map_err(LabError::io("Parquet file"))?;
        }
        Ok((self.records, self.ended.len()))
    }

    fn begin(&mut self, key: Key, names: &Names) -> Result<()> {
        if self.open.len() == OPEN_MAX {
            let mut oldest = self.open.remove(0);
            oldest.end(names)?;
            self.ended.push(oldest);
        }
        let (app, day) = key;
        let app = match &self.app {
            Some(app) => app.clone(),
            None if app.is_some() => escaped(names.get(app)),
            None => "unknown".to_owned(),
        };
        let date = format::seconds(i64::try_from(day * 86_400).unwrap_or(i64::MAX));
        let dir = self.root.join(format!("device_name={}", self.device));
        let dir = dir.join(format!("app={app}")).join(format!("day={}", &date[..10]));
        let failed = LabError::io("directory of a partition");
        fs::create_dir_all(&dir).map_err(failed)?;
        let number = self.parts.entry(dir.clone()).or_default();
        let name = format!("part-{}-{number}.parquet", self.stem);
        *number += 1;
        let temporary = dir.join(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&temporary).map_err(LabError::io("Parquet file"))?;
        let mut part = Part { key, temporary, path: dir.join(name), writer: None };
        let mut writer = TraceWriter::new(BufWriter::new(file), &self.header)?;
        writer.started(day.saturating_mul(DAY_NS));
        part.writer = Some(writer);
        self.open.push(part);
        Ok(())
    }
}

impl Sink for Partitions {
    fn record(&mut self, names: &Names, record: &Record) -> Result<()> {
        let time_ns = self.start_ns.saturating_add(record.time_ns);
        let app = if self.app.is_some() { NameId::NONE } else { record.process_name };
        let key = (app, time_ns / DAY_NS);
        match self.open.iter().rposition(|part| part.key == key) {
            Some(at) if at + 1 == self.open.len() => {}
            Some(at) => self.open[at..].rotate_left(1),
            None => self.begin(key, names)?,
        }
        let record = Record { time_ns: time_ns % DAY_NS, ..*record };
        self.records += 1;
        match self.open.last_mut().and_then(|part| part.writer.as_mut()) {
            Some(writer) => writer.record(names, &record),
            None => Ok(()),
        }
    }
}

/// A name as a part of a path: other characters than letters, digits, `.`, `_` and `-` as `%XX`.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let mut text = String::new();
    for byte in name.bytes() {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    match Path::new(&text).file_name() {
        Some(_) => text,
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_stay_within_their_directory() {
        assert_eq!(escaped("kworker/0:1"), "kworker%2F0%3A1");
        assert_eq!(escaped("mail-2.1_b"), "mail-2.1_b");
        assert_eq!([escaped(".."), escaped(""), escaped(".")], ["unknown"; 3]);
    }
}
