//! The geometry of a superblock that a mount may refuse, and the fields that are wrong in it.

use syncline_ondisk::superblock::{GOOD_OLD_FIRST_INO, Superblock};
use syncline_ondisk::{Geometry, IncompatFeatures, RoCompatFeatures};

/// Blocks of the largest group.
const GROUP_BLOCKS_MAX: u32 = (1 << 16) - 8;

/// Why there is no geometry.
type Refused<T> = std::result::Result<T, String>;

/// Sizes of blocks, clusters, inodes and descriptors.
struct Sizes {
    block: usize,
    cluster_bits: u32,
    inode: usize,
    desc: usize,
}

fn sizes(sb: &Superblock, strict: bool) -> Refused<Sizes> {
    let bits = sb.s_log_block_size;
    if bits > 6 || sb.s_log_cluster_size > 19 || sb.s_log_cluster_size < bits {
        return Err(format!("a block size of 2^{bits} KiB is out of range"));
    }
    let cluster_bits = sb.s_log_cluster_size - bits;
    let bigalloc = sb.s_feature_ro_compat.contains(RoCompatFeatures::BIGALLOC);
    if !bigalloc && cluster_bits != 0 {
        return Err("the cluster size differs from the block size without bigalloc".into());
    }
    let block = 1024usize << bits;
    let inode = sb.inode_size();
    if !(128..=block).contains(&inode) || !inode.is_power_of_two() {
        return Err(format!("inode size {inode} is not a power of two in range"));
    }
    let desc = if sb.is_64bit() { usize::from(sb.s_desc_size) } else { 32 };
    let fits = !sb.is_64bit() || (64..=1024).contains(&desc);
    if !(32..=block).contains(&desc) || !desc.is_power_of_two() || strict && !fits {
        return Err(format!("descriptor size {desc} is not a power of two in range"));
    }
    Ok(Sizes { block, cluster_bits, inode, desc })
}

/// Number of groups, and of the inodes of each: if the superblock's cannot be, what the number of
/// all inodes gives.
fn groups(sb: &Superblock, sizes: &Sizes, strict: bool) -> Refused<(u32, u32)> {
    let (bpg, bits) = (sb.s_blocks_per_group, 8 * sizes.block as u32);
    let most = u64::from(GROUP_BLOCKS_MAX.max(bits)) << sizes.cluster_bits;
    let of_clusters = u64::from(sb.s_clusters_per_group) << sizes.cluster_bits;
    if bpg < 8 || u64::from(bpg) > most || u64::from(bpg) != of_clusters {
        return Err(format!("{bpg} blocks per group are out of range"));
    }
    let first = u64::from(sb.s_first_data_block);
    let Some(in_groups) = sb.s_blocks_count.checked_sub(first).filter(|n| *n > 0) else {
        return Err(format!("{} blocks leave none after the first", sb.s_blocks_count));
    };
    let groups = in_groups.div_ceil(bpg.into());
    let Some(count) = u32::try_from(groups).ok().filter(|n| *n < u32::MAX - 1024) else {
        return Err(format!("{groups} groups are too many"));
    };
    let can_be = |ipg: &u32| (1..=bits).contains(ipg) && ipg % 8 == 0;
    let other = Some(sb.s_inodes_count / count).filter(can_be);
    let other = other.filter(|ipg| Some(sb.s_inodes_count) == count.checked_mul(*ipg));
    let own = sb.s_inodes_per_group;
    let ipg = if can_be(&own) { own } else { other.unwrap_or(own) };
    if ipg == 0 || ipg > bits {
        return Err(format!("{ipg} inodes per group are out of range"));
    }
    let inodes = count.checked_mul(ipg);
    if inodes.is_none() || strict && (ipg != own || inodes != Some(sb.s_inodes_count)) {
        return Err(format!("{} inodes are not {count} groups of {own}", sb.s_inodes_count));
    }
    Ok((count, ipg))
}

