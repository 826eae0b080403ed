//! The blocks of one inode: extent trees and block maps, walked once, every block marked.
//!
//! A node that is in use already is not walked into, so that no image makes the walk go round or
//! fan out: the work is bounded by the blocks of the volume.

use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::checksum;
use syncline_ondisk::extent::{Node, NodeLimits, verify_block_checksum};
use syncline_ondisk::inode::{Inode, flags};

use super::{Checker, Step};

/// Blocks that an inode maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    /// Blocks of data.
    pub(super) data: u64,
    /// Blocks of the map itself.
    pub(super) meta: u64,
    /// One past the last logical block.
    pub(super) end: u64,
    /// One past the last logical block that is not unwritten.
    pub(super) written_end: u64,
    /// Part of the map could not be read.
    pub(super) broken: bool,
}

impl Checker<'_> {
    /// Walks the map of an inode.
    pub(super) fn walk_blocks(&mut self, ino: u32, raw: &Inode) -> Step<Mapped> {
        let mut mapped = Mapped::default();
        if raw.has_flag(flags::EXTENTS) {
            let vol = self.vol;
            let seed = vol
                .geo
                .metadata_csum
                .then(|| checksum::inode_seed(vol.csum_seed, ino, raw.i_generation));
            let limits = NodeLimits::root(&vol.geo);
            self.walk_node(ino, None, &raw.i_block, &limits, seed, &mut mapped)?;
            return Ok(mapped);
        }
        let mut lblk = 0;
        for slot in 0..15 {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            let block = pointer(&raw.i_block, slot).unwrap_or(0);
            self.walk_pointer(ino, block, levels, &mut lblk, &mut mapped)?;
        }
        Ok(mapped)
    }

    fn walk_node(
        &mut self,
        ino: u32,
        block: Option<u64>,
        bytes: &[u8],
        limits: &NodeLimits,
        seed: Option<u32>,
        mapped: &mut Mapped,
    ) -> Step {
        let node = match Node::parse(bytes, limits) {
            Ok(node) => node,
            Err(err) => {
                mapped.broken = true;
                return self.note_bad(err, Some(ino), block);
            }
        };
        if let (Some(_), Some(seed)) = (block, seed) {
            if let Err(err) = verify_block_checksum(bytes, seed) {
                self.note_bad(err, Some(ino), block)?;
            }
        }
        if node.depth() == 0 {
            for extent in node.extents() {
                self.mark_data(ino, extent.start, extent.len.into());
                mapped.data += u64::from(extent.len);
                mapped.end = mapped.end.max(extent.end());
                if !extent.unwritten {
                    mapped.written_end = mapped.written_end.max(extent.end());
                }
            }
            return Ok(());
        }
        for i in 0..node.len() {
            let Some(index) = node.index(i) else { break };
            mapped.meta += 1;
            if !self.mark(ino, index.leaf, 1) {
                mapped.broken = true;
                continue;
            }
            let child = self.vol.buffers.read(index.leaf)?;
            self.walk_node(ino, Some(index.leaf), &child, &limits.child(&node, i), seed, mapped)?;
        }
        Ok(())
    }

    /// One pointer of a block map with `levels` tables below it.
    fn walk_pointer(
        &mut self,
        ino: u32,
        block: u32,
        levels: u32,
        lblk: &mut u64,
        mapped: &mut Mapped,
    ) -> Step {
        let per = self.vol.geo.block_size as u64 / 4;
        let span = per.saturating_pow(levels);
        let here = *lblk;
        *lblk = here.saturating_add(span);
        if block == 0 {
            return Ok(());
        }
        if !self.vol.geo.is_valid_range(block.into(), 1) {
            mapped.broken = true;
            self.note(Some(ino), Some(block.into()), "a block outside of the volume is mapped");
            return Ok(());
        }
        if levels == 0 {
            self.mark_data(ino, block.into(), 1);
            mapped.data += 1;
            mapped.end = here + 1;
            mapped.written_end = here + 1;
            return Ok(());
        }
        mapped.meta += 1;
        if !self.mark(ino, block.into(), 1) {
            mapped.broken = true;
            return Ok(());
        }
        let table = self.vol.buffers.read(block.into())?;
        let mut at = here;
        for slot in 0..u32::try_from(per).unwrap_or(0) {
            let next = pointer(&table, slot).unwrap_or(0);
            self.walk_pointer(ino, next, levels - 1, &mut at, mapped)?;
        }
        Ok(())
    }

    /// The resize inode: its double indirect block is its own, the tables below are the reserved
    /// descriptor blocks, which are marked already.
    pub(super) fn mark_resize_inode(&mut self, ino: u32, raw: &Inode) {
        let block = u64::from(pointer(&raw.i_block, NDIR_BLOCKS + 1).unwrap_or(0));
        if block == 0 {
            return;
        }
        if self.vol.geo.is_valid_range(block, 1) {
            self.mark(ino, block, 1);
        } else {
            self.note(
                Some(ino),
                Some(block),
                "the resize inode maps a block outside of the volume",
            );
        }
    }
}
