//! Atomic writes of a file: nobody sees a part, no crash leaves a part, and one costs one request.

use crate::bed::{Bed, assert_same, bytes, contents, random, spec};
use crate::play::{BLOCK, short_log};
use std::sync::Arc;
use syncline_device::{
    BlockDevice, Clock, FailingDevice, FaultPlan, FileMirror, MemoryDevice, OpClass,
    RecordingDevice, VirtualClock,
};
use syncline_fs::{Create, FallocateMode, FsError, MountOptions, Volume};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Explorer, FaultyFlush, StateId,
};
use syncline_testkit::{ImageSpec, Random, TempImage, e2fsck_preen};

const LOGS: [&str; 2] = ["sync=eager,cache=8M", "sync=eager,cache=8M,log=packed"];

#[test]
fn staged_bytes_are_seen_by_nobody_before_the_commit_and_by_all_after_it() {
    for options in LOGS {
        let bed = Bed::without_fua(&spec(4096), 1);
        let volume = bed.mount(options);
        let file = bed.file(&volume, 0);
        let mut model = bytes(1, 10 * BLOCK);
        volume.write(&file, 0, &model).expect("write");
        let mut atomic = volume.begin_atomic(&file).expect("begin");
        let changes =
            [(0, 3 * BLOCK), (5 * BLOCK + 100, 50), (9 * BLOCK, 3 * BLOCK), (20 * BLOCK + 7, 90)];
        for (n, (at, len)) in (0..).zip(changes) {
            let data = bytes(50 + n, len);
            assert_eq!(volume.write_atomic(&mut atomic, at as u64, &data), Ok(len));
            // Other handles, write-back and their syncs.
            assert_same(&contents(&volume, &file), &model, "before the commit");
            volume.fsync(&file, false).expect("fsync");
        }
        let before = model.clone();
        for (n, (at, len)) in (0..).zip(changes) {
            model.resize(model.len().max(at + len), 0);
            model[at..at + len].copy_from_slice(&bytes(50 + n, len));
        }
        let mut own = vec![0xee; model.len() + 100];
        assert_eq!(volume.read_atomic(&atomic, 0, &mut own), Ok(model.len()));
        assert_same(&own[..model.len()], &model, "its own view");
        assert_same(&contents(&volume, &file), &before, "others' view");
        volume.commit_atomic(atomic).expect("commit");
        assert_same(&contents(&volume, &file), &model, "after the commit");
        // Durable: the device alone has it.
        let again = Arc::new(bed.dev.snapshot());
        let other = bed.mount_on(again, "sync=ordered");
        assert_same(&contents(&other, &bed.file(&other, 0)), &model, "after a crash");
        drop(other);
        drop(file);
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn a_dropped_one_leaves_nothing_and_gives_its_space_back() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount(LOGS[1]);
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &bytes(1, BLOCK)).expect("write");
    volume.syncfs().expect("syncfs");
    let free = volume.statfs().blocks_free;
    let mut atomic = volume.begin_atomic(&file).expect("begin");
    volume.write_atomic(&mut atomic, 0, &bytes(2, 20 * BLOCK)).expect("stage");
    assert_eq!(volume.statfs().blocks_free, free - 19, "new blocks are reserved");
    drop(atomic);
    assert_eq!(volume.statfs().blocks_free, free);
    assert_same(&contents(&volume, &file), &bytes(1, BLOCK), "after the abort");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn one_at_a_time_on_a_regular_file_of_an_eager_volume() {
    let bed = Bed::without_fua(&spec(4096), 2);
    let volume = bed.mount(LOGS[0]);
    let file = bed.file(&volume, 0);
    let atomic = volume.begin_atomic(&file).expect("begin");
    assert_eq!(volume.begin_atomic(&file).err(), Some(FsError::Busy));
    let other = volume.begin_atomic(&bed.file(&volume, 1)).expect("another file");
    drop(atomic);
    let empty = volume.begin_atomic(&file).expect("the first one is over");
    volume.commit_atomic(empty).expect("nothing staged: a sync");
    drop(other);
    let root = volume.root().expect("root");
    assert_eq!(volume.begin_atomic(&root).err(), Some(FsError::IsDir));
    drop((file, root));
    volume.unmount().expect("unmount");
    let volume = bed.mount("sync=ordered");
    let refused = volume.begin_atomic(&bed.file(&volume, 0)).expect_err("refused");
    assert!(refused.to_string().contains("sync=eager"), "{refused}");
}

#[test]
fn more_than_a_record_holds_is_refused_where_it_is_written_and_the_rest_commits() {
    let bed = Bed::without_fua(&ImageSpec { journal_size_mib: Some(4), ..spec(4096) }, 1);
    let volume = bed.mount(LOGS[1]);
    let file = bed.file(&volume, 0);
    let mut atomic = volume.begin_atomic(&file).expect("begin");
    let mut staged = 0;
    let refused = loop {
        match volume.write_atomic(&mut atomic, staged, &[7; BLOCK]) {
            Ok(n) => staged += n as u64,
            Err(err) => break err,
        }
    };
    assert!(matches!(refused, FsError::AtomicTooBig { .. }), "{refused}");
    assert!(staged >= 64 << 12, "{staged} bytes of a log of 4 MiB");
    assert_eq!(volume.write_atomic(&mut atomic, 0, &[8; BLOCK]), Ok(BLOCK), "staged already");
    volume.commit_atomic(atomic).expect("commit");
    let found = contents(&volume, &file);
    assert_eq!(found.len() as u64, staged);
    assert!(found[..BLOCK].iter().all(|byte| *byte == 8) && found[BLOCK] == 7);
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
}

#[test]
fn what_others_do_meanwhile_counts_where_nothing_is_staged() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount(LOGS[1]);
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &bytes(1, 8 * BLOCK)).expect("write");
    let mut atomic = volume.begin_atomic(&file).expect("begin");
    let mut stage = |at: usize, len: usize, byte: u8| {
        volume.write_atomic(&mut atomic, at as u64, &vec![byte; len]).expect("stage");
    };
    stage(100, 50, 2);
    stage(3 * BLOCK, 10, 3);
    stage(7 * BLOCK + 5, 5, 4);
    // Beside staged bytes of one block; a hole under others; an end before the last ones.
    volume.write(&file, 140, &[9; 100]).expect("write");
    let punch = FallocateMode::PunchHole;
    volume.fallocate(&file, punch, 3 * BLOCK as u64, BLOCK as u64).expect("punch");
    volume.truncate(&file, 5 * BLOCK as u64 + 1).expect("truncate");
    let mut model = bytes(1, 8 * BLOCK);
    model[140..240].fill(9);
    model[100..150].fill(2);
    model[3 * BLOCK..4 * BLOCK].fill(0);
    model[3 * BLOCK..3 * BLOCK + 10].fill(3);
    model.truncate(5 * BLOCK + 1);
    model.resize(7 * BLOCK + 10, 0);
    model[7 * BLOCK + 5..].fill(4);
    volume.commit_atomic(atomic).expect("commit");
    assert_same(&contents(&volume, &file), &model, "after the commit");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
    let volume = bed.mount("ro");
    assert_same(&contents(&volume, &bed.file(&volume, 0)), &model, "in place");
}

