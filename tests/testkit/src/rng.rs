//! Seeded randomness and the bytes of test files.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded generator with the few draws that test generators need.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// An index into a slice of `len` elements; 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        if len == 0 { 0 } else { self.0.random_range(0..len) }
    }

    /// Any number.
    pub fn bits(&mut self) -> u64 {
        self.0.random()
    }

    /// True once in `n` draws.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The bytes `offset .. offset + into.len()` of the endless stream named `seed`. Every part of the
/// stream can be had without the parts before it.
pub fn fill(seed: u64, offset: u64, into: &mut [u8]) {
    let mut at = offset;
    let mut rest = into;
    while !rest.is_empty() {
        let word = mix(seed ^ mix(at / 8)).to_le_bytes();
        let skip = (at % 8) as usize;
        let n = rest.len().min(8 - skip);
        let (head, tail) = rest.split_at_mut(n);
        head.copy_from_slice(&word[skip..skip + n]);
        at = at.wrapping_add(n as u64);
        rest = tail;
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_stream_is_the_same_bytes() {
        let mut whole = [0; 100];
        fill(7, 1000, &mut whole);
        for start in 0..100 {
            let mut part = vec![0; 100 - start];
            fill(7, 1000 + start as u64, &mut part);
            assert_eq!(part, whole[start..]);
        }
        let mut other = [0; 100];
        fill(8, 1000, &mut other);
        assert_ne!(whole, other);
    }
}
