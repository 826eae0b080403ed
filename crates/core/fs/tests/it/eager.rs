//! Eager sync: exact counts, independence of files, and every crash.

use crate::bed::{Bed, bytes, random, spec};
use crate::play::{BLOCK, Model, Play, short_log};
use std::sync::Arc;
use syncline_device::{
    BlockDevice, Clock, FailingDevice, FaultPlan, FileMirror, MemoryDevice, OpClass,
    RecordingDevice, VirtualClock,
};
use syncline_fs::{Create, FsError, MountOptions, Volume};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, StateId,
};
use syncline_testkit::{ImageSpec, TempImage, e2fsck_clean, e2fsck_preen};

const EAGER: &str = "sync=eager,cache=8M";

struct Counted {
    bed: Bed,
    dev: Arc<RecordingDevice<Arc<MemoryDevice>>>,
    volume: Volume,
}

impl Counted {
    fn new(files: usize) -> Counted {
        Counted::with(files, EAGER)
    }

    fn with(files: usize, options: &str) -> Counted {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, files);
        let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, options);
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
        bed.judge("the test");
    }
}

#[test]
fn with_fua_a_record_is_one_write_and_no_flush_unless_data_went_in_place() {
    for (options, in_place) in
        [("sync=eager", false), ("log=packed", false), ("eager_threshold=0", true)]
    {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, 1);
        let dev =
            Arc::new(RecordingDevice::new(bed.dev.snapshot().with_geometry(|g| g.fua = true)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, options);
        let file = bed.file(&volume, 0);
        let fsync = |round| {
            bed.wait_ms(10);
            let before = dev.begin_phase();
            volume.write(&file, 0, &[round; BLOCK]).expect("write");
            volume.fsync(&file, false).expect("fsync");
            let counts = dev.counts() - before;
            (counts.write_requests(), counts.flushes() > 0)
        };
        // Past the break in the log of a small image.
        (0..30).for_each(|round| _ = fsync(round));
        let expected = if in_place { (2, true) } else { (1, false) };
        assert_eq!(fsync(30), expected, "{options}");
        drop(file);
        volume.unmount().expect("unmount");
    }
}

#[test]
fn a_barrier_is_one_write_and_no_flush_until_something_must_be_durable() {
    for options in ["sync=eager", "sync=eager,eager_threshold=0", "log=packed"] {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, 1);
        let below = bed.dev.snapshot().with_geometry(|g| (g.fua, g.barrier) = (false, true));
        let dev = Arc::new(RecordingDevice::new(below));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, options);
        let file = bed.file(&volume, 0);
        let sent = |work: &dyn Fn()| {
            let before = dev.begin_phase();
            work();
            let counts = dev.counts() - before;
            (counts.barriers(), counts.flushes())
        };
        let order = || {
            volume.write(&file, 0, &[1; BLOCK]).expect("write");
            volume.fdatabarrier(&file).expect("fdatabarrier");
        };
        order();
        volume.fsync(&file, false).expect("fsync");
        bed.wait_ms(10);
        let (barriers, flushes) = sent(&order);
        assert!(barriers >= 1 && flushes == 0, "{options}: {barriers} barriers, {flushes} flushes");
        // There is nothing to write, but what is ordered is not durable.
        assert_eq!(sent(&|| volume.fsync(&file, true).expect("fdatasync")), (0, 1), "{options}");
        assert_eq!(sent(&|| volume.fsync(&file, true).expect("fdatasync")), (0, 0), "{options}");
        // Without a sync the tick makes it durable after the commit interval.
        order();
        let due_ns = volume.next_deadline_ns().expect("it is to be durable");
        let now_ns = bed.clock.now_ns();
        assert!(due_ns <= now_ns + 5_000_000_000, "{options}: due in {} ns", due_ns - now_ns);
        bed.wait_ms(5_000);
        let ticked = sent(&|| volume.tick(bed.clock.now_ns()).expect("tick"));
        assert_eq!((ticked.0, ticked.1 > 0), (0, true), "{options}: {ticked:?}");
        assert_eq!(sent(&|| volume.fsync(&file, true).expect("fdatasync")), (0, 0), "{options}");
        drop(file);
        volume.unmount().expect("unmount");
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

