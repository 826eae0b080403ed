//! Device requests of fsync, fdatasync, syncfs and the periodic write-back, counted exactly.
//!
//! The kernel's figures are ext4 data=ordered on a loop device without FUA: writes, KiB and flushes
//! per operation (Linux 6.18).

use crate::bed::{Bed, assert_same, bytes, contents, random, spec};
use std::sync::Arc;
use syncline_device::{BlockDevice, Clock, MemoryDevice, RecordingDevice};
use syncline_fs::{InodeRef, Volume};
use syncline_testkit::ImageSpec;

struct Counted {
    bed: Bed,
    dev: Arc<RecordingDevice<Arc<MemoryDevice>>>,
    volume: Volume,
}

/// Writes, KiB written, flushes.
type Sent = (u64, u64, u64);

impl Counted {
    fn new(files: usize, options: &str) -> Counted {
        let spec = ImageSpec { size_bytes: 128 << 20, ..spec(4096) };
        let bed = Bed::without_fua(&spec, files);
        let dev = Arc::new(RecordingDevice::new(Arc::clone(&bed.dev)));
        let options = format!("sync=ordered,{options}");
        let volume = bed.mount_on(Arc::clone(&dev) as Arc<dyn BlockDevice>, &options);
        Counted { bed, dev, volume }
    }

    fn sent(&self, work: impl FnOnce()) -> Sent {
        let before = self.dev.begin_phase();
        work();
        let counts = self.dev.counts() - before;
        (counts.write_requests(), counts.written_bytes() / 1024, counts.flushes())
    }

    /// A file of `len` bytes that is clean.
    fn written_file(&self, n: usize, len: usize) -> InodeRef {
        let file = self.bed.file(&self.volume, n);
        self.volume.write(&file, 0, &bytes(n as u64, len)).expect("write");
        self.volume.fsync(&file, false).expect("fsync");
        file
    }

    /// Commits until the log head is past its first 25 blocks, which mke2fs puts in pieces between
    /// the group metadata: a commit that straddles two of them is one more request.
    fn warm_up(&self, file: &InodeRef) {
        for _ in 0..12 {
            self.bed.wait_ms(10);
            self.volume.write(file, 0, &[1; 4096]).expect("write");
            self.volume.fsync(file, false).expect("fsync");
        }
    }

    /// Data requests that a tick sends now.
    fn data_of_tick(&self) -> u64 {
        let before = self.dev.begin_phase();
        self.tick();
        (self.dev.counts() - before).data.write_requests
    }

    fn done(self) {
        let Counted { bed, volume, .. } = self;
        volume.unmount().expect("unmount");
        bed.judge("the test");
    }

    fn tick(&self) {
        self.volume.tick(self.bed.clock.now_ns()).expect("tick");
    }
}

/// Per operation of `count` overwrites of 4 KiB at random places of a 16 MiB file.
fn overwrites(count: u64, ms_between: u64, datasync: bool) -> Sent {
    let counted = Counted::new(1, "");
    let file = counted.written_file(0, 16 << 20);
    counted.warm_up(&file);
    let mut random = random(7);
    let data = bytes(8, 4096);
    let sent = counted.sent(|| {
        for _ in 0..count {
            counted.bed.wait_ms(ms_between);
            counted.volume.write(&file, random.below(4096) * 4096, &data).expect("write");
            counted.volume.fsync(&file, datasync).expect("sync");
        }
    });
    drop(file);
    counted.done();
    sent
}

#[test]
fn an_overwrite_and_fsync_is_three_writes_and_two_flushes_as_the_kernels() {
    assert_eq!(overwrites(50, 10, false), (150, 800, 100));
}

#[test]
fn an_overwrite_and_fdatasync_is_one_write_and_one_flush_as_the_kernels() {
    assert_eq!(overwrites(50, 10, true), (50, 200, 50));
}

#[test]
fn overwrites_within_one_tick_leave_the_inode_clean() {
    assert_eq!(overwrites(50, 0, false), (50, 200, 50));
}

