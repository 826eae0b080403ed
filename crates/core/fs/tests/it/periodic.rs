//! `sync=periodic`: what syncs cost, what a sync point costs and has, which files are strict,
//! limits of log and memory. The crash tests of `syncline-model` have the power cuts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use syncline_device::{BlockDevice, Clock, MemoryDevice, RecordingDevice, TraceOp};
use syncline_fs::{FallocateMode, FsError, InodeRef, SetAttr, Volume, XattrFlags};
use syncline_testkit::ImageSpec;

use crate::bed::{Bed, MIB, bytes, contents, owner, spec};

const BLOCK: usize = 4096;

fn bed(files: usize) -> Bed {
    Bed::new(&spec(4096), files).with("sync=periodic")
}

/// The volume as the next boot would see it if the power went now.
fn after_cut(bed: &Bed) -> Volume {
    bed.mount_on(Arc::new(bed.dev.snapshot()), "")
}

/// Ticks whenever the volume asks for it until `ms` have passed.
fn pass(bed: &Bed, volume: &Volume, ms: u64) {
    let end_ns = bed.clock.now_ns() + ms * 1_000_000;
    while let Some(at_ns) = volume.next_deadline_ns().filter(|at_ns| *at_ns < end_ns) {
        bed.clock.sleep_until(at_ns.max(bed.clock.now_ns()));
        volume.tick(bed.clock.now_ns()).unwrap();
    }
    bed.clock.sleep_until(end_ns);
    volume.tick(end_ns).unwrap();
}

/// Writes and flushes that reached the device.
fn requests(device: &RecordingDevice<MemoryDevice>) -> (usize, usize) {
    let events = device.take_events();
    let count = |op: fn(&TraceOp) -> bool| events.iter().filter(|event| op(&event.op)).count();
    (count(|op| matches!(op, TraceOp::Write)), count(|op| matches!(op, TraceOp::Flush)))
}

#[test]
fn a_sync_costs_nothing_and_a_sync_point_one_write_and_one_flush() {
    let bed = bed(2);
    let inner = MemoryDevice::load(bed.image.path()).unwrap().with_geometry(|g| g.fua = false);
    let device = Arc::new(RecordingDevice::with_events(inner, bed.clock.clone(), 10_000));
    let volume = bed.mount_on(device.clone(), "");
    let files = [bed.file(&volume, 0), bed.file(&volume, 1)];
    for file in &files {
        volume.write(file, 0, &bytes(1, 3 * BLOCK)).unwrap();
    }
    volume.sync().unwrap();
    requests(&device);
    for round in 0..50 {
        for file in &files {
            volume.write(file, (round % 3 * BLOCK) as u64, &bytes(round as u64, BLOCK)).unwrap();
            volume.fsync(file, round % 2 == 0).unwrap();
        }
        volume.syncfs().unwrap();
    }
    assert_eq!(requests(&device), (0, 0), "nothing reaches the device before the sync point");
    let before = volume.sync_points().unwrap();
    assert!(before.is_behind);
    pass(&bed, &volume, 5_001);
    assert_eq!(requests(&device), (1, 1), "both files are in one transaction");
    let after = volume.sync_points().unwrap();
    assert_eq!((after.count - before.count, after.is_behind), (1, false));
    assert_eq!(volume.next_deadline_ns().map(|at| at > bed.clock.now_ns()), Some(true));
    pass(&bed, &volume, 20_000);
    assert_eq!(requests(&device), (0, 0), "no change, no sync point");
    volume.unmount().unwrap();
}

