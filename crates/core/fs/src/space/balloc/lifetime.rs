//! Allocation by expected lifetime: what dies or changes together lies together, and what was
//! never written stays unwritten as long as possible.
//!
//! ```text
//!   flex group 0                                                      the others
//!   | all inodes | short-lived | updated often, directories | files, lowest first ...  (untouched)
//!                |<--------- one region, kept ------------->|
//! ```
//!
//! Three things differ from hot zones (`space/balloc/hot.rs`), each for a counter of the device:
//! - One region beside the inodes, instead of one in each flex group: fewer ranges are worked on at
//!   once, so maps of fewer zones have to be loaded.
//! - Short-lived files have the front of the region to themselves and take the same addresses again
//!   and again: their pages are invalid before they are collected.
//! - Everything else takes the lowest place with room, wherever its inode is. A device without
//!   discard holds whatever was once written to it, so addresses that were never written are spare
//!   area for its collector.
//!
//! Costs: directories are not spread, so files of different directories lie closer together; a disk
//! with heads would have to seek. As with hot zones nothing on disk says so, the kept blocks are
//! at most an eighth of the volume, and others borrow them as they borrow zones.
//! Tested here, in `space/balloc/tests.rs` and in `tests/it/hot_zones.rs`.

use super::goal::{AllocPolicy, LinuxPolicy, Shape, Wish};
use super::hot::{Asked, HotZones};
use crate::incore::Lifetime;
use crate::store::zone::Zone;

/// Short-lived files get this part of the region first.
const SHORT_SHARE: u64 = 4;
/// At most this many blocks: journals of databases are small, and fewer addresses are taken again
/// sooner.
const SHORT_BLOCKS_MAX: u64 = 4096;

/// One region for files that change, the lowest free blocks for the others.
#[derive(Clone, Debug)]
pub(super) struct ByLifetime {
    region: HotZones,
    /// First blocks for short-lived files, and for others that change.
    short: u64,
    updated: u64,
    /// One past the region.
    end: u64,
}

impl ByLifetime {
    /// A region of as many blocks as the zones `asked` for have, behind what is `taken` of the
    /// first flex group.
    pub(super) fn plan(shape: &Shape, taken: &Zone, asked: Asked) -> ByLifetime {
        let region = HotZones::plan(shape, taken, asked.joined());
        let (short, end) = region.zone_for(shape, 0).unwrap_or_default();
        let updated = short + ((end - short) / SHORT_SHARE).min(SHORT_BLOCKS_MAX);
        ByLifetime { region, short, updated, end }
    }
}

impl AllocPolicy for ByLifetime {
    fn goal(&self, shape: &Shape, wish: &Wish) -> u64 {
        // Directories change with every name in them.
        let life = if wish.regular { wish.life } else { wish.life.max(Lifetime::Updated) };
        let going_on = wish.near.map(|_| LinuxPolicy.goal(shape, wish));
        match (life, going_on) {
            (Lifetime::Long, Some(goal)) => goal,
            (_, Some(goal)) if self.region.covers(goal) => goal,
            (Lifetime::Short, _) => self.short,
            (Lifetime::Updated, _) => self.updated,
            (Lifetime::Long, None) => self.end.min(shape.blocks_count.saturating_sub(1)),
        }
    }

    fn window_blocks(&self, shape: &Shape, file_blocks: u64) -> Option<u32> {
        LinuxPolicy.window_blocks(shape, file_blocks)
    }

    fn packed_window_blocks(&self, shape: &Shape) -> u32 {
        LinuxPolicy.packed_window_blocks(shape)
    }

    fn kept_for_hot(&self, shape: &Shape, group: u32, most: u64) -> Option<(u32, u32)> {
        self.region.kept_for_hot(shape, group, most)
    }

    fn zone_count(&self) -> u32 {
        self.region.zone_count()
    }

    fn gathers_inodes(&self) -> bool {
        true
    }

    fn kept_blocks(&self) -> u64 {
        self.region.kept_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::super::goal::SHAPE;
    use super::*;

    #[test]
    fn places_go_by_lifetime_and_not_by_the_inode() {
        let metadata = Zone::new(vec![(0, 8300), (16 * 32768, 900)]);
        let policy = ByLifetime::plan(&SHAPE, &metadata, Asked { count: 4, blocks: 16384 });
        assert_eq!(policy.kept_blocks(), 65536);
        assert_eq!(policy.kept_for_hot(&SHAPE, 0, u64::MAX), Some((8300, 32768)));
        assert_eq!(policy.kept_for_hot(&SHAPE, 16, u64::MAX), None, "one region");
        for inode_group in [0, 17, 39] {
            let wish = |life| Wish { inode_group, regular: true, life, lblk: 3, near: None };
            assert_eq!(policy.goal(&SHAPE, &wish(Lifetime::Short)), 8300);
            assert_eq!(policy.goal(&SHAPE, &wish(Lifetime::Updated)), 8300 + 4096);
            assert_eq!(policy.goal(&SHAPE, &wish(Lifetime::Long)), 8300 + 65536);
            let dir = Wish { regular: false, ..wish(Lifetime::Long) };
            assert_eq!(policy.goal(&SHAPE, &dir), 8300 + 4096, "a directory");
        }
    }

    #[test]
    fn a_file_goes_on_where_it_is_and_moves_in_when_it_changes() {
        let taken = Zone::new(vec![(0, 100)]);
        let policy = ByLifetime::plan(&SHAPE, &taken, Asked { count: 1, blocks: 8192 });
        let at = |life, block| {
            let near = Some((2, block));
            policy.goal(&SHAPE, &Wish { inode_group: 0, regular: true, life, lblk: 3, near })
        };
        assert_eq!(at(Lifetime::Long, 20_000), 20_001);
        assert_eq!(at(Lifetime::Long, 200), 201, "also in the region: it was borrowed");
        assert_eq!(at(Lifetime::Updated, 5_000), 5_001);
        assert_eq!(at(Lifetime::Updated, 20_000), 100 + 2048);
        assert_eq!(at(Lifetime::Short, 20_000), 100);
    }

    #[test]
    fn a_tiny_volume_has_a_tiny_region() {
        let shape = Shape { blocks_count: 300, groups: 1, ..SHAPE };
        let asked = Asked { count: 1, blocks: 65536 };
        let policy = ByLifetime::plan(&shape, &Zone::new(vec![(0, 290)]), asked);
        assert_eq!(policy.kept_blocks(), 10, "the rest of the group");
        let nothing = ByLifetime::plan(&shape, &Zone::new(vec![(0, 300)]), asked);
        assert_eq!((nothing.kept_blocks(), nothing.has_zones()), (0, false));
        let wish =
            Wish { inode_group: 0, regular: true, life: Lifetime::Long, lblk: 0, near: None };
        assert_eq!(nothing.goal(&shape, &wish), 0);
    }
}
