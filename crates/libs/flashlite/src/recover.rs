//! Opening: the map from tags alone, and the end of the log after a crash.
//!
//! Finished segments are read by their indexes, the last one by its tags. What the log itself says
//! was durable is not read. Records after that may be torn: their data is read and compared with
//! the checksum, at most as much as was written since the last sync. The first one that does not
//! fit ends the log, because records behind it may depend on it; what is behind is dropped and
//! named. Damage before the durable end is no torn tail but an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::chain::Chain;
use crate::format::{
    ENTRY_BYTES, Entry, HEADER_READ_BYTES, Header, Kind, RECORD_BYTES_MAX, TAG_BYTES, Tag, padded,
};
use crate::log::View;
use crate::sums::{Sum, sums_of};
use crate::tail::{Tail, index_bytes};
use crate::{Error, Result, Storage};

/// Read at once from the end of a segment is at least this; it holds the index of 340 records.
const INDEX_READ_BYTES_MIN: u64 = 8 << 10;
/// And one in so many bytes of the segment: the index of records of 12 KiB and longer.
const INDEX_READ_SHARE: u64 = 512;
/// Read at once in the search for marks; a multiple of a tag.
const MARKS_READ_BYTES: u64 = 64 << 10;
/// Ranges that [`Dropped`] names at most.
const LOST_MAX: usize = 1000;

/// Results of an opening.
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
    /// Record dropped at the end, if any.
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
        view: View::new(header),
        tail: Tail::new(header, align_from_bytes),
        opened: Opened::default(),
        repairs: Vec::new(),
        sums: BTreeMap::new(),
    };
    scan.find_durable()?;
    let mut segment = 0;
    while scan.segment(segment)? {
        segment += 1;
    }
    let Scan { view, tail, opened, repairs, sums, .. } = scan;
    Ok(Recovered { view, tail, opened, repairs, sums })
}

/// State of a log after its opening.
pub(crate) struct Recovered {
    pub view: View,
    pub tail: Tail,
    pub opened: Opened,
    /// Indexes to be written again, and where.
    pub repairs: Vec<(u64, Vec<u8>)>,
    /// Checksums of the segments whose index was damaged.
    pub sums: BTreeMap<u64, Arc<[Sum]>>,
}

/// Records of one segment as they were found.
struct Found {
    entries: Vec<Entry>,
    /// End of the chain of tags; `None` if the index was used.
    chain: Option<Chain>,
    /// Position of the index, if it was used.
    index_at: u64,
}

struct Scan<'a> {
    storage: &'a dyn Storage,
    header: Header,
    len: u64,
    view: View,
    tail: Tail,
    opened: Opened,
    repairs: Vec<(u64, Vec<u8>)>,
    sums: BTreeMap<u64, Arc<[Sum]>>,
}