#[test]
fn a_cut_goes_back_to_the_last_sync_point_and_not_to_a_mixture() {
    let bed = bed(2);
    let volume = bed.mount("");
    let files = [bed.file(&volume, 0), bed.file(&volume, 1)];
    for (n, file) in files.iter().enumerate() {
        volume.write(file, 0, &bytes(n as u64, 5 * BLOCK)).unwrap();
    }
    volume.sync().unwrap();
    for (n, file) in files.iter().enumerate() {
        volume.write(file, 0, &bytes(n as u64 + 10, 40 * BLOCK)).unwrap();
        volume.fsync(file, false).unwrap();
    }
    volume.create(&volume.root().unwrap(), b"new", &owner()).unwrap();
    let cut = after_cut(&bed);
    for (n, _) in files.iter().enumerate() {
        assert_eq!(contents(&cut, &bed.file(&cut, n)), bytes(n as u64, 5 * BLOCK));
    }
    assert!(matches!(cut.resolve("/new"), Err(FsError::NotFound)));
    volume.sync().unwrap();
    let cut = after_cut(&bed);
    for (n, _) in files.iter().enumerate() {
        assert_eq!(contents(&cut, &bed.file(&cut, n)), bytes(n as u64 + 10, 40 * BLOCK));
    }
    cut.resolve("/new").unwrap();
    bed.unmount_and_judge(volume, "sync points");
}

fn is_durable(bed: &Bed, path: &str, wanted: &[u8]) -> bool {
    let cut = after_cut(bed);
    cut.resolve(path).is_ok_and(|inode| contents(&cut, &inode) == wanted)
}

#[test]
fn strict_files_take_a_sync_point_with_everything_before_it() {
    let bed = bed(0).with("sync=periodic,strict=*.db");
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    let new = |name: &str| volume.create(&root, name.as_bytes(), &owner()).unwrap();
    let (plain, strict, marked) = (new("plain"), new("a.db"), new("marked"));
    for file in [&plain, &strict, &marked] {
        volume.write(file, 0, b"one").unwrap();
    }
    volume.fsync(&plain, false).unwrap();
    assert!(!is_durable(&bed, "/plain", b"one"));
    volume.fsync(&strict, true).unwrap();
    assert!(is_durable(&bed, "/a.db", b"one") && is_durable(&bed, "/plain", b"one"));

    volume.write(&marked, 0, b"two").unwrap();
    volume.fsync(&marked, false).unwrap();
    assert!(!is_durable(&bed, "/marked", b"two"));
    let attribute = b"user.syncline.durability";
    volume.setxattr(&marked, attribute, b"strict", XattrFlags::Any).unwrap();
    volume.fsync(&marked, false).unwrap();
    assert!(is_durable(&bed, "/marked", b"two"));
    volume.setxattr(&strict, attribute, b"relaxed", XattrFlags::Any).unwrap();
    volume.write(&strict, 0, b"two").unwrap();
    volume.fsync(&strict, false).unwrap();
    assert!(!is_durable(&bed, "/a.db", b"two"), "the attribute goes before the name");

    volume.write(&plain, 0, b"two").unwrap();
    volume.set_relaxed_enabled(false).unwrap();
    assert!(is_durable(&bed, "/plain", b"two"), "to switch them off is a sync point");
    volume.write_sync(&plain, 0, b"six", true).unwrap();
    assert!(is_durable(&bed, "/plain", b"six"));
    volume.set_relaxed_enabled(true).unwrap();
    volume.write_sync(&plain, 0, b"ten", true).unwrap();
    assert!(!is_durable(&bed, "/plain", b"ten"));
    drop((plain, strict, marked, root));
    bed.unmount_and_judge(volume, "strict files");
}

/// Writers change one file, then another; whatever the sync point, the second never has the later
/// change alone.
#[test]
fn sync_points_beside_writers_keep_the_order_of_files() {
    let bed = bed(2);
    let volume = bed.mount("");
    let files = [bed.file(&volume, 0), bed.file(&volume, 1)];
    let number = |volume: &Volume, file: &InodeRef| {
        let mut into = [0; 8];
        volume.read(file, 0, &mut into).unwrap();
        u64::from_le_bytes(into)
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (1..u64::MAX).take_while(|_| !done.load(Ordering::Acquire)) {
                for file in &files {
                    volume.write(file, 0, &round.to_le_bytes()).unwrap();
                }
                let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                volume.setattr(&files[1], &mode).unwrap();
            }
        });
        let mut last = 0;
        for _ in 0..100 {
            // The machine may have given the writer no turn yet.
            while number(&volume, &files[1]) <= last {
                std::thread::yield_now();
            }
            let asked = number(&volume, &files[1]);
            volume.sync().unwrap();
            let cut = after_cut(&bed);
            let first = number(&cut, &bed.file(&cut, 0));
            let second = number(&cut, &bed.file(&cut, 1));
            let ordered = first == second || first == second + 1;
            let fresh = second >= asked;
            if !ordered || !fresh {
                done.store(true, Ordering::Release);
            }
            assert!(ordered, "{first}, then {second}");
            assert!(fresh, "{second} is older than {asked}, which was there");
            last = second;
        }
        done.store(true, Ordering::Release);
    });
    drop(files);
    bed.unmount_and_judge(volume, "two writers");
}

