//! Random bytes and random edits: decoders never panic, edits agree with simple models.
//!
//! proptest prints the failing case and its seed, and keeps it in `proptest-regressions`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use syncline_ondisk::extent::{Extent, Node, NodeLimits, NodeMut};
use syncline_ondisk::group::{GroupCsum, init_block_bitmap};
use syncline_ondisk::htree::{self, NodeKind};
use syncline_ondisk::jbd2::{
    CommitBlock, Header, JournalChecksum, JournalSuperblock, Layout, Revokes, Tags,
};
use syncline_ondisk::xattr::{Place, XattrSet};
use syncline_ondisk::{
    Geometry, GroupDesc, Inode, Superblock, Timestamp, bitmap, dir, extent, inline, mmp,
    orphan_file, xattr,
};

const LIMITS: NodeLimits =
    NodeLimits { first: 0, end: 1 << 32, depth: None, blocks_first: 1, blocks_end: 1 << 40 };
const FORMAT: dir::DirFormat = dir::DirFormat { tail: true, filetype: true, inodes_count: 1000 };

/// Runs every decoder on `raw`.
fn decode_everything(raw: &[u8]) {
    if let Ok(sb) = Superblock::decode(raw) {
        let _ = (sb.check_features(), sb.verify_checksum(raw), sb.hash_kind(), sb.csum_seed());
        let _ = sb.encode_into(&mut raw.to_vec());
        if let Ok(geo) = Geometry::new(&sb, u64::MAX) {
            exercise_geometry(&sb, &geo, raw);
        }
    }
    if let Ok(desc) = GroupDesc::decode(raw) {
        assert_eq!(GroupDesc::decode(raw), Ok(desc));
    }
    if let Ok(inode) = Inode::decode(raw) {
        let mut again = raw.to_vec();
        inode.encode_into(&mut again, Some(1)).unwrap();
        let _ = (inode.sectors(1024), inode.is_fast_symlink(1024, true), inode.device_number());
        let _ = (inode.fast_symlink_target(1024, false), inode.verify_checksum(raw, 1));
        if let Ok(data) = inline::stored(&inode, raw) {
            let _ = inline::dir_block(&data, 12, &FORMAT, 1024);
        }
        if let Some(range) = inode.xattr_range(raw.len()) {
            let _ = XattrSet::decode(&raw[range], Place::Inode);
        }
    }
    if let Ok(node) = Node::parse(raw, &LIMITS) {
        let _ = (node.extents().count(), node.indexes().count(), node.search(5));
    }
    let _ = extent::verify_block_checksum(raw, 1);
    extent::set_block_checksum(&mut raw.to_vec(), 1);
    for format in [FORMAT, dir::DirFormat { tail: false, ..FORMAT }] {
        let _ = dir::Entries::new(raw, &format).count();
        let _ = dir::Entries::from_offset(raw, &format, 1_000_000).count();
        let _ = (dir::max_free(raw, &format), dir::is_empty(raw, &format));
        let _ = dir::insert(&mut raw.to_vec(), &format, b"name", 5, 1);
        let _ = dir::remove(&mut raw.to_vec(), &format, 12);
        let _ = dir::verify_checksum(raw, &format, 1);
        let _ = inline::dir_block(raw, 12, &format, raw.len().min(4096));
    }
    for kind in [NodeKind::Root, NodeKind::Inner] {
        let _ = htree::root_info(raw, true);
        let _ = htree::Node::parse(raw, kind, true, 100).map(|node| node.search(77));
        let entry = htree::Entry { hash: 1, block: 1 };
        let _ = htree::insert_entry(&mut raw.to_vec(), kind, true, 0, entry);
        let _ = htree::split_node(&mut raw.to_vec(), kind, &FORMAT, 3, &mut raw.to_vec());
        let _ = htree::verify_checksum(raw, kind, 1);
        htree::set_checksum(&mut raw.to_vec(), kind, 1);
    }
    let _ = XattrSet::decode(raw, Place::Block);
    let _ = XattrSet::decode(raw, Place::Inode);
    let _ = xattr::verify_block_checksum(raw, 1, 1);
    let _ = (orphan_file::orphans(raw).count(), orphan_file::verify(raw, 1, Some(1)));
    let _ = mmp::Mmp::decode(raw, Some(1));
    decode_journal(raw);
}

fn exercise_geometry(sb: &Superblock, geo: &Geometry, raw: &[u8]) {
    let csum = GroupCsum::new(sb);
    let last = geo.group_count - 1;
    for group in [0, 1.min(last), last / 2, last] {
        assert!(geo.group_blocks(group) > 0);
        let (nr, _) = geo.desc_slot(group);
        let _ = geo.desc_block(sb, nr);
        if let Ok(desc) = GroupDesc::decode(raw) {
            let _ = desc.validate(group, geo);
            let _ = desc.verify_checksum(&raw[..geo.desc_size.min(raw.len())], group, &csum);
            init_block_bitmap(&mut vec![0; geo.block_size], sb, geo, group, &desc);
        }
    }
}

