//! The blocks of one inode: extent trees, walked once, every block marked.
//!
//! A node that is in use already is not walked into, so that no image makes the walk go round or
//! fan out: the work is bounded by the blocks of the volume.

use syncline_ondisk::RoCompatFeatures;
use syncline_ondisk::bytes::{join32, le16, le32};
use syncline_ondisk::checksum;
use syncline_ondisk::extent::{
    ENTRY_BYTES, EXTENT_MAGIC, Extent, INIT_MAX_LEN, LOGICAL_END, MAX_DEPTH, verify_block_checksum,
};
use syncline_ondisk::inode::{Inode, flags};

use super::kinds::Kind;
use super::marks::{Run, Runs};
use super::report::At;
use super::special::BAD_INO;
use super::{Checker, Step, kinds};

/// Deepest tree that is walked; the kernel takes [`MAX_DEPTH`].
const WALKED_DEPTH: u16 = 32;

/// Blocks that an inode maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Mapped {
    /// Clusters that count in `i_blocks`.
    pub(super) clusters: u64,
    /// Blocks of data.
    pub(super) data: u64,
    /// One past the last logical block.
    pub(super) end: u64,
    /// One past the last logical block that is not unwritten.
    pub(super) written_end: u64,
    /// Part of the map could not be read.
    pub(super) broken: bool,
    /// The blocks, where they are wanted.
    pub(super) runs: Runs,
    /// Extents that are right and blocks of the tree, where [`Keeps::Map`] wants them.
    pub(super) extents: Vec<Extent>,
    pub(super) nodes: Vec<u64>,
}

/// Parts of the map that a walk keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Keeps {
    Nothing,
    Runs,
    Map,
    /// The map, with extents that are out of order.
    Disordered,
}

/// The walk of one inode.
pub(super) struct Walk<'a> {
    pub(super) ino: u32,
    pub(super) raw: &'a Inode,
    /// Seed of checksums of the nodes.
    pub(super) seed: Option<u32>,
    pub(super) keeps: Keeps,
    /// Last block that was mapped: logical and physical number.
    pub(super) last: Option<(u64, u64)>,
    pub(super) out: Mapped,
}

/// A node with its place in the tree.
struct Node<'a> {
    block: Option<u64>,
    bytes: &'a [u8],
    /// Levels below it.
    depth: u16,
    /// Logical blocks that it may map.
    first: u64,
    end: u64,
}

/// An extent, as its bytes say.
struct Leaf {
    block: u64,
    len: u64,
    start: u64,
    unwritten: bool,
}

/// Header of a node: entries and depth.
pub(super) fn extent_header(bytes: &[u8]) -> std::result::Result<(u16, u16), String> {
    let (magic, entries, max) = (le16(bytes, 0), le16(bytes, 2), le16(bytes, 4));
    if magic != EXTENT_MAGIC {
        return Err(format!("extent node: magic is {magic:#06x}, not 0xf30a"));
    }
    let room = bytes.len().saturating_sub(ENTRY_BYTES) / ENTRY_BYTES;
    if usize::from(max) > room || usize::from(max) + 2 < room {
        return Err(format!("extent node: {max} entries do not fit {} bytes", bytes.len()));
    }
    if entries > max {
        return Err(format!("extent node: {entries} entries, at most {max} fit"));
    }
    Ok((entries, le16(bytes, 6)))
}

/// The block that an entry of an index node names.
fn index_leaf(bytes: &[u8], at: usize) -> u64 {
    join32(le32(bytes, at + 4), le16(bytes, at + 8).into())
}

