//! Order of dirty pages for write-back: full blocks first, then SpatialClock.
//!
//! ```text
//!   a block of 64 pages is cached whole?   yes: its pages in ascending order, the block that was
//!                                               completed first before the others
//!                                          no:  the next page that SpatialClock gives up
//! ```
//!
//! Source: our own, on the informed-storage paper, section 5.3, and FAB. To go to an address costs
//! a simple flash device as much as many pages. A full block pays for the way; a block that is not
//! full had better wait for its other pages, or for the hand. FAB takes blocks that are not full as
//! well, and hot ones with them; SpatialClock leaves a stream of full blocks at every turn of its
//! hand.
//!
//! It is no policy of a cache: a full block of clean pages has nothing to be written. So it is not
//! in [`crate::POLICIES`].
//!
//! Promises: those of [`super::spatialclock`]. Blocks that were named and are still there are named
//! again only after the next change. Tested below and by `syncline-fs`.

use super::fab::Fab;
use super::spatialclock::SpatialClock;
use super::{Accept, Access, Order};
use crate::{FrameId, Frames};

/// The order of write-back.
pub struct SpatialBlocks {
    blocks: Fab,
    hand: SpatialClock,
}

impl Order for SpatialBlocks {
    const NAME: &'static str = "spatial-blocks";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(capacity: usize) -> Self {
        SpatialBlocks { blocks: Fab::new(capacity), hand: SpatialClock::new(capacity) }
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, access: Access) {
        self.blocks.insert(frames, frame, access);
        self.hand.insert(frames, frame, access);
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        self.blocks.remove(frames, frame);
        self.hand.remove(frames, frame);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        self.blocks.pick_full(frames, accept).or_else(|| self.hand.pick(frames, accept))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        self.blocks.memory_bytes(frames) + self.hand.memory_bytes(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn full_blocks_go_first_then_the_hand() {
        let mut small = Small::<SpatialBlocks>::new(140);
        // Block 2 is full before block 1; of block 0 there are three pages.
        small.run(&(128..192).map(|page: i64| -page).collect::<Vec<_>>());
        small.run(&(64..128).rev().map(|page: i64| -page).collect::<Vec<_>>());
        small.run(&[-9, -3, -7, -900]);
        let expected: Vec<u64> = (128..192).chain(64..128).chain([3, 7, 9, 900]).collect();
        assert_eq!(small.drain(), expected);
    }

    #[test]
    fn a_block_that_is_not_taken_is_not_named_again() {
        let mut small = Small::<SpatialBlocks>::new(140);
        small.run(&(64..192).map(|page: i64| -page).collect::<Vec<_>>());
        small.run(&[-500]);
        let Small { frames, order, .. } = &mut small;
        let mut named = || order.pick(frames, Accept::Dirty).and_then(|frame| frames.key(frame));
        let named: Vec<u64> = (64..192).filter_map(|_| named()).map(|key| key.index).collect();
        assert_eq!(named, (64..192).collect::<Vec<u64>>());
        assert!(order.pick(frames, Accept::Dirty).is_some(), "the hand");
    }
}