fn decode_journal(raw: &[u8]) {
    let _ = Header::decode(raw);
    if let Ok(sb) = JournalSuperblock::decode(raw) {
        let _ = (sb.validate(1024, 1 << 20), sb.verify_checksum(raw), Layout::new(&sb));
        let _ = sb.encode_into(&mut raw.to_vec());
    }
    for checksum in
        [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3]
    {
        for is_64bit in [false, true] {
            let layout = Layout { block_size: 1024, is_64bit, checksum, seed: 0, uuid: [0; 16] };
            let _ = Tags::new(raw, &layout).count();
            let _ = Revokes::new(raw, &layout).map(Iterator::count);
            let _ = layout.verify_tail_csum(raw);
            if let Some(commit) = CommitBlock::decode(raw) {
                let _ = commit.block_csum_matches(raw, &layout);
            }
        }
    }
}

/// Blocks that decode, as starting points for mutation.
fn valid_blocks() -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    let mut block = vec![0; 1024];
    dir::init_dots(&mut block, &FORMAT, 2, 2);
    for i in 0..20 {
        dir::insert(&mut block, &FORMAT, format!("file-{i}").as_bytes(), i + 11, 1).unwrap();
    }
    blocks.push(block.clone());
    let mut node = NodeMut::init(&mut block, 0);
    for i in 0..40u32 {
        let start = u64::from(i) * 100 + 7;
        let extent = Extent { block: i * 10, len: 5, start, unwritten: i % 2 == 0 };
        node.insert_extent(i as usize, &extent).unwrap();
    }
    blocks.push(block.clone());
    htree::init_root(&mut block, &FORMAT, 2, 2, htree::HashVersion::HalfMd4, 1);
    for i in 1..50 {
        let entry = htree::Entry { hash: i * 1000, block: i + 1 };
        htree::insert_entry(&mut block, NodeKind::Root, true, i as usize - 1, entry).unwrap();
    }
    blocks.push(block.clone());
    let mut set = XattrSet::default();
    for i in 0..10 {
        set.set(1, format!("name{i}").as_bytes(), &[i; 30]).unwrap();
    }
    set.encode_block(&mut block, 1).unwrap();
    blocks.push(block.clone());
    let mut inode = Inode::new(0x81a4, 32);
    inode.i_size = 12345;
    block.fill(0);
    inode.encode_into(&mut block[..256], None).unwrap();
    blocks.push(block[..256].to_vec());
    blocks.push(superblock_bytes());
    blocks
}

