//! The used blocks of a new file system, as ranges, and the searches of mke2fs in them.
//!
//! A bitmap of 64 TiB would be 2 GiB. A new file system has few ranges: some for each flexible
//! group.

use std::collections::BTreeMap;

/// Free ranges in which [`Used::fit`] looks for room.
const FIT_RANGES: usize = 256;

/// Blocks in use: the end of each range by its start. Ranges do not touch. Searches have many
/// callers, none of them is hot, and so they are not inlined.
#[derive(Clone, Debug)]
pub(super) struct Used {
    ranges: BTreeMap<u64, u64>,
    /// First block of the file system's groups.
    first: u64,
    /// One past the last block.
    end: u64,
}

/// No range: behind all blocks.
const NONE: (u64, u64) = (u64::MAX, u64::MAX);

impl Used {
    pub(super) fn new(first: u64, end: u64) -> Self {
        Self { ranges: BTreeMap::new(), first, end }
    }

    /// Marks blocks that are free, or partly used already.
    #[inline(never)]
    pub(super) fn insert(&mut self, start: u64, count: u64) {
        let (mut start, mut end) = (start, start + count);
        let before = self.ranges.range(..=start).next_back();
        if let Some((before, before_end)) = before.filter(|(_, end)| **end >= start) {
            (start, end) = (*before, end.max(*before_end));
        }
        while let Some((next, next_end)) = self.ranges.range(start..=end).next() {
            let (next, next_end) = (*next, *next_end);
            end = end.max(next_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    /// Frees blocks, used or not.
    #[inline(never)]
    pub(super) fn remove(&mut self, from: u64, count: u64) {
        let to = from + count;
        loop {
            let (start, end) = self.used_from(from);
            if start >= to {
                break;
            }
            self.ranges.remove(&start);
            for (start, end) in [(start, from), (to, end)] {
                if start < end {
                    self.ranges.insert(start, end);
                }
            }
        }
    }

    /// Number of used blocks.
    pub(super) fn count(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// The used range that holds `block` or follows it; [`NONE`] without one.
    #[inline(never)]
    fn used_from(&self, block: u64) -> (u64, u64) {
        let held = self.ranges.range(..=block).next_back().filter(|(_, end)| **end > block);
        let found = held.or_else(|| self.ranges.range(block..).next());
        found.map_or(NONE, |(start, end)| (*start, *end))
    }

    /// The parts of `start..end` that are used.
    pub(super) fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = self.used_from(start).0;
        let ranges = self.ranges.range(first..end.max(first));
        ranges.map(move |(from, to)| ((*from).max(start), (*to).min(end)))
    }

    /// First free block from `from` on, below `end`.
    #[inline(never)]
    pub(super) fn first_free(&self, from: u64, end: u64) -> Option<u64> {
        let (start, used_end) = self.used_from(from);
        let free = if start <= from { used_end } else { from };
        (free < end).then_some(free)
    }

    /// First of `count` free blocks that starts in `from..end` and ends in the file system.
    fn first_run(&self, from: u64, end: u64, count: u64) -> Option<u64> {
        let mut at = from;
        while at < end && at + count <= self.end {
            let (start, used_end) = self.used_from(at);
            if start >= at + count {
                return Some(at);
            }
            at = used_end;
        }
        None
    }

    /// `count` free blocks that start in `start..finish`. Where `finish` is not above `start`, the
    /// search goes on to the end of the file system and then up to `finish`
    /// (`ext2fs_get_free_blocks2`).
    pub(super) fn find(&self, start: u64, finish: u64, count: u64) -> Option<u64> {
        let count = count.max(1);
        let from = if start == 0 { self.first } else { start };
        if finish > start {
            return self.first_run(from, finish.max(from + 1), count);
        }
        let found = self.first_run(from, self.end, count);
        found.or_else(|| self.first_run(self.first, finish.max(self.first + 1), count))
    }

    /// The next free block from `goal` on, or the first one (`ext2fs_new_block2`).
    pub(super) fn next_free(&self, goal: u64) -> Option<u64> {
        let goal = if goal == 0 || goal >= self.end { self.first } else { goal };
        self.first_free(goal, self.end).or_else(|| self.first_free(self.first, goal))
    }

    /// The next free blocks from `goal` on, at most `count` (`ext2fs_new_range`).
    pub(super) fn next_range(&self, goal: u64, count: u64) -> Option<(u64, u64)> {
        let start = self.next_free(goal)?;
        let end = (start + count).min(self.end);
        Some((start, end.min(self.used_from(start).0) - start))
    }

    /// `count` free blocks together, from one of the first free ranges. Fewer where none of those
    /// has room.
    pub(super) fn fit(&self, count: u64) -> Option<(u64, u64)> {
        let mut at = self.first;
        for _ in 0..FIT_RANGES {
            let Some(free) = self.first_free(at, self.end) else { break };
            at = self.used_from(free).0.min(self.end);
            if at - free >= count {
                return Some((free, count));
            }
        }
        self.next_range(0, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_searches_skip_them() {
        let mut used = Used::new(1, 100);
        used.insert(1, 9);
        used.insert(20, 10);
        used.insert(10, 10);
        assert_eq!(used.ranges.iter().collect::<Vec<_>>(), [(&1, &30)]);
        used.insert(40, 5);
        assert_eq!(used.count(), 34);
        assert_eq!(used.within(25, 42).collect::<Vec<_>>(), [(25, 30), (40, 42)]);
        assert_eq!(used.within(30, 40).count(), 0);
        assert_eq!(used.find(0, 99, 10), Some(30));
        assert_eq!(used.find(0, 99, 11), Some(45));
        assert_eq!(used.find(0, 99, 56), None);
        assert_eq!(used.find(60, 60, 12), Some(60));
        assert_eq!(used.find(95, 60, 10), Some(30), "once around");
        assert_eq!(used.next_free(42), Some(45));
        assert_eq!(used.next_free(0), Some(30));
        assert_eq!(used.next_range(25, 20), Some((30, 10)));
        assert_eq!(used.next_range(90, 20), Some((90, 10)));
        used.remove(42, 1);
        used.remove(50, 1);
        assert_eq!((used.next_free(41), used.count()), (Some(42), 33));
        used.insert(30, 70);
        assert_eq!((used.next_free(50), used.count()), (None, 99));
    }
}
