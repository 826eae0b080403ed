//! Calibration of `nexus7-emmc` against the figures of the eager-synching paper, by the request
//! sequences that ext4 ordered sends for the paper's tests (section 3.3), on a fresh device.
//!
//! The same figures through the real file system are asserted where the file system is tested.
//! `cargo test -p syncline-nand --test it nexus7:: -- --nocapture` prints all figures with their
//! targets.

use std::sync::Arc;
use syncline_device::SplitMix64;
use syncline_device::{BlockDevice, Clock, Kind, MemoryDevice, Origin, VirtualClock};
use syncline_nand::{NandDevice, Profile};

const SIZE: u64 = 256 << 20;
/// Position of the journal, in bytes.
const JOURNAL: u64 = 128 << 20;
const JOURNAL_BYTES: u64 = 32 << 20;
const FILE: u64 = 64 << 20;
const FILE_BYTES: u64 = 16 << 20;

const DATA: Origin = Origin::new(Kind::Data { inode: 12 }, true);
const LOG: Origin = Origin::new(Kind::Journal, true);

/// A device and what ext4 ordered would send to it.
struct Ext4 {
    device: NandDevice,
    clock: Arc<VirtualClock>,
    syscall_ns: u64,
    log: u64,
    rng: SplitMix64,
}

impl Ext4 {
    fn new(spec: &str) -> Ext4 {
        let profile = Profile::parse_built_in(spec).unwrap();
        let clock = Arc::new(VirtualClock::default());
        let backing = Arc::new(MemoryDevice::new(SIZE));
        let device = NandDevice::new(&profile, backing, clock.clone()).unwrap();
        let syscall_ns = u64::from(profile.host.syscall_us) * 1000;
        Ext4 { device, clock, syscall_ns, log: 0, rng: SplitMix64::new(1) }
    }

    /// A device on which the file exists, as the overwrites of the paper need it.
    fn with_file(spec: &str) -> Ext4 {
        let mut e = Ext4::new(spec);
        e.sequential_256k();
        e
    }

    fn log(&mut self, bytes: u64) {
        if self.log + bytes > JOURNAL_BYTES {
            self.log = 0;
        }
        self.device.write(JOURNAL + self.log, &vec![1; bytes as usize], LOG).unwrap();
        self.log += bytes;
    }

    /// write + fsync: the data in place, then body, flush, commit block, flush. Returns ns.
    fn ordered(&mut self, offset: u64, bytes: u64, body: u64) -> u64 {
        let start = self.clock.now_ns();
        self.clock.sleep_until(start + 2 * self.syscall_ns);
        self.device.write(offset, &vec![2; bytes as usize], DATA).unwrap();
        self.log(body);
        self.device.flush(LOG).unwrap();
        self.log(4096);
        self.device.flush(LOG).unwrap();
        self.clock.now_ns() - start
    }

    /// write + fsync by an eager sync: one write behind the last in the journal, one flush.
    fn eager(&mut self, bytes: u64) -> u64 {
        let start = self.clock.now_ns();
        self.clock.sleep_until(start + 2 * self.syscall_ns);
        self.log(bytes);
        self.device.flush(LOG).unwrap();
        self.clock.now_ns() - start
    }

    /// 16 MiB in order, 256 KiB at a time. Returns MB/s.
    fn sequential_256k(&mut self) -> f64 {
        let chunks = FILE_BYTES / (256 << 10);
        let ns: u64 =
            (0..chunks).map(|i| self.ordered(FILE + i * (256 << 10), 256 << 10, 16 << 10)).sum();
        FILE_BYTES as f64 * 1e3 / ns as f64
    }

    /// `n` random 4 KiB places of the file. Returns the latencies in ns.
    fn random_4k(&mut self, n: u64) -> Vec<u64> {
        (0..n)
            .map(|_| {
                let block = self.rng.below(FILE_BYTES / 4096);
                self.ordered(FILE + block * 4096, 4096, 8 << 10)
            })
            .collect()
    }

    /// Random 4 KiB writes + fsync in eager mode for `n` operations: the data goes to the journal,
    /// and is written in place, sorted and merged, every 5 s and at the end. Returns ns for each.
    fn eager_random_4k(&mut self, n: u64) -> f64 {
        let start = self.clock.now_ns();
        let mut dirty = std::collections::BTreeSet::new();
        let mut committed = start;
        for i in 0..n {
            dirty.insert(self.rng.below(FILE_BYTES / 4096));
            self.eager(16 << 10);
            if i + 1 == n || self.clock.now_ns() - committed > 5_000_000_000 {
                self.write_back(&std::mem::take(&mut dirty).into_iter().collect::<Vec<_>>());
                committed = self.clock.now_ns();
            }
        }
        (self.clock.now_ns() - start) as f64 / n as f64
    }

