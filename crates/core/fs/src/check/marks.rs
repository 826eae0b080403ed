//! Memory of a check: one bit a block, a few bytes an inode, only for groups that use any.
//!
//! Tested through `tests/it/check.rs`.

use std::collections::BTreeMap;

use syncline_ondisk::{Geometry, bitmap};

/// Blocks that something uses.
#[derive(Default)]
pub(super) struct BlockMarks {
    groups: BTreeMap<u32, Vec<u8>>,
}

impl BlockMarks {
    /// Marks `len` blocks from `start`, which lie in the volume. The first that was marked before
    /// is returned, with how many there are.
    pub(super) fn mark(&mut self, geo: &Geometry, start: u64, len: u64) -> Option<(u64, u64)> {
        let (mut at, end) = (start, start.saturating_add(len));
        let mut clash: Option<(u64, u64)> = None;
        while at < end {
            let Some((group, bit)) = geo.block_group(at) else { break };
            let room = geo.group_blocks(group).saturating_sub(bit);
            let run = u32::try_from(end - at).unwrap_or(u32::MAX).min(room);
            if run == 0 {
                break;
            }
            let bytes = geo.blocks_per_group.div_ceil(8) as usize;
            let map = self.groups.entry(group).or_insert_with(|| vec![0; bytes]);
            let before = bitmap::count_set(map, bit, bit + run);
            if before > 0 {
                let first = bitmap::find_set(map, bit, bit + run).unwrap_or(bit);
                let block = at + u64::from(first - bit);
                clash =
                    Some(clash.map_or((block, before.into()), |(b, n)| (b, n + u64::from(before))));
            }
            let _ = bitmap::set_range(map, bit, run);
            at += u64::from(run);
        }
        clash
    }

    /// True if a block is marked.
    pub(super) fn is_marked(&self, geo: &Geometry, block: u64) -> bool {
        geo.block_group(block).is_some_and(|(group, bit)| {
            self.groups.get(&group).is_some_and(|map| bitmap::count_set(map, bit, bit + 1) > 0)
        })
    }

    /// The marks of a group; `None` if it has none.
    pub(super) fn group(&self, group: u32) -> Option<&[u8]> {
        self.groups.get(&group).map(Vec::as_slice)
    }
}

/// Findings about one inode that is in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// i_links_count.
    pub(super) links: u16,
    /// Directory entries that name it.
    pub(super) refs: u32,
    /// `file_type::*`, 0 if the inode is free.
    pub(super) file_type: u8,
    /// The inode bitmap says that it is in use.
    pub(super) used: bool,
    /// Of the file system itself: it has no name.
    pub(super) system: bool,
}

/// Every inode in use, by group.
#[derive(Default)]
pub(super) struct KnownInodes {
    groups: BTreeMap<u32, Vec<Known>>,
}

impl KnownInodes {
    /// Returns the findings about `ino`.
    pub(super) fn get(&self, geo: &Geometry, ino: u32) -> Known {
        let Some((group, index)) = geo.inode_group(ino) else { return Known::default() };
        let known = self.groups.get(&group).and_then(|list| list.get(index as usize));
        known.copied().unwrap_or_default()
    }

    /// The same, to be changed.
    pub(super) fn at(&mut self, geo: &Geometry, ino: u32) -> Option<&mut Known> {
        let (group, index) = geo.inode_group(ino)?;
        let count = geo.inodes_per_group as usize;
        let list = self.groups.entry(group).or_insert_with(|| vec![Known::default(); count]);
        list.get_mut(index as usize)
    }

    /// All in use, ascending.
    pub(super) fn used(&self, geo: &Geometry) -> impl Iterator<Item = (u32, Known)> + '_ {
        let per_group = geo.inodes_per_group;
        self.groups.iter().flat_map(move |(group, list)| {
            let first = group.saturating_mul(per_group).saturating_add(1);
            (first..).zip(list.iter().copied()).filter(|(_, known)| known.used)
        })
    }
}

/// Findings about one directory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dir {
    /// The directory that holds its name; 0: none was found.
    pub(super) parent: u32,
    /// The directory that its `..` names; 0: it could not be read.
    pub(super) dotdot: u32,
}
