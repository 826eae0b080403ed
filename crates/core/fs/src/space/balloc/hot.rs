//! Hot zones: blocks at the front of flex groups that are kept for files that are updated often
//! (hot-zones paper, section 2).
//!
//! ```text
//!   flex group 0                               flex group 1
//!   | metadata | hot zone | other files ...    | metadata | hot zone | other files ...
//!     inode tables ^ blocks of hot files, right behind their inodes
//! ```
//!
//! Invalid pages then gather in few ranges of a flash device that keeps its map and blocks by
//! address range. A zone is a rule of this allocator alone. The same options give the same zones
//! at every mount, nothing on disk marks them, and files that other programs put there stay. New
//! hot files, blocks and inodes, go to one zone until it is full, then to the next, so that current
//! work lies in few ranges. On a nearly full volume other files borrow from the ends of the zones
//! rather than be torn into small pieces (`space/balloc/core.rs`). If the log lies at the front of
//! a flex group, the zone is behind it.
//!
//! The share of the volume that the zones have decides. A device without discard counts every
//! address that was ever written as valid, and collects cheaply as far as it has spare area; the
//! zones, of which hot files write a small part again and again, add their share to it. So all
//! zones together are an eighth of the volume whatever its size: four (the paper's number) of
//! 64 MiB (its size) on 2 GiB. A zone is at most half of its flex group, so that files whose inodes
//! lie there find room beside them; a volume with more room has more zones. An eighth is also more
//! than the 90 MB of databases that the paper found on each of ten phones, from 1 GiB on.
//!
//! Inodes of hot files are taken from the last group of the flex group on, those of others from the
//! first: a rollback journal that is made again finds the number that it had, and with it its
//! blocks (`held.rs`), whatever other files are made in between.
//!
//! Does not help where the device maps pages of all addresses into one open block: there, what was
//! written together lies together. Tested here and in `tests/it/hot_zones.rs`.

use super::goal::{AllocPolicy, LinuxPolicy, Shape, Wish};
use crate::store::zone::Zone;

/// All zones together are at most this part of the volume.
const SHARE: u64 = 8;
/// A zone of default size is at most this part of a flex group.
const FLEX_SHARE: u64 = 2;
/// Zones where that is enough of them (hot-zones paper, section 2: four hold the databases of each
/// of ten phones).
const ZONES: u32 = 4;

/// Zones of the mount options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Number of zones, 0 for as many as suit the volume.
    pub count: u32,
    /// Blocks of each, 0 for as many as suit the volume.
    pub blocks: u64,
}

impl Asked {
    /// One zone with the blocks of all.
    pub(super) fn joined(self) -> Asked {
        let count = if self.count == 0 { ZONES } else { self.count };
        Asked { count: 1, blocks: self.blocks.saturating_mul(count.into()) }
    }

    /// Number and blocks of each on this volume.
    fn on(self, shape: &Shape) -> (u32, u64) {
        let flex = 1_u64.checked_shl(shape.flex_log).unwrap_or(1).max(1);
        let flexes = u64::from(shape.groups).div_ceil(flex).max(1);
        let all = shape.blocks_count / SHARE;
        let most = (flex * u64::from(shape.blocks_per_group) / FLEX_SHARE).max(1);
        let count = match self {
            Asked { count: 0, blocks: 0 } => all.div_ceil(most).max(ZONES.into()),
            Asked { count: 0, .. } => ZONES.into(),
            Asked { count, .. } => count.into(),
        };
        let count = count.min(flexes);
        let blocks = if self.blocks == 0 { most } else { self.blocks };
        (count as u32, blocks.min(all / count))
    }
}

/// ext4's places for everything but hot files.
#[derive(Clone, Debug)]
pub(super) struct HotZones {
    /// First block and one past the last, sorted.
    zones: Vec<(u64, u64)>,
    /// Blocks in them that can be allocated.
    blocks: u64,
}

