//! The journal superblock with its place: log block 0.
//!
//! Everything that changes lies in its first 512 bytes, so an update is atomic. Bytes that are not
//! modelled, in the superblock and behind it, are kept.

use std::ops::Range;

use syncline_device::BlockDevice;
use syncline_ondisk::jbd2::{JournalChecksum, JournalIncompat, JournalSuperblock, Layout};
use syncline_ondisk::packed;

use crate::format::{LogFormat, at_log_block};
use crate::journal::{Checksums, JournalOptions, Limits};
use crate::log_writer::LOG;
use crate::packed::{LOG_UNIT_BYTES, PackedLog};
use crate::ring::Span;
use crate::{JournalError, LogMap};

/// Smaller rings cannot hold four transactions of a few blocks.
const RING_BLOCKS_MIN: u32 = 64;

/// Checksums of the log and its superblock; packed records have their own.
fn kind(options: &JournalOptions, checksums: Checksums) -> JournalChecksum {
    match checksums {
        Checksums::None => JournalChecksum::None,
        Checksums::V3 => JournalChecksum::V3,
        Checksums::V1Async => JournalChecksum::V1,
        Checksums::Packed if options.checksums_at_rest == Checksums::V3 => JournalChecksum::V3,
        Checksums::Packed => JournalChecksum::None,
    }
}

fn is_packed(fields: &JournalSuperblock) -> bool {
    fields.s_feature_incompat.contains(JournalIncompat::PACKED_LOG)
}

fn unpack(fields: &mut JournalSuperblock) {
    fields.s_feature_incompat.remove(JournalIncompat::PACKED_LOG);
    (fields.s_packed_epoch, fields.s_packed_unit) = (0, 0);
}

/// The journal superblock and the block it is in.
pub(crate) struct LogSuperblock {
    fields: JournalSuperblock,
    layout: Layout,
    end: u32,
    bytes: Vec<u8>,
    /// The superblock that a clean shutdown writes instead of that with the eager format.
    at_rest: JournalSuperblock,
}

impl LogSuperblock {
    /// Reads and checks it.
    pub(crate) fn read(dev: &dyn BlockDevice, log: &LogMap) -> Result<Self, JournalError> {
        log.check(dev.geometry().size_bytes)?;
        let mut bytes = vec![0; log.block_size as usize];
        dev.read(log.offset(0)?, &mut bytes, LOG)?;
        let in_superblock = |error| at_log_block(0, error);
        let fields = JournalSuperblock::decode(&bytes).map_err(in_superblock)?;
        fields
            .validate(log.block_size as usize, u64::from(log.len_blocks()))
            .map_err(in_superblock)?;
        fields.verify_checksum(&bytes).map_err(in_superblock)?;
        let end = fields.log_end().map_err(in_superblock)?;
        if end.checked_sub(fields.s_first).is_none_or(|ring| ring < RING_BLOCKS_MIN) {
            let detail = format!("the log starts at block {} of {end}", fields.s_first);
            return Err(JournalError::corrupt(0, detail));
        }
        let layout = Layout::new(&fields).map_err(in_superblock)?;
        Ok(LogSuperblock { at_rest: fields.clone(), fields, layout, end, bytes })
    }

    /// `s_first`.
    pub(crate) fn first(&self) -> u32 {
        self.fields.s_first
    }

    /// One past the last block of the ring: `s_maxlen` without the fast commit area.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Log blocks of the fast commit area. Linux leaves the block behind the ring out.
    pub(crate) fn fast_commit_area(&self) -> Option<Range<u32>> {
        self.fields.has_fast_commit().then(|| self.end + 1..self.fields.s_maxlen)
    }

    /// The log has no fast commits: as Linux does when it empties a log.
    pub(crate) fn drop_fast_commits(&mut self) {
        self.fields.s_feature_incompat.remove(JournalIncompat::FAST_COMMIT);
    }

    /// `s_start`: log block of the oldest transaction, 0 for an empty log.
    pub(crate) fn start(&self) -> u32 {
        self.fields.s_start
    }

    /// `s_sequence`: sequence expected there.
    pub(crate) fn sequence(&self) -> u32 {
        self.fields.s_sequence
    }

    /// `s_errno` as a negative errno, 0 for none.
    pub(crate) fn errno(&self) -> i32 {
        self.fields.s_errno
    }

    /// Sets both; `start` 0 marks the log empty.
    pub(crate) fn set_start(&mut self, sequence: u32, start: u32) {
        self.fields.s_sequence = sequence;
        self.fields.s_start = start;
    }

    /// Forgets `s_errno`.
    pub(crate) fn clear_errno(&mut self) {
        self.fields.s_errno = 0;
    }

    /// Layout of the log's blocks.
    pub(crate) fn format(&self) -> LogFormat {
        let is_async = self.fields.s_feature_incompat.contains(JournalIncompat::ASYNC_COMMIT);
        LogFormat { layout: self.layout, is_async }
    }