#[test]
fn a_commit_is_one_request_and_the_sync_after_it_none() {
    // Descriptor and commit block, three pages, the inode for its times; or a record of one unit.
    for (options, kib) in [(LOGS[0], 24), (LOGS[1], 4)] {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, 1);
        let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, options);
        let file = bed.file(&volume, 0);
        volume.write(&file, 0, &bytes(1, 64 * BLOCK)).expect("write");
        volume.fsync(&file, false).expect("fsync");
        let mut page = bytes(1, BLOCK);
        for round in 0..30 {
            bed.wait_ms(10);
            let before = dev.begin_phase();
            let mut atomic = volume.begin_atomic(&file).expect("begin");
            for at in [3, 17, 40] {
                // A row and its page's header.
                page[..40].fill(round);
                page[1000..1900].fill(round);
                volume.write_atomic(&mut atomic, at * BLOCK as u64, &page).expect("stage");
            }
            volume.commit_atomic(atomic).expect("commit");
            volume.fsync(&file, true).expect("fdatasync");
            let sent = dev.counts() - before;
            let found = (sent.write_requests(), sent.flushes(), sent.written_bytes() / 1024);
            // The first blocks of mke2fs's log do not lie together.
            if round >= 10 {
                assert_eq!(found, (1, 1, kib), "{options}, round {round}");
            }
        }
        drop(file);
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

