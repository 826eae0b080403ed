//! The journal's blocks: superblock, descriptor, revoke and commit blocks. All big-endian.
//!
//! ```text
//!  [sb] ... [descriptor: tags][copy][copy]...[revoke]...[commit] [descriptor]...
//!            every control block starts with  magic C03B3998, block type, sequence
//! ```
//!
//! Three checksum layouts exist, told apart by the superblock's features ([`Layout`]):
//!
//! | | tag | control blocks | commit |
//! | --- | --- | --- | --- |
//! | none, v1 | 8 bytes, 12 with 64bit | no tail | v1: CRC-32/MPEG-2 of descriptors and copies |
//! | v2 | 10, 14 with 64bit; low half of the crc | crc32c in the last 4 bytes | crc32c of itself |
//! | v3 | 16 bytes with the whole crc | crc32c in the last 4 bytes | crc32c of itself |
//!
//! Sources: include/linux/jbd2.h, fs/jbd2/{commit,recovery,revoke}.c. Tested in each file on
//! hand-built bytes and in `tests/it/images.rs` on journals of stock mke2fs and debugfs.

mod commit;
mod descriptor;
mod revoke;
mod superblock;

pub use commit::{CommitBlock, V1Checksum};
pub use descriptor::{DescriptorBuilder, Tag, Tags};
pub use revoke::{RevokeBuilder, Revokes};
pub use superblock::{JOURNAL_SUPERBLOCK_BYTES, JournalCompat, JournalIncompat, JournalSuperblock};

use crate::bytes::{be32, put_be32};
use crate::checksum;
use crate::error::{OndiskError, Result};

/// First word of every control block, and what a copy must not start with.
pub const JBD2_MAGIC: u32 = 0xc03b_3998;
/// Bytes of the header of a control block.
pub const HEADER_BYTES: usize = 12;
/// Bytes of the checksum tail of descriptor and revoke blocks (v2, v3).
pub const TAIL_BYTES: usize = 4;

/// Type of a control block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// Names the blocks that follow.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// Superblock of the first format.
    SuperblockV1,
    /// Superblock.
    SuperblockV2,
    /// Lists blocks that must not be replayed.
    Revoke,
}

impl BlockType {
    /// From the word on disk.
    #[must_use]
    pub fn from_disk(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    /// The word on disk.
    #[must_use]
    pub fn to_disk(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// Header of a control block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Type of the block.
    pub block_type: BlockType,
    /// Transaction it belongs to.
    pub sequence: u32,
}

impl Header {
    /// Reads a header. `None`: no magic or an unknown type, so the log ends here.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        if block.len() < HEADER_BYTES || be32(block, 0) != JBD2_MAGIC {
            return None;
        }
        let block_type = BlockType::from_disk(be32(block, 4))?;
        Some(Self { block_type, sequence: be32(block, 8) })
    }

    /// Writes the header over the first 12 bytes.
    pub fn encode_into(&self, block: &mut [u8]) {
        put_be32(block, 0, JBD2_MAGIC);
        put_be32(block, 4, self.block_type.to_disk());
        put_be32(block, 8, self.sequence);
    }
}

/// Checksum version of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JournalChecksum {
    /// None.
    None,
    /// `COMPAT_CHECKSUM`: one CRC of the transaction in the commit block.
    V1,
    /// `INCOMPAT_CSUM_V2`.
    V2,
    /// `INCOMPAT_CSUM_V3`, the default with `metadata_csum`.
    V3,
}

/// Everything that decides how control blocks look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a journal block, equal to the file system's.
    pub block_size: usize,
    /// True if block numbers have 64 bits.
    pub is_64bit: bool,
    /// Checksum version.
    pub checksum: JournalChecksum,
    /// crc32c of the journal's UUID, seed of v2 and v3 checksums.
    pub seed: u32,
    /// The journal's UUID, which follows the first tag of each descriptor.
    pub uuid: [u8; 16],
}

impl Layout {
    /// The layout that a journal superblock asks for. Unsupported or corrupt: as
    /// [`JournalSuperblock::checksum_kind`].
    pub fn new(sb: &JournalSuperblock) -> Result<Self> {
        Ok(Self {
            block_size: usize::try_from(sb.s_blocksize)
                .map_err(|_| OndiskError::corrupt("journal superblock", "block size"))?,
            is_64bit: sb.s_feature_incompat.contains(JournalIncompat::BIT64),
            checksum: sb.checksum_kind()?,
            seed: checksum::crc32c(!0, &sb.s_uuid),
            uuid: sb.s_uuid,
        })
    }

    /// True if control blocks carry a crc32c (v2 and v3).
    #[must_use]
    pub fn has_block_csum(&self) -> bool {
        matches!(self.checksum, JournalChecksum::V2 | JournalChecksum::V3)
    }