#[test]
fn appending_256_kib_and_fsync_is_three_writes_and_two_flushes_as_the_kernels() {
    let counted = Counted::new(2, "");
    let other = counted.written_file(1, 4096);
    counted.warm_up(&other);
    let file = counted.bed.file(&counted.volume, 0);
    let data = bytes(1, 256 << 10);
    for _ in 0..4 {
        counted.bed.wait_ms(10);

        let sent = counted.sent(|| {
            counted.volume.write_append(&file, &data).expect("append");
            counted.volume.fsync(&file, false).expect("fsync");
        });

        // Data | descriptor, inode table, bitmap, group descriptor | commit.
        assert_eq!(sent, (3, 256 + 16 + 4, 2));
    }
    drop((file, other));
    counted.done();
}

#[test]
fn an_append_and_fdatasync_commits_since_the_size_changed() {
    let counted = Counted::new(1, "");
    let file = counted.written_file(0, 4096);
    counted.bed.wait_ms(10);
    let sent = counted.sent(|| {
        counted.volume.write_append(&file, &[7; 100]).expect("append");
        counted.volume.fsync(&file, true).expect("fdatasync");
    });
    assert_eq!((sent.0, sent.2), (3, 2));
    counted.bed.wait_ms(10);
    let sent = counted.sent(|| {
        counted.volume.write_append(&file, &[7; 100]).expect("append in the same block");
        counted.volume.fsync(&file, true).expect("fdatasync");
    });
    assert_eq!(sent, (3, 4 + 8 + 4, 2));
    drop(file);
    counted.done();
}

#[test]
fn fsync_of_a_clean_file_only_flushes() {
    let counted = Counted::new(1, "");
    let file = counted.written_file(0, 4096);
    assert_eq!(counted.sent(|| counted.volume.fsync(&file, false).expect("fsync")), (0, 0, 1));
    assert_eq!(counted.sent(|| counted.volume.fsync(&file, true).expect("fdatasync")), (0, 0, 1));
    drop(file);
    counted.done();
}

#[test]
fn fdatasync_does_not_commit_what_another_files_change_left_running() {
    let counted = Counted::new(2, "");
    let file = counted.written_file(0, 4096);
    let other = counted.written_file(1, 4096);
    counted.bed.wait_ms(10);
    counted.volume.write(&other, 0, &[1; 4096]).expect("write");
    counted.volume.write(&file, 0, &[1; 4096]).expect("write");
    let sent = counted.sent(|| counted.volume.fsync(&file, true).expect("fdatasync"));
    assert_eq!(sent, (1, 4, 1), "one file's data, nobody's metadata");
    drop((file, other));
    counted.done();
}

#[test]
fn write_sync_is_durable_when_it_returns() {
    let counted = Counted::new(1, "");
    let file = counted.written_file(0, 16384);
    counted.bed.wait_ms(10);
    let write =
        |datasync| counted.volume.write_sync(&file, 4096, &[5; 4096], datasync).expect("write");
    assert_eq!(counted.sent(|| assert_eq!(write(true), 4096)), (1, 4, 1));
    counted.bed.wait_ms(10);
    assert_eq!(counted.sent(|| assert_eq!(write(false), 4096)), (3, 16, 2));
    drop(file);
    counted.done();
}

#[test]
fn old_dirty_data_is_written_by_the_tick_and_young_data_is_not() {
    let counted = Counted::new(2, "commit=900");
    let (old, young) = (counted.written_file(0, 4096), counted.written_file(1, 4096));
    counted.volume.write(&old, 0, &[1; 4096]).expect("write");
    counted.bed.wait_ms(20_000);
    counted.volume.write(&young, 0, &[2; 4096]).expect("write");
    assert_eq!(counted.data_of_tick(), 0, "nothing is 30 s old");
    counted.bed.wait_ms(10_000);
    assert_eq!(counted.data_of_tick(), 1);
    assert_eq!(counted.volume.cache_stats().dirty_pages, 1);
    assert!(counted.volume.next_deadline_ns().is_some());
    counted.bed.wait_ms(20_000);
    assert_eq!(counted.data_of_tick(), 1);
    assert_eq!(counted.volume.cache_stats().dirty_pages, 0);
    drop((old, young));
    counted.done();
}