/// The geometry, and log2 of the blocks of a cluster. What leaves no geometry at all is refused,
/// and if it is strict, what e2fsck looks for a backup for.
pub(super) fn geometry(sb: &Superblock, strict: bool) -> Refused<(Geometry, u32)> {
    let sizes = sizes(sb, strict)?;
    let (group_count, inodes_per_group) = groups(sb, &sizes, strict)?;
    let inodes_per_block = (sizes.block / sizes.inode) as u32;
    let desc_per_block = (sizes.block / sizes.desc) as u32;
    let gdt_blocks = group_count.div_ceil(desc_per_block);
    let meta_bg = sb.s_feature_incompat.contains(IncompatFeatures::META_BG);
    if strict && meta_bg && sb.s_first_meta_bg > gdt_blocks {
        return Err(format!("first meta block group {} is past the table", sb.s_first_meta_bg));
    }
    let flex_bg = sb.s_feature_incompat.contains(IncompatFeatures::FLEX_BG);
    if sb.s_log_groups_per_flex > 31 {
        return Err(format!("flexible group size 2^{} is too large", sb.s_log_groups_per_flex));
    }
    let geo = Geometry {
        block_size: sizes.block,
        block_bits: 10 + sb.s_log_block_size,
        blocks_count: sb.s_blocks_count,
        first_data_block: sb.s_first_data_block,
        cluster_bits: sizes.cluster_bits,
        blocks_per_group: sb.s_blocks_per_group,
        inodes_per_group,
        inodes_count: group_count * inodes_per_group,
        inode_size: sizes.inode,
        inodes_per_block,
        itable_blocks: inodes_per_group.div_ceil(inodes_per_block),
        desc_size: sizes.desc,
        desc_per_block,
        group_count,
        gdt_blocks,
        reserved_gdt_blocks: sb.s_reserved_gdt_blocks.into(),
        first_meta_bg: if meta_bg { sb.s_first_meta_bg.min(gdt_blocks) } else { gdt_blocks },
        groups_per_flex: if flex_bg { 1 << sb.s_log_groups_per_flex } else { 1 },
        flex_bg,
        metadata_csum: sb.has_metadata_csum(),
        first_ino: sb.first_ino(),
    };
    Ok((geo, sizes.cluster_bits))
}

/// The block behind that of the boot sector, or the one with both.
pub(super) fn first_data_block(sb: &Superblock, geo: &Geometry) -> u32 {
    u32::from(geo.block_size == 1024 && sb.s_log_cluster_size == sb.s_log_block_size)
}

pub(super) fn desc_size_fits(sb: &Superblock) -> bool {
    let size = sb.s_desc_size;
    size == 0 || size.is_power_of_two() && size <= 1024
}

/// Fields that end the check of e2fsck, or keep the kernel from mounting.
pub(super) fn fields(sb: &Superblock, geo: &Geometry) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut rule = |is_right: bool, what: String| {
        if !is_right {
            wrong.push(what);
        }
    };
    let first = sb.s_first_data_block;
    rule(first == first_data_block(sb, geo), format!("the first data block is {first}"));
    let per_block = (geo.block_size / 4) as u32;
    let reserved = geo.reserved_gdt_blocks;
    rule(reserved <= per_block, format!("{reserved} reserved descriptor blocks are too many"));
    let most = geo.inodes_per_block.saturating_mul(geo.blocks_per_group.saturating_sub(4));
    let ipg = sb.s_inodes_per_group;
    let fits = ipg == geo.inodes_per_group && ipg >= geo.inodes_per_block && ipg <= most;
    rule(fits, format!("{ipg} inodes per group are out of range"));
    let inodes = sb.s_inodes_count;
    let what = format!("{inodes} inodes are not {} groups of {ipg}", geo.group_count);
    rule(inodes == geo.inodes_count, what);
    let kept = sb.s_r_blocks_count;
    rule(kept <= geo.blocks_count / 2, format!("{kept} reserved blocks are too many"));
    let desc = sb.s_desc_size;
    rule(desc_size_fits(sb), format!("descriptor size {desc} is not a power of two in range"));
    let first = geo.first_ino;
    let fits = (GOOD_OLD_FIRST_INO..=geo.inodes_count).contains(&first);
    rule(fits, format!("the first inode number {first} is out of range"));
    wrong
}

/// Fields that contradict each other; e2fsck mends them and counts none of them.
pub(super) fn hints(sb: &Superblock) -> Vec<String> {
    let mut wrong = Vec::new();
    let extra = |size: u16| {
        size == 0 || size >= 4 && usize::from(size) <= sb.inode_size() - 128 && size % 4 == 0
    };
    if sb.inode_size() > 128 {
        for size in [sb.s_min_extra_isize, sb.s_want_extra_isize] {
            if !extra(size) {
                wrong.push(format!("extra inode fields of {size} bytes are out of range"));
            }
        }
    }
    let (incompat, ro_compat) = (sb.s_feature_incompat, sb.s_feature_ro_compat);
    let csum = sb.has_metadata_csum();
    if csum && ro_compat.contains(RoCompatFeatures::GDT_CSUM) {
        wrong.push("both metadata_csum and uninit_bg are set".into());
    }
    if !csum && incompat.contains(IncompatFeatures::CSUM_SEED) {
        wrong.push("metadata_csum_seed is set without metadata_csum".into());
    }
    if sb.is_64bit() && !incompat.contains(IncompatFeatures::EXTENTS) {
        wrong.push("64bit is set without extent".into());
    }
    wrong
}
