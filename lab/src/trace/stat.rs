//! Statistics of a trace: the tables that the papers print of theirs.
//!
//! | here | there |
//! |---|---|
//! | MB and shares, mean sizes, calls, files | eager-sync paper, Tables 5.2 and 5.3 |
//! | sequential and random MB | informed-storage paper, Table 4 |
//! | share of written bytes in bursts longer than 128 sectors | eager-sync paper, section 5.1 |
//! | synchronous share by process and by file | eager-sync paper, Figures 3.2 and 3.3 |
//!
//! Definitions. An access is sequential if it starts where the last one of its kind (read, write)
//! on its file, or on its device, ended. Written bytes are synchronous if their file is synced
//! later in the trace, or if the request or file is marked so. Addresses of a block trace are the
//! device's, also where its requests have files. Failed calls count as calls, not as
//! bytes. Memory is bounded by the distinct files and processes; distances are in
//! `distance`. Tested in `lab/tests/trace/stat.rs`.

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::error::Result;
use crate::trace::distance::{Distances, Histogram};
use crate::trace::model::{Flags, NameId, Names, Op, Record, Sink, TraceKind};

/// Rows of the lists by process and by file.
const TOP: usize = 10;
/// A burst of writes longer than this many bytes is sequential.
const BURST_BYTES: u64 = 128 * 512;
const PAGE_BYTES: u64 = 4096;
/// Pages of one access that count towards distances, at most.
const PAGES_PER_ACCESS_MAX: u64 = 1 << 12;

/// One direction, read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Direction {
    /// Calls or requests.
    pub calls: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Of these, in accesses that start where the last one ended.
    pub sequential_bytes: u64,
    /// Sizes of accesses in bytes.
    pub sizes: Histogram,
}

impl Direction {
    /// Mean size of an access in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.calls.max(1) as f64
    }
}

/// Written and synchronous bytes of a process or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Name, or number where there is none.
    pub name: String,
    /// Bytes written.
    pub written_bytes: u64,
    /// Of these, made durable on request.
    pub sync_bytes: u64,
    /// Calls of fsync and its kin.
    pub sync_calls: u64,
}

/// The figures of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Statistics {
    /// Records.
    pub records: u64,
    /// Time between the first and the last, in seconds.
    pub duration_s: f64,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Calls by operation, those that occur.
    pub calls: Vec<(&'static str, u64)>,
    /// fsync, fdatasync, sync and sync_file_range.
    pub sync_calls: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Files read, written, opened or made.
    pub files: u64,
    /// Share of written bytes in bursts longer than 128 sectors, 0 to 1.
    pub sequential_ratio: f64,
    /// Written bytes that were made durable on request.
    pub sync_bytes: u64,
    /// Those that wrote most.
    pub processes: Vec<Share>,
    /// Those that were written most.
    pub most_written: Vec<Share>,
    /// Distinct pages between two accesses of a page.
    pub reuse_distance_pages: Histogram,
    /// Milliseconds between two writes of a page.
    pub update_interval_ms: Histogram,
    /// First accesses of a page, among those followed.
    pub first_accesses: u64,
    /// One page in this many is followed for the distances.
    pub followed_one_in: u64,
}

#[derive(Default)]
struct Written {
    bytes: u64,
    sync_bytes: u64,
    sync_calls: u64,
}

/// Ends of the last accesses, in bytes.
#[derive(Default)]
struct Ends {
    /// Of the file or device, in the order of first access.
    number: u64,
    read: u64,
    write: u64,
    burst: u64,
}

/// Gathers [`Statistics`]: a [`Sink`].
#[derive(Default)]
pub struct Gather {
    /// Addresses are a device's.
    by_device: bool,
    found: Statistics,
    last_ns: u64,
    by_op: FxHashMap<Op, u64>,
    touched: FxHashSet<NameId>,
    ends: FxHashMap<(u32, NameId), Ends>,
    burst_bytes: u64,
    processes: FxHashMap<(u32, NameId), Written>,
    files: FxHashMap<NameId, Written>,
    /// Written since the last sync of the file, by process.
    pending: FxHashMap<NameId, FxHashMap<(u32, NameId), u64>>,
    distances: Distances,
}

