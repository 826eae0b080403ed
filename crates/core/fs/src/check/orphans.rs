//! The orphan list and the orphan file, read without trust.

use syncline_ondisk::inode::Inode;
use syncline_ondisk::{CompatFeatures, orphan_file};

use super::{Checker, Step};
use crate::inode::iget::iget_unlinked;
use crate::inode::table::{inode_csum_seed, inode_place};
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;

/// Blocks of an orphan file that are looked at (mke2fs makes at most 512 of 4 KiB).
const FILE_BLOCKS_MAX: u32 = 4096;

impl Checker<'_> {
    /// Collects the orphans.
    pub(super) fn find_orphans(&mut self) -> Step {
        self.follow_orphan_list()?;
        if self.sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE) {
            self.read_orphan_file_blocks()?;
        }
        self.report.orphans = self.orphans.len() as u64;
        Ok(())
    }

    fn may_be_orphan(&mut self, ino: u32, block: Option<u64>) -> bool {
        let geo = &self.vol.geo;
        if ino < geo.first_ino || ino > geo.inodes_count {
            self.note(Some(ino), block, "an orphan with an impossible number");
            return false;
        }
        if !self.orphans.insert(ino) {
            self.note(Some(ino), block, "an orphan twice");
            return false;
        }
        true
    }

    fn follow_orphan_list(&mut self) -> Step {
        let mut ino = self.sb.s_last_orphan;
        while ino != 0 && self.may_be_orphan(ino, None) {
            let place = inode_place(self.vol, ino);
            let Some((block, offset)) = self.keep(place, Some(ino), None)? else { return Ok(()) };
            let bytes = self.vol.buffers.read(block)?;
            let slot = bytes.get(offset..offset + self.vol.geo.inode_size).unwrap_or(&[]);
            match Inode::decode(slot) {
                Ok(raw) => ino = raw.i_dtime,
                Err(err) => return self.note_bad(err, Some(ino), Some(block)),
            }
        }
        Ok(())
    }

    fn read_orphan_file_blocks(&mut self) -> Step {
        let vol = self.vol;
        let ino = self.sb.s_orphan_file_inum;
        let inode = iget_unlinked(vol, ino);
        let Some(inode) = self.keep(inode, Some(ino), None)? else { return Ok(()) };
        let (blocks, seed) = {
            let st = inode.state.read();
            let blocks = u32::try_from(st.raw.i_size >> vol.geo.block_bits).unwrap_or(u32::MAX);
            (blocks, inode_csum_seed(vol, ino, st.raw.i_generation))
        };
        if blocks > FILE_BLOCKS_MAX {
            self.note(Some(ino), None, "the orphan file is too large");
        }
        for lblk in 0..blocks.min(FILE_BLOCKS_MAX) {
            let mapping = map_blocks(vol, &inode, &inode.state.read(), lblk, 1);
            let block = match self.keep(mapping, Some(ino), None)? {
                Some(Mapping::Mapped { pblk, .. }) => pblk,
                Some(Mapping::Hole { .. }) => {
                    self.note(Some(ino), None, "the orphan file has a hole");
                    continue;
                }
                None => return Ok(()),
            };
            let bytes = vol.buffers.read(block)?;
            if let Err(err) = orphan_file::verify(&bytes, block, seed) {
                self.note_bad(err, Some(ino), Some(block))?;
                continue;
            }
            for (_, orphan) in orphan_file::orphans(&bytes) {
                self.may_be_orphan(orphan, Some(block));
            }
        }
        Ok(())
    }
}
