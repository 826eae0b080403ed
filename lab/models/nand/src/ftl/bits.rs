//! A bit for each unit, in one row for each logical superblock.
//!
//! ```text
//!   row 0  [ word | word | .. ]      a merge counts and moves whole rows,
//!   row 1  [ word | word | .. ]      64 units at a time
//! ```
//!
//! Tested here against a vector of booleans.

/// Rows of bits.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
    row_words: usize,
}

impl Bits {
    /// All clear.
    pub(super) fn new(rows: u32, bits_per_row: u32) -> Self {
        let row_words = bits_per_row.div_ceil(64) as usize;
        Bits { words: vec![0; rows as usize * row_words], row_words }
    }

    fn row(&self, row: u32) -> &[u64] {
        let first = row as usize * self.row_words;
        &self.words[first..first + self.row_words]
    }

    fn row_mut(&mut self, row: u32) -> &mut [u64] {
        let first = row as usize * self.row_words;
        &mut self.words[first..first + self.row_words]
    }

    /// True if bit `i` of a row is set.
    pub(super) fn get(&self, row: u32, i: u32) -> bool {
        self.row(row)[i as usize / 64] >> (i % 64) & 1 == 1
    }

    /// Sets bit `i` of a row.
    pub(super) fn set(&mut self, row: u32, i: u32) {
        self.row_mut(row)[i as usize / 64] |= 1 << (i % 64);
    }

    /// Clears bit `i` of a row; returns whether it was set.
    pub(super) fn take(&mut self, row: u32, i: u32) -> bool {
        let word = &mut self.row_mut(row)[i as usize / 64];
        let was = *word >> (i % 64) & 1 == 1;
        *word &= !(1 << (i % 64));
        was
    }

    /// Bits set in a row.
    pub(super) fn count(&self, row: u32) -> u32 {
        self.row(row).iter().map(|w| w.count_ones()).sum()
    }

    /// Bits set in `from..to` of a row.
    pub(super) fn count_range(&self, row: u32, from: u32, to: u32) -> u32 {
        if from >= to {
            return 0;
        }
        let (first, last) = (from as usize / 64, (to as usize - 1) / 64);
        let words = &self.row(row)[first..=last];
        let all: u32 = words.iter().map(|w| w.count_ones()).sum();
        let below = words[0] & !(u64::MAX << (from % 64));
        let above = match to % 64 {
            0 => 0,
            n => words[last - first] & (u64::MAX << n),
        };
        all - below.count_ones() - above.count_ones()
    }

    /// The number after the highest bit set in a row; 0 if none is.
    pub(super) fn end(&self, row: u32) -> u32 {
        let found = self.row(row).iter().enumerate().rev().find(|(_, w)| **w != 0);
        found.map_or(0, |(i, w)| i as u32 * 64 + 64 - w.leading_zeros())
    }

    /// Clears a row.
    pub(super) fn clear_row(&mut self, row: u32) {
        self.row_mut(row).fill(0);
    }

    /// Sets what is set in a row of `from`, and clears it there.
    pub(super) fn move_row(&mut self, row: u32, from: &mut Bits, from_row: u32) {
        for (to, from) in self.row_mut(row).iter_mut().zip(from.row_mut(from_row)) {
            *to |= std::mem::take(from);
        }
    }

    /// Bytes of all rows.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::SplitMix64;

    #[test]
    fn equals_booleans() {
        let mut rng = SplitMix64::new(3);
        let (mut bits, mut other) = (Bits::new(3, 150), Bits::new(1, 150));
        let mut plain = vec![vec![false; 150]; 3];
        for step in 0..20_000 {
            let (row, i) = (rng.below(3) as u32, rng.below(150) as u32);
            let line = &mut plain[row as usize];
            match rng.below(4) {
                0 | 1 => {
                    bits.set(row, i);
                    line[i as usize] = true;
                }
                2 => {
                    let was = std::mem::replace(&mut line[i as usize], false);
                    assert_eq!(bits.take(row, i), was);
                }
                _ => assert_eq!(bits.get(row, i), line[i as usize]),
            }
            let to = rng.below(151) as u32;
            let count = |from: u32, to: u32| {
                let range = from as usize..to.max(from) as usize;
                line[range].iter().filter(|b| **b).count() as u32
            };
            assert_eq!(bits.count_range(row, i, to), count(i, to), "step {step}");
            assert_eq!(bits.count(row), count(0, 150));
            let end = line.iter().rposition(|b| *b).map_or(0, |i| i as u32 + 1);
            assert_eq!(bits.end(row), end);
        }
        other.set(0, 149);
        bits.move_row(1, &mut other, 0);
        assert!(bits.get(1, 149) && other.count(0) == 0);
    }
}
