//! Which log blocks are zero behind their first sector, so that a commit block written over them is
//! as good as atomic.
//!
//! ```text
//!   [ descriptor | copy | commit ]  <- this record        known: written by us
//!   [ 0 0 0 ... | old | old | 0 0 ] <- what lies ahead     looked at, 128 KiB at a time
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

/// Blocks looked at in one read are this many bytes.
pub(crate) const LOOK_BYTES: u32 = 128 * 1024;

/// What is known of each log block. Absent blocks are unknown.
#[derive(Default)]
pub(crate) struct Blanks {
    known: Vec<u64>,
    blank: Vec<u64>,
}

/// Whether everything behind the first sector is zero.
pub(crate) fn is_blank(bytes: &[u8]) -> bool {
    bytes.iter().skip(SECTOR_BYTES as usize).all(|byte| *byte == 0)
}

fn bit(block: u32) -> (usize, u64) {
    ((block / 64) as usize, 1 << (block % 64))
}

impl Blanks {
    /// Whether `block` was written or looked at.
    pub(crate) fn is_known(&self, block: u32) -> bool {
        let (word, mask) = bit(block);
        self.known.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// Whether `block` is known to be blank.
    pub(crate) fn is_blank(&self, block: u32) -> bool {
        let (word, mask) = bit(block);
        self.blank.get(word).is_some_and(|bits| bits & mask != 0)
    }

    /// `block` was written, or read while it was unknown.
    pub(crate) fn set(&mut self, block: u32, blank: bool) {
        let (word, mask) = bit(block);
        if self.known.len() <= word {
            self.known.resize(word + 1, 0);
            self.blank.resize(word + 1, 0);
        }
        self.known[word] |= mask;
        if blank {
            self.blank[word] |= mask;
        } else {
            self.blank[word] &= !mask;
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
        assert!(is_blank(&bytes));
        bytes[512] = 1;
        assert!(!is_blank(&bytes));
        bytes[512] = 0;
        bytes[4095] = 1;
        assert!(!is_blank(&bytes));
    }

    #[test]
    fn unknown_blocks_are_not_blank_and_writes_change_what_is_known() {
        let mut blanks = Blanks::default();
        assert!(!blanks.is_known(70) && !blanks.is_blank(70));
        blanks.set(70, true);
        assert!(blanks.is_known(70) && blanks.is_blank(70));
        assert!(!blanks.is_known(69) && !blanks.is_blank(71) && !blanks.is_known(1 << 20));
        blanks.set(70, false);
        assert!(blanks.is_known(70) && !blanks.is_blank(70));
    }
}