#[test]
fn the_deadline_leads_a_simulation_to_the_write_back() {
    let counted = Counted::new(1, "commit=900");
    let file = counted.written_file(0, 4096);
    counted.volume.write(&file, 0, &[1; 4096]).expect("write");
    let start_ns = counted.bed.clock.now_ns();
    for _ in 0..20 {
        if counted.volume.cache_stats().dirty_pages == 0 {
            break;
        }
        let deadline_ns = counted.volume.next_deadline_ns().expect("something is dirty");
        assert!(deadline_ns > counted.bed.clock.now_ns() || deadline_ns == start_ns);
        counted.bed.clock.sleep_until(deadline_ns);
        counted.tick();
    }
    let age_s = (counted.bed.clock.now_ns() - start_ns) / 1_000_000_000;
    assert!((30..=35).contains(&age_s), "written after {age_s} s");
    drop(file);
    counted.done();
}

#[test]
fn above_the_background_ratio_the_tick_writes_young_data_at_once() {
    let counted = Counted::new(1, "cache=8M,commit=900");
    let file = counted.bed.file(&counted.volume, 0);
    counted.volume.write(&file, 0, &bytes(1, 128 << 12)).expect("write");
    assert!(!counted.volume.wants_writeback());
    assert!(counted.volume.next_deadline_ns().is_some_and(|due| due > counted.bed.clock.now_ns()));
    counted.volume.write(&file, 128 << 12, &bytes(1, 128 << 12)).expect("write");
    assert!(counted.volume.wants_writeback());
    assert!(counted.volume.next_deadline_ns().is_some_and(|due| due < counted.bed.clock.now_ns()));
    assert_eq!(counted.volume.cache_stats().dirty_pages, 256);
    counted.tick();
    assert_eq!(counted.volume.cache_stats().dirty_pages, 0);
    // The next one has to wait a little, whatever is dirty.
    counted.volume.write(&file, 0, &bytes(1, 1 << 20)).expect("write");
    assert!(counted.volume.next_deadline_ns().is_some_and(|due| due > counted.bed.clock.now_ns()));
    counted.bed.wait_ms(50);
    counted.tick();
    assert_eq!(counted.volume.cache_stats().dirty_pages, 0);
    drop(file);
    counted.done();
}

#[test]
fn half_way_to_the_dirty_ratio_a_hurry_ends_the_pause() {
    for sync in ["ordered", "eager"] {
        let options = format!("cache=8M,commit=900,writeback=file,sync={sync}");
        let counted = Counted::new(1, &options);
        let file = counted.bed.file(&counted.volume, 0);
        // A tenth in the background, a fifth at most.
        let pages_max = counted.volume.cache_stats().pages_max as u64;
        let (above, near) = (pages_max * 12 / 100, pages_max * 16 / 100);
        let due_now = || {
            counted.volume.next_deadline_ns().is_some_and(|due| due <= counted.bed.clock.now_ns())
        };
        let write = |pages: u64| {
            counted.volume.write(&file, 0, &bytes(1, (pages << 12) as usize)).expect("write");
        };
        let until_rest = || {
            while due_now() {
                counted.tick();
            }
            assert_eq!(counted.volume.cache_stats().dirty_pages, 0, "{sync}");
        };
        write(above);
        until_rest();
        write(above);
        assert!(!due_now() && !counted.volume.is_near_throttle(), "{sync}: a pause");
        write(near);
        assert!(!due_now() && counted.volume.is_near_throttle(), "{sync}: still");
        counted.volume.hurry_writeback();
        assert!(due_now(), "{sync}: no pause");
        until_rest();
        counted.volume.hurry_writeback();
        assert!(!due_now(), "{sync}: nothing to do");
        drop(file);
        counted.done();
    }
}

