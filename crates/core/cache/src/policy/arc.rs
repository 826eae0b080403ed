//! ARC: two LRU lists, pages that came once and pages used again, whose shares follow the misses.
//!
//! ```text
//!   once (LRU, about p) ---used---> often (LRU, the rest)
//!     '--> ghosts of once             '--> ghosts of often        keys only
//!   a miss among the ghosts of once: p grows; of often: p shrinks; the page goes to often
//! ```
//!
//! Source: N. Megiddo and D. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST
//! 2003. Once and its ghosts are as many as frames at most, all four lists twice as many. The
//! paper trims ghosts before it evicts, this does when a page comes in: the same keys go.
//!
//! When not to use it: for loops a little longer than the cache, as with LRU. It does not tell
//! clean from dirty.
//!
//! Promises: a hit is O(1); a pick looks at no more than 4096 frames of each list. Misses are those
//! of libCacheSim (`lab/scripts/compare.py`). Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::ghosts::Ghosts;
use crate::lists::Lists;
use crate::{FrameId, Frames, PageKey};

const ONCE: usize = 0;
const OFTEN: usize = 1;

/// The policy `arc`. The mark of a slot: it was picked.
pub struct Arc {
    lists: Lists<2>,
    /// Of `ONCE` and of `OFTEN`.
    ghosts: [Ghosts; 2],
    capacity: usize,
    /// Pages that came once, wanted: p of the paper.
    once_wanted: f64,
    /// The key that [`Order::miss`] found among the ghosts, and whose they were.
    returned: Option<(PageKey, usize)>,
}

impl Arc {
    /// Forgets a ghost that is asked for and moves the shares. The list whose ghost it was.
    fn take_ghost(&mut self, key: PageKey) -> Option<usize> {
        let lens = [0, 1].map(|list| self.ghosts[list].len() as f64);
        let list = [ONCE, OFTEN].into_iter().find(|list| self.ghosts[*list].take(key))?;
        let step = (lens[1 - list] / lens[list]).max(1.0);
        let step = if list == ONCE { step } else { -step };
        self.once_wanted = (self.once_wanted + step).clamp(0.0, self.capacity as f64);
        Some(list)
    }
}

impl Order for Arc {
    const NAME: &'static str = "arc";

    fn new(capacity: usize) -> Self {
        Arc {
            lists: Lists::new(capacity),
            ghosts: [0, 1].map(|_| Ghosts::new(capacity.saturating_mul(2))),
            capacity,
            once_wanted: 0.0,
            returned: None,
        }
    }

    fn miss(&mut self, key: PageKey) {
        self.returned = self.take_ghost(key).map(|list| (key, list));
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let key = frames.key(frame);
        let returned = self.returned.take().map(|(key, _)| key);
        let again = key.is_some_and(|key| returned == Some(key) || self.take_ghost(key).is_some());
        self.lists.push_newest(if again { OFTEN } else { ONCE }, frame.0);
        if self.lists.len(ONCE) + self.ghosts[ONCE].len() > self.capacity {
            self.ghosts[ONCE].forget_oldest();
        }
        let all = |list: usize| self.lists.len(list) + self.ghosts[list].len();
        if all(ONCE) + all(OFTEN) > 2 * self.capacity {
            self.ghosts[OFTEN].forget_oldest();
        }
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        if self.lists.list_of(frame.0).is_some() {
            self.lists.push_newest(OFTEN, frame.0);
        }
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        let picked = self.lists.mark(frame.0);
        // A page that its owner drops, as when the file is deleted, does not come again.
        if let (Some(list), Some(key), true) =
            (self.lists.unlink(frame.0), frames.key(frame), picked)
        {
            self.ghosts[list].push(key);
        }
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let once = self.lists.len(ONCE) as f64;
        let often_wants = matches!(self.returned, Some((_, OFTEN)));
        let too_many = once > self.once_wanted || once == self.once_wanted && often_wants;
        let first = if once > 0.0 && too_many || self.lists.len(OFTEN) == 0 { ONCE } else { OFTEN };
        let mut lists = [first, 1 - first].into_iter();
        let frame = lists.find_map(|list| self.lists.oldest_evictable(list, frames, accept))?;
        self.lists.set_mark(frame.0, true);
        Some(frame)
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        let ghosts: usize = self.ghosts.iter().map(Ghosts::memory_bytes).sum();
        frames.high_water() * Lists::<2>::SLOT_BYTES + ghosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn shares_follow_the_ghosts() {
        let mut small = Small::<Arc>::new(4);
        // 1 and 2 are used again. 5 takes 3, which came once; 3 comes back: once grows by one.
        assert_eq!(small.run(&[1, 2, 3, 4, 1, 2, 5]), [3]);
        assert_eq!(small.order.once_wanted, 0.0);
        assert_eq!(small.run(&[3]), [4]);
        assert_eq!((small.order.once_wanted, small.order.lists.len(OFTEN)), (1.0, 3));
        // Once holds 5, which is what is wanted: 1 of the others goes, and coming back shrinks it.
        assert_eq!(small.run(&[6]), [1]);
        assert_eq!(small.run(&[1]), [5]);
        assert_eq!((small.order.once_wanted, small.order.lists.len(OFTEN)), (0.0, 3));
        assert_eq!(small.drain(), [6, 2, 3, 1]);
    }

    #[test]
    fn ghosts_are_bounded() {
        let mut small = Small::<Arc>::new(8);
        for round in 0..50 {
            let pages: Vec<i64> = (0..30).flat_map(|n| [n * round % 41, n, n]).collect();
            small.run(&pages);
            let arc = &small.order;
            let all = |list: usize| arc.lists.len(list) + arc.ghosts[list].len();
            assert!(all(ONCE) <= 8 && all(ONCE) + all(OFTEN) <= 16, "round {round}");
        }
    }
}