    fn write_back(&mut self, blocks: &[u64]) {
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            let bytes = vec![3; run.len() * 4096];
            self.device.write(FILE + run[0] * 4096, &bytes, DATA).unwrap();
        }
        self.log(12 << 10);
        self.device.flush(LOG).unwrap();
        self.log(4096);
        self.device.flush(LOG).unwrap();
    }

    fn reads(&mut self, bytes: u64, random: bool) -> f64 {
        let n = FILE_BYTES / bytes;
        let start = self.clock.now_ns();
        let mut into = vec![0; bytes as usize];
        for i in 0..n {
            let block = if random { self.rng.below(n) } else { i };
            self.clock.sleep_until(self.clock.now_ns() + self.syscall_ns);
            self.device.read(FILE + block * bytes, &mut into, DATA).unwrap();
        }
        FILE_BYTES as f64 * 1e3 / (self.clock.now_ns() - start) as f64
    }
}

fn mean(ns: &[u64]) -> f64 {
    ns.iter().sum::<u64>() as f64 / ns.len() as f64
}

/// MB/s of 4 KiB each.
fn mb_per_s(ns: &[u64]) -> f64 {
    4096.0 * 1e3 / mean(ns)
}

fn within(name: &str, got: f64, want: f64, percent: f64) {
    println!("{name}: {got:.3}, published {want} ({:+.1} %)", (got / want - 1.0) * 100.0);
    assert!((got / want - 1.0).abs() * 100.0 <= percent, "{name}: {got} is not near {want}");
}

#[test]
fn the_two_published_throughputs() {
    let mut e = Ext4::new("nexus7-emmc");
    let sequential = e.sequential_256k();
    let random = mb_per_s(&e.random_4k(2000));
    within("256 KiB sequential write + fsync, MB/s", sequential, 13.2, 5.0);
    within("4 KiB random write + fsync, MB/s", random, 0.5, 5.0);
    within("ratio", sequential / random, 27.0, 5.0);
}

/// Mean and worst fsync latency in ms of random 4 KiB writes on a device filled to `percent`.
fn aged(percent: u32) -> (f64, f64) {
    let mut e = Ext4::new("nexus7-emmc");
    e.device.precondition(percent, 1);
    e.sequential_256k();
    let ns = e.random_4k(4000);
    (mean(&ns) / 1e6, ns.iter().max().copied().unwrap_or(0) as f64 / 1e6)
}

/// 8.2 ms each on a fresh device (0.5 MB/s) and 14.446 ms on average cannot both hold for one state
/// of the device. Garbage collection explains the difference: the published mean lies between a
/// device filled to 70 % and one filled to 85 %, and so does the published worst case.
#[test]
fn the_published_mean_and_worst_fsync_are_those_of_an_aged_device() {
    let fresh = Ext4::with_file("nexus7-emmc").random_4k(4000);
    let worst = fresh.iter().max().copied().unwrap_or(0) as f64 / 1e6;
    println!("fresh: {:.2} ms, worst {worst:.1} ms", mean(&fresh) / 1e6);
    for percent in [70, 75, 80, 85] {
        let (mean, worst) = aged(percent);
        println!("{percent} % filled: {mean:.2} ms (14.446), worst {worst:.0} ms (440)");
    }
    let (half, full) = (aged(70), aged(85));
    assert!(half.0 < 14.446 && 14.446 < full.0, "{half:?} {full:?}");
    assert!(half.1 < 440.0 && 440.0 < full.1, "{half:?} {full:?}");
    let (mean, _) = aged(80);
    within("fsync at 80 % filled, ms", mean, 14.446, 10.0);
}

/// The class's typical reads; nothing is published for this device.
#[test]
fn reads_are_those_of_the_class() {
    let mut e = Ext4::with_file("nexus7-emmc");
    let (sequential, random) = (e.reads(128 << 10, false), e.reads(4096, true));
    println!("sequential read {sequential:.1} MB/s, random 4 KiB read {random:.2} MB/s");
    assert!((20.0..45.0).contains(&sequential), "{sequential}");
    assert!((4.5..6.5).contains(&random), "{random}");
}

/// The paper measured 1 against 0.6 MB/s through its whole tablet. The device's share must leave
/// room for that: eager well ahead, the less so the longer a flush takes.
#[test]
fn one_sequential_write_and_flush_beats_ordered() {
    for streams in [1, 2, 4, 8] {
        for flush_us in [100, 1000, 5000] {
            let spec = format!("nexus7-emmc:streams={streams},flush_us={flush_us}");
            let ordered = mean(&Ext4::with_file(&spec).random_4k(1000)) / 1e6;
            let eager = Ext4::with_file(&spec).eager_random_4k(1000) / 1e6;
            let ratio = ordered / eager;
            println!("{spec}: ordered {ordered:.2} ms, eager {eager:.2} ms, ratio {ratio:.2}");
            assert!(ratio > 1.4 && ratio < 4.0, "{spec}: {ratio}");
        }
    }
}