    /// Bytes of a tag, its UUID not counted (`journal_tag_bytes`).
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        match (self.checksum, self.is_64bit) {
            (JournalChecksum::V3, _) => 16,
            (JournalChecksum::V2, true) => 14,
            (JournalChecksum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Most tags in one descriptor block.
    #[must_use]
    pub fn tags_per_descriptor(&self) -> usize {
        self.usable().saturating_sub(HEADER_BYTES + 16) / self.tag_bytes()
    }

    /// Bytes of an entry in a revoke block.
    #[must_use]
    pub fn revoke_entry_bytes(&self) -> usize {
        if self.is_64bit { 8 } else { 4 }
    }

    /// Most entries in one revoke block.
    #[must_use]
    pub fn revokes_per_block(&self) -> usize {
        self.usable().saturating_sub(revoke::REVOKE_HEADER_BYTES) / self.revoke_entry_bytes()
    }

    /// Bytes of a control block before the checksum tail.
    fn usable(&self) -> usize {
        let tail = if self.has_block_csum() { TAIL_BYTES } else { 0 };
        self.block_size.saturating_sub(tail)
    }

    /// crc32c of a copy (after escaping) for its tag (`jbd2_block_tag_csum_set`); v2 keeps the low
    /// half. 0 where tags have none.
    #[must_use]
    pub fn copy_csum(&self, sequence: u32, copy: &[u8]) -> u32 {
        if !self.has_block_csum() {
            return 0;
        }
        let crc = checksum::crc32c(self.seed, &sequence.to_be_bytes());
        let crc = checksum::crc32c(crc, copy);
        if self.checksum == JournalChecksum::V2 { crc & 0xffff } else { crc }
    }

    /// Stores the tail checksum of a descriptor or revoke block. Nothing without v2 or v3.
    pub fn set_tail_csum(&self, block: &mut [u8]) {
        if self.has_block_csum() {
            let at = self.usable();
            let crc = checksum::crc32c_skipping(self.seed, block, at);
            put_be32(block, at, crc);
        }
    }

    /// Checks the tail checksum of a descriptor or revoke block; fine without v2 or v3.
    pub fn verify_tail_csum(&self, block: &[u8]) -> Result<()> {
        let at = self.usable();
        if !self.has_block_csum()
            || (block.len() == self.block_size
                && checksum::crc32c_skipping(self.seed, block, at) == be32(block, at))
        {
            return Ok(());
        }
        Err(OndiskError::corrupt_at("journal block", at, "checksum does not match"))
    }
}

/// True if a copy of `block` must be escaped, because its first word is the journal's magic.
#[inline]
#[must_use]
pub fn needs_escape(block: &[u8]) -> bool {
    be32(block, 0) == JBD2_MAGIC
}

/// Zeroes the first word of a copy. The checksum is over the result.
pub fn escape(copy: &mut [u8]) {
    put_be32(copy, 0, 0);
}

/// Puts the magic back into a copy whose tag has the escape flag.
pub fn unescape(copy: &mut [u8]) {
    put_be32(copy, 0, JBD2_MAGIC);
}

/// True if transaction `a` is at or after `b`; sequences wrap (`tid_geq`).
#[inline]
#[must_use]
pub fn tid_geq(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

/// True if transaction `a` is after `b`; sequences wrap (`tid_gt`).
#[inline]
#[must_use]
pub fn tid_gt(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn layout(checksum: JournalChecksum, is_64bit: bool) -> Layout {
        Layout { block_size: 1024, is_64bit, checksum, seed: 0x1234_5678, uuid: [7; 16] }
    }

    #[test]
    fn sizes_are_the_kernels() {
        let of = |c, wide| {
            let layout = Layout { block_size: 4096, ..layout(c, wide) };
            (layout.tag_bytes(), layout.tags_per_descriptor())
        };
        assert_eq!(of(JournalChecksum::V1, true), (12, 339));
        assert_eq!(of(JournalChecksum::V1, false), (8, 508));
        assert_eq!(of(JournalChecksum::V2, true).0, 14);
        assert_eq!(of(JournalChecksum::V2, false).0, 10);
        assert_eq!(of(JournalChecksum::V3, true), (16, 254));
        assert_eq!(of(JournalChecksum::V3, false), (16, 254));
    }

    #[test]
    fn tids_wrap() {
        assert!(tid_geq(5, 5) && tid_geq(1, u32::MAX) && !tid_geq(u32::MAX, 1));
        assert!(tid_gt(0, u32::MAX) && !tid_gt(5, 5));
    }

    #[test]
    fn headers_without_magic_or_type_are_none() {
        let mut block = [0u8; 16];
        assert_eq!(Header::decode(&block), None);
        let header = Header { block_type: BlockType::Revoke, sequence: 9 };
        header.encode_into(&mut block);
        assert_eq!(&block[..12], b"\xc0\x3b\x39\x98\0\0\0\x05\0\0\0\x09");
        assert_eq!(Header::decode(&block), Some(header));
        block[7] = 6;
        assert_eq!(Header::decode(&block), None);
        assert_eq!(Header::decode(&block[..11]), None, "sequence cut off is not a header");
    }

    #[test]
    fn tail_checksum_covers_the_block() {
        let layout = layout(JournalChecksum::V3, true);
        let mut block = vec![3u8; 1024];
        layout.set_tail_csum(&mut block);
        assert_eq!(layout.verify_tail_csum(&block), Ok(()));
        block[500] ^= 1;
        assert!(layout.verify_tail_csum(&block).is_err());
        assert!(layout.verify_tail_csum(&block[..1000]).is_err());
    }
}
