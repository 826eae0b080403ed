//! Geometry derived from the sizes in the superblock. It is validated once, so that later
//! arithmetic cannot overflow.
//!
//! ```text
//!  without meta_bg   [sb][descriptors][reserved gdt][bitmaps, table*][data]
//!                     \_____ only in groups with a backup ______/
//!  with meta_bg      [sb?][1 descriptor block, in the 1st, 2nd and last group of each
//!                          desc_per_block groups][bitmaps, table*][data]
//!  * anywhere with flex_bg
//! ```
//!
//! Promises: after [`Geometry::new`] no divisor is zero, `group_count` and every block number up to
//! `blocks_count` fit their types, and every group has a positive number of blocks. The rules are
//! those of `ext4_fill_super` in Linux. Tested in `tests/it/rejections.rs` and on images in
//! `tests/it/images.rs`.

use crate::error::{OndiskError, Result};
use crate::features::{IncompatFeatures, RoCompatFeatures};
use crate::superblock::Superblock;

const WHAT: &str = "superblock";
/// Smallest descriptor with `64bit`.
const MIN_DESC_SIZE_64BIT: usize = 64;
const MIN_DESC_SIZE: usize = 32;
const MAX_DESC_SIZE: usize = 1024;
/// Largest `s_log_cluster_size`.
const MAX_LOG_CLUSTER_SIZE: u32 = 19;

/// Sizes and layout of a file system. Blocks are absolute file system block numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block: 1024..=65536, a power of two.
    pub block_size: usize,
    /// log2 of the block size.
    pub block_bits: u32,
    /// Blocks of the file system.
    pub blocks_count: u64,
    /// First block of group 0.
    pub first_data_block: u32,
    /// log2 of the blocks of a cluster (`bigalloc`); 0 without.
    pub cluster_bits: u32,
    /// Blocks in a full group: clusters of a multiple of 8, at most 8 * block size.
    pub blocks_per_group: u32,
    /// Inodes in a group; a multiple of 8, at most 8 * block size.
    pub inodes_per_group: u32,
    /// Inodes of the file system.
    pub inodes_count: u32,
    /// Bytes of an inode on disk: a power of two, 128..=block size.
    pub inode_size: usize,
    /// Inodes in a block.
    pub inodes_per_block: u32,
    /// Blocks of a group's inode table.
    pub itable_blocks: u32,
    /// Bytes of a group descriptor: 32, or 64..=1024 with `64bit`.
    pub desc_size: usize,
    /// Descriptors in a block.
    pub desc_per_block: u32,
    /// Number of groups.
    pub group_count: u32,
    /// Blocks of the descriptor table.
    pub gdt_blocks: u32,
    /// Blocks after the descriptors in groups with a backup, kept for growing.
    pub reserved_gdt_blocks: u32,
    /// First descriptor block in the `meta_bg` layout; [`Geometry::gdt_blocks`] without it.
    pub first_meta_bg: u32,
    /// Groups of a flexible group; 1 without `flex_bg`.
    pub groups_per_flex: u32,
    /// True if bitmaps and inode table of a group may lie in another group (`flex_bg`).
    pub flex_bg: bool,
    /// True if checksums are crc32c (`metadata_csum`).
    pub metadata_csum: bool,
    /// First inode number for files.
    pub first_ino: u32,
}

fn bad<T>(offset: usize, detail: String) -> Result<T> {
    Err(OndiskError::corrupt_at(WHAT, offset, detail))
}

