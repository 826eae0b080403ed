//! Reads traces of any format, and reports the lines that an import skipped.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use crate::observer::Observer;
use crate::trace::{
    Header, Import, ImportOptions, MAGIC, Names, Record, Report, Sink, TraceBytes, TraceReader,
};

use crate::error::{LabError, Result};

/// An open trace.
pub struct Source {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Ours(Box<TraceReader<TraceBytes>>),
    Theirs(Box<Import<'static>>),
}

impl Source {
    /// A trace in `bytes`; `name` is for messages.
    pub fn of(bytes: &TraceBytes, name: &Path, options: &ImportOptions) -> Result<Source> {
        if options.is_named() || !bytes.starts_with(MAGIC) {
            return Source::imported(bytes.stream(0), name, options);
        }
        let reader = TraceReader::open(bytes.clone()).map_err(|err| err.at(name.display()))?;
        Ok(Source { path: name.to_owned(), kind: Kind::Ours(Box::new(reader)) })
    }

    /// A trace of another format.
    pub(super) fn imported(
        bytes: impl Read + 'static,
        name: &Path,
        options: &ImportOptions,
    ) -> Result<Source> {
        let bytes = BufReader::with_capacity(256 << 10, bytes);
        let import = Import::open(bytes, options).map_err(|err| err.at(name.display()))?;
        Ok(Source { path: name.to_owned(), kind: Kind::Theirs(Box::new(import)) })
    }

    /// Its kind and source.
    pub fn header(&self) -> Header {
        match &self.kind {
            Kind::Ours(reader) => reader.header().clone(),
            Kind::Theirs(import) => import.header(),
        }
    }

    /// True of a trace of another format, which is imported.
    pub fn is_foreign(&self) -> bool {
        matches!(self.kind, Kind::Theirs(_))
    }

    /// When its time zero was, nanoseconds since 1970; none where nothing says it.
    pub fn started(&self) -> Option<u64> {
        match &self.kind {
            Kind::Ours(reader) => reader.started(),
            Kind::Theirs(_) => None,
        }
    }

    /// Passes every record to `sink`, and complains about what was left out. The report is that of
    /// an import.
    pub fn read(
        self,
        sink: &mut dyn Sink,
        observer: &dyn Observer,
    ) -> Result<(Option<Report>, Names)> {
        let path = self.path;
        let mut sink = Interruptible { sink, observer, records: 0 };
        match self.kind {
            Kind::Ours(mut reader) => {
                reader.read_all(&mut sink).map_err(|err| err.at(path.display()))?;
                if reader.lost() > 0 {
                    let (path, lost) = (path.display(), reader.lost());
                    let text = format!("{path}: {lost} records were lost when it was recorded");
                    observer.complain(&text);
                }
                Ok((None, reader.into_names()))
            }
            Kind::Theirs(import) => {
                let read = import.run(&mut sink);
                // What ended early then is no damage.
                if observer.stopped() {
                    return Err(LabError::Interrupted);
                }
                let (report, names) = read.map_err(|err| err.at(path.display()))?;
                tell(&path, &report, observer);
                Ok((Some(report), names))
            }
        }
    }
}

fn tell(path: &Path, report: &Report, observer: &dyn Observer) {
    let path = path.display();
    if report.bad_lines > 0 {
        observer.complain(&format!(
            "{path}: {} lines could not be parsed as {} records; --strict stops at the first",
            report.bad_lines, report.format
        ));
        for (number, line, why) in &report.first_bad {
            observer.complain(&format!("{path}: line {number}: {why}: {line}"));
        }
    }
    if let Some(why) = &report.cut_short {
        observer.complain(&format!("{path}: cut short, {why}; what comes before it was read"));
    }
}

/// Stops where the observer wants it.
struct Interruptible<'s> {
    sink: &'s mut dyn Sink,
    observer: &'s dyn Observer,
    records: u64,
}

impl Sink for Interruptible<'_> {
    fn record(&mut self, names: &Names, record: &Record) -> crate::error::Result<()> {
        self.records += 1;
        if self.records.is_multiple_of(1024) && self.observer.stopped() {
            return Err(LabError::Interrupted);
        }
        self.sink.record(names, record)
    }
}
