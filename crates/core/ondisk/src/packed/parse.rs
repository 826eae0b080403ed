//! Reading a record from untrusted bytes.

use super::deflate::inflate;
use super::{
    Base, CHUNK_BYTES, CRC_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, RUN_BYTES, RUNS, RUNS_DEFLATED,
    RecordId, VERSION, WHAT, WHOLE, WHOLE_DEFLATED,
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
#[derive(Clone, Debug)]
pub struct Record<'a> {
    entries: Vec<Entry<'a>>,
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
    /// Contents of the runs or the block, or what they were deflated to.
    bytes: &'a [u8],
    /// Length of the contents in bytes.
    len: usize,
    is_deflated: bool,
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
        let (mut rest, mut found) = (payload, Vec::with_capacity(entries.len() / ENTRY_BYTES));
        for (index, entry) in entries.chunks_exact(ENTRY_BYTES).enumerate() {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            let (entry, behind) = Entry::parse(entry, rest, at, block_size)?;
            found.push(entry);
            rest = behind;
        }
        if !rest.is_empty() {
            return fail(0x0c, format!("{} bytes behind the last entry", rest.len()));
        }
        Ok(Record { entries: found })
    }

    /// The entries, in the order in which they were added.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + '_ {
        self.entries.iter().copied()
    }
}

impl<'a> Entry<'a> {
    /// The entry whose fixed part, `fixed`, lies at `at`, and the payload of those behind it.
    fn parse(
        fixed: &[u8],
        payload: &'a [u8],
        at: usize,
        block_size: usize,
    ) -> Result<(Entry<'a>, &'a [u8])> {
        let fail = |at, detail: String| Err(OndiskError::corrupt_at(WHAT, at, detail));
        let (base, encoding, count) = (u8_at(fixed, 6), u8_at(fixed, 7), le16(fixed, 8));
        if base > 1 {
            return Err(unsupported(format!("base {base}")));
        }
        let (is_whole, is_deflated) = match encoding {
            RUNS => (false, false),
            WHOLE => (true, false),
            RUNS_DEFLATED => (false, true),
            WHOLE_DEFLATED => (true, true),
            _ => return Err(unsupported(format!("encoding {encoding}"))),
        };
        let deflated = usize::from(le16(fixed, 10));
        if !is_deflated && deflated != 0 {
            return fail(at + 10, "a length of deflated bytes without any".into());
        }
        if is_whole && (base != 0 || count != 0) {
            return fail(at + 6, "a whole block with a base or with runs".into());
        }
        let short = || OndiskError::corrupt_at(WHAT, at + 8, "the payload is shorter than said");
        let (table, rest) =
            (payload.split_at_checked(usize::from(count) * RUN_BYTES)).ok_or_else(short)?;
        let chunks = block_size / CHUNK_BYTES;
        let (mut free_from, mut len) = (0, if is_whole { block_size } else { 0 });
        for run in table.chunks_exact(RUN_BYTES) {
            let (first, count) = (usize::from(le16(run, 0)), usize::from(le16(run, 2)));
            if count == 0 || first < free_from || first + count > chunks {
                return fail(at, format!("run of {count} chunks at {first} of {chunks}"));
            }
            free_from = first + count;
            len += count * CHUNK_BYTES;
        }
        let stored = if is_deflated { deflated } else { len };
        let (bytes, rest) = rest.split_at_checked(stored).ok_or_else(short)?;
        if is_deflated && inflate(bytes, len).is_none() {
            return fail(at + 10, format!("{stored} bytes do not inflate to {len}"));
        }
        let base = if base == 1 { Base::Previous } else { Base::Zeros };
        let block = u64::from(le32(fixed, 0)) | u64::from(le16(fixed, 4)) << 32;
        let runs = (!is_whole).then_some(table);
        Ok((Entry { block, base, runs, bytes, len, is_deflated }, rest))
    }
}

impl Entry<'_> {
    /// Makes of the previous image of the block the image that the entry describes. `image` has the
    /// block size of the record; otherwise nothing outside of it is changed.
    pub fn apply(&self, image: &mut [u8]) {
        let inflated;
        let contents = if self.is_deflated {
            // It did when the record was parsed.
            let Some(bytes) = inflate(self.bytes, self.len) else { return };
            inflated = bytes;
            &inflated
        } else {
            self.bytes
        };
        if self.base == Base::Zeros {
            image.fill(0);
        }
        let Some(runs) = self.runs else {
            if image.len() == contents.len() {
                image.copy_from_slice(contents);
            }
            return;
        };
        let mut rest = contents;
        for run in runs.chunks_exact(RUN_BYTES) {
            let first = usize::from(le16(run, 0)) * CHUNK_BYTES;
            let len = usize::from(le16(run, 2)) * CHUNK_BYTES;
            let Some((new, behind)) = rest.split_at_checked(len) else { return };
            if let Some(old) = image.get_mut(first..first + len) {
                old.copy_from_slice(new);
            }
            rest = behind;
        }
    }
}

pub(super) fn check_block_size(block_size: usize) -> Result<()> {
    if block_size == 0 || block_size % CHUNK_BYTES != 0 || block_size > 65536 {
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
