//! Records compared with their checksums.
//!
//! Data that stand apart from their tags are compared with the checksums in the index of their
//! segment. The index is read once and kept (12 bytes a record); the segment being filled has its
//! checksums in memory.

use std::sync::Arc;

use crate::format::{Entry, Kind, TAG_BYTES, Tag};
use crate::map::Piece;
use crate::recover::read_index;
use crate::{Error, Log, Result};

/// Length and checksum of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Position of its data, from the start of the segment.
    at: u32,
    length: u32,
    crc: u32,
}

/// Those of a segment that starts at `base`, ordered by place.
pub(crate) fn sums_of(entries: &[Entry], base: u64) -> Arc<[Sum]> {
    let data = entries.iter().filter(|entry| entry.kind == Kind::Data);
    let mut sums: Vec<Sum> = data.map(|entry| sum_of(entry, base)).collect();
    sums.sort_unstable_by_key(|sum| sum.at);
    sums.into()
}

fn sum_of(entry: &Entry, base: u64) -> Sum {
    // Segments have at most 256 MiB.
    let at = u32::try_from(entry.data_at(base) - base).unwrap_or(u32::MAX);
    Sum { at, length: entry.length, crc: entry.data_crc }
}

impl Log {
    /// Tag and data of the record that a piece is of, compared with its checksum.
    pub(crate) fn record(&self, piece: &Piece) -> Result<Vec<u8>> {
        if self.header.grouped() {
            return self.grouped_record(piece);
        }
        let at = piece.data_at - TAG_BYTES;
        let len = self.storage.len().map_err(Error::io("reading the log"))?;
        let wanted = (TAG_BYTES + u64::from(piece.unit)).min(len.saturating_sub(at));
        let bad = || Error::corrupt("a record's tag or data", at);
        let mut bytes = vec![0; usize::try_from(wanted).map_err(|_| bad())?];
        self.storage.read_at(&mut bytes, at).map_err(Error::io("reading the log"))?;
        let head = bytes.first_chunk::<{ TAG_BYTES as usize }>().ok_or_else(bad)?;
        let tag = Tag::decode(head, at).filter(|tag| tag.kind == Kind::Data).ok_or_else(bad)?;
        let needed = piece.skip.saturating_add(piece.len);
        bytes.drain(..TAG_BYTES as usize);
        if needed > tag.length || (bytes.len() as u64) < u64::from(tag.length) {
            return Err(bad());
        }
        bytes.truncate(tag.length as usize);
        if syncline_base::crc32c(&bytes) != tag.data_crc
            || tag.logical.checked_add(u64::from(piece.skip)) != Some(piece.logical)
        {
            return Err(bad());
        }
        Ok(bytes)
    }

    fn grouped_record(&self, piece: &Piece) -> Result<Vec<u8>> {
        let bad = || Error::corrupt("a record's data", piece.data_at);
        let sum = self.sum(piece.data_at)?.ok_or_else(bad)?;
        if piece.skip.saturating_add(piece.len) > sum.length {
            return Err(bad());
        }
        let mut bytes = vec![0; sum.length as usize];
        self.storage.read_at(&mut bytes, piece.data_at).map_err(Error::io("reading the log"))?;
        if syncline_base::crc32c(&bytes) != sum.crc {
            return Err(bad());
        }
        Ok(bytes)
    }

    fn sum(&self, data_at: u64) -> Result<Option<Sum>> {
        let segment = self.header.segment(data_at);
        let base = self.header.segment_base(segment);
        {
            let tail = self.tail.lock();
            if segment >= tail.indexes.len() as u64 {
                // The segment being filled: few records, unless they are tiny.
                let mut data = tail.entries.iter().filter(|entry| entry.kind == Kind::Data);
                let entry = data.find(|entry| entry.data_at(base) == data_at);
                return Ok(entry.map(|entry| sum_of(entry, base)));
            }
        }
        let known = self.sums.lock().get(&segment).cloned();
        let sums = match known {
            Some(sums) => sums,
            None => {
                let index = read_index(self.header, segment, &mut |into, at| {
                    self.storage.read_at(into, at).map_err(Error::io("reading the log"))
                })?;
                let Some(index) = index else { return Ok(None) };
                let sums = sums_of(&index.entries, base);
                self.sums.lock().insert(segment, Arc::clone(&sums));
                sums
            }
        };
        let found = sums.binary_search_by_key(&(data_at - base), |sum| u64::from(sum.at));
        Ok(found.ok().map(|at| sums[at]))
    }
}
