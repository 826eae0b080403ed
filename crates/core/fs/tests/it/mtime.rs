//! Timestamps under `mtime_update`: Algorithm 1 of the coarse-mtime paper and what it leaves open.
//!
//! Time never goes back, utimensat stays exact, an overwrite inside of an interval needs no
//! metadata in either sync mode, and lazytime, noatime and switching work as without it. What is on
//! the device is judged by debugfs and e2fsck.

use crate::bed::{Bed, bytes, random, spec};
use std::sync::Arc;
use syncline_device::{BlockDevice, Clock, MemoryDevice, RecordingDevice};
use syncline_fs::{
    Create, InodeRef, MountOptions, RenameFlags, SetAttr, SetTime, Timestamp, Volume,
};
use syncline_testkit::{ImageSpec, debugfs};

const NS_PER_MS: u64 = 1_000_000;

fn ns(time: Timestamp) -> u64 {
    time.seconds as u64 * 1_000_000_000 + u64::from(time.nanoseconds)
}

/// To `ms` milliseconds after a multiple of a second.
fn to_ms(bed: &Bed, ms: u64) {
    let second = (bed.clock.now_ns() / 1_000_000_000 + 1) * 1_000_000_000;
    bed.clock.sleep_until(second + ms * NS_PER_MS);
}

fn times(volume: &Volume, file: &InodeRef) -> (u64, u64) {
    let attr = volume.getattr(file);
    (ns(attr.mtime), ns(attr.ctime))
}

fn overwrite(volume: &Volume, file: &InodeRef, byte: u8) {
    volume.write(file, 0, &[byte; 4096]).expect("write");
}

/// Random writes, truncations, chmods and remounts with other intervals: no time goes back, none is
/// ahead of the clock, and what an overwrite moves is at a multiple of the interval.
#[test]
fn no_mix_of_calls_and_intervals_turns_time_back() {
    for seed in 0..5u64 {
        let mut random = random(seed);
        let bed = Bed::without_fua(&spec(4096), 1);
        let (mut last_mtime, mut last_ctime) = (0, 0);
        for round in 0..8 {
            let interval = [0, 1, 7, 100, 333, 1000][random.below(6) as usize];
            let tick = [1, 4, 10][random.below(3) as usize];
            let lazy = if random.below(2) == 0 { "" } else { ",lazytime" };
            let sync = ["ordered", "eager"][random.below(2) as usize];
            let coarse = match interval {
                0 => "un_mtime_update".to_owned(),
                ms => format!("mtime_update={ms}"),
            };
            let options = format!("timer_tick_ms={tick},{coarse},sync={sync}{lazy}");
            let at = format!("seed {seed}, round {round}, {options}");
            let volume = bed.mount(&options);
            let file = bed.file(&volume, 0);
            for step in 0..30 {
                bed.clock.sleep_until(bed.clock.now_ns() + random.below(150 * NS_PER_MS));
                let (before, _) = times(&volume, &file);
                let call = random.below(6);
                match call {
                    0 => volume.truncate(&file, random.below(20_000)).expect("truncate"),
                    1 => {
                        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                        volume.setattr(&file, &mode).map(drop).expect("chmod");
                    }
                    2 => volume.fsync(&file, false).expect("fsync"),
                    _ => {
                        let offset = random.below(16_384);
                        volume.write(&file, offset, &[step as u8; 1000]).expect("write");
                    }
                }
                let (mtime, ctime) = times(&volume, &file);
                let at = format!("{at}, step {step}, call {call}");
                assert!(mtime >= last_mtime && ctime >= last_ctime, "{at}: time went back");
                let now = bed.clock.now_ns();
                assert!(mtime <= now && ctime <= now, "{at}: ahead of the clock");
                if call > 2 && mtime != before {
                    let step_ns = interval.max(tick) * NS_PER_MS;
                    assert_eq!(mtime % step_ns, 0, "{at}: {mtime} is no multiple");
                }
                (last_mtime, last_ctime) = (mtime, ctime);
            }
            drop(file);
            volume.unmount().expect("unmount");
            let volume = bed.mount("ro");
            let file = bed.file(&volume, 0);
            assert_eq!(times(&volume, &file), (last_mtime, last_ctime), "{at}: after a remount");
        }
        bed.judge("the test");
    }
}

