//! The ext4 superblock: 1024 bytes at byte 1024 of the device, with backups in some groups.
//!
//! ```text
//!  0x000 counts, sizes, times      0x0C8 journal, orphans, hash      0x194 error report
//!  0x05C feature words             0x150 high halves (64bit)         0x270 seed, times' high bytes
//!  0x068 uuid, label               0x178 kbytes_written, snapshots   0x3FC crc32c
//! ```
//!
//! A superblock is two sectors: what changes lies in the first, the checksum in the second. A power
//! cut between them would leave a superblock that no tool opens. So an encoding that changes only
//! the first sector keeps the checksum: it balances the change in `s_snapshot_id`, a word of a
//! feature that was never specified and that no reader uses. Either mix of sectors is then the old
//! or the new.
//!
//! [`Superblock`] holds the fields this project reads or writes, under Linux's names (struct
//! ext4_super_block in fs/ext4/ext4.h). [`Superblock::encode_into`] writes them over the bytes they
//! came from, so fields that are not modelled keep their content. Nothing is validated by decode
//! except the magic; [`crate::Geometry`] validates sizes against each other and the device. Tested
//! in `tests/it/rejections.rs`, and in `tests/it/images.rs` on images of stock mke2fs.
//!
//! This file is long because the superblock has many fields.

use crate::bytes::{Field, hi32, join32, le16, lo32, put_le32, put_u8, u8_at};
use crate::checksum;
use crate::error::{OndiskError, Result};
use crate::features::{self, CompatFeatures, FeatureCheck, IncompatFeatures, RoCompatFeatures};
use crate::htree::{HashKind, HashVersion};

/// Byte offset of the primary superblock on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const EXT4_SUPER_MAGIC: u16 = 0xef53;
/// Inode number of the root directory.
pub const ROOT_INO: u32 = 2;
/// Inode number of the reserved resize inode.
pub const RESIZE_INO: u32 = 7;
/// Inode number of the journal mke2fs makes.
pub const JOURNAL_INO: u32 = 8;
/// First inode number for files where the superblock does not say (revision 0).
pub const GOOD_OLD_FIRST_INO: u32 = 11;

/// `s_state`: cleanly unmounted.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were seen.
pub const STATE_ERROR: u16 = 2;
/// `s_state`: orphans are being recovered.
pub const STATE_ORPHAN: u16 = 4;

/// `s_flags`: directory hashes use signed chars.
pub const FLAG_SIGNED_HASH: u32 = 1;
/// `s_flags`: directory hashes use unsigned chars.
pub const FLAG_UNSIGNED_HASH: u32 = 2;

/// `s_encoding`: UTF-8 of Unicode 12.1, the only encoding that Linux has.
pub const ENCODING_UTF8_12_1: u16 = 1;

const WHAT: &str = "superblock";
const CHECKSUM_OFFSET: usize = 0x3fc;
const CHECKSUM_TYPE_CRC32C: u8 = 1;
/// `s_snapshot_id`: free for balancing the checksum.
const BALANCE_OFFSET: usize = 0x184;
/// The part that holds the checksum, a sector of its own.
const SECOND_SECTOR: core::ops::Range<usize> = 512..SUPERBLOCK_BYTES;

