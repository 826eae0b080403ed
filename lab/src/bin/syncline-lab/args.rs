//! The command line of the laboratory, the source of `--help`, man pages and completions.
//!
//! Nothing in here depends on the rest of the program, because the build script uses it too.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

#[path = "args/bench.rs"]
mod bench;
#[path = "args/evaluate.rs"]
mod evaluate;
#[path = "args/examples.rs"]
pub mod examples;
#[path = "../../../../crates/adapters/cli/src/args/generated.rs"]
mod generated;
#[path = "args/probe.rs"]
mod probe;
#[path = "args/reproduce.rs"]
mod reproduce;
#[path = "../../../../crates/adapters/cli/src/args/sizes.rs"]
mod sizes;
#[path = "args/sweep.rs"]
mod sweep;
#[path = "args/trace.rs"]
mod trace;
#[path = "args/watch.rs"]
mod watch;

pub use bench::*;
pub use evaluate::*;
pub use generated::*;
pub use probe::*;
pub use reproduce::*;
pub use sizes::*;
pub use sweep::*;
pub use trace::*;
pub use watch::*;

/// Measures storage: workloads, traces, simulated flash, and the figures of the papers.
///
/// On a simulated device everything runs in virtual time: the figures are the same on every
/// machine.
///
/// Exit codes: 0 done, 1 failed, 2 usage, 3 a trace or an image is corrupt, 4 unsupported feature.
#[derive(Debug, Parser)]
#[command(name = "syncline-lab", version, disable_version_flag = true, max_term_width = 100)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// Print the version.
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also the commit, the target and compiler of the build, and this host.
    #[arg(long, requires = "version")]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Advise(Advise),
    Bench(Bench),
    Trace(Trace),
    Cache(Box<Cache>),
    Compare(Compare),
    Replay(Replay),
    Reproduce(Reproduce),
    Sweep(Sweep),
    Devices(Devices),
    Flash(Flash),
    Latency(Latency),
    Lifetime(Lifetime),
    Probe(Probe),
    Completions(Completions),
    Complete(Complete),
    Man(Man),
}

/// List the simulated devices, or show the profile of one.
///
/// --check measures each figure on the model, in virtual time, and prints it beside the published
/// one. Exit code 1: a figure differs by more than 20 %.
#[derive(Debug, Args)]
pub struct Devices {
    /// Print this profile; a copy of it in a file can be changed and used as --device ./FILE.toml.
    pub name: Option<String>,
    /// Also print figures, sources and fitted values.
    #[arg(short, long, conflicts_with_all = ["name", "check", "json"])]
    pub long: bool,
    /// Compare published figures with the model's; with NAME (or ./FILE.toml) of that device only.
    #[arg(long)]
    pub check: bool,
    /// As one JSON document.
    #[arg(long, conflicts_with_all = ["name", "check"])]
    pub json: bool,
}

/// Estimate how long a flash device lives under the writes of a block trace.
///
/// Runs the trace on the model of a device. Reports block erases, write amplification, merges,
/// latencies, and the years until the profile's rated_cycles if the trace repeats.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["trace", "watch"]))]
pub struct Lifetime {
    /// A block trace.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Record the requests to this block device for a time (10m, 1h) instead. Needs root. --size
    /// defaults to the size of the device.
    #[arg(long, value_names = ["BLOCKDEV", "TIME"], num_args = 2)]
    pub watch: Option<Vec<std::ffi::OsString>>,
    /// Device profile, with overrides: nexus7-emmc, sd-2012:log_blocks=4, ./card.toml.
    #[arg(long, value_name = "PROFILE", default_value = "nexus7-emmc")]
    pub device: String,
    /// Size of the device: bytes, or with K, M, G [default: the power of two that holds the trace].
    #[arg(long, value_name = "SIZE", value_parser = size_bytes)]
    pub size: Option<u64>,
    /// First fill this share of the mapping and overwrite it at random, as on a used device.
    #[arg(long, value_name = "PERCENT", default_value_t = 80,
        value_parser = clap::value_parser!(u32).range(0..=95))]
    pub precondition: u32,
    /// Number of passes of the trace.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub passes: u64,
    /// Times a day that the trace happens. By itself it repeats with its own pauses, and a trace
    /// below half an hour gets no verdict.
    #[arg(long, value_name = "N")]
    pub per_day: Option<f64>,
    /// As one JSON document.
    #[arg(long)]
    pub json: bool,
    /// Also write a page with charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Serve a simulated device in real time, to run any file system on it.