impl Scan<'_> {
    /// Finds the durable part: the last footer tells it, and the marks behind that footer.
    fn find_durable(&mut self) -> Result<()> {
        let mut segment = self.header.segment(self.len);
        while segment > 0 {
            if let Some(footer) = self.footer(segment - 1)? {
                self.durable(footer.logical)?;
                break;
            }
            segment -= 1;
        }
        let mut chain = Chain::new(self.header, segment);
        while let Some(at) = chain.next() {
            let Some(tag) = self.tag(at)?.filter(|tag| chain.take(tag, self.len)) else { break };
            if matches!(tag.kind, Kind::Mark | Kind::Group) {
                self.durable(tag.logical)?;
            }
        }
        self.marks_behind(chain.at, self.header.segment_end(segment).min(self.len))
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
                let tag = Tag::decode(cell, place).filter(|tag| tag.logical <= place);
                let marks = |tag: &Tag| matches!(tag.kind, Kind::Mark | Kind::Group);
                if let Some(tag) = tag.filter(marks) {
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
        (self.tail.position, self.tail.end, self.tail.group) = (start, start, None);
        if start >= self.len {
            return if self.tail.durable > start { self.damage(start) } else { Ok(false) };
        }
        let first = self.tail.sequence;
        let found = match self.index(segment)? {
            Some(found) if self.all_whole(segment, &found)? => {
                self.opened.indexed_segments += 1;
                found
            }
            _ => self.tags(segment, first, usize::MAX)?,
        };
        if self.apply(segment, &found)? {
            let whole = self.tail.entries.len();
            let until = self.tags(segment, first, whole)?;
            return self.end(until.chain, &found.entries[whole..]);
        }
        let index_at = match found.chain {
            None => found.index_at,
            Some(chain) if self.goes_on(segment + 1)? => {
                self.opened.damaged_indexes += 1;
                self.repair(segment, chain.end)
            }
            chain => return self.end(chain, &[]),
        };
        let base = self.header.segment_base(segment);
        self.tail.indexes.push(u32::try_from(index_at - base).unwrap_or(u32::MAX));
        self.tail.entries.clear();
        Ok(true)
    }

    /// Prepares the index of a segment whose records end at `records_end` anew; where it starts.
    fn repair(&mut self, segment: u64, records_end: u64) -> u64 {
        let (end, tail) = (self.header.segment_end(segment), &self.tail);
        let bytes = index_bytes(&tail.entries, tail.durable, tail.sequence, end);
        let at = end.saturating_sub(bytes.len() as u64);
        if self.header.grouped() {
            let base = self.header.segment_base(segment);
            self.sums.insert(segment, sums_of(&tail.entries, base));
        }
        // A writer has left the room for it.
        if at < records_end {
            return records_end;
        }
        self.repairs.push((at, bytes));
        at
    }

    /// The log ends here; `lost` is known to have been behind it.
    fn end(&mut self, chain: Option<Chain>, lost: &[Entry]) -> Result<bool> {
        let Some(chain) = chain else { return Ok(false) };
        // What was synced is whole groups.
        if chain.group.map_or(chain.at, |group| group.start) < self.tail.durable {
            return self.damage(chain.at);
        }
        let (from, until) = chain.group.map_or((chain.at, chain.at), |group| {
            (chain.at, group.head_end.min(self.len).max(chain.at))
        });
        let mut rest = vec![0; (until - from) as usize];
        if until > from {
            self.read(&mut rest, from)?;
        }
        let in_head = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        let bytes = in_head + self.len.saturating_sub(chain.end.max(until));
        let tail = &mut self.tail;
        (tail.position, tail.end, tail.group) = (chain.at, chain.end, chain.group);
        // How much was left unused before is not known.
        tail.skipped = u64::MAX;
        if bytes > 0 {
            if let Some(group) = chain.group.filter(|_| chain.group_is_empty()) {
                (tail.position, tail.end, tail.group) = (group.start, group.start, None);
            }
            let data = lost.iter().filter(|entry| entry.kind == Kind::Data);
            self.opened.dropped = Some(Dropped {
                position: chain.at,
                bytes,
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

    /// True if this segment starts with the next record.
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
        if self.header.segment_end(segment) > self.len {
            return Ok(None);
        }
        let header = self.header;
        let index = read_index(header, segment, &mut |into, at| self.read(into, at))?;
        let first = self.tail.sequence;
        Ok(index.filter(|index| index.first == Some(first)).map(|index| Found {
            entries: index.entries,
            chain: None,
            index_at: index.at,
        }))
    }

    /// The records of a segment by their tags, the first of which has the number `first`, up to
    /// the first thing that is none, or as many as `most`.
    fn tags(&mut self, segment: u64, first: u64, most: usize) -> Result<Found> {
        let base = self.header.segment_base(segment);
        let mut chain = Chain::new(self.header, segment);
        let mut sequence = first;
        let mut entries = Vec::new();
        while let Some(at) = chain.next() {
            let Some(tag) = self.tag(at)?.filter(|tag| tag.sequence == sequence) else { break };
            if tag.kind.counts() && entries.len() >= most || !chain.take(&tag, self.len) {
                break;
            }
            self.opened.tags += 1;
            if tag.kind.counts() {
                sequence += 1;
                entries.push(Entry::new(&tag, at - base));
            }
        }
        Ok(Found { entries, chain: Some(chain), index_at: 0 })
    }

    /// Takes the records in, up to the first torn one; whether there is one.
    fn apply(&mut self, segment: u64, found: &Found) -> Result<bool> {
        let base = self.header.segment_base(segment);
        for entry in &found.entries {
            if found.chain.is_some() && self.torn(base, entry, self.tail.sequence)? {
                return Ok(true);
            }
            self.view.apply(entry, entry.data_at(base));
            self.tail.needed = entry.end(base);
            self.tail.data_bytes += u64::from(entry.length);
            self.tail.entries.push(*entry);
            self.tail.sequence += 1;
        }
        Ok(false)
    }

    /// True if no record of an index is torn. If one is, the segment is read by its tags, as it
    /// will be at the next opening, which finds no index.
    fn all_whole(&mut self, segment: u64, found: &Found) -> Result<bool> {
        let base = self.header.segment_base(segment);
        for (sequence, entry) in (self.tail.sequence..).zip(&found.entries) {
            if self.torn(base, entry, sequence)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if a record that need not be durable lacks a part of its tag or data.
    fn torn(&mut self, base: u64, entry: &Entry, sequence: u64) -> Result<bool> {
        let at = base + u64::from(entry.at);
        if entry.end(base).max(at + TAG_BYTES) <= self.tail.durable {
            return Ok(false);
        }
        debug_assert!(entry.length <= RECORD_BYTES_MAX, "decoding has checked it");
        let mut bytes = vec![0; (TAG_BYTES + padded(entry.length)) as usize];
        let (tag, data) = bytes.split_at_mut(TAG_BYTES as usize);
        if entry.data_cell == 0 {
            self.read(&mut bytes, at)?;
        } else {
            self.read(tag, at)?;
            self.read(data, entry.data_at(base))?;
        }
        self.opened.verified_bytes += u64::from(entry.length);
        let mut tag = [0; TAG_BYTES as usize];
        tag.copy_from_slice(&bytes[..TAG_BYTES as usize]);
        let data = &bytes[TAG_BYTES as usize..][..entry.length as usize];
        Ok(Tag::decode(&tag, at) != Some(entry.tag(sequence))
            || entry.length > 0 && syncline_base::crc32c(data) != entry.data_crc)
    }
}

/// The index of a finished segment.
pub(crate) struct Index {
    pub entries: Vec<Entry>,
    /// Position of its first byte.
    pub at: u64,
    /// Number of the first record.
    pub first: Option<u64>,
}

/// Reads the index of a segment; nothing if it is not whole.
///
/// # Errors
/// Those of `read`.
pub(crate) fn read_index(
    header: Header,
    segment: u64,
    read: &mut dyn FnMut(&mut [u8], u64) -> Result<()>,
) -> Result<Option<Index>> {
    let (start, end) = (header.segment_start(segment), header.segment_end(segment));
    let part = (u64::from(header.segment_bytes) / INDEX_READ_SHARE).max(INDEX_READ_BYTES_MIN);
    let mut bytes = vec![0; part.min(end - start) as usize];
    let tail_at = end - bytes.len() as u64;
    read(&mut bytes, tail_at)?;
    let footer_at = bytes.len() - TAG_BYTES as usize;
    let mut last = [0; TAG_BYTES as usize];
    last.copy_from_slice(&bytes[footer_at..]);
    bytes.truncate(footer_at);
    let footer = Tag::decode(&last, end - TAG_BYTES).filter(|tag| tag.kind == Kind::Footer);
    let Some(footer) = footer else { return Ok(None) };
    let length = u64::from(footer.length);
    let at = (end - TAG_BYTES).saturating_sub(length);
    if at < start {
        return Ok(None);
    }
    if length > bytes.len() as u64 {
        bytes.resize(length as usize, 0);
        read(&mut bytes, at)?;
    } else {
        bytes.drain(..bytes.len() - length as usize);
    }
    if syncline_base::crc32c(&bytes) != footer.data_crc {
        return Ok(None);
    }
    let base = header.segment_base(segment);
    let records = length / ENTRY_BYTES;
    let mut entries = Vec::with_capacity(records as usize);
    // Tags ascend, and so do data that stand apart from them.
    let (mut free, mut data_free) = (start, start);
    for part in bytes.chunks_exact(ENTRY_BYTES as usize) {
        let Some(entry) = Entry::decode(part) else { return Ok(None) };
        let tag_at = base + u64::from(entry.at);
        let data_at = entry.data_at(base);
        let apart = entry.data_cell > 0;
        if tag_at < free || entry.end(base) > at || apart && data_at < data_free {
            return Ok(None);
        }
        if apart && !header.grouped() {
            return Ok(None);
        }
        free = if apart { tag_at + TAG_BYTES } else { entry.end(base) };
        data_free = if apart { entry.end(base) } else { data_free };
        entries.push(entry);
    }
    Ok(Some(Index { entries, at, first: footer.sequence.checked_sub(records) }))
}
