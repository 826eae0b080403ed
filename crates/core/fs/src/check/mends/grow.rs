//! Blocks that a directory gets: in its holes, and behind its end.

use syncline_ondisk::blockmap::BlockPath;
use syncline_ondisk::bytes::{le32, put_le32};
use syncline_ondisk::dir;
use syncline_ondisk::extent::{Extent, INIT_MAX_LEN};
use syncline_ondisk::inode::{I_BLOCK_OFFSET, Inode, flags};
use syncline_ondisk::superblock::ROOT_INO;

use super::Mender;
use crate::check::Step;

/// Blocks that one mend fills in.
const FILLED_MAX: u32 = 1 << 12;

impl Mender<'_, '_> {
    /// Writes an empty block of a directory; the first one with `.` and `..`.
    fn put_leaf(&mut self, ino: u32, raw: &Inode, lblk: u32, block: u64) {
        let format = self.c.format;
        let mut bytes = vec![0; self.c.geo.block_size];
        if lblk == 0 {
            let parent = self.parent_of(ino);
            dir::init_dots(&mut bytes, &format, ino, parent);
        } else {
            dir::init_empty(&mut bytes, &format);
        }
        self.put_dir_block(ino, raw, block, bytes);
    }

    /// Writes a linear block of a directory, with its checksum.
    pub(super) fn put_dir_block(&mut self, ino: u32, raw: &Inode, block: u64, mut bytes: Vec<u8>) {
        if let Some(seed) = self.seed(ino, raw.i_generation) {
            if dir::has_tail(&bytes) {
                dir::set_checksum(&mut bytes, &self.c.format, seed);
            }
        }
        self.put(block, bytes);
    }

    /// The directory that a directory is in; the root if none is known.
    pub(super) fn parent_of(&self, ino: u32) -> u32 {
        let known = self.c.dirs.get(&ino).map_or(0, |dir| dir.parent);
        if known == 0 || ino == ROOT_INO { ROOT_INO } else { known }
    }

    /// Closes the holes of a directory: what is behind one comes forward, as with e2fsck. With
    /// clusters it stays at its place in one, and the rest of that is filled. False: no room.
    pub(super) fn close_holes(
        &mut self,
        ino: u32,
        raw: &Inode,
        extents: &mut Vec<Extent>,
    ) -> Step<bool> {
        let mask = (1u32 << self.c.cluster_bits) - 1;
        let mut whole: Vec<Extent> = Vec::new();
        for mut extent in std::mem::take(extents) {
            let last = whole.last().map(|last| (last.block + last.len, last.start, last.block));
            let next = last.map_or(0, |(next, ..)| next);
            let place = next + (extent.block.wrapping_sub(next) & mask);
            for lblk in next..place {
                let before = last.filter(|_| lblk & mask != 0 && next & mask != 0);
                let start = match before {
                    Some((_, start, block)) if lblk & !mask == (next - 1) & !mask => {
                        start + u64::from(lblk - block)
                    }
                    _ => extent.start.saturating_sub(u64::from(place - lblk)),
                };
                self.put_leaf(ino, raw, lblk, start);
                append(&mut whole, Extent { block: lblk, len: 1, start, unwritten: false });
            }
            extent.block = place;
            append(&mut whole, extent);
        }
        if whole.is_empty() {
            let Some(start) = self.take_aligned(0)? else { return Ok(false) };
            self.put_leaf(ino, raw, 0, start);
            whole.push(Extent { block: 0, len: 1, start, unwritten: false });
        }
        *extents = whole;
        Ok(true)
    }

    /// A new block for a logical one; a cluster has each at its place.
    fn take_aligned(&mut self, lblk: u32) -> Step<Option<u64>> {
        let within = u64::from(lblk) & ((1 << self.c.cluster_bits) - 1);
        Ok(self.take_block()?.map(|first| first + within))
    }

