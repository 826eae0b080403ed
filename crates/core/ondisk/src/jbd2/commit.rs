//! Commit blocks, and the checksum of a whole transaction that version 1 keeps in them.
//!
//! ```text
//!  header 12 B | chksum_type u8, size u8, 2 B | h_chksum [u32; 8] | 0x30 sec u64 | 0x38 nsec u32
//! ```
//!
//! v1: type 1, size 4, `h_chksum[0]` is the CRC-32/MPEG-2 of every descriptor block and copy of the
//! transaction in log order; revoke blocks and the commit block are not covered. v2 and v3: type
//! and size 0, `h_chksum[0]` is the crc32c of the commit block itself. In a v1 journal, type, size
//! and checksum all zero means "not checked", so a v1 writer must always store the CRC.

use crate::bytes::{be32, be64, put_be32, put_be64, put_u8, u8_at};
use crate::checksum;
use crate::error::{OndiskError, Result};

use super::{BlockType, Header, JournalChecksum, Layout};

const CHKSUM_TYPE: usize = 12;
const CHKSUM: usize = 16;
const CRC32_TYPE: u8 = 1;
const CRC32_SIZE: u8 = 4;

/// Running v1 checksum of a transaction. Feed each descriptor block, then its copies (escaped), in
/// log order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V1Checksum(u32);

impl Default for V1Checksum {
    fn default() -> Self {
        Self(!0)
    }
}

impl V1Checksum {
    /// A fresh one, for the next transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next block.
    pub fn update(&mut self, block: &[u8]) {
        self.0 = checksum::crc32_be(self.0, block);
    }

    /// The value for the commit block.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.0
    }
}

/// A commit block's fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitBlock {
    /// The transaction.
    pub sequence: u32,
    /// Time of the commit, seconds since 1970.
    pub commit_sec: u64,
    /// Nanoseconds of it.
    pub commit_nsec: u32,
    /// `h_chksum_type`.
    pub chksum_type: u8,
    /// `h_chksum_size`.
    pub chksum_size: u8,
    /// `h_chksum[0]`.
    pub chksum: u32,
}

impl CommitBlock {
    /// Reads a commit block. `None`: it is not one.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let header = Header::decode(block)?;
        (header.block_type == BlockType::Commit).then(|| Self {
            sequence: header.sequence,
            commit_sec: be64(block, 0x30),
            commit_nsec: be32(block, 0x38),
            chksum_type: u8_at(block, CHKSUM_TYPE),
            chksum_size: u8_at(block, CHKSUM_TYPE + 1),
            chksum: be32(block, CHKSUM),
        })
    }

    /// Fills `block` with a commit block in the journal's layout. `v1` is the transaction's
    /// checksum and is used in a v1 journal only. Usage error: `block` is not one journal block.
    pub fn build(
        block: &mut [u8],
        layout: &Layout,
        sequence: u32,
        time: (u64, u32),
        v1: V1Checksum,
    ) -> Result<()> {
        if block.len() != layout.block_size {
            return Err(OndiskError::usage("journal commit block", "the buffer is not one block"));
        }
        block.fill(0);
        Header { block_type: BlockType::Commit, sequence }.encode_into(block);
        put_be64(block, 0x30, time.0);
        put_be32(block, 0x38, time.1);
        match layout.checksum {
            JournalChecksum::None => {}
            JournalChecksum::V1 => {
                put_u8(block, CHKSUM_TYPE, CRC32_TYPE);
                put_u8(block, CHKSUM_TYPE + 1, CRC32_SIZE);
                put_be32(block, CHKSUM, v1.value());
            }
            JournalChecksum::V2 | JournalChecksum::V3 => {
                let crc = checksum::crc32c_skipping(layout.seed, block, CHKSUM);
                put_be32(block, CHKSUM, crc);
            }
        }
        Ok(())
    }

    /// True if the v2 or v3 checksum of the commit block matches, or the layout has neither.
    #[must_use]
    pub fn block_csum_matches(&self, block: &[u8], layout: &Layout) -> bool {
        !layout.has_block_csum()
            || (block.len() == layout.block_size
                && checksum::crc32c_skipping(layout.seed, block, CHKSUM) == self.chksum)
    }

    /// True if the transaction matches its v1 checksum, or the layout has none. As in Linux, a
    /// commit block whose checksum type, size and value are all zero counts as unchecked.
    #[must_use]
    pub fn v1_matches(&self, layout: &Layout, v1: V1Checksum) -> bool {
        if layout.checksum != JournalChecksum::V1 {
            return true;
        }
        let found = (self.chksum_type, self.chksum_size, self.chksum);
        found == (CRC32_TYPE, CRC32_SIZE, v1.value()) || found == (0, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(checksum: JournalChecksum) -> Layout {
        Layout { block_size: 1024, is_64bit: true, checksum, seed: 99, uuid: [0; 16] }
    }

    #[test]
    fn v1_bytes_and_check() {
        let layout = layout(JournalChecksum::V1);
        let mut v1 = V1Checksum::new();
        v1.update(b"12345");
        v1.update(b"6789");
        let mut block = vec![9; 1024];
        CommitBlock::build(&mut block, &layout, 4, (0x1_0000_0002, 3), v1).unwrap();
        assert_eq!(
            &block[..20],
            b"\xc0\x3b\x39\x98\0\0\0\x02\0\0\0\x04\x01\x04\0\0\x03\x76\xe6\xe7"
        );
        assert_eq!(&block[0x30..0x3c], b"\0\0\0\x01\0\0\0\x02\0\0\0\x03");
        let commit = CommitBlock::decode(&block).unwrap();
        assert!(commit.v1_matches(&layout, v1));
        assert!(!commit.v1_matches(&layout, V1Checksum::new()));
        block[12..20].fill(0);
        let unchecked = CommitBlock::decode(&block).unwrap();
        assert!(unchecked.v1_matches(&layout, V1Checksum::new()), "as Linux");
    }

    #[test]
    fn v3_covers_the_block() {
        let layout = layout(JournalChecksum::V3);
        let mut block = vec![9; 1024];
        CommitBlock::build(&mut block, &layout, 4, (5, 6), V1Checksum::new()).unwrap();
        let commit = CommitBlock::decode(&block).unwrap();
        assert_eq!((commit.chksum_type, commit.chksum_size), (0, 0));
        assert!(commit.block_csum_matches(&block, &layout));
        block[700] = 1;
        assert!(!commit.block_csum_matches(&block, &layout));
        assert!(!commit.block_csum_matches(&block[..512], &layout));
    }

    #[test]
    fn other_blocks_are_not_commits() {
        let mut block = vec![0; 1024];
        assert_eq!(CommitBlock::decode(&block), None);
        Header { block_type: BlockType::Descriptor, sequence: 1 }.encode_into(&mut block);
        assert_eq!(CommitBlock::decode(&block), None);
        assert!(
            CommitBlock::build(
                &mut block[..9],
                &layout(JournalChecksum::V1),
                1,
                (0, 0),
                V1Checksum::new()
            )
            .is_err()
        );
    }
}
