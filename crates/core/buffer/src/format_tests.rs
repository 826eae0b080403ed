//! Encoding and its inverse, and what is refused.

use proptest::prelude::*;

use super::*;

const ID: LogId = *b"0123456789abcdef";

fn stamp(sequence: u64) -> Stamp {
    Stamp { id: ID, epoch: 7, sequence, settled: sequence % 2 == 1 }
}

/// Pages with few to many zero words.
fn pages() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::collection::vec(any::<u32>(), 1024);
    (words, 0_u32..40, any::<bool>()).prop_map(|(words, keep, low)| {
        let value = |w: u32| if w % 40 < keep { w } else { u32::from(low && w % 2 == 0) };
        words.into_iter().flat_map(|w| value(w).to_le_bytes()).collect()
    })
}

proptest! {
    #[test]
    fn encoding_is_undone(page in pages(), logical: u64, sequence: u64) {
        let mut stored = page.clone();
        if encode(&mut stored, logical, &stamp(sequence)) {
            let found = parse(&stored, &ID, sequence).unwrap();
            prop_assert_eq!(found.settled, sequence % 2 == 1);
            prop_assert_eq!(found.epoch, 7);
            prop_assert!(parse(&stored, &ID, sequence.wrapping_add(1)).is_none());
            prop_assert!(parse(&stored, &[0; 16], sequence).is_none());
            prop_assert!(decode(&mut stored, logical, &ID, sequence));
        } else {
            prop_assert!(!describes_itself(&page));
            let opaque = encode_opaque(&mut stored, &stamp(sequence));
            prop_assert!(parse(&stored, &ID, sequence).is_none());
            prop_assert!(!opaque_is_good(&stored, opaque, &ID, sequence.wrapping_add(1)));
            prop_assert!(decode_opaque(&mut stored, opaque, &ID, sequence));
        }
        prop_assert!(stored == page);
    }

    #[test]
    fn a_flipped_bit_is_noticed(page in pages(), bit in 0..PAGE_BYTES * 8) {
        let mut stored = page;
        if encode(&mut stored, 3, &stamp(5)) {
            stored[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(parse(&stored, &ID, 5).is_none());
        } else {
            let opaque = encode_opaque(&mut stored, &stamp(5));
            stored[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!opaque_is_good(&stored, opaque, &ID, 5));
        }
    }
}

#[test]
fn a_forged_entry_in_user_data_is_not_parsed() {
    // A user who knows the id writes a perfect entry without zero words to spare.
    let mut forged: Vec<u8> = vec![0; PAGE_BYTES];
    assert!(encode(&mut forged, 9, &stamp(4)));
    for at in HIDDEN_WORDS..1024 {
        set_word(&mut forged, at, 0xffff_ffff);
    }
    let crc = checksum(&ID, &forged);
    set_word(&mut forged, 1, crc);
    assert!(parse(&forged, &ID, 4).is_some(), "the forgery is perfect");
    assert!(!encode(&mut forged, 1, &stamp(4)), "it has to be opaque");
    encode_opaque(&mut forged, &stamp(4));
    assert!(parse(&forged, &ID, 4).is_none());
}

#[test]
fn places_within_the_description_are_refused() {
    let mut page = vec![0; PAGE_BYTES];
    assert!(encode(&mut page, 1, &stamp(2)));
    page[24] = 3;
    let crc = checksum(&ID, &page);
    set_word(&mut page, 1, crc);
    assert!(parse(&page, &ID, 2).is_none());
}

#[test]
fn headers_and_superblocks_come_back() {
    let mut page = vec![1; PAGE_BYTES];
    let opaque: Vec<_> =
        (0..200).map(|i| (u64::MAX - i, Opaque { crc: 5, first_word: i as u32 })).collect();
    let dropped = vec![Range { first: 3, pages: u64::MAX }; ITEMS_MAX - 200];
    encode_header(&mut page, &stamp(3), &opaque, &dropped);
    let found = parse(&page, &ID, 3).unwrap();
    assert!(found.settled);
    assert_eq!(found.content, Content::Header { opaque, dropped });
    page[16] = 255;
    let crc = checksum(&ID, &page);
    set_word(&mut page, 1, crc);
    assert!(parse(&page, &ID, 3).is_none(), "more items than fit");

    let superblock = Superblock {
        epoch: 9,
        generation: 10,
        id: ID,
        home_bytes: 11,
        ring_pages: 12,
        tail: 13,
        tail_epoch: 8,
    };
    let mut page = superblock.encode();
    assert_eq!(Superblock::parse(&page), MaybeSuperblock::Good(superblock));
    page[56] ^= 1;
    assert_eq!(Superblock::parse(&page), MaybeSuperblock::Torn);
    assert!(page[512..].iter().all(|&byte| byte == 0), "one sector, which no cut tears");
    page[8] = 1;
    assert_eq!(Superblock::parse(&page), MaybeSuperblock::Version(1));
    assert_eq!(Superblock::parse(&[0; PAGE_BYTES]), MaybeSuperblock::None);
}
