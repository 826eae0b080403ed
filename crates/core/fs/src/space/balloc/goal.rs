//! Goal of an allocation: the policy seam of the allocator, and the policy that follows ext4.
//!
//! A policy only says where to look first, how much to keep together and which blocks are kept for
//! hot files; whether blocks are free, accounts, windows and locks are the allocator's. Another
//! policy is another file that implements [`AllocPolicy`], as `space/balloc/hot.rs` and
//! `space/balloc/lifetime.rs` do.
//!
//! Linux: `ext4_ext_find_goal`, `ext4_inode_to_goal_block` (balloc.c), `ext4_mb_normalize_request`,
//! `ext4_mb_group_or_file` (mballoc.c). Left out: the colouring by process, which only matters
//! without delayed allocation and would make images depend on process ids.

use crate::incore::Lifetime;

/// The block groups of a volume, as the allocator sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// First block of group 0.
    pub first_data_block: u64,
    /// Blocks in every group but the last.
    pub blocks_per_group: u32,
    /// One past the last block of the volume.
    pub blocks_count: u64,
    /// Number of groups.
    pub groups: u32,
    /// log2 of the groups that share one metadata area (flex_bg); 0 without.
    pub flex_log: u32,
    /// log2 of the block size in bytes.
    pub block_bits: u32,
}

impl Shape {
    /// First block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks in a group.
    pub(crate) fn group_len(&self, group: u32) -> u32 {
        let left = self.blocks_count.saturating_sub(self.group_start(group));
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Group and position in it of a block; `None` outside of the volume's groups.
    pub(crate) fn locate(&self, block: u64) -> Option<(u32, u32)> {
        if block >= self.blocks_count || self.blocks_per_group == 0 {
            return None;
        }
        let relative = block.checked_sub(self.first_data_block)?;
        let group = u32::try_from(relative / u64::from(self.blocks_per_group)).ok()?;
        let bit = (relative % u64::from(self.blocks_per_group)) as u32;
        (group < self.groups).then_some((group, bit))
    }
}

/// Properties of the file that needs a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Group that holds the inode.
    pub inode_group: u32,
    /// True if it is a regular file (and not a directory or symlink).
    pub regular: bool,
    /// Expected lifetime of its blocks (`crate::space::hot`).
    pub life: Lifetime,
    /// First logical block wanted.
    pub lblk: u32,
    /// The mapped extent start nearest before (or else after) `lblk`: logical, physical.
    pub near: Option<(u32, u64)>,
}

/// Decides places. Pure: the same question gets the same answer.
pub(crate) trait AllocPolicy: Send + Sync {
    /// The block to try first.
    fn goal(&self, shape: &Shape, wish: &Wish) -> u64;

    /// Returns the number of blocks to keep together for a file that will have `file_blocks`
    /// blocks. `None`: it is small, pack it with other small files.
    fn window_blocks(&self, shape: &Shape, file_blocks: u64) -> Option<u32>;

    /// Blocks of one window for small files.
    fn packed_window_blocks(&self, shape: &Shape) -> u32;

    /// The blocks of a group that only hot files may have while there are others: first and one
    /// past the last, counted in the group. No more than `most` in all groups: a zone gives way
    /// from its end.
    fn kept_for_hot(&self, _shape: &Shape, _group: u32, _most: u64) -> Option<(u32, u32)> {
        None
    }

    /// Number of zones that such blocks lie in.
    fn zone_count(&self) -> u32 {
        0
    }

    /// True if there is one.
    fn has_zones(&self) -> bool {
        self.zone_count() > 0
    }

    /// True if inodes of all files and directories are kept together, as those of hot files are,
    /// instead of being spread over the volume.
    fn gathers_inodes(&self) -> bool {
        false
    }

    /// Returns the number of blocks kept in all groups.
    fn kept_blocks(&self) -> u64 {
        0
    }
}

/// ext4's places.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinuxPolicy;

/// Files of up to this size are packed (`s_mb_stream_request` is 16 blocks of 4 KiB).
const SMALL_FILE_BLOCKS: u64 = 16;
/// `s_mb_group_prealloc` (`MB_DEFAULT_GROUP_PREALLOC`).
const PACKED_WINDOW_BLOCKS: u32 = 512;
/// Flex groups at least this big keep directories in their first group
/// (`EXT4_FLEX_SIZE_DIR_ALLOC_SCHEME`).
const FLEX_DIR_SCHEME_GROUPS: u32 = 4;

