//! Contents of what a replay writes: a trace has none.
//!
//! They decide how long packed log records are, which hold the bytes that changed. Real contents
//! lie between the two kinds here. Other configurations write the same bytes with either.

/// Longest piece handed out at once, in bytes.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Distance between two pieces in the noise; odd and prime, so that a page gets the same bytes
/// again only after a million writes.
const STEP_BYTES: usize = 4_099;
/// Byte of [`Contents::Same`].
const SAME: u8 = 0xA5;

/// Kinds of contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Other random bytes with every write: each byte written is a byte that changed, and nothing
    /// can be compressed. No real program makes longer records.
    #[default]
    Noise,
    /// The same byte everywhere: an overwritten page does not change, and all compresses. No real
    /// program makes shorter records.
    Same,
}

/// Maker of pieces.
pub(crate) struct Maker {
    bytes: Vec<u8>,
    at: usize,
}

impl Maker {
    /// Contents of a kind; `seed` chooses the noise.
    pub(crate) fn new(contents: Contents, seed: u64) -> Maker {
        if contents == Contents::Same {
            return Maker { bytes: vec![SAME; PIECE_BYTES_MAX], at: 0 };
        }
        // SplitMix64 (Steele, Lea, Flood 2014).
        let mut state = seed;
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (word ^ (word >> 31)).to_le_bytes()
        });
        let bytes = words.take(2 * PIECE_BYTES_MAX / 8).flatten().collect();
        Maker { bytes, at: 0 }
    }

    /// `len_bytes`, or [`PIECE_BYTES_MAX`] if that is less.
    pub(crate) fn piece(&mut self, len_bytes: u64) -> &[u8] {
        let len = len_bytes.min(PIECE_BYTES_MAX as u64) as usize;
        let most = self.bytes.len() - PIECE_BYTES_MAX;
        let at = self.at;
        self.at = if most == 0 { 0 } else { (at + STEP_BYTES) % most };
        &self.bytes[at..at + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_differs_from_write_to_write_and_with_the_seed_and_repeats() {
        let pieces = |seed| {
            let mut maker = Maker::new(Contents::Noise, seed);
            (0..300).map(|_| maker.piece(4096).to_vec()).collect::<Vec<_>>()
        };
        let made = pieces(1);
        assert!(made == pieces(1) && made != pieces(2));
        for (n, piece) in made.iter().enumerate() {
            let equal = made[..n].iter().any(|other| {
                other.chunks(32).zip(piece.chunks(32)).any(|(other, piece)| other == piece)
            });
            assert!(!equal, "piece {n} has a part of an earlier one in its place");
        }
    }

    #[test]
    fn a_piece_is_no_longer_than_asked_and_than_the_longest() {
        for contents in [Contents::Noise, Contents::Same] {
            let mut maker = Maker::new(contents, 3);
            assert_eq!(maker.piece(7).len(), 7);
            assert_eq!(maker.piece(u64::MAX).len(), PIECE_BYTES_MAX);
        }
        assert_eq!(Maker::new(Contents::Same, 3).piece(2), [SAME; 2]);
    }
}
