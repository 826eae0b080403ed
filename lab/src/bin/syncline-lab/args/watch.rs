//! The command line of `syncline-lab trace watch`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::size_bytes;

/// Record the requests to block devices, of any file system, until it is stopped.
///
/// Needs root, and the kernel's tracefs. Each device has trace files in DIR, which
/// `syncline-lab trace` and `syncline-lab lifetime` read: requests with their flush and FUA marks,
/// latency, the program that asked, and, for writes of files where the kernel tells it, the inode.
/// Ctrl-C or SIGTERM ends the files; started again with the same DIR it goes on with new ones.
/// docs/FLEETS.md has more.
///
/// Names of files are looked up among the open files of the programs, and replaced by a hash with a
/// secret of DIR; endings of up to eight letters stay. Names of programs stay.
#[derive(Debug, Args)]
pub struct TraceWatch {
    /// A disk, or a partition.
    #[arg(value_name = "DEVICE", required_unless_present = "all", conflicts_with = "all")]
    pub device: Option<PathBuf>,
    /// Every disk of this machine; those without hardware (loop, zram, device mapper) are left out.
    #[arg(long)]
    pub all: bool,
    /// Directory of the files; made if it is not there.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Begin a new file at this size.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes)]
    pub rotate_size: u64,
    /// Begin a new file at this age: 90s, 10m, 1h, 1d.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub rotate: Duration,
    /// Most bytes of whole files in DIR; the oldest are removed.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size_bytes)]
    pub keep: u64,
    /// Most processor time of this program, per cent of one processor. Requests that it cannot
    /// follow with that are lost, and counted in the file.
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
