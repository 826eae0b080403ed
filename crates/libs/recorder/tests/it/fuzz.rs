//! The reader on damaged and hostile files.

use syncline_recorder::format::Header;
use syncline_recorder::reader::{Reader, Source};
use syncline_recorder::ring;
use syncline_testkit::{FuzzRounds, Random};

use crate::support::{Kept, MemoryStrategy, config, found, payload};

fn event_file() -> Vec<u8> {
    let (mut producer, trigger, mut machine) = ring(&config(20, 20, 50)).unwrap();
    let (strategy, mut kept) = (MemoryStrategy::default(), Kept::default());
    for n in 0..60 {
        if n == 30 {
            trigger.fire();
        }
        producer.push(n, &payload(n, (n % 65) as usize)).unwrap();
    }
    kept.end(&mut machine, &strategy);
    let file = strategy.files.lock()[&1].clone();
    assert_eq!(file.len(), (20 + 1 + 20 + 1) * 128);
    file
}

#[test]
fn fuzz_event_files() {
    let whole = event_file();
    assert!(found(&whole).unwrap().summary.is_whole());
    for seed in FuzzRounds::at_least(2000) {
        let mut random = Random::new(seed);
        let mut file = whole.clone();
        for _ in 0..=random.below(6) {
            mutate(&mut random, &mut file);
        }
        // Every record that is found is one that was pushed, in order, and none is found twice.
        if let Some(found) = found(&file) {
            assert!(found.records.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}");
        }
        let source: &dyn Source = &&file[..];
        if let Some(mut reader) = Reader::new(source).unwrap() {
            reader.follow(source, &mut |_| Ok(())).unwrap();
        }
    }
}

fn mutate(random: &mut Random, file: &mut Vec<u8>) {
    let at = random.index(file.len());
    match random.below(6) {
        0 => file.truncate(at),
        1 => file.iter_mut().skip(at).take(512).for_each(|byte| *byte = 0),
        2 => file.iter_mut().skip(at).take(8).for_each(|byte| *byte ^= 0xa5),
        3 => file.rotate_left(at),
        4 => {
            let part: Vec<u8> = file.iter().copied().skip(at).take(256).collect();
            file.splice(at..at, part);
        }
        _ => {
            // A header with a right checksum and wrong contents.
            let at = at / 64 * 64;
            let header = Header {
                slot_bytes: [0, 64, 128, 1 << 20, 16 << 20, u32::MAX][random.index(6)],
                recorder: 7,
                event: 1,
                sequence: [0, 31, u64::MAX, random.bits()][random.index(4)],
                payload_bytes: [0, 64, u32::MAX][random.index(3)],
                flags: random.bits() as u32,
                ..Header::default()
            };
            if let Some(into) = file.get_mut(at..at + 64) {
                into.copy_from_slice(&header.encode());
            }
        }
    }
}

#[test]
fn lost_sectors_cost_their_own_records_only() {
    let whole = event_file();
    for lost in 0..whole.len() / 512 {
        let mut file = whole.clone();
        file[lost * 512..(lost + 1) * 512].fill(0);
        let found = found(&file).unwrap();
        // Four slots of 128 bytes; the last sector has the end mark and one record.
        let records = if lost == 10 { 1 } else { 4 };
        assert_eq!(found.summary.records, 41 - records, "sector {lost}");
        let missing = if lost == 10 { 0 } else { 4 };
        assert_eq!((found.summary.missing, found.summary.damaged), (missing, 0), "sector {lost}");
        assert_eq!(found.summary.ended, (lost < 10).then_some(41));
        assert!(!found.summary.is_whole());
    }
}

#[test]
fn a_record_is_never_found_twice() {
    let mut file = event_file();
    let last = Header { slot_bytes: 128, recorder: 7, event: 1, ..Header::default() };
    for (slot, sequence) in [(1, u64::MAX), (2, u64::MAX), (5, 12), (6, 12)] {
        let header = Header { sequence, ..last };
        file[slot * 128..slot * 128 + 64].copy_from_slice(&header.encode());
    }
    let found = found(&file).unwrap();
    let sequences: Vec<u64> = found.records.iter().map(|record| record.0).collect();
    // Slots 1 and 2 hold no sequence, 5 and 6 one that is behind.
    let expected: Vec<u64> = (10..=50).filter(|n| ![11, 12, 15, 16].contains(n)).collect();
    assert_eq!(sequences, expected);
    assert_eq!((found.summary.damaged, found.summary.missing), (4, 4));
}

#[test]
fn headers_go_both_ways_and_every_flipped_bit_is_noticed() {
    let header = Header {
        slot_bytes: 128,
        recorder: 1,
        event: 2,
        sequence: 3,
        time_ns: 4,
        trigger_sequence: 5,
        payload_bytes: 6,
        payload_crc: 7,
        flags: 2,
    };
    let bytes = header.encode();
    assert_eq!(Header::decode(&bytes), Some(header));
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Header::decode(&bytes), None, "bit {bit}");
    }
    assert_eq!(Header::decode(&bytes[..63]), None);
}
