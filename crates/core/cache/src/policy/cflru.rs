//! CFLRU: LRU that gives up clean pages first, within a window at the old end.
//!
//! ```text
//!   newest | working region ........... | clean-first window, 25 % of the cache | oldest
//!                                         [C] [D] [C] [D]     victim: the oldest C, else D
//! ```
//!
//! Source: S.-Y. Park et al., "CFLRU: a replacement algorithm for flash memory", CASES 2006; the
//! window as in the informed-storage paper, section 5.4.1. The window's pages are kept in two
//! lists, clean and dirty, so that a pick searches nothing. A page of the window that write-back
//! cleans becomes the newest clean one of it.
//!
//! When not to use it: on flash where scattered writes cost more than their number
//! (informed-storage paper, table 5), or if reads matter: clean pages leave early, hot or not.
//!
//! Promises: a hit is O(1); a pick moves each page into the window once, and looks at no more than
//! 4096 frames of each list. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::Lists;
use crate::{FrameId, Frames};

const WORKING: usize = 0;
const CLEAN: usize = 1;
const DIRTY: usize = 2;
/// Share of the cache that is the window, in per cent.
const WINDOW_PERCENT: usize = 25;

/// The policy `cflru`.
pub struct Cflru {
    lists: Lists<3>,
    window: usize,
}

impl Order for Cflru {
    const NAME: &'static str = "cflru";

    fn new(capacity: usize) -> Self {
        let window = (capacity.saturating_mul(WINDOW_PERCENT) / 100).max(1);
        Cflru { lists: Lists::new(capacity), window }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.push_newest(WORKING, frame.0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        if self.lists.list_of(frame.0).is_some() {
            self.lists.push_newest(WORKING, frame.0);
        }
    }

    fn dirty(&mut self, frames: &Frames, frame: FrameId) {
        match (self.lists.list_of(frame.0), frames.is_dirty(frame)) {
            (Some(CLEAN), true) => self.lists.push_newest(DIRTY, frame.0),
            (Some(DIRTY), false) => self.lists.push_newest(CLEAN, frame.0),
            _ => {}
        }
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        while self.lists.len(CLEAN) + self.lists.len(DIRTY) < self.window {
            let Some(oldest) = self.lists.oldest(WORKING) else { break };
            let list = if frames.is_dirty(FrameId(oldest)) { DIRTY } else { CLEAN };
            self.lists.push_newest(list, oldest);
        }
        let lists = [CLEAN, DIRTY, WORKING];
        lists.into_iter().find_map(|list| self.lists.oldest_evictable(list, frames, accept))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Lists::<3>::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    /// Figure 1 of its paper (Figure 2 of the informed-storage paper): pages 8 and 6 are dirty, 7
    /// and 5 clean, these four are the window. LRU gives up 8, 7, 6, 5, CFLRU 7, 5, 8, 6.
    #[test]
    fn the_papers_example() {
        // Oldest first; a cache of 16 has a window of 4. What enters it later is dirty.
        let pages = [-8, 7, -6, 5, -4, -3, -2, -1, -11, -12, -13, -14, -15, -16, -17, -18];
        let mut small = Small::<Cflru>::new(16);
        small.run(&pages);
        assert_eq!(small.drain()[..4], [7, 5, 8, 6]);
        let mut lru = Small::<crate::policy::lru::Lru>::new(16);
        lru.run(&pages);
        assert_eq!(lru.drain()[..4], [8, 7, 6, 5]);
    }

    #[test]
    fn clean_pages_of_the_window_go_before_older_dirty_ones() {
        // A cache of 8 has a window of 2: the two oldest, 1 (dirty) and 2 (clean).
        let mut small = Small::<Cflru>::new(8);
        small.run(&[-1, 2, -3, 4, 5, 6, 7, 8]);
        // Then 1 and 3 are the window, both dirty: the older one goes, although 4 is clean.
        assert_eq!(small.run(&[9, 10]), [2, 1]);
        // Window 3, 4: clean first.
        assert_eq!(small.run(&[11]), [4]);
    }

    #[test]
    fn a_hit_leaves_the_window() {
        let mut small = Small::<Cflru>::new(8);
        small.run(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // The window was 1, 2; 2 is used and 3 takes its place.
        assert_eq!(small.run(&[2, 10, 11]), [3, 4]);
    }

    #[test]
    fn a_page_that_is_written_back_in_the_window_is_clean() {
        let mut small = Small::<Cflru>::new(8);
        small.run(&[-1, -2, -3, 4, 5, 6, 7, 8, 9]);
        let frame = small.frame(3);
        small.frames.set_dirty(frame, false);
        small.order.dirty(&small.frames, frame);
        assert_eq!(small.run(&[10, 11]), [3, 4]);
    }
}
