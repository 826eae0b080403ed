//! Any calls in any order give what they give on an array of bytes, also after opening again.

use std::sync::Arc;

use proptest::prelude::*;
use syncline_flashlite::{Cursor, Log, MemoryStorage, Options};

use crate::support::{Op, SMALL, apply, apply_model, contents, create};

const SIZE: u64 = 300_000;

fn op() -> impl Strategy<Value = Op> {
    let long = prop_oneof![Just(32_u64 << 10), Just(128 << 10), Just(256 << 10)];
    let len = prop_oneof![1_u64..200, Just(4096), Just(10_240), 1_u64..150_000, long];
    let offset = prop_oneof![0..SIZE, (0..SIZE / 4096).prop_map(|page| page * 4096)];
    prop_oneof![
        12 => (offset, len, any::<u64>())
            .prop_map(|(offset, len, seed)| Op::Write { offset, len, seed }),
        1 => (0..SIZE).prop_map(Op::SetLen),
        2 => Just(Op::Sync),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let align = prop_oneof![Just(0), Just(4096), Just(32 << 10)];
    let sync = prop_oneof![Just(0_u64), Just(100_000)];
    let segment = prop_oneof![3 => 16_u32..19, 1 => 21_u32..25];
    let tags = prop_oneof![Just(1), Just(8), Just(64)];
    (segment, 12_u32..15, align, sync, tags).prop_map(|(segment, page, align, sync, tags)| {
        Options {
            segment_bytes: 1 << segment,
            page_bytes: 1 << page,
            align_from_bytes: align,
            sync_every_bytes: sync,
            tags_at_once: tags,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_log_is_an_array_of_bytes(
        ops in prop::collection::vec(op(), 1..60),
        options in options(),
        version in 1_u32..3,
        reopen_after in 0_usize..60,
        (from, len) in (0..SIZE, 0_usize..100_000),
    ) {
        let storage = Arc::new(MemoryStorage::default());
        let mut log = create(storage.clone(), options, version);
        let mut model = Vec::new();
        for (at, op) in ops.iter().enumerate() {
            if at == reopen_after {
                drop(log);
                log = Log::open(storage.clone(), options).unwrap();
                prop_assert_eq!(&log.opened().dropped, &None);
            }
            apply(&log, op).unwrap();
            apply_model(&mut model, op);
        }
        prop_assert!(contents(&log) == model, "right after writing");
        let mut part = vec![0xEE; len];
        let read = log.read_at(&mut part, from).unwrap();
        let wanted = model.get(from as usize..).unwrap_or_default();
        let wanted = &wanted[..wanted.len().min(len)];
        prop_assert!(&part[..read] == wanted, "from the middle");
        let info = log.info();
        log.close().unwrap();
        let log = Log::open_read_only(storage).unwrap();
        prop_assert!(contents(&log) == model, "after closing");
        prop_assert_eq!(log.opened().verified_bytes, 0);
        prop_assert_eq!(log.info().records, info.records);
        prop_assert_eq!(log.info().data_bytes, info.data_bytes);
        prop_assert!(log.info().extents <= 2 * info.records + 1);
    }
}

#[test]
fn holes_are_zeros_and_reads_end_with_the_file() {
    let log = Log::create(Arc::new(MemoryStorage::default()), Options::default()).unwrap();
    assert!(log.is_empty());
    log.write_at(&[1; 80], 1000).unwrap();
    log.write_at(&[2; 100], 3000).unwrap();
    let mut bytes = [9; 4000];
    assert_eq!(log.read_at(&mut bytes, 0).unwrap(), 3100);
    assert!(bytes[..1000] == [0; 1000] && bytes[1000..1080] == [1; 80]);
    assert!(bytes[1080..3000] == [0; 1920] && bytes[3000..3100] == [2; 100]);
    assert_eq!(log.read_at(&mut bytes, 3100).unwrap(), 0);
    log.set_len(1010).unwrap();
    log.set_len(2000).unwrap();
    assert_eq!(log.read_at(&mut bytes, 1000).unwrap(), 1000);
    assert!(bytes[..10] == [1; 10] && bytes[10..1000] == [0; 990]);
    assert!(log.write_at(&[0], u64::MAX).is_err() && log.set_len(1 << 63).is_err());
}

/// The figures that `docs/FORMAT.md` states, exactly.
#[test]
fn space_and_writes_of_a_download_are_exact() {
    // What a log of 64 MiB takes beside its data; four segments are filled and a fifth is begun.
    // Heads, indexes, what is left before these, and what is skipped for data of 64 and 256 KiB to
    // start at such a boundary: once 2 MiB are there, and at the start of each later segment.
    for (chunk_kib, kib) in [(16_u64, 304_u64), (64, 304), (240, 144), (256, 1072)] {
        let storage = Arc::new(MemoryStorage::default());
        let log = Log::create(storage.clone(), Options::default()).unwrap();
        let (chunk, chunks) = (chunk_kib << 10, (64 << 10) / chunk_kib);
        for i in 0..chunks {
            log.write_at(&vec![7; chunk as usize], (i * 617 % chunks) * chunk).unwrap();
        }
        log.sync_data().unwrap();
        let info = log.info();
        assert_eq!(info.data_bytes, chunks * chunk);
        assert_eq!(info.log_bytes, storage.bytes().len() as u64);
        let more = info.log_bytes - info.data_bytes;
        assert!(more * 50 <= info.data_bytes, "{chunk_kib} KiB: {more} bytes more are over 2 %");
        assert_eq!(more, kib << 10, "{chunk_kib} KiB");
    }
}

#[test]
fn a_cursor_reads_writes_and_seeks() {
    use std::io::{Read, Seek, SeekFrom, Write};
    let log = Log::create(Arc::new(MemoryStorage::default()), SMALL).unwrap();
    let log = Arc::new(log);
    let mut cursor = Cursor::new(Arc::clone(&log));
    cursor.seek(SeekFrom::Start(5)).unwrap();
    cursor.write_all(b"world").unwrap();
    cursor.rewind().unwrap();
    cursor.write_all(b"hello").unwrap();
    cursor.flush().unwrap();
    let mut other = cursor.clone();
    let mut text = String::new();
    assert_eq!(cursor.seek(SeekFrom::End(-7)).unwrap(), 3);
    cursor.read_to_string(&mut text).unwrap();
    assert_eq!(text, "loworld");
    assert_eq!(other.seek(SeekFrom::Current(-1)).unwrap(), 4);
    assert!(other.seek(SeekFrom::Current(-5)).is_err());
    assert_eq!(cursor.log().len(), 10);
}

#[test]
fn many_threads_write_and_read_at_once() {
    let log = Log::create(Arc::new(MemoryStorage::default()), SMALL).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let log = &log;
            scope.spawn(move || {
                for i in 0..100_u64 {
                    let at = (i * 4 + u64::from(thread)) * 1000;
                    log.write_at(&[thread + 1; 1000], at).unwrap();
                    let mut back = [0; 1000];
                    assert_eq!(log.read_at(&mut back, at).unwrap(), 1000);
                    assert_eq!(back, [thread + 1; 1000]);
                    if i % 10 == 0 {
                        log.sync_data().unwrap();
                    }
                }
            });
        }
    });
    for (at, part) in contents(&log).chunks(1000).enumerate() {
        assert_eq!(part, [(at % 4) as u8 + 1; 1000]);
    }
}