impl HotZones {
    /// Zones behind what is `taken` for good at the front of the first flex groups: metadata, and
    /// the log where it lies there.
    pub(super) fn plan(shape: &Shape, taken: &Zone, asked: Asked) -> HotZones {
        let flex = 1_u32.checked_shl(shape.flex_log).unwrap_or(1).max(1);
        let (count, blocks) = asked.on(shape);
        let mut plan = HotZones { zones: Vec::new(), blocks: 0 };
        for index in 0..count {
            let from = taken.end_at(shape.group_start(index * flex));
            let next = shape.group_start(((index + 1) * flex).min(shape.groups));
            let (end, found) = taken.skip(from, blocks, next.min(shape.blocks_count));
            if found > 0 {
                plan.zones.push((from, end));
                plan.blocks += found;
            }
        }
        plan
    }

    /// True if a block is in a zone.
    pub(super) fn covers(&self, block: u64) -> bool {
        let at = self.zones.partition_point(|zone| zone.1 <= block);
        self.zones.get(at).is_some_and(|zone| zone.0 <= block)
    }

    /// The zone of the group's flex group, or of the one before that has one.
    pub(super) fn zone_for(&self, shape: &Shape, group: u32) -> Option<(u64, u64)> {
        let behind = shape.group_start(group.saturating_add(1));
        let before = self.zones.partition_point(|zone| zone.0 < behind);
        self.zones.get(before.saturating_sub(1)).copied()
    }
}

impl AllocPolicy for HotZones {
    fn goal(&self, shape: &Shape, wish: &Wish) -> u64 {
        let zone = if wish.life.is_hot() { self.zone_for(shape, wish.inode_group) } else { None };
        match zone {
            Some(zone) => {
                let goal = LinuxPolicy.goal(shape, wish);
                // Where the file goes on, unless that is outside: then it moves in.
                if wish.near.is_some() && self.covers(goal) { goal } else { zone.0 }
            }
            None => LinuxPolicy.goal(shape, wish),
        }
    }

    fn window_blocks(&self, shape: &Shape, file_blocks: u64) -> Option<u32> {
        LinuxPolicy.window_blocks(shape, file_blocks)
    }

    fn packed_window_blocks(&self, shape: &Shape) -> u32 {
        LinuxPolicy.packed_window_blocks(shape)
    }

    fn kept_for_hot(&self, shape: &Shape, group: u32, most: u64) -> Option<(u32, u32)> {
        let start = shape.group_start(group);
        let end = start + u64::from(shape.group_len(group));
        let at = self.zones.partition_point(|zone| zone.1 <= start);
        let zone = self.zones.get(at).filter(|zone| zone.0 < end)?;
        let share = u128::from(zone.1 - zone.0) * u128::from(most.min(self.blocks));
        let kept = (share / u128::from(self.blocks)) as u64;
        let (from, until) = (zone.0.max(start), (zone.0 + kept).min(end));
        (from < until).then(|| ((from - start) as u32, (until - start) as u32))
    }

    fn zone_count(&self) -> u32 {
        self.zones.len() as u32
    }

