//! S3-FIFO: a small queue lets pages through that came once; a main one keeps those used again.
//!
//! ```text
//!   miss -----------------> small (10 %) -- used twice or more --> main (90 %)
//!                             '--> ghosts (keys only, 90 %)        '-- used: again, one use less
//!   miss, key in ghosts --> main
//! ```
//!
//! Source: J. Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023. Uses are
//! counted up to 3; a page that moves to the main queue begins at 0. A page leaves the small queue
//! while the main one is within its share. Until the first page leaves, new ones fill the main
//! queue once the small one has its share.
//!
//! When not to use it: for pages that are used a few times at first and long after again, and for
//! small caches, whose small queue is a few pages. It does not tell clean from dirty.
//!
//! Promises: a hit is O(1) and moves nothing; a pick looks at each page four times at most. Misses
//! are those of libCacheSim from 20 frames on (`lab/scripts/compare.py`). Tested below and in
//! `tests/it`.

use super::{Accept, Access, Order};
use crate::ghosts::Ghosts;
use crate::lists::Lists;
use crate::{FrameId, Frames, PageKey};

const SMALL: usize = 0;
const MAIN: usize = 1;
const SMALL_PERCENT: usize = 10;
const GHOST_PERCENT: usize = 90;
/// Uses are counted up to this.
const USES_MAX: u8 = 3;
/// Uses in the small queue with which a page moves to the main one.
const USES_TO_MOVE: u8 = 2;

/// The policy `s3-fifo`. The mark of a slot: it was picked.
pub struct S3Fifo {
    lists: Lists<2>,
    ghosts: Ghosts,
    small_max: usize,
    main_max: usize,
    /// A page was picked.
    has_picked: bool,
    /// By slot.
    uses: Vec<u8>,
    /// The key that [`Order::miss`] found among the ghosts.
    returned: Option<PageKey>,
}

impl S3Fifo {
    fn put(&mut self, list: usize, frame: FrameId, uses: u8) {
        let at = frame.0 as usize;
        if self.uses.len() <= at {
            self.uses.resize(at + 1, 0);
        }
        self.uses[at] = uses;
        self.lists.push_newest(list, frame.0);
    }

    /// The first page of `list` that may go and is not used. Those that are used go on.
    fn search(&mut self, list: usize, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let mut next = self.lists.oldest(list);
        let turns = if list == MAIN { usize::from(USES_MAX) + 1 } else { 1 };
        for _ in 0..self.lists.len(list).saturating_mul(turns) {
            let frame = FrameId(next?);
            next = self.lists.newer(frame.0);
            if !frames.evictable(frame, accept) {
                continue;
            }
            match self.uses[frame.0 as usize] {
                uses if list == SMALL && uses >= USES_TO_MOVE => self.put(MAIN, frame, 0),
                uses if list == MAIN && uses > 0 => {
                    self.put(MAIN, frame, uses - 1);
                    // The only page of its list follows itself.
                    next = next.or_else(|| self.lists.oldest(list));
                }
                _ => return Some(frame),
            }
        }
        None
    }
}

impl Order for S3Fifo {
    const NAME: &'static str = "s3-fifo";

    fn new(capacity: usize) -> Self {
        let share = |percent| capacity.saturating_mul(percent) / 100;
        let small_max = share(SMALL_PERCENT);
        S3Fifo {
            lists: Lists::new(capacity),
            ghosts: Ghosts::new(share(GHOST_PERCENT)),
            small_max,
            main_max: capacity - small_max,
            has_picked: false,
            uses: Vec::new(),
            returned: None,
        }
    }

    fn miss(&mut self, key: PageKey) {
        self.returned = self.ghosts.take(key).then_some(key);
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let key = frames.key(frame);
        let returned = self.returned.take();
        let again = key.is_some_and(|key| returned == Some(key) || self.ghosts.take(key));
        let fills_main = !self.has_picked && self.lists.len(SMALL) >= self.small_max;
        self.put(if again || fills_main { MAIN } else { SMALL }, frame, 0);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        if self.lists.list_of(frame.0).is_some() {
            let uses = &mut self.uses[frame.0 as usize];
            *uses = (*uses + 1).min(USES_MAX);
            self.lists.set_mark(frame.0, false);
        }
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        let picked = self.lists.mark(frame.0);
        // A page that its owner drops, as when the file is deleted, does not come again.
        if self.lists.unlink(frame.0) == Some(SMALL) && picked {
            if let Some(key) = frames.key(frame) {
                self.ghosts.push(key);
            }
        }
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        self.has_picked = true;
        let full = self.lists.len(MAIN) > self.main_max || self.lists.len(SMALL) == 0;
        let order = if full { [MAIN, SMALL] } else { [SMALL, MAIN] };
        let frame = order.into_iter().find_map(|list| self.search(list, frames, accept))?;
        // A caller that does not take it gets another one next.
        self.lists.refresh(frame.0);
        self.lists.set_mark(frame.0, true);
        Some(frame)
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * (Lists::<2>::SLOT_BYTES + size_of::<u8>())
            + self.ghosts.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn pages_that_came_once_leave_first_and_are_remembered() {
        // 20 frames: 2 small, 18 main, 18 ghosts.
        let mut small = Small::<S3Fifo>::new(20);
        // The first two are in the small queue, the others in the main one.
        let pages: Vec<i64> = (1..=20).collect();
        small.run(&pages);
        let list = |small: &Small<S3Fifo>, page| small.order.lists.list_of(small.frame(page).0);
        assert_eq!((list(&small, 2), list(&small, 3)), (Some(SMALL), Some(MAIN)));
        // 1 is used twice and moves; 2 once, and leaves.
        assert_eq!(small.run(&[1, 1, 2, 21]), [2]);
        assert_eq!((list(&small, 1), list(&small, 21)), (Some(MAIN), Some(SMALL)));
        // A ghost comes back, into the main queue; a scan passes both by.
        assert_eq!(small.run(&[2]), [3]);
        let scan: Vec<i64> = (100..130).collect();
        assert_eq!(small.run(&scan).len(), 30);
        assert!(small.run(&[1, 2]).is_empty());
        // Used twice in the main queue: two more turns, after the pages of the small one.
        assert_eq!(small.run(&[1]), []);
        assert_eq!(small.drain()[18..], [2, 1]);
    }

    #[test]
    fn a_page_that_may_not_go_keeps_its_place() {
        let mut small = Small::<S3Fifo>::new(40);
        small.run(&[-1, 2, 3]);
        let second = small.frame(2);
        assert_eq!(small.order.pick(&small.frames, Accept::Clean), Some(second));
        // It was not taken: the next one.
        assert_eq!(small.order.pick(&small.frames, Accept::Clean), Some(small.frame(3)));
        assert_eq!(small.order.pick(&small.frames, Accept::Any), Some(small.frame(1)));
        // Dropped, not evicted: no ghost.
        small.order.hit(&small.frames, second, Access::Read);
        small.order.remove(&small.frames, second);
        small.order.insert(&small.frames, second, Access::Read);
        assert_eq!(small.order.lists.list_of(second.0), Some(SMALL));
    }
}