#[test]
fn without_space_or_after_a_failed_write_nothing_of_it_is_there() {
    let bed = Bed::without_fua(&ImageSpec { size_bytes: 24 << 20, ..spec(4096) }, 2);
    let volume = bed.mount(LOGS[1]);
    let (file, big) = (bed.file(&volume, 0), bed.file(&volume, 1));
    volume.write(&file, 0, &bytes(1, BLOCK)).expect("write");
    volume.fsync(&file, false).expect("fsync");
    let mut atomic = volume.begin_atomic(&file).expect("begin");
    volume.write_atomic(&mut atomic, 0, &bytes(2, 3 * BLOCK)).expect("stage");
    let mut size = 0;
    while let Ok(n) = volume.write(&big, size, &[7; 16 * BLOCK]) {
        size += n as u64;
    }
    let refused = volume.write_atomic(&mut atomic, 10 * BLOCK as u64, &[1; 4 * BLOCK]);
    assert_eq!(refused, Err(FsError::NoSpace));
    // What was staged before has its blocks.
    volume.commit_atomic(atomic).expect("commit");
    assert_same(&contents(&volume, &file), &bytes(2, 3 * BLOCK), "on a full volume");
    drop((file, big));
    volume.unmount().expect("unmount");
    bed.judge("the test");

    for class in [OpClass::Write, OpClass::Flush] {
        let bed = Bed::without_fua(&spec(4096), 1);
        let dev = Arc::new(FailingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, LOGS[0]);
        let file = bed.file(&volume, 0);
        volume.write(&file, 0, &bytes(1, 3 * BLOCK)).expect("write");
        volume.fsync(&file, false).expect("fsync");
        let mut atomic = volume.begin_atomic(&file).expect("begin");
        volume.write_atomic(&mut atomic, 0, &bytes(2, 3 * BLOCK)).expect("stage");
        dev.arm(FaultPlan::once(class, 1));
        assert!(volume.commit_atomic(atomic).is_err());
        assert!(volume.fsync(&file, false).is_err(), "latched");
        drop((file, volume));
        let volume = bed.mount("sync=ordered");
        let found = contents(&volume, &bed.file(&volume, 0));
        let whole = [bytes(1, 3 * BLOCK), bytes(2, 3 * BLOCK)];
        assert!(whole.contains(&found), "{class:?}: a part of it is there");
    }
}

const FILES: usize = 2;
const ROUNDS: u64 = 60;
const PAGES_MAX: u64 = 24;

/// Contents of the atomic files after each round.
type History = Vec<Vec<Vec<u8>>>;

struct Case {
    explorer: Explorer,
    history: History,
    image: TempImage,
    base: MemoryDevice,
    inos: Vec<u32>,
}

fn mount(dev: Arc<dyn BlockDevice>, options: &str) -> Result<Volume, String> {
    let clock = Arc::new(VirtualClock::default()) as Arc<dyn Clock>;
    let options = MountOptions::parse(options).expect("known options");
    Volume::mount(dev, clock, options).map_err(|err| err.to_string())
}

/// One atomic write of one file in the model and on the volume; `halves`: as two of them, which is
/// what a crash must show.
fn round(volume: &Volume, random: &mut Random, ino: u32, model: &mut Vec<u8>, halves: bool) {
    let file = volume.iget(ino).expect("the file is there");
    let mut atomic = volume.begin_atomic(&file).expect("begin");
    for n in 0..1 + random.below(5) {
        if halves && n == 2 {
            volume.commit_atomic(atomic).expect("commit");
            atomic = volume.begin_atomic(&file).expect("begin");
        }
        let at = random.below(PAGES_MAX) as usize * BLOCK;
        let (skip, len) = match random.below(3) {
            0 => (0, BLOCK),
            1 => (0, 2 * BLOCK),
            _ => (random.index(4000), 1 + random.index(300)),
        };
        let data = bytes(random.below(1 << 40), len);
        match volume.write_atomic(&mut atomic, (at + skip) as u64, &data) {
            Ok(_) => {}
            // The log is short; nothing of this call is staged.
            Err(FsError::AtomicTooBig { .. }) => continue,
            Err(err) => panic!("stage: {err}"),
        }
        model.resize(model.len().max(at + skip + len), 0);
        model[at + skip..at + skip + len].copy_from_slice(&data);
    }
    volume.commit_atomic(atomic).expect("commit");
}

/// Ordinary work beside it: files made, synced, removed, and time for the background.
fn others(volume: &Volume, random: &mut Random, clock: &VirtualClock) {
    let root = volume.root().expect("root");
    match random.below(6) {
        0 => {
            let how = Create { mode: 0o644, uid: 0, gid: 0 };
            let _ = volume.unlink(&root, b"beside");
            let file = volume.create(&root, b"beside", &how).expect("create");
            volume.write(&file, 0, &bytes(random.below(99), 5 * BLOCK)).expect("write");
            volume.fsync(&file, false).expect("fsync");
        }
        1 => volume.syncfs().expect("syncfs"),
        2 | 3 => {
            clock.sleep_until(clock.now_ns() + random.below(12_000_000_000));
            volume.tick(clock.now_ns()).expect("tick");
        }
        _ => {}
    }
}

