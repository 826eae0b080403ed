//! SIEVE: first in first out with a hand; pages that were used stay where they are.
//!
//! ```text
//!   newest ... [used: clear, stay] <- hand ... oldest        the hand moves towards the newest
//! ```
//!
//! Source: Y. Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024. Unlike Clock, new pages come in
//! at the newest end and not at the hand, so that the hand sieves them soon.
//!
//! When not to use it: for scans and block traces with little reuse of new pages it loses to LRU.
//! It does not tell clean from dirty.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock; a pick looks at no more
//! than two turns of the pages. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::Lists;
use crate::{FrameId, Frames};

/// The policy `sieve`.
pub struct Sieve {
    lists: Lists<1>,
    /// Looked at next; `None`: the oldest.
    hand: Option<u32>,
}

impl Order for Sieve {
    const NAME: &'static str = "sieve";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(capacity: usize) -> Self {
        Sieve { lists: Lists::new(capacity), hand: None }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        self.lists.push_newest(0, frame.0);
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        if self.hand == Some(frame.0) {
            self.hand = self.lists.newer(frame.0);
        }
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        for _ in 0..self.lists.len(0).saturating_mul(2) {
            let slot = self.hand.or_else(|| self.lists.oldest(0))?;
            self.hand = self.lists.newer(slot);
            let frame = FrameId(slot);
            if frames.evictable(frame, accept) && !frames.take_reference(frame) {
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
    fn the_hand_goes_on_where_it_was() {
        // The example of the paper's figure 1: A..G as 1..7, with A, B and G used; H comes, A is
        // used again, D again, I comes.
        let mut small = Small::<Sieve>::new(7);
        small.run(&[1, 2, 3, 4, 5, 6, 7, 1, 2, 7]);
        assert_eq!(small.run(&[8, 1, 4, 9]), [3, 5]);
        // 10 takes 6; then the hand clears 7 and goes on to the new ones.
        assert_eq!(small.run(&[10, 11]), [6, 8]);
    }
}
