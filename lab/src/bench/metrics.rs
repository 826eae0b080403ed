//! The figures of a run, by their published names, and the JSON document that carries them.
//!
//! `{"schema": "syncline.bench/1", "runs": [{"workload", "device", "config", "metrics",
//! "foreground"}]}`. `metrics` covers the run with its background write-back and the final unmount,
//! `foreground` ends at the last acknowledged call. Unmeasurable figures (device counters on a
//! mounted directory) are absent.
//!
//! A burst of writes counts towards `sequential_ratio` when it is longer than 128 sectors
//! (`syncline_device::Counts`). `write_amplification` is bytes programmed for each byte the host
//! wrote. `nand_page_programs` holds data, map and SLC pages.

use std::collections::BTreeMap;

use crate::latency::Timer;
use serde::{Deserialize, Serialize};
use syncline_device::Counts;
use syncline_fs::{Alloc, LogFormat, MountOptions, MtimeUpdate};
use syncline_nand::Counters;
use syncline_sqlite::AppBytes;

/// The schema name of [`Document`].
pub const SCHEMA: &str = "syncline.bench/1";

/// Document that `--json` writes.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

impl Document {
    /// A document of these runs.
    pub fn new(runs: Vec<Run>) -> Document {
        Document { schema: SCHEMA.to_owned(), runs }
    }

    /// The JSON text, indented, with a final newline.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("structs of strings and finite numbers always serialise") + "\n"
    }
}

/// One run of one workload.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Run {
    /// Name of the workload.
    pub workload: String,
    /// The profile with its overrides, or the directory.
    pub device: String,
    /// The varied settings.
    pub config: Config,
    /// The whole run.
    pub metrics: Metrics,
    /// Up to the last acknowledged call.
    pub foreground: Metrics,
    /// Set if the run was interrupted; `operations` says how far it came.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// Settings that may vary between the runs of a document.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Config {
    /// Sync mode; absent on a mounted directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync: Option<String>,
    /// Format of the journal's transactions, if not jbd2's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// SQLite's journal mode; `null` for other workloads.
    pub journal_mode: Option<String>,
    /// Granularity of mtime in milliseconds; `null`: the timer tick.
    pub mtime_update_ms: Option<u32>,
    /// True with `mtime_update=seen`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mtime_seen: bool,
    /// Set if SQLite called fsync where it would call fdatasync.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sqlite_fsync: bool,
    /// Syncs of SQLite that were barriers, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barriers: Option<String>,
    /// Allocation policy (`alloc=`), if it is not ext4's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alloc: Option<String>,
    /// Share of the blocks in use before the run, in per cent, on a volume that was aged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill_percent: Option<u32>,
    /// Replacement policy of the page cache; absent on a mounted directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// True if a file is kept as a FlashLite log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub flashlite: bool,
    /// Seed of everything random.
    pub seed: u64,
}

impl Config {
    /// Settings of a mount and a seed; nothing of a workload.
    pub fn of_mount(mount: &MountOptions, seed: u64) -> Config {
        Config {
            sync: Some(mount.sync.name().to_owned()),
            log: (mount.log == LogFormat::Packed).then(|| "packed".to_owned()),
            mtime_update_ms: match mount.mtime_update {
                MtimeUpdate::Interval(ms) => Some(ms),
                MtimeUpdate::Tick | MtimeUpdate::Seen => None,
            },
            mtime_seen: mount.mtime_update == MtimeUpdate::Seen,
            alloc: (mount.alloc != Alloc::Default).then(|| mount.alloc.name().to_owned()),
            policy: Some(mount.policy.name().to_owned()),
            seed,
            ..Config::default()
        }
    }

    /// `ordered delete`: what a table shows.
    pub fn label(&self) -> String {
        let mtime = self.mtime_update_ms.map(|ms| format!("mtime={ms}"));
        let fsync = self.sqlite_fsync.then_some("fsync");
        let barriers = self.barriers.as_ref().map(|which| format!("barriers={which}"));
        let fill = self.fill_percent.map(|percent| format!("{percent}%"));
        let words = [
            self.sync.as_deref(),
            self.log.as_deref(),
            self.journal_mode.as_deref(),
            fsync,
            barriers.as_deref(),
            mtime.as_deref(),
            self.mtime_seen.then_some("mtime=seen"),
            self.alloc.as_deref(),
            fill.as_deref(),
            self.flashlite.then_some("flashlite"),
        ];
        let words: Vec<_> = words.into_iter().flatten().collect();
        if words.is_empty() { "-".to_owned() } else { words.join(" ") }
    }
}

