//! Storage that fails: errors are told, nothing false is acknowledged, no space is no end.

use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Error, Log};
use syncline_testkit::Random;

use crate::support::{Disk, SMALL, Watched, apply, apply_model, contents, create, random_op};

#[test]
fn after_a_failed_sync_or_write_nothing_is_acknowledged() {
    for (fail_in, version, tags) in (0..60).flat_map(|at| [(at, 1, 1), (at, 2, 1), (at, 2, 8)]) {
        let mut random = Random::new(3);
        let disk = Disk::default();
        let log = create(Arc::new(disk.clone()), SMALL, version);
        log.set_tags_at_once(tags).unwrap();
        disk.fail_in(fail_in, false);
        let mut failed = false;
        for _ in 0..80 {
            let op = random_op(&mut random, 200_000);
            let done = apply(&log, &op);
            if failed {
                assert!(done.is_err(), "{op:?} succeeded after a failure");
            }
            failed |= done.is_err();
        }
        assert!(failed && matches!(log.sync_data(), Err(Error::Latched)));
        // What is in the log can still be read.
        contents(&log);
    }
}

#[test]
fn a_full_disk_loses_nothing_and_can_be_written_again() {
    let runs = |at| [(at, 1, 1), (at, 2, 1), (at, 2, 8)];
    'run: for (fail_in, version, tags) in (0..80).flat_map(runs) {
        let mut random = Random::new(11);
        let disk = Disk::default();
        let log = create(Arc::new(disk.clone()), SMALL, version);
        log.set_tags_at_once(tags).unwrap();
        let mut model = Vec::new();
        disk.fail_in(fail_in, true);
        let mut full = 0;
        for _ in 0..60 {
            let op = random_op(&mut random, 200_000);
            let before = full;
            if let Err(error) = apply(&log, &op) {
                if matches!(error, Error::Io { .. }) {
                    // It was a sync of the storage itself: that is the end.
                    assert!(matches!(log.sync_data(), Err(Error::Latched)));
                    continue 'run;
                }
                assert!(matches!(error, Error::Full), "{error}");
                full += 1;
                apply(&log, &op).unwrap();
            }
            apply_model(&mut model, &op);
            assert!(contents(&log) == model, "after {full} failures, at {fail_in}");
            if full > before {
                // It is in the log itself, too.
                log.flush().unwrap();
                let copy = Log::open(Arc::new(Disk::new(disk.now())), SMALL).unwrap();
                assert!(contents(&copy) == model, "a copy, {fail_in}, {tags}");
            }
        }
        if let Err(error) = log.flush() {
            assert!(matches!(error, Error::Full), "{error}");
            log.flush().unwrap();
        }
        drop(log);
        let log = Log::open(Arc::new(disk), SMALL).unwrap();
        assert!(contents(&log) == model, "opened again, {fail_in}");
    }
}

/// Position of the first data in version 2: the head of the first group ends there.
const DATA: usize = 16 << 10;

#[test]
fn damage_of_synced_bytes_is_an_error_and_no_torn_end() {
    // Where the third tag of a segment stands, the first data, and the record that has it.
    damage(1, 2 * (4096 + 32), 4096 + 32, 4096);
    damage(2, 32 + 2 * 32, DATA, DATA as u64);
}