///
/// DIR/flash is the device: reads, writes and flushes take as long as on the modelled device.
/// `--attach` also makes it a block device, for kernel file systems. DIR/stats has the counters.
#[derive(Debug, Args)]
pub struct Flash {
    #[command(subcommand)]
    pub command: FlashCommand,
}

#[derive(Debug, Subcommand)]
pub enum FlashCommand {
    Serve(FlashServe),
    /// Cut the power: unflushed data is lost, and every command fails until `flash on`.
    Cut(FlashDir),
    /// Switch the power on again.
    On(FlashDir),
    /// Remove the block device and unmount DIR. Refused while the device is mounted.
    Detach(FlashDir),
    /// Print the counters of requests and flash operations as JSON.
    Stats(FlashDir),
}

/// Serve a simulated device as the file DIR/flash, until DIR is unmounted.
///
/// Contents are in memory and lost at the end, unless --image keeps them in a file. With --attach
/// it prints the name of the block device.
#[derive(Debug, Args)]
pub struct FlashServe {
    /// Device profile, with overrides: nexus7-emmc, nexus7-emmc:streams=4, ./card.toml.
    #[arg(value_name = "PROFILE")]
    pub profile: String,
    /// An empty directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Size of the device: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size_bytes)]
    pub size: u64,
    /// Keep the contents in this file. The device has the size of the file.
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    pub image: Option<PathBuf>,
    /// First fill this share of the mapping and overwrite it at random, as on a used device.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=95))]
    pub precondition: Option<u32>,
    /// Make a block device and print its name; needs root. Uses ublk if the kernel has it,
    /// otherwise a loop device over the file; =ublk and =loop require that kind.
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true,
        default_missing_value = "auto", value_parser = ["auto", "ublk", "loop"])]
    pub attach: Option<String>,
    /// Stay in the foreground.
    #[arg(short, long)]
    pub foreground: bool,
}

#[derive(Debug, Args)]
pub struct FlashDir {
    /// The directory that is served.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Measure how long fallocate and write wait, with and without another thread's fsyncs.
///
/// Makes 8000 calls of each, as the write-latency paper: fallocate of 100 MB, and a write of 16 KiB
/// to preallocated blocks every 5 ms with a write-back every 2 MiB. The paper's figures are printed
/// beside. The background thread repeats ftruncate and fsync on another file. Needs 1 GB of free
/// space.
///
/// As root it runs with real-time priority, and reports what jbd2, ext4 and the block layer did
/// during the slowest calls. A thread on each processor then does nothing but wake up: if it wakes
/// late, the host stalled. `unstalled max` leaves out the calls that overlap a host stall.
#[derive(Debug, Args)]
pub struct Latency {
    /// A directory with 1 GB of free space.
    #[arg(value_name = "DIR", required_unless_present = "in_process")]
    pub dir: Option<PathBuf>,
    /// Measure a Syncline volume in this process, on this simulated device, in real time.
    #[arg(long, value_name = "PROFILE", conflicts_with = "dir")]
    pub in_process: Option<String>,
    /// Additional mount options of that volume, as sync=ordered.
    #[arg(short = 'o', value_name = "OPTIONS", default_value = "", requires = "in_process")]
    pub options: String,
    /// Take one minute: 500 allocations and 2000 writes.
    #[arg(long)]
    pub quick: bool,
    /// Calls of each case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub operations: Option<u64>,
    /// Measure only this call.
    #[arg(long, value_name = "CALL", value_parser = ["fallocate", "write"])]
    pub only: Option<String>,
    /// Bytes of each fallocate.
    #[arg(long, value_name = "SIZE", default_value = "100M", value_parser = size_bytes)]
    pub fallocate_size: u64,
    /// Bytes of each write.
    #[arg(long, value_name = "SIZE", default_value = "16K", value_parser = size_bytes)]
    pub write_size: u64,
    /// Microseconds between two writes.
    #[arg(long, value_name = "US", default_value_t = 5000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub period_us: u64,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
