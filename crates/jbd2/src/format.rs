//! Bytes of the log: headers, tags, checksums. Big-endian throughout. No I/O.
//!
//! ```text
//! header      0 magic C03B3998 | 4 type (1 descriptor, 2 commit, 5 revoke) | 8 sequence
//! descriptor  12 tag [uuid 16] tag tag ...                     [last 4 bytes: crc32c, v2 and v3]
//! tag v3      0 block | 4 flags u32 | 8 block high | 12 crc32c                       16 bytes
//! tag v1, v2  0 block | 4 checksum u16 | 6 flags u16 | 8 block high (64bit) | v2: 2 of padding
//! flags       1 escaped, 2 same uuid, 4 deleted, 8 last; a tag without "same uuid" has a uuid after it
//! revoke      12 bytes used | 16 block (4 or 8 bytes each) ... [last 4 bytes: crc32c, v2 and v3]
//! commit      12 type, 13 size, 16 crc (v1: CRC-32/MPEG-2 of descriptors and copies; v2, v3: crc32c
//!             of this block) | 48 seconds u64 | 56 nanoseconds u32
//! ```
//!
//! Sources: `include/linux/jbd2.h`, `fs/jbd2/{commit,recovery,revoke}.c`. Tested below by hand-built
//! bytes, and against debugfs, e2fsck and the kernel in `tests/`.

pub(crate) const MAGIC: u32 = 0xC03B_3998;
pub(crate) const DESCRIPTOR: u32 = 1;
pub(crate) const COMMIT: u32 = 2;
pub(crate) const REVOKE: u32 = 5;

pub(crate) const FLAG_ESCAPE: u32 = 1;
pub(crate) const FLAG_SAME_UUID: u32 = 2;
pub(crate) const FLAG_LAST: u32 = 8;

const HEADER_BYTES: usize = 12;
const UUID_BYTES: usize = 16;
const COMMIT_HEADER_BYTES: usize = 60;
const REVOKE_HEADER_BYTES: usize = 16;
/// `h_chksum_type` and `h_chksum_size` of a v1 commit block.
const CRC32_TYPE: u8 = 1;
const CRC32_SIZE: u8 = 4;

/// Which checksums a log carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogChecksums {
    None,
    /// `COMPAT_CHECKSUM`.
    V1,
    /// `INCOMPAT_CSUM_V2`.
    V2,
    /// `INCOMPAT_CSUM_V3`.
    V3,
}

/// What decides the layout of a log's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFormat {
    pub(crate) block_size: usize,
    pub(crate) checksums: LogChecksums,
    pub(crate) is_64bit: bool,
    /// `INCOMPAT_ASYNC_COMMIT`.
    pub(crate) is_async: bool,
    pub(crate) uuid: [u8; 16],
    /// crc32c of the uuid, start of every v2 and v3 checksum.
    pub(crate) seed: u32,
}

/// One tag of a descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) block: u64,
    pub(crate) flags: u32,
    pub(crate) checksum: u32,
}

/// The kernel's crc32c: no inversion at either end.
pub(crate) fn crc32c_raw(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..at.saturating_add(4)).and_then(|b| <[u8; 4]>::try_from(b).ok());
    field.map_or(0, u32::from_be_bytes)
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    let field = bytes.get(at..at.saturating_add(2)).and_then(|b| <[u8; 2]>::try_from(b).ok());
    field.map_or(0, u16::from_be_bytes)
}

pub(crate) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// A zeroed block with a header.
pub(crate) fn control_block(block_size: usize, kind: u32, sequence: u32) -> Vec<u8> {
    let mut block = vec![0; block_size];
    put32(&mut block, 0, MAGIC);
    put32(&mut block, 4, kind);
    put32(&mut block, 8, sequence);
    block
}

/// Type and sequence, if the block has the magic.
pub(crate) fn header(block: &[u8]) -> Option<(u32, u32)> {
    (be32(block, 0) == MAGIC).then(|| (be32(block, 4), be32(block, 8)))
}

impl LogFormat {
    pub(crate) fn has_crc32c(&self) -> bool {
        matches!(self.checksums, LogChecksums::V2 | LogChecksums::V3)
    }

    fn tail_bytes(&self) -> usize {
        if self.has_crc32c() { 4 } else { 0 }
    }

