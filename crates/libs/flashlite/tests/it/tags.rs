//! Tags that wait in memory, and where long data start.

use std::sync::Arc;

use parking_lot::Mutex;
use syncline_flashlite::{Log, MemoryStorage, Options, Storage};
use syncline_testkit::Random;

use crate::support::{LARGE, Op, SMALL, Watched, apply, apply_model, contents, create, random_op};

/// Reopens the log after a kill of the process: the storage has everything that was given to it,
/// and nothing else.
fn killed(storage: &MemoryStorage) -> Log {
    Log::open(Arc::new(MemoryStorage::new(storage.bytes())), SMALL).unwrap()
}

#[test]
fn a_killed_process_loses_fewer_records_than_tags_at_once() {
    for (seed, tags_at_once) in (0..40).flat_map(|seed| [(seed, 1), (seed, 8), (seed, 64)]) {
        let mut random = Random::new(seed);
        let storage = Arc::new(MemoryStorage::default());
        let options = if seed % 4 == 1 { LARGE } else { SMALL };
        let version = if seed % 8 == 7 { 1 } else { 2 };
        let log = create(storage.clone(), Options { tags_at_once, ..options }, version);
        // The file after so many records.
        let mut after = vec![Vec::new()];
        let mut lost_most = 0;
        for _ in 0..120 {
            let op = match random_op(&mut random, 150_000) {
                // One record a call, so that the numbers can be compared.
                Op::Write { offset, len, seed } if len > 4096 => {
                    Op::Write { offset, len: 4096, seed }
                }
                op => op,
            };
            let before = log.info().records;
            apply(&log, &op).unwrap();
            let mut model = after.last().unwrap().clone();
            apply_model(&mut model, &op);
            let records = log.info().records;
            // A write that the end of a segment splits is two.
            after.extend((before..records).map(|_| model.clone()));
            let left = killed(&storage);
            let there = left.info().records;
            let lost = records - there;
            assert!(lost < tags_at_once.into(), "{lost} of {records}, {tags_at_once} at once");
            if records - before < 2 {
                assert!(contents(&left) == after[there as usize], "seed {seed}, {op:?}");
            }
            lost_most = lost_most.max(lost);
            let all_there = matches!(op, Op::Sync | Op::SetLen(_));
            assert!(lost == 0 || !all_there, "{op:?} leaves {lost} tags waiting");
            if random.one_in(20) {
                log.flush().unwrap();
                assert_eq!(killed(&storage).info().records, records);
            }
        }
        // Else this proves nothing.
        assert!(version == 1 || tags_at_once == 1 || lost_most > 3, "seed {seed}: {lost_most}");
        log.set_tags_at_once(1).unwrap();
        assert_eq!(killed(&storage).info().records, log.info().records);
        log.set_tags_at_once(64).unwrap();
        log.write_at(&[1; 4096], 0).unwrap();
        let last = contents(&log);
        drop(log);
        let left = killed(&storage);
        assert!(left.opened().dropped.is_none() && contents(&left) == last, "seed {seed}");
    }
}

#[test]
fn tags_of_many_records_are_one_call() {
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let watch = move |_, _, write: bool| *counted.lock() += u64::from(write);
    let storage = Watched { below: Arc::new(MemoryStorage::default()), watch };
    let options = Options { tags_at_once: 64, ..Options::default() };
    let log = Log::create(Arc::new(storage), options).unwrap();
    let before = *calls.lock();
    for at in 0..257_u64 {
        log.write_at(&[1; 16 << 10], at * 7 % 257 * (16 << 10)).unwrap();
    }
    // The first record is written with its head.
    assert_eq!(*calls.lock() - before, 257 + 256 / 64);
}

#[test]
fn long_data_start_at_multiples_of_their_length() {
    for (kib, aligned) in [(64_u64, 64_u64), (128, 128), (256, 256), (512, 256), (240, 16)] {
        let starts = Arc::new(Mutex::new(Vec::new()));
        let (len, told) = (kib << 10, Arc::clone(&starts));
        let watch = move |offset: u64, bytes: u64, write: bool| {
            if write && bytes >= len {
                // Zeros before the data are in the same call.
                told.lock().push(offset + (bytes - len));
            }
        };
        let storage = Arc::new(Watched { below: Arc::new(MemoryStorage::default()), watch });
        let log = Log::create(storage.clone(), Options::default()).unwrap();
        for at in 0..(40 << 10) / kib {
            log.write_at(&vec![at as u8 | 1; len as usize], at * len).unwrap();
        }
        // Until 2 MiB are there a sync may come soon: then there is no point in it.
        let starts = starts.lock();
        let later = starts.iter().filter(|start| **start > 3 << 20);
        let good = later.clone().filter(|start| *start % (aligned << 10) == 0).count();
        assert!(later.count() >= good && good as u64 >= (36 << 10) / kib, "{kib} KiB: {starts:?}");
        assert!(storage.len().unwrap() * 50 <= (40 << 20) * 51, "{kib} KiB");
    }
}
