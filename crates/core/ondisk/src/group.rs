//! Group descriptors: 32 bytes, or 64 and more with `64bit`, one for each block group.
//!
//! ```text
//!  0x00 block_bitmap  inode_bitmap  inode_table | free blocks, inodes, dirs | flags
//!  0x14 exclude_bitmap  0x18 bitmap checksums lo  0x1C itable_unused  0x1E bg_checksum
//!  0x20 the high halves of all of them (64bit)
//! ```
//!
//! `bg_checksum` is the low half of a crc32c (`metadata_csum`) or a CRC-16 (`uninit_bg`); both
//! cover the group number. Also here: bitmap checksums, and the block bitmap that `BLOCK_UNINIT`
//! stands for. Tested on every descriptor of stock images in `tests/it/images.rs`.

use crate::bitmap;
use crate::bytes::{hi16, hi32, join16, join32, le16, le32, lo16, lo32, put_le16, put_le32};
use crate::checksum;
use crate::error::{OndiskError, Result};
use crate::geometry::Geometry;
use crate::superblock::Superblock;

const WHAT: &str = "group descriptor";
const CHECKSUM_OFFSET: usize = 0x1e;
const SIZE_64BIT: usize = 64;

/// `bg_flags`: the inode bitmap and table are not initialised; all inodes are free.
pub const INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap is not initialised; see [`init_block_bitmap`].
pub const BLOCK_UNINIT: u16 = 2;
/// `bg_flags`: the inode table is zeroed.
pub const INODE_ZEROED: u16 = 4;

/// One group descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::struct_field_names)]
pub struct GroupDesc {
    /// Block of the block bitmap.
    pub bg_block_bitmap: u64,
    /// Block of the inode bitmap.
    pub bg_inode_bitmap: u64,
    /// First block of the inode table.
    pub bg_inode_table: u64,
    /// Free blocks.
    pub bg_free_blocks_count: u32,
    /// Free inodes.
    pub bg_free_inodes_count: u32,
    /// Directories.
    pub bg_used_dirs_count: u32,
    /// `INODE_UNINIT`, `BLOCK_UNINIT`, `INODE_ZEROED`.
    pub bg_flags: u16,
    /// crc32c of the block bitmap; 16 bits in 32-byte descriptors.
    pub bg_block_bitmap_csum: u32,
    /// crc32c of the inode bitmap; 16 bits in 32-byte descriptors.
    pub bg_inode_bitmap_csum: u32,
    /// Inodes at the end of the table never used (valid with checksums only).
    pub bg_itable_unused: u32,
    /// Checksum of the descriptor as read; [`GroupDesc::encode_into`] makes a new one.
    pub bg_checksum: u16,
}

/// Checksum parameters of descriptors and bitmaps, taken from the superblock once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCsum {
    kind: CsumKind,
    seed: u32,
    uuid: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CsumKind {
    None,
    Crc16,
    Crc32c,
}

impl GroupCsum {
    /// The checksum rules of this file system.
    #[must_use]
    pub fn new(sb: &Superblock) -> Self {
        let kind = if sb.has_metadata_csum() {
            CsumKind::Crc32c
        } else if sb.has_gdt_csum() {
            CsumKind::Crc16
        } else {
            CsumKind::None
        };
        Self { kind, seed: sb.csum_seed(), uuid: sb.s_uuid }
    }

    /// True if descriptors carry a checksum. Without one the `*_UNINIT` flags and
    /// `bg_itable_unused` mean nothing.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.kind != CsumKind::None
    }

    /// Checksum of descriptor `desc` (its on-disk bytes) of group `group`
    /// (`ext4_group_desc_csum`).
    #[must_use]
    pub fn of_desc(&self, group: u32, desc: &[u8]) -> u16 {
        let before = desc.get(..CHECKSUM_OFFSET).unwrap_or(desc);
        let after = desc.get(CHECKSUM_OFFSET + 2..).unwrap_or(&[]);
        match self.kind {
            CsumKind::None => 0,
            CsumKind::Crc32c => {
                let crc = checksum::crc32c(self.seed, &group.to_le_bytes());
                let crc = checksum::crc32c(crc, before);
                let crc = checksum::crc32c(crc, &[0; 2]);
                lo16(checksum::crc32c(crc, after))
            }
            CsumKind::Crc16 => {
                let crc = checksum::crc16(!0, &self.uuid);
                let crc = checksum::crc16(crc, &group.to_le_bytes());
                let crc = checksum::crc16(crc, before);
                checksum::crc16(crc, after)
            }
        }
    }

    /// crc32c of a bitmap's first `bits / 8` bytes; 0 without `metadata_csum`.
    #[must_use]
    pub fn of_bitmap(&self, bitmap: &[u8], bits: u32) -> u32 {
        if self.kind != CsumKind::Crc32c {
            return 0;
        }
        let len = (bits / 8) as usize;
        checksum::crc32c(self.seed, bitmap.get(..len).unwrap_or(bitmap))
    }
}

