//! The write side: exact request counts, copy on write, commit sharing, revokes, space, latching.

use crate::common::{Page, default_volume, fill};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use syncline_device::{
    BlockDevice, DeviceError, FailingDevice, FaultPlan, Kind, MemoryDevice, OpClass, Origin,
    RecordingDevice,
};
use syncline_jbd2::{
    BufferCache, Checksums, Host, Journal, JournalError, JournalOptions, Member, RecoverOptions,
    WriteAction,
};
use syncline_model::{Need, require};

fn without_fua(image: &MemoryDevice) -> MemoryDevice {
    image.snapshot().with_geometry(|g| g.fua = false)
}

#[test]
fn a_small_transaction_is_two_writes_and_two_flushes() {
    if !require("jbd2 counts", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    for (fua, flushes) in [(false, 2), (true, 1)] {
        let image = volume.image.snapshot().with_geometry(|g| g.fua = fua);
        let dev = Arc::new(RecordingDevice::new(image));
        let journal = volume.open(dev.clone());
        for round in 0..3u8 {
            let before = dev.begin_phase();
            let mut handle = journal.start(4).unwrap();
            handle.create(volume.free, |b| fill(b, round)).unwrap();
            handle.create(volume.free + 7, |b| fill(b, round)).unwrap();
            let tid = handle.tid();
            drop(handle);
            assert!(journal.commit(tid).unwrap().flushed);
            let counts = dev.counts() - before;
            // The first commit after a clean log also writes the journal superblock; the journal
            // inode of a small image has a break behind its tenth block.
            let first = u64::from(round == 0);
            let at = 1 + u32::from(round) * 4;
            let contiguous = volume.log.run(at).is_some_and(|(_, blocks)| blocks >= 3);
            let writes = 2 + first + u64::from(!contiguous);
            assert_eq!(counts.write_requests(), writes, "fua {fua} round {round}");
            assert_eq!(counts.flushes(), flushes, "fua {fua}");
            assert_eq!(counts.journal_bytes(), (4 + first) * 4096);
            assert_eq!(counts.metadata_bytes(), 0);
        }
    }
}

#[test]
fn an_empty_transaction_costs_nothing_and_a_durable_one_is_not_written_again() {
    if !require("jbd2 empty", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(RecordingDevice::new(volume.image.snapshot()));
    let journal = volume.open(dev.clone());
    let tid = journal.start(1).unwrap().tid();
    let before = dev.begin_phase();
    assert!(!journal.commit(tid).unwrap().flushed);
    assert!(!journal.needs_commit(tid));
    assert_eq!((dev.counts() - before).write_requests(), 0);
    let mut handle = journal.start(1).unwrap();
    assert_eq!(handle.tid(), tid);
    handle.create(volume.free, |b| fill(b, 1)).unwrap();
    drop(handle);
    assert!(journal.needs_commit(tid));
    assert!(journal.commit(tid).unwrap().flushed);
    assert_eq!(journal.committed_tid(), tid);
    assert!(!journal.commit(tid).unwrap().flushed);
    assert!(matches!(journal.commit(tid + 5), Err(JournalError::Usage(_))));
}

#[test]
fn snapshots_do_not_change_and_a_failed_change_leaves_nothing() {
    if !require("jbd2 snapshots", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let journal = volume.open(Arc::new(volume.image.snapshot()));
    let buffers = Arc::clone(journal.buffers());
    let mut handle = journal.start(2).unwrap();
    handle.create(volume.free, |b| fill(b, 1)).unwrap();
    let one = buffers.read(volume.free).unwrap();
    handle.modify(volume.free, |b| b[0] = 2).unwrap();
    assert_eq!((one[0], buffers.read(volume.free).unwrap()[0]), (1, 2));
    let failed = handle.try_modify(volume.free, |b| {
        b[0] = 9;
        Err::<(), _>(JournalError::Usage("no"))
    });
    assert!(failed.is_err());
    assert_eq!(buffers.read(volume.free).unwrap()[0], 2);
    let checked = buffers.get(volume.free + 1, |_| Err(DeviceError::PowerCut));
    assert_eq!(checked.unwrap_err(), DeviceError::PowerCut);
    assert!(buffers.peek(volume.free + 1).is_none());
}

#[test]
fn callbacks_run_once_durable_and_before_the_waiter_returns() {
    if !require("jbd2 callbacks", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let journal = volume.open(Arc::new(volume.image.snapshot()));
    let ran = Arc::new(AtomicU64::new(0));
    let mut handle = journal.start(2).unwrap();
    handle.create(volume.free, |b| fill(b, 1)).unwrap();
    let counter = Arc::clone(&ran);
    handle.on_commit(Box::new(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    }));
    let tid = handle.tid();
    drop(handle);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    journal.commit(tid).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

/// Commits `value` in each of `blocks`.
fn put(journal: &Arc<Journal>, blocks: &[u64], value: u8) {
    let mut handle = journal.start(blocks.len() as u32).unwrap();
    for block in blocks {
        handle.create(*block, |b| fill(b, value)).unwrap();
    }
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
}

#[test]
fn a_freed_block_is_revoked_and_never_written_in_place() {
    if !require("jbd2 forget", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(volume.image.snapshot());
    let journal = volume.open(dev.clone());
    let block = volume.free + 3;
    put(&journal, &[block, block + 1], 1);
    assert!(journal.is_live(block));
    let mut handle = journal.start(2).unwrap();
    handle.forget(block).unwrap();
    handle.create(block + 2, |b| fill(b, 2)).unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    assert!(!journal.is_live(block) && journal.is_live(block + 1));
    // The block is file data now.
    dev.write_at(block * 4096, &[7; 4096]).unwrap();
    let crashed = dev.snapshot();
    let recovery = Journal::recover(&crashed, &volume.log, RecoverOptions::default()).unwrap();
    assert_eq!((recovery.transactions, recovery.revoked, recovery.blocks_replayed), (2, 1, 2));
    assert_eq!(volume.block(&crashed, block)[0], 7);
    journal.shutdown().unwrap();
    assert_eq!(volume.block(&*dev, block)[0], 7);
    assert_eq!(volume.block(&*dev, block + 1)[0], 1);
}

#[test]
fn journaling_a_freed_block_again_cancels_its_revoke() {
    if !require("jbd2 cancel", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(volume.image.snapshot());
    let journal = volume.open(dev.clone());
    let block = volume.free;
    put(&journal, &[block], 1);
    let mut handle = journal.start(2).unwrap();
    handle.forget(block).unwrap();
    handle.create(block, |b| fill(b, 2)).unwrap();
    let tid = handle.tid();
    drop(handle);
    journal.commit(tid).unwrap();
    assert_eq!(journal.stats().revokes_logged, 0);
    let crashed = dev.snapshot();
    Journal::recover(&crashed, &volume.log, RecoverOptions::default()).unwrap();
    assert_eq!(volume.block(&crashed, block)[0], 2);
    journal.shutdown().unwrap();
    assert_eq!(volume.block(&*dev, block)[0], 2);
}

#[test]
fn a_full_log_makes_room_in_bounded_steps_and_wraps() {
    if !require("jbd2 wrap", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(RecordingDevice::new(without_fua(&volume.image)));
    let options = JournalOptions { checkpoint_step_blocks: 64, ..volume.options };
    let journal = volume.open_with(dev.clone(), options);
    for round in 0..60u64 {
        let first = volume.free + round * 13 % 600;
        let blocks: Vec<u64> = (first..first + 100).collect();
        put(&journal, &blocks, round as u8);
    }
    let stats = journal.stats();
    assert!(stats.log_blocks_written > u64::from(stats.log_blocks) * 5, "{stats:?}");
    assert!(stats.checkpoint_steps > 5, "{stats:?}");
    let crashed = dev.inner().snapshot();
    let recovery = Journal::recover(&crashed, &volume.log, RecoverOptions::default()).unwrap();
    assert!(recovery.transactions > 0 && !recovery.dropped_torn, "{recovery:?}");
    journal.shutdown().unwrap();
    assert_eq!(crate::common::difference(&volume.log, &crashed, dev.inner()), None);
}

#[test]
fn operations_larger_than_a_transaction_are_refused_and_full_ones_are_split() {
    if !require("jbd2 credits", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let journal = volume.open(Arc::new(volume.image.snapshot()));
    let limit = journal.max_credits();
    assert!(matches!(journal.start(limit + 1), Err(JournalError::TooLarge { .. })));
    let mut tids = std::collections::BTreeSet::new();
    for i in 0..400 {
        let mut handle = journal.start(10).unwrap();
        handle.create(volume.free + i, |b| fill(b, 1)).unwrap();
        tids.insert(handle.tid());
    }
    assert_eq!(tids.len(), 2);
    // A handle that nobody uses does not keep others from starting.
    let mut handle = journal.start(limit).unwrap();
    assert!(!handle.extend(1));
}

struct Told(AtomicU64);
impl Host for Told {
    fn aborted(&self, err: &JournalError) {
        assert!(err.is_latched());
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Three transactions and everything in place; the first error ends it.
fn workload(volume: &crate::common::Volume, journal: &Arc<Journal>) -> Result<u8, JournalError> {
    for round in 1..=3u8 {
        let mut handle = journal.start(8)?;
        for i in 0..5 {
            handle.create(volume.free + i * 2, |b| fill(b, round))?;
        }
        let tid = handle.tid();
        drop(handle);
        journal.commit(tid).inspect_err(|_| {
            assert!(matches!(journal.commit(tid), Err(JournalError::Aborted { .. })));
        })?;
    }
    journal.shutdown()?;
    Ok(3)
}

#[test]
fn the_kth_failing_request_latches_and_leaves_a_recoverable_log() {
    if !require("jbd2 faults", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    for class in [OpClass::Write, OpClass::Flush, OpClass::Read] {
        fail_each(&volume, class);
    }
}

/// Fails the first, second, ... operation of a class until the workload needs no more of them. A
/// read of the log is made only to save a write: the commit goes on without what it would tell.
fn fail_each(volume: &crate::common::Volume, class: OpClass) {
    let mut k = 1;
    loop {
        let dev = Arc::new(FailingDevice::new(without_fua(&volume.image)));
        let buffers = BufferCache::new(dev.clone(), 4096, 64);
        let clock = Arc::new(syncline_device::VirtualClock::default());
        let told = Arc::new(Told(AtomicU64::new(0)));
        let host: Arc<dyn Host> = told.clone();
        let (log, options) = (volume.log.clone(), volume.options);
        let journal = Journal::open(dev.clone(), log, buffers, clock, options, Some(host)).unwrap();
        dev.arm(FaultPlan::once(class, k));
        let result = workload(volume, &journal);
        if dev.hits() == 0 {
            assert!(result.is_ok(), "k {k}: {result:?}");
            assert!(k > if class == OpClass::Write { 8 } else { 1 }, "{class:?}: only {k}");
            return;
        }
        if class == OpClass::Read {
            assert!(result.is_ok(), "k {k}: {result:?}");
        } else {
            assert!(matches!(result, Err(JournalError::Aborted { .. })), "k {k}: {result:?}");
            assert!(journal.aborted().is_some());
            assert_eq!(told.0.load(Ordering::SeqCst), 1, "k {k}");
            assert!(journal.start(1).is_err());
        }
        dev.disarm();
        let after = dev.inner().snapshot();
        Journal::recover(&after, &volume.log, RecoverOptions::default())
            .unwrap_or_else(|e| panic!("k {k}: {e}"));
        let values: Vec<u8> =
            (0..5).map(|i| volume.block(&after, volume.free + i * 2)[0]).collect();
        assert!(values.windows(2).all(|w| w[0] == w[1]), "k {k}: {values:?}");
        k += 1;
    }
}

#[test]
fn ticks_commit_after_the_interval_and_write_back_when_expired() {
    if !require("jbd2 ticks", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(RecordingDevice::new(volume.image.snapshot()));
    let journal = volume.open(dev.clone());
    assert_eq!(journal.next_deadline_ns(), None);
    let mut handle = journal.start(1).unwrap();
    handle.create(volume.free, |b| fill(b, 1)).unwrap();
    let tid = handle.tid();
    drop(handle);
    let commit_ns = journal.next_deadline_ns().unwrap();
    journal.tick(commit_ns - 1).unwrap();
    assert!(journal.needs_commit(tid));
    journal.tick(commit_ns).unwrap();
    assert_eq!(journal.committed_tid(), tid);
    let expire_ns = journal.next_deadline_ns().unwrap();
    journal.tick(expire_ns - 1).unwrap();
    assert_eq!(dev.counts().metadata_bytes(), 0);
    journal.tick(expire_ns).unwrap();
    assert_eq!(dev.counts().metadata_bytes(), 4096);
    assert_eq!(journal.next_deadline_ns(), None);
    assert_eq!(journal.stats().dirty_blocks, 0);
}

#[test]
fn each_committed_image_is_consistent_while_threads_change_blocks() {
    if !require("jbd2 threads", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let dev = Arc::new(volume.image.snapshot());
    let journal = volume.open(dev.clone());
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (journal, free) = (&journal, volume.free + thread * 4);
            scope.spawn(move || {
                for round in 0..400u64 {
                    let mut handle = journal.start(2).unwrap();
                    for block in [free, free + 1] {
                        let value = round.to_le_bytes();
                        handle.modify(block, |b| b[..8].copy_from_slice(&value)).unwrap();
                    }
                    let tid = handle.tid();
                    drop(handle);
                    if round % 7 == thread {
                        journal.commit(tid).unwrap();
                    }
                }
            });
        }
        for _ in 0..100 {
            // Any instant of a device that loses nothing is a crash state.
            let crashed = dev.snapshot();
            Journal::recover(&crashed, &volume.log, RecoverOptions::default()).unwrap();
            for thread in 0..3u64 {
                let first = volume.free + thread * 4;
                let pair = (volume.block(&crashed, first), volume.block(&crashed, first + 1));
                assert_eq!(pair.0, pair.1);
            }
        }
    });
    journal.shutdown().unwrap();
    for thread in 0..3u64 {
        let bytes = volume.block(&*dev, volume.free + thread * 4);
        assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), 399);
    }
    assert!(dev.geometry().size_bytes > 0);
}

/// While the other pages of a write-back are sent, anybody's sync may commit a page of it that went
/// to the log, with the very image that the write-back holds.
#[test]
fn a_page_that_commits_during_its_write_back_still_has_to_be_written() {
    if !require("jbd2 in place", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let options = JournalOptions { checksums: Checksums::V1Async, ..volume.options };
    let journal = volume.open_with(Arc::new(volume.image.snapshot()), options);
    let (block, origin) = (volume.free, Origin::new(Kind::Data { inode: 12 }, false));
    let log = |image: &Arc<[u8]>| {
        let mut handle = journal.start(1).unwrap();
        handle.journal_data(block, Arc::clone(image), origin, None).unwrap();
        handle.tid()
    };
    let images: [Arc<[u8]>; 2] = [vec![1; 4096].into(), vec![2; 4096].into()];
    let page = |newer| {
        let (image, action) = (Arc::clone(&images[1]), WriteAction::Write);
        [Page { block, image, newer, action }]
    };
    let begin = |newer| {
        let mut pages = page(newer);
        journal.begin_in_place(&mut pages, false).unwrap();
        pages
    };
    journal.commit(log(&images[0])).unwrap();

    let changed = begin(true);
    assert_eq!(changed[0].action, WriteAction::Journal, "the log holds its older copy");
    let tid = log(&images[1]);
    let busy = begin(false);
    assert_eq!(busy[0].action, WriteAction::Retry);
    journal.commit(tid).unwrap();
    journal.end_in_place(&changed);
    journal.end_in_place(&busy);

    let logged = begin(false);
    assert_eq!(logged[0].action, WriteAction::Write, "nobody has written it");
    journal.end_in_place(&logged);
    assert_eq!(begin(false)[0].action, WriteAction::Skip);
}

/// A copy that joins the set of a revoke takes its place: recovery leaves out the copies of the
/// transaction of a revoke, too.
#[test]
fn data_over_a_copy_in_the_log_is_revoked_unless_it_is_logged_again() {
    if !require("jbd2 revokes", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let options = JournalOptions { checksums: Checksums::V1Async, ..volume.options };
    let journal = volume.open_with(Arc::new(volume.image.snapshot()), options);
    let blocks = [volume.free, volume.free + 1];
    let origin = Origin::new(Kind::Data { inode: 12 }, false);
    let image = |value| Arc::<[u8]>::from(vec![value; 4096]);
    let log = |block, value| {
        let mut handle = journal.start(1).unwrap();
        handle.journal_data(block, image(value), origin, None).unwrap();
    };
    blocks.iter().for_each(|block| log(*block, 1));
    journal.sync(&blocks.map(Member::Block), false).unwrap();
    assert_eq!(journal.count_live(blocks[0]..blocks[1] + 1), 2);

    let action = WriteAction::Write;
    let mut pages = blocks.map(|block| Page { block, image: image(2), newer: true, action });
    journal.begin_in_place(&mut pages, true).unwrap();
    assert!(pages.iter().all(|page| page.action == WriteAction::Revoke));
    let member = Member::Slot { block: volume.free + 9, offset: 0 };
    journal.start(1).unwrap().revoke_copies(&blocks, member);
    journal.end_in_place(&pages);
    log(blocks[1], 3);
    journal.sync(&[member], false).unwrap();
    let stats = journal.stats();
    assert_eq!((stats.revokes_logged, stats.blocks_logged), (1, 3), "the set has the copy, too");
    assert_eq!(journal.count_live(blocks[0]..blocks[1] + 1), 1);
}