/// utimensat is exact to the nanosecond; what it set stays for the rest of the interval and gives
/// way at the next multiple. ctime is that of the call.
#[test]
fn utimensat_sets_exact_times() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("mtime_update=100");
    let file = bed.file(&volume, 0);
    overwrite(&volume, &file, 1);
    to_ms(&bed, 148);
    let second = bed.clock.now_ns() / 1_000_000_000;
    let exact = |seconds: i64, nanoseconds: u32| {
        let mtime = Some(SetTime::At(Timestamp { seconds, nanoseconds }));
        SetAttr { mtime, ..SetAttr::default() }
    };
    let now_ms = |ms: u64| second * 1_000_000_000 + ms * NS_PER_MS;

    volume.setattr(&file, &exact(1_000_000_001, 123_456_789)).expect("utimensat");
    let past = 1_000_000_001_123_456_789;
    assert_eq!(times(&volume, &file), (past, now_ms(148)));
    // A write moves a time of another interval to this interval's multiple.
    bed.wait_ms(4);
    overwrite(&volume, &file, 2);
    assert_eq!(times(&volume, &file), (now_ms(100), now_ms(148)), "ctime is not turned back");
    // A time within this interval is kept by a write, and moves with the next one.
    volume.setattr(&file, &exact(second as i64, 120_000_007)).expect("utimensat");
    bed.wait_ms(4);
    overwrite(&volume, &file, 3);
    assert_eq!(times(&volume, &file).0, now_ms(120) + 7);
    to_ms(&bed, 240);
    overwrite(&volume, &file, 4);
    assert_eq!(times(&volume, &file).0, now_ms(1200));
    // A time in the future gives way to the clock, as in Linux.
    volume.setattr(&file, &exact(second as i64 + 1_000_000, 5)).expect("utimensat");
    bed.wait_ms(4);
    overwrite(&volume, &file, 5);
    assert_eq!(times(&volume, &file).0, now_ms(1200));

    volume.setattr(&file, &exact(1_000_000_001, 123_456_789)).expect("utimensat");
    volume.fsync(&file, false).expect("fsync");
    drop(file);
    volume.unmount().expect("unmount");
    bed.judge("the test");
    let copy = tempfile::NamedTempFile::new().expect("a temporary file");
    bed.dev.to_file(copy.path()).expect("the image is written");
    let said = debugfs(copy.path(), &format!("stat <{}>\n", bed.inos[0]));
    let extra = 123_456_789u32 << 2;
    let line = format!("mtime: 0x{:08x}:{extra:08x}", 1_000_000_001);
    assert!(said.contains(&line), "{line} is not in: {said}");
}

struct Counted {
    bed: Bed,
    dev: Arc<RecordingDevice<Arc<MemoryDevice>>>,
    volume: Volume,
    file: InodeRef,
}

impl Counted {
    /// A file of 1 MiB that is clean, with the clock 8 ms after the begin of an interval in which
    /// it was overwritten and synced.
    fn new(options: &str) -> Counted {
        let bed = Bed::without_fua(&ImageSpec { size_bytes: 128 << 20, ..spec(4096) }, 1);
        let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, options);
        let file = bed.file(&volume, 0);
        volume.write(&file, 0, &bytes(1, 1 << 20)).expect("write");
        volume.fsync(&file, false).expect("fsync");
        // Past the pieces in which mke2fs lays the first blocks of a log.
        for _ in 0..30 {
            bed.wait_ms(1000);
            overwrite(&volume, &file, 1);
            volume.fsync(&file, false).expect("fsync");
        }
        to_ms(&bed, 4);
        overwrite(&volume, &file, 1);
        volume.fsync(&file, false).expect("fsync");
        bed.wait_ms(4);
        Counted { bed, dev, volume, file }
    }

    /// Writes, KiB, flushes of one call after another of `work`.
    fn sent(&self, work: impl FnOnce()) -> (u64, u64, u64) {
        let before = self.dev.begin_phase();
        work();
        let counts = self.dev.counts() - before;
        (counts.write_requests(), counts.written_bytes() / 1024, counts.flushes())
    }

    fn overwrite_and_sync(&self) -> (u64, u64, u64) {
        self.sent(|| {
            self.volume.write(&self.file, 8192, &[7; 4096]).expect("write");
            self.volume.fsync(&self.file, false).expect("fsync");
        })
    }

    fn done(self) {
        let Counted { bed, volume, file, .. } = self;
        drop(file);
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }
}

/// fsync of an overwrite inside of an interval is fdatasync: no metadata, in both modes, whatever
/// lazytime and noatime are.
#[test]
fn inside_an_interval_fsync_writes_data_only() {
    for combined in ["", ",noatime", ",lazytime", ",lazytime,noatime", ",strictatime"] {
        for (sync, alone, whole) in
            [("ordered", (1, 4, 1), (3, 16, 2)), ("eager", (1, 12, 1), (1, 16, 1))]
        {
            let counted = Counted::new(&format!("sync={sync},mtime_update=100{combined}"));
            let what = format!("{sync}{combined}");
            assert_eq!(counted.overwrite_and_sync(), alone, "{what}: inside");
            counted.bed.wait_ms(84);
            assert_eq!(counted.overwrite_and_sync(), alone, "{what}: up to the end");
            counted.bed.wait_ms(8);
            assert_eq!(counted.overwrite_and_sync(), whole, "{what}: the next one");
            counted.bed.wait_ms(4);
            assert_eq!(counted.overwrite_and_sync(), alone, "{what}: inside of that");
            counted.done();
        }
    }
}

