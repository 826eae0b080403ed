//! The size: layouts that a tree is tried on, from the smallest on.
//!
//! Each size needs a number of blocks, which does not fall as the size grows: tables, backups and
//! journal. So the first size that has what it needs is the smallest.

use syncline_device::BlockDevice;
use syncline_ondisk::inode::{EXTRA_ISIZE_FULL, GOOD_OLD_INODE_SIZE};
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, Timestamp};

use super::super::builder::Builder;
use super::super::features::Features;
use super::super::geometry::{FIRST_INO, Sizes};
use super::super::options::{Amount, Options, invalid};
use super::{Build, Size, Spare};
use crate::error::{FsError, Result};

/// A size that is not given is at most this, unless the descriptors for it would be too many. Those
/// of the smallest size could take blocks that a small tree does not fill.
const SIZE_MAX: u64 = 512 << 30;
const MINIMUM_MAX: u64 = 64 << 30;
/// Blocks for descriptors of a size that is not known.
const DESCS_MAX: u64 = 64;
/// Sizes are multiples of this, and of a block.
const UNIT_BYTES: u64 = 4096;
/// There is an inode for so many bytes of a size that is not the smallest.
const BYTES_PER_INODE: u64 = 16384;
/// A journal of the smallest size goes into gaps, unless there are more.
const GAPS_MAX: usize = 1000;

pub(super) fn time(options: &Options) -> Timestamp {
    // The latest time that an inode holds is far below 2^63.
    Timestamp { seconds: options.time_s.min(1 << 40) as i64, nanoseconds: 0 }
}

/// Bytes for attributes in an inode.
pub(super) fn xattr_bytes(inode_size: usize) -> usize {
    inode_size.saturating_sub(GOOD_OLD_INODE_SIZE + usize::from(EXTRA_ISIZE_FULL))
}

/// The layout that contents keep clear of, whatever the size is in the end.
pub(super) fn nominal(options: &Options, size: Size) -> Result<Sizes> {
    if let Size::Bytes(bytes) = size {
        return Sizes::new(options, bytes);
    }
    let Some(block_bytes) = options.block_bytes else {
        return invalid("a tree needs a block size; add -b 4096".into());
    };
    let block_bytes = u64::from(block_bytes);
    // Groups of 8 blocks for each byte of a bitmap, descriptors of 64 bytes.
    let of_desc_block = block_bytes * (8 * block_bytes) * (block_bytes / 64).max(1);
    let most = if size == Size::Minimum { MINIMUM_MAX } else { SIZE_MAX };
    let bytes = most.min(of_desc_block.saturating_mul(DESCS_MAX));
    let options = Options { inodes: None, ..without_reserve(options) };
    Sizes::new(&options, bytes)
}

fn without_reserve(options: &Options) -> Options {
    let features = format!("{},^resize_inode", options.features);
    Options { features, resize: None, ..options.clone() }
}

/// Blocks or inodes that a layout lacks.
pub(super) enum Lack {
    /// At least so many blocks.
    Blocks(u64),
    /// It cannot be made at all.
    Failed(FsError),
}

impl From<FsError> for Lack {
    fn from(err: FsError) -> Self {
        match err {
            FsError::Invalid(_) => Self::Blocks(1),
            other => Self::Failed(other),
        }
    }
}

impl<D: BlockDevice> Build<D> {
    /// Runs of blocks that hold contents.
    fn filled(&self) -> Vec<(u64, u64)> {
        let mut filled = Vec::new();
        for group in 0..self.geo.group_count {
            let first = self.geo.group_first_block(group);
            let end = first + u64::from(self.geo.group_blocks(group));
            let first = first + u64::from(self.geo.group_base_meta_blocks(&self.sb, group));
            filled.extend(self.contents.used.within(first, end));
        }
        filled
    }

