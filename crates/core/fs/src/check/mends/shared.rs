//! Blocks with two owners: all but one get copies of their own (`claims.rs` says which). Where
//! there is no room for them, the first file that needs copies is deleted, as e2fsck does.
//!
//! Copies are in one piece if there is one of that size. What is above [`COPIED_MAX`] is left for
//! the next round.

use std::mem;

use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::bytes::{put_bytes, put_le16, put_le32};
use syncline_ondisk::extent::Extent;
use syncline_ondisk::inode::{I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::xattr::set_block_checksum;

use super::Mender;
use super::claims::{Claim, has_map};
use crate::check::Step;
use crate::check::kinds as k;

/// Bytes that one round copies.
const COPIED_MAX: u64 = 256 << 20;

impl Mender<'_, '_> {
    pub(super) fn mend_shared(&mut self) -> Step {
        let found = [k::BLOCK_TWICE, k::CLUSTER];
        // A finding names the last owner, and the others change: if one is refused, all stay.
        let is_refused = self.refused.iter().any(|finding| super::is_of(finding, &found));
        if is_refused || !self.has(&found) {
            return Ok(());
        }
        let mut room = COPIED_MAX >> self.c.geo.block_bits;
        let mut claims = self.claims(room >> self.c.cluster_bits)?;
        for ino in self.inodes_with(&found) {
            claims.entry(ino).or_default();
        }
        let (mut is_stuck, mut homeless) = (self.sees_all(), None);
        for (ino, mut claim) in claims {
            let before = self.slot(ino)?.cloned();
            let Some(raw) = self.raw(ino)? else { continue };
            if !self.takes_copies(ino) || raw.i_links_count == 0 {
                continue;
            }
            let mut others = (mem::take(&mut self.slots), mem::take(&mut self.blocks));
            if !self.copy_shared(ino, &raw, &mut claim, &mut room)? {
                homeless.get_or_insert(ino);
            } else if !self.blocks.is_empty() || self.slot(ino)?.cloned() != before {
                is_stuck = false;
                others.0.append(&mut self.slots);
                others.1.append(&mut self.blocks);
            }
            (self.slots, self.blocks) = others;
        }
        match homeless.filter(|ino| is_stuck && *ino >= self.c.geo.first_ino) {
            Some(ino) => self.clear_inode(ino),
            None => Ok(()),
        }
    }

    /// Gives an inode copies of the blocks that it has to give up. False: there is no room.
    fn copy_shared(
        &mut self,
        ino: u32,
        raw: &Inode,
        claim: &mut Claim,
        room: &mut u64,
    ) -> Step<bool> {
        if self.gives(claim, raw.i_file_acl) && !self.copy_xattr_block(ino, raw.i_file_acl)? {
            return Ok(false);
        }
        if !has_map(raw) {
            return Ok(true);
        }
        if raw.has_flag(flags::EXTENTS) {
            return self.copy_extents(ino, raw, claim, room);
        }
        let mut root = raw.i_block;
        for slot in 0..15 {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            if !self.copy_pointer(&mut root, (slot, levels), claim, room)? {
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

    fn copy_extents(
        &mut self,
        ino: u32,
        raw: &Inode,
        claim: &mut Claim,
        room: &mut u64,
    ) -> Step<bool> {
        let mapped = self.rewalk(ino, raw)?;
        let extents = mapped.extents;
        if self.c.cluster_bits > 0 {
            return self.copy_clusters(ino, raw, (&extents, mapped.nodes), (claim, room));
        }
        let mut is_changed = mapped.nodes.iter().any(|node| self.gives(claim, *node));
        let mut whole = Vec::new();
        for (mut rest, is_given) in self.parts(&extents, claim) {
            let mut most = rest.len;
            while is_given && rest.len > 0 && *room > 0 {
                let most_now = most.min(u32::try_from(*room).unwrap_or(u32::MAX));
                let mut part = Extent { len: rest.len.min(most_now), ..rest };
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
                rest.block = rest.block.saturating_add(part.len);
                rest.start += u64::from(part.len);
                rest.len -= part.len;
                super::grow::append(&mut whole, part);
            }
            if rest.len > 0 {
                super::grow::append(&mut whole, rest);
            }
        }
        if is_changed {
            self.write_extents(ino, raw, &whole, mapped.nodes)?;
        }
        Ok(true)
    }

    /// Extents in parts that are given up as a whole, or not at all.
    fn parts(&self, extents: &[Extent], claim: &mut Claim) -> Vec<(Extent, bool)> {
        let mut parts: Vec<(Extent, bool)> = Vec::new();
        for extent in extents {
            let mut is_first = true;
            for nr in 0..extent.len {
                let start = extent.start + u64::from(nr);
                let is_given = self.gives(claim, start);
                match parts.last_mut() {
                    Some((last, given)) if !is_first && *given == is_given => last.len += 1,
                    _ => {
                        let block = extent.block.saturating_add(nr);
                        parts.push((Extent { block, len: 1, start, ..*extent }, is_given));
                    }
                }
                is_first = false;
            }
        }
        parts
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
        (claim, room): (&mut Claim, &mut u64),
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
            };
            let is_given = self.gives(claim, parts[0].start)
                || parts.iter().any(|part| self.c.metadata.is_marked(part.start));
            let mut new = None;
            if (is_given || !parts.iter().all(is_right)) && *room > u64::from(mask) {
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

    /// Copies what a pointer names, if it is given up. A table that is copied, or that another
    /// inode gives up, is looked into in the next round: then it is the inode's own.
    fn copy_pointer(
        &mut self,
        table: &mut [u8],
        (slot, levels): (u32, u32),
        claim: &mut Claim,
        room: &mut u64,
    ) -> Step<bool> {
        let block = u64::from(pointer(table, slot).unwrap_or(0));
        if block == 0 || !self.c.in_volume(block) {
            return Ok(true);
        }
        if self.gives(claim, block) {
            if *room == 0 {
                return Ok(true);
            }
            let Some(bytes) = self.view(block)? else { return Ok(false) };
            let Some(new) = self.take_block()? else { return Ok(false) };
            let new = new + (block & ((1 << self.c.cluster_bits) - 1));
            *room -= 1;
            self.put(new, bytes);
            put_le32(table, 4 * slot as usize, new as u32);
            return Ok(true);
        }
        if levels == 0 || !self.is_own(block) {
            return Ok(true);
        }
        let Some(mut below) = self.view(block)? else { return Ok(true) };
        let before = below.clone();
        for slot in 0..(self.c.geo.block_size / 4) as u32 {
            if !self.copy_pointer(&mut below, (slot, levels - 1), claim, room)? {
                return Ok(false);
            }
        }
        if below != before {
            self.put(block, below);
        }
        Ok(true)
    }
}
