//! Eager sync: exact counts, independence of files, and every crash.

mod eager_support;
mod file_io_support;

use eager_support::{BLOCK, Model, Play, short_log};
use file_io_support::{Bed, bytes, random, spec};
use std::sync::Arc;
use syncline_crash::{Budget, CrashDevice, CrashOptions, CrashState, Explorer, Lie, StateId};
use syncline_device::{
    BlockDevice, Clock, FailingDevice, FaultPlan, FileMirror, Latencies, LatencyDevice,
    MemoryDevice, OpClass, RecordingDevice, VirtualClock, WallClock,
};
use syncline_fs::{Create, MountOptions, Volume};
use syncline_testkit::{ImageSpec, TempImage, e2fsck_clean, e2fsck_preen};

const EAGER: &str = "sync=eager,cache=8M";

struct Counted {
    bed: Bed,
    dev: Arc<RecordingDevice<Arc<MemoryDevice>>>,
    volume: Volume,
}

impl Counted {
    fn new(files: usize) -> Counted {
        let bed = Bed::new(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, files);
        let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, EAGER);
        Counted { bed, dev, volume }
    }

    /// Write requests, flushes, KiB.
    fn sent(&self, work: impl FnOnce()) -> (u64, u64, u64) {
        let before = self.dev.begin_phase();
        work();
        let counts = self.dev.counts() - before;
        (counts.write_requests(), counts.flushes(), counts.written_bytes() / 1024)
    }

    fn warm_up(&self, n: usize) {
        let file = self.bed.file(&self.volume, n);
        for _ in 0..30 {
            self.bed.wait_ms(10);
            self.volume.write(&file, 0, &[1; BLOCK]).expect("write");
            self.volume.fsync(&file, false).expect("fsync");
        }
    }

    fn done(self) {
        let Counted { bed, volume, .. } = self;
        volume.unmount().expect("unmount");
        bed.judge();
    }
}

fn create(volume: &Volume, dir: &str, name: &str) -> syncline_fs::InodeRef {
    let dir = volume.resolve(dir.as_bytes()).expect("the directory is there");
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    volume.create(&dir, name.as_bytes(), &how).expect("create")
}

#[test]
fn an_overwrite_is_one_request_and_one_flush() {
    for (datasync, kib) in [(false, 16), (true, 12)] {
        let counted = Counted::new(2);
        let file = counted.bed.file(&counted.volume, 0);
        counted.volume.write(&file, 0, &bytes(1, 4 << 20)).expect("write");
        counted.volume.fsync(&file, false).expect("fsync");
        counted.warm_up(1);
        let mut random = random(3);
        let sent = counted.sent(|| {
            for _ in 0..50 {
                counted.bed.wait_ms(10);
                let at = random.below(1024) * BLOCK as u64;
                counted.volume.write(&file, at, &[9; BLOCK]).expect("write");
                counted.volume.fsync(&file, datasync).expect("sync");
            }
        });
        assert_eq!(sent, (50, 50, 50 * kib), "datasync {datasync}");
        drop(file);
        counted.done();
    }
}

#[test]
fn a_new_file_is_one_request_and_one_flush_however_many_others_are_dirty() {
    let counted = Counted::new(1);
    let root = counted.volume.root().expect("root");
    for n in 0..5 {
        let how = Create { mode: 0o755, uid: 0, gid: 0 };
        counted.volume.mkdir(&root, format!("d{n}").as_bytes(), &how).expect("mkdir");
    }
    counted.volume.syncfs().expect("syncfs");
    counted.warm_up(0);
    let one = |dir: &str, name: &str| {
        counted.bed.wait_ms(10);
        counted.sent(|| {
            let file = create(&counted.volume, dir, name);
            counted.volume.write(&file, 0, &[5; BLOCK]).expect("write");
            counted.volume.fsync(&file, false).expect("fsync");
        })
    };
    // Descriptor, directory, two bitmaps, group descriptors, inode table, data, commit.
    assert_eq!(one("/d4", "first"), (1, 1, 32));
    // The directory's inode lies in another block of the table.
    assert_eq!(one("/d0", "alone"), (1, 1, 36));
    for n in 0..100 {
        let file = create(&counted.volume, &format!("/d{}", 1 + n % 3), &format!("other{n}"));
        counted.volume.write(&file, 0, &bytes(n, 2 * BLOCK)).expect("write");
    }
    assert_eq!(one("/d0", "crowded"), (1, 1, 36));
    counted.done();
}

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

