//! Files without an inode, by the nodes of their extent trees.
//!
//! ```text
//!   blocks in use that no inode has ── nodes ── trees ── files of several trees
//!                                                        (one seed of checksums)
//! ```
//!
//! Where a table of inodes is lost, the blocks of its files stay in use. Some of them are nodes of
//! extent trees, and say where the data of a file is. The checksum of a node is seeded with the
//! number of its inode, so nodes of one file have one seed. Without checksums each tree is a file
//! of its own. The size is that of the blocks. A file with four extents or fewer has no node, and
//! is not found.
//!
//! Memory: a bit for each block of the volume, and 40 bytes a node.

use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::bitmap;
use syncline_ondisk::bytes::le32;
use syncline_ondisk::checksum::{crc32c, steer_crc32c};
use syncline_ondisk::extent::{
    ENTRY_BYTES, ExtentIndex, LOGICAL_END, MAX_DEPTH, Node, NodeLimits, NodeMut, ROOT_MAX,
};
use syncline_ondisk::inode::{Inode, S_IFREG, flags};

use super::View;
use super::made::Room;
use crate::error::Result;
use crate::inode::table::read_inode;
use crate::store::Store;
use crate::store::group::{block_bitmap, group_desc};

/// Most bytes of the marks: volumes of 32 TiB with blocks of 4 KiB.
const MARKS_MAX: u64 = 1 << 30;

/// A node that no node of this list and no inode names.
struct Top {
    block: u64,
    depth: u16,
    /// Logical blocks that it maps.
    first: u32,
    end: u64,
    /// Seed of its checksum; its own number without checksums.
    seed: u64,
}

/// A file in pieces, with the block of its first node.
pub(super) struct Piece {
    pub(super) block: u64,
    pub(super) inode: Inode,
}

struct Scan<'a> {
    view: &'a View,
    store: &'a Store,
    /// Blocks of inodes.
    known: Vec<u8>,
}

