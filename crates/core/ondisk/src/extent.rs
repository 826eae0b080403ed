//! Extent tree nodes: in the inode's `i_block` (4 entries) or in a block.
//!
//! ```text
//!  header 12 B: magic 0xF30A, entries, max, depth (0 = leaf), generation
//!  entry  12 B: leaf  { first logical block, len (above 32768: unwritten), start 48 bits }
//!               index { first logical block, child block 48 bits }
//!  tail    4 B: crc32c, after `max` entries, in blocks only
//! ```
//!
//! [`Node`] is a checked view: it exists only over bytes whose header, order and block ranges are
//! right, so searches need no further checks. [`NodeMut`] edits the raw bytes of one node; keeping
//! a whole tree in shape (splitting, growing, freeing) is the file system's work, with these as the
//! steps. Tested in `tests/it/rejections.rs` and `tests/it/images.rs`.
//!
//! This file is long because the checked view and the editor share the entry layout.

use crate::bytes::{hi32, join32, le16, le32, lo16, lo32, put_bytes, put_le16, put_le32};
use crate::checksum;
use crate::error::{OndiskError, Result};

const WHAT: &str = "extent node";
/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xf30a;
/// Bytes of the header, and of each entry.
pub const ENTRY_BYTES: usize = 12;
/// Most blocks in a written extent.
pub const INIT_MAX_LEN: u32 = 32768;
/// Most blocks in an unwritten extent.
pub const UNWRITTEN_MAX_LEN: u32 = 32767;
/// Deepest tree (`EXT4_MAX_EXTENT_DEPTH`).
pub const MAX_DEPTH: u16 = 5;
/// Entries of a root in `i_block`.
pub const ROOT_MAX: u16 = 4;
/// One past the last logical block a file can have.
pub const LOGICAL_END: u64 = 1 << 32;

/// Logical blocks `block..block+len` are at physical `start..start+len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First logical block.
    pub block: u32,
    /// Number of blocks, 1..=32768.
    pub len: u32,
    /// First physical block.
    pub start: u64,
    /// Allocated but not written: reads as zeros.
    pub unwritten: bool,
}

/// A child node that covers logical blocks from `block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentIndex {
    /// First logical block of the child.
    pub block: u32,
    /// Physical block of the child.
    pub leaf: u64,
}

/// Bounds that a valid node keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLimits {
    /// First logical block the parent's entry covers; 0 for the root.
    pub first: u32,
    /// One past the last logical block it covers; [`LOGICAL_END`] for the root.
    pub end: u64,
    /// Depth the parent implies; `None` for the root.
    pub depth: Option<u16>,
    /// Physical blocks lie in `blocks_first..blocks_end`.
    pub blocks_first: u64,
    /// One past the last block of the file system.
    pub blocks_end: u64,
}

impl NodeLimits {
    /// Limits of a root in a file system of the given geometry.
    #[must_use]
    pub fn root(geo: &crate::geometry::Geometry) -> Self {
        Self {
            first: 0,
            end: LOGICAL_END,
            depth: None,
            blocks_first: u64::from(geo.first_data_block) + 1,
            blocks_end: geo.blocks_count,
        }
    }

    /// Limits of the child at index `i` of `node`.
    #[must_use]
    pub fn child(&self, node: &Node<'_>, i: usize) -> Self {
        Self {
            first: node.index(i).map_or(self.first, |index| index.block),
            end: node.index(i + 1).map_or(self.end, |next| next.block.into()),
            depth: Some(node.depth().saturating_sub(1)),
            ..*self
        }
    }
}

