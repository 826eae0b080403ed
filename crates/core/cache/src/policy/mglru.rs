//! Multi-gen LRU, after that of Linux 6.12 for pages that are read through descriptors. Here a
//! write counts as an access, as in every policy.
//!
//! ```text
//!   oldest generation    next          ...          youngest        2 to 4 of them
//!     |   '- often used: protected -^
//!     v
//!   leaves; ghosts until this generation has gone      new pages: oldest, or next of four
//! ```
//!
//! Source: `Documentation/mm/multigen_lru.rst` of Linux. Accesses are counted up to five since the
//! page came, or since it was protected, and make four tiers: one, two, up to four, more. The last
//! tier is protected always. Another one is if its pages come back twice as often as those of the
//! first, judged by the generation that goes and, by halves, those before it. When three
//! generations are left and are uneven, a new youngest one begins.
//!
//! It was not compared with a kernel. Not here: page tables, swap, and the batches in which the
//! kernel looks at pages. Ghosts are as many as frames, and those used least go first.
//!
//! When not to use it: for small caches, in which 64 pages have to come back before a tier is
//! protected. It does not tell clean from dirty.
//!
//! Promises: a hit is O(1) and moves nothing; a pick looks at each page twice at most. Tested below
//! and, against a plain model, in `tests/it`.

use super::{Accept, Access, Order};
use crate::ghosts::Ghosts;
use crate::lists::Lists;
use crate::{FrameId, Frames, PageKey};

/// Most generations, `MAX_NR_GENS`.
const GENERATIONS: usize = 4;
/// Generations of which none can go, `MIN_NR_GENS`.
const GENERATIONS_MIN: u64 = 2;
const TIERS: usize = 4;
/// Accesses are counted up to this.
const USES_MAX: u8 = 5;
/// A page that comes back after so many accesses counts as used most.
const USES_TO_RESTORE: usize = 4;
/// Pages that come back before a tier is protected, `MIN_LRU_BATCH`.
const RETURNS_MIN: u64 = 64;

/// Tier of a page by its accesses, the one that brought it included.
const fn tier(uses: usize) -> usize {
    match uses {
        0 | 1 => 0,
        2 => 1,
        3 | 4 => 2,
        _ => 3,
    }
}

/// Counts of the pages of one tier.
#[derive(Clone, Copy, Default)]
struct Tier {
    /// Came back while the generation that they left was the oldest one.
    returned: u64,
    /// Left or were protected.
    all: u64,
    /// The same of generations before, each half of the next.
    returned_before: u64,
    all_before: u64,
}

impl Tier {
    fn returned(&self) -> u64 {
        self.returned + self.returned_before
    }

    fn all(&self) -> u64 {
        self.all + self.all_before
    }
}

/// The policy `mglru`. The lists are the generations; the mark of a slot: it was picked.
pub struct Mglru {
    lists: Lists<GENERATIONS>,
    oldest: u64,
    youngest: u64,
    /// By slot.
    uses: Vec<u8>,
    /// Pages that left the oldest generation, by accesses less one.
    ghosts: [Ghosts; USES_MAX as usize],
    ghosts_max: usize,
    tiers: [Tier; TIERS],
    /// The key that [`Order::miss`] found among the ghosts, and its accesses.
    returned: Option<(PageKey, usize)>,
}

/// The list of a generation.
fn list(generation: u64) -> usize {
    (generation % GENERATIONS as u64) as usize
}

impl Mglru {
    /// Begins a youngest generation if the kernel would.
    fn age(&mut self) {
        let many = self.youngest - self.oldest + 1;
        let len = |generation| self.lists.len(list(generation)) as u64;
        let total: u64 = (self.oldest..=self.youngest).map(len).sum();
        let uneven = len(self.youngest) * GENERATIONS_MIN > total
            || len(self.oldest) * (GENERATIONS_MIN + 2) < total;
        if many <= GENERATIONS_MIN || many == GENERATIONS_MIN + 1 && uneven {
            self.youngest += 1;
        }
    }

    /// The oldest generation is empty: the next one is the oldest.
    fn advance(&mut self) {
        self.oldest += 1;
        for tier in &mut self.tiers {
            let (returned_before, all_before) = (tier.returned() / 2, tier.all() / 2);
            *tier = Tier { returned_before, all_before, ..Tier::default() };
        }
        self.ghosts.iter_mut().for_each(|ghosts| while ghosts.forget_oldest() {});
    }

    /// The last tier whose pages leave.
    fn leaving(&self) -> usize {
        let first = &self.tiers[0];
        let comes_back = |tier: &Tier| {
            tier.returned() >= RETURNS_MIN
                && tier.returned() * (first.all() + RETURNS_MIN)
                    > (first.returned() + 1) * tier.all() * 2
        };
        (1..TIERS).find(|at| comes_back(&self.tiers[*at])).unwrap_or(TIERS) - 1
    }

    /// Forgets a ghost that is asked for. Its accesses.
    fn take_ghost(&mut self, key: PageKey) -> Option<usize> {
        let uses = (1..=self.ghosts.len()).find(|uses| self.ghosts[uses - 1].take(key))?;
        self.tiers[tier(uses)].returned += 1;
        Some(uses)
    }

    fn put(&mut self, generation: u64, frame: FrameId, uses: u8) {
        let at = frame.0 as usize;
        if self.uses.len() <= at {
            self.uses.resize(at + 1, 0);
        }
        self.uses[at] = uses;
        self.lists.push_newest(list(generation), frame.0);
    }
}

