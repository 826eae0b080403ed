//! Waits in real time: nobody for a stranger's fsync, callers share group commits, full and
//! group commits take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use syncline_device::{
    BlockDevice, Clock, Latencies, LatencyDevice, MemoryDevice, RecordingDevice, WallClock,
};
use syncline_fs::{Create, FallocateMode, InodeRef, Volume};
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, bytes, spec};
use crate::machine;

const BLOCK: usize = 4096;

type Slow = RecordingDevice<LatencyDevice<Arc<MemoryDevice>>>;

/// A volume on a device that takes so many milliseconds for a write and a flush.
fn slow(bed: &Bed, write_ms: u64, flush_ms: u64, options: &str) -> (Volume, Arc<Slow>) {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let latencies = Latencies {
        write_ns: write_ms * 1_000_000,
        flush_ns: flush_ms * 1_000_000,
        ..Latencies::default()
    };
    let dev = LatencyDevice::new(Arc::clone(&bed.dev), Arc::clone(&clock), latencies);
    let dev = Arc::new(RecordingDevice::new(dev));
    let options = bed.parsed(options);
    let volume = Volume::mount(Arc::clone(&dev) as Arc<dyn BlockDevice>, clock, options);
    (volume.expect("mount"), dev)
}

fn create(volume: &Volume, name: &str) -> InodeRef {
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    volume.create(&volume.root().expect("root"), name.as_bytes(), &how).expect("create")
}

/// Waits of writes and preallocations of B while A is synced over and over, in microseconds,
/// sorted.
fn waits_us(volume: &Volume, a: &InodeRef, b: &InodeRef, round: u64) -> Vec<u128> {
    let stop = AtomicBool::new(false);
    let mut waits = Vec::new();
    let syncs = std::thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            let mut syncs = 0u64;
            while !stop.load(Ordering::Relaxed) {
                volume.write(a, (syncs % 64) * 4096, &[syncs as u8; BLOCK]).expect("write a");
                volume.fsync(a, false).expect("fsync a");
                syncs += 1;
            }
            syncs
        });
        let started = Instant::now();
        let mut i = 0u64;
        while started.elapsed() < Duration::from_millis(600) {
            let before = Instant::now();
            volume.write(b, (i * 37 % 256) * 4096, &[i as u8; BLOCK]).expect("write b");
            waits.push(before.elapsed().as_micros());
            let (before, at) = (Instant::now(), (round * 1000 + i % 1000) * 4096);
            volume.fallocate(b, FallocateMode::KeepSize, at, 4096).expect("fallocate b");
            waits.push(before.elapsed().as_micros());
            i += 1;
            std::thread::sleep(Duration::from_micros(50));
        }
        stop.store(true, Ordering::Relaxed);
        syncer.join().expect("the syncing thread ends")
    });
    assert!(syncs >= 5, "only {syncs} fsyncs ran beside the writes");
    waits.sort_unstable();
    waits
}