    fn tag_bytes(&self) -> usize {
        match (self.checksums, self.is_64bit) {
            (LogChecksums::V3, _) => 16,
            (LogChecksums::V2, true) => 14,
            (LogChecksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    pub(crate) fn tags_per_block(&self) -> usize {
        (self.block_size - HEADER_BYTES - UUID_BYTES - self.tail_bytes()) / self.tag_bytes()
    }

    fn revoke_bytes(&self) -> usize {
        if self.is_64bit { 8 } else { 4 }
    }

    /// Revoke blocks without a checksum are not protected against tearing: with v1 a block holds what
    /// fits into one sector.
    pub(crate) fn revokes_per_block(&self) -> usize {
        let bytes = match self.checksums {
            LogChecksums::V1 => self.block_size.min(512),
            _ => self.block_size - self.tail_bytes(),
        };
        (bytes - REVOKE_HEADER_BYTES) / self.revoke_bytes()
    }

    /// The tags of a descriptor block, ending at the one that says "last" or at the end of the block.
    pub(crate) fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let end = self.block_size - self.tail_bytes();
        let mut tags = Vec::new();
        let mut at = HEADER_BYTES;
        while at + self.tag_bytes() <= end {
            let tag = self.tag(block, at);
            at += self.tag_bytes();
            if tag.flags & FLAG_SAME_UUID == 0 {
                at += UUID_BYTES;
            }
            tags.push(tag);
            if tag.flags & FLAG_LAST != 0 {
                break;
            }
        }
        tags
    }

    fn tag(&self, block: &[u8], at: usize) -> Tag {
        let (flags, checksum) = match self.checksums {
            LogChecksums::V3 => (be32(block, at + 4), be32(block, at + 12)),
            _ => (u32::from(be16(block, at + 6)), u32::from(be16(block, at + 4))),
        };
        let high = if self.is_64bit { be32(block, at + 8) } else { 0 };
        Tag { block: u64::from(high) << 32 | u64::from(be32(block, at)), flags, checksum }
    }

    /// A descriptor block for `tags`, of which there are at most [`LogFormat::tags_per_block`].
    pub(crate) fn descriptor(&self, sequence: u32, tags: &[Tag]) -> Vec<u8> {
        let mut block = control_block(self.block_size, DESCRIPTOR, sequence);
        let mut at = HEADER_BYTES;
        for (i, tag) in tags.iter().enumerate() {
            let mut flags = tag.flags;
            if i > 0 {
                flags |= FLAG_SAME_UUID;
            }
            if i + 1 == tags.len() {
                flags |= FLAG_LAST;
            }
            put32(&mut block, at, tag.block as u32);
            if self.checksums == LogChecksums::V3 {
                put32(&mut block, at + 4, flags);
                put32(&mut block, at + 12, tag.checksum);
            } else {
                put32(&mut block, at + 4, tag.checksum << 16 | flags);
            }
            if self.is_64bit {
                put32(&mut block, at + 8, (tag.block >> 32) as u32);
            }
            at += self.tag_bytes();
            if i == 0 {
                block[at..at + UUID_BYTES].copy_from_slice(&self.uuid);
                at += UUID_BYTES;
            }
        }
        self.seal_tail(&mut block);
        block
    }

    /// A revoke block for at most [`LogFormat::revokes_per_block`] blocks.
    pub(crate) fn revoke(&self, sequence: u32, blocks: &[u64]) -> Vec<u8> {
        let mut block = control_block(self.block_size, REVOKE, sequence);
        let size = self.revoke_bytes();
        for (i, revoked) in blocks.iter().enumerate() {
            let at = REVOKE_HEADER_BYTES + i * size;
            let bytes = revoked.to_be_bytes();
            block[at..at + size].copy_from_slice(&bytes[8 - size..]);
        }
        let used = REVOKE_HEADER_BYTES + blocks.len() * size;
        put32(&mut block, 12, used as u32);
        self.seal_tail(&mut block);
        block
    }

    /// The blocks that a revoke block names; `None` if it claims more than fits.
    pub(crate) fn revoked<'a>(&self, block: &'a [u8]) -> Option<impl Iterator<Item = u64> + 'a> {
        let used = be32(block, 12) as usize;
        if used > self.block_size - self.tail_bytes() || used < REVOKE_HEADER_BYTES {
            return None;
        }
        let size = self.revoke_bytes();
        let records = block.get(REVOKE_HEADER_BYTES..used)?.chunks_exact(size);
        Some(records.map(|r| r.iter().fold(0u64, |n, b| n << 8 | u64::from(*b))))
    }