struct Case {
    explorer: Explorer,
    models: Vec<Model>,
    image: TempImage,
    base: MemoryDevice,
}

fn case(seed: u64, steps: usize, ring: u32, features: &str, lie: Lie) -> Case {
    println!("seed {seed}, {steps} steps, ring of {ring} blocks, features {features:?}");
    let spec = ImageSpec { features: features.into(), size_bytes: 24 << 20, ..spec(4096) };
    let (image, base) = short_log(&spec, ring);
    let dev =
        Arc::new(CrashDevice::new(&base, CrashOptions { fua: false, lie, ..Default::default() }));
    let options = "sync=eager,cache=4M,eager_threshold=10";
    let mut play = Play::new(Arc::clone(&dev) as Arc<dyn BlockDevice>, options, seed);
    play.mark_on(Arc::clone(&dev));
    for _ in 0..steps {
        play.step();
    }
    play.model.check(&play.volume).expect("without a crash everything is there");
    // Mount and unmount write the superblock in place, which no journal protects.
    play.volume.syncfs().expect("syncfs");
    Case { explorer: Explorer::new(dev.log()), models: play.models, image, base }
}

fn mount(dev: MemoryDevice, options: &str) -> Result<Volume, String> {
    let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
    let options = MountOptions::parse(options).expect("known options");
    Volume::mount(Arc::new(dev), clock, options).map_err(|err| err.to_string())
}

impl Case {
    fn judge_volume(&self, image: MemoryDevice, marks: &[u64], how: &str) -> Result<(), String> {
        if marks.is_empty() {
            return Ok(());
        }
        let volume = mount(image, how)?;
        if let Some(model) = marks.last().and_then(|mark| self.models.get(*mark as usize)) {
            model.check(&volume)?;
        }
        volume.unmount().map_err(|err| err.to_string())
    }

    /// By our own recovery.
    fn judge_ours(&self, state: &CrashState, how: &str) -> Result<(), String> {
        self.judge_volume(state.image.snapshot(), state.marks(), how)
    }
}