/// A small, valid superblock made by hand: 1 KiB blocks, two groups.
fn superblock_bytes() -> Vec<u8> {
    let mut raw = vec![0; 1024];
    let words: [(usize, u32); 11] = [
        (0x00, 256),
        (0x04, 16384),
        (0x14, 1),
        (0x20, 8192),
        (0x24, 8192),
        (0x28, 128),
        (0x38, 0x0001_ef53),
        (0x4c, 1),
        (0x54, 11),
        (0x58, 256),
        (0x60, 0x242),
    ];
    for (at, word) in words {
        raw[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
    let sb = Superblock::decode(&raw).unwrap();
    Geometry::new(&sb, 16384 * 1024).unwrap();
    raw
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_decoder_panics_on_random_bytes(raw in prop::collection::vec(any::<u8>(), 0..1500)) {
        decode_everything(&raw);
    }

    #[test]
    fn no_decoder_panics_on_mutated_blocks(
        which in 0usize..6,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        cut_it in any::<bool>(),
    ) {
        let mut raw = valid_blocks().swap_remove(which);
        for (at, value) in edits {
            let at = at.index(raw.len());
            raw[at] = value;
        }
        decode_everything(&raw);
        if cut_it {
            raw.truncate(cut.index(raw.len()));
            decode_everything(&raw);
        }
    }

    #[test]
    fn bitmaps_agree_with_bit_by_bit(
        mut map in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..40),
        from in 0u32..330,
        len in 0u32..330,
        want in 1u32..100,
    ) {
        let end = from + len;
        let bits: Vec<bool> = (0..map.len() as u32 * 8).map(|i| bitmap::test(&map, i)).collect();
        let is_set = |i: u32| bits.get(i as usize).copied();
        let zero = (from..end).find(|i| is_set(*i) == Some(false));
        let set = (from..end).find(|i| is_set(*i) == Some(true));
        prop_assert_eq!(bitmap::find_zero(&map, from, end), zero);
        prop_assert_eq!(bitmap::find_set(&map, from, end), set);
        let count = (from..end).filter(|i| is_set(*i) == Some(true)).count() as u32;
        prop_assert_eq!(bitmap::count_set(&map, from, end), count);
        let zeros = (from..end).filter(|i| is_set(*i) == Some(false)).count() as u32;
        prop_assert_eq!(bitmap::count_zero(&map, from, end), zeros);
        let runs: u32 = bitmap::zero_runs(&map, from, end).map(|(_, n)| n).sum();
        prop_assert_eq!(runs, zeros);
        let run = (from..end.saturating_sub(want - 1))
            .find(|s| (*s..s + want).all(|i| is_set(i) == Some(false)));
        prop_assert_eq!(bitmap::find_zero_run(&map, from, end, want), run);

        let mut other = map.clone();
        let past = (from..end).find(|i| is_set(*i).is_none());
        prop_assert_eq!(bitmap::set_range(&mut map, from, len), set.or(past));
        prop_assert_eq!(bitmap::clear_range(&mut other, from, len), zero.or(past));
        for i in 0..bits.len() as u32 {
            let inside = (from..end).contains(&i);
            prop_assert_eq!(bitmap::test(&map, i), inside || bits[i as usize]);
            prop_assert_eq!(bitmap::test(&other, i), !inside && bits[i as usize]);
        }
    }

    #[test]
    fn directory_blocks_agree_with_a_map(
        ops in prop::collection::vec((any::<bool>(), 0u32..60, 1usize..40), 1..200),
        tail in any::<bool>(),
    ) {
        let format = dir::DirFormat { tail, ..FORMAT };
        let mut block = vec![0; 1024];
        dir::init_empty(&mut block, &format);
        let mut model = BTreeMap::new();
        for (add, key, len) in ops {
            let name = format!("{key:0len$}").into_bytes();
            let found = dir::find(&block, &format, &name).unwrap().map(|e| (e.offset, e.inode));
            prop_assert_eq!(found.map(|f| f.1), model.get(&name).copied());
            match found {
                Some((offset, _)) if !add => {
                    dir::remove(&mut block, &format, offset).unwrap();
                    model.remove(&name);
                }
                None if add => {
                    let room = dir::max_free(&block, &format).unwrap();
                    let done = dir::insert(&mut block, &format, &name, key + 1, 1);
                    prop_assert_eq!(done.is_ok(), room >= dir::entry_bytes(name.len()));
                    if done.is_ok() {
                        model.insert(name, key + 1);
                    }
                }
                _ => {}
            }
        }
        let mut listed = BTreeMap::new();
        for entry in dir::Entries::new(&block, &format) {
            let entry = entry.unwrap();
            if entry.inode != 0 {
                listed.insert(entry.name.to_vec(), entry.inode);
            }
        }
        prop_assert_eq!(&listed, &model);
        dir::set_checksum(&mut block, &format, 9);
        dir::verify_checksum(&block, &format, 9).unwrap();
    }

    #[test]
    fn xattr_areas_agree_with_a_map(
        ops in prop::collection::vec((any::<bool>(), 1u8..8, 0u32..9, 0usize..90), 1..60),
        in_inode in any::<bool>(),
    ) {
        let (place, len) = if in_inode { (Place::Inode, 352) } else { (Place::Block, 1024) };
        let mut area = vec![0; len];
        if !in_inode {
            XattrSet::default().encode_block(&mut area, 1).unwrap();
        }
        let mut model: BTreeMap<(u8, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for (add, index, key, size) in ops {
            let name = format!("key{key:0width$}", width = key as usize).into_bytes();
            let mut set = XattrSet::decode(&area, place).unwrap();
            if add {
                set.set(index, &name, &vec![key as u8; size]).unwrap();
            } else {
                let removed = set.remove(index, &name);
                prop_assert_eq!(removed, model.contains_key(&(index, name.clone())));
            }
            let encoded = match place {
                Place::Inode => set.encode_inode(&mut area),
                Place::Block => set.encode_block(&mut area, 1),
            };
            prop_assert_eq!(encoded.is_ok(), set.is_empty() || set.fits(place, len));
            if encoded.is_ok() && add {
                model.insert((index, name), vec![key as u8; size]);
            } else if encoded.is_ok() {
                model.remove(&(index, name));
            }
            for ((index, name), value) in &model {
                let found = xattr::get(&area, place, *index, name).unwrap();
                prop_assert_eq!(found, Some(value.as_slice()));
            }
            prop_assert_eq!(XattrSet::decode(&area, place).unwrap().len(), model.len());
        }
    }

    #[test]
    fn times_round_trip(
        seconds in -0x8000_0000i64..0x3_8000_0000,
        nanoseconds in 0u32..1_000_000_000,
    ) {
        let mut inode = Inode::new(0x81a4, 32);
        let time = Timestamp { seconds, nanoseconds };
        (inode.i_atime, inode.i_mtime, inode.i_ctime, inode.i_crtime) = (time, time, time, time);
        let mut raw = [0; 256];
        inode.encode_into(&mut raw, None).unwrap();
        prop_assert_eq!(Inode::decode(&raw).unwrap(), inode);
    }
}
