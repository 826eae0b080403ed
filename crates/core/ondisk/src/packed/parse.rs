//! Reading a record from bytes that nobody vouches for.

use super::{
    Base, CHUNK_BYTES, CRC_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, RUN_BYTES, RecordId, VERSION, WHAT,
};
use crate::bytes::{le16, le32, le64, u8_at};
use crate::checksum::crc32c_skipping;
use crate::error::{OndiskError, Result};

/// A record's header: says how long the record claims to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Use of the log.
    pub epoch: u64,
    /// Sequence of the transaction.
    pub sequence: u32,
    /// Bytes of the record without its padding.
    pub length: u32,
}

impl RecordHeader {
    /// The header at the start of `block`; `None` if no record starts there.
    pub fn decode(block: &[u8]) -> Option<RecordHeader> {
        if block.len() < HEADER_BYTES || block[..4] != MAGIC {
            return None;
        }
        Some(RecordHeader {
            epoch: le64(block, 0x10),
            sequence: le32(block, 8),
            length: le32(block, 0x0c),
        })
    }
}

/// A whole record whose every length has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    entries: &'a [u8],
    payload: &'a [u8],
    block_size: usize,
}

/// One block of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Home block.
    pub block: u64,
    /// Image that the entry changes.
    pub base: Base,
    /// Runs of changed chunks; `None`: the payload is the whole block.
    runs: Option<&'a [u8]>,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// True if `bytes` begin with a whole record of this identity: nothing else is checked yet.
    pub fn is_whole(bytes: &[u8], id: RecordId) -> bool {
        let Some(header) = RecordHeader::decode(bytes) else { return false };
        let Some(record) = bytes.get(..header.length as usize) else { return false };
        record.len() >= HEADER_BYTES
            && (header.epoch, header.sequence) == (id.epoch, id.sequence)
            && crc32c_skipping(id.seed, record, CRC_AT) == le32(record, CRC_AT)
    }

    /// Checks a record that is whole ([`Record::is_whole`]): every entry and every run.
    ///
    /// # Errors
    /// `Corrupt` for a broken rule, `Unsupported` for a version, base or encoding by its number.
    pub fn parse(bytes: &'a [u8], block_size: usize) -> Result<Record<'a>> {
        check_block_size(block_size)?;
        let header = RecordHeader::decode(bytes)
            .ok_or_else(|| OndiskError::corrupt_at(WHAT, 0, "no record starts here"))?;
        let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let version = le16(bytes, 4);
        if version != VERSION {
            return Err(unsupported(format!("version {version}")));
        }
        if le16(bytes, 6) != 0 {
            return fail(6, "a reserved field is set".into());
        }
        let record = bytes.get(..header.length as usize);
        let split = record.and_then(|record| Some((record, record.get(HEADER_BYTES..)?)));
        let Some((record, behind)) = split else {
            return fail(0x0c, format!("{} bytes of {}", header.length, bytes.len()));
        };
        let count = le32(record, 0x18);
        let split = (count as usize).checked_mul(ENTRY_BYTES);
        let Some((entries, payload)) = split.and_then(|at| behind.split_at_checked(at)) else {
            return fail(0x18, format!("{count} entries do not fit"));
        };
        let record = Record { entries, payload, block_size };
        let mut rest = payload;
        for (index, entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            rest = record.check(entry, rest, at)?;
        }
        if !rest.is_empty() {
            return fail(0x0c, format!("{} bytes behind the last entry", rest.len()));
        }
        Ok(record)
    }

    /// Checks one entry, which lies at `at`; returns the payload of those behind it.
    fn check(&self, entry: &[u8], payload: &'a [u8], at: usize) -> Result<&'a [u8]> {
        let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let (base, encoding) = (u8_at(entry, 6), u8_at(entry, 7));
        if base > 1 {
            return Err(unsupported(format!("base {base}")));
        }
        if !(1..=2).contains(&encoding) {
            return Err(unsupported(format!("encoding {encoding}")));
        }
        if le16(entry, 10) != 0 {
            return fail(at + 10, "a reserved field is set".into());
        }
        if encoding == 2 && (base != 0 || le16(entry, 8) != 0) {
            return fail(at + 6, "a whole block with a base or with runs".into());
        }
        let Some((runs, bytes)) = self.lengths(entry, payload) else {
            return fail(at + 8, "the payload is shorter than the entry says".into());
        };
        let chunks = self.block_size / CHUNK_BYTES;
        let mut free_from = 0;
        for run in payload[..runs].chunks_exact(RUN_BYTES) {
            let (first, count) = (usize::from(le16(run, 0)), usize::from(le16(run, 2)));
            if count == 0 || first < free_from || first + count > chunks {
                let detail = format!("run of {count} chunks at {first} of {chunks}");
                return fail(at, detail);
            }
            free_from = first + count;
        }
        Ok(&payload[runs + bytes..])
    }

    /// Bytes of an entry's runs and of their contents, both inside of `payload`.
    fn lengths(&self, entry: &[u8], payload: &[u8]) -> Option<(usize, usize)> {
        if u8_at(entry, 7) == 2 {
            return (payload.len() >= self.block_size).then_some((0, self.block_size));
        }
        let table = payload.get(..usize::from(le16(entry, 8)) * RUN_BYTES)?;
        let chunks: usize =
            table.chunks_exact(RUN_BYTES).map(|run| usize::from(le16(run, 2))).sum();
        let bytes = chunks * CHUNK_BYTES;
        (payload.len() - table.len() >= bytes).then_some((table.len(), bytes))
    }

    /// The entries, in the order in which they were added.
    pub fn entries(&self) -> Entries<'a> {
        Entries { record: *self, next: 0, payload: self.payload }
    }
}

