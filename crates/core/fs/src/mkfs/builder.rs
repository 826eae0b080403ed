//! The parts of a new file system as they are made: used blocks and inodes, descriptors, contents.

use std::collections::{BTreeMap, BTreeSet};

use syncline_ondisk::group::{BLOCK_UNINIT, GroupCsum, INODE_UNINIT, INODE_ZEROED};
use syncline_ondisk::inode::EXTRA_ISIZE_FULL;
use syncline_ondisk::{Geometry, GroupDesc, Inode, Superblock, Timestamp, checksum};

use super::geometry::{FIRST_INO, Sizes};
use super::options::Options;
use super::space::Used;
use super::traffic::Traffic;
use crate::error::{FsError, Result};

/// A file system in memory: what is not zero, and what has to be zeroed.
#[derive(Clone, Debug)]
pub(super) struct Builder {
    pub(super) options: Options,
    pub(super) sb: Superblock,
    pub(super) raw: Vec<u8>,
    pub(super) geo: Geometry,
    pub(super) csum: GroupCsum,
    pub(super) groups: Vec<GroupDesc>,
    pub(super) used: Used,
    /// Inodes in use.
    pub(super) inodes_used: Used,
    pub(super) inodes: BTreeMap<u32, Inode>,
    /// Blocks of directories, maps, journal and reserved descriptors; what is missing is zero.
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
    /// Ranges that are zero on the device unless it is zeroed already.
    pub(super) zeros: Vec<(u64, u64)>,
    pub(super) traffic: Traffic,
    /// Groups that were there before, whose bitmaps are written only if they change.
    pub(super) old_groups: u32,
    pub(super) changed: BTreeSet<u32>,
}

pub(super) fn full<T>() -> Result<T> {
    Err(FsError::Invalid("the device has no room for its tables; take a larger one".into()))
}

impl Builder {
    /// Nothing yet.
    pub(super) fn empty(options: &Options, sb: Superblock, geo: Geometry, raw: Vec<u8>) -> Self {
        Self {
            options: options.clone(),
            raw,
            csum: GroupCsum::new(&sb),
            groups: Vec::with_capacity(geo.group_count as usize),
            used: Used::new(geo.first_data_block.into(), geo.blocks_count),
            inodes_used: Used::new(1, u64::from(geo.inodes_count) + 1),
            inodes: BTreeMap::new(),
            blocks: BTreeMap::new(),
            zeros: Vec::new(),
            traffic: Traffic::new(geo.block_size as u64),
            old_groups: 0,
            changed: BTreeSet::new(),
            sb,
            geo,
        }
    }

    /// Reserves superblocks and descriptors in all groups.
    pub(super) fn new(options: &Options, sizes: &Sizes) -> Result<Self> {
        let (sb, geo) = (sizes.sb.clone(), sizes.geo.clone());
        let mut new = Self::empty(options, sb, geo, sizes.raw.clone());
        new.sb.s_free_blocks_count = 0;
        let mut reserved_inodes = FIRST_INO;
        for group in 0..new.geo.group_count {
            let here = reserved_inodes.min(new.geo.inodes_per_group);
            reserved_inodes -= here;
            new.push_group(group, here)?;
        }
        Ok(new)
    }

    /// Adds a group without tables, in which some inodes are reserved.
    pub(super) fn push_group(&mut self, group: u32, reserved_inodes: u32) -> Result<()> {
        let mut desc = GroupDesc::default();
        let inodes = self.geo.inodes_per_group;
        if self.csum.is_on() {
            let last = group + 1 == self.geo.group_count;
            desc.bg_flags = INODE_UNINIT | if last { 0 } else { BLOCK_UNINIT };
            desc.bg_itable_unused = inodes - reserved_inodes;
        }
        let base = self.geo.group_base_meta_blocks(&self.sb, group);
        if base > 0 {
            self.used.insert(self.geo.group_first_block(group), base.into());
        }
        desc.bg_free_inodes_count = inodes;
        let own = !self.is_flex() && !self.is_packed();
        let tables = if own { 2 + self.geo.itable_blocks } else { 0 };
        let Some(free) = self.geo.group_blocks(group).checked_sub(base + tables) else {
            return full();
        };
        desc.bg_free_blocks_count = free;
        self.sb.s_free_blocks_count += u64::from(desc.bg_free_blocks_count);
        self.groups.push(desc);
        Ok(())
    }