impl Geometry {
    /// Derives and validates. `device_size_bytes` is the size of the device the file system is on.
    /// Corrupt: sizes that contradict each other, the format or the device.
    pub fn new(sb: &Superblock, device_size_bytes: u64) -> Result<Self> {
        let block_bits = match sb.s_log_block_size {
            log @ 0..=6 => 10 + log,
            log => return bad(0x18, format!("block size 2^{log} KiB is above 64 KiB")),
        };
        let block_size = 1usize << block_bits;
        let cluster_bits = cluster_bits(sb)?;
        let bits_per_block = (block_size as u64 * 8).min(u64::from(u32::MAX));
        Self::check_groups(sb, bits_per_block, cluster_bits)?;
        let inode_size = sb.inode_size();
        if !(128..=block_size).contains(&inode_size) || !inode_size.is_power_of_two() {
            return bad(0x58, format!("inode size {inode_size} is not a power of two in range"));
        }
        let inodes_per_block = (block_size / inode_size) as u32;
        let ipg = sb.s_inodes_per_group;
        if ipg < inodes_per_block {
            return bad(0x28, format!("{ipg} inodes per group do not fill one block"));
        }
        let desc_size = desc_size(sb)?;
        let desc_per_block = (block_size / desc_size) as u32;
        let group_count = group_count(sb, block_size, device_size_bytes)?;
        if u64::from(group_count) * u64::from(ipg) != u64::from(sb.s_inodes_count) {
            let n = sb.s_inodes_count;
            return bad(0x00, format!("{n} inodes are not {group_count} groups of {ipg}"));
        }
        let first_ino = sb.first_ino();
        if first_ino < crate::superblock::GOOD_OLD_FIRST_INO || first_ino > sb.s_inodes_count {
            return bad(0x54, format!("first inode number {first_ino} is out of range"));
        }
        let gdt_blocks = group_count.div_ceil(desc_per_block);
        let meta_bg = sb.s_feature_incompat.contains(IncompatFeatures::META_BG);
        if meta_bg && sb.s_first_meta_bg > gdt_blocks {
            return bad(
                0x104,
                format!("first meta block group {} is past the table", { sb.s_first_meta_bg }),
            );
        }
        let flex_bg = sb.s_feature_incompat.contains(IncompatFeatures::FLEX_BG);
        let geometry = Self {
            block_size,
            block_bits,
            blocks_count: sb.s_blocks_count,
            first_data_block: sb.s_first_data_block,
            cluster_bits,
            blocks_per_group: sb.s_blocks_per_group,
            inodes_per_group: ipg,
            inodes_count: sb.s_inodes_count,
            inode_size,
            inodes_per_block,
            itable_blocks: ipg.div_ceil(inodes_per_block),
            desc_size,
            desc_per_block,
            group_count,
            gdt_blocks,
            reserved_gdt_blocks: sb.s_reserved_gdt_blocks.into(),
            first_meta_bg: if meta_bg { sb.s_first_meta_bg } else { gdt_blocks },
            groups_per_flex: groups_per_flex(sb, flex_bg)?,
            flex_bg,
            metadata_csum: sb.has_metadata_csum(),
            first_ino,
        };
        geometry.check_overhead(sb)?;
        Ok(geometry)
    }

    fn check_groups(sb: &Superblock, bits_per_block: u64, cluster_bits: u32) -> Result<()> {
        let (bpg, cpg) = (sb.s_blocks_per_group, sb.s_clusters_per_group);
        let most = bits_per_block << cluster_bits;
        if bpg == 0 || bpg % (8 << cluster_bits) != 0 || u64::from(bpg) > most {
            return bad(0x20, format!("{bpg} blocks per group is out of range"));
        }
        if u64::from(bpg) != u64::from(cpg) << cluster_bits {
            return bad(0x24, format!("{cpg} clusters per group differ from {bpg} blocks"));
        }
        let ipg = sb.s_inodes_per_group;
        if ipg == 0 || ipg % 8 != 0 || u64::from(ipg) > bits_per_block {
            return bad(0x28, format!("{ipg} inodes per group is out of range"));
        }
        let first = u32::from(sb.s_log_block_size == 0 && cluster_bits == 0);
        if sb.s_first_data_block != first {
            return bad(0x14, format!("first data block is {}", sb.s_first_data_block));
        }
        Ok(())
    }

    /// Superblock copy, descriptors and reserved blocks of a group must leave room in the group.
    fn check_overhead(&self, sb: &Superblock) -> Result<()> {
        let reserved = self.reserved_gdt_blocks as usize;
        if reserved > self.block_size / 4 {
            return bad(0xce, format!("{reserved} reserved descriptor blocks are too many"));
        }
        let overhead = 1
            + u64::from(self.gdt_blocks.min(self.first_meta_bg))
            + u64::from(self.reserved_gdt_blocks);
        if overhead >= u64::from(self.blocks_per_group) {
            return bad(0x20, format!("{overhead} blocks of descriptors do not fit a group"));
        }
        if overhead + u64::from(sb.s_first_data_block) >= self.blocks_count {
            return bad(0x04, format!("{} blocks cannot hold the descriptors", self.blocks_count));
        }
        Ok(())
    }

