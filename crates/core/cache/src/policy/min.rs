//! MIN: the page whose next use is farthest away goes. No policy has fewer misses.
//!
//! Source: L. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966.
//! Every page is cached when it is missed, also one that is never used again.
//!
//! When not to use it: it is no policy but the bound of the others. It knows the trace, so it runs
//! in a [`crate::Simulator`] only. It minimises misses; dirty evictions and their order it does not
//! look at, and time on a device even less.
//!
//! Promises: a heap over the slots, O(log n) an access; a pick is O(1) unless its first choice may
//! not go: then it looks at all. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::{FrameId, Frames};

const NONE: u32 = u32::MAX;

/// The policy `min`.
pub struct Min {
    /// Slots, the farthest next use first: a binary heap.
    heap: Vec<u32>,
    /// By slot: next use, and position in the heap.
    slots: Vec<(u64, u32)>,
    next_use: u64,
}

impl Min {
    fn set(&mut self, at: usize, slot: u32) {
        self.heap[at] = slot;
        // Positions fit, as slots do.
        self.slots[slot as usize].1 = at as u32;
    }

    fn key(&self, at: usize) -> u64 {
        self.slots[self.heap[at] as usize].0
    }

    /// Moves the slot at `at` to where its key belongs.
    fn sift(&mut self, mut at: usize) {
        while at > 0 && self.key((at - 1) / 2) < self.key(at) {
            let (parent, slot) = ((at - 1) / 2, self.heap[at]);
            self.set(at, self.heap[parent]);
            self.set(parent, slot);
            at = parent;
        }
        loop {
            let children = (2 * at + 1)..(2 * at + 3).min(self.heap.len()).max(2 * at + 1);
            let Some(child) = children.max_by_key(|child| self.key(*child)) else { return };
            if self.key(child) <= self.key(at) {
                return;
            }
            let slot = self.heap[at];
            self.set(at, self.heap[child]);
            self.set(child, slot);
            at = child;
        }
    }
}

impl Order for Min {
    const NAME: &'static str = "min";
    const NEEDS_FUTURE: bool = true;

    fn new(capacity: usize) -> Self {
        let heap = Vec::with_capacity(capacity.min(1 << 22));
        Min { heap, slots: Vec::new(), next_use: u64::MAX }
    }

    fn foresee(&mut self, next_use: u64) {
        self.next_use = next_use;
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        let slot = frame.0 as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, (0, NONE));
        }
        self.heap.push(frame.0);
        self.slots[slot] = (self.next_use, self.heap.len() as u32 - 1);
        self.sift(self.heap.len() - 1);
    }

    fn hit(&mut self, _frames: &Frames, frame: FrameId, _access: Access) {
        let Some(slot) = self.slots.get_mut(frame.0 as usize) else { return };
        slot.0 = self.next_use;
        let at = slot.1;
        if at != NONE {
            self.sift(at as usize);
        }
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        let Some(slot) = self.slots.get_mut(frame.0 as usize) else { return };
        let at = std::mem::replace(&mut slot.1, NONE);
        let last = if at == NONE { None } else { self.heap.pop() };
        let Some(last) = last.filter(|last| *last != frame.0) else { return };
        self.set(at as usize, last);
        self.sift(at as usize);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let first = FrameId(*self.heap.first()?);
        if frames.evictable(first, accept) {
            return Some(first);
        }
        let may_go = |slot: &&u32| frames.evictable(FrameId(**slot), accept);
        let farthest = |slot: &&u32| self.slots[**slot as usize].0;
        self.heap.iter().filter(may_go).max_by_key(farthest).map(|slot| FrameId(*slot))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * (size_of::<(u64, u32)>() + size_of::<u32>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PageKey;

    #[test]
    fn the_farthest_goes_and_a_pinned_one_stays() {
        let (frames, mut min) = (Frames::new(100), Min::new(0));
        for index in 0..100u64 {
            let frame = frames.insert(PageKey { file: 0, index }, false).unwrap();
            min.foresee(index * 37 % 101);
            min.insert(&frames, frame, Access::Read);
        }
        min.foresee(1000);
        min.hit(&frames, FrameId(50), Access::Read);
        assert_eq!(min.pick(&frames, Accept::Any), Some(FrameId(50)));
        frames.set_pinned(FrameId(50), true);
        let mut uses = Vec::new();
        while let Some(frame) = min.pick(&frames, Accept::Any) {
            uses.push(u64::from(frame.0) * 37 % 101);
            min.remove(&frames, frame);
            frames.release(frame);
        }
        assert_eq!(uses.len(), 99);
        assert!(uses.is_sorted_by(|a, b| a > b), "{uses:?}");
    }
}
