//! The groups of a new file system: how many, the inodes of each, the descriptors.

use syncline_ondisk::{CompatFeatures, IncompatFeatures, Superblock};

use super::geometry::{FIRST_INO, too_small};
use super::options::{Options, invalid};
use crate::error::Result;

/// Most blocks of a group, where a bitmap has room for more.
const GROUP_MAX: u32 = (1 << 16) - 8;
/// Most groups of a file system, which take memory while it is made: 2 PiB in blocks of 4 KiB.
const GROUPS_MAX: u32 = 1 << 24;
/// Free blocks that a last group must have beside its tables.
pub(super) const LAST_GROUP_SPARE: Option<u64> = Some(50);

fn too_many_inodes<T>() -> Result<T> {
    invalid("too many inodes for the groups; lower -N or raise -i".into())
}

/// Groups, inodes of each, descriptors and what is reserved for more of them.
pub(super) fn set_groups(
    options: &Options,
    sb: &mut Superblock,
    (wanted, last_group): (u64, Option<u64>),
    block_bytes: u64,
) -> Result<()> {
    let bits = (8 * block_bytes) as u32;
    let asked_blocks = sb.s_blocks_count;
    let asked_reserved = sb.s_r_blocks_count;
    if asked_blocks <= sb.s_first_data_block.into() {
        return too_small();
    }
    if asked_reserved >= asked_blocks {
        return too_small();
    }
    sb.s_blocks_per_group = options.blocks_per_group.unwrap_or(bits).min(GROUP_MAX);
    let inode_size = u32::from(sb.s_inode_size);
    if inode_size >= 160 {
        (sb.s_min_extra_isize, sb.s_want_extra_isize) = (32, 32);
    }
    loop {
        let first = u64::from(sb.s_first_data_block);
        let per_group = u64::from(sb.s_blocks_per_group);
        let groups = (sb.s_blocks_count - first).div_ceil(per_group);
        if groups == 0 {
            return too_small();
        }
        let Some(group_count) = u32::try_from(groups).ok().filter(|n| *n <= GROUPS_MAX) else {
            return invalid(format!("{groups} groups are too many; raise -b or -g"));
        };
        let Some(per) = inodes_per_group(sb, wanted, group_count, bits) else {
            if sb.s_blocks_per_group < 256 {
                return too_many_inodes();
            }
            sb.s_blocks_per_group -= 8;
            sb.s_blocks_count = asked_blocks;
            continue;
        };
        sb.s_inodes_per_group = per;
        sb.s_inodes_count = per * group_count;
        sb.s_free_inodes_count = sb.s_inodes_count;
        let table = u64::from(per * inode_size).div_ceil(block_bytes);
        let descs = u64::from(group_count).div_ceil(block_bytes / desc_bytes(sb));
        set_reserved_descriptors(options, sb, descs, block_bytes)?;
        let reserved = u64::from(sb.s_reserved_gdt_blocks);
        let meta_bg = sb.s_feature_incompat.contains(IncompatFeatures::META_BG);
        if 3 + table + reserved + if meta_bg { 1 } else { descs } > per_group {
            return too_many_inodes();
        }
        let last_has_backup = if sb.s_feature_compat.contains(CompatFeatures::SPARSE_SUPER2) {
            options.backup_superblocks >= if group_count == 2 { 1 } else { 2 }
        } else {
            sb.group_has_super(group_count - 1)
        };
        let tables = if last_group.is_some() { 2 + table } else { 0 };
        let overhead = tables + if last_has_backup { 1 + descs + reserved } else { 0 };
        let rest = (sb.s_blocks_count - first) % per_group;
        if group_count == 1 && rest > 0 && rest < overhead {
            return too_small();
        }
        if rest == 0 || rest >= overhead + last_group.unwrap_or(1) {
            set_backups(options, sb, group_count);
            sb.s_clusters_per_group = sb.s_blocks_per_group;
            return Ok(());
        }
        sb.s_blocks_count -= rest;
        if sb.s_blocks_count <= first {
            return too_small();
        }
        let percent = 100.0 * asked_reserved as f64 / asked_blocks as f64;
        sb.s_r_blocks_count = (percent * sb.s_blocks_count as f64 / 100.0) as u64;
    }
}

