//! Status of a mount: its counters so far, as one JSON document.
//!
//! It is read through a virtual attribute of the root, [`STATUS_XATTR`], which is not listed: no
//! socket to find, the permissions of the root apply, and a hung daemon cannot leave a stale file.
//! Names of figures are those of `bench --json` where both have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hdrhistogram::Histogram;
use serde_json::json;
use syncline_base::lockrank::Mutex;
use syncline_device::{Clock, Counts};
use syncline_fs::{EagerCosts, JournalStats, LogFormat, MemoryStats, SyncPointStats, Volume};

use crate::capture::{CaptureCounts, Tap};
use crate::memory;
use crate::operations::NAMES;
use crate::options::FuseOptions;
use crate::ranks;
use crate::traffic::Traffic;

/// Extended attribute of the root that holds the status document.
pub const STATUS_XATTR: &str = "user.syncline.status";

/// Longest latency that is told apart from longer ones, in microseconds: ten minutes.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Requests of one kind.
#[derive(Default)]
pub(crate) struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    pub(crate) fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Numbers of requests that are counted.
const KINDS: usize = 64;

/// Requests by kind.
pub(crate) struct Kinds([AtomicU64; KINDS]);

impl Kinds {
    pub(crate) fn add(&self, opcode: u32) {
        if let Some(count) = self.0.get(opcode as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Those that there were, by name.
    fn document(&self) -> serde_json::Value {
        let counted = |(opcode, name): &(u32, &str)| {
            let count = self.0.get(*opcode as usize)?.load(Ordering::Relaxed);
            (count > 0).then(|| ((*name).to_owned(), count.into()))
        };
        serde_json::Value::Object(NAMES.iter().filter_map(counted).collect())
    }
}

/// Reads the device's counts.
pub(crate) type CountsOf = Arc<dyn Fn() -> Counts + Send + Sync>;

/// Reads a part of the document.
pub(crate) type PartOf = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Sources of the parts of a status that others know.
pub(crate) struct Sources {
    pub(crate) counts: CountsOf,
    pub(crate) buffer: Option<PartOf>,
    pub(crate) settings: PartOf,
    pub(crate) capture: Option<Arc<Tap>>,
    pub(crate) sandbox: serde_json::Value,
}

/// Counters of one mount.
pub(crate) struct Status {
    image: String,
    partition: Option<u32>,
    offset_bytes: Option<u64>,
    sync: &'static str,
    log: LogFormat,
    log_unit_bytes: u32,
    clock: Arc<dyn Clock>,
    began_ns: u64,
    counts: CountsOf,
    buffer: Option<PartOf>,
    settings: PartOf,
    capture: Option<Arc<Tap>>,
    sandbox: serde_json::Value,
    sync_us: Mutex<Histogram<u64>>,
    /// Requests come through io_uring.
    pub(crate) by_ring: AtomicBool,
    pub(crate) kinds: Kinds,
    /// Reads and writes that the kernel sent.
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    /// The same by file.
    pub(crate) traffic: Traffic,
}

impl Status {
    pub(crate) fn new(
        image: String,
        options: &FuseOptions,
        clock: Arc<dyn Clock>,
        sources: Sources,
    ) -> Status {
        let sync = options.volume.sync.name();
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
            .expect("1 to ten minutes with three digits are bounds that a histogram takes");
        let began_ns = clock.now_ns();
        let (reads, writes) = (Tally::default(), Tally::default());
        let sync_us = Mutex::new(ranks::SYNC_LATENCIES, histogram);
        let Sources { counts, buffer, settings, capture, sandbox } = sources;
        Status {
            image,
            partition: options.partition,
            offset_bytes: options.offset,
            sync,
            log: options.volume.log,
            log_unit_bytes: options.volume.log_unit_bytes,
            clock,
            began_ns,
            counts,
            buffer,
            settings,
            capture,
            sandbox,
            sync_us,
            by_ring: AtomicBool::new(false),
            kinds: Kinds([const { AtomicU64::new(0) }; KINDS]),
            reads,
            writes,
            traffic: Traffic::default(),
        }
    }

    /// A synchronous call took `ns` nanoseconds.
    pub(crate) fn synced(&self, ns: u64) {
        self.sync_us.lock().saturating_record((ns / 1000).max(1));
    }

    /// The journal's part.
    fn journal(&self, j: &JournalStats, block_size: u64) -> serde_json::Value {
        let (format, unit_bytes) = match self.log {
            LogFormat::Jbd2 => ("jbd2", block_size),
            LogFormat::Packed => ("packed", block_size.max(u64::from(self.log_unit_bytes))),
        };
        json!({
            "format": format,
            "unit_bytes": unit_bytes,
            "written_bytes": j.log_blocks_written * block_size,
            "saved_bytes": j.log_blocks_saved * block_size,
            "blocks": j.log_blocks,
            "blocks_used": j.log_blocks.saturating_sub(j.log_blocks_free),
            "running_blocks": j.running_blocks,
            "not_in_place_blocks": j.dirty_blocks,
            "commits": j.commits,
            "space_waits": j.space_waits,
        })
    }

    /// The part of `sync=periodic`.
    fn sync_points(&self, stats: &SyncPointStats) -> serde_json::Value {
        let age_ns = self.clock.now_ns().saturating_sub(stats.last_ns.max(self.began_ns));
        json!({
            "taken": stats.count,
            "age_ms": age_ns / 1_000_000,
            "changed_since": stats.is_behind,
            "hold_us_max": stats.hold_ns_max / 1000,
            "commit_ms_max": stats.commit_ns_max / 1_000_000,
        })
    }

    /// The part of `sync=eager`.
    fn costs(costs: &EagerCosts) -> serde_json::Value {
        json!({
            "flush_us": (costs.device.flush_ns / 1e3) as u64,
            "run_us": (costs.device.run_ns / 1e3) as u64,
            "mib_ms": costs.device.byte_ns * 1.048_576,
            "run_in_place_bytes": costs.run_bytes,
            "scattered_in_place_bytes": costs.scattered_bytes,
        })
    }

    fn transport(&self) -> &'static str {
        if self.by_ring.load(Ordering::Relaxed) { "io_uring" } else { "/dev/fuse" }
    }

    /// The part of memory.
    fn memory(vol: &Volume) -> serde_json::Value {
        let MemoryStats { pages, spare_pages, inodes, names, blocks } = vol.memory_stats();
        let (used, free) = memory::heap_bytes().unzip();
        json!({
            "page_bytes": pages,
            "spare_page_bytes": spare_pages,
            "inode_bytes": inodes,
            "name_bytes": names,
            "block_bytes": blocks,
            "heap_bytes": used,
            "heap_free_bytes": free,
        })
    }

    /// The document; with `names` also the files with the most traffic.
    pub(crate) fn document(&self, vol: &Volume, open_files: u64, names: bool) -> String {
        let block_size = u64::from(vol.statfs().block_size);
        let cache = vol.cache_stats();
        let journal = vol.journal_stats().map(|stats| self.journal(&stats, block_size));
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let asked_pages = load(&self.reads.bytes).div_ceil(block_size.max(1));
        let hits = asked_pages.saturating_sub(cache.pages_read);
        let capture = self.capture.as_ref().map(|tap| {
            let CaptureCounts { events, lost } = tap.counts();
            json!({ "events": events, "lost": lost })
        });
        let sync = self.sync_us.lock();
        let counts = (self.counts)();
        json!({
            "schema": "syncline.status/1",
            "image": self.image,
            "partition": self.partition,
            "offset_bytes": self.offset_bytes,
            "sync": self.sync,
            "read_only": vol.is_read_only(),
            "latched": vol.latched().map(|err| err.to_string()),
            "shut_down": vol.check_running().is_err(),
            "uptime_s": self.clock.now_ns().saturating_sub(self.began_ns) / 1_000_000_000,
            "open_files": open_files,
            "transport": self.transport(),
            "journal": journal,
            "moments": vol.sync_points().map(|stats| self.sync_points(&stats)),
            "costs": vol.eager_costs().as_ref().map(Status::costs),
            "dirty_bytes": cache.dirty_pages as u64 * block_size,
            "cache": {
                "bytes": cache.pages as u64 * block_size,
                "bytes_max": cache.pages_max as u64 * block_size,
                "evicted_pages": cache.pages_evicted,
                "hit_ratio": if asked_pages == 0 { 1.0 } else {
                    hits as f64 / asked_pages as f64
                },
            },
            "memory": Status::memory(vol),
            "syncs": {
                "operations": sync.len(),
                "latency_us_p50": sync.value_at_quantile(0.5),
                "latency_us_p99": sync.value_at_quantile(0.99),
                "latency_us_max": sync.max(),
            },
            "files": if names { self.traffic.document() } else { json!([]) },
            "trace": capture,
            "requests": {
                "reads": load(&self.reads.requests),
                "read_bytes": load(&self.reads.bytes),
                "writes": load(&self.writes.requests),
                "app_bytes": load(&self.writes.bytes),
                "kinds": self.kinds.document(),
            },
            "device": {
                "write_requests": counts.write_requests(),
                "written_bytes": counts.written_bytes(),
                "journal_bytes": counts.journal_bytes(),
                "data_bytes": counts.data_bytes(),
                "metadata_bytes": counts.metadata_bytes(),
                "read_requests": counts.read_requests(),
                "read_bytes": counts.read_bytes(),
                "flushes": counts.flushes(),
            },
            "buffer": self.buffer.as_ref().map(|buffer| buffer()),
            "settings": (self.settings)(),
            "sandbox": self.sandbox,
        })
        .to_string()
    }
}
