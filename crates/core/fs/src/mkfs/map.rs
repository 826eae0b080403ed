//! Where the blocks of a new file are: extents, or block maps without the feature `extent`.
//!
//! The blocks that a map needs itself are taken when the file grows to them, as mke2fs does, and
//! filled at the end.

use syncline_ondisk::Inode;
use syncline_ondisk::blockmap::{DIND_BLOCK, IND_BLOCK, NDIR_BLOCKS, TIND_BLOCK};
use syncline_ondisk::bytes::{put_le16, put_le32};
use syncline_ondisk::extent::{
    self, ENTRY_BYTES, Extent, ExtentIndex, INIT_MAX_LEN, NodeMut, ROOT_MAX,
};
use syncline_ondisk::inode::{I_BLOCK_BYTES, flags};

use super::builder::{Builder, full};
use crate::error::{FsError, Result};

/// Blocks of a file, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct FileMap {
    extents: Vec<Extent>,
    /// Leaves of the extent tree: block, and first extent of it.
    leaves: Vec<(u64, usize)>,
    /// Blocks of the block map, in the order of the first block that each maps.
    map_blocks: Vec<u64>,
    blocks: u64,
}

impl FileMap {
    /// Physical ranges.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.extents.iter().map(|extent| (extent.start, extent.len.into()))
    }

    /// Adds blocks that are taken already, to the last extent where they follow it.
    pub(super) fn push(&mut self, to: &mut Builder, ino: u32, start: u64, len: u32) -> Result<()> {
        if let Some(last) = self.extents.last_mut() {
            if last.start + u64::from(last.len) == start && last.len + len < INIT_MAX_LEN {
                last.len += len;
                self.blocks += u64::from(len);
                return Ok(());
            }
        }
        self.push_extent(to, ino, start, len)
    }

    fn push_extent(&mut self, to: &mut Builder, ino: u32, start: u64, len: u32) -> Result<()> {
        let Ok(block) = u32::try_from(self.blocks) else { return full() };
        if to.has_extents() {
            self.make_room(to, ino)?;
        }
        self.extents.push(Extent { block, len, start, unwritten: false });
        self.blocks += u64::from(len);
        Ok(())
    }

    /// Takes a leaf where the last one, or the root in the inode, is full.
    fn make_room(&mut self, to: &mut Builder, ino: u32) -> Result<()> {
        let most = (to.geo.block_size - ENTRY_BYTES) / ENTRY_BYTES;
        let (in_last, from) = match self.leaves.last() {
            None if self.extents.len() < usize::from(ROOT_MAX) => return Ok(()),
            None => (0, 0),
            Some((_, from)) if self.extents.len() - from < most => return Ok(()),
            Some(_) if self.leaves.len() == usize::from(ROOT_MAX) => {
                let text = format!("inode {ino} would be in too many pieces; raise -g");
                return Err(FsError::Invalid(text));
            }
            // The last extent of the full leaf moves into the new one.
            Some((_, from)) => (*from, self.extents.len() - 1),
        };
        let Some(first) = self.extents.get(in_last) else { return full() };
        let leaf = to.take_one(first.start - 1)?;
        self.leaves.push((leaf, from));
        to.traffic.write(leaf);
        to.note_read(ino);
        to.traffic.write(leaf);
        to.note_write(ino, false);
        Ok(())
    }

    /// Takes `count` blocks from `goal` on.
    pub(super) fn fill(&mut self, to: &mut Builder, ino: u32, goal: u64, count: u64) -> Result<()> {
        if count > to.sb.s_free_blocks_count {
            let text = "the journal does not fit; lower -J size or take a larger device";
            return Err(FsError::Invalid(text.into()));
        }
        if !to.has_extents() {
            return self.fill_map(to, ino, goal, count);
        }
        let mut goal = to.used.first_free(goal, to.geo.blocks_count).unwrap_or(goal);
        while self.blocks < count {
            let want = (count - self.blocks).min(INIT_MAX_LEN.into());
            let Some((start, len)) = to.used.next_range(goal, want) else { return full() };
            to.take(start, len);
            self.push_extent(to, ino, start, len as u32)?;
            match self.leaves.last() {
                None => to.note_map_insert(ino),
                Some((leaf, _)) => {
                    to.note_read(ino);
                    to.traffic.write(*leaf);
                }
            }
            goal = start + len;
        }
        Ok(())
    }

    fn fill_map(&mut self, to: &mut Builder, ino: u32, goal: u64, count: u64) -> Result<()> {
        let mut goal = goal;
        while self.blocks < count {
            if let Some(inner) = self.next_map_block(to, goal)? {
                goal = inner;
            }
            goal = to.take_one(goal)?;
            if self.blocks >= NDIR_BLOCKS.into() {
                for block in self.map_blocks.iter().rev().take(1) {
                    to.traffic.read(*block);
                    to.traffic.write(goal);
                    to.traffic.write(*block);
                }
            } else {
                to.traffic.write(goal);
            }
            to.note_write(ino, false);
            self.push(to, ino, goal, 1)?;
        }
        Ok(())
    }

    /// Takes the map blocks that the next block of the file needs; returns the last one.
    pub(super) fn next_map_block(&mut self, to: &mut Builder, goal: u64) -> Result<Option<u64>> {
        if to.has_extents() {
            return Ok(None);
        }
        let mut last = None;
        for _ in 0..new_levels(self.blocks, to.geo.block_size as u64 / 4) {
            let block = to.take_one(last.unwrap_or(goal))?;
            to.traffic.write(block);
            self.map_blocks.push(block);
            last = Some(block);
        }
        Ok(last)
    }

    /// The map blocks of a file whose blocks came one by one are read when they are begun, and
    /// written when they are full.
    pub(super) fn note_map_blocks(&self, to: &mut Builder) {
        for block in self.map_blocks.iter().skip(1).chain(self.map_blocks.first()) {
            to.traffic.write(*block);
        }
    }

    /// Stores the map in the inode and in the blocks of its own. Returns the blocks of the file and
    /// those of the map.
    pub(super) fn encode(
        &self,
        to: &mut Builder,
        ino: u32,
        inode: &mut Inode,
    ) -> Result<(u64, u64)> {
        if !to.has_extents() {
            self.encode_map(to, inode);
            return Ok((self.blocks, self.map_blocks.len() as u64));
        }
        inode.i_flags |= flags::EXTENTS;
        let in_root = self.extents.len().min(ROOT_MAX.into());
        inode.i_block = node(I_BLOCK_BYTES, 0, &self.extents[..in_root])?
            .try_into()
            .map_err(|_| FsError::Invalid("an extent root has 60 bytes".into()))?;
        if self.leaves.is_empty() {
            return Ok((self.blocks, 0));
        }
        // Entries that moved out of a full node stay behind those that it keeps.
        let mut root = [0; I_BLOCK_BYTES];
        let mut indexes = NodeMut::init(&mut root, 1);
        for (i, (leaf, from)) in self.leaves.iter().enumerate() {
            indexes
                .insert_index(i, &ExtentIndex { block: self.extents[*from].block, leaf: *leaf })?;
            let end = self.leaves.get(i + 1).map_or(self.extents.len(), |(_, next)| next + 1);
            let moved = usize::from(i + 1 < self.leaves.len());
            let mut block = node(to.geo.block_size, moved, &self.extents[*from..end])?;
            if to.geo.metadata_csum {
                extent::set_block_checksum(&mut block, to.inode_seed(ino));
            }
            to.traffic.read(*leaf);
            to.blocks.insert(*leaf, block);
        }
        let used = ENTRY_BYTES * (1 + self.leaves.len());
        inode.i_block[..used].copy_from_slice(&root[..used]);
        Ok((self.blocks, self.leaves.len() as u64))
    }

    fn encode_map(&self, to: &mut Builder, inode: &mut Inode) {
        let slots = to.geo.block_size as u64 / 4;
        let mut made = self.map_blocks.iter().copied();
        // The map block in use at each depth, the outermost first.
        let mut path = [0_u64; 3];
        let data = self.ranges().flat_map(|(start, len)| start..start + len);
        for (logical, block) in (0_u64..).zip(data) {
            let Some((root, depth, rest)) = level(logical, slots) else {
                put_le32(&mut inode.i_block, 4 * logical as usize, block as u32);
                continue;
            };
            for at in 0..depth {
                let span = slots.pow((depth - at) as u32);
                if rest % span != 0 {
                    continue;
                }
                let Some(new) = made.next() else { return };
                to.blocks.insert(new, vec![0; to.geo.block_size]);
                path[at] = new;
                if at == 0 {
                    put_le32(&mut inode.i_block, 4 * root as usize, new as u32);
                } else {
                    put_slot(to, path[at - 1], rest / span % slots, new);
                }
            }
            put_slot(to, path[depth - 1], rest % slots, block);
        }
    }
}

