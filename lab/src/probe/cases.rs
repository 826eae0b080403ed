//! The tests of a probe, as lists of places.

use serde::Serialize;
use syncline_device::SplitMix64;

use crate::probe::{Plan, REQUESTS_MIN};

/// Space of the random tests of tables 2 and 9, bytes.
const FILE_BYTES: u64 = 100 << 20;
/// Table 6 has 32,768 requests in 1 GiB.
const SPARSE_BYTES: u64 = 32 << 10;
const SEQUENTIAL_BYTES: u64 = 128 << 10;
const SMALL_BYTES: u64 = 4096;
/// A request of the interleaved runs, and the least space of one.
const RUN_REQUEST_BYTES: u64 = 16 << 10;
const RUN_BYTES_MIN: u64 = 8 << 20;
const SIZES_KIB: [u64; 6] = [4, 16, 64, 128, 256, 1024];
const SHIFTS_BYTES: [u64; 4] = [0, 512, 4096, 8192];
const RUNS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const WINDOWS_KIB: [u64; 6] = [256, 1024, 4096, 16_384, 65_536, 262_144];

/// Operation of a test at each place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    SyncWrite,
    Flush,
}

/// Table that a figure is a row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Sequential and random reads and writes, sorted and scattered ones: tables 2, 6 and 9.
    Table,
    /// Write and flush.
    Sync,
    /// Random requests by size.
    Size,
    /// 16 KiB requests at shifted places.
    Alignment,
    /// Sequential runs, interleaved.
    Runs,
    /// 4 KiB writes within a window.
    Window,
}

impl Group {
    /// Headings, in the order of printing.
    pub(crate) const ALL: [(Group, &'static str); 6] = [
        (Group::Table, "as tables 2, 6 and 9 of the informed-storage paper"),
        (Group::Sync, "write and flush"),
        (Group::Size, "random requests by size"),
        (Group::Alignment, "16 KiB at shifted places"),
        (Group::Runs, "sequential runs of 16 KiB writes, interleaved"),
        (Group::Window, "4 KiB writes within a window"),
    ];
}

/// One test.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) group: Group,
    pub(crate) op: Op,
    pub(crate) request_bytes: u64,
    pub(crate) offsets: Vec<u64>,
}

/// Makes places within the region.
struct Places<'a> {
    plan: &'a Plan,
    rng: SplitMix64,
}

impl Places<'_> {
    /// Requests of this size that a test may have.
    fn requests(&self, bytes: u64) -> u64 {
        let most = (self.plan.test_bytes / bytes).min(u64::from(self.plan.requests));
        most.max(REQUESTS_MIN as u64)
    }

    fn sequential(&self, bytes: u64) -> Vec<u64> {
        let slots = (self.plan.region_bytes / bytes).max(1);
        (0..self.requests(bytes)).map(|i| i % slots * bytes).collect()
    }

    /// Aligned places of `space` bytes from `base` on, moved by `shift`.
    fn random(&mut self, bytes: u64, (base, space): (u64, u64), shift: u64) -> Vec<u64> {
        let slots = ((space - shift) / bytes).max(1);
        let requests = self.requests(bytes);
        (0..requests).map(|_| base + self.rng.below(slots) * bytes + shift).collect()
    }

    fn sparse(&self, sorted: bool) -> Vec<u64> {
        let region = self.plan.region_bytes;
        let slots = region / SMALL_BYTES;
        let mut rng = SplitMix64::new(self.plan.seed);
        let count = region / SPARSE_BYTES;
        let mut offsets: Vec<u64> = (0..count).map(|_| rng.below(slots) * SMALL_BYTES).collect();
        if sorted {
            offsets.sort_unstable();
        }
        offsets
    }

    fn interleaved(&self, runs: u64) -> Vec<u64> {
        let each = self.plan.region_bytes / runs / RUN_REQUEST_BYTES * RUN_REQUEST_BYTES;
        let rounds = (self.requests(RUN_REQUEST_BYTES) / runs).clamp(4, each / RUN_REQUEST_BYTES);
        let round = |i: u64| (0..runs).map(move |run| run * each + i * RUN_REQUEST_BYTES);
        (0..rounds).flat_map(round).collect()
    }
}

/// The tests of a plan, reads first.
pub(crate) fn cases(plan: &Plan, writable: bool, align_bytes: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut places = Places { plan, rng: SplitMix64::new(plan.seed ^ 0x0063_6173_6573) };
    let ops = [(Op::Read, "read"), (Op::Write, "write")];
    for (op, name) in ops.into_iter().filter(|(op, _)| writable || *op == Op::Read) {
        both(&mut places, op, name, align_bytes, &mut cases);
    }
    if writable {
        written(&mut places, &mut cases);
    }
    cases
}

/// The tests that reads and writes have.
fn both(places: &mut Places<'_>, op: Op, name: &str, align_bytes: u64, cases: &mut Vec<Case>) {
    let region = places.plan.region_bytes;
    let mut add = |name: String, group, request_bytes, offsets| {
        cases.push(Case { name, group, op, request_bytes, offsets });
    };
    let offsets = places.sequential(SEQUENTIAL_BYTES);
    add(format!("sequential-{name}"), Group::Table, SEQUENTIAL_BYTES, offsets);
    let offsets = places.random(SMALL_BYTES, (0, FILE_BYTES.min(region)), 0);
    add(format!("random-{name}-4k"), Group::Table, SMALL_BYTES, offsets);
    for (order, sorted) in [("sorted", true), ("scattered", false)] {
        let offsets = places.sparse(sorted);
        add(format!("{order}-{name}-4k"), Group::Table, SMALL_BYTES, offsets);
    }
    for kib in SIZES_KIB {
        let offsets = places.random(kib << 10, (0, region), 0);
        add(format!("{name}-{kib}k"), Group::Size, kib << 10, offsets);
    }
    for shift in SHIFTS_BYTES.into_iter().filter(|s| s.is_multiple_of(align_bytes)) {
        let offsets = places.random(RUN_REQUEST_BYTES, (0, region), shift);
        add(format!("{name}-16k-at+{shift}"), Group::Alignment, RUN_REQUEST_BYTES, offsets);
    }
}

/// The tests that only writes have.
fn written(places: &mut Places<'_>, cases: &mut Vec<Case>) {
    let region = places.plan.region_bytes;
    let mut add = |name: String, group, op, request_bytes, offsets| {
        cases.push(Case { name, group, op, request_bytes, offsets });
    };
    add("idle-flush".into(), Group::Sync, Op::Flush, 0, vec![0; 32]);
    for kib in [4, 16, 64, 256, 1024] {
        let offsets = places.random(kib << 10, (0, FILE_BYTES.min(region)), 0);
        add(format!("sync-{kib}k"), Group::Sync, Op::SyncWrite, kib << 10, offsets);
    }
    let offsets = places.sequential(SMALL_BYTES);
    add("sync-append-4k".into(), Group::Sync, Op::SyncWrite, SMALL_BYTES, offsets);
    for runs in RUNS.into_iter().filter(|runs| region / runs >= RUN_BYTES_MIN) {
        let offsets = places.interleaved(runs);
        add(format!("runs-{runs}"), Group::Runs, Op::Write, RUN_REQUEST_BYTES, offsets);
    }
    for kib in WINDOWS_KIB.into_iter().filter(|kib| kib << 10 <= region) {
        let offsets = places.random(SMALL_BYTES, (0, kib << 10), 0);
        add(format!("write-4k-within-{kib}k"), Group::Window, Op::Write, SMALL_BYTES, offsets);
    }
}
