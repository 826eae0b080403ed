//! Blocks with two owners: all but the first get copies of their own. Where there is no room for
//! them, the first file that needs copies is deleted, as e2fsck does.
//!
//! Copies are in one piece if there is one of that size. What is above [`COPIED_MAX`] is left for
//! the next round.

use std::mem;

use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::bytes::{put_bytes, put_le16, put_le32};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::superblock::{RESIZE_INO, ROOT_INO};
use syncline_ondisk::xattr::set_block_checksum;

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;
use crate::check::special::BAD_INO;

/// Bytes that one round copies.
const COPIED_MAX: u64 = 256 << 20;

impl Mender<'_, '_> {
    pub(super) fn mend_shared(&mut self) -> Step {
        let mut inodes = self.inodes_with(&[k::BLOCK_TWICE]);
        inodes.extend(self.inodes_with(&[k::CLUSTER]));
        let mut room = COPIED_MAX >> self.c.geo.block_bits;
        let (mut is_stuck, mut homeless) = (self.sees_all(), None);
        for ino in inodes {
            let Some(raw) = self.raw(ino)? else { continue };
            let is_plain = ino >= self.c.geo.first_ino || ino == ROOT_INO || self.c.keeps_file(ino);
            if ino == BAD_INO || ino == RESIZE_INO || !is_plain || raw.i_links_count == 0 {
                continue;
            }
            let mut others = (mem::take(&mut self.slots), mem::take(&mut self.blocks));
            if self.copy_shared(ino, &raw, &mut room)? {
                is_stuck = false;
                others.0.append(&mut self.slots);
                others.1.append(&mut self.blocks);
            } else {
                homeless.get_or_insert(ino);
            }
            (self.slots, self.blocks) = others;
        }
        match homeless.filter(|ino| is_stuck && *ino >= self.c.geo.first_ino) {
            Some(ino) => self.clear_inode(ino),
            None => Ok(()),
        }
    }

    /// True if a block has another owner that came first.
    fn is_shared(&self, block: u64) -> bool {
        let c = &*self.c;
        c.in_volume(block)
            && (c.blocks.is_twice(block >> c.cluster_bits) || c.metadata.is_marked(block))
    }

    /// Gives an inode copies of its shared blocks. False: there is no room.
    fn copy_shared(&mut self, ino: u32, raw: &Inode, room: &mut u64) -> Step<bool> {
        if self.is_shared(raw.i_file_acl) && !self.copy_xattr_block(ino, raw.i_file_acl)? {
            return Ok(false);
        }
        if raw.has_flag(flags::INLINE_DATA) || !crate::check::Checker::has_map(raw) {
            return Ok(true);
        }
        if raw.has_flag(flags::EXTENTS) {
            return self.copy_extents(ino, raw, room);
        }
        let mut root = raw.i_block;
        for slot in 0..15 {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            if !self.copy_pointer(&mut root, slot, levels, room)? {
                return Ok(false);
            }
        }
        self.change(ino, |slot| put_bytes(slot, I_BLOCK_OFFSET, &root))?;
        Ok(true)
    }

    fn copy_xattr_block(&mut self, ino: u32, block: u64) -> Step<bool> {
        let Some(mut bytes) = self.view(block)? else { return Ok(false) };
        let Some(new) = self.take_block()? else { return Ok(false) };
        if self.c.geo.metadata_csum {
            set_block_checksum(&mut bytes, new, self.c.sb.csum_seed());
        }
        self.put(new, bytes);
        self.change(ino, |slot| {
            put_le32(slot, 0x68, (new & 0xffff_ffff) as u32);
            put_le16(slot, 0x76, (new >> 32) as u16);
        })?;
        Ok(true)
    }