fn case(seed: u64, log: &str, (faulty, halves): (FaultyFlush, bool)) -> Case {
    let spec = ImageSpec { size_bytes: 24 << 20, ..spec(4096) };
    let (image, base) = short_log(&spec, 480);
    let mut random = random(seed);
    let mut models = vec![Vec::new(); FILES];
    let mut inos = Vec::new();
    let dev = Arc::new(CrashDevice::new(
        &base,
        CrashOptions { fua: seed % 2 == 0, faulty, ..Default::default() },
    ));
    let clock = Arc::new(VirtualClock::default());
    let options = MountOptions::parse(&format!("sync=eager,cache=4M,log={log}")).expect("options");
    let volume =
        Volume::mount(Arc::clone(&dev) as Arc<dyn BlockDevice>, Arc::clone(&clock) as _, options)
            .expect("mount");
    {
        let root = volume.root().expect("root");
        for (n, model) in models.iter_mut().enumerate() {
            let how = Create { mode: 0o644, uid: 0, gid: 0 };
            let file = volume.create(&root, format!("atomic{n}").as_bytes(), &how).expect("create");
            *model = bytes(n as u64, 6 * BLOCK);
            volume.write(&file, 0, model).expect("write");
            inos.push(file.ino);
        }
    }
    volume.syncfs().expect("syncfs");
    dev.mark(0);
    let mut history = vec![models.clone()];
    for n in 1..=ROUNDS {
        let which = random.index(FILES);
        round(&volume, &mut random, inos[which], &mut models[which], halves);
        history.push(models.clone());
        dev.mark(n);
        others(&volume, &mut random, &clock);
    }
    volume.syncfs().expect("syncfs");
    Case { explorer: Explorer::new(dev.log()), history, image, base, inos }
}

impl Case {
    /// Both files are as after the last acknowledged commit, or the next one.
    fn judge(&self, dev: MemoryDevice, marks: &[u64], options: &str) -> Result<(), String> {
        let Some(&mark) = marks.last() else { return Ok(()) };
        let volume = mount(Arc::new(dev), options)?;
        let mut found = Vec::new();
        for ino in &self.inos {
            let file = volume.iget(*ino).map_err(|err| err.to_string())?;
            found.push(contents(&volume, &file));
        }
        let near = self.history[mark as usize..].iter().take(2);
        if !near.into_iter().any(|models| *models == found) {
            let rounds: Vec<_> = (found.iter().enumerate())
                .map(|(n, found)| self.history.iter().position(|models| models[n] == *found))
                .collect();
            return Err(format!("round {mark} is durable; files are of rounds {rounds:?}"));
        }
        volume.unmount().map_err(|err| err.to_string())
    }
}

fn only() -> Option<StateId> {
    let text = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(text.parse().expect("SYNCLINE_CRASH_STATE holds a state id from a failure report"))
}

fn explore(log: &str, stock: bool) {
    let states = std::env::var("SYNCLINE_ATOMIC_STATES").ok().and_then(|text| text.parse().ok());
    let states: u64 = states.unwrap_or(300);
    let command = "cargo test -p syncline-fs --test it atomic::every_crash";
    // A long run takes several workloads.
    for seed in 1..=states.div_ceil(5000) {
        let case = case(seed, log, (FaultyFlush::None, false));
        let ours =
            |state: &CrashState| case.judge(state.image.snapshot(), state.marks(), "sync=eager");
        let budget = Budget::new(states.min(5000), seed).with_only(only());
        let summary = syncline_testkit::crash::run(&case.explorer, &budget, command, ours);
        println!("{log}, seed {seed}: {summary}");
        summary.into_result().unwrap_or_else(|e| panic!("{e}"));
        if !stock {
            continue;
        }
        let mut mirror = FileMirror::create(case.image.path(), &case.base).expect("scratch space");
        let budget = Budget::new(states.min(5000) / 6, seed + 100).with_only(only());
        let summary = syncline_testkit::crash::run(&case.explorer, &budget, command, |state| {
            mirror.restore(&state.image).map_err(|e| e.to_string())?;
            e2fsck_preen(case.image.path())?;
            let theirs = MemoryDevice::load(case.image.path()).map_err(|e| e.to_string())?;
            case.judge(theirs, state.marks(), "sync=ordered")
        });
        println!("e2fsck, seed {seed}: {summary}");
        summary.into_result().unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn every_crash_of_jbd2_records_shows_all_of_a_commit_or_nothing() {
    explore("jbd2", true);
}

#[test]
fn every_crash_of_packed_records_shows_all_of_a_commit_or_nothing() {
    explore("packed", false);
}

/// The judge sees what it is there for: a commit in two halves, and a device that lies.
#[test]
fn a_commit_in_halves_and_lost_flushes_are_caught() {
    for (how, what) in
        [((FaultyFlush::None, true), "halves"), ((FaultyFlush::EveryFlush, false), "faulty")]
    {
        let case = case(4, "packed", how);
        let summary =
            syncline_testkit::crash::run(&case.explorer, &Budget::new(400, 3), "", |state| {
                case.judge(state.image.snapshot(), state.marks(), "sync=eager")
            });
        assert!(!summary.failures.is_empty(), "{what}: the judge sees nothing: {summary}");
    }
}