/// With `seen` an overwrite costs its inode only after a look, and once every 100 ms.
#[test]
fn a_sync_keeps_the_time_of_a_change_after_a_look_only() {
    for combined in ["", ",lazytime"] {
        for (sync, alone, whole) in
            [("ordered", (1, 4, 1), (3, 16, 2)), ("eager", (1, 12, 1), (1, 16, 1))]
        {
            let counted = Counted::new(&format!("sync={sync},mtime_update=seen,noatime{combined}"));
            let what = format!("{sync}{combined}");
            for _ in 0..3 {
                assert_eq!(counted.overwrite_and_sync(), alone, "{what}: nobody looks");
                counted.bed.wait_ms(8);
            }
            let unseen = counted.volume.getattr_unseen(&counted.file).mtime;
            assert_eq!(counted.overwrite_and_sync(), alone, "{what}: a look that shows no times");
            counted.bed.wait_ms(8);
            let (mtime, _) = times(&counted.volume, &counted.file);
            assert_eq!(mtime, ns(unseen) + 8 * NS_PER_MS, "{what}: every tick is shown");
            assert_eq!(counted.overwrite_and_sync(), whole, "{what}: after a look");
            counted.bed.wait_ms(92);
            assert_eq!(counted.overwrite_and_sync(), alone, "{what}: within the step");
            counted.bed.wait_ms(8);
            assert_eq!(counted.overwrite_and_sync(), whole, "{what}: the next step");
            counted.done();
        }
    }
}

/// The last time of a step that nobody saw reaches the device at the age of a commit.
#[test]
fn a_time_in_memory_is_committed_at_its_age() {
    let counted = Counted::new("mtime_update=seen,noatime");
    assert_eq!(counted.overwrite_and_sync(), (1, 12, 1));
    let shown = times(&counted.volume, &counted.file);
    let on_device = || {
        let again = counted.bed.mount_on(Arc::new(counted.bed.dev.snapshot()), "");
        let found = times(&again, &counted.bed.file(&again, 0));
        again.unmount().expect("unmount");
        found
    };
    assert_eq!(on_device().0 + 4 * NS_PER_MS, shown.0, "the time of the step");
    for _ in 0..2 {
        counted.bed.wait_ms(5_100);
        assert!(counted.volume.next_deadline_ns() <= Some(counted.bed.clock.now_ns()));
        counted.volume.tick(counted.bed.clock.now_ns()).expect("tick");
    }
    assert_eq!(on_device(), shown);
    counted.done();
}

/// A read between the overwrites dirties the inode by its atime only where it does without
/// `mtime_update`, too.
#[test]
fn reads_cost_what_atime_makes_them_cost() {
    let read = |counted: &Counted| {
        counted.bed.wait_ms(4);
        counted.volume.read(&counted.file, 0, &mut [0; 4096]).expect("read");
    };
    for (options, expected) in [
        ("sync=ordered,noatime", 4),
        ("sync=ordered,relatime", 4),
        ("sync=ordered,strictatime", 16),
        ("sync=eager,noatime", 12),
        ("sync=eager,relatime", 12),
        ("sync=eager,strictatime", 16),
    ] {
        let counted = Counted::new(&format!("mtime_update=100,{options}"));
        // The first read after a change moves the atime of relatime; the second one does not.
        read(&counted);
        counted.volume.fsync(&counted.file, false).expect("fsync");
        read(&counted);
        let (_, kib, _) = counted.overwrite_and_sync();
        assert_eq!(kib, expected, "{options}");
        counted.done();
    }
}

/// An append inside an interval commits its size, and survives a power cut: only timestamps may be
/// left out.
#[test]
fn an_append_inside_an_interval_is_durable() {
    for sync in ["ordered", "eager"] {
        let counted = Counted::new(&format!("sync={sync},mtime_update=1000"));
        let size = counted.volume.getattr(&counted.file).size;
        counted.volume.write(&counted.file, size, &[9; 100]).expect("write");
        counted.volume.fsync(&counted.file, false).expect("fsync");
        let cut = Arc::new(counted.bed.dev.snapshot());
        let again = counted.bed.mount_on(cut, "");
        let file = counted.bed.file(&again, 0);
        assert_eq!(again.getattr(&file).size, size + 100, "{sync}");
        drop(file);
        again.unmount().expect("unmount");
        counted.done();
    }
}