impl Checker<'_> {
    /// Walks the map of an inode.
    pub(super) fn walk_blocks(&mut self, ino: u32, raw: &Inode, keeps: Keeps) -> Step<Mapped> {
        let seed = self
            .geo
            .metadata_csum
            .then(|| checksum::inode_seed(self.sb.csum_seed(), ino, raw.i_generation));
        let mut walk = Walk { ino, raw, seed, keeps, last: None, out: Mapped::default() };
        if raw.has_flag(flags::EXTENTS) {
            self.walk_extents(&mut walk)?;
        } else {
            self.walk_pointers(&mut walk)?;
        }
        Ok(walk.out)
    }

    fn walk_extents(&mut self, walk: &mut Walk<'_>) -> Step {
        let bytes = walk.raw.i_block;
        let depth = match extent_header(&bytes) {
            Ok((_, depth)) => depth,
            Err(what) => {
                walk.out.broken = true;
                self.note(kinds::EXTENT_HEADER, At::ino(walk.ino), what);
                return Ok(());
            }
        };
        if depth > MAX_DEPTH {
            let what = format!("the extent tree has a depth of {depth}, at most {MAX_DEPTH} works");
            self.note(kinds::EXTENT_DEPTH, At::ino(walk.ino), what);
        }
        if depth > WALKED_DEPTH {
            walk.out.broken = true;
            return Ok(());
        }
        self.walk_node(
            walk,
            &Node { block: None, bytes: &bytes, depth, first: 0, end: LOGICAL_END },
        )
    }

    fn broken(&mut self, walk: &mut Walk<'_>, kind: Kind, block: Option<u64>, what: String) {
        walk.out.broken = true;
        let at = At::ino(walk.ino);
        self.note(kind, block.map_or(at, |block| at.in_block(block)), what);
    }

    fn walk_node(&mut self, walk: &mut Walk<'_>, node: &Node<'_>) -> Step {
        let (entries, depth) = match extent_header(node.bytes) {
            Ok(header) => header,
            Err(what) => {
                self.broken(walk, kinds::EXTENT_HEADER, node.block, what);
                return Ok(());
            }
        };
        if depth != node.depth {
            let what = format!("extent node: depth is {depth}, its parent says {}", node.depth);
            self.broken(walk, kinds::EXTENT_HEADER, node.block, what);
            if !self.fits(node, entries) {
                return Ok(());
            }
        }
        if entries == 0 && node.block.is_some() {
            let what = "extent node: no entries".to_owned();
            self.broken(walk, kinds::EXTENT_HEADER, node.block, what);
        }
        if let (Some(block), Some(seed)) = (node.block, walk.seed) {
            if let Err(err) = verify_block_checksum(node.bytes, seed) {
                self.note_bad(kinds::EXTENT_CSUM, At::ino(walk.ino).in_block(block), &err);
            }
        }
        let mut next = node.first;
        for i in 0..usize::from(entries) {
            let at = ENTRY_BYTES * (i + 1);
            if node.depth == 0 {
                next = self.walk_leaf(walk, node, next, &Leaf::at(node.bytes, at))?;
            } else {
                next = self.walk_child(walk, node, next, (i, entries))?;
            }
        }
        Ok(())
    }

    /// True if the entries of a node fit the place that its parent gives it. Then only its depth is
    /// wrong: Linux refuses to read such a node, and e2fsck does not look at the depth.
    fn fits(&self, node: &Node<'_>, entries: u16) -> bool {
        let mut next = node.first;
        entries > 0
            && (1..=usize::from(entries)).all(|nr| {
                let e = Leaf::at(node.bytes, ENTRY_BYTES * nr);
                let (start, len) = match node.depth {
                    0 => (e.start, e.len),
                    _ => (index_leaf(node.bytes, ENTRY_BYTES * nr), 1),
                };
                let in_order = e.block >= next && len > 0 && e.block + len <= node.end;
                next = e.block + len;
                in_order && self.in_volume(start) && self.in_volume(start.saturating_add(len - 1))
            })
    }

    /// One extent; the first logical block that the next one may have.
    fn walk_leaf(
        &mut self,
        walk: &mut Walk<'_>,
        node: &Node<'_>,
        next: u64,
        e: &Leaf,
    ) -> Step<u64> {
        let is_dir = walk.raw.is_dir();
        let end = e.block + e.len;
        let last = e.start.saturating_add(e.len.max(1) - 1);
        let problem = if !self.in_volume(e.start) || !self.in_volume(last) {
            let what = format!("extent: block {} is outside the file system", e.start);
            Some((kinds::EXTENT_RANGE, what))
        } else if e.len == 0 {
            let what = format!("the extent at logical block {} is empty", e.block);
            Some((kinds::EXTENT_EMPTY, what))
        } else if end > LOGICAL_END
            || walk.keeps < Keeps::Disordered && (e.block < next || end > node.end)
        {
            let what = format!("the extent at logical block {} is out of order", e.block);
            Some((kinds::EXTENT_ORDER, what))
        } else if is_dir && self.is_too_large(walk.raw, end) {
            let what = format!("a directory with a block {}", end - 1);
            Some((kinds::DIR_TOO_LARGE, what))
        } else {
            None
        };
        if let Some((kind, what)) = problem {
            self.broken(walk, kind, node.block, what);
            return Ok(next);
        }
        if is_dir && e.unwritten {
            let what = format!("directory block {} is unwritten", e.block);
            self.note(kinds::EXTENT_UNWRITTEN_DIR, At::ino(walk.ino), what);
        }
        if is_dir && e.block > walk.out.end {
            let what = format!("directory block {} is not mapped", walk.out.end);
            self.note(kinds::DIR_HOLE, At::ino(walk.ino), what);
        }
        self.take(walk, e.block, e.start, e.len)?;
        if walk.keeps >= Keeps::Map {
            let (block, len) = (e.block as u32, e.len as u32);
            walk.out.extents.push(Extent { block, len, start: e.start, unwritten: e.unwritten });
        }
        if !e.unwritten {
            walk.out.written_end = end;
        }
        Ok(end)
    }

    /// True if a directory cannot have so many blocks without `large_dir`.
    pub(super) fn is_too_large(&self, raw: &Inode, blocks: u64) -> bool {
        let large = self.incompat(syncline_ondisk::IncompatFeatures::LARGEDIR);
        !large && raw.i_size >> 32 == 0 && blocks > 1 << (31 - self.geo.block_bits)
    }

    /// Takes blocks of data for the inode of a walk.
    pub(super) fn take(&mut self, walk: &mut Walk<'_>, block: u64, start: u64, len: u64) -> Step {
        if walk.ino == BAD_INO {
            return self.take_bad(start, len);
        }
        let bits = self.cluster_bits;
        let mask = (1u64 << bits) - 1;
        let last = walk.last.replace((block + len - 1, start + len - 1));
        let mut from = start;
        if bits > 0 {
            let crosses = last.is_some_and(|(lblk, pblk)| {
                block & mask != 0 && lblk >> bits == block >> bits && pblk >> bits != start >> bits
            });
            if block & mask != start & mask || crosses {
                let what = format!("logical block {block} is misplaced in its cluster");
                self.note(kinds::CLUSTER, At::ino(walk.ino).in_block(start), what);
            }
            if last.is_some_and(|(_, pblk)| pblk >> bits == start >> bits) {
                from = (start >> bits << bits) + mask + 1;
            }
        }
        if from < start + len {
            self.mark(walk.ino, from, start + len - from);
            walk.out.clusters += ((start + len - 1) >> bits) - (from >> bits) + 1;
        }
        walk.out.data += len;
        walk.out.end = walk.out.end.max(block + len);
        if let (true, Ok(block), Ok(len)) = (
            matches!(walk.keeps, Keeps::Runs | Keeps::Map),
            u32::try_from(block),
            u32::try_from(len),
        ) {
            walk.out.runs.push(Run { block, len, start });
        }
        Ok(())
    }

    /// Takes a block of the map itself; false if it cannot be walked into.
    pub(super) fn take_node(&mut self, walk: &mut Walk<'_>, block: u64) -> bool {
        let is_new = !self.blocks.is_marked(block >> self.cluster_bits);
        walk.out.clusters += 1;
        if !is_new && self.ro_compat(RoCompatFeatures::SHARED_BLOCKS) {
            walk.out.broken = true;
            return false;
        }
        let taken = self.mark(walk.ino, block, 1);
        walk.out.broken |= !taken;
        taken
    }

    /// Entry `i` of an index node; the first logical block that the next one may have.
    fn walk_child(
        &mut self,
        walk: &mut Walk<'_>,
        node: &Node<'_>,
        next: u64,
        (i, entries): (usize, u16),
    ) -> Step<u64> {
        let at = ENTRY_BYTES * (i + 1);
        let block = u64::from(le32(node.bytes, at));
        let leaf = index_leaf(node.bytes, at);
        let has_next = i + 1 < usize::from(entries);
        let end = if has_next { le32(node.bytes, at + ENTRY_BYTES).into() } else { node.end };
        if !self.in_volume(leaf) {
            let what = format!("extent node: block {leaf} is outside the file system");
            self.broken(walk, kinds::EXTENT_RANGE, node.block, what);
            return Ok(next);
        }
        if walk.keeps < Keeps::Disordered && (block < next || block >= end) {
            let what = format!("extent node: logical block {block} is out of order");
            self.broken(walk, kinds::EXTENT_ORDER, node.block, what);
            return Ok(next);
        }
        if !self.take_node(walk, leaf) {
            return Ok(block + 1);
        }
        if walk.keeps >= Keeps::Map {
            walk.out.nodes.push(leaf);
        }
        let Some(bytes) = self.read(leaf)? else {
            walk.out.broken = true;
            return Ok(block + 1);
        };
        let first = u64::from(le32(&bytes, ENTRY_BYTES));
        if extent_header(&bytes).is_ok_and(|(entries, _)| entries > 0) && first != block {
            let what = format!("an index starts at logical block {block}, its child at {first}");
            self.note(kinds::EXTENT_INDEX, At::ino(walk.ino).in_block(leaf), what);
        }
        let first = block.min(first).max(next);
        let child = Node { block: Some(leaf), bytes: &bytes, depth: node.depth - 1, first, end };
        self.walk_node(walk, &child)?;
        Ok(block + 1)
    }
}

impl Leaf {
    fn at(bytes: &[u8], at: usize) -> Self {
        let len = u32::from(le16(bytes, at + 4));
        let unwritten = len > INIT_MAX_LEN;
        Self {
            block: le32(bytes, at).into(),
            len: u64::from(if unwritten { len - INIT_MAX_LEN } else { len }),
            start: join32(le32(bytes, at + 8), le16(bytes, at + 6).into()),
            unwritten,
        }
    }
}
