//! The command line of `syncline-lab cache` and `syncline-lab replay`.

use std::path::PathBuf;

use clap::Args;

use super::size_bytes;

/// A trace as the value of an option, and how to read it.
#[derive(Debug, Args)]
pub struct TraceOption {
    /// A trace of any format that `syncline-lab trace` reads.
    #[arg(long, value_name = "TRACE")]
    pub trace: PathBuf,
    /// Name of its format, where the content does not tell.
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Leave out accesses that equal one of the 32 before in operation and range.
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
///
/// Examples: `syncline-lab cache --trace app.trace --size 4M,64M --device sd-2012`;
/// `syncline-lab cache --trace disk.csv --policy lru,spatialclock --size 10% --after-cache DIR`.
#[derive(Debug, Args)]
pub struct Cache {
    #[command(flatten)]
    pub input: TraceOption,
    /// Policies; all: those that run in a volume and, as the bound, min.
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
    /// Also write all dirty pages, sorted, when more than this share of the cache is dirty.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub write_back: Option<u8>,
    /// fsync writes the dirty pages of its file and flushes the device.
    #[arg(long)]
    pub fsync: bool,
    /// Leave out of the address space what the trace never touches, in pieces of 4 MiB.
    #[arg(long)]
    pub dense: bool,
    /// Longest request after the cache; pages that follow each other are sent together.
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size_bytes)]
    pub merge: u64,
    /// Device profile, with overrides, that plays the trace after the cache; may be repeated.
    #[arg(long, value_name = "PROFILE")]
    pub device: Vec<String>,
    /// Write the trace after the cache of each configuration into this directory.
    #[arg(long, value_name = "DIR")]
    pub after_cache: Option<PathBuf>,
    /// Configurations that run at once [default: one a processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the figures as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a report with charts: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Play a trace on a device, or in a directory, and say how long it takes.
///
/// Traces of block requests, or of pages, go to a simulated device in virtual time, or to a file or
/// block device past the page cache (O_DIRECT). The time ends with a last flush. Writing to a file
/// or block device destroys what is there: it wants --overwrite, and, if it is mounted or carries
/// a file system, --yes, too.
///
/// Traces of system calls are played with --dir, in a new directory that is removed at the end:
/// each thread of the trace is a thread, and calls on one file keep the order of the trace.
///
/// Examples: `syncline-lab replay --trace disk.trace --device sd-2012`;
/// `syncline-lab replay --trace disk.trace --device /dev/sdx --overwrite --depth 8`;
/// `syncline-lab replay --trace app.trace --dir /mnt/card`.
#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub input: TraceOption,
    /// Device profile, with overrides, or a file or block device.
    #[arg(long, value_name = "PROFILE|FILE|BLOCKDEV", required_unless_present = "dir")]
    pub device: Option<String>,
    /// Play system calls in a new directory in this one.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "dense", "overwrite", "depth"])]
    pub dir: Option<PathBuf>,
    /// Keep the times of the trace, instead of going as fast as possible.
    #[arg(long)]
    pub timing: bool,
    /// Requests that are under way at once.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: u16,
    /// Leave out of the address space what the trace never touches, in pieces of 4 MiB.
    #[arg(long)]
    pub dense: bool,
    /// Write to the file or block device; what is there is lost.
    #[arg(long)]
    pub overwrite: bool,
    /// Also if it is mounted or carries a file system.
    #[arg(long, requires = "overwrite")]
    pub yes: bool,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Compare two results that --json wrote.
///
/// Runs are found by what they are: workload, settings, policy, size. All figures that differ are
/// printed with the change in per cent; none is judged, since for some figures more is better.
#[derive(Debug, Args)]
pub struct Compare {
    /// A document of --json.
    #[arg(value_name = "A.json")]
    pub first: PathBuf,
    /// Another one of the same command.
    #[arg(value_name = "B.json")]
    pub second: PathBuf,
    /// Also write a page with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