#[test]
fn a_writer_above_the_dirty_ratio_writes_a_bounded_share_of_a_backlog() {
    let counted = Counted::new(2, "cache=64M,commit=900,dirty_ratio=90");
    let backlog = counted.bed.file(&counted.volume, 0);
    counted.volume.write(&backlog, 0, &bytes(1, 40 << 20)).expect("write");
    let limit = counted.volume.cache_stats().pages_max * 9 / 10;
    let file = counted.bed.file(&counted.volume, 1);
    let (mut most, mut writes) = (0, 0);
    for n in 0..800 {
        let before = counted.dev.begin_phase();
        counted.volume.write(&file, n << 14, &bytes(n, 1 << 14)).expect("write");
        let data = (counted.dev.counts() - before).data;
        most = most.max(data.written_bytes);
        writes += u64::from(data.written_bytes > 0);
        let dirty = counted.volume.cache_stats().dirty_pages;
        assert!(dirty <= limit + 4, "{dirty} pages of at most {limit}");
    }
    assert!(most <= 1 << 20, "a write waited for {most} bytes");
    assert!((5..800).contains(&writes), "{writes} of 800 writes wrote back");
    drop((backlog, file));
    counted.done();
}

/// As Linux's `ext4_setattr`: only a block that is on disk has a rest that could show.
#[test]
fn growing_a_file_sends_its_last_block_only_if_it_has_a_place() {
    for (placed, requests) in [(false, 0), (true, 1)] {
        let counted = Counted::new(1, "cache=8M,commit=900");
        let file = counted.bed.file(&counted.volume, 0);
        counted.volume.write(&file, 0, &bytes(1, 100)).expect("write");
        if placed {
            counted.volume.fsync(&file, false).expect("fsync");
            counted.volume.write(&file, 0, &bytes(2, 100)).expect("write");
        }
        let before = counted.dev.begin_phase();
        counted.volume.truncate(&file, 10_000).expect("truncate");
        assert_eq!((counted.dev.counts() - before).data.write_requests, requests, "{placed}");
        let mut expected = bytes(if placed { 2 } else { 1 }, 100);
        expected.resize(10_000, 0);
        assert_same(&contents(&counted.volume, &file), &expected, "after truncate");
        counted.volume.fsync(&file, false).expect("fsync");
        assert_same(&contents(&counted.volume, &file), &expected, "after fsync");
        drop(file);
        counted.done();
    }
}

/// As Linux's flusher, whose plug spans the files that it writes.
#[test]
fn small_files_that_lie_side_by_side_are_written_back_as_one_request() {
    for way in ["tick", "syncfs"] {
        let counted = Counted::new(24, "cache=8M,commit=900");
        let files: Vec<InodeRef> = (0..24).map(|n| counted.bed.file(&counted.volume, n)).collect();
        for (n, file) in files.iter().enumerate() {
            counted.volume.write(file, 0, &bytes(n as u64, 4096)).expect("write");
        }
        let before = counted.dev.begin_phase();
        if way == "tick" {
            counted.bed.wait_ms(30_000);
            counted.tick();
        } else {
            counted.volume.syncfs().expect("syncfs");
        }
        let data = (counted.dev.counts() - before).data;
        assert_eq!((data.write_requests, data.written_bytes), (1, 24 * 4096), "{way}");
        for (n, file) in files.iter().enumerate() {
            assert_same(&contents(&counted.volume, file), &bytes(n as u64, 4096), way);
        }
        drop(files);
        counted.done();
    }
}

/// Requests and pages of data that 1500 random overwrites in a file of 4 MiB send without syncs,
/// with a cache of 192 pages.
fn scattered(policy: &str, writeback: &str) -> (u64, u64) {
    let counted = Counted::new(
        1,
        &format!(
            "cache=1M,commit=900,policy={policy},writeback={writeback},dirty_ratio=90,\
             dirty_background_ratio=60"
        ),
    );
    let file = counted.written_file(0, 4 << 20);
    let (mut random, mut expected) = (random(7), bytes(0, 4 << 20));
    let before = counted.dev.begin_phase();
    for n in 0..1500u64 {
        let at = random.below(1024) as usize * 4096;
        expected[at..at + 4096].copy_from_slice(&bytes(n, 4096));
        counted.volume.write(&file, at as u64, &expected[at..at + 4096]).expect("write");
        counted.bed.wait_ms(50);
        if counted.volume.wants_writeback() {
            counted.tick();
        }
    }
    counted.volume.syncfs().expect("syncfs");
    let data = (counted.dev.counts() - before).data;
    assert_same(&contents(&counted.volume, &file), &expected, policy);
    drop(file);
    counted.done();
    (data.write_requests, data.written_bytes / 4096)
}

