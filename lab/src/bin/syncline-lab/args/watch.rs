//! The command line of `syncline-lab trace watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::size_bytes;

/// Record the requests to block devices until it is stopped, for any file system.
///
/// Needs root and the kernel's tracefs. Writes trace files for each device to DIR; read them with
/// `syncline-lab trace` and `syncline-lab lifetime`. A record has flush and FUA flags, latency, the
/// program, and the inode of file data if the kernel reports it. Ctrl-C or SIGTERM completes the
/// files; a later run with the same DIR adds new files. See docs/FLEETS.md.
///
/// File names are taken from the open files of programs, and replaced by a hash that is keyed with
/// a secret in DIR. File extensions of up to eight letters and program names are not hashed.
#[derive(Debug, Args)]
pub struct TraceWatch {
    /// A disk, or a partition.
    #[arg(value_name = "DEVICE", required_unless_present = "all", conflicts_with = "all")]
    pub device: Option<PathBuf>,
    /// All disks of this machine, except virtual ones (loop, zram, device mapper).
    #[arg(long)]
    pub all: bool,
    /// Directory of the files; created if missing.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Start a new file at this size.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes)]
    pub rotate_size: u64,
    /// Start a new file after this time: 90s, 10m, 1h, 1d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub rotate: Duration,
    /// Maximum size of all complete files in DIR; the oldest are removed.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size_bytes)]
    pub keep: u64,
    /// Maximum processor time of this program, in per cent of one processor. Requests beyond that
    /// are dropped, and counted in the file.
    #[arg(long, value_name = "PERCENT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=100))]
    pub cpu: u32,
    /// Form of the names of files.
    #[arg(long, value_name = "FORM", default_value = "hash")]
    pub names: NameForm,
    /// Stop after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub time: Option<Duration>,
}

/// Forms of the names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NameForm {
    /// A hash with a secret.
    Hash,
    /// The path.
    Plain,
    /// None, only inodes.
    None,
}

/// Longest time: a hundred years.
const SECONDS_MAX: u64 = 3_155_760_000;

/// A time: `90s`, `10m`, `1h`, `1d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let found = units.iter().find_map(|(letter, seconds)| {
        let number = text.strip_suffix(*letter)?.parse::<u64>().ok()?;
        number.checked_mul(*seconds).filter(|seconds| (1..=SECONDS_MAX).contains(seconds))
    });
    found.map(Duration::from_secs).ok_or_else(|| "a time like 90s, 10m, 1h or 1d".to_owned())
}
