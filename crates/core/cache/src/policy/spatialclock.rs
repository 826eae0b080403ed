//! SpatialClock: Clock whose ring is in the order of the pages' addresses.
//!
//! ```text
//!   address   40  72  80  96 ...           hand at 40: clears 40 and 72, takes 80
//!   ref        1   1   0   1
//! ```
//!
//! Source: informed-storage paper, section 5.3, figures 13 and 14. Victims come in ascending order,
//! so that the dirty ones are written nearly as a sequence. Addresses are those of a
//! [`crate::PageKey`]: on a trace of a device its pages, in a volume file by file, which is what
//! the allocator lays out.
//!
//! When not to use it: where writes cost the same in any order, Clock is simpler. A page that comes
//! in just before the hand leaves first, so some hits are lost: see `spatial_protected`.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock; an insert is as in
//! `spatial.rs`; a pick looks at no more than two turns of the pages. Tested below and in
//! `tests/it`.

use super::{Accept, Access, Order};
use crate::spatial::{Spatial, Sweep};
use crate::{FrameId, Frames};

/// The policy `spatialclock`.
pub struct SpatialClock {
    sweep: Sweep,
}

impl Order for SpatialClock {
    const NAME: &'static str = "spatialclock";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(capacity: usize) -> Self {
        SpatialClock { sweep: Sweep::new(capacity) }
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        self.sweep.insert(frames, frame);
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        self.sweep.remove(frames, frame);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        self.sweep.pick(frames, accept, 2, |frame| frames.take_reference(frame))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * Spatial::SLOT_BYTES + self.sweep.order().memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn the_papers_example() {
        let mut small = Small::<SpatialClock>::new(6);
        // Figure 14: 40 and 72 are referenced, 80 is not; they came in any order.
        small.run(&[96, 80, 40, 120, 72, 100, 72, 40, 96]);
        assert_eq!(small.run(&[200]), [80]);
        // 96 is referenced; 100, 120 and the new one are not; then the turn begins again.
        assert_eq!(small.drain(), [100, 120, 200, 40, 72, 96]);
    }

    #[test]
    fn victims_come_in_ascending_order_whatever_the_order_of_arrival() {
        let mut small = Small::<SpatialClock>::new(8);
        small.run(&[-7, -3, -900, -5, -4, -901, -6, -2]);
        assert_eq!(small.drain(), [2, 3, 4, 5, 6, 7, 900, 901]);
    }
}
