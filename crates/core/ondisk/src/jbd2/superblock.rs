//! The journal superblock: 1024 bytes in the journal's first block.
//!
//! ```text
//!  0x00 header  0x0C blocksize maxlen first | 0x18 sequence start errno | 0x24 features
//!  0x30 uuid  0x40 nr_users ...  0x50 checksum_type  0x54 num_fc_blks head  0x60 packed_epoch
//!  0x68 packed_unit
//!  0xFC crc32c
//! ```
//!
//! Version 1 ends after `errno`: it has no features. Fields that are not modelled keep their bytes.
//! `packed_epoch` and `packed_unit` are ours, in a place that Linux keeps zero; they count with the
//! feature `packed_log` only ([`crate::packed`]).

use crate::bytes::{array_at, be32, be64, put_be32, put_be64, put_bytes, put_u8, u8_at};
use crate::checksum;
use crate::error::{OndiskError, Result};
use crate::features::feature_set;

use super::{BlockType, Header, JBD2_MAGIC, JournalChecksum};

const WHAT: &str = "journal superblock";
/// Bytes of the journal superblock.
pub const JOURNAL_SUPERBLOCK_BYTES: usize = 1024;
const CHECKSUM: usize = 0xfc;
const CHECKSUM_TYPE_CRC32C: u8 = 4;
/// Fast commit blocks when the superblock says 0 (`JBD2_DEFAULT_FAST_COMMIT_BLOCKS`).
const DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Fewest blocks a journal may have (`JBD2_MIN_JOURNAL_BLOCKS`).
pub(crate) const MIN_JOURNAL_BLOCKS: u32 = 1024;

feature_set! {
    /// `s_feature_compat` of the journal.
    JournalCompat {
        CHECKSUM = 0x1, "journal_checksum";
    }
}

feature_set! {
    /// `s_feature_incompat` of the journal.
    JournalIncompat {
        REVOKE = 0x1, "journal_incompat_revoke";
        BIT64 = 0x2, "journal_64bit";
        ASYNC_COMMIT = 0x4, "journal_async_commit";
        CSUM_V2 = 0x8, "journal_checksum_v2";
        CSUM_V3 = 0x10, "journal_checksum_v3";
        FAST_COMMIT = 0x20, "fast_commit";
        PACKED_LOG = 0x4000_0000, "packed_log";
    }
}

impl JournalCompat {
    const CLASS: &'static str = "journal_compat";
}

impl JournalIncompat {
    const CLASS: &'static str = "journal_incompat";
}

/// The journal superblock's fields. Blocks are journal blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::struct_field_names)]
pub struct JournalSuperblock {
    /// Version 1 has no fields from the features on.
    pub version: u8,
    /// Bytes of a journal block.
    pub s_blocksize: u32,
    /// Blocks of the journal, the superblock included.
    pub s_maxlen: u32,
    /// First block of the log.
    pub s_first: u32,
    /// First transaction expected in the log.
    pub s_sequence: u32,
    /// Block the log starts at; 0 is an empty log.
    pub s_start: u32,
    /// errno of an abort, negative.
    pub s_errno: i32,
    /// Compatible features.
    pub s_feature_compat: JournalCompat,
    /// Incompatible features.
    pub s_feature_incompat: JournalIncompat,
    /// Features that allow reading; none exist.
    pub s_feature_ro_compat: u32,
    /// Identity; seed of checksums.
    pub s_uuid: [u8; 16],
    /// File systems that share the journal.
    pub s_nr_users: u32,
    /// 4: crc32c.
    pub s_checksum_type: u8,
    /// Blocks at the end kept for fast commits; 0 is 256.
    pub s_num_fc_blks: u32,
    /// Head of the log at the last clean unmount; a hint.
    pub s_head: u32,
    /// Use of the log that packed records belong to; 0 without `packed_log`.
    pub s_packed_epoch: u64,
    /// Packed records are padded to a multiple of so many bytes; 0 is 4096.
    pub s_packed_unit: u32,
    /// crc32c as read; [`JournalSuperblock::encode_into`] makes a new one.
    pub s_checksum: u32,
}