    /// A commit block; `crc` is the v1 checksum of the transaction.
    pub(crate) fn commit(&self, sequence: u32, time_ns: u64, crc: u32) -> Vec<u8> {
        let mut block = control_block(self.block_size, COMMIT, sequence);
        block[48..56].copy_from_slice(&(time_ns / 1_000_000_000).to_be_bytes());
        put32(&mut block, 56, (time_ns % 1_000_000_000) as u32);
        match self.checksums {
            LogChecksums::None => {}
            LogChecksums::V1 => {
                block[12] = CRC32_TYPE;
                block[13] = CRC32_SIZE;
                put32(&mut block, 16, crc);
            }
            LogChecksums::V2 | LogChecksums::V3 => {
                let sum = crc32c_raw(self.seed, &block);
                put32(&mut block, 16, sum);
            }
        }
        block
    }

    /// Seconds at which a commit block was written.
    pub(crate) fn commit_seconds(block: &[u8]) -> u64 {
        u64::from(be32(block, 48)) << 32 | u64::from(be32(block, 52))
    }

    /// Whether a commit block's checksum holds; `crc` is what the transaction's blocks sum to in v1.
    /// A v1 block with neither type nor size nor checksum counts as unchecked, as in the kernel.
    pub(crate) fn commit_holds(&self, block: &[u8], crc: u32) -> bool {
        let found = be32(block, 16);
        match self.checksums {
            LogChecksums::None => true,
            LogChecksums::V1 => {
                let kind = (block.get(12).copied(), block.get(13).copied());
                (kind == (Some(CRC32_TYPE), Some(CRC32_SIZE)) && found == crc)
                    || (kind == (Some(0), Some(0)) && found == 0)
            }
            LogChecksums::V2 | LogChecksums::V3 => {
                let sum = |rest: &[u8]| {
                    let sum = crc32c_raw(self.seed, &block[..16]);
                    crc32c_raw(crc32c_raw(sum, &[0; 4]), rest)
                };
                if sum(&block[20..]) == found {
                    return true;
                }
                // Only its first sector arrived, the rest is what the log held before.
                let mut rest = vec![0; block.len() - 20];
                rest[..COMMIT_HEADER_BYTES - 20].copy_from_slice(&block[20..COMMIT_HEADER_BYTES]);
                sum(&rest) == found
            }
        }
    }

    fn seal_tail(&self, block: &mut [u8]) {
        if self.has_crc32c() {
            let sum = crc32c_raw(self.seed, block);
            put32(block, self.block_size - 4, sum);
        }
    }

    /// Whether the tail checksum of a descriptor or revoke block holds, where there is one.
    pub(crate) fn tail_holds(&self, block: &[u8]) -> bool {
        let (body, tail) = block.split_at(self.block_size - 4);
        !self.has_crc32c() || crc32c_raw(crc32c_raw(self.seed, body), &[0; 4]) == be32(tail, 0)
    }

    /// Checksum of a copy as it lies in the log (escaped) for its tag.
    pub(crate) fn copy_checksum(&self, sequence: u32, copy: &[u8]) -> u32 {
        let sum = || crc32c_raw(crc32c_raw(self.seed, &sequence.to_be_bytes()), copy);
        match self.checksums {
            LogChecksums::V3 => sum(),
            LogChecksums::V2 => sum() & 0xFFFF,
            _ => 0,
        }
    }

    /// Whether a copy is what its tag says.
    pub(crate) fn copy_holds(&self, sequence: u32, tag_checksum: u32, copy: &[u8]) -> bool {
        !self.has_crc32c() || self.copy_checksum(sequence, copy) == tag_checksum
    }
}

/// The CRC of a v1 transaction: over each descriptor and its copies, in log order.
#[derive(Clone)]
pub(crate) struct TransactionCrc(crc::Digest<'static, u32>);

static MPEG2: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);

impl TransactionCrc {
    pub(crate) fn new() -> Self {
        TransactionCrc(MPEG2.digest())
    }

    pub(crate) fn add(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}
