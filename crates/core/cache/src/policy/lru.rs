//! LRU: the page that was not used for the longest time goes first.
//!
//! ```text
//!    newest <-> ... <-> oldest
//! ```
//!
//! Source: R. Mattson et al., "Evaluation techniques for storage hierarchies", 1970.
//!
//! When not to use it: under many threads (every hit takes the list's lock), or with scans larger
//! than the cache. It does not tell clean from dirty.
//!
//! Promises: a hit is O(1); a pick looks at no more than 4096 frames from the oldest on, so that
//! pinned or dirty pages at the end of the list cannot make it slow. A picked frame that stays
//! becomes the newest. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::Lists;
use crate::{FrameId, Frames};

/// The policy `lru`.
pub struct Lru {
    lists: Lists<1>,
}

impl Order for Lru {
    const NAME: &'static str = "lru";

    fn new(capacity: usize) -> Self {
        Lru { lists: Lists::new(capacity) }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.push_newest(0, frame.0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.refresh(frame.0);
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        self.lists.oldest_evictable(0, frames, accept)
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Lists::<1>::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    fn three() -> Small<Lru> {
        let mut small = Small::new(3);
        assert_eq!(small.run(&[0, 1, 2]), []);
        small
    }

    #[test]
    fn the_oldest_goes_and_a_hit_makes_it_the_newest() {
        let mut small = three();
        assert_eq!(small.run(&[0, 3]), [1]);
        assert_eq!(small.drain(), [2, 0, 3]);
    }

    #[test]
    fn a_pick_that_is_not_taken_becomes_the_newest() {
        let mut small = three();
        assert_eq!(small.order.pick(&small.frames, Accept::Any), Some(FrameId(0)));
        assert_eq!(small.drain(), [1, 2, 0]);
    }

    #[test]
    fn pinned_and_dirty_pages_are_passed_over_in_place() {
        let Small { frames, mut order, .. } = three();
        frames.set_pinned(FrameId(0), true);
        frames.set_dirty(FrameId(1), true);
        assert_eq!(order.pick(&frames, Accept::Clean), Some(FrameId(2)));
        frames.set_pinned(FrameId(0), false);
        assert_eq!(order.pick(&frames, Accept::Clean), Some(FrameId(0)));
    }

    #[test]
    fn removing_twice_or_an_unknown_frame_does_nothing() {
        let Small { frames, mut order, .. } = three();
        for frame in [1, 1, 99] {
            order.remove(&frames, FrameId(frame));
        }
        order.hit(&frames, FrameId(1), Access::Read);
        assert_eq!(order.pick(&frames, Accept::Any), Some(FrameId(0)));
        assert_eq!(order.pick(&frames, Accept::Any), Some(FrameId(2)));
    }
}
