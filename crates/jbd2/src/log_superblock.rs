//! The journal superblock: log block 0.
//!
//! ```text
//!  0 header (type 3: version 1, type 4: version 2) | 12 s_blocksize 16 s_maxlen 20 s_first
//! 24 s_sequence 28 s_start 32 s_errno | 36 s_feature_compat 40 _incompat 44 _ro_compat | 48 s_uuid[16]
//! 64 s_nr_users 68 s_dynsuper 72 s_max_transaction 76 s_max_trans_data
//! 80 s_checksum_type 84 s_num_fc_blks 88 s_head ... 252 s_checksum ... 1024
//! ```
//!
//! Everything that changes lies in the first 512 bytes, so an update is atomic. Unknown bytes are kept.

use syncline_device::BlockDevice;

use crate::commit::LOG;
use crate::format::{LogChecksums, LogFormat, be32, crc32c_raw, header, put32};
use crate::journal::{Checksums, JournalOptions, Limits};
use crate::{JournalError, LogMap};

const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const SUPERBLOCK_BYTES: usize = 1024;
const AT_CHECKSUM: usize = 252;

const COMPAT_CHECKSUM: u32 = 0x1;
const INCOMPAT_REVOKE: u32 = 0x1;
const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
const INCOMPAT_CSUM_V2: u32 = 0x8;
const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
const INCOMPAT_KNOWN: u32 = 0x3F;

const CRC32C_TYPE: u8 = 4;
/// `JBD2_DEFAULT_FAST_COMMIT_BLOCKS`: what `s_num_fc_blks` = 0 means.
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// `s_errno` after an abort: -EIO, as the kernel stores it.
const ERRNO_IO: u32 = 5u32.wrapping_neg();
/// Smaller rings cannot hold four transactions of a few blocks.
const RING_BLOCKS_MIN: u32 = 64;

/// The journal superblock with its whole block.
pub(crate) struct LogSuperblock {
    bytes: Vec<u8>,
}

impl LogSuperblock {
    /// Reads and checks it.
    pub(crate) fn read(dev: &dyn BlockDevice, log: &LogMap) -> Result<Self, JournalError> {
        log.check(dev.geometry().size_bytes)?;
        let mut bytes = vec![0; log.block_size as usize];
        dev.read(log.offset(0)?, &mut bytes, LOG)?;
        let superblock = LogSuperblock { bytes };
        superblock.check(log)?;
        Ok(superblock)
    }

    fn check(&self, log: &LogMap) -> Result<(), JournalError> {
        let bad = |detail: String| Err(JournalError::corrupt(0, detail));
        match header(&self.bytes) {
            Some((SUPERBLOCK_V1 | SUPERBLOCK_V2, _)) => {}
            _ => return bad("no journal superblock".into()),
        }
        self.check_features()?;
        if self.has_crc32c() && self.checksum() != be32(&self.bytes, AT_CHECKSUM) {
            return bad("wrong superblock checksum".into());
        }
        let (block_size, maxlen, first) = (self.field(12), self.field(16), self.field(20));
        if block_size != log.block_size {
            return bad(format!("s_blocksize {block_size}, file system has {}", log.block_size));
        }
        if maxlen > log.len_blocks() {
            return bad(format!("s_maxlen {maxlen}, the inode has {} blocks", log.len_blocks()));
        }
        let end = self.end();
        if first == 0 || first >= end || end - first < RING_BLOCKS_MIN {
            return bad(format!("s_first {first} with {end} blocks"));
        }
        if self.start() != 0 && !(first..end).contains(&self.start()) {
            return bad(format!("s_start {} outside of {first}..{end}", self.start()));
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), JournalError> {
        if !self.is_v2() {
            return Ok(());
        }
        let unknown = self.field(40) & !INCOMPAT_KNOWN;
        let both = self.has(INCOMPAT_CSUM_V2) && self.has(INCOMPAT_CSUM_V3)
            || self.has_crc32c() && self.field(36) & COMPAT_CHECKSUM != 0;
        if both {
            return Err(JournalError::corrupt(0, "two kinds of checksums at once"));
        }
        if unknown != 0 || self.field(44) != 0 {
            return Err(JournalError::Unsupported {
                feature: format!("feature bits {unknown:#x}/{:#x}", self.field(44)),
                next_step: "use a newer kernel or e2fsck to recover it",
            });
        }
        if self.has_crc32c() && self.bytes[80] != CRC32C_TYPE {
            return Err(JournalError::Unsupported {
                feature: format!("checksum type {}", self.bytes[80]),
                next_step: "use a newer kernel or e2fsck to recover it",
            });
        }
        Ok(())
    }

    fn field(&self, at: usize) -> u32 {
        be32(&self.bytes, at)
    }

    fn is_v2(&self) -> bool {
        self.field(4) == SUPERBLOCK_V2
    }

    fn has(&self, incompat: u32) -> bool {
        self.is_v2() && self.field(40) & incompat != 0
    }

    fn has_crc32c(&self) -> bool {
        self.has(INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3)
    }

    fn checksum(&self) -> u32 {
        let sum = crc32c_raw(!0, &self.bytes[..AT_CHECKSUM]);
        let sum = crc32c_raw(sum, &[0; 4]);
        crc32c_raw(sum, &self.bytes[AT_CHECKSUM + 4..SUPERBLOCK_BYTES])
    }

    /// `s_first`.
    pub(crate) fn first(&self) -> u32 {
        self.field(20)
    }

    /// One past the last block of the ring: `s_maxlen` without the fast commit area.
    pub(crate) fn end(&self) -> u32 {
        self.field(16).saturating_sub(self.fast_commit_blocks())
    }

    /// Blocks of the fast commit area, which lies behind the ring.
    pub(crate) fn fast_commit_blocks(&self) -> u32 {
        match self.field(84) {
            _ if !self.has(INCOMPAT_FAST_COMMIT) => 0,
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            n => n,
        }
    }

    /// `s_start`: log block of the oldest transaction, 0 for an empty log.
    pub(crate) fn start(&self) -> u32 {
        self.field(28)
    }

    /// `s_sequence`: sequence expected there.
    pub(crate) fn sequence(&self) -> u32 {
        self.field(24)
    }

    /// `s_errno` as a negative errno, 0 for none.
    pub(crate) fn errno(&self) -> i32 {
        self.field(32).cast_signed()
    }

    /// Sets both; `start` 0 marks the log empty.
    pub(crate) fn set_start(&mut self, sequence: u32, start: u32) {
        put32(&mut self.bytes, 24, sequence);
        put32(&mut self.bytes, 28, start);
    }

    /// Forgets `s_errno`.
    pub(crate) fn clear_errno(&mut self) {
        put32(&mut self.bytes, 32, 0);
    }

    /// Layout of the log's blocks.
    pub(crate) fn format(&self) -> LogFormat {
        let v1 = self.is_v2() && self.field(36) & COMPAT_CHECKSUM != 0;
        let checksums = match () {
            () if self.has(INCOMPAT_CSUM_V3) => LogChecksums::V3,
            () if self.has(INCOMPAT_CSUM_V2) => LogChecksums::V2,
            () if v1 => LogChecksums::V1,
            () => LogChecksums::None,
        };
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.bytes[48..64]);
        LogFormat {
            block_size: self.bytes.len(),
            checksums,
            is_64bit: self.has(INCOMPAT_64BIT),
            is_async: self.has(INCOMPAT_ASYNC_COMMIT),
            uuid,
            seed: crc32c_raw(!0, &uuid),
        }
    }