    /// The layout of the size that was asked for.
    pub(super) fn fit(&self, last_ino: u32) -> Result<Builder> {
        let filled = self.filled();
        let blocks_of = |bytes: u64| bytes.div_ceil(self.geo.block_size as u64);
        // The orphan file comes behind the tree.
        let orphan_file = self.sb.s_feature_compat.contains(CompatFeatures::ORPHAN_FILE);
        let needed = u64::from(last_ino) + u64::from(orphan_file);
        let asked = self.options.inodes.unwrap_or(0).max(needed);
        if let Size::Bytes(bytes) = self.size {
            let blocks = bytes / self.geo.block_size as u64;
            let by_size = match self.options.inodes {
                Some(_) => 0,
                None => self.inodes_by_size(blocks),
            };
            for inodes in [(asked.max(needed + needed / 64), by_size), (asked, 0)] {
                match self.attempt(blocks, inodes, needed, &filled) {
                    Ok(builder) => return Ok(builder),
                    Err(Lack::Blocks(_)) => {}
                    Err(Lack::Failed(err)) => return Err(err),
                }
            }
            return Err(FsError::NoSpace);
        }
        let contents = self.filled_blocks(&filled);
        let spare = match self.size {
            Size::Spare(Spare::Bytes(bytes)) => blocks_of(bytes),
            Size::Spare(Spare::Percent(percent)) => {
                (contents as f64 * percent.max(0.0) / 100.0).ceil() as u64
            }
            _ => 0,
        };
        let unit = (UNIT_BYTES / self.geo.block_size as u64).max(1);
        let mut blocks = filled.last().map_or(unit, |(_, end)| *end);
        loop {
            blocks = blocks.next_multiple_of(unit);
            if blocks > self.geo.blocks_count {
                return Err(FsError::NoSpace);
            }
            let (inodes, by_size) = match self.size {
                Size::Minimum => (asked, 0),
                _ => (asked.max(needed + needed / 64 + 64), self.inodes_by_size(blocks)),
            };
            let lacks = match self.attempt(blocks, (inodes, by_size), needed, &filled) {
                Ok(builder) => {
                    let sb = &builder.sb;
                    let free = sb.s_free_blocks_count.saturating_sub(sb.s_r_blocks_count);
                    match spare.saturating_sub(free) {
                        0 => return Ok(builder),
                        lacks => lacks,
                    }
                }
                Err(Lack::Blocks(lacks)) => lacks,
                Err(Lack::Failed(err)) => return Err(err),
            };
            blocks += lacks.max(1);
        }
    }

    /// Inodes of so many blocks where nobody asked for more.
    fn inodes_by_size(&self, blocks: u64) -> u64 {
        let block_size = self.geo.block_size as u64;
        blocks * block_size / BYTES_PER_INODE.max(block_size)
    }

    fn filled_blocks(&self, filled: &[(u64, u64)]) -> u64 {
        filled.iter().map(|(start, end)| end - start).sum()
    }

    /// Lays out a file system of so many blocks around the contents. `inodes`: as many as there
    /// must be, and as many as there are if the groups take them.
    fn attempt(
        &self,
        blocks: u64,
        (inodes, by_size): (u64, u64),
        needed: u64,
        filled: &[(u64, u64)],
    ) -> std::result::Result<Builder, Lack> {
        let block_size = self.geo.block_size as u64;
        // A bitmap of inodes is one block, and a count has 16 bits.
        let of_group =
            (8 * block_size).min((1 << 16) - block_size / self.geo.inode_size as u64) & !7;
        let groups = inodes.div_ceil(of_group);
        let least = u64::from(self.geo.first_data_block)
            + (groups - 1) * u64::from(self.geo.blocks_per_group);
        if blocks <= least {
            return Err(Lack::Blocks(least + 1 - blocks));
        }
        let in_groups = (blocks - u64::from(self.geo.first_data_block))
            .div_ceil(self.geo.blocks_per_group.into())
            * of_group;
        let mut options = without_reserve(&self.options);
        options.inodes = Some(inodes.max(by_size.min(in_groups)));
        options.packed_meta_blocks = true;
        if self.sb.s_feature_incompat.contains(IncompatFeatures::META_BG) {
            options.features += ",meta_bg";
        }
        let minimum = self.size == Size::Minimum;
        if minimum {
            options.reserved_percent = 0.0;
        }
        let end = filled.last().map_or(0, |(_, end)| *end);
        if !minimum || filled.len() > GAPS_MAX {
            options.journal_location = Some(Amount::Blocks(end));
        }
        let mut sizes = Sizes::with_last_group(&options, blocks * block_size, None)?;
        if sizes.sb.s_blocks_per_group != self.geo.blocks_per_group
            || u64::from(sizes.sb.s_inodes_count) < needed
        {
            return Err(Lack::Blocks(1));
        }
        self.reserve_descriptors(&mut sizes)?;
        let needs = self.needs(&sizes, filled);
        if needs > sizes.sb.s_blocks_count {
            return Err(Lack::Blocks(needs.saturating_sub(blocks).max(1)));
        }
        let builder = Builder::new(&options, &sizes)?;
        Ok(self.laid_out(builder, &sizes, filled)?)
    }

