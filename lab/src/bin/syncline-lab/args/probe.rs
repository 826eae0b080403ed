//! The command line of `syncline-lab probe`.

use std::path::PathBuf;

use clap::Args;

use super::size_bytes;

/// Measure a directory, a file, a block device or a device profile as the papers' tables do.
///
/// Measures sequential, random, sorted and scattered reads and writes, the distribution of synced
/// writes, the effect of size and alignment, the number of open write streams and the size of the
/// window for cheap random writes, and sustained writes. Sends one request at a time, with
/// O_DIRECT.
///
/// In a directory it uses a file that it removes at the end. A file or block device is only read,
/// unless --destroy is given twice: then its contents are overwritten. A profile is measured in
/// virtual time, so the figures are exact.
///
/// --fit writes a profile that gives the same figures, for `--device FILE.toml`.
#[derive(Debug, Args)]
pub struct Probe {
    /// A directory, a file, a block device, or a profile with overrides.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Take a minute or less: 32 MiB, at most 64 requests, 2 MiB and 1 s a test, no sustained
    /// writes. Other options change these.
    #[arg(long)]
    pub quick: bool,
    /// Space to use, from the start of the target: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_bytes,
        default_value_if("quick", "true", "32M"))]
    pub size: u64,
    /// Maximum requests of a test.
    #[arg(long, value_name = "N", default_value_t = 1024, default_value_if("quick", "true", "64"),
        value_parser = clap::value_parser!(u32).range(8..=1_000_000))]
    pub requests: u32,
    /// Maximum bytes of a test.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size_bytes,
        default_value_if("quick", "true", "2M"))]
    pub bytes: u64,
    /// Maximum seconds of a test, in the time of the device.
    #[arg(long, value_name = "S", default_value_t = 5, default_value_if("quick", "true", "1"),
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Bytes of each sustained test, sequential and random; 0 skips them.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size_or_nothing,
        default_value_if("quick", "true", "0"))]
    pub sustain: u64,
    /// First fill this share of a simulated device and overwrite it at random, as on a used device.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=95))]
    pub precondition: u32,
    /// Seed of random addresses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Overwrite the contents of the file or block device; must be given twice.
    #[arg(long, action = clap::ArgAction::Count)]
    pub destroy: u8,
    /// Write a profile that reproduces the figures.
    #[arg(long, value_name = "FILE.toml")]
    pub fit: Option<PathBuf>,
    /// Maximum number of profiles that the fit tries.
    #[arg(long, value_name = "N", default_value_t = 600, requires = "fit",
        value_parser = clap::value_parser!(u32).range(20..=100_000))]
    pub tries: u32,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
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
