//! Transactions made by hand over an image of mke2fs: what they take from a relaxed file is strict.
//! Journals of a kernel are tested in `syncline-export`.

use std::sync::Arc;

use syncline_buffer::{Buffer, BufferOptions, LogArea};
use syncline_control::hints::{HintError, Hinted, Timestamp};
use syncline_device::{BlockDevice, Kind, MemoryDevice, Op, Origin, Request};
use syncline_ondisk::extent::{Extent, Node, NodeMut};
use syncline_ondisk::jbd2::{
    CommitBlock, DescriptorBuilder, JBD2_MAGIC, JournalChecksum, JournalIncompat,
    JournalSuperblock, Layout, RevokeBuilder, V1Checksum, escape, needs_escape,
};
use syncline_ondisk::superblock::{JOURNAL_INO, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::{Geometry, GroupDesc, Inode, Superblock, checksum};
use syncline_testkit::{ImageSpec, Need, Random, mkfs, require};

const ORIGIN: Origin = Origin::new(Kind::Other, false);
const BLOCK: usize = 1024;
/// The first file of a new file system.
const FILE: u32 = 12;
const FILE_BYTES: u64 = 200 << 10;

/// A file system that claims to be mounted, with a relaxed file, and its kernel.
struct Bench {
    hinted: Hinted,
    superblock: Superblock,
    layout: Layout,
    /// Blocks of the log on the device.
    log: Vec<u64>,
    log_blocks: u32,
    head: u32,
    sequence: u32,
    /// Block and offset of the file's inode.
    place: (u64, usize),
}

fn read(device: &dyn BlockDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read(at, &mut bytes, ORIGIN).unwrap();
    bytes
}

fn inode_place(
    device: &dyn BlockDevice,
    sb: &Superblock,
    geo: &Geometry,
    ino: u32,
) -> (u64, usize) {
    let (group, index) = geo.inode_group(ino).unwrap();
    let (nr, at) = geo.desc_slot(group);
    let raw = read(device, geo.desc_block(sb, nr) * BLOCK as u64, BLOCK);
    let desc = GroupDesc::decode(&raw[at..at + geo.desc_size]).unwrap();
    let (nr, at) = geo.inode_slot(index);
    (desc.bg_inode_table + u64::from(nr), at)
}

fn first_extent(inode: &Inode) -> Extent {
    Node::parse_header(&inode.i_block).unwrap().extent(0).unwrap()
}

/// Blocks of a file whose extents are in its inode. mke2fs leaves out what is a superblock's.
fn blocks(inode: &Inode) -> Vec<u64> {
    let node = Node::parse_header(&inode.i_block).unwrap();
    let extents = node.extents();
    extents.flat_map(|extent| extent.start..extent.start + u64::from(extent.len)).collect()
}

impl Bench {
    fn new() -> Bench {
        let contents = tempfile::tempdir().unwrap();
        std::fs::write(contents.path().join("file"), vec![7; FILE_BYTES as usize]).unwrap();
        let image = mkfs(&ImageSpec {
            size_bytes: 8 << 20,
            block_size_bytes: 1024,
            journal_size_mib: Some(1),
            contents: Some(contents.path().to_owned()),
            ..ImageSpec::default()
        });
        let home = MemoryDevice::from_bytes(&image.bytes());
        let mut raw = read(&home, SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES);
        let mut superblock = Superblock::decode(&raw).unwrap();
        superblock.set_needs_recovery(true);
        superblock.encode_into(&mut raw).unwrap();
        home.write_at(SUPERBLOCK_OFFSET, &raw).unwrap();
        let geometry = Geometry::new(&superblock, 8 << 20).unwrap();
        let (block, at) = inode_place(&home, &superblock, &geometry, JOURNAL_INO);
        let raw = read(&home, block * BLOCK as u64, BLOCK);
        let log = blocks(&Inode::decode(&raw[at..at + geometry.inode_size]).unwrap());
        let mut raw = read(&home, log[0] * BLOCK as u64, BLOCK);
        let mut journal = JournalSuperblock::decode(&raw).unwrap();
        journal.set_checksum_kind(JournalChecksum::V3);
        journal.s_feature_incompat.insert(JournalIncompat::BIT64);
        journal.s_feature_incompat.insert(JournalIncompat::REVOKE);
        journal.encode_into(&mut raw).unwrap();
        home.write_at(log[0] * BLOCK as u64, &raw).unwrap();
        let place = inode_place(&home, &superblock, &geometry, FILE);
        let area = LogArea { device: Arc::new(MemoryDevice::new(1 << 20)), same_medium: false };
        Buffer::create_log(&area, 8 << 20, [1; 16], true).unwrap();
        let buffer = Buffer::open(Arc::new(home), Some(area), BufferOptions::default()).unwrap();
        Bench {
            hinted: Hinted::new(buffer),
            superblock,
            layout: Layout::new(&journal).unwrap(),
            log,
            log_blocks: journal.s_maxlen,
            head: 1,
            sequence: 5,
            place,
        }
    }

    fn fsid(&self) -> u64 {
        let half =
            |at: usize| u64::from_le_bytes(self.superblock.s_uuid[at..at + 8].try_into().unwrap());
        half(0) ^ half(8)
    }

    /// Block of the inode, as it is, and the inode.
    fn inode(&self) -> (Vec<u8>, Inode) {
        let raw = read(&self.hinted, self.place.0 * BLOCK as u64, BLOCK);
        let inode = Inode::decode(&raw[self.place.1..][..self.superblock.inode_size()]).unwrap();
        (raw, inode)
    }

    fn relax(&self) -> Result<bool, HintError> {
        self.hinted.relax(self.fsid(), FILE, self.inode().1.i_crtime)
    }

    /// A bench whose file is relaxed.
    fn relaxed() -> Bench {
        let bench = Bench::new();
        assert!(bench.relax().unwrap(), "the log is empty");
        assert_eq!(bench.hinted.status().relaxed_file_bytes, FILE_BYTES);
        bench
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let op = Op::Write { from: vec![bytes], fua: false };
        self.hinted.submit(&mut [Request { offset_bytes: at, op, origin: ORIGIN }]).unwrap();
    }

    /// Byte of the device at which a block of the log begins.
    fn log_at(&self, block: u32) -> u64 {
        self.log[block as usize] * BLOCK as u64
    }

    fn logged(&self, block: u32, bytes: &[u8]) {
        self.write(self.log_at(block), bytes);
    }

    /// Writes the superblock of the journal: the log starts at `start`, or is empty.
    fn log_superblock(&self, start: u32) {
        let mut raw = read(&self.hinted, self.log_at(0), BLOCK);
        let mut journal = JournalSuperblock::decode(&raw).unwrap();
        (journal.s_start, journal.s_sequence) = (start, self.sequence);
        journal.encode_into(&mut raw).unwrap();
        self.logged(0, &raw);
    }

    fn next(&self, block: u32) -> u32 {
        if block + 1 == self.log_blocks { 1 } else { block + 1 }
    }

    /// A transaction with these blocks, in the log in any order; then its commit block.
    fn commit(&mut self, blocks: &[(u64, Vec<u8>)]) {
        let mut written = Vec::new();
        let mut revoke = vec![0; BLOCK];
        let mut builder = RevokeBuilder::new(&mut revoke, &self.layout, self.sequence).unwrap();
        builder.push(77).unwrap();
        builder.finish();
        written.push((self.head, revoke));
        let mut at = self.next(self.head);
        let descriptor = at;
        let mut raw = vec![0; BLOCK];
        let mut builder = DescriptorBuilder::new(&mut raw, &self.layout, self.sequence).unwrap();
        for (block, content) in blocks {
            at = self.next(at);
            let mut copy = content.clone();
            let escaped = needs_escape(&copy);
            if escaped {
                escape(&mut copy);
            }
            let crc = self.layout.copy_csum(self.sequence, &copy);
            builder.push(*block, escaped, crc).unwrap();
            written.push((at, copy));
        }
        builder.finish().unwrap();
        written.push((descriptor, raw));
        for (at, bytes) in written.iter().rev() {
            self.logged(*at, bytes);
        }
        let commit = self.next(at);
        let mut raw = vec![0; BLOCK];
        let (sequence, v1) = (self.sequence, V1Checksum::new());
        CommitBlock::build(&mut raw, &self.layout, sequence, (1, 0), v1).unwrap();
        self.logged(commit, &raw);
        self.sequence += 1;
        self.head = self.next(commit);
    }

    /// Block of the inode with this inode in it.
    fn with(&self, change: impl FnOnce(&mut Inode)) -> (u64, Vec<u8>) {
        let (mut raw, mut inode) = self.inode();
        change(&mut inode);
        let seed = self.superblock.csum_seed();
        let seed = checksum::inode_seed(seed, FILE, inode.i_generation);
        let size = self.superblock.inode_size();
        inode.encode_into(&mut raw[self.place.1..][..size], Some(seed)).unwrap();
        (self.place.0, raw)
    }

    /// True if a write of the file's block `nr`, and of those around it, waits.
    fn is_relaxed(&self, nr: u64) -> bool {
        let at = (first_extent(&self.inode().1).start + nr) * BLOCK as u64 / 4096 * 4096;
        let buffer = self.hinted.buffer();
        buffer.harden(0..8 << 20);
        buffer.flush(ORIGIN).unwrap();
        self.write(at, &[9; 4096]);
        let waits = buffer.status().relaxed_pages;
        buffer.harden(at..at + 4096);
        waits > 0
    }
}

fn cut_to(inode: &mut Inode, extents: &[Extent]) {
    let mut root = NodeMut::init(&mut inode.i_block, 0);
    for (nr, extent) in extents.iter().enumerate() {
        root.insert_extent(nr, extent).unwrap();
    }
}

#[test]
fn blocks_that_a_transaction_takes_away_are_strict_and_new_ones_are_not() {
    if !require("blocks_that_a_transaction_takes_away", &[Need::E2fsck]) {
        return;
    }
    let mut bench = Bench::relaxed();
    bench.log_superblock(bench.head);
    assert!(bench.is_relaxed(8) && bench.is_relaxed(160));
    let whole = first_extent(&bench.inode().1);
    // The end is gone, and a part in the middle is not written any more.
    let part = |block: u32, len: u32, unwritten: bool| Extent {
        block,
        len,
        start: whole.start + u64::from(block),
        unwritten,
    };
    let cut = bench.with(|inode| {
        cut_to(inode, &[part(0, 40, false), part(40, 40, true), part(80, 40, false)]);
    });
    let waiting = whole.start * BLOCK as u64..(whole.start + 200) * BLOCK as u64;
    bench.write(waiting.start.next_multiple_of(4096) + (160 << 10), &[1; 4096]);
    assert_eq!(bench.hinted.buffer().status().relaxed_pages, 1);
    bench.commit(&[(3, vec![0; BLOCK]), cut]);
    assert_eq!(bench.hinted.buffer().status().relaxed_pages, 0, "what waits there is strict");
    assert_eq!(bench.hinted.status().relaxed_ended, None);
    assert!(bench.is_relaxed(8) && bench.is_relaxed(88));
    assert!(!bench.is_relaxed(48) && !bench.is_relaxed(160));
    // It grows again, around the end of the log.
    while bench.head > 5 {
        bench.commit(&[(3, vec![0; BLOCK]), (4, JBD2_MAGIC.to_be_bytes().repeat(BLOCK / 4))]);
    }
    let grown = bench.with(|inode| cut_to(inode, &[whole]));
    bench.commit(&[grown]);
    assert!(bench.is_relaxed(160));
    // Deleted, and the number is another file's.
    let other = bench.with(|inode| inode.i_generation ^= 1);
    bench.commit(&[other]);
    assert!(!bench.is_relaxed(8));
    let status = bench.hinted.status();
    assert_eq!((status.relaxed_files, status.relaxed_ended), (0, None));
}

#[test]
fn what_cannot_be_followed_is_strict_and_says_why() {
    if !require("what_cannot_be_followed_is_strict_and_says_why", &[Need::E2fsck]) {
        return;
    }
    let ended = |change: &dyn Fn(&mut Bench)| {
        let mut bench = Bench::relaxed();
        bench.log_superblock(bench.head);
        bench.commit(&[(3, vec![0; BLOCK])]);
        assert_eq!(bench.hinted.status().relaxed_ended, None);
        assert!(bench.is_relaxed(8));
        change(&mut bench);
        assert!(!bench.is_relaxed(8));
        bench.hinted.status().relaxed_ended.unwrap()
    };
    let superblock = |bench: &Bench, change: &dyn Fn(&mut Superblock)| {
        let mut raw = read(&bench.hinted, SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES);
        let mut superblock = Superblock::decode(&raw).unwrap();
        change(&mut superblock);
        superblock.encode_into(&mut raw).unwrap();
        bench.write(SUPERBLOCK_OFFSET, &raw);
    };
    let unmounted = "the file system was unmounted, frozen or mounted anew";
    assert_eq!(ended(&|b| superblock(b, &|sb| sb.set_needs_recovery(false))), unmounted);
    assert_eq!(ended(&|b| superblock(b, &|sb| sb.s_mnt_count += 1)), unmounted);
    assert_eq!(ended(&|b| b.write(SUPERBLOCK_OFFSET, &[0; 512])), unmounted);
    let said = ended(&|b| {
        b.sequence += 1;
        b.commit(&[(3, vec![0; BLOCK])]);
    });
    assert_eq!(said, "the journal continues at an unexpected block");
    let said = ended(&|b| {
        b.head += 1;
        b.commit(&[(3, vec![0; BLOCK])]);
    });
    assert!(said.contains("journal"), "{said}");
    assert!(ended(&|b| b.logged(7, &[0; 512])).contains("a part of a block"));
    assert!(ended(&|b| b.logged(0, &[0; BLOCK])).contains("journal superblock"));
    let bench = Bench::new();
    bench.log_superblock(1);
    assert!(!bench.relax().unwrap(), "transactions were not seen");
    assert!(!bench.is_relaxed(8));
    bench.log_superblock(0);
    assert!(bench.relax().unwrap() && bench.is_relaxed(8));
    let (fsid, born) = (bench.fsid(), bench.inode().1.i_crtime);
    assert_eq!(bench.hinted.relax(fsid ^ 1, FILE, born), Err(HintError::Elsewhere));
    let later = Timestamp { seconds: born.seconds + 1, ..born };
    for (ino, born) in [(2, born), (FILE + 1, born), (0, born), (u32::MAX, born), (14, later)] {
        assert!(matches!(bench.hinted.relax(fsid, ino, born), Err(HintError::File { .. })));
    }
    bench.hinted.harden(fsid, FILE).unwrap();
    assert!(!bench.is_relaxed(8));
}

/// Random bytes in the log, its control blocks and the superblocks.
#[test]
fn hostile_journals_make_no_panic() {
    if !require("hostile_journals_make_no_panic", &[Need::E2fsck]) {
        return;
    }
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut bench = Bench::relaxed();
        bench.log_superblock(bench.head);
        for _ in 0..20 {
            let mut cut = bench.with(|inode| {
                for byte in inode.i_block.iter_mut() {
                    if random.one_in(8) {
                        *byte = random.bits() as u8;
                    }
                }
            });
            if random.one_in(4) {
                cut.0 = random.bits();
            }
            let (head, sequence) = (bench.head, bench.sequence);
            bench.commit(&[cut]);
            if random.one_in(4) {
                // The same place again, with other bytes.
                (bench.head, bench.sequence) = (head, sequence);
                let at = head + random.below(4) as u32;
                let mut raw = read(&bench.hinted, bench.log_at(at), BLOCK);
                for _ in 0..random.below(20) {
                    raw[random.index(64)] = random.bits() as u8;
                }
                bench.logged(at, &raw);
            }
            let _ = bench.relax();
        }
    }
}
