//! Clock (second chance): a hand sweeps the slots, a set reference bit buys one more turn.
//!
//! ```text
//!        hand -> [ref=1: clear, pass] [pinned: pass] [ref=0: victim]
//! ```
//!
//! Source: F. Corbato, "A Paging Experiment with the Multics System", 1968. A page enters with its
//! bit clear, so a page used once goes before a page used twice (as in libCacheSim's one-bit Clock;
//! Tanenbaum's second chance sets it on entry).
//!
//! When not to use it: a scan larger than the cache still pushes out everything used less than once
//! per turn, and it does not tell clean from dirty.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock. A pick looks at no more
//! than two turns of the slots ever used. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::{FrameId, Frames};

/// The policy `clock`. The ring is the frame table.
pub struct Clock {
    hand: usize,
}

impl Order for Clock {
    const NAME: &'static str = "clock";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(_capacity: usize) -> Self {
        Clock { hand: 0 }
    }

    fn insert(&mut self, _frames: &Frames, _frame: FrameId, _access: Access) {}

    fn remove(&mut self, _frames: &Frames, _frame: FrameId) {}

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let slots = frames.high_water();
        for _ in 0..slots.saturating_mul(2) {
            if self.hand >= slots {
                self.hand = 0;
            }
            // A slot fits: the table is bounded by `u32::MAX`.
            let frame = FrameId(self.hand as u32);
            self.hand += 1;
            if frames.evictable(frame, accept) && !frames.take_reference(frame) {
                return Some(frame);
            }
        }
        None
    }

    fn memory_bytes(&self, _frames: &Frames) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    fn three() -> Small<Clock> {
        let mut small = Small::new(3);
        assert_eq!(small.run(&[0, 1, 2]), []);
        small
    }

    #[test]
    fn a_referenced_page_gets_a_second_chance() {
        let mut small = three();
        assert_eq!(small.run(&[0, 3, 4, 5]), [1, 2, 0]);
    }

    #[test]
    fn pinned_and_dirty_pages_are_passed_over() {
        let Small { frames, mut order, .. } = three();
        frames.set_pinned(FrameId(0), true);
        frames.set_dirty(FrameId(1), true);
        assert_eq!(order.pick(&frames, Accept::Clean), Some(FrameId(2)));
        frames.release(FrameId(2));
        assert_eq!(order.pick(&frames, Accept::Clean), None);
        assert_eq!(order.pick(&frames, Accept::Any), Some(FrameId(1)));
    }

    #[test]
    fn a_full_turn_of_referenced_pages_still_finds_one() {
        assert_eq!(three().run(&[0, 1, 2, 3]), [0]);
    }
}