/// Blocks whose extent became unwritten hold the data of the last sync point still.
#[test]
fn zeroed_ranges_are_not_written_in_place_before_the_sync_point() {
    let bed = bed(1);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    let old = bytes(3, 200 * BLOCK);
    volume.write(&file, 0, &old).unwrap();
    volume.sync().unwrap();
    pass(&bed, &volume, 60_000);
    volume.fallocate(&file, FallocateMode::ZeroRange, 0, old.len() as u64).unwrap();
    volume.write(&file, 0, &bytes(4, old.len())).unwrap();
    volume.writeback_range(&file, 0, old.len() as u64).unwrap();
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &bed.file(&cut, 0)), old, "before the sync point");
    volume.sync().unwrap();
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &bed.file(&cut, 0)), bytes(4, old.len()));
    drop(file);
    bed.unmount_and_judge(volume, "a zeroed range");
}

/// More is overwritten than the log holds: sync points come earlier, and none is torn.
#[test]
fn overwrites_beyond_the_log_take_earlier_sync_points() {
    let image = ImageSpec { journal_size_mib: Some(4), ..ImageSpec::with_size(64 << 20) };
    for log in ["jbd2", "packed"] {
        let bed = Bed::new(&image, 1).with(&format!("sync=periodic,log={log}"));
        let volume = bed.mount("");
        let file = bed.file(&volume, 0);
        let size = 16 * MIB as usize;
        for at in (0..size).step_by(1 << 20) {
            volume.write(&file, at as u64, &bytes(1, 1 << 20)).unwrap();
        }
        volume.sync().unwrap();
        let before = volume.sync_points().unwrap().count;
        for at in (0..size).step_by(1 << 20) {
            volume.write(&file, at as u64, &bytes(2, 1 << 20)).unwrap();
        }
        assert!(
            volume.sync_points().unwrap().count > before,
            "the log is full without a sync point"
        );
        let cut = after_cut(&bed);
        let found = contents(&cut, &bed.file(&cut, 0));
        assert_eq!(found.len(), size);
        let second = bytes(2, 1 << 20);
        // What is new is a prefix: pages were overwritten in this order.
        let new: Vec<bool> = (0..size / BLOCK)
            .map(|page| {
                let at = page * BLOCK % (1 << 20);
                found[page * BLOCK..][..BLOCK] == second[at..at + BLOCK]
            })
            .collect();
        let first_old = new.iter().position(|new| !new).unwrap_or(new.len());
        assert!(first_old > 0 && new[first_old..].iter().all(|new| !new), "{log}: a mixture");
        drop(file);
        bed.unmount_and_judge(volume, "overwrites beyond the log");
    }
}

