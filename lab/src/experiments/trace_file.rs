//! Opens files of traces.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::evaluate::{PageGather, PageTrace};
use crate::observer::Observer;
use crate::trace::{Header, ImportOptions, MAGIC, TraceBytes};
use serde::Deserialize;
use syncline_cli::interrupt;
use syncline_image::stoppable::Stoppable;

use crate::error::{LabError, Result};
use crate::experiments::trace::Source;

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

/// Bytes of a file.
pub(super) fn bytes_of(path: &Path) -> Result<TraceBytes> {
    let failed = |err: std::io::Error| LabError::host(path, &err);
    let file = File::open(path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    Ok(TraceBytes::new(Arc::new(file), len))
}

impl Source {
    /// Opens a trace.
    pub fn open(file: &TraceFile) -> Result<Source> {
        let path = &file.trace;
        let options = ImportOptions {
            format: file.format.clone(),
            columns: file.columns.clone(),
            strict: file.strict,
            drop_repeats: file.drop_repeats,
            preopen: preopen(file)?,
        };
        let failed = |err: std::io::Error| LabError::host(path, &err);
        // Pipes cannot be rewound: they hold no trace of ours.
        if !options.is_named() && std::fs::metadata(path).map_err(failed)?.is_file() {
            let bytes = bytes_of(path)?;
            if bytes.starts_with(MAGIC) {
                return Source::of(&bytes, path, &options);
            }
        }
        let bytes = Stoppable::open(path, interrupt::asked).map_err(failed)?;
        Source::imported(bytes, path, &options)
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
