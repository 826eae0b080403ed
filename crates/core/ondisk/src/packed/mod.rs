//! Packed log records: blocks as the bytes in which they differ from the image before.
//!
//! ```text
//!   log block 0              log block 1 ...            padded with zeros to whole log blocks
//!   +--------+-------+-------+----------------+--------+------------------+
//!   | header | entry | entry | runs of the 1st | bytes | runs of the 2nd |  bytes ...
//!   +--------+-------+-------+----------------+--------+------------------+
//!
//!   header, 32 bytes, little-endian
//!     0x00 magic  "sLp1"     0x04 version u16 = 1   0x06 reserved u16 = 0
//!     0x08 sequence u32      0x0c length u32        bytes of the record without its padding
//!     0x10 epoch u64         which use of the log this belongs to
//!     0x18 entries u32       0x1c crc32c u32        over the length, this field taken as zero,
//!                                                   seeded with the journal's UUID
//!   entry, 12 bytes
//!     0x00 home block, 48 bits    0x06 base u8 (0 zeros, 1 previous image)
//!     0x07 encoding u8 (1 runs, 2 whole, 3 runs deflated, 4 whole deflated)
//!     0x08 runs u16               0x0a deflated bytes u16, 0 unless the encoding is 3 or 4
//!   run, 4 bytes
//!     0x00 first chunk u16   0x02 chunks u16        chunks of 32 bytes
//! ```
//!
//! The payload of an entry is its runs, then their bytes; or the whole block. Deflated bytes are a
//! raw deflate stream (RFC 1951) of exactly the bytes that would stand there. An entry relative to
//! zeros describes the complete image. An entry relative to the previous image describes the bytes
//! that changed since the block's last record, or since its home block where no record is live.
//!
//! Promises
//! - [`Record::parse`] accepts exactly the records that [`RecordBuilder`] makes. Parsing is bounded
//!   by the record's length and the block size: runs are sorted, inside the block and do not
//!   overlap, the payload ends where the record ends. Unknown versions, bases and encodings are
//!   refused by name.
//! - A record of another log, of an earlier use of this one, or of another moment never matches:
//!   UUID, epoch and sequence are under the checksum.
//! - The shorter of runs and whole is chosen for each block, so a record is never longer than its
//!   blocks, 12 bytes for each and 32. Bytes are deflated only where that saves a log unit.
//! - Inflating is bounded by the length that the runs or the block size give, and is done while the
//!   record is checked: [`Entry::apply`] cannot fail.
//!
//! Assumptions: blocks are multiples of 32 bytes and at most 64 KiB. The writer knows what the
//! previous image is; `jbd2/src/packed.rs` has the rules for that, and why a torn home block does
//! no harm. Tested in `tests/it/packed.rs`, and by the journal's crash tests.

mod build;
pub(crate) mod deflate;
mod parse;

pub use build::RecordBuilder;
pub use parse::{Entry, Record, RecordHeader};

use crate::features::IncompatFeatures;

/// First bytes of a record.
pub const MAGIC: [u8; 4] = *b"sLp1";
/// The version that is written and read.
pub const VERSION: u16 = 1;
/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of an entry without its payload.
pub const ENTRY_BYTES: usize = 12;
/// Bytes of a run without its contents.
pub const RUN_BYTES: usize = 4;
/// Bytes that are compared and logged together.
pub const CHUNK_BYTES: usize = 32;
/// Highest block number of an entry.
pub const BLOCK_MAX: u64 = (1 << 48) - 1;

/// Parts of a block that a mask of changes tells apart: one bit each.
pub const MASK_BITS: usize = 64;

/// Encodings of an entry, as they stand in the record.
const RUNS: u8 = 1;
const WHOLE: u8 = 2;
const RUNS_DEFLATED: u8 = 3;
const WHOLE_DEFLATED: u8 = 4;

const WHAT: &str = "packed log record";
const CRC_AT: usize = 0x1c;

/// Image that an entry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// A block of zeros: the entry describes the complete image.
    Zeros,
    /// The image that the block's records so far give, or its home block where there is none.
    Previous,
}

/// Knowledge of the image that recovery gives of a block without the record under construction.
#[derive(Clone, Copy, Debug)]
pub enum Previous<'a> {
    /// None: the record describes the complete image.
    Unknown,
    /// The image itself: one block.
    Image(&'a [u8]),
    /// Parts that may differ from it: bit n stands for the n-th of [`MASK_BITS`] equal parts of the
    /// block.
    Changed(u64),
}

/// Identity of a record: which log, which use of it, which transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// Seed of the checksum: [`seed`] of the journal's UUID.
    pub seed: u32,
    /// Use of the log, from the journal superblock.
    pub epoch: u64,
    /// Sequence of the transaction.
    pub sequence: u32,
}

/// Says in an ext4 superblock whether the log may hold packed records. Programs that cannot recover
/// those refuse the image.
pub fn mark(sb: &mut crate::Superblock, on: bool) {
    if on {
        sb.s_feature_incompat.insert(IncompatFeatures::PACKED_LOG);
    } else {
        sb.s_feature_incompat.remove(IncompatFeatures::PACKED_LOG);
    }
}

/// True if the log of an ext4 may hold packed records.
pub fn is_marked(sb: &crate::Superblock) -> bool {
    sb.s_feature_incompat.contains(IncompatFeatures::PACKED_LOG)
}

/// Seed of the checksums of a journal's records.
pub fn seed(uuid: &[u8; 16]) -> u32 {
    crate::checksum::crc32c(!0, uuid)
}