/// Explores one workload; `ours` and `stock` states by the two recoveries.
fn explore(case: &Case, ours: u64, stock: u64, command: &str) {
    let budget = Budget::new(ours, 1).with_only(only());
    let summary = syncline_crash::run(&case.explorer, &budget, command, |state| {
        case.judge_ours(state, "sync=eager")
    });
    println!("ours: {summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
    let mut mirror = FileMirror::create(case.image.path(), &case.base).expect("scratch space");
    let budget = Budget::new(stock, 2).with_only(only());
    let summary = syncline_crash::run(&case.explorer, &budget, command, |state| {
        if state.marks().is_empty() {
            return Ok(());
        }
        mirror.restore(&state.image).map_err(|e| e.to_string())?;
        e2fsck_preen(case.image.path())?;
        let theirs = MemoryDevice::load(case.image.path()).map_err(|e| e.to_string())?;
        case.judge_volume(theirs, state.marks(), "sync=ordered")
    });
    println!("e2fsck: {summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn every_crash_keeps_what_was_synced() {
    let command = "cargo test -p syncline-fs --test eager every_crash";
    let from_env = |name: &str, or: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
    };
    let states = from_env("SYNCLINE_EAGER_STATES", 400);
    let seed = from_env("SYNCLINE_EAGER_SEED", 11);
    let features = if seed % 2 == 0 { "^orphan_file" } else { "" };
    explore(&case(seed, 150, 480, features, Lie::None), states, states / 6, command);
}

#[test]
fn a_device_that_lies_about_flushes_is_caught() {
    let case = case(14, 100, 480, "", Lie::EveryFlush);
    let summary = syncline_crash::run(&case.explorer, &Budget::new(400, 3), "", |state| {
        case.judge_ours(state, "sync=eager")
    });
    assert!(!summary.failures.is_empty(), "the judge sees nothing: {summary}");
}

#[test]
fn after_a_failed_write_or_flush_no_sync_succeeds() {
    for (class, from) in [(OpClass::Write, 1), (OpClass::Flush, 1), (OpClass::Write, 2)] {
        let bed = Bed::new(&spec(4096), 2);
        let dev = Arc::new(FailingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, EAGER);
        let (a, b) = (bed.file(&volume, 0), bed.file(&volume, 1));
        volume.write(&a, 0, &bytes(1, 3 * BLOCK)).expect("write");
        volume.fsync(&a, false).expect("fsync");
        dev.arm(FaultPlan::once(class, from));
        let mut failed = false;
        for n in 0..4 {
            for file in [&a, &b] {
                let wrote = volume.write(file, 0, &[n; BLOCK]);
                let synced = wrote.and_then(|_| volume.fsync(file, n % 2 == 0));
                assert!(!failed || synced.is_err(), "{class:?} {from}: success after a failure");
                failed |= synced.is_err();
            }
        }
        assert!(failed, "{class:?} {from}");
    }
}

#[test]
fn eight_threads_share_bursts() {
    let bed = Bed::new(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 0);
    let clock: Arc<dyn Clock> = Arc::new(WallClock::new());
    let ns = 5_000_000;
    let latencies = Latencies { flush_ns: ns, ..Latencies::default() };
    let dev = LatencyDevice::new(Arc::clone(&bed.dev), Arc::clone(&clock), latencies);
    let options = MountOptions::parse(EAGER).expect("known options");
    let volume = Volume::mount(Arc::new(dev), clock, options).expect("mount");
    let rate = |threads: usize| {
        let started = std::time::Instant::now();
        std::thread::scope(|scope| {
            for t in 0..threads {
                let volume = &volume;
                scope.spawn(move || {
                    for n in 0..20 {
                        let file = create(volume, "/", &format!("t{threads}-{t}-{n}"));
                        volume.write(&file, 0, &[t as u8; BLOCK]).expect("write");
                        volume.fsync(&file, false).expect("fsync");
                    }
                });
            }
        });
        threads as f64 * 20.0 / started.elapsed().as_secs_f64()
    };
    let (one, eight) = (rate(1), rate(8));
    println!("one thread: {one:.0}/s, eight: {eight:.0}/s");
    assert!(eight >= 3.0 * one, "one thread: {one:.0}/s, eight: {eight:.0}/s");
    volume.unmount().expect("unmount");
    bed.judge();
}

#[test]
fn a_long_play_ends_clean() {
    for seed in 0..6 {
        let features = if seed % 2 == 0 { "" } else { "^orphan_file" };
        let spec = ImageSpec { features: features.into(), size_bytes: 24 << 20, ..spec(4096) };
        let (image, base) = short_log(&spec, 480);
        println!("seed {seed}, features {features:?}");
        let options = "sync=eager,cache=4M,eager_threshold=10";
        let dev = Arc::new(base);
        let mut play = Play::new(Arc::clone(&dev) as Arc<dyn BlockDevice>, options, 100 + seed);
        for _ in 0..400 {
            play.step();
        }
        play.model.check(&play.volume).expect("everything is there");
        play.volume.unmount().expect("unmount");
        save(&dev, image.path());
        e2fsck_clean(image.path()).unwrap_or_else(|text| panic!("{text}"));
        let volume = mount(dev.snapshot(), "sync=ordered").expect("mounts in the other mode");
        play.model.check(&volume).expect("everything is there after a mount");
    }
}

fn save(dev: &MemoryDevice, path: &std::path::Path) {
    let mut bytes = vec![0; dev.geometry().size_bytes as usize];
    dev.read_at(0, &mut bytes).expect("memory reads");
    std::fs::write(path, &bytes).expect("scratch space");
}
