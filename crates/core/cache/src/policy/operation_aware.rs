//! FOR: weighs each page by the costs of its next read and write, and by their distance.
//!
//! ```text
//!   lambda(op) = alpha * distance between its last two + (1 - alpha) * time since the last
//!   weight     = 100 us / lambda(read) + 800 us / lambda(write)          the lightest goes
//! ```
//!
//! Source: Y. Lv et al., "Operation-aware buffer management in flash-based systems", SIGMOD 2011;
//! parameters of the informed-storage paper, section 5.4.1. That text is not precise about the
//! weight; this is its idea with the distances counted in accesses. A kind of operation that a page
//! saw once has no distance yet: then the time since counts alone. As every weight changes with
//! time, only the eight oldest pages of two lists are compared, those whose last use was a read and
//! those last written, which is what the paper's faster form does in spirit.
//!
//! When not to use it: on flash where scattered writes cost more than their number: its victims
//! jump (informed-storage paper, table 5).
//!
//! Promises: a hit is O(1); a pick weighs sixteen pages and passes over no more than 4096 of each
//! list that may not go. Tested below and in `tests/it`.

use super::{Accept, Access, Order};
use crate::lists::{Lists, SCAN_MAX};
use crate::{FrameId, Frames};

const READ: usize = 0;
const WRITTEN: usize = 1;
/// Weight of the distance in lambda, in per cent; the rest is the recency's.
const ALPHA_PERCENT: u64 = 50;
/// Cost of a page read and of a page write, in microseconds.
const COST_US: [u64; 2] = [100, 800];
/// Pages of each list that one pick weighs.
const WEIGHED: usize = 8;

/// One kind of operation on a page, times in accesses; 0: there was none.
#[derive(Clone, Copy, Default)]
struct History {
    last: u32,
    distance: u32,
}

/// The policy `for`.
pub struct OperationAware {
    lists: Lists<2>,
    histories: Vec<[History; 2]>,
    /// Accesses so far, from 1; it wraps, differences hold.
    now: u32,
}

fn list_of(access: Access) -> usize {
    match access {
        Access::Read => READ,
        Access::Write => WRITTEN,
    }
}

impl OperationAware {
    fn used(&mut self, frame: FrameId, access: Access) {
        self.now = self.now.wrapping_add(1).max(1);
        let list = list_of(access);
        self.lists.push_newest(list, frame.0);
        let history = &mut self.histories[frame.0 as usize][list];
        if history.last != 0 {
            history.distance = self.now.wrapping_sub(history.last);
        }
        history.last = self.now;
    }

    fn weight(&self, slot: u32) -> u64 {
        let each = self.histories[slot as usize].iter().zip(COST_US).map(|(history, cost_us)| {
            if history.last == 0 {
                return 0;
            }
            let recency = u64::from(self.now.wrapping_sub(history.last));
            let distance = match history.distance {
                0 => recency,
                distance => u64::from(distance),
            };
            let lambda_percent = ALPHA_PERCENT * distance + (100 - ALPHA_PERCENT) * recency;
            // 40 bits of fraction: no two recencies within the cache's size are the same.
            (cost_us << 40) / lambda_percent.max(1)
        });
        each.sum()
    }

    /// The lightest among the oldest pages of `list` that may go.
    fn lightest(&self, list: usize, frames: &Frames, accept: Accept) -> Option<(u64, u32)> {
        let oldest = self.lists.oldest(list);
        let slots = std::iter::successors(oldest, |slot| self.lists.newer(*slot)).take(SCAN_MAX);
        let may_go = slots.filter(|slot| frames.evictable(FrameId(*slot), accept));
        may_go.take(WEIGHED).map(|slot| (self.weight(slot), slot)).min_by_key(|found| found.0)
    }
}

impl Order for OperationAware {
    const NAME: &'static str = "for";

    fn new(capacity: usize) -> Self {
        OperationAware { lists: Lists::new(capacity), histories: Vec::new(), now: 0 }
    }

    fn insert(&mut self, _frames: &Frames, frame: FrameId, access: Access) {
        let slot = frame.0 as usize;
        if slot >= self.histories.len() {
            self.histories.resize(slot + 1, Default::default());
        }
        self.histories[slot] = Default::default();
        self.used(frame, access);
    }

    #[inline]
    fn hit(&mut self, _frames: &Frames, frame: FrameId, access: Access) {
        if self.lists.list_of(frame.0).is_some() {
            self.used(frame, access);
        }
    }

    fn remove(&mut self, _frames: &Frames, frame: FrameId) {
        self.lists.unlink(frame.0);
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let lists = [READ, WRITTEN];
        let lightest = lists.into_iter().filter_map(|list| self.lightest(list, frames, accept));
        let (_, slot) = lightest.min_by_key(|found| found.0)?;
        self.lists.refresh(slot);
        Some(FrameId(slot))
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        frames.high_water() * (Lists::<2>::SLOT_BYTES + size_of::<[History; 2]>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn weights_follow_the_formula() {
        let mut small = Small::<OperationAware>::new(4);
        // Page 1 is read at 1 and 5, written at 6; it is 9 at the end.
        small.run(&[1, 2, 3, 4, 1, -1, 2, 3, 4]);
        let weight = small.order.weight(small.frame(1).0);
        // Reads: distance 4, recency 4; write: recency 3 alone. Percent of an access.
        assert_eq!(weight, (100 << 40) / 400 + (800 << 40) / 300);
    }

    #[test]
    fn a_written_page_outweighs_a_page_that_was_read_as_recently() {
        let mut small = Small::<OperationAware>::new(3);
        // 1 is older and still heavier: 800 us / 3 against 100 us / 2.
        assert_eq!(small.run(&[-1, 2, 3, 4]), [2]);
    }

    /// Reads and writes weighed apart, times in accesses.
    #[test]
    fn a_sequence_by_hand() {
        let mut small = Small::<OperationAware>::new(3);
        // Accesses 1 to 6.
        assert_eq!(small.run(&[-1, 2, 3, -1, 2, -3]), []);
        // At 6: page 1, written at 1 and 4: 800 / ((3 + 2) / 2) = 320.
        //       page 2, read at 2 and 5:    100 / ((3 + 1) / 2) = 50, although it is younger.
        //       page 3, written at 6: the heaviest.
        assert_eq!(small.run(&[4]), [2]);
        // At 7: page 1: 800 / ((3 + 3) / 2) = 267.
        //       page 3, read at 3, written at 6, no distances: 100 / 4 + 800 / 1 = 825.
        //       page 4, read at 7: recency 0, the heaviest.
        assert_eq!(small.run(&[5]), [1]);
    }

    #[test]
    fn of_pages_as_recent_the_one_with_the_longer_distance_goes() {
        let mut small = Small::<OperationAware>::new(3);
        // Last reads 4, 5, 6; distances 3 (page 1), none (2, recency 2), 4 (3)...
        small.run(&[1, 3, 2, 1, 2, 3]);
        // At the pick: 1 has (3 + 2) / 2, 2 has (2 + 1) / 2, 3 has (4 + 0) / 2.
        assert_eq!(small.run(&[4]), [1]);
    }
}
