//! Making a record.

use super::deflate::deflate;
use super::{
    BLOCK_MAX, Base, CHUNK_BYTES, CRC_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, MASK_BITS, Previous,
    RUN_BYTES, RUNS, RUNS_DEFLATED, RecordId, VERSION, WHAT, WHOLE, WHOLE_DEFLATED,
};
use crate::bytes::{put_bytes, put_le16, put_le32, put_le64};
use crate::checksum::crc32c;
use crate::error::{OndiskError, Result};

/// A record under construction.
pub struct RecordBuilder {
    block_size: usize,
    entries: Vec<Draft>,
    len_bytes: usize,
}

/// Payloads of one record that are deflated at most: bounds the time that a caller waits.
const DEFLATED_MAX: usize = 16;

/// Chunks that differ, as first chunk and number.
type Runs = Vec<(u16, u16)>;

/// An entry with its payload.
struct Draft {
    block: u64,
    base: Base,
    /// `None`: the whole block.
    runs: Option<Runs>,
    bytes: Vec<u8>,
    is_deflated: bool,
}

impl RecordBuilder {
    /// A record of blocks of `block_size` bytes: a multiple of 32, at most 64 KiB.
    ///
    /// # Errors
    /// Another block size.
    pub fn new(block_size: usize) -> Result<RecordBuilder> {
        super::parse::check_block_size(block_size)?;
        Ok(RecordBuilder { block_size, entries: Vec::new(), len_bytes: HEADER_BYTES })
    }

    /// Adds `block`, whose contents become `image`. `previous` tells of the image that recovery
    /// gives of the block without this record. Returns the base that was chosen.
    ///
    /// # Errors
    /// A block number of more than 48 bits, or an image that is not one block.
    pub fn push(&mut self, block: u64, previous: Previous<'_>, image: &[u8]) -> Result<Base> {
        let is_block = |bytes: &[u8]| bytes.len() == self.block_size;
        let fits = match previous {
            Previous::Image(previous) => is_block(previous),
            Previous::Unknown | Previous::Changed(_) => true,
        };
        if block > BLOCK_MAX || !is_block(image) || !fits {
            let detail = format!("block {block} of {} bytes cannot be logged", image.len());
            return Err(OndiskError::corrupt(WHAT, detail));
        }
        let changed = match previous {
            Previous::Unknown => None,
            Previous::Image(previous) => Some((Base::Previous, differences(previous, image))),
            Previous::Changed(mask) => Some((Base::Previous, masked(mask, self.block_size))),
        };
        let filled = (Base::Zeros, filled(image));
        let (base, runs) = match changed {
            Some(changed) if cost(&changed.1) <= cost(&filled.1) => changed,
            _ => filled,
        };
        let draft = if cost(&runs) < self.block_size {
            let mut bytes = Vec::with_capacity(cost(&runs));
            for (first, count) in &runs {
                let from = usize::from(*first) * CHUNK_BYTES;
                bytes.extend_from_slice(&image[from..from + usize::from(*count) * CHUNK_BYTES]);
            }
            Draft { block, base, runs: Some(runs), bytes, is_deflated: false }
        } else {
            let bytes = image.to_vec();
            Draft { block, base: Base::Zeros, runs: None, bytes, is_deflated: false }
        };
        self.len_bytes += draft.len_bytes();
        let base = draft.base;
        self.entries.push(draft);
        Ok(base)
    }

    /// Bytes of a record of so many blocks, at most.
    pub fn len_bytes_max(block_size: usize, blocks: usize) -> usize {
        blocks.saturating_mul(ENTRY_BYTES + block_size).saturating_add(HEADER_BYTES)
    }

