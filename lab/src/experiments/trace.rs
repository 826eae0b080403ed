//! Opens and reads traces of any format, and reports the lines that an import skipped.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use crate::evaluate::{PageGather, PageTrace};
use crate::observer::Observer;
use crate::trace::{
    Header, Import, ImportOptions, MAGIC, Names, Record, Report, Sink, TraceReader,
};
use serde::Deserialize;
use syncline_cli::interrupt;
use syncline_image::stoppable::Stoppable;

use crate::error::{LabError, Result};

/// Longest list of files that were open before the start, in bytes.
const PREOPEN_BYTES_MAX: u64 = 64 << 20;

/// A trace and how to read it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TraceFile {
    /// The file.
    pub trace: PathBuf,
    /// Name of its format, where the content does not tell.
    pub format: Option<String>,
    /// Columns of a text of no known format.
    pub columns: Option<String>,
    /// Stop at the first line that cannot be read.
    pub strict: bool,
    /// Leave out accesses that equal one of the 32 before in operation and range.
    pub drop_repeats: bool,
    /// Files that were open before the trace; by itself the file beside the trace.
    pub preopen: Option<PathBuf>,
}

impl TraceFile {
    /// `trace` with nothing else said.
    pub fn of(trace: &Path) -> TraceFile {
        TraceFile { trace: trace.to_owned(), ..TraceFile::default() }
    }

    /// Reads it as pages; `dense` leaves out addresses that it never touches.
    pub fn pages(&self, dense: bool, observer: &dyn Observer) -> Result<PageRead> {
        let source = Source::open(self)?;
        let header = source.header();
        let mut gather = PageGather::new(header.kind);
        source.read(&mut gather, observer)?;
        let failed = |err: LabError| err.at(self.trace.display());
        let mut pages = gather.finish().map_err(failed)?;
        if dense {
            pages.make_dense();
        }
        Ok(PageRead { header, pages })
    }
}

/// A trace that was read as pages.
pub struct PageRead {
    /// Its kind and source.
    pub header: Header,
    /// Its accesses.
    pub pages: PageTrace,
}

/// An open trace.
pub struct Source {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Ours(Box<TraceReader<File>>),
    Theirs(Box<Import<'static>>),
}

impl Source {
    /// Opens a trace.
    pub fn open(file: &TraceFile) -> Result<Source> {
        let path = file.trace.clone();
        let kind = kind(file)?;
        Ok(Source { path, kind })
    }

    /// Its kind and source.
    pub fn header(&self) -> Header {
        match &self.kind {
            Kind::Ours(reader) => reader.header().clone(),
            Kind::Theirs(import) => import.header(),
        }
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

fn kind(args: &TraceFile) -> Result<Kind> {
    let path = &args.trace;
    let failed = |err: std::io::Error| LabError::host(path, &err);
    let foreign = args.format.is_some() || args.columns.is_some();
    // Pipes cannot be rewound: they hold no trace of ours.
    if !foreign && std::fs::metadata(path).map_err(failed)?.is_file() {
        let mut file = File::open(path).map_err(failed)?;
        let mut start = [0; MAGIC.len()];
        let n = file.read(&mut start).map_err(failed)?;
        if n == start.len() && &start == MAGIC {
            file.rewind().map_err(failed)?;
            let reader = TraceReader::open(file).map_err(|err| err.at(path.display()))?;
            return Ok(Kind::Ours(Box::new(reader)));
        }
    }
    let file = Stoppable::open(path, interrupt::asked).map_err(failed)?;
    let options = ImportOptions {
        format: args.format.clone(),
        columns: args.columns.clone(),
        strict: args.strict,
        drop_repeats: args.drop_repeats,
        preopen: preopen(args)?,
    };
    let bytes = BufReader::with_capacity(256 << 10, file);
    let import = Import::open(bytes, &options).map_err(|err| err.at(path.display()))?;
    Ok(Kind::Theirs(Box::new(import)))
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

/// The list of files that were open: as given, or the file beside a log of the android-ext4 set.
fn preopen(args: &TraceFile) -> Result<Option<String>> {
    let beside = || {
        let mut name = OsString::from(args.trace.file_name()?);
        name.push("_PREOPEN");
        Some(args.trace.with_file_name(name)).filter(|path| path.is_file())
    };
    let Some(path): Option<PathBuf> = args.preopen.clone().or_else(beside) else {
        return Ok(None);
    };
    let failed = |err: std::io::Error| LabError::host(&path, &err);
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(PREOPEN_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
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
