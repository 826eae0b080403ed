//! Group descriptors: checksums, parts that were never used, and bitmaps and tables that lie where
//! they cannot.

use syncline_ondisk::group::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};

use super::Mender;
use crate::check::Step;
use crate::check::kinds as k;

impl Mender<'_, '_> {
    pub(super) fn mend_groups(&mut self) -> Step {
        for finding in self.found(&[k::DESC_CSUM]) {
            let Some(group) = finding.group else { continue };
            self.forget_unused(group)?;
        }
        for finding in self.found(&[k::ENTRY_UNINIT, k::INODE_BITMAP]) {
            // The number of the inode whose part was not read.
            let Some((ino, _)) = finding.right.zip(finding.inode) else { continue };
            let group = (ino.saturating_sub(1) / u64::from(self.c.geo.inodes_per_group)) as u32;
            if let Some(mut desc) = self.c.desc(group)? {
                desc.bg_flags &= !INODE_UNINIT;
                desc.bg_itable_unused = 0;
                self.put_desc(group, &desc)?;
            }
        }
        self.place_tables()?;
        for finding in self.found(&[k::TABLE_CONFLICT]) {
            let Some((block, group)) = finding.block.zip(finding.group) else { continue };
            if !self.take_backup_table(group)? {
                self.move_bitmaps(block)?;
            }
        }
        Ok(())
    }

    /// Writes a descriptor, with its checksum, that says of no part that it was never used.
    pub(super) fn forget_unused(&mut self, group: u32) -> Step {
        let Some(mut desc) = self.c.desc(group)? else { return Ok(()) };
        desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
        desc.bg_itable_unused = 0;
        self.put_desc(group, &desc)
    }

    /// The number of a group whose descriptor a finding is about.
    fn place_tables(&mut self) -> Step {
        let places = [k::BLOCK_BITMAP_PLACE, k::INODE_BITMAP_PLACE, k::INODE_TABLE_PLACE];
        for finding in self.found(&places) {
            let Some(group) = finding.group else { continue };
            let Some(mut desc) = self.desc_now(group)? else { continue };
            let backup = self.backup_desc(group)?;
            if finding.name == k::INODE_TABLE_PLACE.name {
                let told = backup.map(|desc| desc.bg_inode_table);
                let told = told.filter(|table| self.has_table_at(group, *table));
                let len = self.c.geo.itable_blocks;
                let Some(table) = self.place(group, told, len)? else { continue };
                desc.bg_inode_table = table;
            } else {
                let is_block = finding.name == k::BLOCK_BITMAP_PLACE.name;
                let told = backup
                    .map(|desc| if is_block { desc.bg_block_bitmap } else { desc.bg_inode_bitmap });
                let told = told.filter(|place| self.c.has_bitmap(group, *place));
                let Some(place) = self.place(group, told, 1)? else { continue };
                let field =
                    if is_block { &mut desc.bg_block_bitmap } else { &mut desc.bg_inode_bitmap };
                *field = place;
            }
            desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
            desc.bg_itable_unused = 0;
            self.put_desc(group, &desc)?;
        }
        Ok(())
    }

    /// Takes the place of the inode table from the backup, if nothing else is there.
    fn take_backup_table(&mut self, group: u32) -> Step<bool> {
        let (Some(mut desc), Some(backup)) = (self.desc_now(group)?, self.backup_desc(group)?)
        else {
            return Ok(false);
        };
        let table = backup.bg_inode_table;
        let end = table.saturating_add(self.c.geo.itable_blocks.into());
        if table == desc.bg_inode_table
            || !self.has_table_at(group, table)
            || (table..end).any(|block| self.c.metadata.is_marked(block))
        {
            return Ok(false);
        }
        desc.bg_inode_table = table;
        desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
        desc.bg_itable_unused = 0;
        self.put_desc(group, &desc)?;
        Ok(true)
    }

    fn has_table_at(&self, group: u32, table: u64) -> bool {
        let end = table.saturating_add(self.c.geo.itable_blocks.into());
        self.c.has_bitmap(group, table) && self.c.has_bitmap(group, end.saturating_sub(1))
    }

    /// The place that the backup says, or new blocks with zeros.
    pub(super) fn place(&mut self, group: u32, told: Option<u64>, len: u32) -> Step<Option<u64>> {
        if told.is_some() {
            return Ok(told);
        }
        if self.c.report.more > 0 {
            return Ok(None);
        }
        let clusters = len.div_ceil(1 << self.c.cluster_bits);
        let mut found = self.take_in_group(group, clusters)?;
        if found.is_none() && self.c.geo.flex_bg {
            for other in 0..self.c.geo.group_count {
                found = self.take_in_group(other, clusters)?;
                if found.is_some() {
                    break;
                }
            }
        }
        let Some(first) = found else { return Ok(None) };
        for block in first..first + u64::from(len) {
            self.put(block, vec![0; self.c.geo.block_size]);
        }
        Ok(Some(first))
    }

    /// The descriptor of a group with what was changed in this round.
    pub(super) fn desc_now(&mut self, group: u32) -> Step<Option<GroupDesc>> {
        let (nr, offset) = self.c.geo.desc_slot(group);
        let Some(block) = self.view(self.c.desc_block(nr))? else { return Ok(None) };
        let bytes = block.get(offset..offset + self.c.geo.desc_size).unwrap_or(&[]);
        Ok(GroupDesc::decode(bytes).ok())
    }

    /// The descriptor of a group in the backup of group 1.
    fn backup_desc(&mut self, group: u32) -> Step<Option<GroupDesc>> {
        let geo = &self.c.geo;
        let (nr, offset) = geo.desc_slot(group);
        if geo.group_count < 2 || nr >= geo.first_meta_bg || !self.c.sb.group_has_super(1) {
            return Ok(None);
        }
        let first = geo.group_first_block(1);
        let Some(copy) = self.c.read(first)? else { return Ok(None) };
        let same = syncline_ondisk::Superblock::decode(&copy);
        if !same.is_ok_and(|sb| sb.s_uuid == self.c.sb.s_uuid) {
            return Ok(None);
        }
        let Some(block) = self.c.read(first + 1 + u64::from(nr))? else { return Ok(None) };
        let bytes = block.get(offset..offset + self.c.geo.desc_size).unwrap_or(&[]);
        Ok(GroupDesc::decode(bytes).ok())
    }

    pub(super) fn put_desc(&mut self, group: u32, desc: &GroupDesc) -> Step {
        let (nr, offset) = self.c.geo.desc_slot(group);
        let Some((_, mut bytes)) = self.c.desc_bytes(group)? else { return Ok(()) };
        desc.encode_into(&mut bytes, group, &self.c.csum);
        let block = self.c.desc_block(nr);
        self.patch(block, offset, &bytes)
    }
}