    /// Groups are in flexible groups.
    pub(super) fn is_flex(&self) -> bool {
        self.geo.groups_per_flex > 1
    }

    /// All tables stand at the start.
    pub(super) fn is_packed(&self) -> bool {
        self.options.packed_meta_blocks && self.geo.flex_bg
    }

    pub(super) fn has_extents(&self) -> bool {
        self.sb.s_feature_incompat.contains(syncline_ondisk::IncompatFeatures::EXTENTS)
    }

    pub(super) fn time(&self) -> Timestamp {
        // The latest time that an inode holds is far below 2^63.
        Timestamp { seconds: self.options.time_s.min(1 << 40) as i64, nanoseconds: 0 }
    }

    pub(super) fn group_of(&self, block: u64) -> u32 {
        self.geo.block_group(block).map_or(0, |(group, _)| group)
    }

    pub(super) fn last_block(&self, group: u32) -> u64 {
        self.geo.group_first_block(group) + u64::from(self.geo.group_blocks(group)) - 1
    }

    /// Takes free blocks: bitmap, counts and flags.
    pub(super) fn take(&mut self, start: u64, count: u64) {
        self.used.insert(start, count);
        self.sb.s_free_blocks_count -= count;
        let (mut at, end) = (start, start + count);
        while at < end {
            let group = self.group_of(at);
            let stop = end.min(self.last_block(group) + 1);
            let desc = &mut self.groups[group as usize];
            desc.bg_free_blocks_count -= (stop - at) as u32;
            desc.bg_flags &= !BLOCK_UNINIT;
            self.changed.insert(group);
            at = stop;
        }
    }

    /// Takes the first free block from `goal` on.
    pub(super) fn take_one(&mut self, goal: u64) -> Result<u64> {
        let Some(block) = self.used.next_free(goal) else { return full() };
        self.take(block, 1);
        Ok(block)
    }

    /// Where the blocks of an inode begin to be looked for: its flexible group.
    pub(super) fn inode_goal(&self, ino: u32) -> u64 {
        let group = (ino - 1) / self.geo.inodes_per_group;
        self.geo.group_first_block(
            group >> self.sb.s_log_groups_per_flex << self.sb.s_log_groups_per_flex,
        )
    }

    /// Takes an inode number.
    pub(super) fn take_inode(&mut self, ino: u32, is_dir: bool) {
        self.inodes_used.insert(ino.into(), 1);
        self.sb.s_free_inodes_count -= 1;
        let per_group = self.geo.inodes_per_group;
        let (group, index) = ((ino - 1) / per_group, (ino - 1) % per_group);
        let is_on = self.csum.is_on();
        let desc = &mut self.groups[group as usize];
        desc.bg_free_inodes_count -= 1;
        desc.bg_used_dirs_count += u32::from(is_dir);
        desc.bg_flags &= !INODE_UNINIT;
        if is_on && index >= per_group - desc.bg_itable_unused {
            desc.bg_itable_unused = per_group - index - 1;
        }
    }

    /// Takes the numbers of a tree, of which some, in order, are directories.
    pub(super) fn take_inodes(&mut self, first: u32, last: u32, dirs: &[u32]) {
        let per_group = self.geo.inodes_per_group;
        self.inodes_used.insert(first.into(), u64::from(last - first) + 1);
        self.sb.s_free_inodes_count -= last - first + 1;
        let is_on = self.csum.is_on();
        for group in (first - 1) / per_group..=(last - 1) / per_group {
            let start = group * per_group + 1;
            let end = (start - 1 + per_group).min(last);
            let desc = &mut self.groups[group as usize];
            desc.bg_free_inodes_count -= end + 1 - start.max(first);
            desc.bg_flags &= !INODE_UNINIT;
            if is_on {
                desc.bg_itable_unused = per_group - (end + 1 - start);
            }
        }
        for ino in dirs {
            self.groups[((ino - 1) / per_group) as usize].bg_used_dirs_count += 1;
        }
    }