/// With a thread that ticks when it is asked to, the sync points are its work and no writer's.
#[test]
fn a_sync_point_is_due_long_before_a_writer_has_to_take_it() {
    let image = ImageSpec { journal_size_mib: Some(16), ..ImageSpec::with_size(256 << 20) };
    let bed = Bed::new(&image, 1).with("sync=periodic,dirty_ratio=60,dirty_background_ratio=50");
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    for at in 0..32 {
        volume.write(&file, at * MIB, &bytes(1, 1 << 20)).unwrap();
    }
    volume.sync().unwrap();
    let began = volume.sync_points().unwrap().count;
    for step in 0..512_u64 {
        let before = volume.sync_points().unwrap().count;
        // Every second block: too short for new places, so the log has to take it.
        let at = step * 37 % 512 * 65536;
        for block in 0..8 {
            volume.write(&file, at + block * 8192, &bytes(step, BLOCK)).unwrap();
        }
        assert_eq!(volume.sync_points().unwrap().count, before, "step {step}: a writer waited");
        if volume.wants_writeback() {
            let due_ns = volume.next_deadline_ns().expect("it is wanted");
            bed.clock.sleep_until(due_ns.max(bed.clock.now_ns()));
            volume.tick(bed.clock.now_ns()).unwrap();
        }
    }
    assert!(
        volume.sync_points().unwrap().count > began + 2,
        "more than a transaction was overwritten"
    );
    drop(file);
    bed.unmount_and_judge(volume, "sync points of a thread");
}

/// A small cache: writers take a sync point where they would have to overwrite what the last one
/// has.
#[test]
fn memory_is_bounded_by_earlier_sync_points() {
    let bed = bed(1);
    let volume = bed.mount("cache=4M,dirty_ratio=20,dirty_background_ratio=10");
    let file = bed.file(&volume, 0);
    for round in 0..4 {
        for at in (0..8).map(|n| n * MIB) {
            volume.write(&file, at, &bytes(round, 1 << 20)).unwrap();
            let stats = volume.cache_stats();
            assert!(stats.dirty_pages * 2 <= stats.pages_max, "{stats:?}");
        }
    }
    assert_eq!(contents(&volume, &file)[..100], bytes(3, 1 << 20)[..100]);
    drop(file);
    bed.unmount_and_judge(volume, "a small cache");
}

/// Changes that no operation makes for itself: files without a name that are closed, access times,
/// orphans that are recovered.
#[test]
fn changes_behind_other_calls_do_not_overflow_the_log() {
    let image = ImageSpec { journal_size_mib: Some(1), block_size_bytes: 1024, ..spec(1024) };
    let bed = Bed::new(&image, 0).with("sync=periodic,strictatime");
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    let name = |n: u32| format!("file{n}").into_bytes();
    let files: Vec<InodeRef> = (0..3000)
        .map(|n| {
            let file = volume.create(&root, &name(n), &owner()).unwrap();
            volume.write(&file, 0, b"x").unwrap();
            file
        })
        .collect();
    bed.wait_ms(10);
    for file in &files {
        volume.read(file, 0, &mut [0; 4]).unwrap();
    }
    (0..3000).for_each(|n| volume.unlink(&root, &name(n)).unwrap());
    volume.sync().unwrap();
    let orphans = bed.dev.snapshot();
    drop(files);
    assert!(volume.latched().is_none(), "{:?}", volume.latched());
    drop(root);
    bed.unmount_and_judge(volume, "closing files without names");
    // The power went before they were closed.
    let recovered = bed.mount_on(Arc::new(orphans), "");
    assert!(recovered.latched().is_none() && recovered.resolve("/file7").is_err());
    recovered.unmount().unwrap();
}

/// A full volume: blocks for the longer range are had by a sync point, which comes before the
/// zeroes.
#[test]
fn a_sync_point_within_a_call_does_not_show_half_of_it() {
    let bed = bed(0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    let [file, old] = [b"file", b"oldf"].map(|name| volume.create(&root, name, &owner()).unwrap());
    volume.write(&file, 0, &bytes(1, 817)).unwrap();
    volume.write(&old, 0, &bytes(2, 1 << 20)).unwrap();
    let filler = volume.create(&root, b"filler", &owner()).unwrap();
    let mut at = 0;
    while let Ok(n) = volume.write(&filler, at, &bytes(3, 65536)) {
        at += n as u64;
    }
    while volume.write(&filler, at, &bytes(3, BLOCK)).is_ok() {
        at += BLOCK as u64;
    }
    volume.sync().unwrap();
    drop(old);
    volume.unlink(&root, b"oldf").unwrap();
    let before = volume.sync_points().unwrap().count;
    volume.fallocate(&file, FallocateMode::ZeroRange, 0, 40_000).unwrap();
    assert!(volume.sync_points().unwrap().count > before, "a sync point gave the blocks");
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &cut.resolve("/file").unwrap()), bytes(1, 817));
    volume.sync().unwrap();
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &cut.resolve("/file").unwrap()), vec![0; 40_000]);
    drop((file, filler, root));
    bed.unmount_and_judge(volume, "zeroes on a full volume");
}

