//! BlockClock: a clock hand that goes along the addresses and gives up blocks.
//!
//! ```text
//!   block of 64 pages at the hand       clean pages    used or young: stay | else: leave
//!                                       dirty pages    half of them used, or one young: stay
//!                                                      else: leave together, used or not
//! ```
//!
//! Source: our own, on the informed-storage paper, section 5.3, and FAB. SpatialClock leaves used
//! pages behind, and the way back to each of them in the next turn costs a simple card a merge and
//! others a page program. FAB takes whole blocks, but those with the most pages, which are those in
//! use. Here a block is written with one visit and without holes, and blocks in use stay. Clean
//! pages cost no visit, so they are judged one by one. Young: among the newest sixteenth of the
//! cache.
//!
//! When the cache is emptied, no use is to come: every block leaves whole, beginning with the one
//! that is leaving.
//!
//! When not to use it: where writes cost the same in any order, or for a cache of less than about a
//! thousand pages: a block then is a large part of it, and used pages leave with their neighbours.
//!
//! Promises: a hit is one atomic load and at most one atomic or, no lock; an insert is as in
//! `spatial.rs`; a pick looks at no more than five turns of the pages. Tested below and in
//! `tests/it`.

use super::{Accept, Access, Order};
use crate::spatial::{Spatial, Sweep};
use crate::{FrameId, Frames, PageKey};

/// Pages of a block.
const BLOCK_PAGES: u64 = 64;
/// Ticks in which as many pages come in as the cache has. Their number wraps after 1024 caches.
const TICKS_PER_CACHE: usize = 64;
/// A page is young for this many ticks: a sixteenth of the cache came in after it.
const YOUNG_TICKS: u16 = 4;
/// Turns in which young pages stay.
const YOUNG_TURNS: usize = 3;
/// Turns after which every page that may go has lost all protection: those for the young, one that
/// takes the references, and one that takes the pages.
const TURNS_MAX: usize = YOUNG_TURNS + 2;

/// The policy `blockclock`.
pub struct BlockClock {
    sweep: Sweep,
    /// By slot: the tick of its arrival.
    arrivals: Vec<u16>,
    /// Pages that came in so far, and how many make a tick.
    arrived: u64,
    tick: u64,
    /// Block that was taken last.
    block: Option<PageKey>,
    /// Its remaining pages that leave, the next one last.
    leaving: Vec<u32>,
    emptying: bool,
}

impl BlockClock {
    fn now(&self) -> u16 {
        (self.arrived / self.tick) as u16
    }

    fn is_young(&self, slot: u32) -> bool {
        self.now().wrapping_sub(self.arrivals[slot as usize]) < YOUNG_TICKS
    }

    /// The pages of a block that leave now, in ascending order. `protects_young`: young ones stay.
    fn leave(&self, frames: &Frames, accept: Accept, block: &mut Vec<u32>, protects_young: bool) {
        block.retain(|slot| frames.evictable(FrameId(*slot), accept));
        if self.emptying {
            return;
        }
        let young = |slot: &u32| protects_young && self.is_young(*slot);
        let dirty = || block.iter().filter(|slot| frames.is_dirty(FrameId(**slot)));
        let used = dirty().filter(|slot| frames.is_referenced(FrameId(**slot))).count();
        let dirty_stays = if dirty().any(young) {
            true
        } else if used > 0 && used * 2 >= dirty().count() {
            dirty().for_each(|slot| {
                frames.take_reference(FrameId(*slot));
            });
            true
        } else {
            false
        };
        block.retain(|slot| {
            let frame = FrameId(*slot);
            if frames.is_dirty(frame) {
                !dirty_stays
            } else {
                !frames.take_reference(frame) && !young(slot)
            }
        });
    }
}

impl Order for BlockClock {
    const NAME: &'static str = "blockclock";
    const HIT_SETS_REFERENCE: bool = true;

