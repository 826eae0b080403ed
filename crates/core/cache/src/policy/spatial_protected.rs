//! SpatialClock with protection: new pages and pages that were used often survive more turns.
//!
//! ```text
//!   hand -> [used since the last turn: one use more on its account, pass]
//!           [young: pass]   [uses on its account: one less, pass]   [else: victim]
//! ```
//!
//! Source: our own, on the informed-storage paper, section 5.3. SpatialClock's victims are ordered
//! by address, so a page may be met by the hand right after it came in and leave before it could be
//! used. Here a page is young for a while, counted in pages that came in after it, and a page that
//! was used in several turns (up to three are counted) is kept for as many turns more. The order of
//! victims, and so of writes, is the same ascending one.
//!
//! When not to use it: for a workload that never returns to a page it costs a turn of the hand for
//! nothing; where writes cost the same in any order, use a policy without a spatial order.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock; an insert is as in
//! `spatial.rs`; a pick looks at no more than six turns of the pages, at one or two as a rule.
//! Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::spatial::{Spatial, Sweep};
use crate::{FrameId, Frames};

/// Uses that are counted, in the low bits of a slot's state.
const USES_MAX: u16 = 3;
const USES_BITS: u32 = 2;
/// The rest is the time of arrival, counted in this part of the cache; it wraps after 256 caches.
const TICKS_PER_CACHE: usize = 64;
/// A page is young for this many ticks: a quarter of the cache came in after it.
const YOUNG_TICKS: u16 = 16;
/// Turns after which every page that may go has lost all protection: the bit, the uses, and then
/// it is taken young or not.
const TURNS_MAX: usize = 6;

/// The policy `spatial-protected`.
pub struct SpatialProtected {
    sweep: Sweep,
    states: Vec<u16>,
    /// Pages that came in so far, and how many make a tick.
    arrived: u64,
    tick: u64,
}

impl SpatialProtected {
    /// The time as it is in the high bits of a state.
    fn now(&self) -> u16 {
        ((self.arrived / self.tick) as u16) << USES_BITS
    }
}

impl Order for SpatialProtected {
    const NAME: &'static str = "spatial-protected";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(capacity: usize) -> Self {
        let tick = (capacity / TICKS_PER_CACHE).max(1) as u64;
        SpatialProtected { sweep: Sweep::new(capacity), states: Vec::new(), arrived: 0, tick }
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let slot = frame.0 as usize;
        if slot >= self.states.len() {
            self.states.resize(slot + 1, 0);
        }
        self.arrived += 1;
        self.states[slot] = self.now();
        self.sweep.insert(frames, frame);
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        self.sweep.remove(frames, frame);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let now = self.now();
        let Self { sweep, states, .. } = self;
        let protected = sweep.pick(frames, accept, TURNS_MAX - 1, |frame| {
            let state = &mut states[frame.0 as usize];
            let uses = *state & USES_MAX;
            if frames.take_reference(frame) {
                *state += u16::from(uses < USES_MAX);
                return true;
            }
            let young = now.wrapping_sub(*state & !USES_MAX) >> USES_BITS < YOUNG_TICKS;
            if !young && uses > 0 {
                *state -= 1;
            }
            young || uses > 0
        });
        protected.or_else(|| self.sweep.pick(frames, accept, 1, |_| false))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        let each = Spatial::SLOT_BYTES + size_of::<u16>();
        frames.high_water() * each + self.sweep.order().memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    /// 128 pages: a tick is two arrivals, a page is young while 32 come in after it.
    fn full() -> Small<SpatialProtected> {
        let mut small = Small::new(128);
        assert_eq!(small.run(&(0..128).map(|page| page * 10).collect::<Vec<_>>()), []);
        small
    }

    #[test]
    fn a_page_that_came_in_before_the_hand_is_young() {
        let mut small = full();
        // 5 comes in behind the hand, 11 right before it: SpatialClock would take 11 next.
        assert_eq!(small.run(&[5, 11]), [0, 10]);
        assert_eq!(small.run(&[2000, 2001]), [20, 30]);
    }

    #[test]
    fn uses_buy_a_turn_each() {
        let mut small = full();
        // 50 is used in two turns, 40 in one; the others of the lower half in none.
        small.run(&[40, 50]);
        let mut gone = small.run(&(5000..5126).collect::<Vec<_>>());
        small.run(&[50]);
        gone.extend(small.run(&(6000..6126).collect::<Vec<_>>()));
        gone.extend(small.drain());
        let position = |page: u64| gone.iter().position(|gone| *gone == page).expect("all left");
        let unused = (0..64).map(|page| page * 10).filter(|page| ![40, 50].contains(page));
        assert!(unused.max_by_key(|page| position(*page)).map(position) < Some(position(40)));
        assert!(position(40) < position(50), "{gone:?}");
    }
}
