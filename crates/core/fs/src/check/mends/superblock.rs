//! The superblock: the primary from a backup, features that files need, numbers of inodes.

use syncline_ondisk::bytes::{le32, put_bytes, put_le16, put_le32};
use syncline_ondisk::group::{BLOCK_UNINIT, INODE_UNINIT};
use syncline_ondisk::superblock::{
    GOOD_OLD_FIRST_INO, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use syncline_ondisk::{IncompatFeatures, RoCompatFeatures};

use super::Mender;
use crate::check::Step;
use crate::check::geometry::{desc_size_fits, first_data_block, geometry};
use crate::check::kinds::{self as k, Kind};

/// Offset of `s_checksum`.
pub(super) const CHECKSUM_AT: usize = 0x3fc;

/// Offsets of the numbers of quota inodes, by user, group and project, and of the orphan file.
const NUMBERS_AT: [usize; 4] = [0x240, 0x244, 0x26c, 0x280];

/// Notices that are mended, as e2fsck does.
pub(super) const NOTICES: [Kind; 4] =
    [k::JOURNAL_PENDING, k::ERROR_RECORDED, k::ORPHAN_PRESENT, k::DESC_FLAGS];

impl Mender<'_, '_> {
    /// Marks a log that is not empty as one to be replayed, and an empty orphan file as empty,
    /// forgets the error in the journal, and takes parts that were never used as used. True if
    /// something changed.
    pub(super) fn mend_notices(&mut self) -> Step<bool> {
        let notices = std::mem::take(&mut self.notices);
        if self.c.backup > 0 {
            return Ok(false);
        }
        for notice in &notices {
            if super::is_of(notice, &[k::ERROR_RECORDED]) {
                match notice.block {
                    Some(block) => self.forget_error(block)?,
                    // What was found then is mended first.
                    None => self.forgets_errors = true,
                }
                continue;
            }
            if super::is_of(notice, &[k::DESC_FLAGS]) {
                self.forget_unused(notice.group.unwrap_or(0))?;
                continue;
            }
            let waits = super::is_of(notice, &[k::JOURNAL_PENDING]);
            self.change_super(|sb| {
                if waits {
                    or32(sb, 0x60, IncompatFeatures::RECOVER.bits());
                } else {
                    clear_bits(sb, 0x64, RoCompatFeatures::ORPHAN_PRESENT.bits());
                }
            })?;
        }
        Ok(!self.blocks.is_empty())
    }

    pub(super) fn mend_superblock(&mut self) -> Step {
        if self.c.backup > 0 {
            return self.restore_primary();
        }
        let is_meta = self.has(&[k::SUPERBLOCK]) && self.c.incompat(IncompatFeatures::META_BG);
        if is_meta && self.c.sb.s_first_meta_bg > self.c.geo.gdt_blocks {
            self.change_super(|sb| put_le32(sb, 0x104, 0))?;
        }
        if self.has(&[k::SUPERBLOCK]) && geometry(&self.c.sb, true).is_ok() {
            // Only its checksum is wrong, and there is no backup.
            self.change_super(|_| {})?;
        }
        for (kind, feature) in [
            (k::LARGE_FILE, RoCompatFeatures::LARGE_FILE),
            (k::DIR_NLINK, RoCompatFeatures::DIR_NLINK),
        ] {
            if self.has(&[kind]) {
                self.change_super(|sb| or32(sb, 0x64, feature.bits()))?;
            }
        }
        for finding in self.found(&[k::STRAY_NUMBER]) {
            self.change_super(|sb| {
                for at in NUMBERS_AT {
                    if finding.inode == Some(le32(sb, at)) {
                        put_le32(sb, at, 0);
                    }
                }
            })?;
        }
        if self.has(&[k::ORPHAN_NO_FILE]) {
            let bits = RoCompatFeatures::ORPHAN_PRESENT.bits();
            self.change_super(|sb| clear_bits(sb, 0x64, bits))?;
        }
        Ok(())
    }

    /// Sets fields that can have one value only, if there is no backup; and the reserved blocks to
    /// the share that mke2fs gives them.
    pub(super) fn mend_super_fields(&mut self) -> Step {
        if !self.has(&[k::SUPERBLOCK_FIELD]) {
            return Ok(());
        }
        let (sb, geo) = (self.c.sb.clone(), self.c.geo.clone());
        self.change_super(|bytes| {
            if !(GOOD_OLD_FIRST_INO..=geo.inodes_count).contains(&geo.first_ino) {
                put_le32(bytes, 0x54, GOOD_OLD_FIRST_INO);
            }
            put_le32(bytes, 0x00, geo.inodes_count);
            put_le32(bytes, 0x28, geo.inodes_per_group);
            put_le32(bytes, 0x14, first_data_block(&sb, &geo));
            if sb.s_r_blocks_count > geo.blocks_count / 2 {
                let reserved = geo.blocks_count / 20;
                put_le32(bytes, 0x08, reserved as u32);
                if sb.is_64bit() {
                    put_le32(bytes, 0x154, (reserved >> 32) as u32);
                }
            }
            if !sb.is_64bit() && !desc_size_fits(&sb) {
                put_le16(bytes, 0xfe, 0);
            }
        })
    }

    pub(super) fn set_incompat(&mut self, feature: IncompatFeatures) -> Step {
        self.change_super(|sb| or32(sb, 0x60, feature.bits()))
    }

    /// Changes the primary superblock, and makes its checksum right.
    pub(super) fn change_super(&mut self, change: impl FnOnce(&mut [u8])) -> Step {
        let block = SUPERBLOCK_OFFSET >> self.c.geo.block_bits;
        let at = (SUPERBLOCK_OFFSET % self.c.geo.block_size as u64) as usize;
        let Some(mut bytes) = self.view(block)? else { return Ok(()) };
        let Some(sb) = bytes.get_mut(at..at + SUPERBLOCK_BYTES) else { return Ok(()) };
        change(sb);
        if self.c.geo.metadata_csum {
            let crc = Superblock::checksum_of(sb);
            put_le32(sb, CHECKSUM_AT, crc);
        }
        self.put(block, bytes);
        Ok(())
    }

    /// Writes the backup that was used, with its descriptors, over the primary.
    fn restore_primary(&mut self) -> Step {
        let group = self.c.backup;
        let first = self.c.geo.group_first_block(group);
        let Some(copy) = self.c.read(first)? else { return Ok(()) };
        let copy = copy.get(..SUPERBLOCK_BYTES).unwrap_or(&[]).to_vec();
        if copy.len() < SUPERBLOCK_BYTES {
            return Ok(());
        }
        self.change_super(|sb| {
            put_bytes(sb, 0, &copy);
            put_le16(sb, 0x5a, 0);
        })?;
        for group in 0..self.c.geo.group_count {
            let (nr, offset) = self.c.geo.desc_slot(group);
            if nr >= self.c.geo.first_meta_bg {
                break;
            }
            let Some((mut desc, mut bytes)) = self.c.desc_bytes(group)? else { continue };
            desc.bg_flags &= !(BLOCK_UNINIT | INODE_UNINIT);
            desc.encode_into(&mut bytes, group, &self.c.csum);
            let primary = self.c.geo.desc_block(&self.c.sb, nr);
            self.patch(primary, offset, &bytes)?;
        }
        Ok(())
    }
}

fn or32(bytes: &mut [u8], at: usize, bits: u32) {
    let all = le32(bytes, at) | bits;
    put_le32(bytes, at, all);
}

pub(super) fn clear_bits(bytes: &mut [u8], at: usize, bits: u32) {
    let left = le32(bytes, at) & !bits;
    put_le32(bytes, at, left);
}