    /// Sets the features of new transactions; the log is empty, so nothing depends on the old ones.
    /// Reaches the device with the first commit.
    pub(crate) fn prepare(
        &mut self,
        log: &LogMap,
        options: &JournalOptions,
    ) -> Result<Limits, JournalError> {
        if !self.is_v2() {
            return Err(JournalError::Unsupported {
                feature: "a version 1 journal superblock".into(),
                next_step: "recreate the journal with tune2fs -O ^has_journal and -O has_journal",
            });
        }
        let mut incompat = INCOMPAT_REVOKE;
        if options.is_64bit {
            incompat |= INCOMPAT_64BIT;
        }
        if options.checksums == Checksums::V3 {
            incompat |= INCOMPAT_CSUM_V3;
        }
        let compat = self.field(36) & !COMPAT_CHECKSUM;
        put32(&mut self.bytes, 36, compat);
        put32(&mut self.bytes, 40, incompat);
        self.bytes[80] = if options.checksums == Checksums::V3 { CRC32C_TYPE } else { 0 };
        put32(&mut self.bytes, AT_CHECKSUM, 0);
        self.check(log).or_else(|e| match e {
            // The checksum is made when the block is written.
            JournalError::Corrupt { .. } if self.has_crc32c() => Ok(()),
            other => Err(other),
        })?;
        let format = self.format();
        let (first, end) = (self.first(), self.end());
        let ring = end - first;
        Ok(Limits {
            first,
            end,
            tags_per_block: format.tags_per_block() as u32,
            revokes_per_block: format.revokes_per_block() as u32,
            soft: ring / 4,
            hard: ring / 16 * 15 - 8,
            device_blocks: 0,
        })
    }

    /// The block to write, checksum renewed.
    pub(crate) fn encoded(&mut self) -> &[u8] {
        if self.has_crc32c() {
            let sum = self.checksum();
            put32(&mut self.bytes, AT_CHECKSUM, sum);
        }
        &self.bytes
    }

    /// Writes it; durable after the next flush.
    pub(crate) fn write(
        &mut self,
        dev: &dyn BlockDevice,
        log: &LogMap,
    ) -> Result<(), JournalError> {
        let offset = log.offset(0)?;
        Ok(dev.write(offset, self.encoded(), LOG)?)
    }

    /// Notes that the journal was aborted.
    pub(crate) fn note_error(
        &mut self,
        dev: &dyn BlockDevice,
        log: &LogMap,
    ) -> Result<(), JournalError> {
        put32(&mut self.bytes, 32, ERRNO_IO);
        self.write(dev, log)
    }
}
