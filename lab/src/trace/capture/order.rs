//! Order of records: requests become known when they end, traces have them as they began.
//!
//! A call is known when it has ended; an fsync that takes long comes after calls that began later.
//! So records wait here until [`KEPT_MAX`] others have come after them, or [`KEPT_NS`] have passed.
//! What comes later still gets the time of its neighbour.
//!
//! Tested below.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Records that wait.
const KEPT_MAX: usize = 1 << 15;
/// Longest wait of a record, in nanoseconds.
const KEPT_NS: u64 = 5_000_000_000;

struct Waiting<T> {
    begin_ns: u64,
    came: u64,
    what: T,
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.begin_ns, self.came).cmp(&(other.begin_ns, other.came))
    }
}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Waiting<T> {}

/// The records that wait.
pub(super) struct InOrder<T> {
    heap: BinaryHeap<Reverse<Waiting<T>>>,
    came: u64,
    latest_ns: u64,
    out_ns: u64,
}

impl<T> InOrder<T> {
    pub(super) fn new() -> InOrder<T> {
        InOrder { heap: BinaryHeap::new(), came: 0, latest_ns: 0, out_ns: 0 }
    }

    /// Takes what began at `begin_ns` and has ended at `end_ns`.
    pub(super) fn push(&mut self, begin_ns: u64, end_ns: u64, what: T) {
        self.came += 1;
        self.latest_ns = self.latest_ns.max(end_ns);
        self.heap.push(Reverse(Waiting { begin_ns, came: self.came, what }));
    }

    /// The next one with its time, if it has waited long enough or `all` are wanted.
    pub(super) fn pop(&mut self, all: bool) -> Option<(u64, T)> {
        let first = &self.heap.peek()?.0;
        let old = self.latest_ns.saturating_sub(first.begin_ns) > KEPT_NS;
        if !all && !old && self.heap.len() <= KEPT_MAX {
            return None;
        }
        let Reverse(first) = self.heap.pop()?;
        self.out_ns = self.out_ns.max(first.begin_ns);
        Some((self.out_ns, first.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(order: &mut InOrder<char>, all: bool) -> Vec<(u64, char)> {
        std::iter::from_fn(|| order.pop(all)).collect()
    }

    #[test]
    fn a_long_call_stands_where_it_began() {
        let mut order = InOrder::new();
        order.push(20, 21, 'b');
        order.push(20, 22, 'c');
        order.push(10, 30, 'a');
        assert_eq!(drain(&mut order, false), []);
        order.push(KEPT_NS + 31, KEPT_NS + 32, 'd');
        assert_eq!(drain(&mut order, false), [(10, 'a'), (20, 'b'), (20, 'c')]);
        // It took longer than anything is kept.
        order.push(15, KEPT_NS + 40, 'e');
        assert_eq!(drain(&mut order, true), [(20, 'e'), (KEPT_NS + 31, 'd')]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut order = InOrder::new();
        for n in 0..KEPT_MAX as u64 + 3 {
            order.push(n, n, ' ');
        }
        assert_eq!(drain(&mut order, false).len(), 3);
        assert_eq!(drain(&mut order, true).len(), KEPT_MAX);
    }
}