impl GroupDesc {
    /// Reads a descriptor of `desc.len()` bytes (32, or 64 and more). Corrupt: shorter than 32.
    /// Nothing else is checked; see [`GroupDesc::validate`].
    pub fn decode(desc: &[u8]) -> Result<Self> {
        if desc.len() < 32 {
            return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", desc.len())));
        }
        let hi = if desc.len() >= SIZE_64BIT { desc } else { &[] };
        let block = |at| join32(le32(desc, at), le32(hi, at + 0x20));
        let count = |at, at_hi| join16(le16(desc, at), le16(hi, at_hi));
        Ok(Self {
            bg_block_bitmap: block(0x00),
            bg_inode_bitmap: block(0x04),
            bg_inode_table: block(0x08),
            bg_free_blocks_count: count(0x0c, 0x2c),
            bg_free_inodes_count: count(0x0e, 0x2e),
            bg_used_dirs_count: count(0x10, 0x30),
            bg_flags: le16(desc, 0x12),
            bg_block_bitmap_csum: count(0x18, 0x38),
            bg_inode_bitmap_csum: count(0x1a, 0x3a),
            bg_itable_unused: count(0x1c, 0x32),
            bg_checksum: le16(desc, CHECKSUM_OFFSET),
        })
    }

    /// Writes the fields over `desc` (whose length is the descriptor size) and a fresh checksum.
    pub fn encode_into(&self, desc: &mut [u8], group: u32, csum: &GroupCsum) {
        let wide = desc.len() >= SIZE_64BIT;
        let blocks = [self.bg_block_bitmap, self.bg_inode_bitmap, self.bg_inode_table];
        for (i, block) in blocks.into_iter().enumerate() {
            put_le32(desc, 4 * i, lo32(block));
            if wide {
                put_le32(desc, 0x20 + 4 * i, hi32(block));
            }
        }
        let counts = [
            (self.bg_free_blocks_count, 0x0c, 0x2c),
            (self.bg_free_inodes_count, 0x0e, 0x2e),
            (self.bg_used_dirs_count, 0x10, 0x30),
            (self.bg_block_bitmap_csum, 0x18, 0x38),
            (self.bg_inode_bitmap_csum, 0x1a, 0x3a),
            (self.bg_itable_unused, 0x1c, 0x32),
        ];
        for (value, lo, hi) in counts {
            put_le16(desc, lo, lo16(value));
            if wide {
                put_le16(desc, hi, hi16(value));
            }
        }
        put_le16(desc, 0x12, self.bg_flags);
        if csum.is_on() {
            put_le16(desc, CHECKSUM_OFFSET, csum.of_desc(group, desc));
        }
    }

    /// Checks the checksum of the bytes this was decoded from; fine where there is none.
    pub fn verify_checksum(&self, desc: &[u8], group: u32, csum: &GroupCsum) -> Result<()> {
        if !csum.is_on() {
            return Ok(());
        }
        let found = csum.of_desc(group, desc);
        if found != self.bg_checksum {
            let stored = self.bg_checksum;
            let detail = format!("group {group}: checksum {stored:#x}, bytes give {found:#x}");
            return Err(OndiskError::corrupt_at(WHAT, CHECKSUM_OFFSET, detail));
        }
        Ok(())
    }

    /// Checks that bitmaps and table lie inside the file system (inside the group without
    /// `flex_bg`) and that no count exceeds the group (`ext4_check_descriptors`).
    pub fn validate(&self, group: u32, geo: &Geometry) -> Result<()> {
        let fail = |offset, detail: &str| {
            Err(OndiskError::corrupt_at(WHAT, offset, format!("group {group}: {detail}")))
        };
        let (first, end) = if geo.flex_bg {
            (u64::from(geo.first_data_block) + 1, geo.blocks_count)
        } else {
            let first = geo.group_first_block(group);
            (first, first + u64::from(geo.group_blocks(group)))
        };
        let inside = |block: u64, len: u32| {
            block >= first && block.checked_add(len.into()).is_some_and(|last| last <= end)
        };
        if !inside(self.bg_block_bitmap, 1) {
            return fail(0x00, "block bitmap is outside");
        }
        if !inside(self.bg_inode_bitmap, 1) {
            return fail(0x04, "inode bitmap is outside");
        }
        if !inside(self.bg_inode_table, geo.itable_blocks) {
            return fail(0x08, "inode table is outside");
        }
        if self.bg_free_blocks_count > geo.group_clusters(group) {
            return fail(0x0c, "more free blocks than blocks");
        }
        if self.bg_free_inodes_count > geo.inodes_per_group {
            return fail(0x0e, "more free inodes than inodes");
        }
        if self.bg_used_dirs_count > geo.inodes_per_group {
            return fail(0x10, "more directories than inodes");
        }
        if self.bg_itable_unused > geo.inodes_per_group {
            return fail(0x1c, "more unused inodes than inodes");
        }
        Ok(())
    }