    /// Keeps the blocks behind the descriptors that no contents took for more of them.
    fn reserve_descriptors(&self, sizes: &mut Sizes) -> Result<()> {
        let all = self.geo.gdt_blocks + self.geo.reserved_gdt_blocks;
        let wanted = self.size != Size::Minimum
            && Features::of(&self.options)?.compat.contains(CompatFeatures::RESIZE_INODE)
            && sizes.geo.first_meta_bg == sizes.geo.gdt_blocks
            && sizes.sb.s_blocks_count <= u32::MAX.into();
        let most = (self.geo.block_size / 4) as u32;
        let reserved = all.saturating_sub(sizes.geo.gdt_blocks).min(most);
        if wanted && reserved > 0 {
            sizes.sb.s_reserved_gdt_blocks = reserved as u16;
            sizes.sb.s_feature_compat.insert(CompatFeatures::RESIZE_INODE);
            let bytes = sizes.sb.s_blocks_count * self.geo.block_size as u64;
            sizes.geo = Geometry::new(&sizes.sb, bytes)
                .map_err(|_| FsError::Invalid("the descriptors do not fit".into()))?;
        }
        Ok(())
    }

    /// Blocks that a layout needs at least.
    fn needs(&self, sizes: &Sizes, filled: &[(u64, u64)]) -> u64 {
        let geo = &sizes.geo;
        let mut base = 0;
        for group in 0..geo.group_count {
            base += u64::from(geo.group_base_meta_blocks(&sizes.sb, group));
        }
        let resize = u64::from(sizes.sb.s_feature_compat.contains(CompatFeatures::RESIZE_INODE));
        let tables = u64::from(geo.group_count) * (2 + u64::from(geo.itable_blocks));
        let journal = u64::from(sizes.journal_blocks) + u64::from(sizes.fast_commit_blocks);
        let sum = base + tables + resize + journal + u64::from(geo.first_data_block);
        sum + self.filled_blocks(filled)
    }

    fn laid_out(
        &self,
        mut builder: Builder,
        sizes: &Sizes,
        filled: &[(u64, u64)],
    ) -> Result<Builder> {
        let end = filled.last().map_or(0, |(_, end)| *end);
        if end > builder.geo.blocks_count {
            return invalid("the contents end behind the file system".into());
        }
        for (start, end) in filled {
            builder.take(*start, end - start);
        }
        builder.allocate_tables()?;
        let metadata = builder.used.count() - self.filled_blocks(filled);
        builder.sb.s_overhead_clusters = metadata as u32;
        let zeroed = std::mem::replace(&mut builder.options.zeroed, true);
        builder.init_inode_tables();
        builder.options.zeroed = zeroed;
        if !zeroed {
            let table = u64::from(builder.geo.itable_blocks);
            let tables = builder.groups.iter().map(|desc| (desc.bg_inode_table, table));
            builder.zeros = tables.collect();
        }
        let dirs = self.live().filter(|(_, node)| node.file_type() == super::S_IFDIR);
        let dirs: Vec<u32> = dirs.map(|(_, node)| node.ino).collect();
        let last_ino = self.live().map(|(_, node)| node.ino).max().unwrap_or(FIRST_INO);
        builder.take_inodes(FIRST_INO, last_ino, &dirs);
        builder.take_inode(ROOT_INO, false);
        builder.make_system_files(sizes)?;
        if self.live().any(|(_, node)| node.is_file() && node.size >= 1 << 31) {
            builder.sb.s_feature_ro_compat.insert(RoCompatFeatures::LARGE_FILE);
        }
        if !self.sets.sets.is_empty() {
            builder.sb.s_feature_compat.insert(CompatFeatures::EXT_ATTR);
        }
        Ok(builder)
    }
}