impl JournalSuperblock {
    /// Reads the superblock. Corrupt: too short, no magic or not a superblock.
    pub fn decode(buf: &[u8]) -> Result<Self> {
        let Some(buf) = buf.get(..JOURNAL_SUPERBLOCK_BYTES) else {
            return Err(OndiskError::corrupt(WHAT, format!("only {} bytes", buf.len())));
        };
        let version = match Header::decode(buf).map(|header| header.block_type) {
            Some(BlockType::SuperblockV1) => 1,
            Some(BlockType::SuperblockV2) => 2,
            Some(other) => {
                return Err(OndiskError::corrupt_at(WHAT, 4, format!("block is a {other:?}")));
            }
            None => {
                let detail = format!("starts with {:#010x}, not {JBD2_MAGIC:#x}", be32(buf, 0));
                return Err(OndiskError::corrupt_at(WHAT, 0, detail));
            }
        };
        let later = if version == 2 { buf } else { &[] };
        Ok(Self {
            version,
            s_blocksize: be32(buf, 0x0c),
            s_maxlen: be32(buf, 0x10),
            s_first: be32(buf, 0x14),
            s_sequence: be32(buf, 0x18),
            s_start: be32(buf, 0x1c),
            s_errno: be32(buf, 0x20) as i32,
            s_feature_compat: JournalCompat::from_bits(be32(later, 0x24)),
            s_feature_incompat: JournalIncompat::from_bits(be32(later, 0x28)),
            s_feature_ro_compat: be32(later, 0x2c),
            s_uuid: array_at(later, 0x30),
            s_nr_users: be32(later, 0x40),
            s_checksum_type: u8_at(later, 0x50),
            s_num_fc_blks: be32(later, 0x54),
            s_head: be32(later, 0x58),
            s_packed_epoch: be64(later, 0x60),
            s_packed_unit: be32(later, 0x68),
            s_checksum: be32(later, CHECKSUM),
        })
    }

    /// Writes the fields over `buf` and, with checksums v2 or v3, the checksum of the result.
    /// Usage error: shorter than 1024 bytes.
    pub fn encode_into(&self, buf: &mut [u8]) -> Result<()> {
        let Some(buf) = buf.get_mut(..JOURNAL_SUPERBLOCK_BYTES) else {
            return Err(OndiskError::usage(WHAT, "the buffer is shorter than 1024 bytes"));
        };
        put_be32(buf, 0, JBD2_MAGIC);
        let block_type =
            if self.version == 1 { BlockType::SuperblockV1 } else { BlockType::SuperblockV2 };
        put_be32(buf, 4, block_type.to_disk());
        put_be32(buf, 0x0c, self.s_blocksize);
        put_be32(buf, 0x10, self.s_maxlen);
        put_be32(buf, 0x14, self.s_first);
        put_be32(buf, 0x18, self.s_sequence);
        put_be32(buf, 0x1c, self.s_start);
        put_be32(buf, 0x20, self.s_errno as u32);
        if self.version == 1 {
            return Ok(());
        }
        put_be32(buf, 0x24, self.s_feature_compat.bits());
        put_be32(buf, 0x28, self.s_feature_incompat.bits());
        put_be32(buf, 0x2c, self.s_feature_ro_compat);
        put_bytes(buf, 0x30, &self.s_uuid);
        put_be32(buf, 0x40, self.s_nr_users);
        put_u8(buf, 0x50, self.s_checksum_type);
        put_be32(buf, 0x54, self.s_num_fc_blks);
        put_be32(buf, 0x58, self.s_head);
        put_be64(buf, 0x60, self.s_packed_epoch);
        put_be32(buf, 0x68, self.s_packed_unit);
        if self.has_block_csum() {
            let crc = Self::checksum_of(buf);
            put_be32(buf, CHECKSUM, crc);
        } else {
            put_be32(buf, CHECKSUM, self.s_checksum);
        }
        Ok(())
    }

    /// crc32c of the 1024 bytes with the checksum field as zero.
    #[must_use]
    pub fn checksum_of(buf: &[u8]) -> u32 {
        let buf = buf.get(..JOURNAL_SUPERBLOCK_BYTES).unwrap_or(buf);
        checksum::crc32c_skipping(!0, buf, CHECKSUM)
    }

    /// Checks the checksum of the bytes this was decoded from; fine without v2 or v3.
    pub fn verify_checksum(&self, buf: &[u8]) -> Result<()> {
        if self.has_block_csum() && Self::checksum_of(buf) != self.s_checksum {
            return Err(OndiskError::corrupt_at(WHAT, CHECKSUM, "checksum does not match"));
        }
        Ok(())
    }

    fn has_block_csum(&self) -> bool {
        let any = JournalIncompat::CSUM_V2.union(JournalIncompat::CSUM_V3);
        self.s_feature_incompat.intersects(any)
    }