#[test]
fn a_full_volume_gets_its_freed_blocks_back_by_a_sync_point() {
    let bed = bed(0);
    let volume = bed.mount("");
    let root = volume.root().unwrap();
    for round in 0..3 {
        let file = volume.create(&root, b"large", &owner()).unwrap();
        let mut at = 0;
        let error = loop {
            match volume.write(&file, at, &bytes(round, 1 << 20)) {
                Ok(n) => at += n as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, FsError::NoSpace), "{error}");
        assert!(at > 16 * MIB, "round {round}: {at} bytes");
        drop(file);
        volume.unlink(&root, b"large").unwrap();
    }
    drop(root);
    bed.unmount_and_judge(volume, "a full volume");
}

/// In virtual time no writer waits for the device while a sync point is taken.
#[test]
fn writes_stand_still_without_a_request_to_the_device() {
    let image = ImageSpec { journal_size_mib: Some(64), ..ImageSpec::with_size(512 << 20) };
    let bed = Bed::new(&image, 2).with("sync=periodic,dirty_ratio=60,dirty_background_ratio=50");
    let volume = bed.mount("");
    let files = [bed.file(&volume, 0), bed.file(&volume, 1)];
    volume.write(&files[0], 0, &bytes(1, 16 << 20)).unwrap();
    volume.sync().unwrap();
    let before = volume.sync_points().unwrap();
    for at in (0..64).map(|n| n * MIB) {
        volume.write(&files[1], at, &bytes(2, 1 << 20)).unwrap();
        if at < 12 * MIB {
            volume.write(&files[0], at, &bytes(3, 1 << 20)).unwrap();
        }
    }
    assert!(volume.cache_stats().dirty_pages as u64 * 4096 >= 64 * MIB);
    volume.sync().unwrap();
    let after = volume.sync_points().unwrap();
    assert_eq!((after.count - before.count, after.hold_ns_max), (1, 0));
    drop(files);
    bed.unmount_and_judge(volume, "64 MiB in one sync point");
}

#[test]
fn atomic_writes_join_the_sync_point() {
    let bed = bed(1);
    let volume = bed.mount("");
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &bytes(1, 30 * BLOCK)).unwrap();
    let mut atomic = volume.begin_atomic(&file).unwrap();
    volume.write_atomic(&mut atomic, 5 * BLOCK as u64, &bytes(2, 10 * BLOCK)).unwrap();
    volume.write_atomic(&mut atomic, 29 * BLOCK as u64, &bytes(3, 4 * BLOCK)).unwrap();
    volume.commit_atomic(atomic).unwrap();
    let wanted = contents(&volume, &file);
    assert_eq!(wanted.len(), 33 * BLOCK);
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &bed.file(&cut, 0)).len(), 0);
    volume.sync().unwrap();
    let cut = after_cut(&bed);
    assert_eq!(contents(&cut, &bed.file(&cut, 0)), wanted);
    drop(file);
    bed.unmount_and_judge(volume, "an atomic write");
}

#[test]
fn options_that_mean_nothing_together_are_refused() {
    let bed = Bed::new(&spec(4096), 0);
    let refused = [
        ("sync=eager,strict=*.db", "`strict` is for `sync=periodic`"),
        ("sync=periodic,relaxed=*", "`relaxed` is not for `sync=periodic`"),
        ("sync=ordered,log=packed", "`log=packed` needs `sync=eager` or `sync=periodic`"),
    ];
    for (options, said) in refused {
        let device: Arc<dyn BlockDevice> = bed.dev.clone();
        let error = Volume::mount(device, bed.clock.clone(), bed.parsed(options)).err();
        let text = error.map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(said), "{options}: {text}");
    }
}
