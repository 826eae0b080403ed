//! The in-memory picture of one block group: which blocks may not be handed out.
//!
//! ```text
//!   taken = on-disk bitmap | allocated, not installed | held by a window | freed, not committed
//! ```
//!
//! One bit per block, 64 a word, bit 0 of word 0 is the first block of the group. Bits behind the
//! end of a short last group are set, so no search has to know about the end.
//!
//! Promises: no search looks at a word twice; [`GroupMap::longest_max`] never is less than the
//! longest free run, so a group can be skipped without its lock being waited for.
//! Tested here and, through the allocator, in `space/balloc/tests.rs`.

/// A bitmap with the run searches of an allocator. Positions out of range count as taken.
#[derive(Clone, Debug)]
pub(crate) struct RunMap {
    words: Vec<u64>,
    bits: u32,
}

impl RunMap {
    /// Takes `bits` bits from an on-disk bitmap (little endian, lowest bit first). Missing bytes
    /// and everything behind `bits` count as taken.
    pub(crate) fn from_bytes(bytes: &[u8], bits: u32) -> RunMap {
        let words = (bits as usize).div_ceil(64);
        let mut map = RunMap { words: Vec::with_capacity(words), bits };
        for index in 0..words {
            let mut word = [0xff_u8; 8];
            let from = bytes.get(index * 8..).unwrap_or(&[]);
            let len = from.len().min(8);
            word[..len].copy_from_slice(&from[..len]);
            map.words.push(u64::from_le_bytes(word));
        }
        let tail = bits % 64;
        if tail != 0 {
            if let Some(last) = map.words.last_mut() {
                *last |= !0 << tail;
            }
        }
        map
    }

    /// Blocks in the group.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Number of free blocks.
    pub(crate) fn count_zeros(&self) -> u32 {
        self.words.iter().map(|w| w.count_zeros()).sum()
    }

    /// First free block at or after `from`.
    pub(crate) fn next_zero(&self, from: u32) -> Option<u32> {
        let mut index = from as usize / 64;
        let mut word = !self.words.get(index)? & (!0 << (from % 64));
        loop {
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
            index += 1;
            word = !*self.words.get(index)?;
        }
    }

    /// First taken block at or after `from`; the number of blocks if there is none.
    pub(crate) fn next_one(&self, from: u32) -> u32 {
        let mut index = from as usize / 64;
        let Some(first) = self.words.get(index) else { return self.bits };
        let mut word = first & (!0 << (from % 64));
        loop {
            if word != 0 {
                return (index as u32 * 64 + word.trailing_zeros()).min(self.bits);
            }
            index += 1;
            match self.words.get(index) {
                Some(next) => word = *next,
                None => return self.bits,
            }
        }
    }

    /// Length of the free run that starts at `start`.
    pub(crate) fn run_at(&self, start: u32) -> u32 {
        self.next_one(start).saturating_sub(start)
    }

    /// Length of the free run that ends just before `end`.
    fn run_before(&self, end: u32) -> u32 {
        let mut len = 0;
        while len < end {
            let bit = end - 1 - len;
            let word = self.words.get(bit as usize / 64).copied().unwrap_or(!0);
            let below = word << (63 - bit % 64);
            let free = below.leading_zeros().min(bit % 64 + 1);
            len += free;
            if free < bit % 64 + 1 {
                break;
            }
        }
        len
    }

    fn change(&mut self, start: u32, len: u32, set: bool) {
        let end = start.saturating_add(len).min(self.bits);
        let mut at = start;
        while at < end {
            let n = (64 - at % 64).min(end - at);
            let mask = (!0_u64 >> (64 - n)) << (at % 64);
            if let Some(word) = self.words.get_mut(at as usize / 64) {
                if set { *word |= mask } else { *word &= !mask }
            }
            at += n;
        }
    }

    /// True if all of `start..start + len` is taken.
    pub(crate) fn all_set(&self, start: u32, len: u32) -> bool {
        self.next_zero(start).is_none_or(|zero| zero >= start.saturating_add(len))
    }
}

/// One loaded group: its map, the number of free blocks, and a bound on the longest free run.
#[derive(Debug)]
pub(crate) struct GroupMap {
    map: RunMap,
    free: u32,
    longest_max: u32,
}