impl AllocPolicy for LinuxPolicy {
    fn goal(&self, shape: &Shape, wish: &Wish) -> u64 {
        if let Some((lblk, pblk)) = wish.near {
            let goal = if wish.lblk >= lblk {
                pblk.saturating_add(u64::from(wish.lblk - lblk))
            } else {
                pblk.saturating_sub(u64::from(lblk - wish.lblk))
            };
            if shape.locate(goal).is_some() {
                return goal;
            }
        }
        let flex = 1_u32.checked_shl(shape.flex_log).unwrap_or(1);
        let mut group = wish.inode_group.min(shape.groups.saturating_sub(1));
        if flex >= FLEX_DIR_SCHEME_GROUPS {
            group &= !(flex - 1);
            if wish.regular && group + 1 < shape.groups {
                group += 1;
            }
        }
        shape.group_start(group)
    }

    fn window_blocks(&self, shape: &Shape, file_blocks: u64) -> Option<u32> {
        if file_blocks <= SMALL_FILE_BLOCKS {
            return None;
        }
        // The size classes of ext4_mb_normalize_request: 16K, 32K .. 1M by powers of two, then 2, 4
        // and 8 MiB.
        let kib = (file_blocks << shape.block_bits) >> 10;
        let kept_kib = match kib {
            0..=1024 => kib.next_power_of_two().max(16),
            1025..=2048 => 2048,
            2049..=4096 => 4096,
            _ => 8192,
        };
        let blocks = (kept_kib << 10) >> shape.block_bits;
        Some(blocks.clamp(1, u64::from(shape.blocks_per_group)) as u32)
    }

    fn packed_window_blocks(&self, shape: &Shape) -> u32 {
        PACKED_WINDOW_BLOCKS.min(shape.blocks_per_group / 8)
    }
}

/// Forty groups of 128 MiB, the last a little short, sixteen in a flex group.
#[cfg(test)]
pub(super) const SHAPE: Shape = Shape {
    first_data_block: 0,
    blocks_per_group: 32768,
    blocks_count: 32768 * 40 - 100,
    groups: 40,
    flex_log: 4,
    block_bits: 12,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_ext4() {
        let life = Lifetime::Long;
        let mut wish = Wish { inode_group: 19, regular: true, life, lblk: 7, near: None };
        assert_eq!(LinuxPolicy.goal(&SHAPE, &wish), 17 * 32768);
        wish.regular = false;
        assert_eq!(LinuxPolicy.goal(&SHAPE, &wish), 16 * 32768);
        wish.near = Some((5, 1000));
        assert_eq!(LinuxPolicy.goal(&SHAPE, &wish), 1002);
        wish.near = Some((9, 1000));
        assert_eq!(LinuxPolicy.goal(&SHAPE, &wish), 998);
        wish.near = Some((0, u64::MAX - 3));
        assert_eq!(LinuxPolicy.goal(&SHAPE, &wish), 16 * 32768, "nonsense is no goal");
    }

    #[test]
    fn windows_grow_with_the_file() {
        assert_eq!(LinuxPolicy.window_blocks(&SHAPE, 16), None);
        assert_eq!(LinuxPolicy.window_blocks(&SHAPE, 17), Some(32));
        assert_eq!(LinuxPolicy.window_blocks(&SHAPE, 257), Some(512));
        assert_eq!(LinuxPolicy.window_blocks(&SHAPE, 1 << 30), Some(2048));
    }

    #[test]
    fn blocks_are_located() {
        assert_eq!(SHAPE.locate(32768 * 39 + 5), Some((39, 5)));
        assert_eq!(SHAPE.group_len(39), 32768 - 100);
        assert_eq!(SHAPE.locate(32768 * 40 - 100), None);
        let small = Shape { first_data_block: 1, blocks_per_group: 8192, ..SHAPE };
        assert_eq!(small.locate(0), None);
        assert_eq!(small.locate(8193), Some((1, 0)));
    }
}
