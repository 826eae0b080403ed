//! The command line of `syncline-lab cache` and `syncline-lab replay`.

use std::path::PathBuf;

use clap::Args;

use super::size_bytes;

/// A trace as the value of an option, and how to read it.
#[derive(Debug, Args)]
pub struct TraceOption {
    /// A trace in any format that `syncline-lab trace` reads.
    #[arg(long, value_name = "TRACE")]
    pub trace: PathBuf,
    /// Format of the trace, if the content does not identify it.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Drop accesses that repeat the operation and range of one of the previous 32.
    #[arg(long)]
    pub drop_repeats: bool,
}

/// Compare page replacement policies on a trace: hits, what reaches the device, and how long the
/// device takes for it.
///
/// The trace before the cache goes through each policy at each size. Every read and write is an
/// access to each 4096-byte page it touches; a page that is written is not read first; deleted and
/// truncated files leave the cache without a write; files lie one after the other in the order of
/// their first access. Dirty pages are written when they are evicted and at the end, in the order
/// of the policy. With --device the trace after the cache is played on a simulated device, one page
/// a request as fast as possible, in virtual time.
///
/// Columns: hit % of accesses; pages read and written; runs, sequences of writes each to the page
/// after the last, and their mean length in pages; seq %, written pages in runs over 64 KiB; cost,
/// 100 us for each page read and 800 us for each written.
#[derive(Debug, Args)]
pub struct Cache {
    #[command(flatten)]
    pub input: TraceOption,
    /// Policies. all: the policies of a volume, and min, the optimum.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "all")]
    pub policy: Vec<String>,
    /// Sizes of the cache: 4M (bytes), 1024p (pages), 10% (of the pages that the trace touches).
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "4M,8M,16M,32M,64M"
    )]
    pub size: Vec<String>,
    /// Write all dirty pages in order once more than this share of the cache is dirty.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub write_back: Option<u8>,
    /// fsync writes the dirty pages of its file and flushes the device.
    #[arg(long)]
    pub fsync: bool,
    /// Remove untouched pieces of 4 MiB from the address space.
    #[arg(long)]
    pub dense: bool,
    /// Largest request after the cache; adjacent pages are merged up to it.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size_bytes)]
    pub merge: u64,
    /// Device profile, with overrides, on which the trace after the cache runs; may be repeated.
    #[arg(long, value_name = "PROFILE")]
    pub device: Vec<String>,
    /// Run each device also with the least and the greatest value of each of its parameters that
    /// published figures leave open.
    #[arg(long, requires = "device")]
    pub uncertainty: bool,
    /// Write the trace after the cache of each configuration into this directory.
    #[arg(long, value_name = "DIR")]
    pub after_cache: Option<PathBuf>,
    /// Concurrent configurations [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the figures as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report with charts: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Replay a trace on a device or in a directory, and measure the time it takes.
///
/// Traces of block requests or pages go to a simulated device in virtual time, or to a file or
/// block device with O_DIRECT. The time includes a final flush. Writing to a file or block device
/// destroys its contents: this requires --overwrite, and --yes if it is mounted or contains a file
/// system.
///
/// Traces of system calls require --dir: they run in a new directory that is removed at the end.
/// Each thread of the trace is a thread, and calls on one file keep the order of the trace.
#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub input: TraceOption,
    /// Device profile, with overrides, or a file or block device.
    #[arg(long, value_name = "PROFILE|FILE|BLOCKDEV", required_unless_present = "dir")]
    pub device: Option<String>,
    /// Replay system calls in a new subdirectory of this directory.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "dense", "overwrite", "depth"])]
    pub dir: Option<PathBuf>,
    /// Keep the times of the trace instead of running as fast as possible.
    #[arg(long)]
    pub timing: bool,
    /// Number of concurrent requests.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Remove untouched pieces of 4 MiB from the address space.
    #[arg(long)]
    pub dense: bool,
    /// Allow writes to the file or block device, which destroy its contents.
    #[arg(long)]
    pub overwrite: bool,
    /// Allow them even if the device is mounted or contains a file system.
    #[arg(long, requires = "overwrite")]
    pub yes: bool,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Compare two results that --json wrote.
///
/// Runs are matched by workload, device, settings, policy and size. Every differing figure is
/// printed with its unit and the change in per cent, the largest change first. No change is called
/// better or worse.
#[derive(Debug, Args)]
pub struct Compare {
    /// A document that --json wrote.
    #[arg(value_name = "A.json")]
    pub first: PathBuf,
    /// Another document of the same command.
    #[arg(value_name = "B.json")]
    pub second: PathBuf,
    /// Match runs without these settings: `device` compares two devices.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub ignore: Vec<String>,
    /// Also write a page with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
