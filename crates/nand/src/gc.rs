//! Which superblock is collected next.
//!
//! ```text
//!   bucket[v]  ->  closed superblocks with v valid units, oldest first
//!
//!   close      put at the end of bucket[valid]
//!   invalidate move to the end of bucket[valid - 1]
//!   pick       first of the first non-empty bucket: greedy, O(1) amortised
//! ```
//!
//! The scheme that copies is in [`crate::ftl`]; a policy only orders candidates. Flat arrays: 12
//! bytes a superblock and 8 bytes a bucket. Deterministic: ties go to the block that came into its
//! bucket first. Tested here against a scan.

/// Orders closed superblocks for collection. A block is a candidate from `closed` until it is
/// picked.
pub trait VictimPolicy: Send {
    /// A superblock is full and may be collected; it holds `valid` units.
    fn closed(&mut self, block: u32, valid: u32);
    /// A superblock lost a unit and now holds `valid`. Ignored unless it is a candidate.
    fn invalidated(&mut self, block: u32, valid: u32);
    /// Takes the next victim out.
    fn pick(&mut self) -> Option<u32>;
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

    fn memory_bytes(&self) -> u64 {
        (self.head.len() + self.tail.len() + 3 * self.next.len()) as u64 * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;

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