    /// First block of group `group`.
    #[inline]
    #[must_use]
    pub fn group_first_block(&self, group: u32) -> u64 {
        u64::from(group) * u64::from(self.blocks_per_group) + u64::from(self.first_data_block)
    }

    /// Number of blocks in group `group`; the last group may be short. 0 past the last group.
    #[inline]
    #[must_use]
    pub fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_first_block(group));
        u32::try_from(left).unwrap_or(u32::MAX).min(self.blocks_per_group)
    }

    /// Number of clusters in group `group`, bits of its block bitmap.
    #[inline]
    #[must_use]
    pub fn group_clusters(&self, group: u32) -> u32 {
        self.group_blocks(group).div_ceil(1 << self.cluster_bits)
    }

    /// Blocks of a cluster; 1 without `bigalloc`.
    #[inline]
    #[must_use]
    pub fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Bytes of a cluster.
    #[inline]
    #[must_use]
    pub fn cluster_bytes(&self) -> usize {
        self.block_size << self.cluster_bits
    }

    /// Clusters in a full group.
    #[inline]
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// Group of a block, and its bit in the bitmap there. `None`: as [`Geometry::block_group`].
    #[inline]
    #[must_use]
    pub fn block_bit(&self, block: u64) -> Option<(u32, u32)> {
        self.block_group(block).map(|(group, at)| (group, at >> self.cluster_bits))
    }

    /// Group of a block, and its number in it. `None`: before the first or past the last block.
    #[inline]
    #[must_use]
    pub fn block_group(&self, block: u64) -> Option<(u32, u32)> {
        if block >= self.blocks_count {
            return None;
        }
        let relative = block.checked_sub(u64::from(self.first_data_block))?;
        let bpg = u64::from(self.blocks_per_group);
        let group = u32::try_from(relative / bpg).ok()?;
        Some((group, u32::try_from(relative % bpg).ok()?))
    }

    /// Group and index of an inode number. `None`: 0 or past the last inode.
    #[inline]
    #[must_use]
    pub fn inode_group(&self, ino: u32) -> Option<(u32, u32)> {
        if ino == 0 || ino > self.inodes_count {
            return None;
        }
        let index = ino - 1;
        Some((index / self.inodes_per_group, index % self.inodes_per_group))
    }

    /// Block (relative to the inode table) and byte offset in it of the inode with `index` in a
    /// group.
    #[inline]
    #[must_use]
    pub fn inode_slot(&self, index: u32) -> (u32, usize) {
        let slot = (index % self.inodes_per_block) as usize;
        (index / self.inodes_per_block, slot * self.inode_size)
    }

    /// Descriptor block number (0-based) and byte offset in it of group `group`'s descriptor.
    #[inline]
    #[must_use]
    pub fn desc_slot(&self, group: u32) -> (u32, usize) {
        let slot = (group % self.desc_per_block) as usize;
        (group / self.desc_per_block, slot * self.desc_size)
    }

    /// Returns the block of descriptor block `nr` (0-based), as `descriptor_loc`.
    #[must_use]
    pub fn desc_block(&self, sb: &Superblock, nr: u32) -> u64 {
        if nr < self.first_meta_bg {
            return u64::from(self.first_data_block) + self.boot_blocks() + 1 + u64::from(nr);
        }
        let group = nr.saturating_mul(self.desc_per_block);
        self.group_first_block(group) + u64::from(sb.group_has_super(group))
    }

    /// Blocks of group 0 before the superblock: with blocks of 1 KiB in clusters block 0 is in it.
    fn boot_blocks(&self) -> u64 {
        u64::from(self.block_size == 1024 && self.first_data_block == 0)
    }

    /// Descriptor blocks in group `group` (`ext4_bg_num_gdb`), reserved ones not counted.
    #[must_use]
    pub fn group_gdt_blocks(&self, sb: &Superblock, group: u32) -> u32 {
        if group / self.desc_per_block < self.first_meta_bg {
            return if sb.group_has_super(group) {
                self.first_meta_bg.min(self.gdt_blocks)
            } else {
                0
            };
        }
        let last = self.desc_per_block - 1;
        let within = group % self.desc_per_block;
        u32::from(within == 0 || within == 1 || within == last)
    }

    /// Blocks at the start of group `group` taken by superblock copy, descriptors and reserved
    /// descriptor blocks (`ext4_num_base_meta_blocks`).
    #[must_use]
    pub fn group_base_meta_blocks(&self, sb: &Superblock, group: u32) -> u32 {
        let has_super = u32::from(sb.group_has_super(group));
        let mut count = has_super + self.group_gdt_blocks(sb, group);
        if group / self.desc_per_block < self.first_meta_bg && has_super == 1 {
            count += self.reserved_gdt_blocks;
        }
        if group == 0 {
            count += self.boot_blocks() as u32;
        }
        count.min(self.blocks_per_group)
    }

    /// True if `count` blocks from `start` are data or metadata blocks of the file system (none
    /// before `first_data_block + 1`, none past the end).
    #[inline]
    #[must_use]
    pub fn is_valid_range(&self, start: u64, count: u64) -> bool {
        start > u64::from(self.first_data_block)
            && start.checked_add(count).is_some_and(|end| end <= self.blocks_count)
    }
}

