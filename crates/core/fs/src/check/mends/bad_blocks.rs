//! The list of bad blocks: what it says of the primary superblock is not believed, and bitmaps move
//! out of its blocks. A list is dropped that lies in one of its own blocks, that has a wrong
//! checksum, or whose tables are not its alone.

use syncline_ondisk::blockmap::{NDIR_BLOCKS, pointer};
use syncline_ondisk::bytes::{put_bytes, put_le32};
use syncline_ondisk::inode::I_BLOCK_OFFSET;

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;
use crate::check::special::{BAD_INO, has_fields_of_a_file};

impl Mender<'_, '_> {
    /// True if the list was dropped: then nothing else that was found counts.
    pub(super) fn mend_bad_blocks(&mut self) -> Step<bool> {
        let Some(raw) = self.raw(BAD_INO)? else { return Ok(false) };
        let place = self.c.slot_place(BAD_INO)?;
        if place.is_some_and(|(block, _)| self.c.bad.is_marked(block)) {
            self.change(BAD_INO, |slot| slot.fill(0))?;
            return Ok(true);
        }
        let is_wrong = self.inodes_with(&[k::INODE_CSUM]).contains(&BAD_INO)
            || self.has(&[k::BAD_BLOCKS]) && has_fields_of_a_file(&raw)
            || self.has(&[k::BLOCK_TWICE]) && self.has_foreign_table(&raw.i_block)?;
        if is_wrong {
            self.change(BAD_INO, |slot| slot.fill(0))?;
            return Ok(true);
        }
        if !self.has(&[k::BAD_BLOCKS]) {
            return Ok(false);
        }
        let first = self.c.geo.group_first_block(0);
        let head = first + 1 + u64::from(self.c.geo.group_gdt_blocks(&self.c.sb, 0));
        let mut gone = Vec::new();
        for finding in self.found(&[k::BAD_BLOCKS]) {
            let Some(block) = finding.block else { continue };
            if (first..head).contains(&block) {
                gone.push(block);
            } else {
                self.move_bitmaps(block)?;
            }
        }
        if !gone.is_empty() {
            let mut root = raw.i_block;
            for slot in 0..15 {
                let levels = slot.max(NDIR_BLOCKS - 1) - (NDIR_BLOCKS - 1);
                self.drop_pointer(&mut root, slot, levels, &gone)?;
            }
            self.change(BAD_INO, |slot| put_bytes(slot, I_BLOCK_OFFSET, &root))?;
        }
        Ok(false)
    }

    /// True if a table of a map has another owner, too.
    fn has_foreign_table(&mut self, root: &[u8]) -> Step<bool> {
        let slots = (NDIR_BLOCKS..15).map(|slot| (slot, slot - NDIR_BLOCKS));
        let mut left: Vec<(u64, u32)> =
            slots.map(|(slot, below)| (pointer(root, slot).unwrap_or(0).into(), below)).collect();
        while let Some((block, below)) = left.pop() {
            if block == 0 || !self.c.in_volume(block) {
                continue;
            }
            if !self.is_own(block) {
                return Ok(true);
            }
            if below > 0 {
                let Some(table) = self.view(block)? else { continue };
                let pointers = (0..(self.c.geo.block_size / 4) as u32)
                    .map(|slot| (pointer(&table, slot).unwrap_or(0).into(), below - 1));
                left.extend(pointers);
            }
        }
        Ok(false)
    }

    /// Clears the pointers to some blocks.
    fn drop_pointer(&mut self, table: &mut [u8], slot: u32, levels: u32, gone: &[u64]) -> Step {
        let block = u64::from(pointer(table, slot).unwrap_or(0));
        if levels == 0 {
            if gone.contains(&block) {
                put_le32(table, 4 * slot as usize, 0);
            }
            return Ok(());
        }
        if block == 0 || !self.is_own(block) {
            return Ok(());
        }
        let Some(mut below) = self.view(block)? else { return Ok(()) };
        for slot in 0..(self.c.geo.block_size / 4) as u32 {
            self.drop_pointer(&mut below, slot, levels - 1, gone)?;
        }
        self.put(block, below);
        Ok(())
    }

    /// Moves the bitmaps that are in a block of others to new ones.
    pub(super) fn move_bitmaps(&mut self, block: u64) -> Step {
        for group in 0..self.c.geo.group_count {
            let Some(mut desc) = self.desc_now(group)? else { continue };
            for is_block in [true, false] {
                let field =
                    if is_block { &mut desc.bg_block_bitmap } else { &mut desc.bg_inode_bitmap };
                if *field != block {
                    continue;
                }
                let Some(new) = self.place(group, None, 1)? else { continue };
                *field = new;
                self.put_desc(group, &desc)?;
            }
        }
        Ok(())
    }
}