/// Files that are left of inodes that are lost; `used` has a bit for each that is not. Nodes that
/// join several trees take blocks of `room`.
pub(super) fn find(view: &View, store: &Store, used: &[u8], room: &mut Room) -> Result<Vec<Piece>> {
    let bytes = view.geo.blocks_count.div_ceil(8);
    if bytes > MARKS_MAX {
        return Ok(Vec::new());
    }
    let mut scan = Scan { view, store, known: vec![0; bytes as usize] };
    scan.mark_groups()?;
    let is_used = |ino: &u32| *ino < view.geo.first_ino || bitmap::test(used, *ino);
    for ino in (1..=view.geo.inodes_count).filter(is_used) {
        let Ok(inode) = read_inode(store, ino) else { continue };
        scan.mark(inode.i_file_acl, 1);
        if inode.has_flag(flags::EXTENTS) {
            scan.mark_tree(&inode.i_block, 0);
        }
    }
    let mut files: BTreeMap<u64, Vec<Top>> = BTreeMap::new();
    for top in scan.tops()? {
        files.entry(top.seed).or_default().push(top);
    }
    let files = files.into_values().map(|tops| file(view, tops, room));
    Ok(files.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

impl Scan<'_> {
    fn mark(&mut self, start: u64, len: u64) {
        let end = start.saturating_add(len).min(self.view.geo.blocks_count);
        if start >= end {
            return;
        }
        let (first, last) = (start.next_multiple_of(8).min(end), end / 8 * 8);
        if let Some(bytes) = self.known.get_mut((first / 8) as usize..(last / 8) as usize) {
            bytes.fill(0xff);
        }
        for block in (start..first).chain(last.max(first)..end) {
            if let Some(byte) = self.known.get_mut((block / 8) as usize) {
                *byte |= 1 << (block % 8);
            }
        }
    }

    fn is_known(&self, block: u64) -> bool {
        let byte = self.known.get((block / 8) as usize);
        byte.is_none_or(|byte| byte & 1 << (block % 8) != 0)
    }

    /// Marks what groups have of their own.
    fn mark_groups(&mut self) -> Result<()> {
        let (view, store) = (self.view, self.store);
        for group in 0..view.geo.group_count {
            let head = u64::from(view.sb.group_has_super(group))
                + u64::from(view.geo.group_gdt_blocks(&view.sb, group));
            self.mark(view.geo.group_first_block(group), head);
            let desc = group_desc(store, group)?;
            self.mark(desc.bg_block_bitmap, 1);
            self.mark(desc.bg_inode_bitmap, 1);
            self.mark(desc.bg_inode_table, view.geo.itable_blocks.into());
        }
        Ok(())
    }

    /// Marks what a node maps, and the nodes below it.
    fn mark_tree(&mut self, bytes: &[u8], levels: u16) {
        let Ok(node) = Node::parse_header(bytes) else { return };
        if node.depth() == 0 {
            node.extents().for_each(|extent| self.mark(extent.start, extent.len.into()));
        }
        for index in node.indexes().filter(|_| node.depth() > 0 && levels < MAX_DEPTH) {
            // A node that is marked was walked into.
            if !self.is_known(index.leaf) {
                self.mark(index.leaf, 1);
                if let Ok(bytes) = self.view.block(index.leaf) {
                    self.mark_tree(&bytes, levels + 1);
                }
            }
        }
    }

    /// Nodes in blocks that are in use and that no inode has.
    fn tops(&self) -> Result<Vec<Top>> {
        let geo = &self.view.geo;
        // Trees that share no blocks map no more. So the work has a bound.
        let mut left = 2 * geo.blocks_count;
        let (mut tops, mut children) = (Vec::new(), BTreeSet::new());
        for group in 0..geo.group_count {
            let desc = group_desc(self.store, group)?;
            let Ok(used) = block_bitmap(self.store, group, &desc) else { continue };
            let first = geo.group_first_block(group);
            let end = first.saturating_add(geo.blocks_per_group.into()).min(geo.blocks_count);
            for block in first..end {
                let Some((_, bit)) = geo.block_bit(block) else { continue };
                if self.is_known(block) || !bitmap::test(&used, bit) {
                    continue;
                }
                let Ok(bytes) = self.view.block(block) else { continue };
                tops.extend(self.top(block, &bytes, &mut children, &mut left));
            }
        }
        tops.retain(|top| !children.contains(&(top.block, top.depth)));
        Ok(tops)
    }

    /// The node in a block, if it is one and maps nothing that an inode has.
    fn top(
        &self,
        block: u64,
        bytes: &[u8],
        children: &mut BTreeSet<(u64, u16)>,
        left: &mut u64,
    ) -> Option<Top> {
        let limits = NodeLimits { depth: None, ..NodeLimits::root(&self.view.geo) };
        let node = Node::parse(bytes, &limits).ok().filter(|node| !node.is_empty())?;
        let below: Vec<_> = node.indexes().filter(|_| node.depth() > 0).collect();
        let extents: Vec<_> = node.extents().filter(|_| node.depth() == 0).collect();
        *left = left.checked_sub(extents.iter().map(|extent| u64::from(extent.len)).sum())?;
        let is_foreign = |start: u64, len: u64| (start..start + len).any(|nr| self.is_known(nr));
        let has_foreign = below.iter().any(|index| is_foreign(index.leaf, 1))
            || extents.iter().any(|extent| is_foreign(extent.start, extent.len.into()));
        if has_foreign {
            return None;
        }
        children.extend(below.iter().map(|index| (index.leaf, node.depth() - 1)));
        Some(Top {
            block,
            depth: node.depth(),
            first: node.first_block(0)?,
            end: self.end(bytes, node.depth()),
            seed: self.seed(block, bytes, node.max()),
        })
    }

    /// One past the last logical block that a tree maps.
    fn end(&self, bytes: &[u8], levels: u16) -> u64 {
        let Ok(node) = Node::parse_header(bytes) else { return 0 };
        if node.depth() == 0 {
            return node.extents().last().map_or(0, |extent| extent.end());
        }
        let last = node.indexes().last().filter(|_| levels > 0);
        let below = last.and_then(|index| self.view.block(index.leaf).ok());
        below.map_or(0, |bytes| self.end(&bytes, levels - 1))
    }

    /// The seed with which a node has its checksum: a CRC can be run backwards.
    fn seed(&self, block: u64, bytes: &[u8], max: usize) -> u64 {
        let at = ENTRY_BYTES * (max + 1);
        if !self.view.sb.has_metadata_csum() || at + 4 > bytes.len() {
            return 1 << 32 | block;
        }
        let mut before = vec![0; 4];
        before.extend(bytes.get(..at).unwrap_or(&[]));
        steer_crc32c(0, &mut before, 0, le32(bytes, at));
        crc32c(0, &before[..4]).into()
    }
}

/// A file of trees whose logical blocks go up; those that overlap are left out.
fn file(view: &View, mut tops: Vec<Top>, room: &mut Room) -> Result<Option<Piece>> {
    tops.sort_by_key(|top| (top.first, top.block));
    let depth = tops.first().map_or(0, |top| top.depth);
    let mut end = 0;
    tops.retain(|top| {
        let fits = top.depth == depth && u64::from(top.first) >= end && top.end > top.first.into();
        end = if fits { top.end } else { end };
        fits && end <= LOGICAL_END
    });
    let Some(block) = tops.first().map(|top| top.block) else { return Ok(None) };
    let mut inode = view.own_inode(S_IFREG | 0o600, end << view.geo.block_bits);
    let mut level: Vec<ExtentIndex> =
        tops.iter().map(|top| ExtentIndex { block: top.first, leaf: top.block }).collect();
    let mut depth = depth + 1;
    while level.len() > usize::from(ROOT_MAX) {
        let per_node = (view.geo.block_size - ENTRY_BYTES) / ENTRY_BYTES;
        let mut above = Vec::new();
        for part in level.chunks(per_node) {
            let Some(taken) = room.take(1) else { return Ok(None) };
            let (Some((leaf, _)), Some(first)) = (taken.first(), part.first()) else { break };
            let mut bytes = vec![0; view.geo.block_size];
            fill(&mut NodeMut::init(&mut bytes, depth), part)?;
            view.put(leaf << view.geo.block_bits, &bytes)?;
            above.push(ExtentIndex { block: first.block, leaf: *leaf });
        }
        (level, depth) = (above, depth + 1);
    }
    fill(&mut NodeMut::init(&mut inode.i_block, depth), &level)?;
    Ok(Some(Piece { block, inode }))
}

fn fill(node: &mut NodeMut<'_>, level: &[ExtentIndex]) -> Result<()> {
    for (at, index) in level.iter().enumerate() {
        node.insert_index(at, index)?;
    }
    Ok(())
}