/// A leaf of these extents, of which the last `moved` do not count.
fn node(bytes: usize, moved: usize, extents: &[Extent]) -> Result<Vec<u8>> {
    let mut block = vec![0; bytes];
    let mut node = NodeMut::init(&mut block, 0);
    for (i, extent) in extents.iter().enumerate() {
        node.insert_extent(i, extent)?;
    }
    put_le16(&mut block, 2, (extents.len() - moved) as u16);
    Ok(block)
}

fn put_slot(to: &mut Builder, at: u64, slot: u64, block: u64) {
    if let Some(bytes) = to.blocks.get_mut(&at) {
        put_le32(bytes, 4 * slot as usize, block as u32);
    }
}

/// Slot of the inode, levels below it, and number of the block there. `None`: mapped by the inode.
fn level(logical: u64, slots: u64) -> Option<(u32, usize, u64)> {
    let rest = logical.checked_sub(NDIR_BLOCKS.into())?;
    if rest < slots {
        return Some((IND_BLOCK, 1, rest));
    }
    let rest = rest - slots;
    if rest < slots * slots {
        return Some((DIND_BLOCK, 2, rest));
    }
    Some((TIND_BLOCK, 3, rest - slots * slots))
}

/// Map blocks that begin with this block of the file.
fn new_levels(logical: u64, slots: u64) -> usize {
    level(logical, slots).map_or(0, |(_, depth, rest)| {
        (1..=depth as u32).filter(|height| rest % slots.pow(*height) == 0).count()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_blocks_begin_where_a_level_does() {
        let counts = |logical: u64| new_levels(logical, 256);
        assert_eq!([counts(0), counts(11), counts(12), counts(13)], [0, 0, 1, 0]);
        assert_eq!([counts(268), counts(269), counts(268 + 256)], [2, 0, 1]);
        assert_eq!(counts(268 + 65536), 3);
    }
}