/// log2 of the blocks of a cluster.
fn cluster_bits(sb: &Superblock) -> Result<u32> {
    let (block, cluster) = (sb.s_log_block_size, sb.s_log_cluster_size);
    if !sb.s_feature_ro_compat.contains(RoCompatFeatures::BIGALLOC) {
        return match cluster == block {
            true => Ok(0),
            false => bad(0x1c, "cluster size differs from block size without bigalloc".into()),
        };
    }
    if !sb.s_feature_incompat.contains(IncompatFeatures::EXTENTS) {
        return bad(0x64, "bigalloc without extents".into());
    }
    match cluster.checked_sub(block).filter(|_| cluster <= MAX_LOG_CLUSTER_SIZE) {
        Some(bits) => Ok(bits),
        None => bad(0x1c, format!("cluster size 2^{cluster} KiB is out of range")),
    }
}

fn desc_size(sb: &Superblock) -> Result<usize> {
    if !sb.is_64bit() {
        return Ok(MIN_DESC_SIZE);
    }
    let size = usize::from(sb.s_desc_size);
    if !(MIN_DESC_SIZE_64BIT..=MAX_DESC_SIZE).contains(&size) || !size.is_power_of_two() {
        return bad(0xfe, format!("descriptor size {size} is not a power of two in 64..=1024"));
    }
    Ok(size)
}

fn group_count(sb: &Superblock, block_size: usize, device_size_bytes: u64) -> Result<u32> {
    let blocks = sb.s_blocks_count;
    let device_blocks = device_size_bytes / block_size as u64;
    if blocks > device_blocks {
        return bad(0x04, format!("{blocks} blocks, but the device has only {device_blocks}"));
    }
    let first = u64::from(sb.s_first_data_block);
    let Some(in_groups) = blocks.checked_sub(first).filter(|n| *n > 0) else {
        return bad(0x04, format!("{blocks} blocks leave nothing after block {first}"));
    };
    let groups = in_groups.div_ceil(u64::from(sb.s_blocks_per_group));
    match u32::try_from(groups) {
        // The last inode number of the last group must fit 32 bits, and desc_block its product.
        Ok(n) if n < u32::MAX - 1024 => Ok(n),
        _ => bad(0x04, format!("{groups} groups are too many")),
    }
}

fn groups_per_flex(sb: &Superblock, flex_bg: bool) -> Result<u32> {
    match (flex_bg, sb.s_log_groups_per_flex) {
        (false, _) | (true, 0) => Ok(1),
        (true, log @ 1..=31) => Ok(1 << log),
        (true, log) => bad(0x174, format!("flexible group size 2^{log} is too large")),
    }
}
