//! Bitmaps and counters of the groups against what was found in use.

use syncline_ondisk::bitmap;
use syncline_ondisk::dir::file_type;
use syncline_ondisk::group::{
    BLOCK_UNINIT, GroupDesc, INODE_UNINIT, init_block_bitmap, init_inode_bitmap,
};

use super::kinds::Kind;
use super::report::At;
use super::{Checker, Step, kinds};

/// Runs of wrong bits that are noted for one group.
const RUNS_NOTED: usize = 8;

impl Checker<'_> {
    /// Pass 6. The totals in the superblock are hints, which e2fsck and kernels correct without a
    /// word; they are not judged.
    pub(super) fn check_bitmaps(&mut self) -> Step {
        for group in 0..self.geo.group_count {
            if group % 64 == 0 {
                self.tick("bitmaps", group.into(), self.geo.group_count.into())?;
            }
            let Some(desc) = self.desc(group)? else { continue };
            self.check_block_bitmap(group, &desc)?;
            self.check_inode_bitmap(group, &desc)?;
        }
        Ok(())
    }

    fn check_block_bitmap(&mut self, group: u32, desc: &GroupDesc) -> Step {
        let place = desc.bg_block_bitmap;
        let at = At::group(group).in_block(place);
        let clusters = self.blocks.in_group(group);
        let mut map;
        if self.csum.is_on() && desc.has_flag(BLOCK_UNINIT) {
            map = vec![0; self.geo.block_size];
            if self.cluster_bits == 0 {
                init_block_bitmap(&mut map, &self.sb, &self.geo, group, desc);
            } else {
                // Of clusters: nothing in such a group is in use but what is marked.
                let marks = self.blocks.group(group);
                map.iter_mut().zip(marks.iter()).for_each(|(to, from)| *to = *from);
            }
        } else {
            if !self.has_bitmap(group, place) {
                return Ok(());
            }
            let Some(bytes) = self.read(place)? else { return Ok(()) };
            map = bytes.to_vec();
            let per_group = self.geo.blocks_per_group >> self.cluster_bits;
            let crc = self.csum.of_bitmap(&map, per_group);
            if self.geo.metadata_csum && self.narrow(crc) != self.narrow(desc.bg_block_bitmap_csum)
            {
                let what = "the block bitmap does not match its checksum";
                self.note(kinds::BLOCK_BITMAP_CSUM, at, what);
            }
            self.check_padding(&map, clusters, at, "block");
        }
        let free = bitmap::count_zero(&map, 0, clusters);
        if free != desc.bg_free_blocks_count {
            let said = desc.bg_free_blocks_count;
            let what = format!("group {group} has {free} free blocks, its descriptor says {said}");
            self.note(kinds::FREE_BLOCKS, at, what);
        }
        let first = self.geo.group_first_block(group);
        let bits = self.cluster_bits;
        let wrong = differences(&map, &self.blocks.group(group), clusters);
        for (start, len, used) in wrong {
            let what = if used {
                format!("{len} blocks from here are in use and marked free")
            } else {
                format!("{len} blocks from here are marked used and nothing uses them")
            };
            let block = first + (u64::from(start) << bits);
            self.note(kinds::BLOCK_BITMAP, At::group(group).in_block(block), what);
        }
        Ok(())
    }

    fn check_inode_bitmap(&mut self, group: u32, desc: &GroupDesc) -> Step {
        let place = desc.bg_inode_bitmap;
        let at = At::group(group).in_block(place);
        let per_group = self.geo.inodes_per_group;
        let mut map = vec![0; self.geo.block_size];
        if self.csum.is_on() && desc.has_flag(INODE_UNINIT) {
            init_inode_bitmap(&mut map, &self.geo);
        } else {
            if !self.has_bitmap(group, place) {
                return Ok(());
            }
            let Some(bytes) = self.read(place)? else { return Ok(()) };
            map.copy_from_slice(&bytes);
            let crc = self.csum.of_bitmap(&map, per_group);
            if self.geo.metadata_csum && self.narrow(crc) != self.narrow(desc.bg_inode_bitmap_csum)
            {
                let what = "the inode bitmap does not match its checksum";
                self.note(kinds::INODE_BITMAP_CSUM, at, what);
            }
            self.check_padding(&map, per_group, at, "inode");
        }
        let mut marks = vec![0; self.geo.block_size];
        let mut dirs = 0;
        for (bit, known) in (0..).zip(self.inodes.group(&self.geo, group)) {
            if known.used {
                let _ = bitmap::set_range(&mut marks, bit, 1);
                let set = bitmap::count_set(&map, bit, bit + 1) > 0;
                dirs += u32::from(set && known.file_type == file_type::DIR);
            }
        }
        let first = group * per_group + 1;
        for (start, len, used) in differences(&map, &marks, per_group) {
            let what = if used {
                format!("{len} inodes from here are in use and marked free")
            } else {
                format!("{len} inodes from here are marked used and are free")
            };
            self.note(kinds::INODE_BITMAP, At::ino(first + start), what);
        }
        let free = bitmap::count_zero(&map, 0, per_group);
        self.compare_count(
            kinds::FREE_INODES,
            group,
            "free inodes",
            free,
            desc.bg_free_inodes_count,
        );
        self.compare_count(kinds::DIR_COUNT, group, "directories", dirs, desc.bg_used_dirs_count);
        Ok(())
    }

    fn compare_count(&mut self, kind: Kind, group: u32, name: &str, found: u32, said: u32) {
        if found != said {
            let what = format!("group {group} has {found} {name}, its descriptor says {said}");
            self.note(kind, At::group(group), what);
        }
    }

    fn check_padding(&mut self, map: &[u8], bits: u32, at: At, name: &str) {
        let total = u32::try_from(map.len() * 8).unwrap_or(u32::MAX);
        if bitmap::find_zero(map, bits, total).is_some() {
            let what = format!("bits past the last {name} are clear");
            self.note(kinds::BITMAP_PADDING, at, what);
        }
    }

    /// Descriptors of 32 bytes hold the low half of a bitmap's checksum.
    pub(super) fn narrow(&self, crc: u32) -> u32 {
        if self.geo.desc_size >= 64 { crc } else { crc & 0xffff }
    }
}

/// The first runs of bits that differ: start, length, whether they are marked as in use.
fn differences(map: &[u8], marks: &[u8], bits: u32) -> Vec<(u32, u32, bool)> {
    let mut wrong = Vec::new();
    let mut at = 0;
    while at < bits && wrong.len() <= RUNS_NOTED {
        let Some((start, end, used)) = next_difference(map, marks, at, bits) else { break };
        wrong.push((start, end - start, used));
        at = end;
    }
    wrong
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