    fn kept_blocks(&self) -> u64 {
        self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::super::goal::SHAPE;
    use super::*;
    use crate::incore::Lifetime;

    const ALL: u64 = u64::MAX;

    #[test]
    fn zones_lie_behind_the_metadata_of_the_first_flex_groups() {
        let metadata = Zone::new(vec![(0, 8300), (16 * 32768, 32700), (32 * 32768, 900)]);
        let asked = Asked { count: 2, blocks: 16384 };
        let zones = HotZones::plan(&SHAPE, &metadata, asked);
        assert_eq!(zones.zones, [(8300, 24684), (16 * 32768 + 32700, 17 * 32768 + 16316)]);
        assert_eq!(zones.kept_for_hot(&SHAPE, 0, ALL), Some((8300, 24684)));
        assert_eq!(zones.kept_for_hot(&SHAPE, 1, ALL), None);
        assert_eq!(zones.kept_for_hot(&SHAPE, 16, ALL), Some((32700, 32768)));
        assert_eq!(zones.kept_for_hot(&SHAPE, 17, ALL), Some((0, 16316)));
        assert_eq!(zones.kept_for_hot(&SHAPE, 18, ALL), None);
        let log = metadata.with(&[(8300, 16384), (16 * 32768 + 32700 + 100, 500)]);
        let behind = HotZones::plan(&SHAPE, &log, asked);
        assert_eq!(behind.zones, [(24684, 41068), (16 * 32768 + 32700, 17 * 32768 + 16816)]);
        assert_eq!(behind.kept_blocks(), 2 * 16384, "the log is not counted");
        let half = zones.kept_blocks() / 2;
        assert_eq!(zones.kept_for_hot(&SHAPE, 0, half), Some((8300, 16492)), "the front");
        assert_eq!(zones.kept_for_hot(&SHAPE, 17, half), Some((0, 8124)));
        assert_eq!(zones.kept_for_hot(&SHAPE, 0, 0), None);
        let all = HotZones::plan(&SHAPE, &metadata, Asked { count: 9, blocks: ALL });
        assert_eq!(all.zones.len(), 3, "one a flex group");
        assert!(all.kept_blocks() <= SHAPE.blocks_count / 8);
    }

    #[test]
    fn zones_are_an_eighth_of_any_volume_and_at_most_half_of_a_flex_group() {
        // Size of the volume in GiB, groups in a flex group: zones, MiB of each.
        for (gib, flex_log, count, mib) in [
            (2, 2, 4, 64),
            (2, 4, 1, 256),
            (8, 2, 4, 256),
            (8, 4, 4, 256),
            (32, 2, 16, 256),
            (32, 4, 4, 1024),
            (64, 2, 32, 256),
            (64, 4, 8, 1024),
            (64, 0, 128, 64),
        ] {
            let shape =
                Shape { blocks_count: gib << 18, groups: gib as u32 * 8, flex_log, ..SHAPE };
            let found = Asked::default().on(&shape);
            assert_eq!(found, (count, mib << 8), "{gib} GiB, flex groups of 2^{flex_log}");
            assert_eq!(u64::from(found.0) * found.1, shape.blocks_count / 8);
        }
    }

    #[test]
    fn what_is_asked_for_is_kept_as_far_as_there_is_room() {
        let shape = Shape { blocks_count: 8 << 18, groups: 64, flex_log: 2, ..SHAPE };
        let on = |count, mib: u64| {
            let (count, blocks) = Asked { count, blocks: mib << 8 }.on(&shape);
            (count, blocks >> 8)
        };
        assert_eq!(on(0, 64), (4, 64));
        assert_eq!(on(0, 512), (4, 256), "an eighth");
        assert_eq!(on(2, 0), (2, 256), "half of a flex group");
        assert_eq!(on(2, 512), (2, 512));
        assert_eq!(on(8, 0), (8, 128));
        assert_eq!(on(99, 64), (16, 64), "one a flex group");
        let joined = Asked { count: 0, blocks: 64 << 8 }.joined();
        assert_eq!(joined, Asked { count: 1, blocks: 256 << 8 });
        let tiny = Shape { blocks_count: 7, groups: 1, ..SHAPE };
        assert_eq!(Asked::default().on(&tiny), (1, 0));
    }

    #[test]
    fn hot_files_go_to_the_zone_of_their_flex_group() {
        let metadata = Zone::new(vec![(0, 8300), (16 * 32768, 900)]);
        let zones = HotZones::plan(&SHAPE, &metadata, Asked { count: 2, blocks: 16384 });
        let life = Lifetime::Updated;
        let mut wish = Wish { inode_group: 17, regular: true, life, lblk: 3, near: None };
        assert_eq!(zones.goal(&SHAPE, &wish), 16 * 32768 + 900);
        wish.near = Some((2, 16 * 32768 + 1000));
        assert_eq!(zones.goal(&SHAPE, &wish), 16 * 32768 + 1001);
        wish.near = Some((2, 20 * 32768));
        assert_eq!(zones.goal(&SHAPE, &wish), 16 * 32768 + 900, "it moves in");
        wish = Wish { inode_group: 39, near: None, ..wish };
        assert_eq!(zones.goal(&SHAPE, &wish), 16 * 32768 + 900, "the zone before");
        wish.life = Lifetime::Long;
        assert_eq!(zones.goal(&SHAPE, &wish), LinuxPolicy.goal(&SHAPE, &wish));
    }
}
