//! The command line of `syncline-lab trace`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::TraceWatch;

/// Read, convert, measure and record traces of storage activity.
///
/// A trace is a trace file (Parquet, docs/FORMAT.md) or one of: blktrace, blkparse, fio's iolog,
/// strace, tracefs block events, MSR Cambridge, UMass and SPC, SNIA SYSTOR'17, DiskMon, VMware's
/// vscsi, the ftrace logs and MobiGen scripts of phones, and others. The format is detected from
/// the content, also of gzip and zstd files. Unreadable lines are counted, and the first are shown.
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
    Mix(TraceMix),
    Stat(TraceStat),
    Hot(TraceHot),
    Record(TraceRecord),
    Watch(Box<TraceWatch>),
}

/// A trace and how to read it.
#[derive(Debug, Args)]
pub struct TraceInput {
    /// A trace in any known format.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Format of the trace, if the content does not identify it.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Columns of a text in an unknown format, as time_s,op,offset_sectors,len_bytes; - skips one.
    #[arg(long, value_name = "LIST", conflicts_with = "format")]
    pub columns: Option<String>,
    /// Stop at the first line that cannot be read.
    #[arg(long)]
    pub strict: bool,
    /// Drop accesses that repeat the operation and range of one of the previous 32.
    #[arg(long)]
    pub drop_repeats: bool,
    /// Files that were open before the trace, in lines of path, inode and size with tabs between
    /// [default: TRACE_PREOPEN if it exists].
    #[arg(long, value_name = "FILE")]
    pub preopen: Option<PathBuf>,
}

impl TraceInput {
    /// Reads TRACE with default options.
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

/// Convert a trace into a trace file.
///
/// The events of a mount (`syncline mount -o trace=FILE`) become three traces: FILE.calls.trace,
/// FILE.pages.trace and FILE.blocks.trace.
#[derive(Debug, Args)]
pub struct TraceImport {
    #[command(flatten)]
    pub input: TraceInput,
    /// The file to write. For the events of a mount: the common part of the three names. With --to
    /// parquet: a directory, which may contain parts of other traces.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write one trace file, or files in directories by device, program and day.
    #[arg(long, value_name = "FORM", default_value = "trace")]
    pub to: ImportForm,
    /// With --to parquet: name of the traced device or machine.
    #[arg(long, value_name = "NAME", default_value = "unknown")]
    pub device_name: String,
    /// With --to parquet: name of the program [default: the process name of each record].
    #[arg(long, value_name = "NAME")]
    pub app: Option<String>,
    /// With --to parquet: start of the trace in seconds since 1970, as `date +%s` prints [default:
    /// the start time in the trace, otherwise 1970].
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

/// Add the files and processes of system calls to block requests.
///
/// Both traces must use one clock, as NAME.calls.trace and NAME.blocks.trace of a capture do. Data
/// is charged to its file and to the process that last changed it. Journal writes are charged to
/// the current fsync; those of a timed commit to the file with most changes. Metadata in home
/// blocks is not charged. A capture of `syncline mount -o trace=NAME` already has these names.
#[derive(Debug, Args)]
pub struct TraceJoin {
    /// A trace file of system calls.
    #[arg(value_name = "CALLS")]
    pub calls: PathBuf,
    /// A trace file of block requests with origins and inodes.
    #[arg(value_name = "BLOCKS")]
    pub blocks: PathBuf,
    /// The file to write: the block requests with names.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Make a trace of a workload of the informed-storage paper from the captured programs.
///
/// The traces of the paper are not public. Sessions of programs that ship with Syncline follow each
/// other until the pages read and written are as many as in the paper's Table 7. The trace is
/// before the cache, one record for each page of 4096 bytes.
#[derive(Debug, Args)]
pub struct TraceMix {
    /// w1 (web browsing), w2 (a film that is downloaded), w3 (several programs in turn).
    #[arg(value_name = "WORKLOAD")]
    pub workload: String,
    /// Seed of the order of the sessions.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The trace file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Print statistics of a trace: sizes, sequentiality, synchronous share, reuse.
#[derive(Debug, Args)]
pub struct TraceStat {
    #[command(flatten)]
    pub input: TraceInput,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a plot of addresses over time: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// List the most updated files, and the lifetimes of their blocks.
///
/// A block (4 KiB) lives until it is overwritten, truncated or removed. `updated` and `short` are
/// the predictions of alloc=lifetime for such a file. In a trace of blocks, each 64 MiB of
/// addresses counts as a file.
#[derive(Debug, Args)]
pub struct TraceHot {
    #[command(flatten)]
    pub input: TraceInput,
    /// Number of files, those with most writes first.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Run a program and record its system calls on files, through strace.
///
/// With --block, which needs root, also records the requests to a block device: one run gives the
/// traces before and after the page cache.
#[derive(Debug, Args)]
pub struct TraceRecord {
    /// The trace file to write.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Also record block requests to this device.
    #[arg(long, value_name = "DEVICE", requires = "block_output")]
    pub block: Option<PathBuf>,
    /// The trace file for them.
    #[arg(long, value_name = "FILE", requires = "block")]
    pub block_output: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
