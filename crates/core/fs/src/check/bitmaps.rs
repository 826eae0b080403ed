//! Groups: their own blocks first; at the end the bitmaps against what was found in use.

use syncline_ondisk::group::GroupDesc;
use syncline_ondisk::{IncompatFeatures, bitmap};

use super::{Checker, Step};
use crate::store::group::{block_bitmap, group_desc};

/// Runs of wrong bits that are noted for one group.
const RUNS_NOTED: usize = 8;

impl Checker<'_> {
    /// Marks superblock copies, descriptors, bitmaps and inode tables.
    pub(super) fn mark_groups(&mut self) -> Step {
        let vol = self.vol;
        let geo = &vol.geo;
        for group in 0..geo.group_count {
            if group % 256 == 0 {
                self.tick("groups", group.into(), geo.group_count.into())?;
            }
            let first = geo.group_first_block(group);
            let base = geo.group_base_meta_blocks(&self.sb, group);
            self.mark(0, first, base.min(geo.group_blocks(group)).into());
            let Some(desc) = self.desc(group)? else { continue };
            for (start, len) in [
                (desc.bg_block_bitmap, 1),
                (desc.bg_inode_bitmap, 1),
                (desc.bg_inode_table, u64::from(geo.itable_blocks)),
            ] {
                self.mark(0, start, len);
            }
        }
        let mmp = self.sb.s_mmp_block;
        if self.sb.s_feature_incompat.contains(IncompatFeatures::MMP) {
            if geo.is_valid_range(mmp, 1) {
                self.mark(0, mmp, 1);
            } else {
                self.note(None, Some(mmp), "the MMP block is outside of the volume");
            }
        }
        // With 1 KiB blocks, block 0 lies before the first group; nothing counts it.
        Ok(())
    }

    /// The descriptor of a group, which mount has already checked once.
    pub(super) fn desc(&mut self, group: u32) -> Step<Option<GroupDesc>> {
        let desc = group_desc(self.vol, group);
        self.keep(desc, None, None)
    }

    /// Compares marks, bitmaps and counters. The totals in the superblock are hints, which e2fsck
    /// and kernels correct without a word; they are not judged.
    pub(super) fn check_bitmaps(&mut self) -> Step {
        let vol = self.vol;
        for group in 0..vol.geo.group_count {
            if group % 64 == 0 {
                self.tick("bitmaps", group.into(), vol.geo.group_count.into())?;
            }
            let Some(desc) = self.desc(group)? else { continue };
            let map = block_bitmap(vol, group, &desc);
            let Some(map) = self.keep(map, None, Some(desc.bg_block_bitmap))? else { continue };
            self.compare_group(group, &desc, &map);
        }
        Ok(())
    }

    fn compare_group(&mut self, group: u32, desc: &GroupDesc, map: &[u8]) {
        let geo = &self.vol.geo;
        let blocks = geo.group_blocks(group);
        let place = Some(desc.bg_block_bitmap);
        let free = bitmap::count_zero(map, 0, blocks);
        if free != desc.bg_free_blocks_count {
            let what = format!(
                "group {group} has {free} free blocks, its descriptor says {}",
                desc.bg_free_blocks_count
            );
            self.note(None, place, what);
        }
        let total = u32::try_from(map.len() * 8).unwrap_or(u32::MAX);
        if bitmap::find_zero(map, blocks, total).is_some() {
            self.note(None, place, format!("group {group}: bits past the last block are clear"));
        }
        let none = Vec::new();
        let marks = self.blocks.group(group).unwrap_or(&none);
        let first = geo.group_first_block(group);
        let mut wrong = Vec::new();
        let mut at = 0;
        while at < blocks && wrong.len() <= RUNS_NOTED {
            let Some((start, end, used)) = next_difference(map, marks, at, blocks) else { break };
            wrong.push((first + u64::from(start), end - start, used));
            at = end;
        }
        for (block, len, used) in wrong {
            let what = if used {
                format!("{len} blocks from here are in use and marked free")
            } else {
                format!("{len} blocks from here are marked used and nothing uses them")
            };
            self.note(None, Some(block), what);
        }
    }
}

/// The first run from `at` on where the bitmap is wrong in one way: start, end, whether the blocks
/// are in use.
fn next_difference(map: &[u8], marks: &[u8], at: u32, blocks: u32) -> Option<(u32, u32, bool)> {
    let byte = |bits: &[u8], i: usize| bits.get(i).copied().unwrap_or(0);
    let mut bit = at;
    while bit < blocks {
        let i = (bit / 8) as usize;
        let differ = (byte(map, i) ^ byte(marks, i)) & (0xff << (bit % 8));
        if differ == 0 {
            bit = (bit / 8 + 1) * 8;
            continue;
        }
        let start = bit / 8 * 8 + differ.trailing_zeros();
        if start >= blocks {
            return None;
        }
        // Of a group without marks nothing is in use; `bitmap::test` would say the opposite.
        let set = |bits: &[u8], bit: u32| byte(bits, (bit / 8) as usize) >> (bit % 8) & 1 != 0;
        let used = set(marks, start);
        let alike = |bit: &u32| set(map, *bit) != set(marks, *bit) && set(marks, *bit) == used;
        let len = (start..blocks).take_while(alike).count() as u32;
        return Some((start, start + len, used));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::next_difference;

    #[test]
    fn differences_come_in_runs_of_one_kind() {
        let (map, marks) = ([0b1111_0000, 0b0000_0001], [0b1100_0011, 0b0000_0001]);
        assert_eq!(next_difference(&map, &marks, 0, 16), Some((0, 2, true)));
        assert_eq!(next_difference(&map, &marks, 2, 16), Some((4, 6, false)));
        assert_eq!(next_difference(&map, &marks, 6, 16), None);
        assert_eq!(next_difference(&map, &[], 4, 16), Some((4, 9, false)));
        assert_eq!(next_difference(&map, &marks, 0, 0), None);
    }
}