/// The file whole, or the pages that the policy names: a hand that moves through the file meets
/// neighbours that were dirtied since it came by last.
#[test]
fn in_the_order_of_a_spatial_policy_fewer_scattered_pages_are_written() {
    let file = scattered("clock", "file");
    assert_eq!(scattered("spatialclock", "file"), file, "the policy has no say");
    let clock = scattered("clock", "policy");
    for (policy, order) in [("spatialclock", "policy"), ("fab", "policy"), ("lru", "space")] {
        let spatial = scattered(policy, order);
        println!("file {file:?}, clock {clock:?}, {policy} {spatial:?}");
        assert!(spatial.0 < clock.0 && spatial.0 < file.0, "{policy}: requests");
        assert!(spatial.1 < file.1, "{policy}: pages");
    }
}

/// Blocks get their places together with their neighbours, however old each is.
#[test]
fn in_the_order_of_a_policy_a_new_file_still_lies_in_one_piece() {
    let limits = "dirty_ratio=90,dirty_background_ratio=20";
    let options = format!("cache=1M,commit=900,policy=lru,writeback=policy,{limits}");
    let counted = Counted::new(1, &options);
    let file = counted.bed.file(&counted.volume, 0);
    for n in 0..64u64 {
        let at = n * 37 % 64;
        counted.volume.write(&file, at << 12, &bytes(at, 4096)).expect("write");
    }
    counted.tick();
    assert!(counted.volume.cache_stats().dirty_pages < 64, "the tick wrote some");
    counted.volume.syncfs().expect("syncfs");
    let expected: Vec<u8> = (0..64).flat_map(|at| bytes(at, 4096)).collect();
    assert_same(&contents(&counted.volume, &file), &expected, "the file");
    let extents = counted.volume.fiemap(&file, 0, 64 << 12).expect("extents");
    assert_eq!(extents.len(), 1, "{extents:?}");
    drop(file);
    counted.done();
}

#[test]
fn above_the_dirty_ratio_the_writer_writes() {
    let counted = Counted::new(1, "cache=8M");
    let file = counted.bed.file(&counted.volume, 0);
    let sent = counted.sent(|| {
        counted.volume.write(&file, 0, &bytes(1, 4 << 20)).expect("write");
    });
    assert!(sent.1 >= 2 << 10, "only {} KiB were sent", sent.1);
    let stats = counted.volume.cache_stats();
    assert!(stats.dirty_pages <= stats.pages_max / 5 + 64, "{stats:?}");
    drop(file);
    counted.done();
}

#[test]
fn a_large_write_back_goes_out_in_large_requests() {
    let counted = Counted::new(1, "");
    let file = counted.bed.file(&counted.volume, 0);
    counted.volume.write(&file, 0, &bytes(1, 8 << 20)).expect("write");
    let before = counted.dev.begin_phase();
    counted.volume.writeback_range(&file, 0, u64::MAX).expect("write back");
    let counts = counted.dev.counts() - before;
    assert_eq!(counts.data.write_requests, 16, "512 KiB each");
    drop(file);
    counted.done();
}

#[test]
fn syncfs_makes_all_files_clean() {
    let counted = Counted::new(3, "");
    let files: Vec<InodeRef> = (0..3).map(|n| counted.written_file(n, 8192)).collect();
    counted.bed.wait_ms(10);
    for file in &files {
        counted.volume.write(file, 4096, &[9; 4096]).expect("write");
    }
    counted.volume.syncfs().expect("syncfs");
    assert_eq!(counted.volume.cache_stats().dirty_pages, 0);
    for file in &files {
        assert_eq!(counted.sent(|| counted.volume.fsync(file, false).expect("fsync")), (0, 0, 1));
    }
    drop(files);
    counted.done();
}

