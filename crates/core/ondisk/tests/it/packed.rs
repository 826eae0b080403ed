//! Packed log records: round trips, one case per rejection, and bytes that nobody wrote.

use proptest::collection::vec;
use proptest::prelude::*;
use syncline_ondisk::packed::{
    Base, CHUNK_BYTES, ENTRY_BYTES, HEADER_BYTES, Previous, Record, RecordBuilder, RecordHeader,
    RecordId, seed,
};
use syncline_ondisk::{OndiskError, checksum};

const BLOCK: usize = 4096;

fn id() -> RecordId {
    RecordId { seed: seed(&[7; 16]), epoch: 0x1122_3344_5566_7788, sequence: 9 }
}

/// A block of zeros with `byte` in these chunks.
fn image(chunks: &[usize], byte: u8) -> Vec<u8> {
    let mut image = vec![0; BLOCK];
    for chunk in chunks {
        image[chunk * CHUNK_BYTES..(chunk + 1) * CHUNK_BYTES].fill(byte);
    }
    image
}

/// The record of one block with two runs, changed by `f` and summed anew.
fn broken(f: impl FnOnce(&mut Vec<u8>)) -> OndiskError {
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    builder.push(1000, Previous::Unknown, &image(&[1, 5], 3)).unwrap();
    let mut bytes = builder.finish(id(), BLOCK).unwrap();
    f(&mut bytes);
    let len = RecordHeader::decode(&bytes).map_or(0, |header| header.length as usize);
    if len <= bytes.len() {
        let crc = checksum::crc32c_skipping(id().seed, &bytes[..len], 0x1c);
        bytes[0x1c..0x20].copy_from_slice(&crc.to_le_bytes());
        assert!(len < HEADER_BYTES || Record::is_whole(&bytes, id()));
    }
    Record::parse(&bytes, BLOCK).map(|_| ()).unwrap_err()
}

#[track_caller]
fn corrupt(error: &OndiskError, offset: usize, said: &str) {
    let OndiskError::Corrupt { at, detail, .. } = error else { panic!("{error:?}") };
    assert!(at.offset == Some(offset) && detail.contains(said), "{error:?}");
}

#[track_caller]
fn unsupported(error: &OndiskError, name: &str) {
    let OndiskError::Unsupported { feature, .. } = error else { panic!("{error:?}") };
    assert_eq!(feature, &format!("packed log record {name}"));
}

#[test]
fn the_bytes_of_a_small_record_are_these() {
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    let before = image(&[1, 2], 3);
    let after = image(&[1, 5], 3);
    assert_eq!(
        builder.push(0x0102_0304_0506, Previous::Image(&before), &after).unwrap(),
        Base::Previous
    );
    assert_eq!(builder.len_bytes(), HEADER_BYTES + ENTRY_BYTES + 2 * 4 + 2 * CHUNK_BYTES);
    let bytes = builder.finish(id(), 4096).unwrap();
    assert_eq!(bytes.len(), 4096);
    assert_eq!(bytes[..8], *b"sLp1\x01\0\0\0");
    assert_eq!(
        bytes[8..24],
        [9, 0, 0, 0, 116, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
    );
    assert_eq!(bytes[24..28], [1, 0, 0, 0]);
    let entry = [6, 5, 4, 3, 2, 1, 1, 1, 2, 0, 0, 0];
    assert_eq!(bytes[32..44], entry, "block, previous, runs, two of them");
    assert_eq!(bytes[44..52], [2, 0, 1, 0, 5, 0, 1, 0], "chunks 2 and 5");
    assert_eq!(bytes[52..84], [0; 32]);
    assert_eq!(bytes[84..116], [3; 32]);
    assert!(bytes[116..].iter().all(|byte| *byte == 0));
}

#[test]
fn each_block_takes_the_shortest_encoding() {
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    let full = vec![1; BLOCK];
    let mut len = builder.len_bytes();
    let mut push = |previous: Previous<'_>, image: &[u8]| {
        let base = builder.push(1, previous, image).unwrap();
        let bytes = builder.len_bytes() - len;
        len = builder.len_bytes();
        (base, bytes)
    };
    let image_of = Previous::Image;
    assert_eq!(push(Previous::Unknown, &full), (Base::Zeros, ENTRY_BYTES + BLOCK));
    assert_eq!(push(image_of(&full), &full), (Base::Previous, ENTRY_BYTES));
    assert_eq!(push(image_of(&full), &image(&[4], 9)), (Base::Zeros, ENTRY_BYTES + 4 + 32));
    assert_eq!(push(Previous::Unknown, &image(&[], 9)), (Base::Zeros, ENTRY_BYTES));
    // Every second chunk: runs are shorter than the block up to a limit.
    let every_second: Vec<usize> = (0..BLOCK / CHUNK_BYTES).step_by(2).collect();
    let bytes = ENTRY_BYTES + every_second.len() * 36;
    assert_eq!(push(Previous::Unknown, &image(&every_second, 9)), (Base::Zeros, bytes));
}

