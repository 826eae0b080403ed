//! Opens a trace, whatever its format, and says what an import had to leave out.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use syncline_trace::{
    Header, Import, ImportOptions, MAGIC, Names, Record, Report, Sink, TraceError, TraceReader,
};

use crate::args::TraceInput;
use crate::error::{Failure, Result};
use crate::{complain, interrupt};

/// Longest list of files that were open before the start, in bytes.
const PREOPEN_BYTES_MAX: u64 = 64 << 20;

/// An open trace.
pub(crate) enum Source {
    Ours(Box<TraceReader<File>>),
    Theirs(Box<Import<'static>>),
}

impl Source {
    /// Opens `args.trace`.
    pub(crate) fn open(args: &TraceInput) -> Result<Source> {
        let path = &args.trace;
        let failed = |err: std::io::Error| Failure::host(path, &err);
        let mut file = File::open(path).map_err(failed)?;
        let mut start = [0; MAGIC.len()];
        let mut n = 0;
        // Pipes cannot be rewound: they hold no trace of ours.
        let regular = file.metadata().is_ok_and(|meta| meta.is_file());
        if regular {
            n = file.read(&mut start).map_err(failed)?;
            file.rewind().map_err(failed)?;
        }
        let foreign = args.format.is_some() || args.columns.is_some();
        if n == start.len() && &start == MAGIC && !foreign {
            let reader = TraceReader::open(file).map_err(|err| at(path, err))?;
            return Ok(Source::Ours(Box::new(reader)));
        }
        let options = ImportOptions {
            format: args.format.clone(),
            columns: args.columns.clone(),
            strict: args.strict,
            drop_repeats: args.drop_repeats,
            preopen: preopen(args)?,
        };
        let bytes = BufReader::with_capacity(256 << 10, file);
        let import = Import::open(bytes, &options).map_err(|err| at(path, err))?;
        Ok(Source::Theirs(Box::new(import)))
    }

    pub(crate) fn header(&self) -> Header {
        match self {
            Source::Ours(reader) => reader.header().clone(),
            Source::Theirs(import) => import.header(),
        }
    }

    /// Passes every record to `sink`, and complains about what was left out.
    pub(crate) fn read(self, path: &Path, sink: &mut dyn Sink) -> Result<(Option<Report>, Names)> {
        let mut sink = Interruptible { sink, records: 0 };
        match self {
            Source::Ours(mut reader) => {
                reader.read_all(&mut sink).map_err(|err| at(path, err))?;
                if reader.lost() > 0 {
                    let (path, lost) = (path.display(), reader.lost());
                    complain(&format!("{path}: {lost} records were lost when it was recorded"));
                }
                Ok((None, reader.into_names()))
            }
            Source::Theirs(import) => {
                let (report, names) = import.run(&mut sink).map_err(|err| at(path, err))?;
                tell(path, &report);
                Ok((Some(report), names))
            }
        }
    }
}

/// An error of the trace, with its path.
pub(crate) fn at(path: &Path, err: TraceError) -> Failure {
    Failure::from(err).at(path.display())
}

fn tell(path: &Path, report: &Report) {
    let path = path.display();
    if report.bad_lines > 0 {
        complain(&format!(
            "{path}: {} lines are no records of {}; --strict stops at the first",
            report.bad_lines, report.format
        ));
        for (number, line, why) in &report.first_bad {
            complain(&format!("{path}: line {number}: {why}: {line}"));
        }
    }
    if let Some(why) = &report.cut_short {
        complain(&format!("{path}: cut short, {why}; what comes before it was read"));
    }
}

/// The list of files that were open: as given, or the file beside a log of the android-ext4 set.
fn preopen(args: &TraceInput) -> Result<Option<String>> {
    let beside = || {
        let mut name = OsString::from(args.trace.file_name()?);
        name.push("_PREOPEN");
        Some(args.trace.with_file_name(name)).filter(|path| path.is_file())
    };
    let Some(path): Option<PathBuf> = args.preopen.clone().or_else(beside) else {
        return Ok(None);
    };
    let failed = |err: std::io::Error| Failure::host(&path, &err);
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(PREOPEN_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Stops at Ctrl-C.
struct Interruptible<'s> {
    sink: &'s mut dyn Sink,
    records: u64,
}

impl Sink for Interruptible<'_> {
    fn record(&mut self, names: &Names, record: &Record) -> syncline_trace::Result<()> {
        self.records += 1;
        if self.records.is_multiple_of(1024) && interrupt::asked() {
            return Err(TraceError::Stopped);
        }
        self.sink.record(names, record)
    }
}
