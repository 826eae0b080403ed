//! The resize inode, and inodes that are read by number.

use syncline_ondisk::blockmap::{DIND_BLOCK, pointer};
use syncline_ondisk::inode::Inode;
use syncline_ondisk::superblock::RESIZE_INO;
use syncline_ondisk::{CompatFeatures, IncompatFeatures};

use super::report::At;
use super::{Checker, Step, kinds};

impl Checker<'_> {
    /// Block and offset of an inode; `None` if it has no place.
    pub(super) fn slot_place(&mut self, ino: u32) -> Step<Option<(u64, usize)>> {
        let Some((group, index)) = self.geo.inode_group(ino) else { return Ok(None) };
        let Some(desc) = self.desc(group)? else { return Ok(None) };
        if !self.has_table(group, &desc) {
            return Ok(None);
        }
        let (nr, offset) = self.geo.inode_slot(index);
        Ok(Some((desc.bg_inode_table + u64::from(nr), offset)))
    }

    /// The bytes of an inode; `None` if it has no place, or they cannot be read.
    pub(super) fn read_slot(&mut self, ino: u32) -> Step<Option<Vec<u8>>> {
        let Some((block, offset)) = self.slot_place(ino)? else { return Ok(None) };
        let Some(block) = self.read(block)? else { return Ok(None) };
        Ok(block.get(offset..offset + self.geo.inode_size).map(<[u8]>::to_vec))
    }

    /// Reads an inode; `None` also if its bytes are none.
    pub(super) fn read_inode(&mut self, ino: u32) -> Step<Option<Inode>> {
        Ok(self.read_slot(ino)?.and_then(|slot| Inode::decode(&slot).ok()))
    }

    /// The resize inode: its double indirect block names the reserved descriptor blocks, and each
    /// of these its copies.
    pub(super) fn check_resize_inode(&mut self) -> Step {
        let Some(raw) = self.read_inode(RESIZE_INO)? else { return Ok(()) };
        let at = At::ino(RESIZE_INO);
        let has_blocks = raw.i_block.iter().any(|byte| *byte != 0);
        if !self.compat(CompatFeatures::RESIZE_INODE) {
            if has_blocks {
                let what = "the resize inode is in use, and the file system has no resize_inode";
                self.note(kinds::RESIZE_INODE, at, what);
            }
            return Ok(());
        }
        if self.incompat(IncompatFeatures::META_BG) {
            self.note(kinds::RESIZE_INODE, at, "resize_inode is set together with meta_bg");
        }
        if let Some(what) = self.resize_problem(&raw)? {
            self.note(kinds::RESIZE_INODE, at, what);
        }
        Ok(())
    }

    fn resize_problem(&mut self, raw: &Inode) -> Step<Option<String>> {
        let block = u64::from(pointer(&raw.i_block, DIND_BLOCK).unwrap_or(0));
        let others = (0..15).filter(|at| *at != DIND_BLOCK);
        let alone = others.into_iter().all(|at| pointer(&raw.i_block, at) == Some(0));
        if !alone || raw.i_links_count == 0 || !raw.is_file() || !self.in_volume(block) {
            return Ok(Some("the resize inode is not one double indirect block".into()));
        }
        let Some(table) = self.read(block)? else { return Ok(None) };
        let per = (self.geo.block_size / 4) as u32;
        let boot = u32::from(self.geo.block_size == 1024 && self.geo.first_data_block == 0);
        let first = self.geo.first_data_block + 1 + self.geo.gdt_blocks + boot;
        // As many as e2fsck looks at.
        for nr in 0..self.geo.reserved_gdt_blocks / 4 {
            let slot = (self.geo.gdt_blocks + nr) % per;
            let reserved = first + nr;
            if pointer(&table, slot) != Some(reserved) {
                return Ok(Some(format!("the resize inode does not name block {reserved}")));
            }
            let Some(copies) = self.read(reserved.into())? else { return Ok(None) };
            let groups = (1..self.geo.group_count).filter(|group| self.sb.group_has_super(*group));
            for (at, group) in (0..per).zip(groups) {
                let copy = u64::from(group) * u64::from(self.geo.blocks_per_group);
                let want = copy + u64::from(reserved);
                if pointer(&copies, at).map(u64::from) != Some(want) {
                    return Ok(Some(format!("the resize inode does not name block {want}")));
                }
            }
        }
        Ok(None)
    }
}
