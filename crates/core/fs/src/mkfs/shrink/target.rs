//! The smaller file system: its superblock, and whether the used blocks fit.

use syncline_ondisk::{CompatFeatures, Geometry, IncompatFeatures, Superblock};

use super::super::builder::Builder;
use super::super::grow::LAST_GROUP_SPARE;
use super::super::space::Used;

/// A smaller size.
pub(super) struct Target {
    pub(super) sb: Superblock,
    pub(super) geo: Geometry,
}

impl Target {
    /// That of so many blocks. A last group that is too short goes, or is completed if `up` says
    /// so. `None`: not even the first group has room for its tables.
    pub(super) fn new(old: &Builder, blocks: u64, up: bool) -> Option<Self> {
        let geo = &old.geo;
        let (first, per_group) = (u64::from(geo.first_data_block), u64::from(geo.blocks_per_group));
        let inside = blocks.checked_sub(first).filter(|inside| *inside > 0)?;
        let groups = inside.div_ceil(per_group);
        // Any number of blocks gives the layout of the groups.
        let probe = superblock(old, first + groups * per_group, groups as u32);
        let layout = Geometry::new(&probe, u64::MAX).ok()?;
        let base = u64::from(layout.group_base_meta_blocks(&probe, groups as u32 - 1));
        let least = (base + 2 + u64::from(geo.itable_blocks) + LAST_GROUP_SPARE).min(per_group);
        let before = (groups - 1) * per_group;
        let blocks = match inside - before {
            rest if rest >= least || blocks == geo.blocks_count => blocks,
            _ if up => first + before + least,
            _ => first + before,
        };
        let groups = (blocks - first).div_ceil(per_group) as u32;
        if groups == 0 {
            return None;
        }
        let sb = superblock(old, blocks, groups);
        // The old table of descriptors may not fit the new size.
        let geo = Geometry::new(&sb, u64::MAX).ok()?;
        Some(Target { sb, geo })
    }

    /// Blocks whose use ends: tables of the groups that go, and descriptors that are not needed.
    pub(super) fn gone(&self, old: &Builder) -> Used {
        let mut gone = Used::new(0, old.geo.blocks_count);
        for group in self.geo.group_count..old.geo.group_count {
            let desc = &old.groups[group as usize];
            gone.insert(desc.bg_block_bitmap, 1);
            gone.insert(desc.bg_inode_bitmap, 1);
            gone.insert(desc.bg_inode_table, old.geo.itable_blocks.into());
        }
        for group in 0..old.geo.group_count {
            let first = old.geo.group_first_block(group);
            let base = old.geo.group_base_meta_blocks(&old.sb, group);
            if base > 0 {
                gone.insert(first, base.into());
            }
        }
        for group in 0..self.geo.group_count {
            let base = self.geo.group_base_meta_blocks(&self.sb, group);
            if base > 0 {
                gone.remove(self.geo.group_first_block(group), base.into());
            }
        }
        gone
    }

    /// Blocks that are not to be used: those behind the end, and those of new backups.
    pub(super) fn away(&self, old: &Builder) -> Used {
        let mut away = Used::new(0, old.geo.blocks_count);
        if self.geo.blocks_count < old.geo.blocks_count {
            away.insert(self.geo.blocks_count, old.geo.blocks_count - self.geo.blocks_count);
        }
        for group in 0..self.geo.group_count {
            let now = u64::from(old.geo.group_base_meta_blocks(&old.sb, group));
            let then = u64::from(self.geo.group_base_meta_blocks(&self.sb, group));
            if then > now {
                away.insert(self.geo.group_first_block(group) + now, then - now);
            }
        }
        away
    }

    /// Blocks that are missing below the end, those of larger maps not counted; all if inodes are.
    pub(super) fn lacks(&self, old: &Builder) -> u64 {
        if old.inodes_used.count() > self.geo.inodes_count.into() {
            return u64::MAX;
        }
        let (away, gone) = (self.away(old), self.gone(old));
        let (mut need, mut free) =
            (0, self.geo.blocks_count - u64::from(self.geo.first_data_block));
        free -= sum(&old.used, 0, self.geo.blocks_count);
        for (from, to) in away.within(0, old.geo.blocks_count) {
            let used = sum(&old.used, from, to);
            need += used - sum(&gone, from, to).min(used);
            if from < self.geo.blocks_count {
                free -= to - from - used;
            }
        }
        need.saturating_sub(free)
    }
}

fn sum(used: &Used, from: u64, to: u64) -> u64 {
    used.within(from, to).map(|(from, to)| to - from).sum()
}

/// The superblock of so many blocks. Counts of free blocks and inodes are set at the end.
fn superblock(old: &Builder, blocks: u64, groups: u32) -> Superblock {
    let (mut sb, geo) = (old.sb.clone(), &old.geo);
    let reserved = u128::from(sb.s_r_blocks_count) * u128::from(blocks);
    sb.s_r_blocks_count = (reserved / u128::from(sb.s_blocks_count)) as u64;
    sb.s_blocks_count = blocks;
    sb.s_inodes_count = groups.saturating_mul(geo.inodes_per_group);
    let descs = groups.div_ceil(geo.desc_per_block);
    if sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
        let reserved = geo.reserved_gdt_blocks + geo.gdt_blocks.saturating_sub(descs);
        sb.s_reserved_gdt_blocks = reserved.min(geo.block_size as u32 / 4) as u16;
    }
    if sb.s_feature_incompat.contains(IncompatFeatures::META_BG) && sb.s_first_meta_bg >= descs {
        sb.s_feature_incompat.remove(IncompatFeatures::META_BG);
        sb.s_first_meta_bg = 0;
    }
    let last = groups.saturating_sub(1);
    for i in 0..2 {
        let other = sb.s_backup_bgs[1 - i];
        if sb.s_backup_bgs[i] > last {
            sb.s_backup_bgs[i] = if other == last { 0 } else { last };
        }
    }
    sb
}
