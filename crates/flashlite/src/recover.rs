//! Opening: the map from tags alone, and what a crash left at the end.
//!
//! Finished segments are read by their indexes, the last one by its tags. What the log itself says
//! was durable is not read. Records after that may be torn: their data is read and compared with
//! the checksum, at most as much as was written since the last sync. The first one that does not
//! fit ends the log, because records behind it may depend on it; what is behind is dropped and
//! named. Damage before the durable end is no torn tail but an error.

use crate::format::{
    ENTRY_BYTES, Entry, HEADER_READ_BYTES, Header, Kind, RECORD_BYTES_MAX, TAG_BYTES, Tag, padded,
};
use crate::log::View;
use crate::tail::{Tail, index_bytes, record_bytes};
use crate::{Error, Result, Storage};

/// Read at once from the end of a segment; holds the index of 340 records.
const INDEX_READ_BYTES: u64 = 8 << 10;
/// Read at once in the search for marks; a multiple of a tag.
const MARKS_READ_BYTES: u64 = 64 << 10;
/// Ranges that [`Dropped`] names at most.
const LOST_MAX: usize = 1000;

/// How an opening went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Segments whose records came from their index.
    pub indexed_segments: u64,
    /// Segments whose index was damaged; their tags were read instead.
    pub damaged_indexes: u64,
    /// Tags that were read one by one.
    pub tags: u64,
    /// Bytes of the log that were read, all in all.
    pub read_bytes: u64,
    /// Of those: data of records that was compared with checksums.
    pub verified_bytes: u64,
    /// What was dropped at the end, if anything.
    pub dropped: Option<Dropped>,
}

/// The torn end of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// First byte of the log that was dropped.
    pub position: u64,
    /// Bytes of the log that were dropped.
    pub bytes: u64,
    /// Ranges of the file, offset and length in bytes, whose newest writes are known to be among
    /// them, at most a thousand. None of them had been synced.
    pub lost: Vec<(u64, u64)>,
}

/// Reads the header.
///
/// # Errors
/// `Io`, `NotALog`, `Unsupported`, `Corrupt`.
pub(crate) fn header(storage: &dyn Storage, len: u64) -> Result<Header> {
    let mut bytes = [0; HEADER_READ_BYTES];
    if len < bytes.len() as u64 {
        return Err(Error::NotALog);
    }
    storage.read_at(&mut bytes, 0).map_err(Error::io("reading the log"))?;
    Header::decode(&bytes)
}

/// Reads everything else.
///
/// # Errors
/// `Io`, `Corrupt`.
pub(crate) fn recover(
    storage: &dyn Storage,
    header: Header,
    len: u64,
    align_from_bytes: u32,
) -> Result<Recovered> {
    let mut scan = Scan {
        storage,
        header,
        len,
        view: View::default(),
        tail: Tail::new(header, align_from_bytes),
        opened: Opened::default(),
        repairs: Vec::new(),
    };
    scan.find_durable()?;
    let mut segment = 0;
    while scan.segment(segment)? {
        segment += 1;
    }
    let Scan { view, tail, opened, repairs, .. } = scan;
    Ok(Recovered { view, tail, opened, repairs })
}

/// What an opening found.
pub(crate) struct Recovered {
    pub view: View,
    pub tail: Tail,
    pub opened: Opened,
    /// Indexes to be written again, and where.
    pub repairs: Vec<(u64, Vec<u8>)>,
}

/// Records of one segment as they were found.
struct Found {
    entries: Vec<Entry>,
    /// Where the last of them ends.
    end: u64,
    /// Where the index starts, if it was used.
    index_at: Option<u64>,
}

struct Scan<'a> {
    storage: &'a dyn Storage,
    header: Header,
    len: u64,
    view: View,
    tail: Tail,
    opened: Opened,
    repairs: Vec<(u64, Vec<u8>)>,
}