#[test]
fn writes_and_preallocations_wait_for_no_strangers_fsync() {
    let _machine = machine();
    for sync in ["sync=eager", "sync=ordered"] {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 2);
        let (volume, _) = slow(&bed, 10, 10, sync);
        let (a, b) = (bed.file(&volume, 0), bed.file(&volume, 1));
        volume.write(&b, 0, &bytes(1, 1 << 20)).expect("write");
        volume.fsync(&b, false).expect("fsync");
        // A test machine takes the processor away now and then. A wait for the device would show
        // in every round.
        let mut best_us = u128::MAX;
        for round in 0..4 {
            let waits = waits_us(&volume, &a, &b, round);
            let p999_us = waits[waits.len() * 999 / 1000];
            let worst_us = waits[waits.len() - 1];
            println!("{sync}: {} calls, p99.9 {p999_us} us, worst {worst_us} us", waits.len());
            best_us = best_us.min(p999_us);
            if best_us < 1000 {
                break;
            }
        }
        assert!(best_us < 1000, "{sync}: calls waited: p99.9 is {best_us} us");
        drop((a, b));
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn eight_threads_share_group_commits() {
    let _machine = machine();
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 0);
    let (volume, dev) = slow(&bed, 0, 5, "sync=eager");
    // Calls a flush, and not calls a second, so that a busy machine does not count.
    let calls_a_flush = |threads: usize, round: usize| {
        let before = dev.counts().flushes();
        std::thread::scope(|scope| {
            for t in 0..threads {
                let volume = &volume;
                scope.spawn(move || {
                    for n in 0..20 {
                        let file = create(volume, &format!("r{round}-{threads}-{t}-{n}"));
                        volume.write(&file, 0, &[t as u8; BLOCK]).expect("write");
                        volume.fsync(&file, false).expect("fsync");
                    }
                });
            }
        });
        threads as f64 * 20.0 / (dev.counts().flushes() - before) as f64
    };
    let mut best = 0.0_f64;
    for round in 0..3 {
        let (one, eight) = (calls_a_flush(1, round), calls_a_flush(8, round));
        println!("calls a flush: one thread {one:.2}, eight {eight:.2}, {:.1} times", eight / one);
        best = best.max(eight / one);
    }
    assert!(best >= 4.0, "a flush of eight threads has {best:.1} times the calls of one thread's");
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

/// Calls of one thread, and the flushes that the device completed during them: waits in turns of
/// the device, so that they are the same on a machine that is busy.
#[derive(Default)]
struct Turns {
    calls: u64,
    flushes: u64,
}

impl Turns {
    fn count(&mut self, flushes: impl Fn() -> u64, call: impl FnOnce()) {
        let before = flushes();
        call();
        self.flushes += flushes() - before;
        self.calls += 1;
    }

    /// Flushes during a call, on average.
    fn mean(&self) -> f64 {
        self.flushes as f64 / self.calls as f64
    }
}

#[test]
fn full_and_group_commits_take_turns() {
    const FLUSH_MS: u64 = 5;
    const FULL_COMMITS: u64 = 40;
    /// Whoever starves ends here.
    const FLUSHES_MAX: u64 = 2000;
    /// Four on an idle machine. With four busy processes beside it on two processors up to eleven:
    /// a thread that gets no processor between two of its requests sees flushes of the others.
    const TURNS_MAX: f64 = 30.0;
    let _machine = machine();
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 4);
    let (volume, dev) = slow(&bed, 0, FLUSH_MS, "sync=eager");
    let flushes = || dev.counts().flushes();
    let stop = AtomicBool::new(false);
    let (mut full, mut synced) = (Turns::default(), Vec::new());
    let first = flushes();
    let over = || flushes() - first >= FLUSHES_MAX;
    std::thread::scope(|scope| {
        let threads = [0, 1, 2].map(|n| {
            let (volume, stop, file) = (&volume, &stop, bed.file(&volume, n));
            scope.spawn(move || {
                let mut group = Turns::default();
                while !stop.load(Ordering::Relaxed) && !over() {
                    volume.write(&file, 0, &[group.calls as u8; BLOCK]).expect("write");
                    group.count(flushes, || volume.fsync(&file, true).expect("fdatasync"));
                }
                group
            })
        });
        let other = bed.file(&volume, 3);
        while full.calls < FULL_COMMITS && !over() {
            volume.truncate(&other, full.calls + 1).expect("truncate");
            full.count(flushes, || volume.syncfs().expect("syncfs"));
        }
        stop.store(true, Ordering::Relaxed);
        synced = threads.into_iter().map(|t| t.join().expect("a syncing thread ends")).collect();
    });
    println!("flushes during a full commit: {:.1}, {} of them", full.mean(), full.calls);
    assert_eq!(full.calls, FULL_COMMITS, "group commits starve full commits");
    assert!(
        full.mean() <= TURNS_MAX,
        "group commits starve full commits: {:.1} flushes",
        full.mean()
    );
    for group in synced {
        println!("flushes during an fdatasync: {:.1}, {} of them", group.mean(), group.calls);
        let mean = group.mean();
        assert!(mean <= TURNS_MAX, "full commits starve group commits: {mean:.1} flushes a call");
    }
    volume.unmount().expect("unmount");
    bed.judge("turns");
}

