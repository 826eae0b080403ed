//! The command line of `syncline-lab probe`.

use std::path::PathBuf;

use clap::Args;

use super::size_bytes;

/// Measure a directory, a file, a block device or a device profile as the papers' tables do.
///
/// Sequential and random reads and writes, sorted and scattered ones, write and flush with their
/// distribution, effect of size and alignment, how many runs and how much space stay cheap, and
/// what long writes lead to. One request at a time, past the page cache.
///
/// A directory gets a file that is removed at the end. A file or block device is only read, unless
/// --destroy is given twice: then what it holds is overwritten. A profile is measured in virtual
/// time: the figures are exact.
///
/// --fit writes a profile that gives the same figures, for `--device FILE.toml`. Examples:
/// `syncline-lab probe /mnt/card --fit card.toml`, `syncline-lab probe sd-2012`,
/// `syncline-lab probe /dev/sdX --destroy --destroy --html card.html`.
#[derive(Debug, Args)]
pub struct Probe {
    /// A directory, a file, a block device; or a profile with overrides, as of --device.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Space that is used, from the begin: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_bytes)]
    pub size: u64,
    /// Most requests of a test.
    #[arg(long, value_name = "N", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    pub requests: u32,
    /// Most bytes of a test.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes)]
    pub bytes: u64,
    /// Most seconds of a test, of its device's time.
    #[arg(long, value_name = "S", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Bytes of each of the two long tests, sequential and random; 0 leaves them out.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size_or_nothing)]
    pub sustain: u64,
    /// Fill so much of a profile's device and overwrite it at random first, as a used one is.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=95))]
    pub precondition: u32,
    /// Seed of random places.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Overwrite what the file or block device holds; give it twice.
    #[arg(long, action = clap::ArgAction::Count)]
    pub destroy: u8,
    /// Write a profile that reproduces the figures.
    #[arg(long, value_name = "FILE.toml")]
    pub fit: Option<PathBuf>,
    /// Most profiles that the fit tries.
    #[arg(long, value_name = "N", default_value_t = 600, requires = "fit",
        value_parser = clap::value_parser!(u32).range(20..=100_000))]
    pub tries: u32,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// A size, or 0.
fn size_or_nothing(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size_bytes(text) }
}
