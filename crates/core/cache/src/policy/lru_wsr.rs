//! LRU-WSR: LRU in which a dirty page gets a second chance before it is written.
//!
//! ```text
//!   oldest: clean             -> victim
//!           dirty, cold       -> victim
//!           dirty, not cold   -> cold, becomes the newest; the next one is looked at
//! ```
//!
//! Source: H. Jung et al., "LRU-WSR: Integration of LRU and Writes Sequence Reordering for Flash
//! Memory", 2008. A use of the page makes it not cold.
//!
//! When not to use it: as CFLRU, where the order of writes costs more than their number; a cache of
//! dirty pages that are used once is LRU one turn later.
//!
//! Promises: a hit is O(1). A pick moves each page at most once, and only those that were used or
//! came in since they were moved last; it passes over no more than 4096 that may not go. Tested
//! below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::{Lists, SCAN_MAX};
use crate::{FrameId, Frames};

/// The policy `lru-wsr`. The mark of a slot is the cold flag.
pub struct LruWsr {
    lists: Lists<1>,
}

impl Order for LruWsr {
    const NAME: &'static str = "lru-wsr";

    fn new(capacity: usize) -> Self {
        LruWsr { lists: Lists::new(capacity) }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.push_newest(0, frame.0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        if self.lists.list_of(frame.0).is_some() {
            self.lists.push_newest(0, frame.0);
        }
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let mut slot = self.lists.oldest(0)?;
        let mut passed = 0;
        // Each page is met twice at most: as it is and, moved, as cold.
        for _ in 0..self.lists.len(0).saturating_mul(2) {
            let frame = FrameId(slot);
            if !frames.evictable(frame, accept) {
                passed += 1;
                if passed > SCAN_MAX {
                    return None;
                }
                slot = self.lists.newer(slot)?;
            } else if frames.is_dirty(frame) && !self.lists.mark(slot) {
                let newer = self.lists.newer(slot);
                self.lists.refresh(slot);
                self.lists.set_mark(slot, true);
                slot = newer.unwrap_or(slot);
            } else {
                self.lists.refresh(slot);
                return Some(frame);
            }
        }
        None
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Lists::<1>::SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn a_dirty_page_is_spared_once() {
        let mut small = Small::<LruWsr>::new(3);
        // 1 is spared and becomes the newest; 2 is clean.
        assert_eq!(small.run(&[-1, 2, 3, 4]), [2]);
        // 3, then 1, which is cold and not spared again.
        assert_eq!(small.run(&[5, 6]), [3, 1]);
    }

    /// Each step of the paper's rule once, four frames, oldest first; D is dirty, c the cold bit.
    #[test]
    fn a_sequence_by_hand() {
        let mut small = Small::<LruWsr>::new(4);
        assert_eq!(small.run(&[-1, 2, -3, 4]), []);
        // 1D 2 3D 4     5: 1 gets its bit, 2 is clean and goes       3D 4 1Dc 5
        assert_eq!(small.run(&[5]), [2]);
        // 3D 4 1Dc 5    6: 3 gets its bit, 4 goes                    1Dc 5 3Dc 6
        assert_eq!(small.run(&[6]), [4]);
        // 1Dc 5 3Dc 6   1 is written: its bit is cleared             5 3Dc 6 1D
        assert_eq!(small.run(&[-1]), []);
        // 5 3Dc 6 1D    7: 5 goes                                    3Dc 6 1D 7
        // 3Dc 6 1D 7    8: 3 had its second chance and goes          6 1D 7 8
        // 6 1D 7 8      9: 6 goes                                    1D 7 8 9
        // 1D 7 8 9      10: 1 gets its bit again, 7 goes             8 9 1Dc 10
        assert_eq!(small.run(&[7, 8, 9, 10]), [5, 3, 6, 7]);
        assert_eq!(small.drain(), [8, 9, 1, 10]);
    }

    #[test]
    fn a_use_makes_a_cold_page_warm() {
        let mut small = Small::<LruWsr>::new(3);
        assert_eq!(small.run(&[-1, 2, 3, 4, 1, 5, 6, 7]), [2, 3, 4, 5]);
        assert_eq!(small.run(&[8, 9]), [6, 1]);
    }

    #[test]
    fn a_cache_of_dirty_pages_gives_up_the_oldest_after_one_turn() {
        let mut small = Small::<LruWsr>::new(3);
        assert_eq!(small.run(&[-1, -2, -3, -4]), [1]);
        assert_eq!(Small::<LruWsr>::new(1).run(&[-1, -2, -3]), [1, 2]);
    }
}