fn damage(version: u32, third_tag: usize, first_data: usize, record: u64) {
    let disk = Disk::default();
    let log = create(Arc::new(disk.clone()), SMALL, version);
    for i in 0..50_u64 {
        log.write_at(&[i as u8 + 1; 4096], i * 4096).unwrap();
    }
    log.close().unwrap();
    let good = disk.now();
    let open = |bytes: &[u8]| Log::open(Arc::new(Disk::new(bytes.to_vec())), SMALL);
    // The tag of the third record of the last segment.
    let mut bad = good.clone();
    let last = good.len() / (64 << 10) * (64 << 10);
    bad[last + third_tag + 5] ^= 1;
    assert!(matches!(open(&bad), Err(Error::Corrupt { .. })));
    // An index: its segment is read by tags.
    let mut bad = good.clone();
    bad[(64 << 10) - 40] ^= 1;
    let log = open(&bad).unwrap();
    assert_eq!(log.opened().damaged_indexes, 1);
    let whole = contents(&log);
    assert!((0..50).all(|i| whole[i * 4096..][..4096] == [i as u8 + 1; 4096]));
    // Data: opening does not read it, checking does.
    let mut bad = good;
    bad[first_data + 7] ^= 1;
    let log = open(&bad).unwrap();
    let checked = log.check(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!((checked.damaged, checked.good_bytes), (vec![(0, 4096)], 49 * 4096));
    let to = Disk::default();
    let refused =
        log.rearrange_to(&to, Default::default(), &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(refused, Err(Error::Corrupt { position, .. }) if position == record));
}

#[test]
fn verified_reads_refuse_damage_and_return_everything_else() {
    let third = 4096 + 2 * (4096 + 32);
    verified(1, third + 32, third as u64);
    verified(2, DATA + 2 * 4096, (DATA + 2 * 4096) as u64);
}

fn verified(version: u32, third_data: usize, record: u64) {
    let disk = Disk::default();
    let log = create(Arc::new(disk.clone()), SMALL, version).verified();
    // Records of 4 KiB and a half that cuts the second one.
    for i in 0..4_u64 {
        log.write_at(&[i as u8 + 1; 4096], i * 4096).unwrap();
    }
    log.write_at(&[9; 2048], 4096 + 1024).unwrap();
    let mut whole = contents(&log);
    assert_eq!((whole[4096 + 1023], whole[4096 + 1024], whole[2 * 4096 - 1]), (2, 9, 2));
    log.close().unwrap();
    let mut bad = disk.now();
    bad[third_data + 7] ^= 1;
    let log = Log::open(Arc::new(Disk::new(bad)), SMALL).unwrap();
    let mut byte = [0];
    // Not the damaged byte but its record.
    let third = 2 * 4096 + 100;
    assert!(matches!(log.read_at(&mut byte, third), Ok(1)));
    let log = log.verified();
    let refused = log.read_at(&mut byte, third).unwrap_err();
    assert!(matches!(refused, Error::Corrupt { position, .. } if position == record), "{refused}");
    whole.drain(2 * 4096..3 * 4096);
    let mut rest = vec![0; 2 * 4096];
    assert_eq!(log.read_at(&mut rest, 0).unwrap(), 2 * 4096);
    let mut last = vec![0; 4096];
    assert_eq!(log.read_at(&mut last, 3 * 4096).unwrap(), 4096);
    rest.extend(last);
    assert_eq!(rest, whole);
}

#[test]
fn a_torn_end_of_version_1_is_dropped_and_named_exactly() {
    let disk = Disk::default();
    let log = create(Arc::new(disk.clone()), SMALL, 1);
    log.write_at(&[1; 1000], 0).unwrap();
    log.sync_data().unwrap();
    log.write_at(&[2; 1000], 1000).unwrap();
    let kept = log.info().log_bytes;
    log.write_at(&[3; 1000], 2000).unwrap();
    log.write_at(&[4; 500], 9000).unwrap();
    drop(log);
    let mut torn = disk.now();
    torn[kept as usize + 40] ^= 1;
    let len = torn.len() as u64;
    let disk = Disk::new(torn);
    let log = Log::open_read_only(Arc::new(disk.clone())).unwrap();
    let dropped = log.opened().dropped.clone().unwrap();
    assert_eq!((dropped.position, dropped.bytes), (kept, len - kept));
    assert_eq!(dropped.lost, [(2000, 1000), (9000, 500)]);
    assert_eq!((log.len(), disk.now().len() as u64), (2000, len));
    drop(log);
    let log = Log::open(Arc::new(disk.clone()), SMALL).unwrap();
    assert_eq!(log.opened().dropped, Some(dropped));
    assert_eq!(disk.now().len() as u64, kept);
    assert_eq!(contents(&log), [[1; 1000], [2; 1000]].concat());
}

#[test]
fn a_torn_end_is_dropped_and_named_exactly() {
    let disk = Disk::default();
    let log = Log::create(Arc::new(disk.clone()), SMALL).unwrap();
    log.write_at(&[1; 5000], 0).unwrap();
    log.sync_data().unwrap();
    log.write_at(&[2; 5000], 5000).unwrap();
    let kept = log.info().log_bytes;
    log.write_at(&[3; 5000], 10_000).unwrap();
    // This one fits into the head.
    log.write_at(&[4; 500], 19_000).unwrap();
    drop(log);
    let mut torn = disk.now();
    torn[kept as usize + 40] ^= 1;
    let len = torn.len() as u64;
    let disk = Disk::new(torn.clone());
    let log = Log::open_read_only(Arc::new(disk.clone())).unwrap();
    let dropped = log.opened().dropped.clone().unwrap();
    // The second group: the first one's data end in the second page behind its head.
    let head = DATA as u64 + 2 * 4096;
    assert_eq!((dropped.position, kept), (head + 2 * 32, head + 4096 + 5024));
    assert_eq!(dropped.bytes, 2 * 32 + 500 + len - kept);
    assert_eq!(dropped.lost, [(10_000, 5000), (19_000, 500)]);
    assert_eq!((log.len(), disk.now().len() as u64), (10_000, len));
    drop(log);
    let log = Log::open(Arc::new(disk.clone()), SMALL).unwrap();
    assert_eq!(log.opened().dropped, Some(dropped));
    assert_eq!(disk.now().len() as u64, kept);
    let whole = [[1; 5000], [2; 5000]].concat();
    assert_eq!(contents(&log), whole);
    // The tag that was behind the torn one comes back neither now nor after a write.
    log.write_at(&[5; 100], 10_000).unwrap();
    drop(log);
    let log = Log::open(Arc::new(disk), SMALL).unwrap();
    assert_eq!((log.opened().dropped.clone(), log.len()), (None, 10_100));
    assert_eq!(contents(&log), [whole, vec![5; 100]].concat());
    drop(log);
    // Its tag torn, the third record was never there.
    torn[(head + 2 * 32) as usize] ^= 1;
    let log = Log::open_read_only(Arc::new(Disk::new(torn))).unwrap();
    let dropped = log.opened().dropped.clone().unwrap();
    assert_eq!((dropped.position, dropped.lost), (head + 2 * 32, vec![]));
}

/// Checks page by page that neither data nor tags covered by a sync are written again.
#[test]
fn no_write_touches_a_page_that_was_synced() {
    for version in [1, 2] {
        let mut random = Random::new(5);
        let synced = Arc::new(Mutex::new(0));
        let below = Arc::new(Disk::default());
        drop(create(below.clone(), SMALL, version));
        let before = Arc::clone(&synced);
        let watch = move |offset: u64, _, write: bool| {
            let synced = *before.lock();
            assert!(!write || offset / 4096 * 4096 >= synced, "{offset} below {synced}");
        };
        let log = Log::open(Arc::new(Watched { below, watch }), SMALL).unwrap();
        for _ in 0..400 {
            apply(&log, &random_op(&mut random, 200_000)).unwrap();
            *synced.lock() = log.info().durable_bytes;
        }
        assert!(log.info().durable_bytes > 1 << 20);
    }
}