    fn new(capacity: usize) -> Self {
        BlockClock {
            sweep: Sweep::new(capacity),
            arrivals: Vec::new(),
            arrived: 0,
            tick: (capacity / TICKS_PER_CACHE).max(1) as u64,
            block: None,
            leaving: Vec::new(),
            emptying: false,
        }
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let slot = frame.0 as usize;
        if slot >= self.arrivals.len() {
            self.arrivals.resize(slot + 1, 0);
        }
        self.emptying = false;
        self.arrived += 1;
        self.arrivals[slot] = self.now();
        self.sweep.insert(frames, frame);
    }

    fn remove(&mut self, frames: &Frames, frame: FrameId) {
        self.leaving.retain(|slot| *slot != frame.0);
        self.sweep.remove(frames, frame);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let turn = self.sweep.order().len();
        let mut looked_at = 0;
        loop {
            while let Some(slot) = self.leaving.pop() {
                if frames.evictable(FrameId(slot), accept) {
                    return Some(FrameId(slot));
                }
            }
            if looked_at >= turn.saturating_mul(TURNS_MAX) {
                return None;
            }
            let mut block = std::mem::take(&mut self.leaving);
            self.block = self.sweep.take_block(frames, BLOCK_PAGES, &mut block);
            looked_at += block.len();
            self.leave(frames, accept, &mut block, looked_at <= turn * YOUNG_TURNS);
            block.reverse();
            self.leaving = block;
        }
    }

    fn empty(&mut self, frames: &Frames) {
        self.emptying = true;
        self.leaving.clear();
        if let Some(block) = self.block {
            self.sweep.step_back(frames, BLOCK_PAGES, block);
        }
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

    /// Four blocks of dirty pages from `first` on: a tick is four arrivals, the 16 newest pages are
    /// young.
    fn full(first: i64) -> Small<BlockClock> {
        let mut small = Small::new(256);
        assert_eq!(small.run(&(first..first + 256).map(|page| -page).collect::<Vec<_>>()), []);
        small
    }

    #[test]
    fn a_block_leaves_whole_used_pages_too() {
        let mut small = full(64);
        small.run(&[69, 73, 127]);
        let gone = small.run(&(1000..1065).collect::<Vec<_>>());
        assert_eq!(gone, (64..129).collect::<Vec<u64>>());
    }

    #[test]
    fn a_block_of_which_half_was_used_stays_for_a_turn() {
        let mut small = full(6400);
        small.run(&(6400..6432).chain(6464..6495).collect::<Vec<_>>());
        // 32 pages of the first block were used, 31 of the second. The clean ones come in below.
        let gone = small.run(&(5800..6400).rev().collect::<Vec<_>>());
        let dirty: Vec<u64> = gone.into_iter().filter(|page| *page >= 6400).collect();
        assert_eq!(dirty, (6464..6656).chain(6400..6464).collect::<Vec<u64>>());
    }

    #[test]
    fn clean_pages_are_judged_one_by_one() {
        let mut small = Small::<BlockClock>::new(128);
        small.run(&(0..64).collect::<Vec<_>>());
        small.run(&(64..128).map(|page| -page).collect::<Vec<_>>());
        small.run(&[3, 5, -7]);
        // 7 is dirty alone, and used.
        assert_eq!(small.run(&[-500, -501, -502, -503, -504]), [0, 1, 2, 4, 6]);
    }

    #[test]
    fn a_block_with_a_new_page_is_passed() {
        // A tick is two arrivals, the 8 newest pages are young.
        let mut small = Small::<BlockClock>::new(128);
        let pages = (1..13).chain(64..126).chain(128..182);
        small.run(&pages.map(|page: i64| -page).collect::<Vec<_>>());
        let new: Vec<i64> = (1000..1008).chain([126]).chain(1008..1011).map(|page| -page).collect();
        assert_eq!(small.run(&new), (1..13).collect::<Vec<u64>>());
        assert_eq!(small.run(&[-2000]), [128], "126 came into block 1");
    }

    #[test]
    fn a_cache_is_emptied_block_by_block_from_the_one_that_is_leaving() {
        let mut small = full(64);
        small.run(&(128..192).collect::<Vec<_>>());
        assert_eq!(small.run(&[-1000, -64]), [64, 65]);
        let expected: Vec<u64> = [64].into_iter().chain(66..320).chain([1000]).collect();
        assert_eq!(small.drain(), expected);
    }
}