    /// The same for a directory without extents.
    pub(super) fn fill_pointer_holes(&mut self, ino: u32) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let mapped = self.rewalk(ino, &raw)?;
        let end = u32::try_from(mapped.end).unwrap_or(0).max(1);
        let holes = (0..end).filter(|lblk| mapped.runs.map(*lblk).is_none());
        for lblk in holes.take(FILLED_MAX as usize).collect::<Vec<_>>() {
            let Some(block) = self.take_block()? else { return Ok(()) };
            if !self.set_pointer(ino, lblk, block)? {
                return Ok(());
            }
            self.put_leaf(ino, &raw, lblk, block);
        }
        Ok(())
    }

    /// Maps a block in an inode without extents. False: there is no room for the tables, or one is
    /// not the inode's alone.
    pub(super) fn set_pointer(&mut self, ino: u32, lblk: u32, block: u64) -> Step<bool> {
        let Some(path) = BlockPath::new(lblk, self.c.geo.block_size) else { return Ok(false) };
        let Ok(target) = u32::try_from(block) else { return Ok(false) };
        let mut table = None;
        for (level, slot) in path.slots().iter().enumerate() {
            let at = 4 * *slot as usize;
            let last = level == path.depth();
            let now = match table {
                None => self.slot(ino)?.map_or(0, |slot| le32(slot, I_BLOCK_OFFSET + at)),
                Some(block) => self.view(block)?.map_or(0, |bytes| le32(&bytes, at)),
            };
            let next = if last {
                target
            } else if now != 0 {
                // A table that something else has, too, is copied first.
                if !self.is_own(now.into()) {
                    return Ok(false);
                }
                now
            } else {
                let Some(new) = self.take_block()? else { return Ok(false) };
                self.put(new, vec![0; self.c.geo.block_size]);
                new as u32
            };
            match table {
                None => self.change(ino, |slot| put_le32(slot, I_BLOCK_OFFSET + at, next))?,
                Some(block) => self.patch(block, at, &next.to_le_bytes())?,
            }
            table = Some(u64::from(next));
        }
        Ok(true)
    }

    /// Adds empty blocks behind the end of a directory.
    pub(super) fn grow_dir(&mut self, ino: u32, count: u32) -> Step {
        let Some(raw) = self.raw(ino)? else { return Ok(()) };
        let mapped = self.rewalk(ino, &raw)?;
        let Ok(end) = u32::try_from(mapped.end) else { return Ok(()) };
        if mapped.broken || raw.has_flag(flags::INLINE_DATA) || end == 0 {
            return Ok(());
        }
        let mut extents = mapped.extents;
        for lblk in end..end + count.clamp(1, FILLED_MAX) {
            // A cluster may have room behind the last block.
            let mask = (1u64 << self.c.cluster_bits) - 1;
            let before = mapped.runs.map(end - 1).unwrap_or(0) + u64::from(lblk - end) + 1;
            let in_cluster = u64::from(lblk) & mask != 0 && (lblk - end) as u64 <= mask;
            let spare = in_cluster && u64::from(end) & mask != 0;
            let taken = if spare { Some(before) } else { self.take_aligned(lblk)? };
            let Some(block) = taken else { return Ok(()) };
            if raw.has_flag(flags::EXTENTS) {
                let new = Extent { block: lblk, len: 1, start: block, unwritten: false };
                append(&mut extents, new);
            } else if !self.set_pointer(ino, lblk, block)? {
                return Ok(());
            }
            self.put_leaf(ino, &raw, lblk, block);
            self.set_size(ino, u64::from(lblk + 1) << self.c.geo.block_bits)?;
        }
        if raw.has_flag(flags::EXTENTS) {
            self.write_extents(ino, &raw, &extents, mapped.nodes)?;
        }
        Ok(())
    }
}

/// Adds an extent behind others, to the last one if it continues that.
pub(super) fn append(extents: &mut Vec<Extent>, new: Extent) {
    match extents.last_mut() {
        Some(last) if last.can_merge(&new) && last.len + new.len <= INIT_MAX_LEN => {
            last.len += new.len;
        }
        _ => extents.push(new),
    }
}