#[test]
fn only_a_record_of_this_identity_is_whole() {
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    builder.push(1000, Previous::Unknown, &image(&[1], 3)).unwrap();
    let bytes = builder.finish(id(), BLOCK).unwrap();
    assert!(Record::is_whole(&bytes, id()));
    assert!(!Record::is_whole(&bytes, RecordId { sequence: 10, ..id() }));
    assert!(!Record::is_whole(&bytes, RecordId { epoch: 1, ..id() }));
    assert!(!Record::is_whole(&bytes, RecordId { seed: seed(&[8; 16]), ..id() }));
    let len = RecordHeader::decode(&bytes).unwrap().length as usize;
    for at in 0..len {
        let mut torn = bytes.clone();
        torn[at] ^= 0x10;
        assert!(!Record::is_whole(&torn, id()), "byte {at}");
    }
    for cut in 0..len {
        assert!(!Record::is_whole(&bytes[..cut], id()));
    }
    assert!(Record::is_whole(&bytes[..len], id()), "the padding is not part of it");
}

#[test]
fn each_broken_rule_is_named() {
    corrupt(&broken(|b| b[0] = 0), 0, "no record");
    unsupported(&broken(|b| b[4] = 2), "version 2");
    corrupt(&broken(|b| b[6] = 1), 6, "reserved");
    corrupt(&broken(|b| b[0x0c..0x10].fill(0xff)), 0x0c, "4294967295 bytes of 4096");
    corrupt(&broken(|b| b[0x0c..0x10].fill(0)), 0x0c, "0 bytes of 4096");
    corrupt(&broken(|b| b[0x18] = 200), 0x18, "200 entries");
    corrupt(&broken(|b| b[0x18..0x1c].fill(0xff)), 0x18, "4294967295 entries");
    corrupt(&broken(|b| b[0x18] = 0), 0x0c, "behind the last entry");
    unsupported(&broken(|b| b[38] = 2), "base 2");
    unsupported(&broken(|b| b[39] = 0), "encoding 0");
    unsupported(&broken(|b| b[39] = 5), "encoding 5");
    corrupt(&broken(|b| b[42] = 1), 42, "without any");
    corrupt(&broken(|b| b[39] = 3), 42, "0 bytes do not inflate to 64");
    corrupt(&broken(|b| (b[39], b[42]) = (3, 64)), 42, "64 bytes do not inflate to 64");
    corrupt(&broken(|b| (b[39], b[42]) = (3, 65)), 40, "shorter");
    corrupt(&broken(|b| b[39] = 4), 38, "whole block");
    corrupt(&broken(|b| b[39] = 2), 38, "whole block");
    corrupt(&broken(|b| b[40] = 200), 40, "shorter");
    corrupt(&broken(|b| b[46] = 200), 32, "run of 200 chunks at 1 of 128");
    corrupt(&broken(|b| b[46] = 3), 40, "shorter");
    corrupt(&broken(|b| b[44..46].fill(0xff)), 32, "run of 1 chunks at 65535");
    corrupt(&broken(|b| b[44] = 128), 32, "run of 1 chunks at 128 of 128");
    corrupt(&broken(|b| b[48] = 1), 32, "run of 1 chunks at 1");
    corrupt(&broken(|b| b[48] = 0), 32, "run of 1 chunks at 0");
    // Both chunks in the second run: the first has none.
    corrupt(&broken(|b| (b[46], b[50]) = (0, 2)), 32, "run of 0 chunks");
}

