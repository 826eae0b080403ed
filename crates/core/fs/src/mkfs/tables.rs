//! Places for the bitmaps and the inode tables of all groups.
//!
//! Without `flex_bg` they follow the descriptors of their group. With it those of a flexible group
//! stand together: all block bitmaps, all inode bitmaps, all tables, each with room for the
//! others behind it.

use super::builder::{Builder, full};
use crate::error::Result;

impl Builder {
    pub(super) fn allocate_tables(&mut self) -> Result<()> {
        if self.is_packed() {
            return self.allocate_packed();
        }
        (0..self.geo.group_count).try_for_each(|group| self.allocate_group(group))
    }

    /// Places for the tables of one group, those before have theirs.
    pub(super) fn allocate_group(&mut self, group: u32) -> Result<()> {
        if self.is_flex() { self.allocate_flex(group) } else { self.allocate_own(group) }
    }

    /// One after the other from the start of the device.
    fn allocate_packed(&mut self) -> Result<()> {
        let groups = self.geo.group_count as usize;
        let mut goal = 0;
        for group in 0..groups {
            goal = self.take_one(goal)?;
            self.groups[group].bg_block_bitmap = goal;
        }
        for group in 0..groups {
            goal = self.take_one(goal)?;
            self.groups[group].bg_inode_bitmap = goal;
        }
        let count = u64::from(self.geo.itable_blocks);
        for group in 0..groups {
            let Some(found) = self.used.find(goal, self.geo.blocks_count - 1, count) else {
                return full();
            };
            goal = found;
            self.take(goal, count);
            self.groups[group].bg_inode_table = goal;
        }
        Ok(())
    }

    /// Inside of the group. With a RAID stride the bitmaps of successive groups are on different
    /// disks.
    fn allocate_own(&mut self, group: u32) -> Result<()> {
        let (first, last) = (self.geo.group_first_block(group), self.last_block(group));
        let table = u64::from(self.geo.itable_blocks);
        let mut start = first;
        let stride = u64::from(self.options.stride);
        if stride > 0 {
            let Some(free) = self.used.find(first, last, 1) else { return full() };
            start = free + table;
            start += stride * u64::from(group) % (last - start + 1);
            if start >= last {
                start = first;
            }
        }
        let mut bitmaps = [0; 2];
        for place in &mut bitmaps {
            let found = self.used.find(start, last, 1).or_else(|| self.used.find(first, last, 1));
            let Some(found) = found else { return full() };
            self.used.insert(found, 1);
            *place = found;
        }
        let Some(found) = self.used.find(first, last, table) else { return full() };
        self.used.insert(found, table);
        let desc = &mut self.groups[group as usize];
        [desc.bg_block_bitmap, desc.bg_inode_bitmap] = bitmaps;
        desc.bg_inode_table = found;
        Ok(())
    }

    fn allocate_flex(&mut self, group: u32) -> Result<()> {
        let size = 1 << self.sb.s_log_groups_per_flex;
        let last_group = (group | (size - 1)).min(self.geo.group_count - 1);
        let rest = u64::from(last_group - group + 1);
        let last = self.last_block(last_group);
        let first = group % size == 0;
        // Room for the tables of one kind: of the last flexible group only as much as it needs.
        let room = match last_group & (size - 1) {
            0 => u64::from(size),
            within if last_group + 1 == self.geo.group_count => u64::from(within) + 1,
            _ => u64::from(size),
        };
        let before = if first { None } else { Some(self.groups[group as usize - 1]) };
        let table = u64::from(self.geo.itable_blocks);

        let near = before.map_or(0, |before| before.bg_block_bitmap + 1);
        let block_bitmap = self.take_near(group, near, last, (rest, 1))?;
        self.groups[group as usize].bg_block_bitmap = block_bitmap;

        let near = before.map_or(block_bitmap + room, |before| before.bg_inode_bitmap + 1);
        let inode_bitmap = self.take_near(group, near, last, (rest, 1))?;
        self.groups[group as usize].bg_inode_bitmap = inode_bitmap;

        let near = before.map_or(inode_bitmap + room, |before| before.bg_inode_table + table);
        let place = self.take_near(group, near, last, (rest, table))?;
        self.groups[group as usize].bg_inode_table = place;
        Ok(())
    }

    /// Takes the blocks of a table of `each` blocks, `near` a place if there is one, otherwise
    /// where `count` of them fit.
    fn take_near(
        &mut self,
        group: u32,
        near: u64,
        last: u64,
        (count, each): (u64, u64),
    ) -> Result<u64> {
        let start = self.flex_start(group, near, last, (count, each));
        let own = self.geo.group_first_block(group);
        let mut found = self.used.find(start, last, each);
        if found.is_none() && each == 1 {
            found = self.used.find(own, last, each);
        }
        let Some(found) = found else { return full() };
        self.take(found, each);
        Ok(found)
    }

    fn flex_start(&self, group: u32, near: u64, last: u64, (count, each): (u64, u64)) -> u64 {
        let size = (count * each).min(u64::from(self.geo.blocks_per_group) / 4);
        if near > 0 && near < self.geo.blocks_count {
            if let Some(found) = self.used.find(near, near + size, each) {
                return found;
            }
        }
        let log = self.sb.s_log_groups_per_flex;
        let start = self.geo.group_first_block(group >> log << log);
        let found = self.used.find(start, last, size).or_else(|| self.used.find(start, last, each));
        found.or_else(|| self.used.find(0, last, each)).unwrap_or(0)
    }
}
