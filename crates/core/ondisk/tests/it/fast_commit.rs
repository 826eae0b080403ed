//! Tags of fast commits: their bytes, one case per rejection, and bytes that nobody wrote.

use proptest::collection::vec;
use proptest::prelude::*;
use syncline_ondisk::extent::Extent;
use syncline_ondisk::fast_commit::{
    ADD_RANGE, CREAT, DEL_RANGE, Frame, HEAD, INODE, LINK, NameOf, PAD, TAIL, Tag, UNLINK, frames,
};
use syncline_ondisk::{OndiskError, checksum};

const BLOCK: usize = 1024;
const INODE_BYTES: usize = 256;

fn push(bytes: &mut Vec<u8>, tag: u16, value: &[u8]) {
    bytes.extend(tag.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn named(parent: u32, ino: u32, name: &[u8]) -> Vec<u8> {
    [&words(&[parent, ino]), name].concat()
}

/// Decodes the one tag.
fn decode(tag: u16, value: &[u8]) -> Result<String, OndiskError> {
    let mut bytes = Vec::new();
    push(&mut bytes, tag, value);
    let frame = frames(&bytes).next().unwrap();
    Tag::decode(&frame, INODE_BYTES).map(|tag| format!("{tag:?}"))
}

#[track_caller]
fn corrupt(tag: u16, value: &[u8]) {
    let error = decode(tag, value).unwrap_err();
    assert!(matches!(error, OndiskError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("fast commit"), "{error}");
}

#[test]
fn every_tag_reads_as_linux_writes_it() {
    let mut bytes = Vec::new();
    push(&mut bytes, HEAD, &words(&[0, 7]));
    // Blocks 5 to 7 at 0x1_0002_0003, unwritten.
    push(&mut bytes, ADD_RANGE, &words(&[12, 5, 0x0001_8003, 0x0002_0003]));
    push(&mut bytes, DEL_RANGE, &words(&[12, 0x8000_0001, 0x7fff_fffe]));
    push(&mut bytes, INODE, &[&words(&[12])[..], &[3; 160]].concat());
    push(&mut bytes, CREAT, &named(2, 12, b"a"));
    push(&mut bytes, LINK, &named(2, 12, &[b'b'; 255]));
    push(&mut bytes, UNLINK, &named(2, 12, b"a"));
    push(&mut bytes, PAD, &[0; 9]);
    let crc = checksum::crc32c(0, &[&bytes[..], &words(&[0x0014_0008, 7])].concat());
    push(&mut bytes, TAIL, &[&words(&[7, crc])[..], &[9; 12]].concat());
    let split: Vec<Frame<'_>> = frames(&bytes).collect();
    let tags: Vec<Tag<'_>> =
        split.iter().map(|frame| Tag::decode(frame, INODE_BYTES).unwrap()).collect();
    let of = |name| NameOf { parent: 2, ino: 12, name };
    let extent = Extent { block: 5, len: 3, start: 0x1_0002_0003, unwritten: true };
    let expected = [
        Tag::Nothing,
        Tag::AddRange { ino: 12, extent },
        Tag::DelRange { ino: 12, first: 0x8000_0001, end: u32::MAX },
        Tag::Inode { ino: 12, raw: &[3; 160] },
        Tag::Create(of(b"a")),
        Tag::Link(of(&[b'b'; 255])),
        Tag::Unlink(of(b"a")),
        Tag::Nothing,
        Tag::Tail,
    ];
    assert_eq!(tags, expected);
    assert_eq!((split[0].tid(), split[8].tid(), split[1].tid()), (Some(7), Some(7), None));
    let sum = split.iter().fold(0, |crc, frame| frame.checksum(crc));
    assert!(split[8].seals(sum) && !split[8].seals(sum + 1) && !split[0].seals(sum));
    assert_eq!(split[0].features(), 0);
}

#[test]
fn tags_end_where_the_block_ends() {
    let mut bytes = Vec::new();
    push(&mut bytes, PAD, &[0; 4]);
    bytes.extend([1, 0, 0]);
    let mut split = frames(&bytes);
    assert_eq!((split.by_ref().count(), split.is_broken()), (1, false));
    bytes.push(1);
    let mut split = frames(&bytes);
    assert_eq!((split.by_ref().count(), split.is_broken()), (1, true));
    assert_eq!(split.next(), None);
}

#[test]
fn values_that_cannot_be_are_refused() {
    corrupt(ADD_RANGE, &words(&[12, 5, 3]));
    corrupt(ADD_RANGE, &words(&[12, 5, 3, 0, 0]));
    corrupt(ADD_RANGE, &words(&[12, 5, 0, 9]));
    corrupt(ADD_RANGE, &words(&[12, u32::MAX, 1, 9]));
    corrupt(DEL_RANGE, &words(&[12, 2]));
    corrupt(DEL_RANGE, &words(&[12, 2, u32::MAX]));
    corrupt(CREAT, &named(2, 12, b""));
    corrupt(LINK, &named(2, 12, &[b'x'; 256]));
    corrupt(UNLINK, &named(2, 12, b"a/b"));
    corrupt(UNLINK, &named(2, 12, b"a\0"));
    corrupt(LINK, &named(2, 12, b"."));
    corrupt(LINK, &named(2, 12, b".."));
    corrupt(LINK, &words(&[2]));
    corrupt(INODE, &[0; 131]);
    corrupt(INODE, &[0; 4 + INODE_BYTES + 1]);
    corrupt(HEAD, &words(&[0]));
    corrupt(TAIL, &words(&[0]));
    let error = decode(10, &[]).unwrap_err();
    assert!(matches!(&error, OndiskError::Unsupported { feature, .. }
        if feature == "fast_commit tag 10"));
}

/// Bytes in which tags are likely.
fn area() -> impl Strategy<Value = Vec<u8>> {
    let tag = (0u16..11, prop_oneof![vec(any::<u8>(), 0..40), vec(0u8..4, 100..300)]);
    let tags = vec(tag, 0..8).prop_map(|tags| {
        let mut bytes = Vec::new();
        tags.iter().for_each(|(tag, value)| push(&mut bytes, *tag, value));
        bytes.resize(BLOCK.max(bytes.len()), 0);
        bytes
    });
    prop_oneof![tags, vec(any::<u8>(), 0..BLOCK)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes_are_answered(bytes in area(), cut in 0usize..BLOCK) {
        let bytes = &bytes[..cut.min(bytes.len())];
        let mut at = 0;
        for frame in frames(bytes) {
            prop_assert_eq!((frame.offset, frame.bytes.len()), (at, frame.value.len() + 4));
            at += frame.bytes.len();
            let _ = (frame.tid(), frame.features(), frame.seals(frame.checksum(0)));
            match Tag::decode(&frame, INODE_BYTES) {
                Ok(Tag::AddRange { extent, .. }) => prop_assert!(extent.len > 0),
                Ok(Tag::Inode { raw, .. }) => {
                    prop_assert!((128..=INODE_BYTES).contains(&raw.len()));
                }
                _ => {}
            }
        }
    }
}