impl GroupMap {
    /// Counts what the map holds.
    pub(crate) fn new(map: RunMap) -> GroupMap {
        let free = map.count_zeros();
        GroupMap { map, free, longest_max: free }
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Never less than the longest free run, in blocks; exact after a search that failed.
    pub(crate) fn longest_max(&self) -> u32 {
        self.longest_max
    }

    /// Length of the free run at `start`, at most `max` blocks.
    pub(crate) fn run_at(&self, start: u32, max: u32) -> u32 {
        self.map.run_at(start).min(max)
    }

    /// First free run of at least `want` blocks, looking from `goal` upwards and then from the
    /// start of the group. A failed search leaves the exact longest run in `longest_max`.
    pub(crate) fn find(&mut self, goal: u32, want: u32) -> Option<u32> {
        if want == 0 || want > self.longest_max.min(self.free) {
            return None;
        }
        let goal = if goal < self.map.bits() { goal } else { 0 };
        let mut longest = 0;
        let mut at = goal;
        while let Some(start) = self.map.next_zero(at) {
            let end = self.map.next_one(start);
            if end - start >= want {
                return Some(start);
            }
            longest = longest.max(end - start);
            at = end;
        }
        at = 0;
        // A run may straddle the goal: runs that start below it are measured to their full length.
        while let Some(start) = self.map.next_zero(at).filter(|start| *start < goal) {
            let end = self.map.next_one(start);
            if end - start >= want {
                return Some(start);
            }
            longest = longest.max(end - start);
            at = end;
        }
        self.longest_max = longest;
        None
    }

    /// As [`GroupMap::find`] for runs within `bounds` (first, one past the last). Says nothing
    /// about the group's longest run.
    pub(crate) fn find_within(&self, bounds: (u32, u32), goal: u32, want: u32) -> Option<u32> {
        let (low, high) = (bounds.0, bounds.1.min(self.map.bits()));
        let goal = if (low..high).contains(&goal) { goal } else { low };
        let look = |from: u32, until: u32| {
            let mut at = from;
            while let Some(start) = self.map.next_zero(at).filter(|start| *start < until) {
                at = self.map.next_one(start);
                if at.min(high) - start >= want {
                    return Some(start);
                }
            }
            None
        };
        if want == 0 || want > self.free {
            None
        } else {
            look(goal, high).or_else(|| look(low, goal))
        }
    }

    /// Takes blocks that a search found free.
    pub(crate) fn take(&mut self, start: u32, len: u32) {
        debug_assert!(self.map.run_at(start) >= len, "taking blocks that are not free");
        self.map.change(start, len, true);
        self.free = self.free.saturating_sub(len);
        self.longest_max = self.longest_max.min(self.free);
    }

    /// Gives blocks back that were taken.
    pub(crate) fn give(&mut self, start: u32, len: u32) {
        debug_assert!(self.map.all_set(start, len), "giving back blocks that are free");
        self.map.change(start, len, false);
        self.free += len;
        let run = self.map.run_before(start) + self.map.run_at(start);
        self.longest_max = self.longest_max.max(run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_group_ends_where_it_ends() {
        let map = RunMap::from_bytes(&[0; 16], 70);
        assert_eq!(map.count_zeros(), 70);
        assert_eq!(map.run_at(0), 70);
        assert_eq!(map.run_at(69), 1);
        assert_eq!(map.run_at(70), 0);
        assert_eq!(map.run_at(700), 0);
        assert_eq!(map.next_zero(70), None);
        assert!(map.all_set(70, 3));
        assert_eq!(RunMap::from_bytes(&[0], 64).count_zeros(), 8, "missing bytes are taken");
    }

    #[test]
    fn runs_are_found_over_word_borders() {
        let mut map = RunMap::from_bytes(&[0xff; 64], 512);
        map.change(60, 140, false);
        assert_eq!((map.next_zero(0), map.next_one(60)), (Some(60), 200));
        assert_eq!((map.run_before(200), map.run_before(60), map.run_before(64)), (140, 0, 4));
        map.change(0, 60, false);
        assert_eq!((map.run_before(200), map.run_before(1)), (200, 1));
        assert!(!map.all_set(199, 2) && map.all_set(200, 312));
    }

    #[test]
    fn a_search_wraps_and_measures_a_run_over_the_goal() {
        let mut group = GroupMap::new(RunMap::from_bytes(&[0; 16], 128));
        group.take(40, 20);
        group.take(100, 28);
        assert_eq!(group.find(50, 30), Some(60));
        assert_eq!(group.find(80, 40), Some(0), "60..100 is 40 long but 0..40 is first");
        assert_eq!(group.find(80, 41), None);
        assert_eq!(group.longest_max(), 40);
        group.give(50, 10);
        assert_eq!((group.longest_max(), group.free()), (50, 90));
        assert_eq!(group.find(127, 50), Some(50));
    }
}