macro_rules! superblock {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $off:expr;)*) => {
        /// The superblock's fields. Counts are in blocks or inodes, times in seconds since 1970.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(clippy::struct_field_names)]
        pub struct Superblock {
            $($(#[$doc])* pub $name: $ty,)*
            /// Blocks of the file system (lo and hi).
            pub s_blocks_count: u64,
            /// Blocks reserved for root (lo and hi).
            pub s_r_blocks_count: u64,
            /// Free blocks (lo and hi); lazily kept, the group descriptors are the truth.
            pub s_free_blocks_count: u64,
            /// Compatible features.
            pub s_feature_compat: CompatFeatures,
            /// Incompatible features.
            pub s_feature_incompat: IncompatFeatures,
            /// Features that allow reading.
            pub s_feature_ro_compat: RoCompatFeatures,
            /// Time of the last mount, 40 bits.
            pub s_mtime: u64,
            /// Time of the last write of the superblock, 40 bits.
            pub s_wtime: u64,
            /// Time of the last check, 40 bits.
            pub s_lastcheck: u64,
            /// Time the file system was made, 40 bits.
            pub s_mkfs_time: u64,
            /// Time of the first error, 40 bits.
            pub s_first_error_time: u64,
            /// Time of the most recent error, 40 bits.
            pub s_last_error_time: u64,
        }

        impl Superblock {
            fn decode_fields(buf: &[u8]) -> Self {
                let f = |off| u32::get(buf, off);
                let time = |lo, hi| join32(u32::get(buf, lo), u32::from(u8_at(buf, hi)));
                Self {
                    $($name: <$ty as Field>::get(buf, $off),)*
                    s_blocks_count: f(0x04).into(),
                    s_r_blocks_count: f(0x08).into(),
                    s_free_blocks_count: f(0x0c).into(),
                    s_feature_compat: CompatFeatures::from_bits(f(0x5c)),
                    s_feature_incompat: IncompatFeatures::from_bits(f(0x60)),
                    s_feature_ro_compat: RoCompatFeatures::from_bits(f(0x64)),
                    s_mtime: time(0x2c, 0x275),
                    s_wtime: time(0x30, 0x274),
                    s_lastcheck: time(0x40, 0x277),
                    s_mkfs_time: time(0x108, 0x276),
                    s_first_error_time: time(0x198, 0x278),
                    s_last_error_time: time(0x1cc, 0x279),
                }
            }

            fn encode_fields(&self, buf: &mut [u8]) {
                $(self.$name.put(buf, $off);)*
            }
        }
    };
}

superblock! {
    /// Inodes of the file system.
    s_inodes_count: u32 = 0x00;
    /// Free inodes; lazily kept, the group descriptors are the truth.
    s_free_inodes_count: u32 = 0x10;
    /// Block that holds the superblock and starts group 0: 1 with 1 KiB blocks, else 0.
    s_first_data_block: u32 = 0x14;
    /// Block size is `1024 << s_log_block_size` bytes.
    s_log_block_size: u32 = 0x18;
    /// Cluster size, like the block size; equal to it without `bigalloc`.
    s_log_cluster_size: u32 = 0x1c;
    /// Blocks in a group.
    s_blocks_per_group: u32 = 0x20;
    /// Clusters in a group.
    s_clusters_per_group: u32 = 0x24;
    /// Inodes in a group.
    s_inodes_per_group: u32 = 0x28;
    /// Mounts since the last check.
    s_mnt_count: u16 = 0x34;
    /// Mounts after which a check is due; 0xffff is never.
    s_max_mnt_count: u16 = 0x36;
    /// 0xEF53.
    s_magic: u16 = 0x38;
    /// `STATE_*`.
    s_state: u16 = 0x3a;
    /// Action on errors: 1 continue, 2 remount read-only, 3 panic.
    s_errors: u16 = 0x3c;
    /// Minor revision.
    s_minor_rev_level: u16 = 0x3e;
    /// Seconds between checks; 0 is never.
    s_checkinterval: u32 = 0x44;
    /// Operating system that made it; 0 is Linux.
    s_creator_os: u32 = 0x48;
    /// 0: fixed inode size and no features; 1: as the fields say.
    s_rev_level: u32 = 0x4c;
    /// User that may use reserved blocks.
    s_def_resuid: u16 = 0x50;
    /// Group that may use reserved blocks.
    s_def_resgid: u16 = 0x52;
    /// First inode number for files.
    s_first_ino: u32 = 0x54;
    /// Bytes of an inode on disk.
    s_inode_size: u16 = 0x58;
    /// Group that holds this copy.
    s_block_group_nr: u16 = 0x5a;
    /// Identity of the file system.
    s_uuid: [u8; 16] = 0x68;
    /// Label, zero-padded.
    s_volume_name: [u8; 16] = 0x78;
    /// Directory of the last mount, zero-padded.
    s_last_mounted: [u8; 64] = 0x88;
    /// Blocks after the descriptors kept free for growing.
    s_reserved_gdt_blocks: u16 = 0xce;
    /// Identity of an external journal.
    s_journal_uuid: [u8; 16] = 0xd0;
    /// Inode of the internal journal.
    s_journal_inum: u32 = 0xe0;
    /// Device number of an external journal.
    s_journal_dev: u32 = 0xe4;
    /// First inode of the orphan list.
    s_last_orphan: u32 = 0xe8;
    /// Seed of directory hashes.
    s_hash_seed: [u32; 4] = 0xec;
    /// Hash of new indexed directories (without the signedness).
    s_def_hash_version: u8 = 0xfc;
    /// 1 if `s_jnl_blocks` holds a backup of the journal inode's block map.
    s_jnl_backup_type: u8 = 0xfd;
    /// Bytes of a group descriptor with `64bit`.
    s_desc_size: u16 = 0xfe;
    /// Default mount options (`EXT4_DEFM_*`).
    s_default_mount_opts: u32 = 0x100;
    /// First block group of the `meta_bg` layout, in descriptor blocks.
    s_first_meta_bg: u32 = 0x104;
    /// Backup of the journal inode: i_block and size.
    s_jnl_blocks: [u32; 17] = 0x10c;
    /// Extra bytes all inodes must reserve.
    s_min_extra_isize: u16 = 0x15c;
    /// Extra bytes new inodes should reserve.
    s_want_extra_isize: u16 = 0x15e;
    /// `FLAG_*`.
    s_flags: u32 = 0x160;
    /// Seconds between MMP writes.
    s_mmp_interval: u16 = 0x166;
    /// Block of the MMP structure.
    s_mmp_block: u64 = 0x168;
    /// Groups of a flexible group are `1 << s_log_groups_per_flex`.
    s_log_groups_per_flex: u8 = 0x174;
    /// 1: crc32c.
    s_checksum_type: u8 = 0x175;
    /// KiB written over the life of the file system.
    s_kbytes_written: u64 = 0x178;
    /// Number of errors seen.
    s_error_count: u32 = 0x194;
    /// Inode of the first error.
    s_first_error_ino: u32 = 0x19c;
    /// Block of the first error.
    s_first_error_block: u64 = 0x1a0;
    /// Function that saw the first error, zero-padded.
    s_first_error_func: [u8; 32] = 0x1a8;
    /// Line of the first error.
    s_first_error_line: u32 = 0x1c8;
    /// Inode of the most recent error.
    s_last_error_ino: u32 = 0x1d0;
    /// Line of the most recent error.
    s_last_error_line: u32 = 0x1d4;
    /// Block of the most recent error.
    s_last_error_block: u64 = 0x1d8;
    /// Function that saw the most recent error, zero-padded.
    s_last_error_func: [u8; 32] = 0x1e0;
    /// Mount options as text, zero-padded.
    s_mount_opts: [u8; 64] = 0x200;
    /// Inode of user quota.
    s_usr_quota_inum: u32 = 0x240;
    /// Inode of group quota.
    s_grp_quota_inum: u32 = 0x244;
    /// Blocks the file system's own structures take, as mke2fs counted them; 0 is unknown.
    s_overhead_clusters: u32 = 0x248;
    /// Groups with backups under `sparse_super2`.
    s_backup_bgs: [u32; 2] = 0x24c;
    /// Inode of lost+found.
    s_lpf_ino: u32 = 0x268;
    /// Inode of project quota.
    s_prj_quota_inum: u32 = 0x26c;
    /// Checksum seed with `metadata_csum_seed`.
    s_checksum_seed: u32 = 0x270;
    /// errno of the first error, ext4's own numbering.
    s_first_error_errcode: u8 = 0x27a;
    /// errno of the most recent error.
    s_last_error_errcode: u8 = 0x27b;
    /// Encoding of names where they fold case; 1 is utf8-12.1.
    s_encoding: u16 = 0x27c;
    /// Bit 0: names there must be valid.
    s_encoding_flags: u16 = 0x27e;
    /// Inode of the orphan file.
    s_orphan_file_inum: u32 = 0x280;
    /// crc32c of the bytes before it; set by [`Superblock::encode_into`] when `metadata_csum` is
    /// on.
    s_checksum: u32 = 0x3fc;
}

impl Superblock {
    /// Reads the fields of 1024 bytes. Corrupt: too short, or the magic is not ext4's.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let Some(buf) = buf.get(..SUPERBLOCK_BYTES) else {
            return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", buf.len())));
        };
        let magic = le16(buf, 0x38);
        if magic != EXT4_SUPER_MAGIC {
            let detail = format!("magic is {magic:#06x}, not 0xef53: this is not ext2, 3 or 4");
            return Err(OndiskError::corrupt_at(WHAT, 0x38, detail));
        }
        let mut sb = Self::decode_fields(buf);
        if sb.is_64bit() {
            sb.s_blocks_count |= u64::from(u32::get(buf, 0x150)) << 32;
            sb.s_r_blocks_count |= u64::from(u32::get(buf, 0x154)) << 32;
            sb.s_free_blocks_count |= u64::from(u32::get(buf, 0x158)) << 32;
        }
        Ok(sb)
    }

    /// Writes the fields over `buf` and, with `metadata_csum`, makes bytes and checksum agree; the
    /// second sector stays as it is where only the first changes (see the module's description).
    /// Usage error: `buf` is shorter than 1024 bytes.
    pub fn encode_into(&self, buf: &mut [u8]) -> Result<()> {
        let Some(buf) = buf.get_mut(..SUPERBLOCK_BYTES) else {
            return Err(OndiskError::usage(WHAT, "the buffer is shorter than 1024 bytes"));
        };
        let mut second = [0; SUPERBLOCK_BYTES - SECOND_SECTOR.start];
        second.copy_from_slice(&buf[SECOND_SECTOR]);
        let old = u32::get(buf, CHECKSUM_OFFSET);
        let was_valid = old == Self::checksum_of(buf);
        self.encode_fields(buf);
        if self.has_metadata_csum() {
            put_le32(buf, CHECKSUM_OFFSET, old);
        }
        let counts = [self.s_blocks_count, self.s_r_blocks_count, self.s_free_blocks_count];
        for (i, count) in counts.into_iter().enumerate() {
            put_le32(buf, 0x04 + 4 * i, lo32(count));
            if self.is_64bit() {
                put_le32(buf, 0x150 + 4 * i, hi32(count));
            }
        }
        put_le32(buf, 0x5c, self.s_feature_compat.bits());
        put_le32(buf, 0x60, self.s_feature_incompat.bits());
        put_le32(buf, 0x64, self.s_feature_ro_compat.bits());
        let times = [
            (self.s_mtime, 0x2c, 0x275),
            (self.s_wtime, 0x30, 0x274),
            (self.s_lastcheck, 0x40, 0x277),
            (self.s_mkfs_time, 0x108, 0x276),
            (self.s_first_error_time, 0x198, 0x278),
            (self.s_last_error_time, 0x1cc, 0x279),
        ];
        for (time, lo, hi) in times {
            put_le32(buf, lo, lo32(time));
            put_u8(buf, hi, hi32(time).to_le_bytes()[0]);
        }
        if self.has_metadata_csum() {
            let balanced = was_valid
                && buf[SECOND_SECTOR] == second
                && checksum::steer_crc32c(!0, &mut buf[..CHECKSUM_OFFSET], BALANCE_OFFSET, old);
            if !balanced {
                checksum::put_crc(buf, CHECKSUM_OFFSET, Self::checksum_of(buf));
            }
        }
        Ok(())
    }

    /// crc32c of the 1020 bytes before the checksum field.
    #[must_use]
    pub fn checksum_of(buf: &[u8]) -> u32 {
        checksum::crc32c(!0, buf.get(..CHECKSUM_OFFSET).unwrap_or(buf))
    }

    /// Checks the checksum of the bytes this was decoded from; fine without `metadata_csum`.
    pub fn verify_checksum(&self, buf: &[u8]) -> Result<()> {
        if !self.has_metadata_csum() {
            return Ok(());
        }
        if self.s_checksum_type != CHECKSUM_TYPE_CRC32C {
            let detail = format!("checksum type {} is unknown", self.s_checksum_type);
            return Err(OndiskError::corrupt_at(WHAT, 0x175, detail));
        }
        let found = Self::checksum_of(buf);
        if found != self.s_checksum {
            let detail = format!("checksum is {:#x}, bytes give {found:#x}", self.s_checksum);
            return Err(OndiskError::corrupt_at(WHAT, CHECKSUM_OFFSET, detail));
        }
        Ok(())
    }

    /// Returns the access that the features allow. Unsupported: a feature that forbids opening, or
    /// an external journal.
    pub fn check_features(&self) -> Result<FeatureCheck> {
        if self.s_rev_level > 1 {
            let detail = "only revisions 0 and 1 exist; use a newer program";
            return Err(OndiskError::unsupported(format!("revision {}", self.s_rev_level), detail));
        }
        let check = features::check(self.s_feature_incompat, self.s_feature_ro_compat)?;
        if self.has_journal() && self.s_journal_inum == 0 {
            return Err(OndiskError::unsupported(
                "external journal",
                "the journal is on another device; replay it with `e2fsck -f -j DEVICE`, then \
                 move it inside with `tune2fs -O ^has_journal` and `tune2fs -j`",
            ));
        }
        let folds = self.s_feature_incompat.contains(IncompatFeatures::CASEFOLD);
        if folds && self.s_encoding != ENCODING_UTF8_12_1 {
            let name = format!("casefold with encoding {}", self.s_encoding);
            return Err(OndiskError::unsupported(
                name,
                "only utf8-12.1 is known; use a newer program",
            ));
        }
        if self.has_metadata_csum() && self.s_checksum_type != CHECKSUM_TYPE_CRC32C {
            let name = format!("checksum type {}", self.s_checksum_type);
            return Err(OndiskError::unsupported(name, "only crc32c exists; run `e2fsck -f`"));
        }
        Ok(check)
    }

    /// Seed of all metadata checksums: `s_checksum_seed`, or the crc32c of the UUID.
    #[must_use]
    pub fn csum_seed(&self) -> u32 {
        if self.s_feature_incompat.contains(IncompatFeatures::CSUM_SEED) {
            self.s_checksum_seed
        } else {
            checksum::crc32c(!0, &self.s_uuid)
        }
    }

    /// Hash for new indexed directories, with the signedness that `s_flags` asks for.
    /// Unsupported: a hash that is not legacy, half_md4 or tea.
    pub fn hash_version(&self) -> Result<HashVersion> {
        self.hash_version_of(self.s_def_hash_version)
    }

    /// The hash of a directory whose root says `version` (0..=5).
    pub fn hash_version_of(&self, version: u8) -> Result<HashVersion> {
        HashVersion::from_disk(version, self.hash_unsigned())
    }

    /// Kind and seed for [`crate::htree::hash`], for new directories.
    pub fn hash_kind(&self) -> Result<HashKind> {
        Ok(HashKind { version: self.hash_version()?, seed: self.s_hash_seed })
    }

    /// Bytes of an inode on disk: 128 in revision 0.
    #[must_use]
    pub fn inode_size(&self) -> usize {
        if self.s_rev_level == 0 { 128 } else { self.s_inode_size.into() }
    }

    /// First inode number for files: 11 in revision 0.
    #[must_use]
    pub fn first_ino(&self) -> u32 {
        if self.s_rev_level == 0 { GOOD_OLD_FIRST_INO } else { self.s_first_ino }
    }

    /// True if group `group` holds a backup (or the primary) of superblock and descriptors
    /// (`ext4_bg_has_super`).
    #[must_use]
    pub fn group_has_super(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.s_feature_compat.contains(CompatFeatures::SPARSE_SUPER2) {
            return self.s_backup_bgs.contains(&group);
        }
        if group == 1 || !self.s_feature_ro_compat.contains(RoCompatFeatures::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// `64bit`.
    #[must_use]
    pub fn is_64bit(&self) -> bool {
        self.s_feature_incompat.contains(IncompatFeatures::BIT64)
    }

    /// `metadata_csum`.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.s_feature_ro_compat.contains(RoCompatFeatures::METADATA_CSUM)
    }

    /// `uninit_bg` alone: descriptors carry a CRC-16. `metadata_csum` takes precedence.
    #[must_use]
    pub fn has_gdt_csum(&self) -> bool {
        self.s_feature_ro_compat.contains(RoCompatFeatures::GDT_CSUM) && !self.has_metadata_csum()
    }

    /// `has_journal`.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        self.s_feature_compat.contains(CompatFeatures::HAS_JOURNAL)
    }

    /// `needs_recovery`.
    #[must_use]
    pub fn needs_recovery(&self) -> bool {
        self.s_feature_incompat.contains(IncompatFeatures::RECOVER)
    }

    /// Sets or clears `needs_recovery`.
    pub fn set_needs_recovery(&mut self, on: bool) {
        if on {
            self.s_feature_incompat.insert(IncompatFeatures::RECOVER);
        } else {
            self.s_feature_incompat.remove(IncompatFeatures::RECOVER);
        }
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > base && n % base == 0 {
        n /= base;
    }
    n == base
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A superblock that is torn between its sectors is the old one or the new one.
    #[test]
    fn every_mix_of_old_and_new_sectors_is_whole() {
        let mut old = [0; SUPERBLOCK_BYTES];
        put_le32(&mut old, 0x38, u32::from(EXT4_SUPER_MAGIC));
        let mut sb = Superblock::decode(&old).unwrap();
        sb.s_feature_ro_compat.insert(RoCompatFeatures::METADATA_CSUM);
        sb.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        sb.encode_into(&mut old).unwrap();
        let mut sb = Superblock::decode(&old).unwrap();
        sb.verify_checksum(&old).unwrap();
        sb.set_needs_recovery(true);
        sb.s_free_blocks_count += 77;
        sb.s_wtime = 1_700_000_000;
        let mut new = old;
        sb.encode_into(&mut new).unwrap();
        assert_ne!(old[..512], new[..512]);
        assert_eq!(old[512..], new[512..]);
        Superblock::decode(&new).unwrap().verify_checksum(&new).unwrap();
        sb.s_orphan_file_inum = 12; // In the second sector: a new checksum.
        sb.encode_into(&mut new).unwrap();
        Superblock::decode(&new).unwrap().verify_checksum(&new).unwrap();
    }
}
