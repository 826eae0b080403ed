//! Making a record.

use super::{
    BLOCK_MAX, Base, CHUNK_BYTES, CRC_AT, ENTRY_BYTES, HEADER_BYTES, MAGIC, RUN_BYTES, RecordId,
    VERSION, WHAT,
};
use crate::bytes::{put_bytes, put_le16, put_le32, put_le64};
use crate::checksum::crc32c;
use crate::error::{OndiskError, Result};

/// A record under construction.
pub struct RecordBuilder {
    block_size: usize,
    entries: Vec<u8>,
    payload: Vec<u8>,
}

/// Chunks that differ, as first chunk and number.
type Runs = Vec<(u16, u16)>;

impl RecordBuilder {
    /// A record of blocks of `block_size` bytes: a multiple of 32, at most 64 KiB.
    ///
    /// # Errors
    /// Another block size.
    pub fn new(block_size: usize) -> Result<RecordBuilder> {
        super::parse::check_block_size(block_size)?;
        Ok(RecordBuilder { block_size, entries: Vec::new(), payload: Vec::new() })
    }

    /// Adds `block`, whose contents become `image`. `previous` is the image that recovery gives of
    /// the block without this record; `None` if that is not known. Returns the base that was
    /// chosen.
    ///
    /// # Errors
    /// A block number of more than 48 bits, or an image that is not one block.
    pub fn push(&mut self, block: u64, previous: Option<&[u8]>, image: &[u8]) -> Result<Base> {
        let is_block = |bytes: &[u8]| bytes.len() == self.block_size;
        if block > BLOCK_MAX || !is_block(image) || !previous.is_none_or(is_block) {
            let detail = format!("block {block} of {} bytes cannot be logged", image.len());
            return Err(OndiskError::corrupt(WHAT, detail));
        }
        let changed = previous.map(|previous| (Base::Previous, differences(previous, image)));
        let filled = (Base::Zeros, filled(image));
        let (base, runs) = match changed {
            Some(changed) if cost(&changed.1) <= cost(&filled.1) => changed,
            _ => filled,
        };
        if cost(&runs) < self.block_size {
            self.entry(block, base, 1, runs.len() as u16);
            for (first, count) in &runs {
                self.payload.extend_from_slice(&first.to_le_bytes());
                self.payload.extend_from_slice(&count.to_le_bytes());
            }
            for (first, count) in runs {
                let from = usize::from(first) * CHUNK_BYTES;
                let bytes = from..from + usize::from(count) * CHUNK_BYTES;
                self.payload.extend_from_slice(&image[bytes]);
            }
            return Ok(base);
        }
        self.entry(block, Base::Zeros, 2, 0);
        self.payload.extend_from_slice(image);
        Ok(Base::Zeros)
    }

    fn entry(&mut self, block: u64, base: Base, encoding: u8, runs: u16) {
        let mut entry = [0; ENTRY_BYTES];
        put_le64(&mut entry, 0, block);
        entry[6] = u8::from(base == Base::Previous);
        entry[7] = encoding;
        put_le16(&mut entry, 8, runs);
        self.entries.extend_from_slice(&entry);
    }

    /// Bytes of a record of so many blocks, at most.
    pub fn len_bytes_max(block_size: usize, blocks: usize) -> usize {
        blocks.saturating_mul(ENTRY_BYTES + block_size).saturating_add(HEADER_BYTES)
    }

    /// Bytes of the record so far, without padding.
    pub fn len_bytes(&self) -> usize {
        HEADER_BYTES + self.entries.len() + self.payload.len()
    }

    /// The record, padded with zeros to a multiple of `unit` bytes.
    ///
    /// # Errors
    /// A record of 4 GiB or more.
    pub fn finish(self, id: RecordId, unit: usize) -> Result<Vec<u8>> {
        let len = self.len_bytes();
        let length = u32::try_from(len)
            .map_err(|_| OndiskError::corrupt(WHAT, format!("{len} bytes do not fit")))?;
        let mut bytes = vec![0; len.next_multiple_of(unit.max(1))];
        put_bytes(&mut bytes, 0, &MAGIC);
        put_le16(&mut bytes, 4, VERSION);
        put_le32(&mut bytes, 8, id.sequence);
        put_le32(&mut bytes, 0x0c, length);
        put_le64(&mut bytes, 0x10, id.epoch);
        put_le32(&mut bytes, 0x18, (self.entries.len() / ENTRY_BYTES) as u32);
        put_bytes(&mut bytes, HEADER_BYTES, &self.entries);
        put_bytes(&mut bytes, HEADER_BYTES + self.entries.len(), &self.payload);
        let crc = crc32c(id.seed, &bytes[..len]);
        put_le32(&mut bytes, CRC_AT, crc);
        Ok(bytes)
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
