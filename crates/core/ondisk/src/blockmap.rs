//! ext2/ext3 block maps: where in `i_block` and the indirect blocks the pointer of a block is.
//!
//! ```text
//!  i_block[0..12] direct   [12] -> single   [13] -> double -> single
//!  [14] -> triple -> double -> single
//! ```
//!
//! Pure arithmetic; pointers are 32 bits, zero is a hole. Tested here.

use crate::bytes::le32;

/// Direct pointers in an inode.
pub const NDIR_BLOCKS: u32 = 12;
/// Slot of the single indirect block.
pub const IND_BLOCK: u32 = 12;
/// Slot of the double indirect block.
pub const DIND_BLOCK: u32 = 13;
/// Slot of the triple indirect block.
pub const TIND_BLOCK: u32 = 14;

/// Way to a logical block's pointer: a slot in `i_block`, then a slot in each indirect block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockPath {
    slots: [u32; 4],
    len: usize,
    /// Number of pointers from this one on (itself included) in the same indirect block or in the
    /// direct part.
    pub run: u32,
}

impl BlockPath {
    /// Path to logical block `block`. `None`: past what three levels reach.
    #[must_use]
    pub fn new(block: u32, block_size: usize) -> Option<Self> {
        let per = u64::try_from(block_size / 4).ok()?;
        let slot = |n: u64| u32::try_from(n % per).unwrap_or(0);
        let block = u64::from(block);
        let direct = u64::from(NDIR_BLOCKS);
        if block < direct {
            let n = u32::try_from(block).ok()?;
            return Some(Self { slots: [n, 0, 0, 0], len: 1, run: NDIR_BLOCKS - n });
        }
        let n = block - direct;
        let run = u32::try_from(per - n % per).ok()?;
        if n < per {
            return Some(Self { slots: [IND_BLOCK, slot(n), 0, 0], len: 2, run });
        }
        let n = n - per;
        let run = u32::try_from(per - n % per).ok()?;
        if n < per * per {
            return Some(Self { slots: [DIND_BLOCK, slot(n / per), slot(n), 0], len: 3, run });
        }
        let n = n - per * per;
        let run = u32::try_from(per - n % per).ok()?;
        if n < per * per * per {
            let slots = [TIND_BLOCK, slot(n / per / per), slot(n / per), slot(n)];
            return Some(Self { slots, len: 4, run });
        }
        None
    }

    /// The slots: the first in `i_block`, each further one in the indirect block found before.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        self.slots.get(..self.len).unwrap_or(&self.slots)
    }

    /// Number of indirect blocks on the way.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.len - 1
    }
}

/// Pointer in slot `slot` of `i_block` or of an indirect block. `None` past the end; 0 is a hole.
#[must_use]
pub fn pointer(raw: &[u8], slot: u32) -> Option<u32> {
    let at = usize::try_from(slot).ok()?.checked_mul(4)?;
    (at + 4 <= raw.len()).then(|| le32(raw, at))
}

/// Most logical blocks a block map reaches, at most 2^32.
#[must_use]
pub fn max_blocks(block_size: usize) -> u64 {
    let per = block_size as u64 / 4;
    (u64::from(NDIR_BLOCKS) + per + per * per + per * per * per).min(1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_at_the_borders() {
        let path = |block| BlockPath::new(block, 1024).map(|p| p.slots().to_vec());
        assert_eq!(path(0), Some(vec![0]));
        assert_eq!(path(11), Some(vec![11]));
        assert_eq!(path(12), Some(vec![12, 0]));
        assert_eq!(path(267), Some(vec![12, 255]));
        assert_eq!(path(268), Some(vec![13, 0, 0]));
        assert_eq!(path(268 + 65535), Some(vec![13, 255, 255]));
        assert_eq!(path(268 + 65536), Some(vec![14, 0, 0, 0]));
        assert_eq!(path(268 + 65536 + 16_777_215), Some(vec![14, 255, 255, 255]));
        assert_eq!(path(268 + 65536 + 16_777_216), None);
        assert_eq!(max_blocks(1024), 268 + 65536 + 16_777_216);
    }

    #[test]
    fn runs_end_with_the_indirect_block() {
        assert_eq!(BlockPath::new(3, 4096).expect("direct").run, 9);
        assert_eq!(BlockPath::new(12, 4096).expect("single").run, 1024);
        assert_eq!(BlockPath::new(12 + 1023, 4096).expect("single").run, 1);
        assert_eq!(BlockPath::new(12 + 1024 + 5, 4096).expect("double").run, 1019);
    }
}