impl Extent {
    /// One past the last logical block.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u64 {
        u64::from(self.block) + u64::from(self.len)
    }

    /// Most blocks an extent of this kind can hold.
    #[must_use]
    pub fn max_len(&self) -> u32 {
        if self.unwritten { UNWRITTEN_MAX_LEN } else { INIT_MAX_LEN }
    }

    /// True if `next` continues this extent logically and physically, is of the same kind, and both
    /// fit in one extent (`ext4_can_extents_be_merged`).
    #[must_use]
    pub fn can_merge(&self, next: &Self) -> bool {
        self.unwritten == next.unwritten
            && self.end() == u64::from(next.block)
            && self.start.checked_add(self.len.into()) == Some(next.start)
            && self.len.saturating_add(next.len) <= self.max_len()
    }

    /// The physical block of logical block `block`, if inside.
    #[inline]
    #[must_use]
    pub fn map(&self, block: u32) -> Option<u64> {
        let at = block.checked_sub(self.block)?;
        (at < self.len).then(|| self.start.saturating_add(at.into()))
    }

    pub(crate) fn decode(raw: &[u8], off: usize) -> Self {
        let len = u32::from(le16(raw, off + 4));
        let unwritten = len > INIT_MAX_LEN;
        Self {
            block: le32(raw, off),
            len: if unwritten { len - INIT_MAX_LEN } else { len },
            start: join32(le32(raw, off + 8), le16(raw, off + 6).into()),
            unwritten,
        }
    }

    fn encode(&self, raw: &mut [u8], off: usize) {
        let len = if self.unwritten { self.len + INIT_MAX_LEN } else { self.len };
        put_le32(raw, off, self.block);
        put_le16(raw, off + 4, lo16(len));
        put_le16(raw, off + 6, lo16(hi32(self.start)));
        put_le32(raw, off + 8, lo32(self.start));
    }
}

impl ExtentIndex {
    fn decode(raw: &[u8], off: usize) -> Self {
        Self { block: le32(raw, off), leaf: join32(le32(raw, off + 4), le16(raw, off + 8).into()) }
    }

    fn encode(&self, raw: &mut [u8], off: usize) {
        put_le32(raw, off, self.block);
        put_le32(raw, off + 4, lo32(self.leaf));
        put_le16(raw, off + 8, lo16(hi32(self.leaf)));
        put_le16(raw, off + 10, 0);
    }
}

#[inline]
fn entry_offset(i: usize) -> usize {
    ENTRY_BYTES + i * ENTRY_BYTES
}

/// A checked view of one node's bytes.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a> {
    raw: &'a [u8],
    entries: usize,
    max: usize,
    depth: u16,
}

impl<'a> Node<'a> {
    /// Checks everything: header, order, overlap, block ranges. Corrupt otherwise.
    pub fn parse(raw: &'a [u8], limits: &NodeLimits) -> Result<Self> {
        let node = Self::parse_header(raw)?;
        if let Some(depth) = limits.depth {
            if depth != node.depth {
                let detail = format!("depth is {}, its parent says {depth}", node.depth);
                return Err(OndiskError::corrupt_at(WHAT, 6, detail));
            }
        }
        if node.depth == 0 {
            node.check_leaf(limits)?
        } else {
            node.check_index(limits)?
        }
        Ok(node)
    }

    /// Checks the header only: for bytes that passed [`Node::parse`] before and are still in a
    /// cache.
    pub fn parse_header(raw: &'a [u8]) -> Result<Self> {
        let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let magic = le16(raw, 0);
        if magic != EXTENT_MAGIC {
            return fail(0, format!("magic is {magic:#06x}, not 0xf30a"));
        }
        let (entries, max, depth) = (le16(raw, 2), le16(raw, 4), le16(raw, 6));
        if depth > MAX_DEPTH {
            return fail(6, format!("depth {depth} is above {MAX_DEPTH}"));
        }
        if max == 0 || entry_offset(max.into()) > raw.len() {
            return fail(4, format!("{max} entries do not fit {} bytes", raw.len()));
        }
        if entries > max {
            return fail(2, format!("{entries} entries, at most {max} fit"));
        }
        if entries == 0 && depth > 0 {
            return fail(2, "an index node without entries".into());
        }
        Ok(Self { raw, entries: entries.into(), max: max.into(), depth })
    }

    fn check_leaf(&self, limits: &NodeLimits) -> Result<()> {
        let mut next = u64::from(limits.first);
        for i in 0..self.entries {
            let at = entry_offset(i);
            let extent = Extent::decode(self.raw, at);
            let end_block = extent.start.checked_add(extent.len.into());
            let fail = |detail| Err(OndiskError::corrupt_at(WHAT, at, detail));
            if extent.len == 0 {
                return fail(format!("extent at logical block {} is empty", extent.block));
            }
            if u64::from(extent.block) < next || extent.end() > limits.end {
                return fail(format!("logical block {} is out of order", extent.block));
            }
            if extent.start < limits.blocks_first || end_block.is_none_or(|e| e > limits.blocks_end)
            {
                return fail(format!("block {} is outside the file system", extent.start));
            }
            next = extent.end();
        }
        Ok(())
    }

