//! The command line of `syncline-lab bench`: each workload has the options that it reads.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::size_bytes;

/// Run workloads on a simulated device, or on a mounted directory.
///
/// On a simulated device everything runs in this process, in virtual time: the figures are the same
/// on every machine. Where a paper has figures for two of the runs, they are printed beside ours.
///
/// Ctrl-C ends the run after the operation under way and reports what was done.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    pub command: BenchCommand,
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

/// Transactions and synced overwrites, beside files that nobody syncs.
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

/// Several workloads with the same options, in one table and document.
///
/// A workload is a name or the group before its slash: sqlite, fileio, create, mixed, android-day.
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
    /// SQLite's journal mode: delete, truncate, persist, memory, wal, atomic; a list runs each
    /// [default: delete].
    #[arg(long, value_name = "MODE,...", value_delimiter = ',')]
    pub journal_mode: Vec<String>,
    /// SQLite's synchronous: off, normal, full, extra [default: full].
    #[arg(long, value_name = "LEVEL")]
    pub synchronous: Option<String>,
    /// SQLite calls fsync where it would call fdatasync, as builds without fdatasync do.
    #[arg(long, conflicts_with = "dir")]
    pub sqlite_fsync: bool,
}

/// The device and the volume.
#[derive(Debug, Args)]
pub struct DeviceOptions {
    /// Device profile, with overrides: nexus7-emmc, nexus7-emmc:streams=4, ./card.toml.
    #[arg(long, value_name = "PROFILE", default_value = "nexus7-emmc")]
    pub device: String,
    /// Mount options, as for mount(8): commit=1,noatime,writeback_preset=android.
    #[arg(short = 'o', value_name = "OPTIONS", default_value = "")]
    pub options: String,
    /// Seed of everything random.
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

/// Mount options of which each value of a list runs.
#[derive(Debug, Args)]
pub struct ModeOptions {
    /// Format of the journal, with eager sync: jbd2, or packed records of the bytes that changed; a
    /// list runs each [default: jbd2].
    #[arg(long, value_name = "FORMAT,...", value_delimiter = ',')]
    pub log: Vec<String>,
    /// Interval in milliseconds (1 to 1000) at whose multiples a write moves mtime, or off; a list
    /// runs each [default: off].
    #[arg(long, value_name = "MS,...", value_delimiter = ',')]
    pub mtime_update: Vec<String>,
    /// Replacement policy of the page cache.
    #[arg(long, value_name = "NAME", default_value = "clock")]
    pub policy: String,
    /// Allocation policy: default, hot_zones, lifetime. A list runs each and compares them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub alloc: Vec<String>,
}

/// Durability of fsync, and the age of the volume.
#[derive(Debug, Args)]
pub struct SyncOptions {
    /// Durability of fsync; a list runs each mode.
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', default_value = "ordered,eager")]
    pub sync: Vec<String>,
    /// Age the volume until it is this full (1 to 95 per cent), and write its size once more; a
    /// list runs each. The volume has four groups in a flex group [default: a fresh volume of
    /// mke2fs's defaults].
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=95))]
    pub fill: Vec<u32>,
}

/// Results.
#[derive(Debug, Args)]
pub struct OutputOptions {
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a report with plots: one self-contained HTML file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Options of the workloads that count operations.
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
    /// Run in this directory, in real time, on whatever is mounted there.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "sync", "policy", "options", "size", "image", "log",
            "mtime_update", "sensitivity", "alloc", "fill"])]
    pub dir: Option<PathBuf>,
    /// Instead of --sync: ordered and eager for 1, 2, 4 and 8 open write streams and flushes of
    /// 0.1, 1 and 5 ms, beside what the counted requests of xfs, f2fs and fast_commit would cost.
    #[arg(long, conflicts_with_all = ["sync", "html"])]
    pub sensitivity: bool,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Play traces of system calls in both sync modes, beside the eager-sync paper's Table 5.4.
#[derive(Debug, Args)]
pub struct BenchReplay {
    /// A trace of system calls, of any format that `syncline-lab trace` reads; may be repeated
    /// [default: the captured programs that ship].
    #[arg(long, value_name = "TRACE")]
    pub trace: Vec<PathBuf>,
    /// Contents of what is written, which a trace does not have. noise: random bytes, other ones
    /// with every write; same: one byte everywhere. They bound the size of packed records.
    #[arg(long, value_name = "KIND", default_value = "noise", value_parser = ["noise", "same"])]
    pub contents: String,
    /// Longest gap between two calls, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub gap_max: u64,
    /// Keep files as FlashLite logs, and make plain files of them at the end. A glob of names, or
    /// of paths if it has a slash.
    #[arg(long, value_name = "GLOB")]
    pub flashlite: Option<String>,
    /// The device was filled in order once before.
    #[arg(long)]
    pub used: bool,
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub modes: ModeOptions,
    #[command(flatten)]
    pub sync: SyncOptions,
    /// Write the figures as JSON; `-` is standard output, and takes the table's place.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Run applications with and without the write buffer, beside the informed-storage paper's figures.
///
/// Without -o, write-back is as on that paper's phones (writeback_preset=android).
#[derive(Debug, Args)]
pub struct BenchFjord {
    /// Applications [default: all].
    #[arg(value_name = "APPLICATION", value_parser = ["rlbench", "email", "browsing"])]
    pub applications: Vec<String>,
    /// Run the configurations with sync=ordered alone.
    #[arg(long, conflicts_with = "dir")]
    pub ordered: bool,
    /// Length, percent of the applications' public sizes.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
    /// Print every configuration, beside the paper's figures.
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
    /// Run in this directory, in real time, on whatever is mounted there.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["device", "policy", "options", "size", "image", "log",
            "mtime_update", "alloc", "long", "log_size"])]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Run nine applications of a phone in ordered mode, with time for processor and network.
///
/// `--device all` takes the nine devices of the paper on storage of smartphones.
#[derive(Debug, Args)]
pub struct BenchApplications {
    /// Applications [default: all].
    #[arg(value_name = "APPLICATION")]
    pub applications: Vec<String>,
    /// The network, wifi or usb; a list runs each.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "wifi")]
    pub network: Vec<String>,
    /// Other storage: none, fast-region, stripes, log-ram, no-sync; a list runs each.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "none")]
    pub solution: Vec<String>,
    /// Length, percent of the applications' public sizes.
    #[arg(long, value_name = "PERCENT", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub scale: u64,
    #[command(flatten)]
    pub device: DeviceOptions,
    #[command(flatten)]
    pub output: OutputOptions,
}
