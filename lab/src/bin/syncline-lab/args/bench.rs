//! The command line of `syncline-lab bench`. Each workload has only the options that it reads.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::size_bytes;

/// Run workloads on a simulated device, or on a mounted directory.
///
/// On a simulated device everything runs in this process, in virtual time: the figures are the same
/// on every machine. If a paper has figures for two of the runs, they are printed beside.
///
/// Columns that end in `/op` are counts per operation: write requests, KiB written, flushes, flash
/// pages programmed. `seq %` is the share of bytes in runs of adjacent requests of more than 64
/// KiB. `WAF` is bytes programmed per byte written. They cover the whole run, the others the
/// foreground.
///
/// Ctrl-C ends the run after the current operation and reports the operations so far.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Bench {
    /// List the workloads that count operations, with their operations.
    #[arg(short, long)]
    pub list: bool,
    #[command(subcommand)]
    pub command: Option<BenchCommand>,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    Sqlite(Box<BenchSqlite>),
    Fileio(Box<BenchFileio>),
    Create(Box<BenchCreate>),
    Mixed(Box<BenchMixed>),
    AndroidDay(Box<BenchDay>),
    Several(Box<BenchSeveral>),
    Replay(Box<BenchReplay>),
    Fjord(Box<BenchFjord>),
    Applications(Box<BenchApplications>),
}

/// Transactions of a real SQLite: insert, update and delete one row each.
#[derive(Debug, Args)]
pub struct BenchSqlite {
    /// Tests [default: all].
    #[arg(value_name = "TEST", value_parser = ["insert", "update", "delete"])]
    pub tests: Vec<String>,
    /// Syncs that are cache barriers: none, order (those that need no more) or all, which keeps
    /// transactions in order and loses the last ones in a power cut.
    #[arg(long, value_name = "WHICH", default_value = "none", conflicts_with = "dir")]
    pub barriers: String,
    /// Cut the power so many times in runs of their own, and count the acknowledged inserts that a
    /// cut takes.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "dir")]
    pub cuts: u64,
    #[command(flatten)]
    pub sqlite: SqliteOptions,
    #[command(flatten)]
    pub run: RunOptions,
}

/// Reads and overwrites of one file, with and without syncs.
#[derive(Debug, Args)]
pub struct BenchFileio {
    /// Tests [default: all].
    #[arg(value_name = "TEST", value_parser = ["random-overwrite-fsync",
        "random-overwrite-fdatasync", "sequential-overwrite-fsync", "sequential-256k-fsync",
        "sequential-256k-overwrite-fsync", "random-read", "sequential-read"])]
    pub tests: Vec<String>,
    #[command(flatten)]
    pub run: RunOptions,
}

/// New files of 4 KiB, each synced.
#[derive(Debug, Args)]
pub struct BenchCreate {
    #[command(flatten)]
    pub run: RunOptions,
}

/// Transactions and synced overwrites, together with writes that are never synced.
#[derive(Debug, Args)]
pub struct BenchMixed {
    #[command(flatten)]
    pub sqlite: SqliteOptions,
    #[command(flatten)]
    pub run: RunOptions,
}

/// Events of a phone: transactions of 24 applications, settings, caches, photos, updates.
#[derive(Debug, Args)]
pub struct BenchDay {
    #[command(flatten)]
    pub sqlite: SqliteOptions,
    #[command(flatten)]
    pub run: RunOptions,
}

/// Run several workloads with the same options, in one table and document.
///
/// A workload is a name or the group before its slash: sqlite, fileio, create, sparse,
/// mixed, android-day.
#[derive(Debug, Args)]
pub struct BenchSeveral {
    /// Workloads or groups of workloads.
    #[arg(required = true, value_name = "WORKLOAD")]
    pub workloads: Vec<String>,
    #[command(flatten)]
    pub sqlite: SqliteOptions,
    #[command(flatten)]
    pub run: RunOptions,
}

/// Options of SQLite.
#[derive(Debug, Args)]
pub struct SqliteOptions {
    /// SQLite's journal mode: delete, truncate, persist, memory, wal or atomic. Runs each mode of a
    /// list [default: delete].
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub journal_mode: Vec<String>,
    /// SQLite's synchronous: off, normal, full, extra [default: full].
    #[arg(long, value_name = "LEVEL")]
    pub synchronous: Option<String>,
    /// Make SQLite call fsync instead of fdatasync, as builds without fdatasync do.
    #[arg(long, conflicts_with = "dir")]
    pub sqlite_fsync: bool,
}

