//! Status of a served volume: its counters so far, as one JSON document.
//!
//! A mount and an NFS server count into the same one. Names of figures are those of `bench --json`
//! where both have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use serde_json::json;
use syncline_base::lockrank::Mutex;
use syncline_device::{Clock, Counts};
use syncline_fs::{
    EagerCosts, JournalStats, LogFormat, MemoryStats, MountOptions, SyncPointStats, Volume,
};

use crate::ranks;
use crate::traffic::Traffic;

/// Longest latency that is told apart from longer ones, in microseconds: ten minutes.
const LATENCY_US_MAX: u64 = 600_000_000;

/// Requests of one kind.
#[derive(Default)]
pub struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    /// Counts a request of this size.
    pub fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Numbers of requests that are counted.
const KINDS: usize = 64;

/// Names of requests by their numbers in a protocol.
pub type Names = &'static [(u32, &'static str)];

/// Requests by kind.
pub struct Kinds {
    counts: [AtomicU64; KINDS],
    names: Names,
}

impl Kinds {
    /// Counts a request.
    pub fn add(&self, opcode: u32) {
        if let Some(count) = self.counts.get(opcode as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many there were.
    pub fn sum(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Those that there were, by name.
    fn document(&self) -> serde_json::Value {
        let counted = |(opcode, name): &(u32, &str)| {
            let count = self.counts.get(*opcode as usize)?.load(Ordering::Relaxed);
            (count > 0).then(|| ((*name).to_owned(), count.into()))
        };
        serde_json::Value::Object(self.names.iter().filter_map(counted).collect())
    }
}

/// Reads the device's counts.
pub type CountsOf = Arc<dyn Fn() -> Counts + Send + Sync>;

/// Reads a part of the document.
pub type PartOf = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// The image of a served volume.
#[derive(Default)]
pub struct Image {
    /// Its path, as the user gave it.
    pub path: String,
    /// Number of the partition in it.
    pub partition: Option<u32>,
    /// Where in it the volume begins.
    pub offset_bytes: Option<u64>,
}

/// Sources of the parts of a status that others know.
pub struct Sources {
    /// The device's counts.
    pub counts: CountsOf,
    /// The write buffer of a mount.
    pub buffer: Option<PartOf>,
    /// Settings that may change.
    pub settings: PartOf,
    /// Events of a capture.
    pub capture: Option<PartOf>,
    /// The layers that contain the process.
    pub sandbox: serde_json::Value,
    /// The reason for the format of the log, if it was chosen.
    pub log_reason: Option<String>,
    /// Bytes of the heap in use, and free ones.
    pub heap: fn() -> Option<(u64, u64)>,
}

impl Default for Sources {
    /// None of them.
    fn default() -> Sources {
        Sources {
            counts: Arc::new(Counts::default),
            buffer: None,
            settings: Arc::new(|| serde_json::Value::Null),
            capture: None,
            sandbox: serde_json::Value::Null,
            log_reason: None,
            heap: || None,
        }
    }
}

/// Counters of one served volume.
pub struct Status {
    image: Image,
    sync: &'static str,
    log: LogFormat,
    log_unit_bytes: u32,
    clock: Arc<dyn Clock>,
    began_ns: u64,
    counts: CountsOf,
    buffer: Option<PartOf>,
    settings: PartOf,
    capture: Option<PartOf>,
    sandbox: serde_json::Value,
    log_reason: Option<String>,
    heap: fn() -> Option<(u64, u64)>,
    sync_us: Mutex<Histogram<u64>>,
    transport: Mutex<&'static str>,
    /// Requests.
    pub kinds: Kinds,
    /// Those that read.
    pub reads: Tally,
    /// Those that write.
    pub writes: Tally,
    /// The same by file.
    pub traffic: Traffic,
}

impl Status {
    /// Nothing has been counted yet. Requests come through `transport`.
    pub fn new(
        image: Image,
        options: &MountOptions,
        clock: Arc<dyn Clock>,
        (transport, names): (&'static str, Names),
        sources: Sources,
    ) -> Status {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
            .expect("1 to ten minutes with three digits are bounds that a histogram takes");
        let began_ns = clock.now_ns();
        let (reads, writes) = (Tally::default(), Tally::default());
        let sync_us = Mutex::new(ranks::SYNC_LATENCIES, histogram);
        let Sources { counts, buffer, settings, capture, sandbox, log_reason, heap } = sources;
        Status {
            image,
            sync: options.sync.name(),
            log: options.log,
            log_unit_bytes: options.log_unit_bytes,
            clock,
            began_ns,
            counts,
            buffer,
            settings,
            capture,
            sandbox,
            log_reason,
            heap,
            sync_us,
            transport: Mutex::new(ranks::TRANSPORT, transport),
            kinds: Kinds { counts: [const { AtomicU64::new(0) }; KINDS], names },
            reads,
            writes,
            traffic: Traffic::default(),
        }
    }

    /// Requests come through this from now on.
    pub fn set_transport(&self, name: &'static str) {
        *self.transport.lock() = name;
    }

    /// A synchronous call took `ns` nanoseconds.
    pub fn synced(&self, ns: u64) {
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
            "auto": self.log_reason,
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
            "flush_us": (costs.device.end_ns(true) / 1e3) as u64,
            "run_us": (costs.device.run_ns / 1e3) as u64,
            "mib_ms": costs.device.byte_ns * 1.048_576,
            "run_in_place_bytes": costs.run_bytes,
            "scattered_in_place_bytes": costs.scattered_bytes,
        })
    }

    /// The part of memory.
    fn memory(&self, vol: &Volume) -> serde_json::Value {
        let MemoryStats { pages, spare_pages, inodes, names, blocks } = vol.memory_stats();
        let (used, free) = (self.heap)().unzip();
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
    pub fn document(&self, vol: &Volume, open_files: u64, names: bool) -> String {
        let block_size = u64::from(vol.statfs().block_size);
        let cache = vol.cache_stats();
        let journal = vol.journal_stats().map(|stats| self.journal(&stats, block_size));
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let asked_pages = load(&self.reads.bytes).div_ceil(block_size.max(1));
        let hits = asked_pages.saturating_sub(cache.pages_read);
        let sync = self.sync_us.lock();
        let counts = (self.counts)();
        json!({
            "schema": "syncline.status/1",
            "image": self.image.path,
            "partition": self.image.partition,
            "offset_bytes": self.image.offset_bytes,
            "sync": self.sync,
            "read_only": vol.is_read_only(),
            "latched": vol.latched().map(|err| err.to_string()),
            "shut_down": vol.check_running().is_err(),
            "uptime_s": self.clock.now_ns().saturating_sub(self.began_ns) / 1_000_000_000,
            "open_files": open_files,
            "transport": *self.transport.lock(),
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
            "memory": self.memory(vol),
            "syncs": {
                "operations": sync.len(),
                "latency_us_p50": sync.value_at_quantile(0.5),
                "latency_us_p99": sync.value_at_quantile(0.99),
                "latency_us_max": sync.max(),
            },
            "files": if names { self.traffic.document() } else { json!([]) },
            "trace": self.capture.as_ref().map(|capture| capture()),
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
