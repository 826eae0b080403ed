//! Totals in the superblock, and copies of superblock and descriptors, when all else is mended.
//!
//! A copy is written again only if it is of no use as a backup: features, sizes or the UUID differ,
//! or a bitmap or table has another place in it. Counts in copies are old, as Linux leaves them.

use syncline_ondisk::bytes::{le16, put_le16, put_le32};
use syncline_ondisk::group::GroupDesc;
use syncline_ondisk::superblock::{
    STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use syncline_ondisk::{IncompatFeatures, RoCompatFeatures};

use super::Mender;
use super::superblock::CHECKSUM_AT;
use crate::check::Step;

impl Mender<'_, '_> {
    /// Free blocks and inodes of all groups, and the mark that Linux reads as "clean": hints, which
    /// no check counts as errors.
    pub(super) fn mend_totals(&mut self) -> Step {
        let (mut blocks, mut inodes) = (0_u64, 0_u32);
        for group in 0..self.c.geo.group_count {
            let Some(desc) = self.c.desc(group)? else { return Ok(()) };
            blocks += u64::from(desc.bg_free_blocks_count) << self.c.cluster_bits;
            inodes += desc.bg_free_inodes_count;
        }
        let wide = self.c.sb.is_64bit();
        self.change_super(|sb| {
            put_le32(sb, 0x0c, (blocks & 0xffff_ffff) as u32);
            put_le32(sb, 0x10, inodes);
            put_le16(sb, 0x3a, le16(sb, 0x3a) & !STATE_ERROR | STATE_VALID);
            if wide {
                put_le32(sb, 0x158, (blocks >> 32) as u32);
            }
        })
    }

    pub(super) fn mend_backups(&mut self) -> Step {
        let geo = self.c.geo.clone();
        let block = SUPERBLOCK_OFFSET >> geo.block_bits;
        let at = (SUPERBLOCK_OFFSET % geo.block_size as u64) as usize;
        let Some(bytes) = self.c.read(block)? else { return Ok(()) };
        let Some(primary) = bytes.get(at..at + SUPERBLOCK_BYTES) else { return Ok(()) };
        let tables = geo.gdt_blocks.min(geo.first_meta_bg);
        let groups = (1..geo.group_count).filter(|group| self.c.sb.group_has_super(*group));
        for group in groups.collect::<Vec<_>>() {
            let first = geo.group_first_block(group);
            // What cannot be read is no backup, and no reason to write.
            let Ok(old) = self.c.buffers.read(first) else { continue };
            if self.is_backup(&old) && (0..tables).all(|nr| self.agrees(first, nr)) {
                continue;
            }
            let mut new = primary.to_vec();
            put_le16(&mut new, 0x5a, u16::try_from(group).unwrap_or(u16::MAX));
            if geo.metadata_csum {
                let crc = Superblock::checksum_of(&new);
                put_le32(&mut new, CHECKSUM_AT, crc);
            }
            self.patch(first, 0, &new)?;
            for nr in 0..tables {
                let Some(table) = self.c.read(self.c.geo.desc_block(&self.c.sb, nr))? else {
                    continue;
                };
                self.put(first + 1 + u64::from(nr), table.to_vec());
            }
        }
        Ok(())
    }

    /// True if a copy of the superblock describes this file system. Features that a mount adds on
    /// its way are not compared, as in e2fsck.
    fn is_backup(&self, copy: &[u8]) -> bool {
        let Ok(sb) = Superblock::decode(copy) else { return false };
        let incompat = IncompatFeatures::RECOVER.union(IncompatFeatures::EXTENTS);
        let ro_compat = RoCompatFeatures::LARGE_FILE
            .union(RoCompatFeatures::DIR_NLINK)
            .union(RoCompatFeatures::ORPHAN_PRESENT);
        let of = |sb: &Superblock| {
            let features = (
                sb.s_feature_compat,
                sb.s_feature_incompat.without(incompat),
                sb.s_feature_ro_compat.without(ro_compat),
            );
            (features, sb.s_blocks_count, sb.s_inodes_count, sb.s_log_block_size, sb.s_uuid)
        };
        of(&sb) == of(&self.c.sb) && sb.verify_checksum(copy).is_ok()
    }

    /// True if a copied block of descriptors has all bitmaps and tables at their places.
    fn agrees(&self, first: u64, nr: u32) -> bool {
        let read = |block| self.c.buffers.read(block).ok();
        let copy = read(first + 1 + u64::from(nr));
        let (Some(copy), Some(table)) = (copy, read(self.c.geo.desc_block(&self.c.sb, nr))) else {
            return true;
        };
        let size = self.c.geo.desc_size;
        let place = |bytes: &[u8]| {
            let desc = GroupDesc::decode(bytes);
            desc.map(|desc| (desc.bg_block_bitmap, desc.bg_inode_bitmap, desc.bg_inode_table)).ok()
        };
        copy.chunks(size).zip(table.chunks(size)).all(|(copy, now)| place(copy) == place(now))
    }
}