impl Order for Mglru {
    const NAME: &'static str = "mglru";

    fn new(capacity: usize) -> Self {
        Mglru {
            lists: Lists::new(capacity),
            oldest: 0,
            youngest: GENERATIONS as u64 - 1,
            uses: Vec::new(),
            ghosts: std::array::from_fn(|_| Ghosts::new(capacity)),
            ghosts_max: capacity,
            tiers: [Tier::default(); TIERS],
            returned: None,
        }
    }

    fn miss(&mut self, key: PageKey) {
        self.returned = self.take_ghost(key).map(|uses| (key, uses));
    }

    fn insert(&mut self, frames: &Frames, frame: FrameId, _access: Access) {
        let key = frames.key(frame);
        let returned = self.returned.take().filter(|(returned, _)| key == Some(*returned));
        let before = match returned {
            Some((_, uses)) => Some(uses),
            None => key.and_then(|key| self.take_ghost(key)),
        };
        let used_most = before.is_some_and(|uses| uses >= USES_TO_RESTORE);
        let four = self.oldest + GENERATIONS_MIN < self.youngest;
        self.put(self.oldest + u64::from(four), frame, if used_most { USES_MAX } else { 1 });
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
        if self.lists.unlink(frame.0).is_some() && picked {
            let uses = self.uses[frame.0 as usize].max(1) as usize;
            self.tiers[tier(uses)].all += 1;
            if self.ghosts.iter().map(Ghosts::len).sum::<usize>() >= self.ghosts_max {
                let _ = self.ghosts.iter_mut().any(Ghosts::forget_oldest);
            }
            if let Some(key) = frames.key(frame) {
                self.ghosts[uses - 1].push(key);
            }
        }
    }

    fn pick(&mut self, frames: &Frames, accept: Accept) -> Option<FrameId> {
        let all: usize = (0..GENERATIONS).map(|list| self.lists.len(list)).sum();
        if accept == Accept::Dirty {
            let mut lists = (self.oldest..=self.youngest).map(list);
            return lists.find_map(|list| self.lists.oldest_evictable(list, frames, accept));
        }
        for _ in 0..2 * all + GENERATIONS {
            self.age();
            let Some(slot) = self.lists.oldest(list(self.oldest)) else {
                self.advance();
                continue;
            };
            let (frame, uses) = (FrameId(slot), self.uses[slot as usize]);
            if !frames.evictable(frame, accept) {
                // As the kernel does with pages that are being written.
                self.put(self.oldest + 1, frame, 0);
            } else if uses == USES_MAX || tier(uses.into()) > self.leaving() {
                self.tiers[tier(uses.into())].all += 1;
                self.uses[slot as usize] = 0;
                self.lists.push_oldest(list(self.oldest + 1), slot);
            } else {
                // A caller that does not take it gets another one next.
                self.lists.refresh(slot);
                self.lists.set_mark(slot, true);
                return Some(frame);
            }
        }
        None
    }

    fn memory_bytes(&self, frames: &Frames) -> usize {
        let ghosts: usize = self.ghosts.iter().map(Ghosts::memory_bytes).sum();
        frames.high_water() * (Lists::<GENERATIONS>::SLOT_BYTES + size_of::<u8>()) + ghosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::testing::Small;

    #[test]
    fn the_last_tier_is_protected_and_others_when_they_come_back() {
        let mut small = Small::<Mglru>::new(100);
        let pages: Vec<i64> = (1..=100).collect();
        small.run(&pages);
        // All came into the second of four generations; page 1 is used most, page 2 twice.
        small.run(&[1, 1, 1, 1, 2]);
        assert_eq!(small.run(&[200]), [2]);
        assert_eq!(small.order.uses[small.frame(1).0 as usize], 0);
        assert_eq!(small.order.leaving(), TIERS - 1);
        // Pages of the second tier come back while their generation goes, those of the first not.
        small.order.tiers[1] = Tier { returned: 64, all: 100, ..Tier::default() };
        assert_eq!(small.order.leaving(), 0);
        small.order.tiers[0] = Tier { returned: 64, all: 100, ..Tier::default() };
        assert_eq!(small.order.leaving(), TIERS - 1);
    }

    #[test]
    fn ghosts_live_as_long_as_their_generation() {
        let mut small = Small::<Mglru>::new(10);
        let pages: Vec<i64> = (1..=10).collect();
        small.run(&pages);
        assert_eq!(small.run(&[11]), [1]);
        // It comes back in time, and its tier knows.
        small.run(&[1]);
        assert_eq!(small.order.tiers[0].returned, 1);
        small.order.advance();
        assert_eq!((small.order.tiers[0].returned, small.order.ghosts[0].len()), (0, 0));
        assert_eq!(small.drain().len(), 10);
    }

    #[test]
    fn pages_that_may_not_go_move_on() {
        let mut small = Small::<Mglru>::new(40);
        small.run(&[-1, 2, 3]);
        let second = small.frame(2);
        assert_eq!(small.order.pick(&small.frames, Accept::Clean), Some(second));
        assert_eq!(small.order.pick(&small.frames, Accept::Clean), Some(small.frame(3)));
        assert_eq!(small.order.pick(&small.frames, Accept::Dirty), Some(small.frame(1)));
        // Dropped, not evicted: no ghost.
        small.order.hit(&small.frames, second, Access::Read);
        small.order.remove(&small.frames, second);
        assert!(small.order.ghosts.iter().all(|ghosts| ghosts.len() == 0));
    }
}