/// The device and the volume.
#[derive(Debug, Args)]
pub struct DeviceOptions {
    /// Device profile, with overrides: nexus7-emmc, nexus7-emmc:streams=4, ./card.toml; may be
    /// repeated.
    #[arg(long, value_name = "PROFILE", default_value = "nexus7-emmc")]
    pub device: Vec<String>,
    /// Run each device also with the least and the greatest value of each of its parameters that
    /// published figures leave open.
    #[arg(long)]
    pub uncertainty: bool,
    /// Mount options, as for mount(8): commit=1,noatime,writeback_preset=android.
    #[arg(short = 'o', value_name = "OPTIONS", default_value = "")]
    pub options: String,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Size of the volume in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 2048,
        value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    pub size: u64,
    /// Use a copy of this image instead of a fresh volume.
    #[arg(long, value_name = "IMAGE", conflicts_with = "size")]
    pub image: Option<PathBuf>,
}

/// Mount options that take a list; each value is one run.
#[derive(Debug, Args)]
pub struct ModeOptions {
    /// Log format of eager sync: jbd2, or packed (records of the changed bytes). Runs each value of
    /// a list [default: jbd2].
    #[arg(long, value_name = "FORMAT,...", value_delimiter = ',')]
    pub log: Vec<String>,
    /// Let writes update mtime only at multiples of this interval, 1 to 1000 milliseconds; off;
    /// or seen: fsync keeps the times that programs compare. Runs each value of a list [default:
    /// off].
    #[arg(long, value_name = "MS,...", value_delimiter = ',')]
    pub mtime_update: Vec<String>,
    /// Replacement policy of the page cache.
    #[arg(long, value_name = "NAME", default_value = "clock")]
    pub policy: String,
    /// Allocation policy: default, hot_zones or lifetime. Runs and compares each value of a list.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub alloc: Vec<String>,
}

/// Durability of fsync, and the age of the volume.
#[derive(Debug, Args)]
pub struct SyncOptions {
    /// Sync mode. Runs each value of a list.
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', default_value = "ordered,eager")]
    pub sync: Vec<String>,
    /// First age the volume to this fill level (1 to 95 per cent), then overwrite as much as its
    /// size. Runs each value of a list. The volume has four groups in a flex group [default: a
    /// fresh volume with the default features].
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=95))]
    pub fill: Vec<u32>,
}

/// Results.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// A percentile: above 0, at most 100.
fn percentile(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number, as 99.9".to_owned())?;
    if value > 0.0 && value <= 100.0 { Ok(value) } else { Err("above 0, at most 100".into()) }
}

/// Options of workloads that count operations.
#[derive(Debug, Args)]
pub struct RunOptions {
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub modes: ModeOptions,
    #[command(flatten)]
    pub sync: SyncOptions,
    /// Operations of each run [default: the workload's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// End each run after this time of its clock, as fio does.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub runtime: Option<u64>,
    /// Let each run go on until --runtime, whatever the number of its operations.
    #[arg(long, alias = "time_based", requires = "runtime", conflicts_with = "operations")]
    pub time_based: bool,
    /// Report these percentiles of the latency also, as 95:99.9.
    #[arg(long, alias = "percentile_list", value_name = "PERCENT:...", value_delimiter = ':',
        value_parser = percentile)]
    pub percentile_list: Vec<f64>,
    /// Run in this directory, in real time, on the file system that is mounted there.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "uncertainty", "sync", "policy", "options", "size", "image",
            "log", "mtime_update", "sensitivity", "alloc", "fill"])]
    pub dir: Option<PathBuf>,
    /// Vary the device instead of --sync: run ordered and eager with 1, 2, 4 and 8 open write
    /// streams and flushes of 0.1, 1 and 5 ms. Prints the modelled cost of the request counts of
    /// xfs, f2fs and fast_commit beside.
    #[arg(long, conflicts_with_all = ["sync", "html", "uncertainty", "runtime", "percentile_list"])]
    pub sensitivity: bool,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Replay traces of system calls in both sync modes, beside the eager-sync paper's Table 5.4.
