//! Larger file systems: new groups at the end of one that is not mounted.
//!
//! ```text
//!  before | D blocks of descs. | R reserved     | ... | last group, short |
//!  after  | D+d                | R-d            | ... | last group        | new groups ... |
//! ```
//!
//! Descriptors of the new groups take reserved blocks, in group 0 and in each backup. Where those
//! do not suffice, the features of the kernel's online resize do: `resize_inode` goes, `meta_bg`
//! comes, and further descriptors are in the groups that they describe.
//!
//! Promises
//! - No block of a file and no inode moves or changes.
//! - The superblock is written last. Until then it says that the file system is not clean, so a
//!   checker looks at it after a power cut; `e2fsck -f` then gives the old or the new size.
//! - A superblock that says so is no obstacle: the caller has checked.
//!
//! Assumption: the caller has checked the file system and replayed its journal.

use syncline_device::BlockDevice;
use syncline_ondisk::blockmap::DIND_BLOCK;
use syncline_ondisk::bytes::le32;
use syncline_ondisk::group::{BLOCK_UNINIT, INODE_ZEROED};
use syncline_ondisk::superblock::{RESIZE_INO, STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use syncline_ondisk::{
    CompatFeatures, Geometry, GroupDesc, IncompatFeatures, Inode, RoCompatFeatures, Superblock,
    bitmap, checksum,
};

use super::builder::Builder;
use super::options::{Options, invalid};
use super::write::{ORIGIN, zero};
use crate::error::{FsError, Result};

/// Free blocks that a new last group must have beside its tables, as in a new file system.
pub(super) const LAST_GROUP_SPARE: u64 = 50;

/// Grows the file system on `device` to at most `size_bytes`, which the device has. `zeroed` says
/// that the device reads as zeros behind the file system. Returns the bytes of the file system; a
/// last group without room for its tables is left out, so they may be the old ones.
///
/// # Errors
/// Invalid: smaller than it is, or with a log or orphans that wait. Unsupported: its features.
/// Corrupt. Io.
pub fn grow(device: &(impl BlockDevice + ?Sized), size_bytes: u64, zeroed: bool) -> Result<u64> {
    let mut raw = vec![0; SUPERBLOCK_BYTES];
    device.read(SUPERBLOCK_OFFSET, &mut raw, ORIGIN)?;
    let old = Superblock::decode(&raw)?;
    old.verify_checksum(&raw)?;
    check(&old)?;
    let old_geo = Geometry::new(&old, size_bytes)?;
    let sb = grown(&old, &old_geo, size_bytes)?;
    let bytes = sb.s_blocks_count * old_geo.block_size as u64;
    if sb.s_blocks_count == old.s_blocks_count {
        return Ok(bytes);
    }
    let geo = Geometry::new(&sb, size_bytes)?;
    let options = Options { zeroed, discard: false, ..Options::default() };
    let mut builder = Builder::empty(&options, sb, geo, raw);
    builder.load(device, &old, &old_geo)?;
    builder.add_groups(&old_geo)?;
    if old.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
        builder.change_resize_inode(device)?;
    }
    // Behind the end nothing belongs to the old file system.
    let block_bytes = old_geo.block_size as u64;
    for (block, count) in std::mem::take(&mut builder.zeros) {
        zero(device, block * block_bytes, count * block_bytes)?;
    }
    let unclean = Superblock { s_state: old.s_state & !STATE_VALID, ..old };
    let mut start = builder.raw.clone();
    unclean.encode_into(&mut start)?;
    device.write(SUPERBLOCK_OFFSET, &start, ORIGIN)?;
    device.flush(ORIGIN)?;
    builder.write_all(device)?;
    Ok(bytes)
}

/// Refuses what cannot be grown.
fn check(sb: &Superblock) -> Result<()> {
    sb.check_features()?;
    if sb.s_feature_incompat.contains(IncompatFeatures::MMP) {
        return Err(FsError::Unsupported("growing with mmp".into()));
    }
    if sb.s_feature_ro_compat.contains(RoCompatFeatures::BIGALLOC) {
        return Err(FsError::Unsupported("growing with bigalloc".into()));
    }
    check_clean(sb)
}

pub(super) fn check_clean(sb: &Superblock) -> Result<()> {
    let unclean = sb.needs_recovery()
        || sb.s_last_orphan != 0
        || sb.s_feature_ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT);
    if unclean {
        return invalid("a log or orphans wait; run `syncline recover` on it first".into());
    }
    Ok(())
}

