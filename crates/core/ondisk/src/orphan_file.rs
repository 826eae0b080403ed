//! Blocks of the orphan file (feature `orphan_file`): inode numbers of deleted or truncated files.
//!
//! ```text
//!  [inode number u32; (block size - 8) / 4]  magic 0x0B10CA04 u32  crc32c u32
//! ```
//!
//! A zero is a free slot. The checksum covers the block's own number and the slots, seeded with the
//! orphan file's inode. Tested here and in `tests/it/images.rs`.

use crate::bytes::{le32, put_le32};
use crate::checksum;
use crate::error::{OndiskError, Result};

const WHAT: &str = "orphan file block";
/// Magic in the tail (`EXT4_ORPHAN_BLOCK_MAGIC`).
pub const ORPHAN_BLOCK_MAGIC: u32 = 0x0b10_ca04;
const TAIL_BYTES: usize = 8;

/// Slots of a block.
#[must_use]
pub fn slots(block_size: usize) -> usize {
    block_size.saturating_sub(TAIL_BYTES) / 4
}

/// Inode number in slot `i`; 0 is free, also past the end.
#[must_use]
pub fn get(block: &[u8], i: usize) -> u32 {
    if i < slots(block.len()) { le32(block, i * 4) } else { 0 }
}

/// Stores an inode number (0 frees) in slot `i`. Nothing past the end.
pub fn set(block: &mut [u8], i: usize, ino: u32) {
    if i < slots(block.len()) {
        put_le32(block, i * 4, ino);
    }
}

/// First free slot from `from` on.
#[must_use]
pub fn find_free(block: &[u8], from: usize) -> Option<usize> {
    (from..slots(block.len())).find(|i| get(block, *i) == 0)
}

/// The used slots: slot and inode number.
pub fn orphans(block: &[u8]) -> impl Iterator<Item = (usize, u32)> + '_ {
    (0..slots(block.len())).map(|i| (i, get(block, i))).filter(|(_, ino)| *ino != 0)
}

/// Makes an empty block (checksum unset).
pub fn init(block: &mut [u8]) {
    block.fill(0);
    let tail = block.len().saturating_sub(TAIL_BYTES);
    put_le32(block, tail, ORPHAN_BLOCK_MAGIC);
}

fn checksum_of(block: &[u8], block_nr: u64, inode_seed: u32) -> u32 {
    let crc = checksum::crc32c(inode_seed, &block_nr.to_le_bytes());
    checksum::crc32c(crc, block.get(..slots(block.len()) * 4).unwrap_or(&[]))
}

/// Stores the checksum. `block_nr` is the physical block, `inode_seed` the orphan file's
/// ([`checksum::inode_seed`]).
pub fn set_checksum(block: &mut [u8], block_nr: u64, inode_seed: u32) {
    let crc = checksum_of(block, block_nr, inode_seed);
    let at = block.len().saturating_sub(4);
    put_le32(block, at, crc);
}

/// Checks the magic and, if `inode_seed` is given (`metadata_csum`), the checksum.
pub fn verify(block: &[u8], block_nr: u64, inode_seed: Option<u32>) -> Result<()> {
    let tail = block.len().saturating_sub(TAIL_BYTES);
    let magic = le32(block, tail);
    if magic != ORPHAN_BLOCK_MAGIC {
        let detail = format!("magic is {magic:#x}");
        return Err(OndiskError::corrupt_at(WHAT, tail, detail).in_block(block_nr));
    }
    if let Some(seed) = inode_seed {
        if checksum_of(block, block_nr, seed) != le32(block, tail + 4) {
            let error = OndiskError::corrupt_at(WHAT, tail + 4, "checksum does not match");
            return Err(error.in_block(block_nr));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_checksum() {
        let mut block = vec![0xff; 1024];
        init(&mut block);
        assert_eq!(slots(1024), 254);
        set(&mut block, 0, 12);
        set(&mut block, 253, 13);
        set(&mut block, 254, 99);
        assert_eq!(orphans(&block).collect::<Vec<_>>(), [(0, 12), (253, 13)]);
        assert_eq!(find_free(&block, 0), Some(1));
        assert_eq!(find_free(&block, 253), None);
        set_checksum(&mut block, 77, 5);
        assert_eq!(verify(&block, 77, Some(5)), Ok(()));
        assert!(verify(&block, 78, Some(5)).is_err(), "the block number is covered");
        assert!(verify(&block, 78, None).is_ok());
        block[1016] ^= 1;
        assert!(verify(&block, 77, None).is_err(), "magic");
        assert!(verify(&[], 0, None).is_err());
    }
}
