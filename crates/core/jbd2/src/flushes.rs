//! Numbers of device flushes: whether one that began after some moment is over, and whether
//! transactions wait for one that cache barriers have ordered only.

use std::sync::atomic::{AtomicU64, Ordering};

/// Device flushes begun, and the newest that is over. Needs no lock: numbers only grow.
#[derive(Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    done: AtomicU64,
    /// Flush that makes the transactions durable that are ordered only.
    ordered: AtomicU64,
}

impl Flushes {
    /// Number of the next flush: data that is in place now is durable once that one is over.
    pub(crate) fn next(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + 1
    }

    /// A flush begins.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Flush `number` succeeded.
    pub(crate) fn end(&self, number: u64) {
        self.done.fetch_max(number, Ordering::SeqCst);
    }

    /// A transaction that is in the log now is ordered, and the next flush makes it durable.
    pub(crate) fn note_ordered(&self) {
        self.ordered.store(self.next(), Ordering::SeqCst);
    }

    /// True if every transaction in the log is durable.
    pub(crate) fn all_durable(&self) -> bool {
        self.is_over(self.ordered.load(Ordering::SeqCst))
    }

    /// True if flush `number`, or one that began later, is over. Number 0 stands for none.
    pub(crate) fn is_over(&self, number: u64) -> bool {
        number <= self.done.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_under_way_does_not_cover_what_is_ordered_meanwhile() {
        let flushes = Flushes::default();
        assert!(flushes.all_durable());
        let first = flushes.begin();
        flushes.note_ordered();
        flushes.end(first);
        assert!(!flushes.all_durable());
        let second = flushes.begin();
        flushes.end(second);
        assert!(flushes.all_durable());
    }

    #[test]
    fn only_a_flush_that_began_later_counts() {
        let flushes = Flushes::default();
        assert!(flushes.is_over(0));
        let first = flushes.begin();
        let needed = flushes.next();
        flushes.end(first);
        assert!(flushes.is_over(first) && !flushes.is_over(needed));
        let (second, third) = (flushes.begin(), flushes.begin());
        flushes.end(third);
        assert!(second == needed && flushes.is_over(second));
        flushes.end(second);
        assert!(flushes.is_over(third), "an older flush that ends later takes nothing back");
    }
}