/// The superblock of the larger file system.
fn grown(old: &Superblock, geo: &Geometry, size_bytes: u64) -> Result<Superblock> {
    let mut sb = old.clone();
    let mut blocks = size_bytes / geo.block_size as u64;
    if !sb.is_64bit() {
        blocks = blocks.min(u32::MAX.into());
    }
    if blocks < old.s_blocks_count {
        return invalid("the new size is below that of the file system; raise it".into());
    }
    let (first, per_group) = (u64::from(geo.first_data_block), u64::from(geo.blocks_per_group));
    let rest = (blocks - first) % per_group;
    let whole = (blocks - rest).max(old.s_blocks_count);
    let last = (blocks - first).div_ceil(per_group);
    set_groups(&mut sb, geo, blocks, last)?;
    let new_last = last > u64::from(geo.group_count);
    let base =
        u64::from(Geometry::new(&sb, size_bytes)?.group_base_meta_blocks(&sb, last as u32 - 1));
    if rest > 0 && new_last && rest < base + 2 + u64::from(geo.itable_blocks) + LAST_GROUP_SPARE {
        sb = old.clone();
        set_groups(&mut sb, geo, whole, (whole - first).div_ceil(per_group))?;
    }
    Ok(sb)
}

/// Sets the counts that follow from the number of blocks, and where descriptors are.
fn set_groups(sb: &mut Superblock, geo: &Geometry, blocks: u64, groups: u64) -> Result<()> {
    let inodes = groups * u64::from(geo.inodes_per_group);
    let Ok(inodes) = u32::try_from(inodes) else {
        return invalid("the file system would have 2^32 inodes or more; choose less".into());
    };
    let percent = sb.s_r_blocks_count as f64 / sb.s_blocks_count as f64;
    sb.s_r_blocks_count = (percent * blocks as f64) as u64;
    (sb.s_blocks_count, sb.s_inodes_count) = (blocks, inodes);
    let descs = groups.div_ceil(geo.desc_per_block.into()) as u32;
    let more = descs - geo.gdt_blocks;
    if sb.s_feature_incompat.contains(IncompatFeatures::META_BG) || more == 0 {
        return Ok(());
    }
    let reserved = u32::from(sb.s_reserved_gdt_blocks);
    sb.s_reserved_gdt_blocks = reserved.saturating_sub(more) as u16;
    if more > reserved {
        sb.s_feature_compat.remove(CompatFeatures::RESIZE_INODE);
        sb.s_feature_incompat.insert(IncompatFeatures::META_BG);
        sb.s_first_meta_bg = geo.gdt_blocks + reserved;
    }
    Ok(())
}

pub(super) fn corrupt<T>(what: String) -> Result<T> {
    Err(FsError::Corrupt { inode: None, block: None, offset: None, what })
}

pub(super) fn block(
    device: &(impl BlockDevice + ?Sized),
    geo: &Geometry,
    at: u64,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; geo.block_size];
    device.read(at * geo.block_size as u64, &mut bytes, ORIGIN)?;
    Ok(bytes)
}

impl Builder {
    /// Descriptors and used blocks of the old groups.
    pub(super) fn load(
        &mut self,
        device: &(impl BlockDevice + ?Sized),
        old: &Superblock,
        geo: &Geometry,
    ) -> Result<()> {
        self.old_groups = geo.group_count;
        let mut table = Vec::new();
        for group in 0..geo.group_count {
            let (nr, byte) = geo.desc_slot(group);
            if byte == 0 {
                table = block(device, geo, geo.desc_block(old, nr))?;
            }
            let bytes = &table[byte..byte + geo.desc_size];
            let desc = GroupDesc::decode(bytes)?;
            if self.csum.is_on() && desc.bg_checksum != self.csum.of_desc(group, bytes) {
                return corrupt(format!("the descriptor of group {group} has a wrong checksum"));
            }
            desc.validate(group, geo)?;
            self.used.insert(desc.bg_block_bitmap, 1);
            self.used.insert(desc.bg_inode_bitmap, 1);
            self.used.insert(desc.bg_inode_table, geo.itable_blocks.into());
            let first = geo.group_first_block(group);
            if self.csum.is_on() && desc.bg_flags & BLOCK_UNINIT != 0 {
                let base = geo.group_base_meta_blocks(old, group);
                if base > 0 {
                    self.used.insert(first, base.into());
                }
            } else {
                let map = block(device, geo, desc.bg_block_bitmap)?;
                self.load_bitmap(first, geo.group_blocks(group), &map);
            }
            self.groups.push(desc);
        }
        self.check_counts(geo)
    }

