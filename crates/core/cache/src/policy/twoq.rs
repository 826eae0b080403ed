//! 2Q: pages come into a short queue; those that come again after leaving it are kept by LRU.
//!
//! ```text
//!   miss ----------------> A1in (first in first out, 25 %) --> A1out (keys only, 50 %)
//!   miss, key in A1out --> Am (LRU)
//! ```
//!
//! Source: T. Johnson and D. Shasha, "2Q: A Low Overhead High Performance Buffer Management
//! Replacement Algorithm", VLDB 1994, the full version. A hit in A1in changes nothing. A page
//! leaves A1in while that is longer than its share, else Am.
//!
//! When not to use it: for small caches and pages that are used a few times within a short while
//! and never again; each page that is kept was missed twice. Not clean from dirty.
//!
//! Promises: a hit is O(1); a pick looks at no more than 4096 frames of each list. Tested below and
//! in `tests/it`.

use super::{Accept, Access, Order};
use crate::ghosts::Ghosts;
use crate::lists::Lists;
use crate::{FrameId, Frames, PageKey};

const IN: usize = 0;
const MAIN: usize = 1;
const IN_PERCENT: usize = 25;
const OUT_PERCENT: usize = 50;

/// The policy `2q`. The mark of a slot in A1in: it was picked.
pub struct TwoQ {
    lists: Lists<2>,
    out: Ghosts,
    in_max: usize,
    /// The key that [`Order::miss`] found in A1out.
    returned: Option<PageKey>,
}

impl Order for TwoQ {
    const NAME: &'static str = "2q";

    fn new(capacity: usize) -> Self {
        let share = |percent| capacity.saturating_mul(percent) / 100;
        let (out, in_max) = (Ghosts::new(share(OUT_PERCENT)), share(IN_PERCENT));
        TwoQ { lists: Lists::new(capacity), out, in_max, returned: None }
    }

    fn miss(&mut self, key: PageKey) {
        self.returned = self.out.take(key).then_some(key);
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let key = frames.key(frame);
        let returned = self.returned.take();
        let again = key.is_some_and(|key| returned == Some(key) || self.out.take(key));
        self.lists.push_newest(if again { MAIN } else { IN }, frame.0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        match self.lists.list_of(frame.0) {
            Some(MAIN) => self.lists.refresh(frame.0),
            Some(_) => self.lists.set_mark(frame.0, false),
            None => {}
        }
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        let picked = self.lists.mark(frame.0);
        // A page that its owner drops, as when the file is deleted, does not come again.
        if self.lists.unlink(frame.0) == Some(IN) && picked {
            if let Some(key) = frames.key(frame) {
                self.out.push(key);
            }
        }
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let lists = if self.lists.len(IN) > self.in_max { [IN, MAIN] } else { [MAIN, IN] };
        let mut lists = lists.into_iter();
        let frame = lists.find_map(|list| self.lists.oldest_evictable(list, frames, accept))?;
        self.lists.set_mark(frame.0, true);
        Some(frame)
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Lists::<2>::SLOT_BYTES + self.out.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn only_what_comes_again_after_leaving_is_kept() {
        // 8 frames: A1in of 2, A1out of 4.
        let mut small = Small::<TwoQ>::new(8);
        assert_eq!(small.run(&[1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 9, 10]), [1, 2]);
        // 1 comes again: into Am. A scan passes it by.
        assert_eq!(small.run(&[1, 11, 12, 13, 14, 15, 16, 17]), [3, 4, 5, 6, 7, 8, 9, 10]);
        // 2 was forgotten: five keys came after it.
        assert_eq!(small.run(&[2]), [11]);
        assert_eq!(small.drain(), [12, 13, 14, 15, 16, 1, 17, 2]);
    }

    #[test]
    fn a_page_that_was_dropped_is_new_when_it_comes_again() {
        let mut small = Small::<TwoQ>::new(4);
        small.run(&[1, 2, 3, 4]);
        let (first, second) = (small.frame(1), small.frame(2));
        small.order.remove(&small.frames, first);
        small.order.insert(&small.frames, first, Access::Read);
        assert_eq!(small.order.lists.list_of(first.0), Some(IN));
        assert_eq!(small.order.pick(&small.frames, Accept::Any), Some(second));
        small.order.remove(&small.frames, second);
        small.order.insert(&small.frames, second, Access::Read);
        assert_eq!(small.order.lists.list_of(second.0), Some(MAIN));
    }
}