    /// True if `flag` is set.
    #[inline]
    #[must_use]
    pub fn has_flag(&self, flag: u16) -> bool {
        self.bg_flags & flag != 0
    }

    /// Recomputes `bg_block_bitmap_csum`.
    pub fn set_block_bitmap_csum(&mut self, bitmap: &[u8], geo: &Geometry, csum: &GroupCsum) {
        let crc = csum.of_bitmap(bitmap, geo.clusters_per_group());
        self.bg_block_bitmap_csum = narrow(crc, geo);
    }

    /// Recomputes `bg_inode_bitmap_csum`.
    pub fn set_inode_bitmap_csum(&mut self, bitmap: &[u8], geo: &Geometry, csum: &GroupCsum) {
        let crc = csum.of_bitmap(bitmap, geo.inodes_per_group);
        self.bg_inode_bitmap_csum = narrow(crc, geo);
    }

    /// Checks a block bitmap read from disk; fine without `metadata_csum` or with `BLOCK_UNINIT`.
    pub fn verify_block_bitmap(
        &self,
        group: u32,
        bitmap: &[u8],
        geo: &Geometry,
        csum: &GroupCsum,
    ) -> Result<()> {
        let crc = narrow(csum.of_bitmap(bitmap, geo.clusters_per_group()), geo);
        if !geo.metadata_csum
            || self.has_flag(BLOCK_UNINIT)
            || crc == narrow(self.bg_block_bitmap_csum, geo)
        {
            return Ok(());
        }
        let detail = format!("group {group}: checksum does not match the descriptor");
        Err(OndiskError::corrupt("block bitmap", detail).in_block(self.bg_block_bitmap))
    }

    /// Checks an inode bitmap read from disk; fine without `metadata_csum` or with `INODE_UNINIT`.
    pub fn verify_inode_bitmap(
        &self,
        group: u32,
        bitmap: &[u8],
        geo: &Geometry,
        csum: &GroupCsum,
    ) -> Result<()> {
        let crc = narrow(csum.of_bitmap(bitmap, geo.inodes_per_group), geo);
        if !geo.metadata_csum
            || self.has_flag(INODE_UNINIT)
            || crc == narrow(self.bg_inode_bitmap_csum, geo)
        {
            return Ok(());
        }
        let detail = format!("group {group}: checksum does not match the descriptor");
        Err(OndiskError::corrupt("inode bitmap", detail).in_block(self.bg_inode_bitmap))
    }
}

/// 32-byte descriptors hold only the low half of a bitmap checksum.
fn narrow(crc: u32, geo: &Geometry) -> u32 {
    if geo.desc_size >= SIZE_64BIT { crc } else { crc & 0xffff }
}

/// Fills `bitmap` (one block) with what `BLOCK_UNINIT` stands for: the group's own superblock copy,
/// descriptors, bitmaps and inode table are used, everything else is free, and bits past the end of
/// the group are set (`ext4_init_block_bitmap`). A bit is a cluster.
pub fn init_block_bitmap(
    bitmap: &mut [u8],
    sb: &Superblock,
    geo: &Geometry,
    group: u32,
    desc: &GroupDesc,
) {
    bitmap.fill(0);
    let blocks = geo.group_blocks(group);
    let mut set = |from: u32, to: u32| {
        let (from, to) = (from >> geo.cluster_bits, to.div_ceil(1 << geo.cluster_bits));
        let _ = bitmap::set_range(bitmap, from, to - from);
    };
    set(0, geo.group_base_meta_blocks(sb, group).min(blocks));
    let first = geo.group_first_block(group);
    let own = [
        (desc.bg_block_bitmap, 1),
        (desc.bg_inode_bitmap, 1),
        (desc.bg_inode_table, u64::from(geo.itable_blocks)),
    ];
    for (start, len) in own {
        let from = start.clamp(first, first + u64::from(blocks)) - first;
        let to = start.saturating_add(len).clamp(first, first + u64::from(blocks)) - first;
        if from < to {
            set(lo32(from), lo32(to));
        }
    }
    mark_tail(bitmap, geo.group_clusters(group));
}

/// Fills `bitmap` (one block) with what `INODE_UNINIT` stands for: all free, and bits past the
/// group's last inode set.
pub fn init_inode_bitmap(bitmap: &mut [u8], geo: &Geometry) {
    bitmap.fill(0);
    mark_tail(bitmap, geo.inodes_per_group);
}

/// Sets every bit from `used_bits` to the end of the block, as ext4 keeps them.
fn mark_tail(bitmap: &mut [u8], used_bits: u32) {
    let total = u32::try_from(bitmap.len().saturating_mul(8)).unwrap_or(u32::MAX);
    if used_bits < total {
        let _ = bitmap::set_range(bitmap, used_bits, total - used_bits);
    }
}