    fn copy_extents(&mut self, ino: u32, raw: &Inode, room: &mut u64) -> Step<bool> {
        let mapped = self.rewalk(ino, raw)?;
        let extents = mapped.extents;
        if self.c.cluster_bits > 0 {
            return self.copy_clusters(ino, raw, (&extents, mapped.nodes), room);
        }
        let mut is_changed = false;
        let mut whole = Vec::new();
        for mut rest in extents {
            let mut most = rest.len;
            while rest.len > 0 {
                let is_shared = self.is_shared(rest.start);
                let like = |nr: &u32| self.is_shared(rest.start + u64::from(*nr)) == is_shared;
                let mut part =
                    Extent { len: (0..rest.len).take_while(like).count() as u32, ..rest };
                if is_shared && *room > 0 {
                    let most_now = most.min(u32::try_from(*room).unwrap_or(u32::MAX));
                    part.len = part.len.min(most_now);
                    let Some(new) = self.take_clusters(part.len)? else {
                        if part.len == 1 {
                            return Ok(false);
                        }
                        most = part.len / 2;
                        continue;
                    };
                    self.copy_run(&part, new)?;
                    *room -= u64::from(part.len);
                    (part.start, is_changed) = (new, true);
                }
                rest.block = rest.block.saturating_add(part.len);
                rest.start += u64::from(part.len);
                rest.len -= part.len;
                super::grow::append(&mut whole, part);
            }
        }
        if is_changed || mapped.nodes.iter().any(|node| self.is_shared(*node)) {
            self.write_extents(ino, raw, &whole, mapped.nodes)?;
        }
        Ok(true)
    }

    /// Copies the contents of an extent, if it has any.
    fn copy_run(&mut self, extent: &Extent, new: u64) -> Step {
        for nr in 0..u64::from(extent.len) {
            if extent.unwritten {
                break;
            }
            if let Some(bytes) = self.view(extent.start + nr)? {
                self.put(new + nr, bytes);
            }
        }
        Ok(())
    }

    /// The same with clusters: each logical one that is shared, or not at its place in one physical
    /// one, gets another.
    fn copy_clusters(
        &mut self,
        ino: u32,
        raw: &Inode,
        (extents, nodes): (&[Extent], Vec<u64>),
        room: &mut u64,
    ) -> Step<bool> {
        let bits = self.c.cluster_bits;
        let mask = (1u32 << bits) - 1;
        let mut parts: Vec<Extent> = Vec::new();
        for extent in extents {
            let mut rest = *extent;
            while rest.len > 0 {
                let len = rest.len.min(mask + 1 - (rest.block & mask));
                parts.push(Extent { len, ..rest });
                rest.block = rest.block.saturating_add(len);
                (rest.start, rest.len) = (rest.start + u64::from(len), rest.len - len);
            }
        }
        let mut whole = Vec::new();
        for parts in parts.chunk_by(|one, other| one.block >> bits == other.block >> bits) {
            let first = parts[0].start >> bits;
            let is_right = |part: &Extent| {
                part.start >> bits == first
                    && (part.start ^ u64::from(part.block)) & u64::from(mask) == 0
                    && !self.is_shared(part.start)
            };
            let mut new = None;
            if !parts.iter().all(is_right) && *room > u64::from(mask) {
                new = self.take_clusters(1)?;
                let Some(_) = new else { return Ok(false) };
                *room -= u64::from(mask) + 1;
            }
            for part in parts {
                let mut part = *part;
                if let Some(new) = new {
                    let place = new + u64::from(part.block & mask);
                    self.copy_run(&part, place)?;
                    part.start = place;
                }
                super::grow::append(&mut whole, part);
            }
        }
        self.write_extents(ino, raw, &whole, nodes)?;
        Ok(true)
    }

    /// Copies what a pointer names, if something else has it, too. A table that is copied is
    /// looked into in the next round: then it is the inode's own.
    fn copy_pointer(
        &mut self,
        table: &mut [u8],
        slot: u32,
        levels: u32,
        room: &mut u64,
    ) -> Step<bool> {
        let block = u64::from(pointer(table, slot).unwrap_or(0));
        if block == 0 || !self.c.in_volume(block) {
            return Ok(true);
        }
        if self.is_shared(block) && *room == 0 {
            return Ok(true);
        }
        if self.is_shared(block) {
            let Some(bytes) = self.view(block)? else { return Ok(false) };
            let Some(new) = self.take_block()? else { return Ok(false) };
            let new = new + (block & ((1 << self.c.cluster_bits) - 1));
            *room -= 1;
            self.put(new, bytes);
            put_le32(table, 4 * slot as usize, new as u32);
            return Ok(true);
        }
        if levels == 0 {
            return Ok(true);
        }
        let Some(mut below) = self.view(block)? else { return Ok(true) };
        let before = below.clone();
        for slot in 0..(self.c.geo.block_size / 4) as u32 {
            if !self.copy_pointer(&mut below, slot, levels - 1, room)? {
                return Ok(false);
            }
        }
        if below != before {
            self.put(block, below);
        }
        Ok(true)
    }
}