#[test]
fn lazytime_leaves_the_inode_alone_until_fsync() {
    let counted = Counted::new(1, "lazytime");
    let file = counted.written_file(0, 4096);
    counted.bed.wait_ms(10);
    counted.volume.write(&file, 0, &[3; 4096]).expect("write");
    let sent = counted.sent(|| counted.volume.fsync(&file, true).expect("fdatasync"));
    assert_eq!(sent, (1, 4, 1));
    let sent = counted.sent(|| counted.volume.fsync(&file, false).expect("fsync"));
    assert_eq!(sent, (2, 12, 2), "the timestamps");
    drop(file);
    counted.done();
}

/// A shrinking truncate zeroes the tail of the last block in the cache only; a synchronous write
/// further out raises the size on disk over it. What a power cut then shows between the two must be
/// zeros, not the old bytes.
#[test]
fn a_range_sync_beyond_a_shrunk_end_shows_no_old_bytes() {
    let bed = Bed::without_fua(&spec(4096), 1);
    let volume = bed.mount("sync=ordered");
    let file = bed.file(&volume, 0);
    volume.write(&file, 0, &[0xAA; 8192]).expect("write");
    volume.fsync(&file, false).expect("fsync");
    volume.truncate(&file, 100).expect("truncate");
    bed.wait_ms(10);
    volume.write_sync(&file, 40_960, &[0xBB; 4096], true).expect("write_sync");

    let cut = Arc::new(bed.dev.snapshot());
    let again = bed.mount_on(cut, "sync=ordered");
    let file = bed.file(&again, 0);
    let found = contents(&again, &file);
    assert_eq!(found.len(), 45_056);
    assert_same(&found[..100], &[0xAA; 100], "kept bytes");
    assert_same(&found[100..40_960], &vec![0; 40_860], "the gap");
    assert_same(&found[40_960..], &[0xBB; 4096], "the synced bytes");
    drop(file);
    again.unmount().expect("unmount");
}

/// With `mtime_update=100` only the first overwrite of an interval costs a commit; the others are
/// what fdatasync costs (coarse-mtime paper, Figure 3(c)).
#[test]
fn coarse_mtime_leaves_the_inode_clean_within_an_interval() {
    let journal_kib = |options: &str| {
        let counted = Counted::new(1, options);
        let file = counted.written_file(0, 1 << 20);
        counted.warm_up(&file);
        let before = counted.dev.begin_phase();
        for n in 0..500u64 {
            counted.bed.wait_ms(4);
            counted.volume.write(&file, n % 256 * 4096, &[n as u8; 4096]).expect("write");
            counted.volume.fsync(&file, false).expect("fsync");
        }
        let journal = (counted.dev.counts() - before).journal.written_bytes / 1024;
        let mtime = counted.volume.getattr(&file).mtime;
        drop(file);
        counted.done();
        (journal, mtime.nanoseconds)
    };
    let (every_tick, _) = journal_kib("timer_tick_ms=4");
    let (coarse, mtime_ns) = journal_kib("timer_tick_ms=4,mtime_update=100");
    // 500 overwrites 4 ms apart: a commit of 12 KiB each, against one in each 100 ms.
    assert_eq!(every_tick, 500 * 12);
    assert_eq!(coarse, 20 * 12);
    assert_eq!(mtime_ns % 100_000_000, 0, "mtime is at a multiple of the interval");
}

/// An interval below the tick is the tick (paper, section 4.1).
#[test]
fn coarse_mtime_is_never_finer_than_the_tick() {
    let counted = Counted::new(1, "timer_tick_ms=10,mtime_update=7");
    let file = counted.written_file(0, 8192);
    counted.bed.wait_ms(10);
    let (from, clock) = (counted.bed.clock.now_ns(), &counted.bed.clock);
    clock.sleep_until(from - from % 10_000_000 + 7_000_000);
    counted.volume.write(&file, 0, &[1; 4096]).expect("write");
    assert_eq!(counted.volume.getattr(&file).mtime.nanoseconds % 10_000_000, 0);
    drop(file);
    counted.done();
}
