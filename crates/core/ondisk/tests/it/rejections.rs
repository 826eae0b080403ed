//! One case per rule that a decoder enforces, on hand-made bytes: the error names the structure and
//! the offset of the broken field.

use syncline_ondisk::extent::{self, Extent, ExtentIndex, Node, NodeLimits, NodeMut};
use syncline_ondisk::htree::{self, HashVersion, NodeKind};
use syncline_ondisk::jbd2::{JournalChecksum, JournalIncompat, JournalSuperblock, Layout};
use syncline_ondisk::xattr::{Place, XattrSet};
use syncline_ondisk::{Geometry, Inode, OndiskError, Result, Superblock, Timestamp, dir, xattr};

fn put16(raw: &mut [u8], at: usize, value: u16) {
    raw[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put32(raw: &mut [u8], at: usize, value: u32) {
    raw[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[track_caller]
fn corrupt_at<T: std::fmt::Debug>(result: Result<T>, offset: usize) {
    match result {
        Err(OndiskError::Corrupt { at, detail, .. }) => {
            assert_eq!(at.offset, Some(offset), "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

/// 16 MiB, 1 KiB blocks, two groups of 8192 blocks (the last one short), 128 inodes each.
fn superblock() -> Vec<u8> {
    let mut raw = vec![0; 1024];
    for (at, word) in [
        (0x00, 256u32),
        (0x04, 16384),
        (0x14, 1),
        (0x20, 8192),
        (0x24, 8192),
        (0x28, 128),
        (0x38, 0x0001_ef53),
        (0x4c, 1),
        (0x54, 11),
        (0x58, 256),
        (0x60, 0x2c2),
        (0xfc, 0x0040_0000),
    ] {
        put32(&mut raw, at, word);
    }
    raw
}

fn geometry(raw: &[u8]) -> Result<Geometry> {
    Geometry::new(&Superblock::decode(raw)?, 16 << 20)
}

#[test]
fn geometry_of_a_good_superblock() {
    let geo = geometry(&superblock()).unwrap();
    assert_eq!((geo.group_count, geo.gdt_blocks, geo.desc_size, geo.itable_blocks), (2, 1, 64, 32));
    assert_eq!((geo.group_blocks(0), geo.group_blocks(1), geo.group_blocks(2)), (8192, 8191, 0));
    assert_eq!(geo.block_group(0), None);
    assert_eq!(geo.block_group(8193), Some((1, 0)));
    assert_eq!(geo.block_group(16384), None);
    assert_eq!((geo.inode_group(0), geo.inode_group(129)), (None, Some((1, 0))));
    assert_eq!(geo.inode_group(257), None);
    assert_eq!(geo.inode_slot(5), (1, 256));
    assert!(geo.is_valid_range(2, 16382) && !geo.is_valid_range(2, 16383));
    assert!(!geo.is_valid_range(1, 1) && !geo.is_valid_range(5, u64::MAX));
}

#[test]
fn superblock_sizes() {
    corrupt_at(Superblock::decode(&[0; 1024]), 0x38);
    assert!(Superblock::decode(&superblock()[..1023]).is_err());
    // Field, width, value, and the offset the error names.
    let cases: [(usize, usize, u32, usize); 22] = [
        (0x18, 4, 7, 0x18),
        (0x18, 4, u32::MAX, 0x18),
        (0x1c, 4, 2, 0x1c),
        (0x20, 4, 0, 0x20),
        (0x20, 4, 8191, 0x20),
        (0x20, 4, 8200, 0x20),
        (0x24, 4, 4096, 0x24),
        (0x28, 4, 0, 0x28),
        (0x28, 4, 8200, 0x28),
        (0x28, 4, 12, 0x28),
        (0x14, 4, 0, 0x14),
        (0x58, 2, 0, 0x58),
        (0x58, 2, 64, 0x58),
        (0x58, 2, 192, 0x58),
        (0x58, 2, 2048, 0x58),
        (0xfe, 2, 32, 0xfe),
        (0xfe, 2, 96, 0xfe),
        (0x04, 4, 16385, 0x04),
        (0x04, 4, 1, 0x04),
        (0x00, 4, 255, 0x00),
        (0x54, 4, 10, 0x54),
        (0xce, 2, 300, 0xce),
    ];
    for (at, width, value, offset) in cases {
        let mut raw = superblock();
        match width {
            2 => put16(&mut raw, at, value as u16),
            _ => put32(&mut raw, at, value),
        }
        corrupt_at(geometry(&raw), offset);
    }
    let mut raw = superblock();
    put32(&mut raw, 0x60, 0x2d2);
    put32(&mut raw, 0x104, 9);
    corrupt_at(geometry(&raw), 0x104);
    raw[0x174] = 32;
    put32(&mut raw, 0x104, 0);
    corrupt_at(geometry(&raw), 0x174);
}

#[test]
fn superblock_features_beyond_the_words() {
    let mut raw = superblock();
    put32(&mut raw, 0x5c, 4);
    let refused = |raw: &[u8]| match Superblock::decode(raw).unwrap().check_features() {
        Err(OndiskError::Unsupported { feature, .. }) => feature,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&raw), "external journal");
    put32(&mut raw, 0xe0, 8);
    assert!(Superblock::decode(&raw).unwrap().check_features().is_ok());
    put32(&mut raw, 0x4c, 2);
    assert_eq!(refused(&raw), "revision 2");
    put32(&mut raw, 0x4c, 1);
    put32(&mut raw, 0x64, 0x400);
    assert_eq!(refused(&raw), "checksum type 0");
    raw[0x175] = 1;
    let sb = Superblock::decode(&raw).unwrap();
    corrupt_at(sb.verify_checksum(&raw), 0x3fc);
    sb.encode_into(&mut raw).unwrap();
    let sb = Superblock::decode(&raw).unwrap();
    sb.verify_checksum(&raw).unwrap();
    raw[0x88] ^= 1;
    assert!(sb.verify_checksum(&raw).is_err());
}

#[test]
fn inode_bytes() {
    let mut raw = [0u8; 256];
    assert!(Inode::decode(&raw[..127]).is_err());
    put16(&mut raw, 0x80, 129);
    corrupt_at(Inode::decode(&raw), 0x80);
    put16(&mut raw, 0x80, 30);
    corrupt_at(Inode::decode(&raw), 0x80);
    put16(&mut raw, 0x80, 32);
    put16(&mut raw, 0x00, 0x81a4);
    put16(&mut raw, 0x02, 0x2345);
    put16(&mut raw, 0x78, 0x0001);
    put32(&mut raw, 0x04, 5);
    put32(&mut raw, 0x6c, 1);
    put32(&mut raw, 0x10, u32::MAX);
    put32(&mut raw, 0x88, 7 << 2 | 1);
    put32(&mut raw, 0x08, u32::MAX);
    let inode = Inode::decode(&raw).unwrap();
    assert_eq!((inode.i_uid, inode.i_size), (0x1_2345, 0x1_0000_0005));
    // -1 in epoch 1 is one second before 2^32.
    assert_eq!(inode.i_mtime, Timestamp { seconds: 0xffff_ffff, nanoseconds: 7 });
    assert_eq!(inode.i_atime, Timestamp { seconds: -1, nanoseconds: 0 });
    assert_eq!(inode.xattr_range(256), Some(160..256));
    assert_eq!(Inode::new(0x81a4, 0).xattr_range(128), None);
    corrupt_at(inode.verify_checksum(&raw, 1), 0x7c);
    let mut short = [0u8; 128];
    assert!(inode.encode_into(&mut short, None).is_err(), "no room for the extra fields");
}

#[test]
fn inode_clamps_and_units() {
    let mut inode = Inode::new(0x81a4, 0);
    inode.i_mtime = Timestamp { seconds: 1 << 33, nanoseconds: 5 };
    let mut raw = [0u8; 128];
    inode.encode_into(&mut raw, Some(3)).unwrap();
    let back = Inode::decode(&raw).unwrap();
    assert_eq!(back.i_mtime, Timestamp { seconds: 0x7fff_ffff, nanoseconds: 0 });
    back.verify_checksum(&raw, 3).unwrap();

    inode.set_sectors(1 << 32, 4096, false).unwrap_err();
    inode.set_sectors(1 << 40, 4096, true).unwrap();
    assert_eq!((inode.i_blocks, inode.sectors(4096)), (1 << 40, 1 << 40));
    inode.set_sectors(1 << 49, 4096, true).unwrap();
    assert_eq!((inode.i_blocks, inode.sectors(4096)), (1 << 46, 1 << 49));
    for (major, minor) in [(8, 1), (255, 255), (259, 3), (4095, 0xf_ffff), (1, 256)] {
        inode.set_device_number(major, minor);
        assert_eq!(inode.device_number(), (major, minor));
    }
}

const LIMITS: NodeLimits =
    NodeLimits { first: 0, end: 1 << 32, depth: None, blocks_first: 1, blocks_end: 1000 };

fn leaf(extents: &[(u32, u32, u64)]) -> Vec<u8> {
    let mut raw = vec![0; 60];
    let mut node = NodeMut::init(&mut raw, 0);
    for (i, (block, len, start)) in extents.iter().enumerate() {
        let extent = Extent { block: *block, len: *len, start: *start, unwritten: false };
        node.insert_extent(i, &extent).unwrap();
    }
    raw
}

#[test]
fn extent_nodes() {
    let good = leaf(&[(0, 4, 10), (8, 2, 20)]);
    let node = Node::parse(&good, &LIMITS).unwrap();
    assert_eq!((node.search(3), node.search(8), node.search(100)), (Some(0), Some(1), Some(1)));
    assert_eq!(node.extent(1).unwrap().map(9), Some(21));
    assert_eq!(node.extent(1).unwrap().map(10), None);

    let edit = |at: usize, value: u16| {
        let mut raw = good.clone();
        put16(&mut raw, at, value);
        raw
    };
    corrupt_at(Node::parse(&edit(0, 0xf30b), &LIMITS), 0);
    corrupt_at(Node::parse(&edit(2, 5), &LIMITS), 2);
    corrupt_at(Node::parse(&edit(4, 0), &LIMITS), 4);
    corrupt_at(Node::parse(&edit(4, 5), &LIMITS), 4);
    corrupt_at(Node::parse(&edit(6, 6), &LIMITS), 6);
    corrupt_at(Node::parse(&good, &NodeLimits { depth: Some(1), ..LIMITS }), 6);
    let mut empty_index = vec![0; 60];
    NodeMut::init(&mut empty_index, 1);
    corrupt_at(Node::parse(&empty_index, &LIMITS), 2);
    corrupt_at(Node::parse(&leaf(&[(0, 0, 10)]), &LIMITS), 12);
    corrupt_at(Node::parse(&leaf(&[(0, 4, 10), (3, 1, 20)]), &LIMITS), 24);
    corrupt_at(Node::parse(&leaf(&[(8, 4, 10), (3, 1, 20)]), &LIMITS), 24);
    corrupt_at(Node::parse(&leaf(&[(0, 4, 0)]), &LIMITS), 12);
    corrupt_at(Node::parse(&leaf(&[(0, 4, 997)]), &LIMITS), 12);
    corrupt_at(Node::parse(&leaf(&[(0, 4, (1 << 48) - 1)]), &LIMITS), 12);
    corrupt_at(Node::parse(&leaf(&[(u32::MAX, 2, 10)]), &LIMITS), 12);
    corrupt_at(Node::parse(&good, &NodeLimits { first: 1, ..LIMITS }), 12);
    corrupt_at(Node::parse(&good, &NodeLimits { end: 9, ..LIMITS }), 24);
    assert!(Node::parse(&good[..11], &LIMITS).is_err());
}

#[test]
fn extent_index_nodes() {
    let index = |entries: &[(u32, u64)]| {
        let mut raw = vec![0; 1024];
        let mut node = NodeMut::init(&mut raw, 2);
        for (i, (block, leaf)) in entries.iter().enumerate() {
            node.insert_index(i, &ExtentIndex { block: *block, leaf: *leaf }).unwrap();
        }
        raw
    };
    let raw = index(&[(0, 5), (100, 6)]);
    let node = Node::parse(&raw, &LIMITS).unwrap();
    let child = LIMITS.child(&node, 0);
    assert_eq!((child.first, child.end, child.depth), (0, 100, Some(1)));
    let child = LIMITS.child(&node, 1);
    assert_eq!((child.first, child.end), (100, 1 << 32));
    corrupt_at(Node::parse(&index(&[(5, 5), (5, 6)]), &LIMITS), 24);
    corrupt_at(Node::parse(&index(&[(0, 1000)]), &LIMITS), 12);
    corrupt_at(Node::parse(&index(&[(0, 0)]), &LIMITS), 12);

    let mut raw = index(&[(0, 5), (100, 6)]);
    extent::set_block_checksum(&mut raw, 4);
    extent::verify_block_checksum(&raw, 4).unwrap();
    raw[13] ^= 1;
    assert!(extent::verify_block_checksum(&raw, 4).is_err());
}

#[test]
fn extent_node_edits() {
    let mut raw = leaf(&[(0, 1, 10), (2, 1, 20), (4, 1, 30), (6, 1, 40)]);
    let mut other = vec![0; 1024];
    let mut node = NodeMut::parse(&mut raw).unwrap();
    let extra = Extent { block: 8, len: UNWRITTEN, start: 50, unwritten: true };
    const UNWRITTEN: u32 = extent::UNWRITTEN_MAX_LEN;
    assert!(matches!(node.insert_extent(4, &extra), Err(OndiskError::Full { .. })));
    let mut target = NodeMut::init(&mut other, 0);
    assert_eq!(target.as_node().max(), 84);
    node.move_tail_to(2, &mut target).unwrap();
    assert!(node.insert_extent(3, &extra).is_err(), "a hole in the entries");
    node.insert_extent(1, &extra).unwrap();
    let blocks = |node: Node<'_>| node.extents().map(|e| e.block).collect::<Vec<_>>();
    assert_eq!(blocks(node.as_node()), [0, 8, 2]);
    assert_eq!(node.as_node().extent(1), Some(extra));
    assert_eq!(blocks(target.as_node()), [4, 6]);
    node.remove(0..2);
    node.remove(5..9);
    assert_eq!(blocks(node.as_node()), [2]);
    assert!(raw[24..].iter().all(|b| *b == 0), "freed places are zero");
    let written = |block, len, start| Extent { block, len, start, unwritten: false };
    assert!(written(0, 4, 10).can_merge(&written(4, 1, 14)));
    assert!(!written(0, 4, 10).can_merge(&written(4, 1, 15)));
    assert!(!written(0, 32768, 10).can_merge(&written(32768, 1, 32778)));
}

const FORMAT: dir::DirFormat = dir::DirFormat { tail: true, filetype: true, inodes_count: 100 };

#[test]
fn directory_entries() {
    let mut good = vec![0; 1024];
    dir::init_dots(&mut good, &FORMAT, 2, 2);
    dir::insert(&mut good, &FORMAT, b"hello", 12, 1).unwrap();
    let dots = b"\x02\0\0\0\x0c\0\x01\x02.\0\0\0\x02\0\0\0\x0c\0\x02\x02..\0\0";
    assert_eq!(&good[..24], dots);
    assert_eq!(&good[24..37], b"\x0c\0\0\0\xdc\x03\x05\x01hello");
    assert_eq!(&good[1012..1020], b"\0\0\0\0\x0c\0\0\xde");
    let check = |at: usize, value: u16, offset| {
        let mut raw = good.clone();
        put16(&mut raw, at, value);
        let error = dir::Entries::new(&raw, &FORMAT).find_map(Result::err).expect("an error");
        corrupt_at::<()>(Err(error), offset);
        assert!(dir::Entries::new(&raw, &FORMAT).count() < 5, "it ends after an error");
    };
    check(4, 0, 0);
    check(4, 8, 0);
    check(4, 13, 0);
    check(4, 1016, 0);
    check(4, 1004, 0);
    check(16, 8, 12);
    check(18, 0x02ff, 12);
    check(24, 101, 24);
    check(30, 0x0100, 24);
    assert!(dir::insert(&mut good, &FORMAT, b"", 12, 1).is_err());
    assert!(dir::insert(&mut good, &FORMAT, &[b'x'; 256], 12, 1).is_err());
    assert!(dir::remove(&mut good, &FORMAT, 13).is_err());
    corrupt_at(dir::verify_checksum(&good, &FORMAT, 1), 1020);
    good[1019] = 0;
    corrupt_at(dir::verify_checksum(&good, &FORMAT, 1), 1012);
}

#[test]
fn record_lengths_of_64k_blocks() {
    let size = 65536;
    for len in [12, 1024, 65532, 65536] {
        assert_eq!(dir::rec_len_from_disk(dir::rec_len_to_disk(len, size), size), len);
    }
    assert_eq!(dir::rec_len_to_disk(65536, size), 0xffff);
    assert_eq!(dir::rec_len_from_disk(0, size), 65536);
    let mut block = vec![0; size];
    let format = dir::DirFormat { tail: false, ..FORMAT };
    dir::init_empty(&mut block, &format);
    let offset = dir::insert(&mut block, &format, b"name", 9, 1).unwrap();
    assert_eq!(dir::find(&block, &format, b"name").unwrap().unwrap().rec_len, 65536);
    dir::remove(&mut block, &format, offset).unwrap();
    assert!(dir::is_empty(&block, &format).unwrap());
}

#[test]
fn index_blocks() {
    let mut root = vec![0; 1024];
    htree::init_root(&mut root, &FORMAT, 2, 2, HashVersion::HalfMd4, 1);
    assert_eq!(&root[24..40], b"\0\0\0\0\x01\x08\0\0\x7b\0\x01\0\x01\0\0\0");
    let parse = |raw: &[u8]| htree::Node::parse(raw, NodeKind::Root, true, 200).map(|n| n.len());
    for i in 1..123u32 {
        let entry = htree::Entry { hash: i * 2, block: i + 1 };
        let after = i as usize - 1;
        htree::insert_entry(&mut root, NodeKind::Root, true, after, entry).unwrap();
    }
    let more = htree::Entry { hash: 9, block: 9 };
    let full = htree::insert_entry(&mut root, NodeKind::Root, true, 0, more);
    assert!(matches!(full, Err(OndiskError::Full { .. })));
    assert_eq!(parse(&root), Ok(123));
    let edit = |at: usize, value: u8| {
        let mut raw = root.clone();
        raw[at] = value;
        raw
    };
    corrupt_at(htree::root_info(&edit(0x18, 1), false), 0x18);
    corrupt_at(htree::root_info(&edit(0x1d, 9), false), 0x1d);
    corrupt_at(htree::root_info(&edit(0x1e, 2), false), 0x1e);
    assert!(htree::root_info(&edit(0x1e, 2), true).is_ok());
    corrupt_at(htree::root_info(&edit(0x1f, 1), false), 0x1f);
    corrupt_at(parse(&edit(0x20, 124)), 0x20);
    corrupt_at(parse(&edit(0x22, 124)), 0x22);
    corrupt_at(parse(&edit(0x22, 0)), 0x22);
    corrupt_at(parse(&edit(0x24, 0)), 0x20);
    corrupt_at(parse(&edit(0x24, 200)), 0x20);
    corrupt_at(parse(&edit(0x30, 1)), 0x30);
    htree::set_checksum(&mut root, NodeKind::Root, 3);
    htree::verify_checksum(&root, NodeKind::Root, 3).unwrap();
    root[0x28] ^= 1;
    assert!(htree::verify_checksum(&root, NodeKind::Root, 3).is_err());
    root[0x28] ^= 1;

    let (mut child, mut sibling) = (vec![0; 1024], vec![0; 1024]);
    htree::push_down_root(&mut root, &FORMAT, &mut child, 150).unwrap();
    assert_eq!(htree::root_info(&root, false).unwrap().indirect_levels, 1);
    assert_eq!(parse(&root), Ok(1));
    let hash = htree::split_node(&mut child, NodeKind::Inner, &FORMAT, 60, &mut sibling).unwrap();
    assert_eq!(hash, 120);
    let left = htree::Node::parse(&child, NodeKind::Inner, true, 200).unwrap();
    let right = htree::Node::parse(&sibling, NodeKind::Inner, true, 200).unwrap();
    assert_eq!((left.len(), right.len()), (60, 63));
    assert_eq!((left.search(118), left.search(117), left.search(1)), (59, 58, 0));
    assert_eq!(right.entry(1).unwrap().hash, 122);
    assert!(HashVersion::from_disk(6, false).is_err());
}

#[test]
fn xattr_areas() {
    let mut set = XattrSet::default();
    set.set(1, b"name", b"value").unwrap();
    let mut good = vec![0; 1024];
    set.encode_block(&mut good, 1).unwrap();
    assert_eq!(&good[32..52], b"\x04\x01\xf8\x03\0\0\0\0\x05\0\0\0\xcc\xfc\x40\x61name".as_slice());
    let check = |at: usize, value: u32, offset| {
        let mut raw = good.clone();
        put32(&mut raw, at, value);
        corrupt_at(XattrSet::decode(&raw, Place::Block), offset);
    };
    check(0, 0xea02_0001, 0);
    check(8, 2, 8);
    check(32, 0x03f9_0104, 32);
    check(32, 0x0020_0104, 32);
    check(32, 0xffff_0104, 32);
    check(40, u32::MAX, 32);
    let mut raw = good.clone();
    put32(&mut raw, 36, 99);
    match xattr::get(&raw, Place::Block, 1, b"name") {
        Err(OndiskError::Unsupported { feature, .. }) => assert_eq!(feature, "ea_inode"),
        other => panic!("{other:?}"),
    }
    let outside = XattrSet::decode(&raw, Place::Block).unwrap();
    let entry = outside.get(1, b"name").unwrap();
    assert!(entry.value.is_empty() && entry.outside.is_some_and(|out| out.inum == 99));
    let mut again = vec![0; 1024];
    outside.encode_block(&mut again, 1).unwrap();
    assert_eq!(again[34..56], [&[0, 0], &raw[36..56]].concat(), "as it was, without an offset");
    assert!(XattrSet::decode(&good[..56], Place::Block).is_err(), "the value is cut off");
    assert!(XattrSet::decode(&good[..40], Place::Block).is_err(), "the entry is cut off");
    assert!(XattrSet::decode(&[0; 96], Place::Inode).unwrap().is_empty());
    assert!(XattrSet::decode(&[], Place::Inode).unwrap().is_empty());
    assert!(XattrSet::decode(&[], Place::Block).is_err());
    let mut tiny = [0; 24];
    assert!(matches!(set.encode_inode(&mut tiny), Err(OndiskError::Full { .. })));
    set.set(1, &[b'n'; 256], b"").unwrap_err();
    assert_eq!(xattr::split_name(b"user.a"), Some((1, &b"a"[..])));
    assert_eq!(xattr::split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
    assert_eq!(xattr::split_name(b"system.data"), Some((7, &b"data"[..])));
    assert_eq!(xattr::split_name(b"security.capability"), Some((6, &b"capability"[..])));
    assert_eq!((xattr::split_name(b"user."), xattr::split_name(b"other.a")), (None, None));
}

#[test]
fn journal_superblocks() {
    let mut raw = vec![0; 1024];
    assert!(JournalSuperblock::decode(&raw).is_err());
    for (at, word) in
        [(0, 0xc03b_3998u32), (4, 4), (12, 1024), (16, 4096), (20, 1), (24, 5), (28, 0)]
    {
        raw[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    let good = JournalSuperblock::decode(&raw).unwrap();
    good.validate(1024, 4096).unwrap();
    assert_eq!(good.log_end(), Ok(4096));
    let broken = |change: &dyn Fn(&mut JournalSuperblock)| {
        let mut sb = good.clone();
        change(&mut sb);
        sb.validate(1024, 4096)
    };
    corrupt_at(broken(&|sb| sb.s_blocksize = 4096), 0x0c);
    corrupt_at(broken(&|sb| sb.s_maxlen = 4097), 0x10);
    corrupt_at(broken(&|sb| sb.s_maxlen = 1023), 0x10);
    corrupt_at(broken(&|sb| sb.s_first = 0), 0x14);
    corrupt_at(broken(&|sb| sb.s_first = 4096), 0x14);
    corrupt_at(broken(&|sb| sb.s_start = 4096), 0x1c);
    let fast = |sb: &mut JournalSuperblock| {
        sb.s_feature_incompat.insert(JournalIncompat::FAST_COMMIT);
        sb.s_num_fc_blks = 4000;
    };
    corrupt_at(broken(&fast), 0x54);
    let both = JournalIncompat::CSUM_V2.union(JournalIncompat::CSUM_V3);
    corrupt_at(broken(&|sb| sb.s_feature_incompat.insert(both)), 0x24);
    let unknown = broken(&|sb| sb.s_feature_incompat.insert(JournalIncompat::from_bits(0x40)));
    assert!(matches!(unknown, Err(OndiskError::Unsupported { .. })), "{unknown:?}");
    let crc = broken(&|sb| sb.s_feature_incompat.insert(JournalIncompat::CSUM_V3));
    assert!(matches!(crc, Err(OndiskError::Unsupported { .. })), "type 0: {crc:?}");

    let mut sb = good.clone();
    for kind in [JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3] {
        sb.set_checksum_kind(kind);
        sb.encode_into(&mut raw).unwrap();
        let back = JournalSuperblock::decode(&raw).unwrap();
        assert_eq!(back.checksum_kind(), Ok(kind));
        back.verify_checksum(&raw).unwrap();
        back.validate(1024, 4096).unwrap();
        assert_eq!(Layout::new(&back).unwrap().checksum, kind);
    }
    raw[0x30] ^= 1;
    assert!(JournalSuperblock::decode(&raw).unwrap().verify_checksum(&raw).is_err());
    raw[7] = 2;
    corrupt_at(JournalSuperblock::decode(&raw), 4);
}
