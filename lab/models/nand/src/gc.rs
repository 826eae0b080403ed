//! Choice of the superblock that is collected next.
//!
//! ```text
//!   bucket[v]  ->  closed superblocks with v valid units, oldest first
//!
//!   close      put at the end of bucket[valid]
//!   invalidate move to the end of bucket[valid - 1]
//!   pick       first of the first non-empty bucket: greedy, O(1) amortised
//! ```
//!
//! That is greedy, the usual one; cost-benefit and first in, first out stand beside it.
//! The scheme that copies is in [`crate::ftl`]; a policy only orders candidates. Flat arrays: 12
//! bytes a superblock and 8 bytes a bucket. Deterministic: ties go to the block that came into its
//! bucket first. Tested here against a scan.

use std::collections::VecDeque;

/// Orders closed superblocks for collection. A block is a candidate from `closed` until it is
/// picked.
pub trait VictimPolicy: Send {
    /// A superblock is full and may be collected; it holds `valid` units.
    fn closed(&mut self, block: u32, valid: u32);
    /// A superblock lost a unit and now holds `valid`. Ignored unless it is a candidate.
    fn invalidated(&mut self, block: u32, valid: u32);
    /// Takes the next victim out.
    fn pick(&mut self) -> Option<u32>;
    /// True if a superblock is a candidate.
    fn has(&self, block: u32) -> bool;
    /// Takes a candidate out that is collected for another reason.
    fn remove(&mut self, block: u32);
    /// Bytes of its tables.
    fn memory_bytes(&self) -> u64;
}

const NONE: u32 = u32::MAX;

/// Fewest valid units first.
#[derive(Clone, Debug)]
pub struct Greedy {
    head: Vec<u32>,
    tail: Vec<u32>,
    next: Vec<u32>,
    previous: Vec<u32>,
    /// Bucket of a candidate, `NONE` for others.
    bucket: Vec<u32>,
    /// No bucket below this one holds anything.
    lowest: u32,
}

impl Greedy {
    /// For `blocks` superblocks of `units_per_block` units.
    pub fn new(blocks: u32, units_per_block: u32) -> Self {
        let buckets = units_per_block as usize + 1;
        let blocks = blocks as usize;
        Greedy {
            head: vec![NONE; buckets],
            tail: vec![NONE; buckets],
            next: vec![NONE; blocks],
            previous: vec![NONE; blocks],
            bucket: vec![NONE; blocks],
            lowest: units_per_block,
        }
    }

    fn link(&mut self, block: u32, bucket: u32) {
        let last = self.tail[bucket as usize];
        self.previous[block as usize] = last;
        self.next[block as usize] = NONE;
        if last == NONE {
            self.head[bucket as usize] = block;
        } else {
            self.next[last as usize] = block;
        }
        self.tail[bucket as usize] = block;
        self.bucket[block as usize] = bucket;
        self.lowest = self.lowest.min(bucket);
    }

    fn unlink(&mut self, block: u32) {
        let bucket = self.bucket[block as usize] as usize;
        let (previous, next) = (self.previous[block as usize], self.next[block as usize]);
        match previous {
            NONE => self.head[bucket] = next,
            p => self.next[p as usize] = next,
        }
        match next {
            NONE => self.tail[bucket] = previous,
            n => self.previous[n as usize] = previous,
        }
        self.bucket[block as usize] = NONE;
    }
}

impl VictimPolicy for Greedy {
    fn closed(&mut self, block: u32, valid: u32) {
        self.link(block, valid);
    }

    fn invalidated(&mut self, block: u32, valid: u32) {
        if self.bucket[block as usize] != NONE {
            self.unlink(block);
            self.link(block, valid);
        }
    }

    fn pick(&mut self) -> Option<u32> {
        while (self.lowest as usize) < self.head.len() {
            let block = self.head[self.lowest as usize];
            if block != NONE {
                self.unlink(block);
                return Some(block);
            }
            self.lowest += 1;
        }
        self.lowest = self.head.len() as u32 - 1;
        None
    }

    fn has(&self, block: u32) -> bool {
        self.bucket[block as usize] != NONE
    }

    fn remove(&mut self, block: u32) {
        self.unlink(block);
    }

    fn memory_bytes(&self) -> u64 {
        (self.head.len() + self.tail.len() + 3 * self.next.len()) as u64 * 4
    }
}

/// Closed longest ago first, whatever is valid in it.
#[derive(Clone, Debug)]
pub struct Fifo {
    order: VecDeque<u32>,
    candidate: Vec<bool>,
}

impl Fifo {
    /// For `blocks` superblocks.
    pub fn new(blocks: u32) -> Self {
        let order = VecDeque::with_capacity(blocks as usize);
        Fifo { order, candidate: vec![false; blocks as usize] }
    }
}

impl VictimPolicy for Fifo {
    fn closed(&mut self, block: u32, _valid: u32) {
        self.order.push_back(block);
        self.candidate[block as usize] = true;
    }

    fn invalidated(&mut self, _block: u32, _valid: u32) {}

    fn pick(&mut self) -> Option<u32> {
        let block = self.order.pop_front()?;
        self.candidate[block as usize] = false;
        Some(block)
    }

    fn has(&self, block: u32) -> bool {
        self.candidate[block as usize]
    }