fn desc_bytes(sb: &Superblock) -> u64 {
    if sb.is_64bit() { sb.s_desc_size.into() } else { 32 }
}

/// Inodes of a group for `wanted` in all; one for each 4 KiB if it is 0. `None` if a bitmap has not
/// that many bits.
fn inodes_per_group(sb: &Superblock, wanted: u64, groups: u32, bits: u32) -> Option<u32> {
    let default = sb.s_blocks_count / (4096 * 8 / u64::from(bits)).max(1);
    let wanted = if wanted == 0 { default } else { wanted }.max(u64::from(FIRST_INO) + 1);
    let per = whole_tables(sb, wanted, groups, bits)?;
    if per * groups < FIRST_INO {
        // The multiple of 8 is too few for lost+found.
        return whole_tables(sb, 16, groups, bits);
    }
    Some(per)
}

/// Inodes of a group: enough for `wanted`, whole table blocks, a multiple of 8.
fn whole_tables(sb: &Superblock, wanted: u64, groups: u32, bits: u32) -> Option<u32> {
    let inode_size = u32::from(sb.s_inode_size);
    let block_bytes = bits / 8;
    let most = (1 << 16) - block_bytes / inode_size;
    let mut per = u32::try_from(wanted.div_ceil(u64::from(groups))).ok()?;
    if per > bits {
        return None;
    }
    per = per.min(most);
    loop {
        let table = (per * inode_size).div_ceil(block_bytes);
        let whole = (table * block_bytes / inode_size).max(8) & !7;
        if u64::from(whole) * u64::from(groups) <= u32::MAX.into() {
            return Some(whole);
        }
        per -= 1;
    }
}

/// Blocks for the descriptors of a larger file system: 1024 times the blocks, or `-E resize`.
fn set_reserved_descriptors(
    options: &Options,
    sb: &mut Superblock,
    descs: u64,
    block_bytes: u64,
) -> Result<()> {
    let most = block_bytes / 4;
    let per_group = u64::from(sb.s_blocks_per_group);
    let per_block = block_bytes / desc_bytes(sb);
    let mut reserved = 0;
    if sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
        let blocks = sb.s_blocks_count.saturating_mul(1024).min(u32::MAX.into());
        let all = (blocks - u64::from(sb.s_first_data_block)).div_ceil(per_group);
        reserved = all.div_ceil(per_block).checked_sub(descs).map_or(most, |n| n.min(most));
        let asked = asked_descriptors(options, sb)?;
        if asked > 0 {
            reserved = asked.min(most);
        }
    }
    if reserved + descs > per_group * 3 / 4 {
        if asked_descriptors(options, sb)? > 0 {
            let text = "the descriptors for -E resize do not fit in a group; lower it or raise -g";
            return invalid(text.into());
        }
        sb.s_feature_incompat.insert(IncompatFeatures::META_BG);
        sb.s_feature_compat.remove(CompatFeatures::RESIZE_INODE);
        reserved = 0;
    }
    sb.s_reserved_gdt_blocks = reserved as u16;
    Ok(())
}

/// Descriptor blocks that `-E resize` asks for beyond those of the device.
pub(super) fn asked_descriptors(options: &Options, sb: &Superblock) -> Result<u64> {
    let block_bytes = 1024 << sb.s_log_block_size;
    let Some(limit) = options.resize.map(|limit| limit.blocks(block_bytes)) else { return Ok(0) };
    if limit <= sb.s_blocks_count {
        return invalid("-E resize is not above the size of the device; raise it".into());
    }
    let per_group = options.blocks_per_group.map_or(8 * block_bytes, u64::from);
    let per_block = block_bytes / desc_bytes(sb);
    let descs = |blocks: u64| blocks.div_ceil(per_group).div_ceil(per_block);
    Ok(descs(limit) - descs(sb.s_blocks_count))
}

/// The groups with backups under `sparse_super2`: the second and the last.
fn set_backups(options: &Options, sb: &mut Superblock, groups: u32) {
    if !sb.s_feature_compat.contains(CompatFeatures::SPARSE_SUPER2) {
        return;
    }
    let last = groups - 1;
    sb.s_backup_bgs = match options.backup_superblocks {
        0 => [0, 0],
        1 => [0, last.min(1)],
        _ if last <= 1 => [0, last],
        _ => [1, last],
    };
}
