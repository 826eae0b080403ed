//! Groups: descriptors, and the file system's own blocks; the MMP block.

use syncline_ondisk::group::{BLOCK_UNINIT, GroupDesc, INODE_UNINIT};
use syncline_ondisk::mmp::{MMP_SEQ_CLEAN, MMP_SEQ_MAX, Mmp};
use syncline_ondisk::{IncompatFeatures, OndiskError};

use super::report::At;
use super::{Checker, Step, kinds};

impl Checker<'_> {
    pub(super) fn check_mmp(&mut self) -> Step {
        if !self.incompat(IncompatFeatures::MMP) {
            return Ok(());
        }
        let block = self.sb.s_mmp_block;
        if block <= self.geo.first_data_block.into() || block >= self.geo.blocks_count {
            self.note(kinds::MMP, At::block(block), "the MMP block is outside of the volume");
            return Ok(());
        }
        let Some(bytes) = self.read(block)? else { return Ok(()) };
        let seed = self.geo.metadata_csum.then(|| self.sb.csum_seed());
        match Mmp::decode(&bytes, seed) {
            Err(err) => self.note_bad(kinds::MMP, At::block(block), &err),
            Ok(mmp) if mmp.mmp_seq > MMP_SEQ_MAX && mmp.mmp_seq != MMP_SEQ_CLEAN => {
                let what = "the MMP block says that a check is running";
                self.note(kinds::MMP_BUSY, At::block(block), what);
            }
            Ok(_) => {}
        }
        Ok(())
    }

    /// Notes the refusal of a decoder.
    pub(super) fn note_bad(&mut self, kind: kinds::Kind, at: At, err: &OndiskError) {
        let what = match err {
            OndiskError::Corrupt { what, at: place, detail } => {
                let byte = place.offset.map_or(String::new(), |offset| format!(" (byte {offset})"));
                format!("{what}: {detail}{byte}")
            }
            other => other.to_string(),
        };
        self.note(kind, at, what);
    }

    /// Block of descriptor block `nr`.
    pub(super) fn desc_block(&self, nr: u32) -> u64 {
        let geo = &self.geo;
        if nr < geo.first_meta_bg && self.backup > 0 {
            return geo.group_first_block(self.backup) + 1 + u64::from(nr);
        }
        geo.desc_block(&self.sb, nr)
    }

    /// The descriptor of a group; `None` if it cannot be read.
    pub(super) fn desc(&mut self, group: u32) -> Step<Option<GroupDesc>> {
        Ok(self.desc_bytes(group)?.map(|(desc, _)| desc))
    }

    pub(super) fn desc_bytes(&mut self, group: u32) -> Step<Option<(GroupDesc, Vec<u8>)>> {
        let (nr, offset) = self.geo.desc_slot(group);
        let Some(block) = self.read(self.desc_block(nr))? else { return Ok(None) };
        let bytes = block.get(offset..offset + self.geo.desc_size).unwrap_or(&[]).to_vec();
        let Ok(mut desc) = GroupDesc::decode(&bytes) else { return Ok(None) };
        if self.backup > 0 {
            // What a backup says about parts that were never used is old.
            desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
            desc.bg_itable_unused = 0;
        }
        Ok(Some((desc, bytes)))
    }

    /// First and last block that bitmaps and table of a group may have.
    fn range_of(&self, group: u32) -> (u64, u64) {
        let geo = &self.geo;
        if geo.flex_bg {
            return (geo.first_data_block.into(), geo.blocks_count - 1);
        }
        let first = geo.group_first_block(group);
        (first, first + u64::from(geo.group_blocks(group)) - 1)
    }

    /// True if the inode table of a group can be read.
    pub(super) fn has_table(&self, group: u32, desc: &GroupDesc) -> bool {
        let (first, last) = self.range_of(group);
        let end = desc.bg_inode_table.saturating_add(self.geo.itable_blocks.into());
        let fits = desc.bg_inode_table >= first && end <= last + 1;
        fits && desc.bg_inode_table > 0 && !self.overlapping.contains(&group)
    }

    /// True if a bitmap of a group can be read.
    pub(super) fn has_bitmap(&self, group: u32, block: u64) -> bool {
        let (first, last) = self.range_of(group);
        (first..=last).contains(&block) && block > 0
    }

    /// Checks every descriptor by itself.
    pub(super) fn check_descriptors(&mut self) -> Step {
        for group in 0..self.geo.group_count {
            let Some((desc, bytes)) = self.desc_bytes(group)? else { continue };
            let at = At::group(group);
            if self.backup == 0 {
                if let Err(err) = desc.verify_checksum(&bytes, group, &self.csum) {
                    self.note_bad(kinds::DESC_CSUM, at, &err);
                }
            }
            for (block, kind, name) in [
                (desc.bg_block_bitmap, kinds::BLOCK_BITMAP_PLACE, "block"),
                (desc.bg_inode_bitmap, kinds::INODE_BITMAP_PLACE, "inode"),
            ] {
                if !self.has_bitmap(group, block) {
                    self.note(kind, at.in_block(block), format!("the {name} bitmap is outside"));
                }
            }
            if !self.has_table(group, &desc) {
                let at = at.in_block(desc.bg_inode_table);
                self.note(kinds::INODE_TABLE_PLACE, at, "the inode table is outside");
            }
            self.check_flags(group, &desc);
        }
        Ok(())
    }

    /// Flags that say which parts were never used.
    fn check_flags(&mut self, group: u32, desc: &GroupDesc) {
        let unused = desc.bg_itable_unused;
        let uninit = desc.has_flag(BLOCK_UNINIT) || desc.has_flag(INODE_UNINIT);
        let at = At::group(group);
        if !self.csum.is_on() {
            if uninit || unused != 0 {
                let what = "parts are said to be uninitialised, without checksums";
                self.note(kinds::DESC_FLAGS, at, what);
            }
        } else if unused > desc.bg_free_inodes_count || unused > self.geo.inodes_per_group {
            self.note(kinds::DESC_FLAGS, at, "more inodes were never used than are free");
        }
        if group + 1 == self.geo.group_count && desc.has_flag(BLOCK_UNINIT) {
            let what = "the block bitmap of the last group is said to be uninitialised";
            self.note(kinds::DESC_FLAGS, at, what);
        }
    }

    /// Marks superblock copies, descriptors, bitmaps and inode tables.
    pub(super) fn mark_groups(&mut self) -> Step {
        let groups = self.geo.group_count;
        for group in 0..groups {
            if group % 256 == 0 {
                self.tick("groups", group.into(), groups.into())?;
            }
            let first = self.geo.group_first_block(group);
            let base = u64::from(self.geo.group_base_meta_blocks(&self.sb, group));
            let base = base.min(self.geo.group_blocks(group).into());
            self.mark_own(group, first, base);
        }
        for group in 0..groups {
            let Some(desc) = self.desc(group)? else { continue };
            if self.has_table(group, &desc)
                && !self.mark_own(group, desc.bg_inode_table, self.geo.itable_blocks.into())
            {
                // So that no image has more inodes than it has room for.
                self.overlapping.insert(group);
            }
            for block in [desc.bg_block_bitmap, desc.bg_inode_bitmap] {
                if self.has_bitmap(group, block) {
                    self.mark_own(group, block, 1);
                }
            }
        }
        let mmp = self.sb.s_mmp_block;
        if self.incompat(IncompatFeatures::MMP) && self.in_volume(mmp) {
            self.blocks.mark(mmp >> self.cluster_bits, 1);
        }
        // With 1 KiB blocks, block 0 lies before the first group; nothing counts it.
        Ok(())
    }

    /// Marks blocks of the file system; false if it has them twice.
    fn mark_own(&mut self, group: u32, start: u64, len: u64) -> bool {
        let clash = self.metadata.mark(start, len);
        if let Some((block, count)) = clash {
            let what = format!("{count} blocks from here have two structures of the file system");
            self.note(kinds::TABLE_CONFLICT, At::group(group).in_block(block), what);
        }
        let bits = self.cluster_bits;
        let first = start >> bits;
        let end = (start + len).div_ceil(1 << bits);
        self.blocks.mark(first, end - first);
        self.report.blocks_used += len;
        clash.is_none()
    }
}