/// One thread's part of [`many_threads_and_the_background_share_a_short_log`]: its own files, and
/// now and then one that it shares with the others.
fn busy(volume: &Volume, thread: u64, shared: &InodeRef, until: Instant) -> u64 {
    let mut random = crate::bed::random(thread);
    let (root, mut steps) = (volume.root().expect("root"), 0);
    while Instant::now() < until {
        steps += 1;
        let name = format!("t{thread}-{}", random.below(4));
        let file = match volume.resolve(format!("/{name}").as_bytes()) {
            Ok(file) => file,
            Err(_) => create(volume, &name),
        };
        let at = random.below(40) * BLOCK as u64;
        volume.write(&file, at, &[thread as u8; 2 * BLOCK]).expect("write");
        match random.below(20) {
            0..8 => volume.fsync(&file, steps % 2 == 0).expect("fsync"),
            8..12 => {
                volume.write(shared, at, &[thread as u8; BLOCK]).expect("write");
                volume.fsync(shared, true).expect("fsync of the shared file");
            }
            12..15 => volume.truncate(&file, at / 2).expect("truncate"),
            15..18 => {
                drop(file);
                volume.unlink(&root, name.as_bytes()).expect("unlink");
            }
            18 => volume.fsync(&root, false).expect("fsync of the directory"),
            _ => volume.syncfs().expect("syncfs"),
        }
    }
    steps
}

#[test]
fn many_threads_and_the_background_share_a_short_log() {
    let _machine = machine();
    for sync in ["sync=eager", "sync=ordered"] {
        let spec = ImageSpec { size_bytes: 64 << 20, journal_size_mib: Some(4), ..spec(4096) };
        let bed = Bed::without_fua(&spec, 1);
        let options =
            format!("{sync},commit=1,dirty_expire_centisecs=20,dirty_writeback_centisecs=10");
        let (volume, _) = slow(&bed, 0, 0, &options);
        let shared = bed.file(&volume, 0);
        let clock = WallClock::new();
        let until = Instant::now() + Duration::from_millis(1500);
        let steps: u64 = std::thread::scope(|scope| {
            let ticker = scope.spawn(|| {
                while Instant::now() < until {
                    volume.tick(clock.now_ns()).expect("tick");
                    std::thread::sleep(Duration::from_micros(300));
                }
            });
            let threads: Vec<_> = (0..6)
                .map(|thread| {
                    let (volume, shared) = (&volume, &shared);
                    scope.spawn(move || busy(volume, thread, shared, until))
                })
                .collect();
            ticker.join().expect("the background ends");
            threads.into_iter().map(|t| t.join().expect("a thread ends")).sum()
        });
        println!("{sync}: {steps} steps");
        drop(shared);
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn writes_do_not_wait_for_another_files_fsync() {
    let _machine = machine();
    let bed = Bed::without_fua(&spec(4096), 2);
    let (volume, _) = slow(&bed, 10, 10, "");
    let (a, b) = (bed.file(&volume, 0), bed.file(&volume, 1));
    volume.write(&b, 0, &bytes(1, 1 << 20)).expect("write");
    volume.fsync(&b, false).expect("fsync");
    let stop = AtomicBool::new(false);
    let mut waits_us: Vec<u128> = Vec::new();
    let mut syncs = 0;
    std::thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            let mut syncs = 0;
            while !stop.load(Ordering::Relaxed) {
                volume.write(&a, (syncs % 64) * 4096, &[syncs as u8; 4096]).expect("write a");
                volume.fsync(&a, false).expect("fsync a");
                syncs += 1;
            }
            syncs
        });
        let started = Instant::now();
        let mut i = 0u64;
        while started.elapsed() < Duration::from_millis(1500) {
            let before = Instant::now();
            volume.write(&b, (i * 37 % 256) * 4096, &[i as u8; 4096]).expect("write b");
            waits_us.push(before.elapsed().as_micros());
            i += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        stop.store(true, Ordering::Relaxed);
        syncs = syncer.join().expect("the syncing thread ends");
    });
    waits_us.sort_unstable();
    let worst_us = waits_us[waits_us.len() - 1];
    // A wait for the device would be 10 ms or more, many times over. A test machine that takes the
    // processor away now and then must not fail this, so the bound here is on the bulk.
    let p99_us = waits_us[waits_us.len() * 99 / 100];
    println!("{} writes, {syncs} fsyncs, p99 {p99_us} us, worst {worst_us} us", waits_us.len());
    assert!(syncs >= 5, "only {syncs} fsyncs ran beside the writes");
    assert!(p99_us < 5_000, "writes waited: p99 {p99_us} us, worst {worst_us} us");
    let device_waits = waits_us.iter().filter(|us| **us >= 9_000).count();
    assert!(device_waits * 100 <= waits_us.len(), "{device_waits} writes waited for the device");
    drop((a, b));
    volume.unmount().expect("unmount");
    bed.judge("the test");
}
