//! Link counts, bitmaps and counters, which follow from all the rest.

use syncline_ondisk::bitmap;
use syncline_ondisk::bytes::put_le16;
use syncline_ondisk::group::{
    BLOCK_UNINIT, GroupDesc, INODE_UNINIT, init_block_bitmap, init_inode_bitmap,
};

use super::Mender;
use crate::check::Step;
use crate::check::kinds::{self as k, Kind};
use crate::check::links::LINKS_MAX;

/// Rewritten from what was found in use.
pub(super) const DERIVED: [Kind; 11] = [
    k::LINKS,
    k::BLOCK_BITMAP,
    k::BLOCK_BITMAP_CSUM,
    k::INODE_BITMAP,
    k::INODE_BITMAP_CSUM,
    k::BITMAP_PADDING,
    k::FREE_BLOCKS,
    k::FREE_INODES,
    k::DIR_COUNT,
    k::QUOTA,
    k::QUOTA_FILE,
];

impl Mender<'_, '_> {
    /// Link counts, bitmaps, counters.
    pub(super) fn mend_derived(&mut self) -> Step {
        let is_last = self.errors.iter().all(|finding| super::is_of(finding, &DERIVED));
        if !is_last || !self.refused.is_empty() || self.c.report.more > 0 {
            return Ok(());
        }
        for finding in self.found(&[k::LINKS]) {
            let right = finding.right.and_then(|right| u16::try_from(right).ok());
            let (Some(ino), Some(links)) = (finding.inode, right) else { continue };
            if (1..LINKS_MAX).contains(&links) {
                self.change(ino, |slot| put_le16(slot, 0x1a, links))?;
            }
        }
        self.mend_quotas()?;
        for group in 0..self.c.geo.group_count {
            let Some(mut desc) = self.c.desc(group)? else { continue };
            self.mend_block_bitmap(group, &mut desc);
            self.mend_inode_bitmap(group, &mut desc);
            self.put_desc(group, &desc)?;
        }
        Ok(())
    }

    fn mend_block_bitmap(&mut self, group: u32, desc: &mut GroupDesc) {
        let clusters = self.c.blocks.in_group(group);
        let map = self.full_map(&self.c.blocks.group(group), clusters);
        desc.bg_free_blocks_count = bitmap::count_zero(&map, 0, clusters);
        if self.c.csum.is_on() && desc.has_flag(BLOCK_UNINIT) {
            let mut implied = vec![0; map.len()];
            init_block_bitmap(&mut implied, &self.c.sb, &self.c.geo, group, desc);
            if implied == map || self.c.cluster_bits > 0 {
                return;
            }
            desc.bg_flags &= !BLOCK_UNINIT;
        }
        if self.c.geo.metadata_csum {
            let per_group = self.c.geo.blocks_per_group >> self.c.cluster_bits;
            let crc = self.c.csum.of_bitmap(&map, per_group);
            desc.bg_block_bitmap_csum = self.c.narrow(crc);
        }
        self.put(desc.bg_block_bitmap, map);
    }

    fn mend_inode_bitmap(&mut self, group: u32, desc: &mut GroupDesc) {
        let per_group = self.c.geo.inodes_per_group;
        let mut map = self.full_map(&[], per_group);
        let mut dirs = 0;
        let inodes = self.c.inodes.group(&self.c.geo, group);
        for (bit, known) in (0..).zip(inodes).filter(|(_, known)| known.used) {
            let _ = bitmap::set_range(&mut map, bit, 1);
            dirs += u32::from(known.file_type == syncline_ondisk::dir::file_type::DIR);
        }
        desc.bg_free_inodes_count = bitmap::count_zero(&map, 0, per_group);
        desc.bg_used_dirs_count = dirs;
        if self.c.csum.is_on() && desc.has_flag(INODE_UNINIT) {
            let mut implied = vec![0; map.len()];
            init_inode_bitmap(&mut implied, &self.c.geo);
            if implied == map {
                return;
            }
            desc.bg_flags &= !INODE_UNINIT;
        }
        if self.c.geo.metadata_csum {
            desc.bg_inode_bitmap_csum = self.c.narrow(self.c.csum.of_bitmap(&map, per_group));
        }
        self.put(desc.bg_inode_bitmap, map);
    }

    /// A bitmap of one block with the marks of a group, and every bit behind them set.
    fn full_map(&self, marks: &[u8], bits: u32) -> Vec<u8> {
        let mut map = vec![0; self.c.geo.block_size];
        map.iter_mut().zip(marks).for_each(|(to, from)| *to = *from);
        let total = u32::try_from(map.len() * 8).unwrap_or(u32::MAX);
        if bits < total {
            let _ = bitmap::set_range(&mut map, bits, total - bits);
        }
        map
    }
}
