//! A set of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that do not overlap, by their start.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<u64, u64>);

impl Places {
    /// True if every byte of a range that is not empty lies in the set.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.0.range(..=at).next_back() {
                Some((_, &end)) if end > at => at = end,
                _ => return false,
            }
        }
        range.start < range.end
    }

    /// Adds a range; false if a part of it is there already.
    pub(crate) fn insert(&mut self, range: &Range<u64>) -> bool {
        let free = self.0.range(..range.end).next_back().is_none_or(|(_, &end)| end <= range.start);
        if free && range.start < range.end {
            self.0.insert(range.start, range.end);
        }
        free
    }

    /// Takes out a range that was added.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        self.0.remove(&range.start);
    }

    /// Bytes in the set.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }
}

/// Parts of `old` that are not in `new`. Both are in order and without overlaps.
pub(crate) fn without(old: &[Range<u64>], new: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    for range in old {
        let mut at = range.start;
        let first = new.partition_point(|kept| kept.end <= range.start);
        for kept in new.iter().skip(first).take_while(|kept| kept.start < range.end) {
            if kept.start > at {
                left.push(at..kept.start);
            }
            at = at.max(kept.end);
        }
        if at < range.end {
            left.push(at..range.end);
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_touch_and_do_not_overlap() {
        let mut places = Places::default();
        assert!(places.insert(&(10..20)) && places.insert(&(20..30)) && places.insert(&(40..50)));
        assert!(!places.insert(&(5..11)) && !places.insert(&(29..40)) && !places.insert(&(0..60)));
        assert!(places.covers(&(10..30)) && places.covers(&(15..25)) && places.covers(&(49..50)));
        assert!(!places.covers(&(25..45)) && !places.covers(&(9..12)) && !places.covers(&(12..12)));
        assert_eq!(places.bytes(), 30);
        places.remove(&(20..30));
        assert!(!places.covers(&(15..25)) && places.covers(&(10..20)));
    }

    #[test]
    fn what_is_left_of_old_ranges() {
        let gone = |old: &[Range<u64>], new: &[Range<u64>]| without(old, new);
        let all = 0..50;
        assert_eq!(gone(&[10..20, 30..40], &[]), [10..20, 30..40]);
        assert_eq!(gone(&[10..20, 30..40], std::slice::from_ref(&all)), []);
        assert_eq!(gone(&[10..20, 30..40], &[12..14, 16..32, 39..45]), [10..12, 14..16, 32..39]);
    }
}