/// 128 KiB of new blocks are written once; of blocks that exist 100 pages are logged.
#[test]
fn a_stream_of_new_blocks_goes_to_its_place() {
    const KIB: u64 = 256;
    let counted = Counted::new(2);
    counted.warm_up(1);
    let file = counted.bed.file(&counted.volume, 0);
    let data = bytes(7, KIB as usize * 1024);
    let write = |n: u64| {
        counted.bed.wait_ms(10);
        counted.volume.write(&file, n * KIB * 1024, &data).expect("write");
        counted.volume.fsync(&file, false).expect("fsync");
    };
    write(0);
    let appended = counted.sent(|| (1..9).for_each(write));
    // Data, flush, then descriptor, group descriptors, bitmap, inode table, commit, flush.
    assert_eq!(appended, (2 * 8, 2 * 8, (KIB + 20) * 8));
    let overwritten = counted.sent(|| write(0));
    // Descriptor, inode table, data, commit: 64 pages are below the threshold.
    assert_eq!((overwritten.1, overwritten.2), (1, KIB + 12));
    drop(file);
    counted.done();
}

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

struct Case {
    explorer: Explorer,
    models: Vec<Model>,
    revokes: u64,
    image: TempImage,
    base: MemoryDevice,
}

/// `place`: the mount option for data that goes in place.
fn case(seed: u64, steps: usize, place: &str, features: &str, faulty: FaultyFlush) -> Case {
    println!("seed {seed}, {steps} steps, {place}, features {features:?}");
    let spec = ImageSpec { features: features.into(), size_bytes: 24 << 20, ..spec(4096) };
    let (image, base) = short_log(&spec, 480);
    let dev = Arc::new(CrashDevice::new(
        &base,
        CrashOptions { fua: false, faulty, ..Default::default() },
    ));
    let options = format!("sync=eager,cache=4M,{place}");
    let mut play = Play::new(Arc::clone(&dev) as Arc<dyn BlockDevice>, &options, seed);
    play.mark_on(Arc::clone(&dev));
    for _ in 0..steps {
        play.step();
    }
    play.model.check(&play.volume).expect("without a crash everything is there");
    // Mount and unmount write the superblock in place, which no journal protects.
    play.volume.syncfs().expect("syncfs");
    let revokes = play.volume.journal_stats().map_or(0, |stats| stats.revokes_logged);
    Case { explorer: Explorer::new(dev.log()), models: play.models, revokes, image, base }
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
    let summary = syncline_testkit::crash::run(&case.explorer, &budget, command, |state| {
        case.judge_ours(state, "sync=eager")
    });
    println!("ours: {summary}");
    summary.into_result().unwrap_or_else(|e| panic!("{e}"));
    let mut mirror = FileMirror::create(case.image.path(), &case.base).expect("scratch space");
    let budget = Budget::new(stock, 2).with_only(only());
    let summary = syncline_testkit::crash::run(&case.explorer, &budget, command, |state| {
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
    let command = "cargo test -p syncline-fs --test it eager::every_crash";
    let from_env = |name: &str, or: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
    };
    let states = from_env("SYNCLINE_EAGER_STATES", 400);
    let seed = from_env("SYNCLINE_EAGER_SEED", 11);
    let features = if seed % 2 == 0 { "^orphan_file" } else { "" };
    explore(
        &case(seed, 150, "eager_threshold=10", features, FaultyFlush::None),
        states,
        states / 6,
        command,
    );
}

/// In place over blocks of which the log has a copy: it is revoked.
#[test]
fn every_crash_keeps_what_was_synced_over_a_copy_in_the_log() {
    let command =
        "cargo test -p syncline-fs --test it eager::every_crash_keeps_what_was_synced_over";
    let case =
        case(12, 600, "eager_threshold=2,eager_stream=1M,eager_run=1M", "", FaultyFlush::None);
    assert!(case.revokes > 10, "{} revokes", case.revokes);
    explore(&case, 6000, 50, command);
}

#[test]
fn a_device_that_lies_about_flushes_is_caught() {
    let case = case(14, 100, "eager_threshold=10", "", FaultyFlush::EveryFlush);
    let summary = syncline_testkit::crash::run(&case.explorer, &Budget::new(400, 3), "", |state| {
        case.judge_ours(state, "sync=eager")
    });
    assert!(!summary.failures.is_empty(), "the judge sees nothing: {summary}");
}

#[test]
fn after_a_failed_write_or_flush_no_sync_succeeds() {
    for (class, from) in [(OpClass::Write, 1), (OpClass::Flush, 1), (OpClass::Write, 2)] {
        let bed = Bed::without_fua(&spec(4096), 2);
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
fn a_file_made_again_takes_its_inode_and_its_blocks_again() {
    let counted = Counted::with(1, "sync=eager,eager_threshold=100");
    counted.warm_up(0);
    let root = counted.volume.root().expect("root");
    let make = |version: u8| {
        let file = create(&counted.volume, "/", "journal");
        counted.volume.write(&file, 0, &[version; 3 * BLOCK]).expect("write");
        counted.volume.fsync(&file, false).expect("fsync");
        let place = counted.volume.fiemap(&file, 0, u64::MAX).expect("fiemap");
        place.first().expect("it has data").physical
    };
    let first = make(1);
    for version in 2..40 {
        counted.bed.wait_ms(10);
        counted.volume.unlink(&root, b"journal").expect("unlink");
        let mut place = 0;
        // Descriptor, inode table, three of data, commit.
        assert_eq!(counted.sent(|| place = make(version)), (1, 1, 24));
        assert_eq!(place, first);
    }
    // Above the threshold data goes in place: then the blocks must be others.
    counted.volume.unlink(&root, b"journal").expect("unlink");
    let file = create(&counted.volume, "/", "journal");
    counted.volume.write(&file, 0, &[9; 101 * BLOCK]).expect("write");
    counted.volume.fsync(&file, false).expect("fsync");
    let places = counted.volume.fiemap(&file, 0, u64::MAX).expect("fiemap");
    let ours = first..first + 3 * BLOCK as u64;
    assert!(places.iter().all(|p| !ours.contains(&p.physical)), "{places:?}");
    drop((file, root));
    counted.done();
}

#[test]
fn new_files_have_their_inodes_beside_their_directory() {
    let counted = Counted::new(1);
    let root = counted.volume.root().expect("root");
    let how = Create { mode: 0o755, uid: 0, gid: 0 };
    drop(counted.volume.mkdir(&root, b"fresh", &how).expect("mkdir"));
    counted.volume.syncfs().expect("syncfs");
    counted.warm_up(0);
    // Inodes 17 to 32 share a block of the table; 13 to 16 share one with the root.
    for n in 0..3 {
        drop(create(&counted.volume, "/", &format!("fill{n}")));
    }
    drop(counted.volume.mkdir(&root, b"next", &how).expect("mkdir"));
    counted.volume.unlink(&root, b"fill0").expect("unlink");
    counted.volume.syncfs().expect("syncfs");
    let inode = counted.volume.resolve(b"/next").expect("it is there").ino;
    let free_in_block = 32 - inode;
    for n in 0..free_in_block {
        counted.bed.wait_ms(10);
        let sent = counted.sent(|| {
            let file = create(&counted.volume, "/next", &format!("n{n}"));
            assert_eq!((file.ino - 1) / 16, (inode - 1) / 16);
            counted.volume.write(&file, 0, &[5; BLOCK]).expect("write");
            counted.volume.fsync(&file, false).expect("fsync");
        });
        assert_eq!(sent, (1, 1, 32), "file {n}");
    }
    drop(root);
    counted.done();
}

#[test]
fn data_that_was_logged_is_written_back_in_long_runs_and_short_steps() {
    let spec = ImageSpec { size_bytes: 64 << 20, journal_size_mib: Some(4), ..spec(4096) };
    let bed = Bed::without_fua(&spec, 1);
    let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
    let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, "sync=eager");
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &bytes(1, 1 << 20)).expect("write");
    volume.syncfs().expect("syncfs");
    let (mut random, mut model) = (random(5), bytes(1, 1 << 20));
    let (mut most, started) = (0, dev.begin_phase());
    for n in 0..3000u64 {
        bed.wait_ms(2);
        // As a maintenance thread does it, whose clock was read before: due then, not just now.
        let now_ns = bed.clock.now_ns() - 1;
        while volume.next_deadline_ns().is_some_and(|due| due <= now_ns) {
            let before = dev.counts();
            volume.tick(now_ns).expect("tick");
            most = most.max((dev.counts() - before).data.written_bytes);
        }
        let at = random.index(256) * BLOCK;
        model[at..at + BLOCK].fill(n as u8);
        volume.write(&file, at as u64, &[n as u8; BLOCK]).expect("write");
        volume.fsync(&file, false).expect("fsync");
    }
    let sent = dev.counts() - started;
    let mean = sent.data.written_bytes / sent.data.write_requests.max(1);
    println!("{} data requests, mean {mean} bytes, most a step {most}", sent.data.write_requests);
    assert!(sent.data.write_requests > 10, "nothing was written back");
    assert!(mean >= 64 << 10, "write-back requests of {mean} bytes");
    assert!(most <= 64 * 9 * BLOCK as u64, "a step of {most} bytes");
    assert_eq!(crate::bed::contents(&volume, &file), model);
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn a_stream_in_the_background_is_written_in_whole_requests() {
    let counted = Counted::with(1, &format!("{EAGER},writeback=file"));
    let file = counted.bed.file(&counted.volume, 0);
    // Above the background limit of a tenth of 8 MiB.
    counted.volume.write(&file, 0, &bytes(1, 1 << 20)).expect("write");
    let (requests, _, kib) = counted.sent(|| {
        for step in 1..=2 {
            let before = counted.dev.counts();
            counted.volume.tick(counted.bed.clock.now_ns()).expect("tick");
            let data = (counted.dev.counts() - before).data;
            assert_eq!((data.write_requests, data.written_bytes), (1, 512 << 10), "step {step}");
        }
    });
    assert_eq!((requests, kib), (2, 1024));
    drop(file);
    counted.done();
}

/// The journal's blocks are not among the dirty pages, so writing them makes those no fewer.
#[test]
fn too_many_dirty_pages_are_no_reason_to_checkpoint() {
    for order in ["file", "space"] {
        no_checkpoint_of_dirty_pages(order);
    }
}

fn no_checkpoint_of_dirty_pages(order: &str) {
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 64 << 20, ..spec(4096) }, 1);
    let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
    let options = format!("sync=eager,cache=1M,writeback={order},dirty_background_ratio=10");
    let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, &options);
    let tick = || {
        let before = dev.counts();
        while volume.next_deadline_ns().is_some_and(|due| due <= bed.clock.now_ns()) {
            volume.tick(bed.clock.now_ns()).expect("tick");
        }
        dev.counts() - before
    };
    let file = bed.file(&volume, 0);
    for n in 0..20 {
        let new = create(&volume, "/", &format!("new{n}"));
        volume.write(&new, 0, &bytes(n, BLOCK)).expect("write");
        volume.fsync(&new, false).expect("fsync");
        volume.write(&file, n * (30 << 12), &bytes(n, 30 << 12)).expect("write");
        bed.wait_ms(100);
        let sent = tick();
        assert!(sent.data.written_bytes > 0, "{order}: 30 pages are more than a tenth of 256");
        assert_eq!(sent.metadata.written_bytes, 0, "{order}: {sent:?}");
    }
    bed.wait_ms(35_000);
    assert!(tick().metadata.written_bytes > 0, "{order}: it is old enough");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn freed_blocks_that_wait_for_the_log_give_no_early_no_space() {
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 24 << 20, ..spec(4096) }, 1);
    let volume = bed.mount("sync=eager");
    let root = volume.root().expect("root");
    let big = bed.file(&volume, 0);
    let mut size = 0;
    loop {
        match volume.write(&big, size, &[7; 16 * BLOCK]) {
            Ok(n) => size += n as u64,
            Err(FsError::NoSpace) => break,
            Err(err) => panic!("{err}"),
        }
    }
    volume.fsync(&big, false).expect("fsync");
    volume.truncate(&big, size - 60 * BLOCK as u64).expect("truncate");
    volume.syncfs().expect("syncfs");
    // Each file needs most of what is free; what its predecessor had waits for the tail.
    for n in 0..30 {
        let name = format!("file{n}");
        let file = create(&volume, "/", &name);
        let wrote = volume.write(&file, 0, &vec![n; 40 * BLOCK]).expect("there is space");
        assert_eq!(wrote, 40 * BLOCK, "file {n}");
        volume.fsync(&file, false).expect("fsync");
        drop(file);
        let other = create(&volume, "/", &format!("other{n}"));
        volume.write(&other, 0, &[n; BLOCK]).expect("a block for another inode");
        volume.fsync(&other, false).expect("fsync");
        drop(other);
        volume.unlink(&root, name.as_bytes()).expect("unlink");
        volume.unlink(&root, format!("other{n}").as_bytes()).expect("unlink");
    }
    drop((big, root));
    volume.unmount().expect("unmount");
    bed.judge("the test");
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

