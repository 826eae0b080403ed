//! Clock (second chance): a hand sweeps the slots, a set reference bit buys one more turn.
//!
//! ```text
//!        hand -> [ref=1: clear, pass] [pinned: pass] [ref=0: victim]
//! ```
//!
//! A page enters with its bit clear, so a page used once goes before a page used twice (as in
//! libCacheSim's one-bit Clock; Tanenbaum's second chance sets it on entry).
//!
//! When not to use it: a scan larger than the cache still pushes out everything used less than once
//! per turn, and it does not tell clean from dirty.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock. A pick looks at no more
//! than two turns of the slots ever used. Tested below and in `tests/golden.rs`.

use crate::{Accept, Access, FrameId, Frames, Policy};
use parking_lot::Mutex;

/// The policy `clock`.
pub struct Clock {
    hand: Mutex<usize>,
}

impl Clock {
    /// The capacity does not matter: the ring is the frame table.
    pub fn new(_capacity_frames: usize) -> Self {
        Clock { hand: Mutex::new(0) }
    }
}

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn on_insert(&self, _frames: &Frames, _frame: FrameId, _access: Access) {}

    #[inline]
    fn on_hit(&self, frames: &Frames, frame: FrameId, _access: Access) {
        frames.reference(frame);
    }

    fn on_remove(&self, _frames: &Frames, _frame: FrameId) {}

    fn pick_victim(&self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let slots = frames.high_water();
        let mut hand = self.hand.lock();
        for _ in 0..slots.saturating_mul(2) {
            if *hand >= slots {
                *hand = 0;
            }
            // A slot fits: the table is bounded by `u32::MAX`.
            let frame = FrameId(*hand as u32);
            *hand += 1;
            if frames.evictable(frame, accept) && !frames.take_reference(frame) {
                return Some(frame);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageKey;

    fn three() -> (Frames, Clock) {
        let frames = Frames::new(3);
        for index in 0..3 {
            frames.insert(PageKey { file: 0, index }, false).unwrap();
        }
        (frames, Clock::new(3))
    }

    #[test]
    fn a_referenced_page_gets_a_second_chance() {
        let (frames, clock) = three();
        clock.on_hit(&frames, FrameId(0), Access::Read);
        assert_eq!(clock.pick_victim(&frames, Accept::Any), Some(FrameId(1)));
        assert_eq!(clock.pick_victim(&frames, Accept::Any), Some(FrameId(2)));
        assert_eq!(clock.pick_victim(&frames, Accept::Any), Some(FrameId(0)));
    }

    #[test]
    fn pinned_and_dirty_pages_are_passed_over() {
        let (frames, clock) = three();
        frames.set_pinned(FrameId(0), true);
        frames.set_dirty(FrameId(1), true);
        assert_eq!(clock.pick_victim(&frames, Accept::Clean), Some(FrameId(2)));
        frames.release(FrameId(2));
        assert_eq!(clock.pick_victim(&frames, Accept::Clean), None);
        assert_eq!(clock.pick_victim(&frames, Accept::Any), Some(FrameId(1)));
    }

    #[test]
    fn a_full_turn_of_referenced_pages_still_finds_one() {
        let (frames, clock) = three();
        for slot in 0..3 {
            clock.on_hit(&frames, FrameId(slot), Access::Read);
        }
        assert_eq!(clock.pick_victim(&frames, Accept::Any), Some(FrameId(0)));
    }
}