/// The figures. Units end the names; counts have none.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Metrics {
    /// Operations done.
    pub operations: u64,
    /// Operations per second.
    pub transactions_per_s: f64,
    /// Bytes the application moved, in 10^6 per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_mb_per_s: Option<f64>,
    /// Length in seconds of the run's clock.
    pub duration_s: f64,
    /// Figures of the device.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceMetrics>,
    /// Median latency of the synchronous call, microseconds.
    pub latency_us_p50: f64,
    /// 99 of 100 calls are not slower, microseconds.
    pub latency_us_p99: f64,
    /// Slowest call, microseconds.
    pub latency_us_max: f64,
    /// Percentiles that were asked for, microseconds by the percentile (`99.9`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latency_us_percentiles: BTreeMap<String, f64>,
    /// Bytes handed to write calls; for reads, bytes read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_bytes: Option<u64>,
    /// System calls of the application, where they are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_calls: Option<u64>,
    /// Most acknowledged transactions that one of the power cuts took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_transactions_max: Option<u64>,
    /// Age of the oldest of them, milliseconds, of all cuts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_ms_max: Option<f64>,
}

/// Figures of a simulated device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct DeviceMetrics {
    /// Write commands.
    pub write_requests: u64,
    /// Bytes of write commands.
    pub written_bytes: u64,
    /// Of these, to the journal.
    pub journal_bytes: u64,
    /// Of these, file contents.
    pub data_bytes: u64,
    /// Of these, metadata in its place.
    pub metadata_bytes: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Mean length of a write command, 512-byte sectors.
    pub mean_write_sectors: f64,
    /// Share of written sectors in bursts longer than 128 sectors, 0 to 1.
    pub sequential_ratio: f64,
    /// Effective pages programmed: data, map and SLC cache.
    pub nand_page_programs: u64,
    /// Superblocks collected.
    #[serde(default)]
    pub nand_gc_runs: u64,
    /// Units copied by the garbage collector.
    pub nand_gc_copies: u64,
    /// Map pages read and programmed.
    #[serde(default)]
    pub nand_map_pages: u64,
    /// Superblocks erased.
    pub nand_erases: u64,
    /// Bytes programmed for each byte written.
    pub write_amplification: f64,
}

impl DeviceMetrics {
    /// From what the block trace and the flash counted.
    pub fn new(counts: &Counts, nand: &Counters) -> DeviceMetrics {
        DeviceMetrics {
            write_requests: counts.write_requests(),
            written_bytes: counts.written_bytes(),
            journal_bytes: counts.journal_bytes(),
            data_bytes: counts.data_bytes(),
            metadata_bytes: counts.metadata_bytes(),
            flushes: counts.flushes(),
            mean_write_sectors: counts.mean_write_sectors(),
            sequential_ratio: counts.sequential_ratio(),
            nand_page_programs: nand.programs(),
            nand_gc_runs: nand.gc_runs,
            nand_gc_copies: nand.gc_copies,
            nand_map_pages: nand.map_reads + nand.map_programs,
            nand_erases: nand.erases + nand.map_erases,
            write_amplification: nand.write_amplification(),
        }
    }
}

impl Metrics {
    /// Adds percentiles of the timed calls.
    pub(crate) fn with_percentiles(mut self, timer: &Timer, percentiles: &[f64]) -> Metrics {
        let of = |percent: &f64| (percent.to_string(), timer.percentile_us(*percent));
        self.latency_us_percentiles = percentiles.iter().map(of).collect();
        self
    }

    /// Puts the figures together. `device` is absent on a mounted directory.
    pub fn new(
        operations: u64,
        duration_ns: u64,
        timer: &Timer,
        app: Option<AppBytes>,
        device: Option<DeviceMetrics>,
    ) -> Metrics {
        let duration_s = duration_ns as f64 / 1e9;
        let per_s = |n: f64| if duration_ns == 0 { 0.0 } else { n / duration_s };
        // A workload that writes is measured by what it writes.
        let app_bytes = app.map(|app| match app.written_bytes {
            0 => app.read_bytes,
            written => written,
        });
        Metrics {
            operations,
            transactions_per_s: per_s(operations as f64),
            throughput_mb_per_s: app_bytes.map(|bytes| per_s(bytes as f64 / 1e6)),
            duration_s,
            device,
            latency_us_p50: timer.percentile_us(50.0),
            latency_us_p99: timer.percentile_us(99.0),
            latency_us_max: timer.max_us(),
            latency_us_percentiles: BTreeMap::new(),
            app_bytes,
            app_calls: app.map(|app| app.calls).filter(|calls| *calls > 0),
            lost_transactions_max: None,
            lost_ms_max: None,
        }
    }
}