    /// The counts of the groups agree with their bitmaps. Those of the superblock may lag behind.
    fn check_counts(&mut self, geo: &Geometry) -> Result<()> {
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for (group, desc) in (0_u32..).zip(&self.groups) {
            let first = geo.group_first_block(group);
            let end = first + u64::from(geo.group_blocks(group));
            let used: u64 = self.used.within(first, end).map(|(from, to)| to - from).sum();
            let free = u64::from(desc.bg_free_blocks_count);
            if used + free != end - first {
                return corrupt(format!("group {group} has {used} used and {free} free blocks"));
            }
            free_blocks += free;
            free_inodes += u64::from(desc.bg_free_inodes_count);
        }
        let more = u64::from(self.sb.s_inodes_count - geo.inodes_count);
        self.sb.s_free_blocks_count = free_blocks;
        // Not more than there are inodes, whose number has 32 bits.
        self.sb.s_free_inodes_count = (free_inodes + more) as u32;
        Ok(())
    }

    fn load_bitmap(&mut self, first: u64, count: u32, map: &[u8]) {
        let mut at = 0;
        while let Some(start) = bitmap::find_set(map, at, count) {
            at = bitmap::find_zero(map, start, count).unwrap_or(count);
            self.used.insert(first + u64::from(start), u64::from(at - start));
        }
    }

    /// Fills up the last group, and adds those behind it.
    fn add_groups(&mut self, old: &Geometry) -> Result<()> {
        let last = old.group_count - 1;
        let more = self.geo.group_blocks(last) - old.group_blocks(last);
        self.groups[last as usize].bg_free_blocks_count += more;
        self.sb.s_free_blocks_count += u64::from(more);
        self.changed.insert(last);
        for group in old.group_count..self.geo.group_count {
            self.push_group(group, 0)?;
        }
        for group in old.group_count..self.geo.group_count {
            self.allocate_group(group)?;
        }
        let (old_end, zeroed) = (old.blocks_count, self.options.zeroed);
        let table = u64::from(self.geo.itable_blocks);
        for group in old.group_count..self.geo.group_count {
            let desc = &mut self.groups[group as usize];
            if zeroed && desc.bg_inode_table >= old_end {
                desc.bg_flags |= INODE_ZEROED;
            } else if !self.csum.is_on() {
                self.zeros.push((desc.bg_inode_table, table));
            }
            if self.sb.s_overhead_clusters > 0 {
                let base = self.geo.group_base_meta_blocks(&self.sb, group);
                let more = base + 2 + self.geo.itable_blocks;
                self.sb.s_overhead_clusters = self.sb.s_overhead_clusters.saturating_add(more);
            }
        }
        Ok(())
    }

    /// The resize inode owns what is still reserved. Without the feature it is empty.
    pub(super) fn change_resize_inode(
        &mut self,
        device: &(impl BlockDevice + ?Sized),
    ) -> Result<()> {
        let (at, byte) = self.inode_place(RESIZE_INO);
        let mut bytes = block(device, &self.geo, at)?;
        let place = byte..byte + self.geo.inode_size;
        let mut inode = Inode::decode(&bytes[place.clone()])?;
        let top = u64::from(le32(&inode.i_block, 4 * DIND_BLOCK as usize));
        if !self.geo.is_valid_range(top, 1) {
            return corrupt(format!("the resize inode has its map at block {top}"));
        }
        if self.sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE) {
            let count = self.map_reserved(top);
            inode.i_blocks = self.sectors(count);
        } else {
            inode = Inode::new(0, 0);
            bytes[place.clone()].fill(0);
            self.give_back(top);
        }
        let seed = checksum::inode_seed(self.sb.csum_seed(), RESIZE_INO, inode.i_generation);
        let seed = self.geo.metadata_csum.then_some(seed);
        inode.encode_into(&mut bytes[place], seed)?;
        self.blocks.insert(at, bytes);
        Ok(())
    }

    fn give_back(&mut self, block: u64) {
        let group = self.group_of(block);
        self.used.remove(block, 1);
        self.groups[group as usize].bg_free_blocks_count += 1;
        self.sb.s_free_blocks_count += 1;
        self.changed.insert(group);
    }
}