    /// Returns the checksum version that the features select. Corrupt: v2 and v3 at once, or either
    /// with v1. Unsupported: v2 or v3 with a checksum type other than crc32c.
    pub fn checksum_kind(&self) -> Result<JournalChecksum> {
        let v1 = self.s_feature_compat.contains(JournalCompat::CHECKSUM);
        let v2 = self.s_feature_incompat.contains(JournalIncompat::CSUM_V2);
        let v3 = self.s_feature_incompat.contains(JournalIncompat::CSUM_V3);
        if u8::from(v1) + u8::from(v2) + u8::from(v3) > 1 {
            return Err(OndiskError::corrupt_at(WHAT, 0x24, "more than one checksum version"));
        }
        if (v2 || v3) && self.s_checksum_type != CHECKSUM_TYPE_CRC32C {
            let name = format!("journal checksum type {}", self.s_checksum_type);
            return Err(OndiskError::unsupported(name, "only crc32c exists; run `e2fsck -f`"));
        }
        Ok(match (v1, v2, v3) {
            (true, ..) => JournalChecksum::V1,
            (_, true, _) => JournalChecksum::V2,
            (.., true) => JournalChecksum::V3,
            _ => JournalChecksum::None,
        })
    }

    /// Sets features, checksum type and clears the others' bits for checksum version `kind`. v1
    /// gets `journal_async_commit`: without it a torn last transaction is an error, not the log's
    /// end.
    pub fn set_checksum_kind(&mut self, kind: JournalChecksum) {
        let all = JournalIncompat::CSUM_V2
            .union(JournalIncompat::CSUM_V3)
            .union(JournalIncompat::ASYNC_COMMIT);
        self.s_feature_compat.remove(JournalCompat::CHECKSUM);
        self.s_feature_incompat.remove(all);
        self.s_checksum_type = 0;
        match kind {
            JournalChecksum::None => {}
            JournalChecksum::V1 => {
                self.s_feature_compat.insert(JournalCompat::CHECKSUM);
                self.s_feature_incompat.insert(JournalIncompat::ASYNC_COMMIT);
            }
            JournalChecksum::V2 => self.s_feature_incompat.insert(JournalIncompat::CSUM_V2),
            JournalChecksum::V3 => self.s_feature_incompat.insert(JournalIncompat::CSUM_V3),
        }
        if self.has_block_csum() {
            self.s_checksum_type = CHECKSUM_TYPE_CRC32C;
        } else {
            self.s_checksum = 0;
        }
    }

    /// Checks sizes against each other, the file system's block size and the journal file's length
    /// in blocks (`journal_get_superblock`). Unsupported: unknown features, or an external journal.
    pub fn validate(&self, fs_block_size: usize, file_blocks: u64) -> Result<()> {
        let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let mut unknown: Vec<String> = self.s_feature_incompat.unknown().names().collect();
        if self.s_feature_ro_compat != 0 {
            unknown.push(format!("journal_ro_compat {:#x}", self.s_feature_ro_compat));
        }
        if !unknown.is_empty() {
            let detail = "the journal needs a newer program; run a newer e2fsck";
            return Err(OndiskError::unsupported(unknown.join(", "), detail));
        }
        self.checksum_kind()?;
        if usize::try_from(self.s_blocksize) != Ok(fs_block_size) {
            let (found, want) = (self.s_blocksize, fs_block_size);
            return fail(0x0c, format!("block size {found}, the file system's is {want}"));
        }
        if u64::from(self.s_maxlen) > file_blocks || self.s_maxlen < MIN_JOURNAL_BLOCKS {
            let len = self.s_maxlen;
            return fail(0x10, format!("{len} blocks; the file has {file_blocks}, 1024 needed"));
        }
        if self.s_first == 0 || self.s_first >= self.s_maxlen {
            return fail(0x14, format!("log starts at block {} of the journal", self.s_first));
        }
        let end = self.log_end()?;
        if self.s_start != 0 && !(self.s_first..end).contains(&self.s_start) {
            return fail(0x1c, format!("start {} is outside the log", self.s_start));
        }
        Ok(())
    }

    /// One past the last block of the log: the log wraps from here to `s_first`. Blocks for fast
    /// commits, if the feature is on, are behind it. Corrupt: fewer than 1024 blocks are left.
    pub fn log_end(&self) -> Result<u32> {
        if !self.has_fast_commit() {
            return Ok(self.s_maxlen);
        }
        let fast = match self.s_num_fc_blks {
            0 => DEFAULT_FAST_COMMIT_BLOCKS,
            n => n,
        };
        match self.s_maxlen.checked_sub(fast) {
            Some(end) if end >= MIN_JOURNAL_BLOCKS && end > self.s_first => Ok(end),
            _ => {
                let detail = format!("{fast} fast commit blocks leave no room for the log");
                Err(OndiskError::corrupt_at(WHAT, 0x54, detail))
            }
        }
    }

    /// True if there may be a fast-commit area to replay.
    #[must_use]
    pub fn has_fast_commit(&self) -> bool {
        self.s_feature_incompat.contains(JournalIncompat::FAST_COMMIT)
    }
}