fn create(volume: &Volume, name: &str) -> InodeRef {
    let how = Create { mode: 0o644, uid: 0, gid: 0 };
    volume.create(&volume.root().expect("root"), name.as_bytes(), &how).expect("create")
}

/// Names added inside of an interval leave the directory's inode as it is, and its block out of
/// what a sync of the new file sends.
#[test]
fn a_new_name_inside_an_interval_costs_no_inode_of_its_directory() {
    for (options, inside_kib, next_kib) in
        [("mtime_update=100,sync=eager", 32, 36), ("sync=eager", 36, 36)]
    {
        let counted = Counted::new(options);
        let create_and_sync = |name: &str| {
            let (_, kib, _) = counted.sent(|| {
                let file = create(&counted.volume, name);
                counted.volume.write(&file, 0, &[7; 4096]).expect("write");
                counted.volume.fsync(&file, false).expect("fsync");
            });
            kib
        };
        // Past the block of the inode table that has the root's inode.
        for n in 0..20 {
            create_and_sync(&format!("before-{n}"));
        }
        to_ms(&counted.bed, 4);
        assert_eq!(create_and_sync("first"), next_kib, "{options}: the first of an interval");
        let root = counted.volume.root().expect("root");
        let (mtime, _) = times(&counted.volume, &root);
        counted.bed.wait_ms(8);
        assert_eq!(create_and_sync("second"), inside_kib, "{options}: inside");
        let moved = times(&counted.volume, &root).0 != mtime;
        assert_eq!(moved, inside_kib == next_kib, "{options}: the directory's mtime");
        counted.bed.wait_ms(100);
        assert_eq!(create_and_sync("third"), next_kib, "{options}: the next one");
        drop(root);
        counted.done();
    }
}

/// A sync of a directory whose inode did not change keeps the names that did.
#[test]
fn names_changed_inside_an_interval_are_durable_with_their_directory() {
    for sync in ["ordered", "eager"] {
        let counted = Counted::new(&format!("sync={sync},mtime_update=1000"));
        let volume = &counted.volume;
        let root = volume.root().expect("root");
        for name in ["removed", "renamed", "over", "first", "second"] {
            create(volume, name);
        }
        to_ms(&counted.bed, 4);
        create(volume, "opens the interval");
        let kept = |change: &str, expected: &[(&str, bool)]| {
            counted.bed.wait_ms(4);
            volume.fsync(&root, false).expect("fsync");
            let again = counted.bed.mount_on(Arc::new(counted.bed.dev.snapshot()), "");
            let root = again.root().expect("root");
            for (name, there) in expected {
                let found = again.lookup(&root, name.as_bytes()).is_ok();
                assert_eq!(found, *there, "{sync}: {change}: {name}");
            }
            drop(root);
            again.unmount().expect("unmount");
        };
        kept("what came before", &[("removed", true), ("over", true)]);
        let (mtime, _) = times(volume, &root);
        create(volume, "created");
        kept("create", &[("created", true)]);
        volume.unlink(&root, b"removed").expect("unlink");
        kept("unlink", &[("removed", false)]);
        let none = RenameFlags::default();
        volume.rename(&root, b"renamed", &root, b"over", none).expect("rename");
        kept("rename", &[("renamed", false), ("over", true)]);
        let file = volume.lookup(&root, b"first").expect("lookup");
        volume.link(&file, &root, b"linked").expect("link");
        kept("link", &[("linked", true)]);
        assert_eq!(times(volume, &root).0, mtime, "{sync}: all inside of one interval");
        drop((file, root));
        counted.done();
    }
}

/// The largest of interval and tick counts; values that make no sense are refused.
#[test]
fn bad_intervals_are_usage_errors_and_the_tick_is_the_least() {
    for bad in ["0", "1001", "-1", "1.5", "100ms", "4294967296", " 5"] {
        let err = MountOptions::parse(&format!("mtime_update={bad}")).unwrap_err();
        assert!(err.to_string().contains("1 to 1000"), "{bad}: {err}");
    }
    let bed = Bed::without_fua(&spec(4096), 1);
    for (tick, interval, step) in [(10, 5, 10), (4, 100, 100), (1, 1, 1), (1000, 1, 1000)] {
        let volume = bed.mount(&format!("timer_tick_ms={tick},mtime_update={interval}"));
        let file = bed.file(&volume, 0);
        to_ms(&bed, 999);
        overwrite(&volume, &file, 1);
        let expected = 999 / step * step;
        assert_eq!(times(&volume, &file).0 / NS_PER_MS % 1000, expected, "{tick} {interval}");
        drop(file);
        volume.unmount().expect("unmount");
    }
    bed.judge("the test");
}
