//! The new size: superblock, descriptors, bitmaps, backups, the resize inode.

use std::collections::BTreeMap;

use syncline_device::BlockDevice;
use syncline_ondisk::group::BLOCK_UNINIT;
use syncline_ondisk::{CompatFeatures, Geometry, Superblock};

use super::super::builder::Builder;
use super::Device;
use super::target::Target;
use crate::error::Result;

/// Ends the old size. Nothing is in use behind the new one.
pub(super) fn cut(
    device: Device<'_>,
    old: &mut Builder,
    target: Target,
    freed: &[u64],
    numbers: &BTreeMap<u32, u32>,
) -> Result<()> {
    let device: &dyn BlockDevice = &**device;
    let mut used = old.used.clone();
    for (from, to) in target.gone(old).within(0, old.geo.blocks_count) {
        used.remove(from, to - from);
    }
    freed.iter().for_each(|block| used.remove(*block, 1));
    let Target { mut sb, geo } = target;
    sb.s_jnl_blocks = old.sb.s_jnl_blocks;
    let named = [
        &mut sb.s_usr_quota_inum,
        &mut sb.s_grp_quota_inum,
        &mut sb.s_prj_quota_inum,
        &mut sb.s_orphan_file_inum,
        &mut sb.s_lpf_ino,
    ];
    for ino in named {
        *ino = numbers.get(ino).copied().unwrap_or(*ino);
    }
    if sb.s_overhead_clusters > 0 {
        let less = overhead(&old.sb, &old.geo).saturating_sub(overhead(&sb, &geo));
        sb.s_overhead_clusters = sb.s_overhead_clusters.saturating_sub(less);
    }
    // What is in the second sector of the superblock is written before the size in the first.
    let Superblock { s_usr_quota_inum, s_grp_quota_inum, s_prj_quota_inum, .. } = sb;
    let Superblock { s_orphan_file_inum, s_lpf_ino, s_overhead_clusters, s_backup_bgs, .. } = sb;
    old.sb = Superblock {
        s_usr_quota_inum,
        s_grp_quota_inum,
        s_prj_quota_inum,
        s_orphan_file_inum,
        s_lpf_ino,
        s_overhead_clusters,
        s_backup_bgs,
        ..old.sb.clone()
    };
    old.write_unclean(device, false)?;
    let mut new = Builder::empty(&old.options, sb, geo, old.raw.clone());
    new.old_groups = new.geo.group_count;
    new.groups = old.groups[..new.geo.group_count as usize].to_vec();
    for (from, to) in used.within(0, new.geo.blocks_count) {
        new.used.insert(from, to - from);
    }
    (new.sb.s_free_blocks_count, new.sb.s_free_inodes_count) = (0, 0);
    for group in 0..new.geo.group_count {
        let first = new.geo.group_first_block(group);
        let base = new.geo.group_base_meta_blocks(&new.sb, group);
        if base > 0 {
            new.used.insert(first, base.into());
        }
        let count = u64::from(new.geo.group_blocks(group));
        let used: u64 = new.used.within(first, first + count).map(|(from, to)| to - from).sum();
        let is_shorter = count < old.geo.group_blocks(group).into();
        let desc = &mut new.groups[group as usize];
        let free = (count - used) as u32;
        if free != desc.bg_free_blocks_count || is_shorter {
            desc.bg_free_blocks_count = free;
            desc.bg_flags &= !BLOCK_UNINIT;
            new.changed.insert(group);
        }
        new.sb.s_free_blocks_count += u64::from(free);
        new.sb.s_free_inodes_count += desc.bg_free_inodes_count;
    }
    if new.sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
        new.change_resize_inode(device)?;
    }
    new.write_unclean(device, false)?;
    new.write_all(device)
}

/// Blocks of the file system's own tables.
fn overhead(sb: &Superblock, geo: &Geometry) -> u32 {
    let base = (0..geo.group_count).map(|group| geo.group_base_meta_blocks(sb, group)).sum::<u32>();
    base + geo.group_count * (2 + geo.itable_blocks)
}