impl Sink for Gather {
    fn record(&mut self, _: &Names, record: &Record) -> Result<()> {
        self.found.records += 1;
        self.last_ns = self.last_ns.max(record.time_ns);
        *self.by_op.entry(record.op).or_default() += 1;
        if record.failed() {
            self.found.failed_calls += 1;
            return Ok(());
        }
        let touches = matches!(record.op, Op::Read | Op::Write | Op::Open | Op::Create);
        if touches && record.file.is_some() {
            self.touched.insert(record.file);
        }
        match record.op {
            Op::Read | Op::Write => self.access(record),
            op if op.is_sync() || op == Op::Flush => self.synced(record),
            Op::Unlink => {
                self.pending.remove(&record.file);
            }
            Op::Rename => {
                if let Some(pending) = self.pending.remove(&record.file) {
                    self.pending.insert(record.target, pending);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Gather {
    /// Gathers those of a trace of that kind.
    pub fn new(kind: TraceKind) -> Gather {
        Gather { by_device: kind == TraceKind::Block, ..Gather::default() }
    }

    /// The file whose bytes the addresses of a record count; none for a device.
    fn space(&self, record: &Record) -> NameId {
        if self.by_device { NameId::NONE } else { record.file }
    }

    fn access(&mut self, record: &Record) {
        let write = record.op == Op::Write;
        let space = self.space(record);
        let direction = if write { &mut self.found.write } else { &mut self.found.read };
        direction.calls += 1;
        direction.bytes = direction.bytes.saturating_add(record.len_bytes);
        direction.sizes.add(record.len_bytes);
        let number = self.ends.len() as u64;
        let ends = self.ends.entry((record.device, space));
        let ends = ends.or_insert_with(|| Ends { number, ..Ends::default() });
        let place = ends.number.wrapping_mul(1 << 40);
        let end = if write { &mut ends.write } else { &mut ends.read };
        let follows = *end == record.offset_bytes && direction.calls > 1;
        if follows {
            direction.sequential_bytes += record.len_bytes;
        }
        *end = record.offset_bytes.saturating_add(record.len_bytes);
        if write {
            if !follows {
                self.burst_bytes += if ends.burst > BURST_BYTES { ends.burst } else { 0 };
                ends.burst = 0;
            }
            ends.burst = ends.burst.saturating_add(record.len_bytes);
            self.written(record);
        }
        let first = record.offset_bytes / PAGE_BYTES;
        let last = record.offset_bytes.saturating_add(record.len_bytes.max(1) - 1) / PAGE_BYTES;
        // Pages of different files or devices are different pages.
        for page in (first..=last).take(PAGES_PER_ACCESS_MAX as usize) {
            self.distances.access(page.wrapping_add(place), write, record.time_ns);
        }
    }

    fn written(&mut self, record: &Record) {
        let who = (record.process, record.process_name);
        let len = record.len_bytes;
        let durable = record.flags.has(Flags::SYNC) || record.flags.has(Flags::FUA);
        let process = self.processes.entry(who).or_default();
        let file = self.files.entry(record.file).or_default();
        for counts in [process, file] {
            counts.bytes += len;
            counts.sync_bytes += if durable { len } else { 0 };
        }
        if durable {
            self.found.sync_bytes += len;
        } else if record.file.is_some() {
            *self.pending.entry(record.file).or_default().entry(who).or_default() += len;
        }
    }

    fn synced(&mut self, record: &Record) {
        if record.op.is_sync() {
            self.found.sync_calls += 1;
            let who = (record.process, record.process_name);
            self.processes.entry(who).or_default().sync_calls += 1;
            if record.file.is_some() {
                self.files.entry(record.file).or_default().sync_calls += 1;
            }
        }
        let Some(pending) = self.pending.remove(&record.file) else { return };
        for (who, bytes) in pending {
            self.found.sync_bytes += bytes;
            self.processes.entry(who).or_default().sync_bytes += bytes;
            self.files.entry(record.file).or_default().sync_bytes += bytes;
        }
    }

    /// The figures.
    pub fn finish(mut self, names: &Names) -> Statistics {
        let bursts = self.ends.values().map(|ends| ends.burst).filter(|bytes| *bytes > BURST_BYTES);
        let sequential = self.burst_bytes + bursts.sum::<u64>();
        let mut found = self.found;
        found.duration_s = self.last_ns as f64 / 1e9;
        found.sequential_ratio = sequential as f64 / found.write.bytes.max(1) as f64;
        found.files = self.touched.len() as u64;
        let calls = Op::ALL.iter().filter_map(|op| Some((op.name(), self.by_op.remove(op)?)));
        found.calls = calls.collect();
        found.processes = top(self.processes.into_iter().map(|((number, name), written)| {
            let name = match names.get(name) {
                "" if number == 0 => "-".to_owned(),
                "" => number.to_string(),
                name => format!("{name} ({number})"),
            };
            (name, written)
        }));
        let files = self.files.into_iter().filter(|(file, _)| file.is_some());
        found.most_written = top(files.map(|(file, w)| (names.get(file).to_owned(), w)));
        found.first_accesses = self.distances.first;
        found.followed_one_in = self.distances.one_in();
        found.reuse_distance_pages = self.distances.reuse;
        found.update_interval_ms = self.distances.update_ms;
        found
    }
}

fn top(all: impl Iterator<Item = (String, Written)>) -> Vec<Share> {
    let share = |(name, written): (String, Written)| Share {
        name,
        written_bytes: written.bytes,
        sync_bytes: written.sync_bytes,
        sync_calls: written.sync_calls,
    };
    let mut list: Vec<Share> = all.map(share).collect();
    list.sort_by(|a, b| b.written_bytes.cmp(&a.written_bytes).then_with(|| a.name.cmp(&b.name)));
    list.truncate(TOP);
    list
}