/// Compatible, incompatible features and checksum type of the journal superblock.
fn journal_features(dev: &MemoryDevice, block: u64) -> [u32; 3] {
    let mut sb = [0; 1024];
    dev.read_at(block * BLOCK as u64, &mut sb).expect("memory reads");
    let word = |at: usize| u32::from_be_bytes(sb[at..at + 4].try_into().expect("4 bytes"));
    [word(0x24), word(0x28), u32::from(sb[0x50])]
}

#[test]
fn a_clean_unmount_leaves_the_journal_as_it_was() {
    const V1: [u32; 2] = [1, 4];
    for features in ["", "^metadata_csum"] {
        let spec = ImageSpec { features: features.into(), ..spec(4096) };
        let (image, dev) = short_log(&spec, u32::MAX);
        let block = crate::play::journal_block(image.path());
        let fresh = journal_features(&dev, block);
        let work = |dev: &Arc<MemoryDevice>, options: &str, crash: bool| {
            let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
            let options = MountOptions::parse(options).expect("known options");
            let volume = Volume::mount(Arc::clone(dev) as Arc<dyn BlockDevice>, clock, options)
                .expect("mounts");
            let file = create(&volume, "/", if crash { "lost" } else { "kept" });
            volume.write(&file, 0, &[1; BLOCK]).expect("write");
            volume.fsync(&file, false).expect("fsync");
            let during = journal_features(dev, block);
            let after = Arc::new(dev.snapshot());
            drop(file);
            volume.unmount().expect("unmount");
            (during, if crash { after } else { Arc::clone(dev) })
        };
        let dev = Arc::new(dev);
        let (during, _) = work(&dev, "sync=eager", false);
        assert_eq!((during[0] & V1[0], during[1] & V1[1]), (V1[0], V1[1]), "{features:?}");
        assert_eq!(journal_features(&dev, block), fresh, "{features:?}");
        let kernels = if features.is_empty() { 0x10 } else { 0 };
        for next in ["sync=eager", "sync=ordered"] {
            // A crash leaves the format of eager syncs; the next unmount takes it away.
            let (_, crashed) = work(&Arc::new(dev.snapshot()), "sync=eager", true);
            mount_and_unmount(&crashed, next);
            let [compat, incompat, _] = journal_features(&crashed, block);
            assert_eq!((compat & V1[0], incompat & 0x1c), (0, kernels), "{features:?}, {next}");
            save(&crashed, image.path());
            e2fsck_clean(image.path()).unwrap_or_else(|text| panic!("{text}"));
        }
    }
}

fn mount_and_unmount(dev: &Arc<MemoryDevice>, options: &str) {
    let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
    let options = MountOptions::parse(options).expect("known options");
    let volume =
        Volume::mount(Arc::clone(dev) as Arc<dyn BlockDevice>, clock, options).expect("mounts");
    volume.unmount().expect("unmount");
}

fn save(dev: &MemoryDevice, path: &std::path::Path) {
    dev.to_file(path).expect("scratch space");
}
