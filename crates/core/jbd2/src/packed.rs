//! Packed records in the log: the images that recovery builds from them, and the reasons why torn
//! writes do no harm.
//!
//! ```text
//!   log, by sequence      R1(b)        R2(b)  R3(b)                 R4(b)
//!   images of block b   i0 -> i1        i2     i3 -- in place, ----  i4
//!                                                    flush
//!   the tail may pass    not R1: chain R1 R2 R3           R1 to R3, not R4
//! ```
//!
//! A record (`syncline_ondisk::packed`) holds of each block the bytes that changed since the image
//! that recovery gives without it: its base. Recovery takes the home block, whatever it holds, and
//! applies the block's live records in log order. One record is one transaction, written in one
//! piece and followed by one flush.
//!
//! Promises, by the rules of a log that holds differences
//! 1. The base is durable or in the log. It is the last logged image while that is not in place
//!    (`write_back.rs`), the image of a metadata block before its first change since it was logged
//!    or read (`dependency_sets/`, `transaction.rs`), or none: then the record holds the complete
//!    image. Of file data whose logged image is in place already, or that was never logged, the
//!    caller knows which parts changed since ([`crate::Handle::journal_data`]): since an image that
//!    was logged, or that was in place when a flush began that is over.
//! 2. A chain is never cut in its middle. The obligation of an image to be written in place lies
//!    with the oldest transaction of its chain (`chain` in `write_back.rs`), so the tail does not
//!    pass that before the image, or a newer one, is in place, and a flush follows before it moves.
//! 3. Nothing newer than the log goes in place while records live (`in_place.rs`). So the sectors
//!    of a home block hold images between the chain's base and its end, in any mixture, and where
//!    those differ the chain has the bytes: the result is the newest image.
//! 4. A block with a new owner has no base: its record is relative to zeros and what older records
//!    of the former owner left does not count. Blocks freed with a live record are not used for
//!    anything else before the tail has passed it (`deferred.rs`), so no revoke is needed.
//! 5. Blocks that many files share are differences between two logged images, never between the
//!    logged and the newest one: changes of uncommitted sets stay out (`dependency_sets/`).
//! 6. One record is in flight. Recovery stops at the first that is not whole and refuses a log that
//!    has whole ones of the same epoch behind it (`recover/packed.rs`).
//! 7. Records are padded to the log unit: 4096 bytes, more if the mount says so for flash with
//!    larger pages, or a block if that is larger.
//! 8. The journal superblock has the feature before the first record is written, durably, and loses
//!    it when the log is empty. The file system does the same around that with its own.
//!
//! Assumptions: as for a jbd2 log. Memory: one copy of the record while it is written. Records have
//! no revokes: eager mode makes none. Tested in `tests/it/packed.rs`.

use syncline_ondisk::packed::{RecordBuilder, RecordId};

use crate::JournalError;
use crate::format::at_log_block;
use crate::transaction::Frozen;

/// Records are padded to a multiple of this many bytes where nothing else is said.
pub(crate) const LOG_UNIT_BYTES: u32 = 4096;
/// Largest unit, in bytes.
const LOG_UNIT_BYTES_MAX: u32 = 65536;

/// A log of packed records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedLog {
    seed: u32,
    epoch: u64,
    block_size: usize,
    /// Bytes: a power of two.
    unit: usize,
}

impl PackedLog {
    /// `unit_bytes` as in the journal superblock, where 0 stands for the default.
    ///
    /// # Errors
    /// Corrupt for a unit that is no power of two between 4096 and 65536.
    pub(crate) fn new(
        seed: u32,
        epoch: u64,
        block_size: usize,
        unit_bytes: u32,
    ) -> Result<PackedLog, JournalError> {
        let unit = if unit_bytes == 0 { LOG_UNIT_BYTES } else { unit_bytes };
        if !unit.is_power_of_two() || !(LOG_UNIT_BYTES..=LOG_UNIT_BYTES_MAX).contains(&unit) {
            return Err(JournalError::corrupt(0, format!("a log unit of {unit} bytes")));
        }
        Ok(PackedLog { seed, epoch, block_size, unit: block_size.max(unit as usize) })
    }

    /// Identity of the record with this sequence.
    pub(crate) fn id(&self, sequence: u32) -> RecordId {
        RecordId { seed: self.seed, epoch: self.epoch, sequence }
    }

    /// Bytes of one block of the log, and of the blocks that it logs.
    pub(crate) fn block_size(&self) -> usize {
        self.block_size
    }

    pub(crate) fn unit(&self) -> usize {
        self.unit
    }

    /// Log blocks of a record of so many bytes.
    pub(crate) fn blocks_of(&self, len_bytes: usize) -> u32 {
        let blocks = len_bytes.next_multiple_of(self.unit()) / self.block_size;
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// Log blocks of a record of `copies` blocks, at most.
    pub(crate) fn blocks_max(&self, copies: usize) -> u32 {
        let bytes = RecordBuilder::len_bytes_max(self.block_size, copies);
        self.blocks_of(bytes)
    }

    /// The record of a transaction, padded.
    ///
    /// # Errors
    /// A transaction with revokes, or a block that no record can hold.
    pub(crate) fn record(&self, frozen: &Frozen, sequence: u32) -> Result<Vec<u8>, JournalError> {
        if !frozen.revokes.is_empty() {
            return Err(JournalError::Usage("packed records hold no revokes"));
        }
        let in_record = |error| at_log_block(0, error);
        let mut builder = RecordBuilder::new(self.block_size).map_err(in_record)?;
        for copy in &frozen.copies {
            builder.push(copy.block, copy.base.previous(), &copy.image).map_err(in_record)?;
        }
        builder.finish(self.id(sequence), self.unit()).map_err(in_record)
    }
}
