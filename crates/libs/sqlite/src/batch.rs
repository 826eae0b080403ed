//! Writes of a batch that SQLite has begun: kept in the process until it commits them.
//!
//! The volume gets them in one call ([`crate::VolumeFs::write_batch`]); until then nobody else can
//! see them, and dropping the batch is the abort. Reads of the same file see them over what the
//! volume has. SQLite batches only what its page cache holds, so that bounds the memory.
//!
//! Tested below and in `tests/it/vfs.rs`.

/// Writes in the order in which they came.
#[derive(Debug, Default)]
pub struct Batch {
    /// Offset and bytes of each.
    pub(crate) writes: Vec<(u64, Vec<u8>)>,
}

impl Batch {
    /// Adds a write of `bytes` at `offset`.
    pub fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.writes.push((offset, bytes.to_vec()));
    }

    /// Copies what is written of the bytes from `at` on over `into`, of which the file has `got`.
    /// Returns how many bytes there are; a gap before a write beyond the end reads as zeros.
    pub fn overlay(&self, at: u64, into: &mut [u8], got: usize) -> usize {
        let mut len = got;
        for (offset, bytes) in &self.writes {
            let from = (*offset).max(at);
            let end = (offset + bytes.len() as u64).min(at + into.len() as u64);
            if from >= end {
                continue;
            }
            let (here, until) = ((from - at) as usize, (end - at) as usize);
            if here > len {
                into[len..here].fill(0);
            }
            let skip = (from - offset) as usize;
            into[here..until].copy_from_slice(&bytes[skip..skip + (until - here)]);
            len = len.max(until);
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_writes_cover_earlier_ones_and_a_gap_is_zeros() {
        let mut batch = Batch::default();
        batch.push(10, &[1; 10]);
        batch.push(15, &[2; 2]);
        batch.push(30, &[3; 4]);
        let mut into = [9; 30];
        assert_eq!(batch.overlay(8, &mut into, 4), 26);
        assert_eq!(into[..4], [9, 9, 1, 1]);
        assert_eq!(into[6..10], [1, 2, 2, 1]);
        assert_eq!(into[11..26], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3]);
        let mut before = [9; 8];
        assert_eq!((batch.overlay(0, &mut before, 5), before), (5, [9; 8]));
    }
}