/// Iterator over the entries of a record.
pub struct Entries<'a> {
    record: Record<'a>,
    next: usize,
    payload: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let entry = self.record.entries.get(self.next..self.next + ENTRY_BYTES)?;
        // Checked when the record was parsed.
        let (runs, bytes) = self.record.lengths(entry, self.payload)?;
        let is_whole = u8_at(entry, 7) == 2;
        let found = Entry {
            block: u64::from(le32(entry, 0)) | u64::from(le16(entry, 4)) << 32,
            base: if u8_at(entry, 6) == 1 { Base::Previous } else { Base::Zeros },
            runs: (!is_whole).then_some(&self.payload[..runs]),
            bytes: &self.payload[runs..runs + bytes],
        };
        self.next += ENTRY_BYTES;
        self.payload = &self.payload[runs + bytes..];
        Some(found)
    }
}

impl Entry<'_> {
    /// Makes of the previous image of the block the image that the entry describes. `image` has the
    /// block size of the record; otherwise nothing outside of it is changed.
    pub fn apply(&self, image: &mut [u8]) {
        if self.base == Base::Zeros {
            image.fill(0);
        }
        let Some(runs) = self.runs else {
            if image.len() == self.bytes.len() {
                image.copy_from_slice(self.bytes);
            }
            return;
        };
        let mut bytes = self.bytes;
        for run in runs.chunks_exact(RUN_BYTES) {
            let first = usize::from(le16(run, 0)) * CHUNK_BYTES;
            let len = usize::from(le16(run, 2)) * CHUNK_BYTES;
            let Some((new, rest)) = bytes.split_at_checked(len) else { return };
            if let Some(old) = image.get_mut(first..first + len) {
                old.copy_from_slice(new);
            }
            bytes = rest;
        }
    }
}

pub(super) fn check_block_size(block_size: usize) -> Result<()> {
    if block_size == 0 || !block_size.is_multiple_of(CHUNK_BYTES) || block_size > 65536 {
        return Err(OndiskError::corrupt(WHAT, format!("blocks of {block_size} bytes")));
    }
    Ok(())
}

fn unsupported(feature: String) -> OndiskError {
    OndiskError::unsupported(
        format!("{WHAT} {feature}"),
        "recover the image with the Syncline that wrote it",
    )
}