    fn remove(&mut self, block: u32) {
        self.order.retain(|b| *b != block);
        self.candidate[block as usize] = false;
    }

    fn memory_bytes(&self) -> u64 {
        self.candidate.len() as u64 * 5
    }
}

/// Most free space gained for its copying, weighed by age: (1 - u) age / 2u, u the valid share.
///
/// Rosenblum, Ousterhout, "The design and implementation of a log-structured file system", ACM TOCS
/// 1992; Kawaguchi, Nishioka, Motoda, "A flash-memory based file system", USENIX 1995. Age is the
/// number of superblocks closed since. A pick is a scan; it frees room for many writes.
#[derive(Clone, Debug)]
pub struct CostBenefit {
    units_per_block: u64,
    /// Number of the closing of each candidate, 0 for others.
    closed_at: Vec<u64>,
    valid: Vec<u32>,
    now: u64,
}

impl CostBenefit {
    /// For `blocks` superblocks of `units_per_block` units.
    pub fn new(blocks: u32, units_per_block: u32) -> Self {
        CostBenefit {
            units_per_block: u64::from(units_per_block),
            closed_at: vec![0; blocks as usize],
            valid: vec![0; blocks as usize],
            now: 0,
        }
    }

    /// Benefit for cost of a candidate as a fraction; the numerator and the denominator.
    fn score(&self, block: usize) -> (u128, u128) {
        let valid = u64::from(self.valid[block]);
        let age = self.now - self.closed_at[block] + 1;
        (u128::from(self.units_per_block - valid) * u128::from(age), u128::from(2 * valid))
    }
}

impl VictimPolicy for CostBenefit {
    fn closed(&mut self, block: u32, valid: u32) {
        self.now += 1;
        self.closed_at[block as usize] = self.now;
        self.valid[block as usize] = valid;
    }

    fn invalidated(&mut self, block: u32, valid: u32) {
        self.valid[block as usize] = valid;
    }

    fn pick(&mut self) -> Option<u32> {
        let candidates = (0..self.closed_at.len()).filter(|b| self.closed_at[*b] != 0);
        // a/b > c/d as a d > c b: exact, and a superblock without valid units (b = 0) wins.
        let best = candidates.reduce(|best, b| {
            let ((a, b0), (c, d)) = (self.score(b), self.score(best));
            if a * d > c * b0 { b } else { best }
        })?;
        self.closed_at[best] = 0;
        Some(best as u32)
    }

    fn has(&self, block: u32) -> bool {
        self.closed_at[block as usize] != 0
    }

    fn remove(&mut self, block: u32) {
        self.closed_at[block as usize] = 0;
    }

    fn memory_bytes(&self) -> u64 {
        self.valid.len() as u64 * 12
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::SplitMix64;

    #[test]
    fn first_in_first_out() {
        let mut f = Fifo::new(4);
        [2, 0, 3].into_iter().for_each(|b| f.closed(b, 8));
        f.invalidated(3, 0);
        f.remove(2);
        assert!(!f.has(2) && f.has(0));
        assert_eq!([f.pick(), f.pick(), f.pick()], [Some(0), Some(3), None]);
    }

    #[test]
    fn age_outweighs_a_few_valid_units() {
        let mut c = CostBenefit::new(6, 8);
        c.closed(0, 6); // oldest: 2 * 4 / 12
        c.closed(1, 8); // nothing gained
        c.closed(2, 4); // 4 * 2 / 8
        c.closed(3, 5); // 3 * 1 / 10
        assert_eq!(c.pick(), Some(2));
        c.invalidated(3, 0);
        assert_eq!(c.pick(), Some(3), "an empty one is free");
        c.remove(0);
        assert_eq!((c.pick(), c.pick()), (Some(1), None), "also without gain, if it is the last");
    }

    #[test]
    fn oldest_of_the_emptiest() {
        let mut g = Greedy::new(4, 8);
        assert_eq!(g.pick(), None);
        g.closed(0, 8);
        g.closed(1, 5);
        g.closed(2, 6);
        g.invalidated(2, 5);
        g.invalidated(3, 1); // not a candidate
        assert_eq!(g.pick(), Some(1), "came into bucket 5 before block 2");
        assert_eq!(g.pick(), Some(2));
        assert_eq!(g.pick(), Some(0));
        assert_eq!(g.pick(), None);
        g.closed(3, 0);
        assert_eq!(g.pick(), Some(3), "usable after it was empty");
    }

    #[test]
    fn equals_a_scan() {
        let seed = 7;
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let mut g = Greedy::new(50, 16);
        let mut scan: Vec<Option<u32>> = vec![None; 50];
        for _ in 0..20_000 {
            let b = rng.below(50) as usize;
            match (rng.below(4), scan[b]) {
                (0, None) => {
                    let valid = rng.below(17) as u32;
                    scan[b] = Some(valid);
                    g.closed(b as u32, valid);
                }
                (1, _) if rng.below(4) == 0 => {
                    let least = scan.iter().flatten().min().copied();
                    let got = g.pick();
                    assert_eq!(got.and_then(|b| scan[b as usize]), least);
                    if let Some(b) = got {
                        scan[b as usize] = None;
                    }
                }
                (2 | 3, Some(v)) if v > 0 => {
                    scan[b] = Some(v - 1);
                    g.invalidated(b as u32, v - 1);
                }
                _ => {}
            }
        }
    }
}
