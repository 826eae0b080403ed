//! The blocks of one inode without extents: direct and indirect pointers.

use syncline_ondisk::blockmap::{DIND_BLOCK, NDIR_BLOCKS, pointer};
use syncline_ondisk::superblock::RESIZE_INO;

use super::blocks::Walk;
use super::report::At;
use super::{Checker, Step, kinds};

/// Pointers of `i_block`.
const SLOTS: u32 = 15;

impl Checker<'_> {
    pub(super) fn walk_pointers(&mut self, walk: &mut Walk<'_>) -> Step {
        let mut lblk = 0;
        for slot in 0..SLOTS {
            let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
            let block = pointer(&walk.raw.i_block, slot).unwrap_or(0);
            self.walk_pointer(walk, block, levels, &mut lblk)?;
        }
        Ok(())
    }

    /// One pointer with `levels` tables below it.
    fn walk_pointer(
        &mut self,
        walk: &mut Walk<'_>,
        block: u32,
        levels: u32,
        lblk: &mut u64,
    ) -> Step {
        let per = self.geo.block_size as u64 / 4;
        let here = *lblk;
        *lblk = here.saturating_add(per.saturating_pow(levels));
        if block == 0 {
            return Ok(());
        }
        let (block, at) = (u64::from(block), At::ino(walk.ino).in_block(block.into()));
        if !self.in_volume(block) {
            walk.out.broken = true;
            self.note(kinds::BLOCK_RANGE, at, "a block outside of the volume is mapped");
            return Ok(());
        }
        if levels == 0 {
            return self.walk_block(walk, here, block);
        }
        if walk.ino == RESIZE_INO {
            // The tables below the double indirect block are reserved descriptor blocks.
            walk.out.clusters += 1;
            if levels == DIND_BLOCK + 1 - NDIR_BLOCKS {
                self.mark(walk.ino, block, 1);
            }
        } else if !self.take_node(walk, block) {
            return Ok(());
        }
        let Some(table) = self.read(block)? else {
            walk.out.broken = true;
            return Ok(());
        };
        let mut at = here;
        for slot in 0..u32::try_from(per).unwrap_or(0) {
            let next = pointer(&table, slot).unwrap_or(0);
            self.walk_pointer(walk, next, levels - 1, &mut at)?;
        }
        Ok(())
    }

    /// One block of data.
    fn walk_block(&mut self, walk: &mut Walk<'_>, lblk: u64, block: u64) -> Step {
        let (ino, at) = (walk.ino, At::ino(walk.ino).in_block(block));
        if ino == RESIZE_INO {
            walk.out.clusters += 1;
            return Ok(());
        }
        let is_dir = walk.raw.is_dir();
        if is_dir && self.is_too_large(walk.raw, lblk) {
            walk.out.broken = true;
            self.note(kinds::DIR_TOO_LARGE, at, format!("a directory with a block {lblk}"));
            return Ok(());
        }
        if walk.raw.is_symlink() && lblk > 0 {
            walk.out.broken = true;
            self.note(kinds::BLOCK_TOO_FAR, at, "a symbolic link with more than one block");
            return Ok(());
        }
        let holes = self.incompat(syncline_ondisk::IncompatFeatures::LARGEDIR)
            && !self.incompat(syncline_ondisk::IncompatFeatures::INLINE_DATA);
        // The first block has `.` and `..`.
        if is_dir && lblk > walk.out.end && (!holes || walk.out.end == 0) {
            let what = format!("directory block {} is not mapped", walk.out.end);
            self.note(kinds::DIR_HOLE, At::ino(ino), what);
        }
        self.take(walk, lblk, block, 1)?;
        walk.out.written_end = lblk + 1;
        Ok(())
    }
}