    fn check_index(&self, limits: &NodeLimits) -> Result<()> {
        let mut next = u64::from(limits.first);
        for i in 0..self.entries {
            let at = entry_offset(i);
            let index = ExtentIndex::decode(self.raw, at);
            let fail = |detail| Err(OndiskError::corrupt_at(WHAT, at, detail));
            if u64::from(index.block) < next || u64::from(index.block) >= limits.end {
                return fail(format!("logical block {} is out of order", index.block));
            }
            if !(limits.blocks_first..limits.blocks_end).contains(&index.leaf) {
                return fail(format!("block {} is outside the file system", index.leaf));
            }
            next = u64::from(index.block) + 1;
        }
        Ok(())
    }

    /// Depth: 0 is a leaf.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Number of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// True if there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Most entries the node can hold.
    #[inline]
    #[must_use]
    pub fn max(&self) -> usize {
        self.max
    }

    /// True if no entry can be added.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries >= self.max
    }

    /// Extent `i` of a leaf. `None`: past the end, or not a leaf.
    #[inline]
    #[must_use]
    pub fn extent(&self, i: usize) -> Option<Extent> {
        (i < self.entries && self.depth == 0).then(|| Extent::decode(self.raw, entry_offset(i)))
    }

    /// Entry `i` of an index node. `None`: past the end, or a leaf.
    #[inline]
    #[must_use]
    pub fn index(&self, i: usize) -> Option<ExtentIndex> {
        (i < self.entries && self.depth > 0).then(|| ExtentIndex::decode(self.raw, entry_offset(i)))
    }

    /// First logical block of entry `i` of either kind.
    #[inline]
    #[must_use]
    pub fn first_block(&self, i: usize) -> Option<u32> {
        (i < self.entries).then(|| le32(self.raw, entry_offset(i)))
    }

    /// The extents of a leaf.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let node = *self;
        (0..node.entries).map_while(move |i| node.extent(i))
    }

    /// The entries of an index node.
    pub fn indexes(&self) -> impl Iterator<Item = ExtentIndex> + use<'a> {
        let node = *self;
        (0..node.entries).map_while(move |i| node.index(i))
    }

    /// Position of the last entry that starts at or before `block`: the one that may hold it.
    #[inline]
    #[must_use]
    pub fn search(&self, block: u32) -> Option<usize> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let mid = low.midpoint(high);
            if le32(self.raw, entry_offset(mid)) <= block {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        low.checked_sub(1)
    }

    /// Position at which an entry starting at `block` would be inserted.
    #[inline]
    #[must_use]
    pub fn insert_position(&self, block: u32) -> usize {
        self.search(block).map_or(0, |i| i + 1)
    }
}