#[test]
fn blocks_that_cannot_be_logged_are_refused() {
    for size in [0, 16, 100, 65536 + 32] {
        assert!(RecordBuilder::new(size).is_err(), "{size}");
    }
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    assert!(builder.push(1 << 48, Previous::Unknown, &[0; BLOCK]).is_err());
    assert!(builder.push(1, Previous::Unknown, &[0; 32]).is_err());
    assert!(builder.push(1, Previous::Image(&[0; 32]), &[0; BLOCK]).is_err());
    let bytes = builder.finish(id(), BLOCK).unwrap();
    assert!(Record::parse(&bytes, 100).is_err());
    assert_eq!(Record::parse(&bytes, BLOCK).unwrap().entries().count(), 0);
}

/// A block of few different chunks, so that blocks have some in common.
fn block() -> impl Strategy<Value = Vec<u8>> {
    vec(0u8..3, 1024 / CHUNK_BYTES)
        .prop_map(|chunks| chunks.into_iter().flat_map(|byte| [byte; CHUNK_BYTES]).collect())
}

fn known(previous: &Option<Vec<u8>>) -> Previous<'_> {
    previous.as_deref().map_or(Previous::Unknown, Previous::Image)
}

/// Rows of text, so that a page of them shrinks.
fn text(rows: usize, from: usize) -> Vec<u8> {
    let mut text: Vec<u8> = (from..from + rows)
        .flat_map(|row| format!("row {row} of a table; ").into_bytes())
        .collect();
    text.resize(BLOCK, 0);
    text
}

#[test]
fn a_mask_stands_for_the_bytes_of_its_parts() {
    for (block_size, part) in [(1024, 32), (2048, 32), (4096, 64), (65536, 1024)] {
        let mut builder = RecordBuilder::new(block_size).unwrap();
        let image: Vec<u8> = (0..block_size).map(|at| (at % 251) as u8 + 1).collect();
        let mask = 1 | 1 << 9 | 1 << 63;
        assert_eq!(builder.push(7, Previous::Changed(mask), &image).unwrap(), Base::Previous);
        let bytes = builder.finish(id(), block_size).unwrap();
        let mut made = vec![0; block_size];
        Record::parse(&bytes, block_size).unwrap().entries().for_each(|e| e.apply(&mut made));
        for (at, byte) in made.iter().enumerate() {
            // Parts of less than a chunk of 32 bytes stand for the chunk.
            let bits = match block_size {
                1024 => at / 32 * 2..at / 32 * 2 + 2,
                _ => at / part..at / part + 1,
            };
            let is_logged = bits.into_iter().any(|bit| mask >> bit & 1 == 1);
            assert_eq!(*byte, if is_logged { image[at] } else { 0 }, "{block_size}: byte {at}");
        }
    }
}