#[derive(Debug, Args)]
pub struct BenchReplay {
    /// A trace of system calls in any format that `syncline-lab trace` reads; may be repeated
    /// [default: the traces that are shipped].
    #[arg(long, value_name = "TRACE")]
    pub trace: Vec<PathBuf>,
    /// Contents of writes, since a trace has none. noise: new random bytes with every write; same:
    /// one byte everywhere. The two bound the size of packed records.
    #[arg(long, value_name = "KIND", default_value = "noise", value_parser = ["noise", "same"])]
    pub contents: String,
    /// Shorten gaps between calls to this many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub gap_max: u64,
    /// Keep matching files as FlashLite logs, and convert them to plain files at the end. The glob
    /// matches names, or paths if it has a slash.
    #[arg(long, value_name = "GLOB")]
    pub flashlite: Option<String>,
    /// Write the whole device once in order first.
    #[arg(long)]
    pub used: bool,
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub modes: ModeOptions,
    #[command(flatten)]
    pub sync: SyncOptions,
    /// Write the figures as JSON; `-` prints them to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Say which mount options suit a program, or those of a directory, on a device.
///
/// Replays traces of their system calls under every combination of sync mode, log format,
/// mtime_update=seen, relaxed=* and write buffer, in virtual time. For each promise that brings
/// something it prints the fastest: what a power cut keeps, time, latency, wear, and the risks.
/// First come the options without a risk, with a line for fstab.
#[derive(Debug, Args)]
pub struct Advise {
    /// Traces of system calls in any format that `syncline-lab trace` reads; their times are added.
    /// Or a directory on ext4 of the kernel, or the device of one: what every program does to files
    /// below it is recorded first (root).
    #[arg(required = true, value_name = "TRACE|DIR|DEVICE")]
    pub traces: Vec<PathBuf>,
    /// Record for this time, or until Ctrl-C: 90s, 10m, 1h, 1d [default: 1h].
    #[arg(long = "for", value_name = "TIME", value_parser = super::duration)]
    pub time: Option<Duration>,
    /// Keep the recording as this trace.
    #[arg(long, value_name = "FILE")]
    pub keep: Option<PathBuf>,
    /// Times a day that the traces happen: print how long the device lasts.
    #[arg(long, value_name = "N")]
    pub per_day: Option<f64>,
    /// Contents of writes, since a trace has none. noise: new random bytes with every write; same:
    /// one byte everywhere.
    #[arg(long, value_name = "KIND", default_value = "noise", value_parser = ["noise", "same"])]
    pub contents: String,
    /// Shorten gaps between calls to this many milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub gap_max: u64,
    #[command(flatten)]
    pub device: DeviceOptions,
    /// Write all trials as JSON; `-` prints them to standard output instead of the page.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Run applications with and without the write buffer, beside the informed-storage paper's figures.
///
/// Without -o, write-back is that of the paper's phones (writeback_preset=android). `day` instead
/// of applications is a day of a phone with its pauses, under each policy of a mount (power=,
/// session=, auto_ram=): wake-ups and energy of the device, and how long data waits in memory.
#[derive(Debug, Args)]
pub struct BenchFjord {
    /// Applications [default: rlbench, email, browsing].
    #[arg(value_name = "APPLICATION", value_parser = ["rlbench", "email", "browsing", "day"])]
    pub applications: Vec<String>,
    /// Run only the configurations with sync=ordered.
    #[arg(long, conflicts_with = "dir")]
    pub ordered: bool,
    /// Length, in per cent of the published sizes of the applications.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
    /// Print every configuration beside the paper's figures.
    #[arg(long)]
    pub long: bool,
    /// Size of the log: bytes, or with K, M, G.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size_bytes)]
    pub log_size: u64,
    /// Operations of each run [default: the workload's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    #[command(flatten)]
    pub sqlite: SqliteOptions,
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub modes: ModeOptions,
    /// Run in this directory, in real time, on the file system that is mounted there.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "uncertainty", "policy", "options", "size", "image",
            "log", "mtime_update", "alloc", "long", "log_size"])]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Run nine phone applications, with modelled processor and network times.
///
/// `--device all` runs the nine devices of the informed-storage paper. Give `-o relaxed=GLOB` for
/// applications whose fsync may return at once.
#[derive(Debug, Args)]
pub struct BenchApplications {
    /// Applications [default: all].
    #[arg(value_name = "APPLICATION")]
    pub applications: Vec<String>,
    /// Network: wifi or usb. Runs each value of a list.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "wifi")]
    pub network: Vec<String>,
    /// Alternative storage: none, fast-region, stripes, log-ram, no-sync or fjord (log-ram and
    /// no-sync). Runs each value of a list.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "none")]
    pub solution: Vec<String>,
    /// Sync mode: ordered, eager, packed (eager with log=packed) or periodic. Runs each value of a
    /// list.
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', default_value = "ordered",
        value_parser = ["ordered", "eager", "packed", "periodic"])]
    pub sync: Vec<String>,
    /// Length, in per cent of the published sizes of the applications.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub output: OutputOptions,
}
