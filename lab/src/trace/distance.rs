//! Distances between accesses to the same page, in bounded memory.
//!
//! The reuse distance of an access is the number of distinct pages since the last access to its
//! page; an LRU cache of more pages than that hits. Counted in a Fenwick tree over the places of
//! the last accesses. Up to [`PAGES_MAX`] distinct pages are followed exactly; beyond, pages are
//! sampled by a hash and distances scaled (SHARDS, Waldspurger et al., FAST'15), so that memory
//! does not grow with the trace. Update intervals are the seconds between writes of a page, of the
//! same pages.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};
use serde::Serialize;

/// Distinct pages that are followed.
const PAGES_MAX: usize = 1 << 16;
/// Places of the tree; it is packed when they are used up.
const PLACES: usize = 4 * PAGES_MAX;

/// A distribution in powers of two: `counts[n]` values below `2^n` and not below `2^(n-1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// Counts, without the zeros at the end.
    pub counts: Vec<u64>,
}

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        let class = (u64::BITS - value.leading_zeros()) as usize;
        if self.counts.len() <= class {
            self.counts.resize(class + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(class) {
            *count += 1;
        }
    }

    /// Values counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The power of two below which `percent` of 100 values are; 0 without values.
    pub fn below(&self, percent: u64) -> u64 {
        let (total, mut seen) = (self.total(), 0);
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if total > 0 && u128::from(seen) * 100 >= u128::from(total) * u128::from(percent) {
                return 1u64.checked_shl(class as u32).unwrap_or(u64::MAX);
            }
        }
        0
    }
}

struct Page {
    place: usize,
    written_ns: Option<u64>,
}

/// Follows accesses. See the module's description.
pub(crate) struct Distances {
    pages: FxHashMap<u64, Page>,
    tree: Vec<u32>,
    next: usize,
    /// Pages whose hash has this many leading zeros or more are followed.
    shift: u32,
    /// In pages.
    pub(crate) reuse: Histogram,
    /// In milliseconds.
    pub(crate) update_ms: Histogram,
    /// First accesses to a page, of those that are followed.
    pub(crate) first: u64,
}

impl Default for Distances {
    fn default() -> Distances {
        Distances {
            pages: FxHashMap::default(),
            tree: vec![0; PLACES + 1],
            next: 0,
            shift: 0,
            reuse: Histogram::default(),
            update_ms: Histogram::default(),
            first: 0,
        }
    }
}

impl Distances {
    /// One page in this many is followed.
    pub(crate) fn one_in(&self) -> u64 {
        1 << self.shift
    }

    pub(crate) fn access(&mut self, page: u64, write: bool, time_ns: u64) {
        if !follows(page, self.shift) {
            return;
        }
        if self.next == PLACES {
            self.pack();
        }
        let place = self.next;
        self.next += 1;
        let known = self.pages.remove(&page);
        match &known {
            Some(known) => {
                let since = self.count(place) - self.count(known.place + 1);
                self.reuse.add(since << self.shift);
                self.change(known.place, u32::MAX);
                if let (true, Some(before_ns)) = (write, known.written_ns) {
                    self.update_ms.add(time_ns.saturating_sub(before_ns) / 1_000_000);
                }
            }
            None => self.first += 1,
        }
        let before_ns = known.and_then(|known| known.written_ns);
        let written_ns = if write { Some(time_ns) } else { before_ns };
        self.pages.insert(page, Page { place, written_ns });
        self.change(place, 1);
        if self.pages.len() > PAGES_MAX {
            self.shift += 1;
            let shift = self.shift;
            self.pages.retain(|page, _| follows(*page, shift));
            self.pack();
        }
    }

    /// Adds to a place; `u32::MAX` takes one away.
    fn change(&mut self, place: usize, by: u32) {
        let mut at = place + 1;
        while let Some(sum) = self.tree.get_mut(at) {
            *sum = sum.wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Last accesses before `place`.
    fn count(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0);
        while at > 0 {
            sum += u64::from(self.tree.get(at).copied().unwrap_or(0));
            at &= at - 1;
        }
        sum
    }

    /// Moves the places together, in order.
    fn pack(&mut self) {
        let mut order: Vec<(usize, u64)> =
            self.pages.iter().map(|(page, known)| (known.place, *page)).collect();
        order.sort_unstable();
        self.tree.fill(0);
        self.next = order.len();
        for (place, (_, page)) in order.into_iter().enumerate() {
            if let Some(known) = self.pages.get_mut(&page) {
                known.place = place;
            }
            self.change(place, 1);
        }
    }
}

fn follows(page: u64, shift: u32) -> bool {
    // The finaliser spreads what the hash leaves in the low bits.
    let hash = FxBuildHasher.hash_one(page);
    let mixed = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed.leading_zeros() >= shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_a_short_sequence() {
        let mut distances = Distances::default();
        // a b c a a b: a after {b, c}, a after nothing, b after {c, a}.
        for (at, page) in [1u64, 2, 3, 1, 1, 2].into_iter().enumerate() {
            distances.access(page, true, at as u64 * 1_000_000);
        }
        assert_eq!(distances.first, 3);
        assert_eq!(distances.reuse.counts, [1, 0, 2]);
        assert_eq!(distances.update_ms.counts, [0, 1, 1, 1]);
        assert_eq!((distances.reuse.below(50), distances.reuse.below(0)), (4, 1));
    }

    #[test]
    fn many_pages_are_sampled_and_scaled() {
        let mut distances = Distances::default();
        let pages = 3 * PAGES_MAX as u64;
        for round in 0..2 {
            for page in 0..pages {
                distances.access(page, false, round);
            }
        }
        assert!(distances.one_in() >= 2 && distances.pages.len() <= PAGES_MAX);
        // Every second access is 196,607 pages after the first: all in one class or its neighbour.
        let total = distances.reuse.total();
        let near: u64 = distances.reuse.counts.iter().skip(18).sum();
        assert!(near == total && total > 20_000, "{:?}", distances.reuse);
        assert!(distances.reuse.counts.len() <= 20);
    }
}
