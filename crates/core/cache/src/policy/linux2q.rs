//! Linux 2Q: an inactive list that pages enter and leave, an active one for those used again.
//!
//! ```text
//!   miss -> inactive -(second use after entry)-> active       active : inactive at most 3 : 1
//!              |   ^--------- oldest -----------------'
//!              v
//!            victim: the oldest inactive page
//! ```
//!
//! Source: the page cache of Linux 2.6 (`mark_page_accessed`: the first use of an inactive page
//! sets a mark, the next one activates it), with the ratio of the informed-storage paper, section
//! 5.4.1. A page that is moved back starts without a mark.
//!
//! When not to use it: for data that is written once in large amounts beside little that is reused;
//! with a loop between a quarter of the cache and all of it, LRU would keep what this evicts.
//!
//! Promises: a hit is O(1); a pick looks at no more than 4096 frames of each list, and moves at
//! most as many back as were activated since the last one. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::Lists;
use crate::{FrameId, Frames};

const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
/// Active pages for one inactive page, at most.
const ACTIVE_RATIO: usize = 3;

/// The policy `linux2q`.
pub struct Linux2q {
    lists: Lists<2>,
}

impl Order for Linux2q {
    const NAME: &'static str = "linux2q";

    fn new(capacity: usize) -> Self {
        Linux2q { lists: Lists::new(capacity) }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.push_newest(INACTIVE, frame.0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        if self.lists.list_of(frame.0) == Some(INACTIVE) && self.lists.mark(frame.0) {
            self.lists.push_newest(ACTIVE, frame.0);
        } else {
            self.lists.set_mark(frame.0, true);
        }
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        while self.lists.len(ACTIVE) > ACTIVE_RATIO * self.lists.len(INACTIVE) {
            self.lists.shift(ACTIVE, INACTIVE);
        }
        let inactive = self.lists.oldest_evictable(INACTIVE, frames, accept);
        inactive.or_else(|| self.lists.oldest_evictable(ACTIVE, frames, accept))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Lists::<2>::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn the_second_use_after_entry_activates() {
        let mut small = Small::<Linux2q>::new(4);
        // 1 is used twice more and is active; 2 once more: it leaves in its turn.
        assert_eq!(small.run(&[1, 2, 3, 4, 1, 1, 2]), []);
        assert_eq!(small.run(&[5, 6, 7]), [2, 3, 4]);
    }

    #[test]
    fn the_active_list_gives_back_when_it_is_over_three_quarters() {
        let mut small = Small::<Linux2q>::new(4);
        small.run(&[1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]);
        // All four are active. One goes back, which makes 3 : 1, and is the victim.
        assert_eq!(small.run(&[5, 6]), [1, 5]);
        assert_eq!(small.drain(), [6, 2, 3, 4]);
    }
}