    /// Sets the features of new transactions as the kernel would; the log is empty, so nothing
    /// depends on the old ones. Reaches the device with the first commit. The feature of fast
    /// commits goes, since kernel and e2fsck disagree about where a log with such an area wraps;
    /// with [`JournalOptions::keeps_fast_commit_area`] the log stays in front of it.
    /// Packed records get an epoch of their own, which no earlier use of the log had: `now_ns` and
    /// the next sequence, which never goes back.
    pub(crate) fn prepare(
        &mut self,
        options: &JournalOptions,
        now_ns: u64,
    ) -> Result<Limits, JournalError> {
        if self.fields.version == 1 {
            return Err(JournalError::Unsupported {
                feature: "a version 1 journal superblock".into(),
                next_step: "recreate the journal with tune2fs -O ^has_journal and -O has_journal",
            });
        }
        self.at_rest = self.fields.clone();
        self.at_rest.s_feature_incompat.remove(JournalIncompat::FAST_COMMIT);
        unpack(&mut self.at_rest);
        if self.is_v1(&self.fields)? {
            // An eager mount ended here without an unmount.
            self.at_rest.set_checksum_kind(kind(options, options.checksums_at_rest));
        }
        self.fields.s_feature_incompat = JournalIncompat::REVOKE;
        if options.is_64bit {
            self.fields.s_feature_incompat.insert(JournalIncompat::BIT64);
        }
        self.fields.set_checksum_kind(kind(options, options.checksums));
        if options.checksums == Checksums::V1Async {
            self.fields.s_feature_incompat.insert(JournalIncompat::ASYNC_COMMIT);
        }
        (self.fields.s_packed_epoch, self.fields.s_packed_unit) = (0, 0);
        if options.checksums == Checksums::Packed {
            self.fields.s_feature_incompat.insert(JournalIncompat::PACKED_LOG);
            let sequence = u64::from(self.fields.s_sequence);
            self.fields.s_packed_epoch = now_ns ^ sequence.rotate_right(32);
            if options.log_unit_bytes != LOG_UNIT_BYTES {
                self.fields.s_packed_unit = options.log_unit_bytes;
            }
        }
        self.layout = Layout::new(&self.fields).map_err(|error| at_log_block(0, error))?;
        self.end = self.fields.s_maxlen;
        let mut ring = Span { first: self.first(), end: self.end, is_linear: false };
        if options.keeps_fast_commit_area {
            let mut kernels = self.fields.clone();
            kernels.s_feature_incompat.insert(JournalIncompat::FAST_COMMIT);
            // Where the area leaves too little of the log Linux refuses it, and with it the mount.
            if let Ok(end) = kernels.log_end() {
                (ring.end, ring.is_linear) = (end, true);
            }
        }
        let blocks = ring.len();
        Ok(Limits {
            ring,
            tags_per_block: self.layout.tags_per_descriptor() as u32,
            revokes_per_block: self.format().revokes_per_block() as u32,
            soft: blocks / 4,
            hard: blocks / 16 * 15 - 8,
            device_blocks: 0,
        })
    }

    fn is_v1(&self, fields: &JournalSuperblock) -> Result<bool, JournalError> {
        let found = fields.checksum_kind().map_err(|error| at_log_block(0, error))?;
        Ok(found == JournalChecksum::V1)
    }

    /// For an empty log of which nothing will be written any more: goes back to the features of
    /// before the mount, if those of eager syncs were written. False: nothing to do.
    pub(crate) fn rest(&mut self) -> Result<bool, JournalError> {
        let written =
            JournalSuperblock::decode(&self.bytes).map_err(|error| at_log_block(0, error))?;
        if !self.is_v1(&written)? && !is_packed(&written) {
            return Ok(false);
        }
        (self.fields.s_packed_epoch, self.fields.s_packed_unit) = (0, 0);
        self.fields.s_feature_compat = self.at_rest.s_feature_compat;
        self.fields.s_feature_incompat = self.at_rest.s_feature_incompat;
        self.fields.s_checksum_type = self.at_rest.s_checksum_type;
        // Computed anew where the features have one.
        self.fields.s_checksum = 0;
        Ok(true)
    }

    /// True if the log has packed records.
    pub(crate) fn is_packed(&self) -> bool {
        is_packed(&self.fields)
    }

    /// The packed records of this log, if it has such.
    ///
    /// # Errors
    /// As [`PackedLog::new`].
    pub(crate) fn packed_log(&self) -> Result<Option<PackedLog>, JournalError> {
        if !self.is_packed() {
            return Ok(None);
        }
        let (fields, seed) = (&self.fields, packed::seed(&self.fields.s_uuid));
        let block_size = self.layout.block_size;
        PackedLog::new(seed, fields.s_packed_epoch, block_size, fields.s_packed_unit).map(Some)
    }

    /// Declares an empty log a stock one.
    pub(crate) fn unpack(&mut self) {
        unpack(&mut self.fields);
    }

    /// The block to write, checksum renewed.
    pub(crate) fn encoded(&mut self) -> Result<&[u8], JournalError> {
        self.fields.encode_into(&mut self.bytes).map_err(|error| at_log_block(0, error))?;
        Ok(&self.bytes)
    }

    /// Writes it; durable after the next flush.
    pub(crate) fn write(
        &mut self,
        dev: &dyn BlockDevice,
        log: &LogMap,
    ) -> Result<(), JournalError> {
        let offset = log.offset(0)?;
        Ok(dev.write(offset, self.encoded()?, LOG)?)
    }
}
