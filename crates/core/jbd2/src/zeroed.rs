//! Zeroed log blocks: those that hold nothing behind their first sector, so that a commit block
//! written over one of them cannot be torn in effect.
//!
//! ```text
//!   [ descriptor | copy | commit ]  <- this record        known: written by us
//!   [ 0 0 0 ... | old | old | 0 0 ] <- ahead of the head   read, 128 KiB at a time
//!   [ ? ? ? ? ? ? ? ? ? ? ? ? ? ? ]                        unknown: taken for stale
//! ```
//!
//! The v3 checksum covers the whole commit block of which all but the first 64 bytes are zero. If
//! the block's place held something else and power fails, the first sector may be new and others
//! old: e2fsck 1.47 then calls the journal corrupt. `commit.rs` zeroes such places first. Most
//! places need no zeroing, and zeroing costs the device a write that does not continue the last, so
//! it pays to know: a log is read once, on the first way round after a mount; later everything in
//! it is known. Costs two bits a block. Tested below and by the crash tests of the log.

use syncline_device::SECTOR_BYTES;

/// Bytes read at a time to learn which blocks are zeroed.
pub(crate) const PEEK_BYTES: u32 = 128 * 1024;

/// Knowledge of each log block, two bits. Absent blocks are unknown.
#[derive(Default)]
pub(crate) struct ZeroedBlocks {
    known: Vec<u64>,
    zeroed: Vec<u64>,
}

/// True if everything behind the first sector is zero.
pub(crate) fn is_zeroed(bytes: &[u8]) -> bool {
    bytes.iter().skip(SECTOR_BYTES as usize).all(|byte| *byte == 0)
}

fn bit(block: u32) -> (usize, u64) {
    ((block / 64) as usize, 1 << (block % 64))
}

impl ZeroedBlocks {
    /// True if `block` was written or read.
    pub(crate) fn is_known(&self, block: u32) -> bool {
        let (word, mask) = bit(block);
        self.known.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// True if `block` is known to be zeroed.
    pub(crate) fn is_zeroed(&self, block: u32) -> bool {
        let (word, mask) = bit(block);
        self.zeroed.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// `block` was written, or read while it was unknown.
    pub(crate) fn set(&mut self, block: u32, zeroed: bool) {
        let (word, mask) = bit(block);
        if self.known.len() <= word {
            self.known.resize(word + 1, 0);
            self.zeroed.resize(word + 1, 0);
        }
        self.known[word] |= mask;
        if zeroed {
            self.zeroed[word] |= mask;
        } else {
            self.zeroed[word] &= !mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_sector_may_hold_something() {
        let mut bytes = vec![0; 4096];
        bytes[..512].fill(7);
        assert!(is_zeroed(&bytes));
        bytes[512] = 1;
        assert!(!is_zeroed(&bytes));
        bytes[512] = 0;
        bytes[4095] = 1;
        assert!(!is_zeroed(&bytes));
    }

    #[test]
    fn unknown_blocks_are_not_zeroed_and_writes_change_what_is_known() {
        let mut zeroed = ZeroedBlocks::default();
        assert!(!zeroed.is_known(70) && !zeroed.is_zeroed(70));
        zeroed.set(70, true);
        assert!(zeroed.is_known(70) && zeroed.is_zeroed(70));
        assert!(!zeroed.is_known(69) && !zeroed.is_zeroed(71) && !zeroed.is_known(1 << 20));
        zeroed.set(70, false);
        assert!(zeroed.is_known(70) && !zeroed.is_zeroed(70));
    }
}