impl Scan<'_> {
    /// What was durable: the last footer says it, and the marks behind it.
    fn find_durable(&mut self) -> Result<()> {
        let mut segment = self.header.segment(self.len);
        while segment > 0 {
            if let Some(footer) = self.footer(segment - 1)? {
                self.durable(footer.logical)?;
                break;
            }
            segment -= 1;
        }
        let mut at = self.header.segment_start(segment);
        let end = self.header.segment_end(segment);
        while let Some(tag) = self.tag(at)? {
            if tag.kind == Kind::Mark {
                self.durable(tag.logical)?;
            }
            at += tag.span_bytes();
            if at >= end {
                return Ok(());
            }
        }
        self.marks_behind(at, end.min(self.len))
    }

    /// Marks behind the first thing that is no tag: they tell a torn end from damage.
    fn marks_behind(&mut self, from: u64, end: u64) -> Result<()> {
        let mut bytes = vec![0; MARKS_READ_BYTES.min(end.saturating_sub(from)) as usize];
        let mut at = from;
        while at < end {
            let part = (end - at).min(MARKS_READ_BYTES) as usize;
            self.read(&mut bytes[..part], at)?;
            for (place, cell) in (at..).step_by(TAG_BYTES as usize).zip(bytes[..part].chunks(32)) {
                let Ok(cell) = cell.try_into() else { continue };
                let tag = Tag::decode(cell, place).filter(|tag| tag.kind == Kind::Mark);
                if let Some(tag) = tag.filter(|tag| tag.logical <= place) {
                    self.durable(tag.logical)?;
                }
            }
            at += part as u64;
        }
        Ok(())
    }

    /// Everything below `position` was durable.
    fn durable(&mut self, position: u64) -> Result<()> {
        if position > self.len {
            return Err(Error::corrupt("it is shorter than what was synced", self.len));
        }
        self.tail.durable = self.tail.durable.max(position);
        self.tail.marked = self.tail.durable;
        Ok(())
    }

    fn read(&mut self, into: &mut [u8], at: u64) -> Result<()> {
        self.opened.read_bytes += into.len() as u64;
        self.storage.read_at(into, at).map_err(Error::io("reading the log"))
    }

    fn tag(&mut self, at: u64) -> Result<Option<Tag>> {
        if at.saturating_add(TAG_BYTES) > self.len {
            return Ok(None);
        }
        let mut bytes = [0; TAG_BYTES as usize];
        self.read(&mut bytes, at)?;
        Ok(Tag::decode(&bytes, at))
    }

    fn footer(&mut self, segment: u64) -> Result<Option<Tag>> {
        let tag = self.tag(self.header.segment_end(segment) - TAG_BYTES)?;
        Ok(tag.filter(|tag| tag.kind == Kind::Footer))
    }

    /// Takes in a segment. Whether the log goes on in the next.
    fn segment(&mut self, segment: u64) -> Result<bool> {
        let start = self.header.segment_start(segment);
        self.tail.position = start;
        if start >= self.len {
            return if self.tail.durable > start { self.damage(start) } else { Ok(false) };
        }
        let found = match self.index(segment)? {
            Some(found) if self.all_whole(segment, &found)? => {
                self.opened.indexed_segments += 1;
                found
            }
            _ => self.tags(segment)?,
        };
        if let Some(torn) = self.apply(segment, &found)? {
            return self.end(torn, &found.entries[self.tail.entries.len()..]);
        }
        let base = segment.saturating_mul(u64::from(self.header.segment_bytes));
        let index_at = match found.index_at {
            Some(at) => at,
            None if self.goes_on(segment + 1)? => {
                self.opened.damaged_indexes += 1;
                self.repair(segment, found.end)
            }
            None => return self.end(found.end, &[]),
        };
        self.tail.indexes.push(u32::try_from(index_at - base).unwrap_or(u32::MAX));
        self.tail.entries.clear();
        Ok(true)
    }

    /// Prepares the index of a segment whose records end at `records_end` anew; where it starts.
    fn repair(&mut self, segment: u64, records_end: u64) -> u64 {
        let (end, tail) = (self.header.segment_end(segment), &self.tail);
        let bytes = index_bytes(&tail.entries, tail.durable, tail.sequence, end);
        let at = end.saturating_sub(bytes.len() as u64);
        // A writer has left the room for it.
        if at < records_end {
            return records_end;
        }
        self.repairs.push((at, bytes));
        at
    }

    /// The log ends at `position`; `lost` is known to have been behind it.
    fn end(&mut self, position: u64, lost: &[Entry]) -> Result<bool> {
        if position < self.tail.durable {
            return self.damage(position);
        }
        self.tail.position = position;
        if position < self.len {
            let data = lost.iter().filter(|entry| entry.kind == Kind::Data);
            self.opened.dropped = Some(Dropped {
                position,
                bytes: self.len - position,
                lost: data
                    .take(LOST_MAX)
                    .map(|entry| (entry.logical, u64::from(entry.length)))
                    .collect(),
            });
        }
        Ok(false)
    }

    fn damage(&self, position: u64) -> Result<bool> {
        Err(Error::corrupt("a record that was synced", position))
    }

    /// Whether this segment starts with the next record.
    fn goes_on(&mut self, segment: u64) -> Result<bool> {
        let next = self.tail.sequence;
        if let Some(footer) = self.footer(segment)? {
            let records = u64::from(footer.length) / ENTRY_BYTES;
            return Ok(footer.sequence.checked_sub(records) == Some(next));
        }
        let first = self.tag(self.header.segment_start(segment))?;
        Ok(first.is_some_and(|tag| tag.sequence == next))
    }

    /// The records of a finished segment by its index; nothing if that is not whole.
    fn index(&mut self, segment: u64) -> Result<Option<Found>> {
        let (start, end) = (self.header.segment_start(segment), self.header.segment_end(segment));
        if end > self.len {
            return Ok(None);
        }
        let mut bytes = vec![0; INDEX_READ_BYTES.min(end - start) as usize];
        let tail_at = end - bytes.len() as u64;
        self.read(&mut bytes, tail_at)?;
        let footer_at = bytes.len() - TAG_BYTES as usize;
        let mut last = [0; TAG_BYTES as usize];
        last.copy_from_slice(&bytes[footer_at..]);
        bytes.truncate(footer_at);
        let footer = Tag::decode(&last, end - TAG_BYTES).filter(|tag| tag.kind == Kind::Footer);
        let Some(footer) = footer else { return Ok(None) };
        let length = u64::from(footer.length);
        let index_at = (end - TAG_BYTES).saturating_sub(length);
        if index_at < start {
            return Ok(None);
        }
        if length > bytes.len() as u64 {
            bytes.resize(length as usize, 0);
            self.read(&mut bytes, index_at)?;
        } else {
            bytes.drain(..bytes.len() - length as usize);
        }
        let records = length / ENTRY_BYTES;
        if crc32c::crc32c(&bytes) != footer.data_crc
            || footer.sequence.checked_sub(records) != Some(self.tail.sequence)
        {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(records as usize);
        let mut free = start;
        let base = end - u64::from(self.header.segment_bytes);
        for part in bytes.chunks_exact(ENTRY_BYTES as usize) {
            let Some(entry) = Entry::decode(part) else { return Ok(None) };
            let at = base + u64::from(entry.at);
            if at < free || at + record_bytes(entry.length) > index_at {
                return Ok(None);
            }
            free = at + record_bytes(entry.length);
            entries.push(entry);
        }
        Ok(Some(Found { entries, end, index_at: Some(index_at) }))
    }

    /// The records of a segment by their tags, up to the first thing that is none.
    fn tags(&mut self, segment: u64) -> Result<Found> {
        let segment_end = self.header.segment_end(segment);
        let base = segment_end - u64::from(self.header.segment_bytes);
        let limit = self.len.min(segment_end - TAG_BYTES);
        let mut at = self.header.segment_start(segment);
        let mut sequence = self.tail.sequence;
        let mut entries = Vec::new();
        while let Some(tag) = self.tag(at)? {
            let end = at + tag.span_bytes();
            if end > limit || tag.sequence != sequence || tag.kind == Kind::Footer {
                break;
            }
            self.opened.tags += 1;
            if tag.kind.counts() {
                sequence += 1;
                entries.push(Entry {
                    at: u32::try_from(at - base).unwrap_or(u32::MAX),
                    kind: tag.kind,
                    length: tag.length,
                    data_crc: tag.data_crc,
                    logical: tag.logical,
                });
            }
            at = end;
        }
        Ok(Found { entries, end: at, index_at: None })
    }

    /// Takes the records in, up to the first torn one: its position.
    fn apply(&mut self, segment: u64, found: &Found) -> Result<Option<u64>> {
        let base = segment.saturating_mul(u64::from(self.header.segment_bytes));
        for entry in &found.entries {
            let at = base + u64::from(entry.at);
            let checked = found.index_at.is_some();
            if !checked && self.torn(at, entry, self.tail.sequence)? {
                return Ok(Some(at));
            }
            self.view.apply(entry, at + TAG_BYTES);
            self.tail.needed = at + record_bytes(entry.length);
            self.tail.data_bytes += u64::from(entry.length);
            self.tail.entries.push(*entry);
            self.tail.sequence += 1;
        }
        self.tail.position = found.end;
        Ok(None)
    }

    /// Whether no record of an index is torn. If one is, the segment goes by its tags, as it will
    /// when it is opened the next time, without the index.
    fn all_whole(&mut self, segment: u64, found: &Found) -> Result<bool> {
        let base = segment.saturating_mul(u64::from(self.header.segment_bytes));
        for (sequence, entry) in (self.tail.sequence..).zip(&found.entries) {
            if self.torn(base + u64::from(entry.at), entry, sequence)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a record that need not be durable lacks a part of its tag or data.
    fn torn(&mut self, at: u64, entry: &Entry, sequence: u64) -> Result<bool> {
        if at + record_bytes(entry.length) <= self.tail.durable {
            return Ok(false);
        }
        debug_assert!(entry.length <= RECORD_BYTES_MAX, "decoding has checked it");
        let mut bytes = vec![0; (TAG_BYTES + padded(entry.length)) as usize];
        self.read(&mut bytes, at)?;
        self.opened.verified_bytes += u64::from(entry.length);
        let mut tag = [0; TAG_BYTES as usize];
        tag.copy_from_slice(&bytes[..TAG_BYTES as usize]);
        let data = &bytes[TAG_BYTES as usize..][..entry.length as usize];
        Ok(Tag::decode(&tag, at) != Some(entry.tag(sequence))
            || entry.length > 0 && crc32c::crc32c(data) != entry.data_crc)
    }
}