    /// The next free inode number, for which the groups up to it get their bitmaps.
    pub(super) fn new_inode(&mut self) -> Result<u32> {
        let end = u64::from(self.geo.inodes_count) + 1;
        let Some(ino) = self.inodes_used.first_free(FIRST_INO.into(), end) else { return full() };
        let ino = ino as u32;
        for group in
            (FIRST_INO - 1) / self.geo.inodes_per_group..=(ino - 1) / self.geo.inodes_per_group
        {
            let desc = &mut self.groups[group as usize];
            if desc.bg_flags & INODE_UNINIT != 0 {
                desc.bg_flags &= !(INODE_UNINIT | BLOCK_UNINIT);
            }
        }
        Ok(ino)
    }

    /// Block of the inode table and byte in it.
    pub(super) fn inode_place(&self, ino: u32) -> (u64, usize) {
        let per_group = self.geo.inodes_per_group;
        let (block, byte) = self.geo.inode_slot((ino - 1) % per_group);
        let table = self.groups[((ino - 1) / per_group) as usize].bg_inode_table;
        (table + u64::from(block), byte)
    }

    /// A new inode with all its times.
    pub(super) fn inode(&self, mode: u16) -> Inode {
        let large = self.geo.inode_size > syncline_ondisk::inode::GOOD_OLD_INODE_SIZE;
        let mut inode = Inode::new(mode, if large { EXTRA_ISIZE_FULL } else { 0 });
        let now = self.time();
        inode.i_links_count = 1;
        (inode.i_atime, inode.i_ctime, inode.i_mtime, inode.i_crtime) = (now, now, now, now);
        inode
    }

    /// Seed of the checksums of an inode's blocks.
    pub(super) fn inode_seed(&self, ino: u32) -> u32 {
        checksum::inode_seed(self.sb.csum_seed(), ino, 0)
    }

    /// Sectors of 512 bytes in so many blocks.
    pub(super) fn sectors(&self, blocks: u64) -> u64 {
        blocks * (self.geo.block_size as u64 / 512)
    }

    pub(super) fn note_read(&mut self, ino: u32) {
        let (block, _) = self.inode_place(ino);
        self.traffic.read_inode(ino, block);
    }

    pub(super) fn note_write(&mut self, ino: u32, whole: bool) {
        let (block, _) = self.inode_place(ino);
        let whole = whole || self.geo.inode_size == syncline_ondisk::inode::GOOD_OLD_INODE_SIZE;
        self.traffic.write_inode(ino, block, whole);
    }

    /// A directory block is written, which needs its inode for the checksum.
    pub(super) fn note_dir_write(&mut self, ino: u32, block: u64) {
        if self.geo.metadata_csum {
            self.note_read(ino);
        }
        self.traffic.write(block);
    }

    /// Inode tables: what of them is zeroed, and whether the kernel has to zero the rest.
    pub(super) fn init_inode_tables(&mut self) {
        let (zeroed, lazy) = (self.options.zeroed, self.options.lazy_itable_init);
        for group in 0..self.groups.len() {
            let desc = &mut self.groups[group];
            if zeroed || !lazy {
                desc.bg_flags |= INODE_ZEROED;
            }
            if !zeroed {
                let used = if lazy {
                    let inodes = self.geo.inodes_per_group - desc.bg_itable_unused;
                    inodes.div_ceil(self.geo.inodes_per_block)
                } else {
                    self.geo.itable_blocks
                };
                self.zeros.push((desc.bg_inode_table, used.into()));
            }
        }
        if self.geo.metadata_csum {
            for ino in 1..FIRST_INO {
                self.inodes.insert(ino, Inode::new(0, 0));
                self.note_write(ino, true);
            }
        }
    }
}