#[test]
fn payloads_are_deflated_only_where_that_saves_a_unit() {
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    builder.push(1, Previous::Unknown, &text(60, 0)).unwrap();
    let bytes = builder.finish(id(), BLOCK).unwrap();
    assert_eq!((bytes.len(), bytes[39]), (BLOCK, 1), "one unit as it is: plain runs");

    let pages: Vec<Vec<u8>> = (0..3).map(|page| text(180, page * 200)).collect();
    let mut builder = RecordBuilder::new(BLOCK).unwrap();
    for (block, page) in (0..).zip(&pages) {
        builder.push(block, Previous::Unknown, page).unwrap();
    }
    assert!(builder.len_bytes() > 2 * BLOCK);
    let bytes = builder.finish(id(), BLOCK).unwrap();
    assert_eq!(bytes.len(), BLOCK);
    let record = Record::parse(&bytes, BLOCK).unwrap();
    for (entry, page) in record.entries().zip(&pages) {
        let mut made = vec![0xee; BLOCK];
        entry.apply(&mut made);
        assert_eq!(made, *page);
    }
    // Every change of a deflated stream is refused or gives a block, never a panic.
    let len = RecordHeader::decode(&bytes).unwrap().length as usize;
    for at in HEADER_BYTES..len {
        let mut broken = bytes.clone();
        broken[at] ^= 0x24;
        if let Ok(record) = Record::parse(&broken, BLOCK) {
            record.entries().for_each(|entry| entry.apply(&mut vec![0; BLOCK]));
        }
    }
}

proptest! {
    #[test]
    fn records_give_back_their_images(
        blocks in vec((0u64..1 << 48, proptest::option::of(block()), block()), 0..8),
    ) {
        let mut builder = RecordBuilder::new(1024).unwrap();
        let mut bases = Vec::new();
        for (block, previous, image) in &blocks {
            bases.push(builder.push(*block, known(previous), image).unwrap());
        }
        let len = builder.len_bytes();
        prop_assert!(len <= HEADER_BYTES + blocks.len() * (ENTRY_BYTES + 1024));
        let bytes = builder.finish(id(), 1024).unwrap();
        // Deflating may make it shorter.
        prop_assert!(Record::is_whole(&bytes, id()) && bytes.len() <= len.next_multiple_of(1024));
        let entries: Vec<_> = Record::parse(&bytes, 1024).unwrap().entries().collect();
        prop_assert_eq!(entries.len(), blocks.len());
        for ((entry, (block, previous, image)), base) in entries.iter().zip(&blocks).zip(bases) {
            prop_assert_eq!((entry.block, entry.base), (*block, base));
            // An image that does not count when the entry is relative to zeros.
            let mut made = previous.clone().unwrap_or_else(|| vec![0xee; 1024]);
            entry.apply(&mut made);
            prop_assert!(made == *image);
        }
    }

    /// Recovery writes all live records of a block over whatever its home block holds: sector by
    /// sector any of the images since the first record's base.
    #[test]
    fn records_over_any_torn_mixture_of_their_images_give_the_newest(
        images in vec(block(), 2..6), torn in any::<[prop::sample::Index; 2]>(),
    ) {
        let mut home = vec![0; 1024];
        for (sector, from) in torn.into_iter().enumerate() {
            let sector = sector * 512..(sector + 1) * 512;
            home[sector.clone()].copy_from_slice(&from.get(&images)[sector]);
        }
        for pair in images.windows(2) {
            let mut builder = RecordBuilder::new(1024).unwrap();
            builder.push(5, Previous::Image(&pair[0]), &pair[1]).unwrap();
            let bytes = builder.finish(id(), 1024).unwrap();
            Record::parse(&bytes, 1024).unwrap().entries().for_each(|e| e.apply(&mut home));
        }
        prop_assert!(home == *images.last().unwrap());
    }

    #[test]
    fn any_bytes_are_answered(
        mut bytes in vec(any::<u8>(), 0..600),
        changes in vec((0usize..300, any::<u8>()), 0..6),
    ) {
        let _ = Record::parse(&bytes, 1024);
        let mut builder = RecordBuilder::new(1024).unwrap();
        let mut image = vec![0; 1024];
        bytes.truncate(1024);
        image[..bytes.len()].copy_from_slice(&bytes);
        builder.push(3, Previous::Unknown, &image).unwrap();
        builder.push(4, Previous::Image(&image), &vec![0; 1024]).unwrap();
        let mut record = builder.finish(id(), 1024).unwrap();
        for (at, byte) in changes {
            record[at] = byte;
        }
        if let Ok(record) = Record::parse(&record, 1024) {
            for entry in record.entries() {
                entry.apply(&mut image);
            }
        }
    }
}
