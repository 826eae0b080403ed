//! The command line of `syncline-lab trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::TraceWatch;

/// Read, convert, measure and record traces of storage activity.
///
/// A trace is a file of ours (Parquet, docs/FORMAT.md) or one of: blktrace, blkparse, fio's iolog,
/// strace, tracefs block events, MSR Cambridge, UMass and SPC, SNIA SYSTOR'17, DiskMon, the ftrace
/// logs and MobiGen scripts of phones, and others; the content tells which. gzip and zstd are
/// unpacked. Lines that cannot be read are counted, and the first are shown.
///
/// Examples: `syncline-lab trace record -o app.trace -- sqlite3 a.db`,
/// `syncline-lab trace stat app.trace`,
/// `syncline-lab trace import trace.csv.zst --output disk.trace`.
#[derive(Debug, Args)]
pub struct Trace {
    #[command(subcommand)]
    pub command: TraceCommand,
}

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    Import(TraceImport),
    Export(TraceExport),
    Join(TraceJoin),
    Stat(TraceStat),
    Hot(TraceHot),
    Record(TraceRecord),
    Watch(Box<TraceWatch>),
}

/// A trace and how to read it.
#[derive(Debug, Args)]
pub struct TraceInput {
    /// A trace of any format.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Name of its format, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Columns of a text of no known format: time_s,op,offset_sectors,len_bytes, and - for others.
    #[arg(long, value_name = "LIST", conflicts_with = "format")]
    pub columns: Option<String>,
    /// Stop at the first line that cannot be read.
    #[arg(long)]
    pub strict: bool,
    /// Leave out accesses that equal one of the 32 before in operation and range.
    #[arg(long)]
    pub drop_repeats: bool,
    /// Files that were open before the trace: lines of path, inode and size, by tabs [default:
    /// TRACE_PREOPEN where it exists].
    #[arg(long, value_name = "FILE")]
    pub preopen: Option<PathBuf>,
}

impl TraceInput {
    /// `trace` with nothing else said.
    pub fn of(trace: PathBuf) -> TraceInput {
        TraceInput {
            trace,
            format: None,
            columns: None,
            strict: false,
            drop_repeats: false,
            preopen: None,
        }
    }
}

/// Convert a trace into a trace file of ours.
///
/// The events of a mount (`syncline mount -o trace=FILE`) become three traces: FILE.calls.trace,
/// FILE.pages.trace and FILE.blocks.trace.
#[derive(Debug, Args)]
pub struct TraceImport {
    #[command(flatten)]
    pub input: TraceInput,
    /// The file to write. Of the events of a mount: the common part of the three names. With --to
    /// parquet: a directory that may have other traces' parts.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write one trace file, or files in directories by device, program and day.
    #[arg(long, value_name = "FORM", default_value = "trace")]
    pub to: ImportForm,
    /// With --to parquet: name of the device or machine that the trace is of.
    #[arg(long, value_name = "NAME", default_value = "unknown")]
    pub device_name: String,
    /// With --to parquet: name of the program [default: of each record, the name of its process].
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,
    /// With --to parquet: when the trace began, seconds since 1970 in UTC, as of `date +%s`
    /// [default: what the trace says, else 1970].
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u64).range(..=START_S_MAX))]
    pub start: Option<u64>,
}

impl TraceImport {
    /// One trace file.
    pub fn of(input: TraceInput, output: PathBuf) -> TraceImport {
        TraceImport {
            input,
            output,
            to: ImportForm::Trace,
            device_name: String::new(),
            app: None,
            start: None,
        }
    }
}

/// Latest start of a trace, seconds since 1970: in the year 2200.
const START_S_MAX: u64 = 7_258_118_400;

/// Forms of an imported trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ImportForm {
    /// One trace file.
    #[default]
    Trace,
    /// `DIR/device_name=NAME/app=NAME/day=YYYY-MM-DD/part-TRACE-N.parquet`.
    Parquet,
}

/// Convert a trace for another program.
///
/// Formats: fio (iolog version 3), blkparse-csv, libcachesim-csv, oracle-general (libCacheSim).
#[derive(Debug, Args)]
pub struct TraceExport {
    #[command(flatten)]
    pub input: TraceInput,
    /// Format to write.
    #[arg(long, value_name = "FORMAT")]
    pub to: String,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Put files and processes of system calls on the block requests of the same time.
///
/// Both traces have one clock, as NAME.calls.trace and NAME.blocks.trace of a capture. Data is
/// charged to its file and the process that changed it last, the journal to the fsync under way,
/// or, of a commit by timer, to the file that was changed most often. Metadata in its place is
/// charged to nobody. A capture of `syncline mount -o trace=NAME` has these names already.
#[derive(Debug, Args)]
pub struct TraceJoin {
    /// System calls, a trace of ours.
    #[arg(value_name = "CALLS")]
    pub calls: PathBuf,
    /// Block requests with origins and inodes, a trace of ours.
    #[arg(value_name = "BLOCKS")]
    pub blocks: PathBuf,
    /// The file to write: the block requests with names.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Show what a trace does: sizes, sequentiality, synchronous share, reuse.
#[derive(Debug, Args)]
pub struct TraceStat {
    #[command(flatten)]
    pub input: TraceInput,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with addresses against time: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Show which files are updated often, and how long what they write lives.
///
/// A block (4 KiB) lives from one write to the next, or until it is cut off or removed. `updated`
/// and `short` are what a mount with -o alloc=lifetime expects of such a file. In a trace of
/// blocks, 64 MiB of addresses stand for a file.
#[derive(Debug, Args)]
pub struct TraceHot {
    #[command(flatten)]
    pub input: TraceInput,
    /// Files shown, those with most writes first.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Run a program and record its system calls on files, through strace.
///
/// With --block, which needs root, also what reaches a block device in the same time: the traces
/// before and after the page cache of one run.
#[derive(Debug, Args)]
pub struct TraceRecord {
    /// The trace file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Record block requests to this device, too.
    #[arg(long, value_name = "DEVICE", requires = "block_output")]
    pub block: Option<PathBuf>,
    /// The trace file for them.
    #[arg(long, value_name = "FILE", requires = "block")]
    pub block_output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