    /// Bytes of the record so far, without padding and with nothing deflated.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The record, padded with zeros to a multiple of `unit` bytes. Payloads are deflated, the
    /// longest first, where that makes it shorter by a unit or more.
    ///
    /// # Errors
    /// A record of 4 GiB or more.
    pub fn finish(mut self, id: RecordId, unit: usize) -> Result<Vec<u8>> {
        let unit = unit.max(1);
        self.shrink(unit);
        let len = self.len_bytes;
        let length = u32::try_from(len)
            .map_err(|_| OndiskError::corrupt(WHAT, format!("{len} bytes do not fit")))?;
        let mut bytes = Vec::with_capacity(len.next_multiple_of(unit));
        bytes.resize(HEADER_BYTES, 0);
        put_bytes(&mut bytes, 0, &MAGIC);
        put_le16(&mut bytes, 4, VERSION);
        put_le32(&mut bytes, 8, id.sequence);
        put_le32(&mut bytes, 0x0c, length);
        put_le64(&mut bytes, 0x10, id.epoch);
        put_le32(&mut bytes, 0x18, self.entries.len() as u32);
        self.entries.iter().for_each(|draft| bytes.extend_from_slice(&draft.entry()));
        for draft in &self.entries {
            for (first, count) in draft.runs.iter().flatten() {
                bytes.extend_from_slice(&first.to_le_bytes());
                bytes.extend_from_slice(&count.to_le_bytes());
            }
            bytes.extend_from_slice(&draft.bytes);
        }
        let crc = crc32c(id.seed, &bytes);
        put_le32(&mut bytes, CRC_AT, crc);
        bytes.resize(len.next_multiple_of(unit), 0);
        Ok(bytes)
    }

    /// Deflates payloads until the next one cannot save another unit.
    fn shrink(&mut self, unit: usize) {
        let units = self.len_bytes.div_ceil(unit);
        if units == 1 {
            return;
        }
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.entries[*at].bytes.len()));
        order.truncate(DEFLATED_MAX);
        let mut left: usize = order.iter().map(|at| self.entries[*at].bytes.len()).sum();
        let (mut len, mut streams) = (self.len_bytes, Vec::new());
        for at in order {
            // Even if all that is left vanished it would take as many units.
            if (len - left).div_ceil(unit) == len.div_ceil(unit) {
                break;
            }
            let bytes = &self.entries[at].bytes;
            left -= bytes.len();
            if let Some(stream) = deflate(bytes) {
                len -= bytes.len() - stream.len();
                streams.push((at, stream));
            }
        }
        if len.div_ceil(unit) == units {
            return;
        }
        for (at, stream) in streams {
            (self.entries[at].bytes, self.entries[at].is_deflated) = (stream, true);
        }
        self.len_bytes = len;
    }
}

impl Draft {
    /// Bytes that it takes in the record.
    fn len_bytes(&self) -> usize {
        let runs = self.runs.as_ref().map_or(0, Vec::len);
        ENTRY_BYTES + runs * RUN_BYTES + self.bytes.len()
    }

    fn entry(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        put_le64(&mut entry, 0, self.block);
        entry[6] = u8::from(self.base == Base::Previous);
        entry[7] = match (&self.runs, self.is_deflated) {
            (Some(_), false) => RUNS,
            (None, false) => WHOLE,
            (Some(_), true) => RUNS_DEFLATED,
            (None, true) => WHOLE_DEFLATED,
        };
        put_le16(&mut entry, 8, self.runs.as_ref().map_or(0, Vec::len) as u16);
        if self.is_deflated {
            put_le16(&mut entry, 10, self.bytes.len() as u16);
        }
        entry
    }
}

/// Payload bytes of runs.
fn cost(runs: &Runs) -> usize {
    let chunks: usize = runs.iter().map(|(_, count)| usize::from(*count)).sum();
    runs.len() * RUN_BYTES + chunks * CHUNK_BYTES
}

fn differences(previous: &[u8], image: &[u8]) -> Runs {
    let pairs = previous.chunks_exact(CHUNK_BYTES).zip(image.chunks_exact(CHUNK_BYTES));
    runs(pairs.map(|(old, new)| old != new))
}

fn filled(image: &[u8]) -> Runs {
    runs(image.chunks_exact(CHUNK_BYTES).map(|chunk| *chunk != [0; CHUNK_BYTES]))
}

/// Chunks of the parts in `mask`. A part of less than a chunk stands for the whole chunk.
fn masked(mask: u64, block_size: usize) -> Runs {
    let chunks = block_size / CHUNK_BYTES;
    runs((0..chunks).map(|chunk| {
        let first = chunk * MASK_BITS / chunks;
        let end = ((chunk + 1) * MASK_BITS).div_ceil(chunks);
        (first..end).any(|bit| mask >> bit & 1 != 0)
    }))
}

fn runs(differs: impl Iterator<Item = bool>) -> Runs {
    let mut runs = Runs::new();
    let mut open = false;
    // A block has at most 2048 chunks.
    for (at, differs) in (0u16..).zip(differs) {
        match runs.last_mut() {
            Some((_, count)) if differs && open => *count += 1,
            _ if differs => runs.push((at, 1)),
            _ => {}
        }
        open = differs;
    }
    runs
}
