//! Blocks and inodes for what is new: copies, directories, lost+found.

use syncline_ondisk::group::{BLOCK_UNINIT, INODE_UNINIT};

use super::Mender;
use crate::check::kinds::{self, Kind};
use crate::check::{Step, kinds as k};

/// Findings that hide blocks in use.
const HIDES_BLOCKS: [Kind; 6] = [
    k::UNREADABLE,
    k::INODE_TABLE_PLACE,
    k::TABLE_CONFLICT,
    k::ENTRY_UNINIT,
    k::DESC_CSUM,
    kinds::BLOCK_BITMAP_PLACE,
];

impl Mender<'_, '_> {
    /// True if everything that says which blocks are in use was read.
    pub(super) fn sees_all(&self) -> bool {
        !self.lingers(&HIDES_BLOCKS) && self.c.report.more == 0 && self.c.backup == 0
    }

    /// Takes `len` clusters that follow each other; the first block, or `None` if there are none.
    pub(super) fn take_clusters(&mut self, len: u32) -> Step<Option<u64>> {
        if !self.sees_all() {
            return Ok(None);
        }
        let groups = self.c.geo.group_count;
        for group in (self.cursor..groups).chain(0..self.cursor) {
            if let Some(block) = self.take_in_group(group, len)? {
                self.cursor = group;
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// The same in one group.
    pub(super) fn take_in_group(&mut self, group: u32, len: u32) -> Step<Option<u64>> {
        let Some(desc) = self.c.desc(group)? else { return Ok(None) };
        let place = desc.bg_block_bitmap;
        let told = !desc.has_flag(BLOCK_UNINIT) && self.c.has_bitmap(group, place);
        let old = if told { self.c.read(place)? } else { None };
        let found = self.c.blocks.find_free(group, len, old.as_deref().unwrap_or(&[]));
        // On a full volume the old bitmap may be all that is wrong.
        let found = found.or_else(|| self.c.blocks.find_free(group, len, &[]));
        let Some(cluster) = found else { return Ok(None) };
        self.c.blocks.mark(cluster, len.into());
        Ok(Some(cluster << self.c.cluster_bits))
    }

    /// Takes one block.
    pub(super) fn take_block(&mut self) -> Step<Option<u64>> {
        self.take_clusters(1)
    }

    /// Takes an inode that no one uses, if it can in a part of a table that was in use before.
    pub(super) fn take_inode(&mut self) -> Step<Option<u32>> {
        if let Some(ino) = self.known_inode() {
            return Ok(Some(ino));
        }
        let per_group = self.c.geo.inodes_per_group;
        for group in 0..self.c.geo.group_count {
            let scanned = self.c.scanned.get(group as usize).copied().unwrap_or(per_group);
            let Some(mut desc) = self.desc_now(group)?.filter(|_| scanned < per_group) else {
                continue;
            };
            desc.bg_flags &= !INODE_UNINIT;
            desc.bg_itable_unused = per_group - scanned - 1;
            self.put_desc(group, &desc)?;
            return Ok(Some(group * per_group + scanned + 1));
        }
        Ok(None)
    }

    fn known_inode(&self) -> Option<u32> {
        let geo = &self.c.geo;
        let (first, per_group) = (geo.first_ino, geo.inodes_per_group);
        for group in 0..geo.group_count {
            let scanned = self.c.scanned.get(group as usize).copied().unwrap_or(0);
            let numbers = group * per_group + 1..=group * per_group + scanned;
            for ino in numbers.filter(|ino| *ino >= first) {
                let is_free = !self.c.inodes.get(&self.c.geo, ino).used;
                let is_taken = self.slots.contains_key(&ino) || self.c.orphans.contains(&ino);
                if is_free && !is_taken && !self.c.keeps_file(ino) {
                    return Some(ino);
                }
            }
        }
        None
    }
}