/// An editable node. Every method leaves a consistent header; order is the caller's to keep, by
/// inserting at [`Node::insert_position`].
#[derive(Debug)]
pub struct NodeMut<'a> {
    raw: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Takes a node whose header is right. Corrupt otherwise.
    pub fn parse(raw: &'a mut [u8]) -> Result<Self> {
        Node::parse_header(raw)?;
        Ok(Self { raw })
    }

    /// Makes an empty node. `raw` is a whole block, or the 60 bytes of `i_block`. Bytes are zeroed.
    pub fn init(raw: &'a mut [u8], depth: u16) -> Self {
        let max = raw.len().saturating_sub(ENTRY_BYTES) / ENTRY_BYTES;
        raw.fill(0);
        put_le16(raw, 0, EXTENT_MAGIC);
        put_le16(raw, 4, u16::try_from(max).unwrap_or(u16::MAX));
        put_le16(raw, 6, depth);
        Self { raw }
    }

    /// The node for reading.
    #[must_use]
    pub fn as_node(&self) -> Node<'_> {
        Node {
            raw: self.raw,
            entries: le16(self.raw, 2).into(),
            max: le16(self.raw, 4).into(),
            depth: le16(self.raw, 6),
        }
    }

    /// Overwrites extent `i`. Nothing if there is no such entry.
    pub fn set_extent(&mut self, i: usize, extent: &Extent) {
        if i < self.as_node().len() {
            extent.encode(self.raw, entry_offset(i));
        }
    }

    /// Overwrites index entry `i`. Nothing if there is no such entry.
    pub fn set_index(&mut self, i: usize, index: &ExtentIndex) {
        if i < self.as_node().len() {
            index.encode(self.raw, entry_offset(i));
        }
    }

    /// Changes the first logical block of entry `i`, of either kind.
    pub fn set_first_block(&mut self, i: usize, block: u32) {
        if i < self.as_node().len() {
            put_le32(self.raw, entry_offset(i), block);
        }
    }

    /// Inserts an extent before entry `i`. Full: no room.
    pub fn insert_extent(&mut self, i: usize, extent: &Extent) -> Result<()> {
        self.open_gap(i)?;
        extent.encode(self.raw, entry_offset(i));
        Ok(())
    }

    /// Inserts an index entry before entry `i`. Full: no room.
    pub fn insert_index(&mut self, i: usize, index: &ExtentIndex) -> Result<()> {
        self.open_gap(i)?;
        index.encode(self.raw, entry_offset(i));
        Ok(())
    }

    fn open_gap(&mut self, i: usize) -> Result<()> {
        let entries = self.as_node().len();
        if self.as_node().is_full() {
            return Err(OndiskError::Full { what: WHAT });
        }
        if i > entries {
            return Err(OndiskError::usage(WHAT, format!("position {i} of {entries} entries")));
        }
        let end = entry_offset(entries);
        self.raw.copy_within(entry_offset(i)..end, entry_offset(i + 1));
        self.set_len(entries + 1);
        Ok(())
    }

    /// Removes entries `range`; the freed places are zeroed. Nothing outside the entries is
    /// touched.
    pub fn remove(&mut self, range: std::ops::Range<usize>) {
        let entries = self.as_node().len();
        let end = range.end.min(entries);
        if range.start >= end {
            return;
        }
        let old_end = entry_offset(entries);
        self.raw.copy_within(entry_offset(end)..old_end, entry_offset(range.start));
        let left = entries - (end - range.start);
        if let Some(freed) = self.raw.get_mut(entry_offset(left)..old_end) {
            freed.fill(0);
        }
        self.set_len(left);
    }

    /// Moves entries `from..` to the end of `other`, which has the same depth. Full: no room there.
    pub fn move_tail_to(&mut self, from: usize, other: &mut NodeMut<'_>) -> Result<()> {
        let node = self.as_node();
        let count = node.len().saturating_sub(from);
        let have = other.as_node().len();
        if have + count > other.as_node().max() {
            return Err(OndiskError::Full { what: WHAT });
        }
        let src = self.raw.get(entry_offset(from)..entry_offset(from + count)).unwrap_or(&[]);
        put_bytes(other.raw, entry_offset(have), src);
        other.set_len(have + count);
        self.remove(from..from + count);
        Ok(())
    }

    /// Sets the depth (when a root grows above its old entries, or shrinks).
    pub fn set_depth(&mut self, depth: u16) {
        put_le16(self.raw, 6, depth);
    }

    fn set_len(&mut self, entries: usize) {
        put_le16(self.raw, 2, u16::try_from(entries).unwrap_or(u16::MAX));
    }
}

/// Offset of the checksum in a node block: after `eh_max` entries.
fn tail_offset(block: &[u8]) -> usize {
    entry_offset(le16(block, 4).into())
}

/// Stores the checksum of a node block. `inode_seed` as in [`checksum::inode_seed`].
pub fn set_block_checksum(block: &mut [u8], inode_seed: u32) {
    let at = tail_offset(block);
    if let Some(covered) = block.get(..at) {
        let crc = checksum::crc32c(inode_seed, covered);
        put_le32(block, at, crc);
    }
}

/// Checks the checksum of a node block. Corrupt: it does not match or has no place.
pub fn verify_block_checksum(block: &[u8], inode_seed: u32) -> Result<()> {
    let at = tail_offset(block);
    match block.get(..at) {
        Some(covered)
            if at + 4 <= block.len()
                && checksum::crc32c(inode_seed, covered) == le32(block, at) =>
        {
            Ok(())
        }
        _ => Err(OndiskError::corrupt_at(WHAT, at, "checksum does not match")),
    }
}
