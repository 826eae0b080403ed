//! The bytes of a file in the reference model: pieces of what was written, zeros everywhere else.

use std::collections::BTreeMap;

const PIECE: u64 = 4096;

/// Contents of a file of any size. Only pieces that were written to take memory.
#[derive(Clone, Debug, Default)]
pub struct SparseBytes {
    pieces: BTreeMap<u64, Box<[u8]>>,
    size: u64,
}

impl SparseBytes {
    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Copies what is at `offset`; returns how many bytes there are up to the end of the file.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let (piece, within) = (at / PIECE, (at % PIECE) as usize);
            let n = (PIECE as usize - within).min(len - done);
            match self.pieces.get(&piece) {
                Some(bytes) => into[done..done + n].copy_from_slice(&bytes[within..within + n]),
                None => into[done..done + n].fill(0),
            }
            done += n;
        }
        len
    }

    /// Writes, and grows the file to the end of what was written.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let (piece, within) = (at / PIECE, (at % PIECE) as usize);
            let n = (PIECE as usize - within).min(from.len() - done);
            let bytes = self.pieces.entry(piece).or_insert_with(|| vec![0; PIECE as usize].into());
            bytes[within..within + n].copy_from_slice(&from[done..done + n]);
            done += n;
        }
        if !from.is_empty() {
            self.size = self.size.max(offset + from.len() as u64);
        }
    }

    /// Sets the size; what is cut off is gone, what is added is zero.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
        }
        self.size = size;
    }

    /// Zeroes a range; the part behind the end of the file is ignored.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        if offset >= end {
            return;
        }
        let (first, last) = (offset / PIECE, (end - 1) / PIECE);
        let touched: Vec<u64> = self.pieces.range(first..=last).map(|(n, _)| *n).collect();
        for piece in touched {
            let start = piece * PIECE;
            if start >= offset && start + PIECE <= end {
                self.pieces.remove(&piece);
            } else if let Some(bytes) = self.pieces.get_mut(&piece) {
                let from = offset.max(start) - start;
                let to = end.min(start + PIECE) - start;
                bytes[from as usize..to as usize].fill(0);
            }
        }
    }

    /// True if every byte of the range is zero.
    #[must_use]
    pub fn is_zero(&self, offset: u64, end: u64) -> bool {
        let end = end.min(self.size);
        if offset >= end {
            return true;
        }
        self.pieces.range(offset / PIECE..=(end - 1) / PIECE).all(|(piece, bytes)| {
            let start = piece * PIECE;
            let from = offset.max(start) - start;
            let to = end.min(start + PIECE) - start;
            bytes[from as usize..to as usize].iter().all(|b| *b == 0)
        })
    }

    /// Starts of the pieces that may hold something else than zeros.
    pub fn pieces(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.keys().map(|piece| piece * PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_testkit::Random;

    #[test]
    fn it_is_a_vector_of_bytes() {
        let mut random = Random::new(1);
        let (mut sparse, mut plain) = (SparseBytes::default(), Vec::new());
        for _ in 0..2000 {
            let (at, len) = (random.index(20_000), random.index(9000));
            match random.below(4) {
                0 => {
                    let byte = random.below(256) as u8;
                    sparse.write(at as u64, &vec![byte; len]);
                    if len > 0 {
                        plain.resize(plain.len().max(at + len), 0);
                        plain[at..at + len].fill(byte);
                    }
                }
                1 => {
                    sparse.truncate(at as u64);
                    plain.resize(at, 0);
                }
                2 => {
                    sparse.zero(at as u64, len as u64);
                    let end = (at + len).min(plain.len());
                    if at < end {
                        plain[at..end].fill(0);
                    }
                }
                _ => {
                    let mut got = vec![9; len];
                    let n = sparse.read(at as u64, &mut got);
                    let end = (at + len).min(plain.len());
                    let want = plain.get(at..end).unwrap_or(&[]);
                    assert_eq!(&got[..n], want);
                    let zero = want.iter().all(|b| *b == 0);
                    assert_eq!(sparse.is_zero(at as u64, (at + len) as u64), zero);
                }
            }
            assert_eq!(sparse.size(), plain.len() as u64);
        }
    }
}
