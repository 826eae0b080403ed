//! The end of a log: where the next record goes, and the index of the segment being filled.
//!
//! Here is what both versions of the format share, and version 1, whose logs go on as they are: a
//! write is one call of the storage there, mark, padding, tag and data together. `group.rs` has
//! version 2. Nothing is changed before the storage has done it, so that a write without space can
//! be made again.

use std::io::IoSlice;

use crate::chain::Group;
use crate::format::{ENTRY_BYTES, Entry, Header, Kind, RECORD_BYTES_MAX, TAG_BYTES, Tag};
use crate::{Error, Result, Storage};

/// A write is split at a segment's end only if this much of it fits; else the rest stays empty.
pub(crate) const SPLIT_BYTES_MIN: u64 = 4096;
/// Below this a gap is filled with zeros, so that the device sees one run; above, it is a hole.
const GAP_BYTES_MAX: u64 = 64 << 10;
pub(crate) static ZEROS: [u8; GAP_BYTES_MAX as usize] = [0; GAP_BYTES_MAX as usize];

/// State of the end of a log, to which records are appended.
#[derive(Debug)]
pub(crate) struct Tail {
    pub header: Header,
    /// Position of the next tag.
    pub position: u64,
    /// The group that it goes to; nothing in version 1 and where a group is to start.
    pub group: Option<Group>,
    /// First byte behind everything that was written.
    pub end: u64,
    /// The last sync covered little, so the next probably comes soon. Version 2 only.
    pub syncs_are_frequent: bool,
    /// Tags that are not on the storage yet; they go to the group, right before `position`.
    pub waiting: Vec<u8>,
    /// As in [`Options`](crate::Options).
    pub tags_at_once: u32,
    /// Bytes left unused in this segment before data that start at a multiple of something.
    pub skipped: u64,
    /// Of the next record that changes the file.
    pub sequence: u64,
    /// Records of the segment that `position` is in.
    pub entries: Vec<Entry>,
    /// Everything before is durable.
    pub durable: u64,
    /// End of the last record or index. A sync has work to do if it is not durable.
    pub needed: u64,
    /// The last `durable` that the log itself tells.
    pub marked: u64,
    /// Of each finished segment, where its index starts, from the start of the segment.
    pub indexes: Vec<u32>,
    /// Records from this length on start at a page; 0: none.
    pub align_from_bytes: u32,
    /// True after a failed sync: every later write and sync is refused.
    pub latched: bool,
    /// Data bytes in all records.
    pub data_bytes: u64,
}

impl Tail {
    /// An empty log.
    pub(crate) fn new(header: Header, align_from_bytes: u32) -> Tail {
        let start = header.segment_start(0);
        Tail {
            header,
            position: start,
            group: None,
            end: start,
            syncs_are_frequent: false,
            waiting: Vec::new(),
            tags_at_once: 1,
            skipped: 0,
            sequence: 0,
            entries: Vec::new(),
            durable: start,
            needed: start,
            marked: start,
            indexes: Vec::new(),
            align_from_bytes,
            latched: false,
            data_bytes: 0,
        }
    }

    /// Appends the first part of `data` that fits a record. How many bytes that are, and where they
    /// start in the log.
    ///
    /// # Errors
    /// `Full`, `Io`; then nothing was appended.
    pub(crate) fn data(
        &mut self,
        storage: &dyn Storage,
        logical: u64,
        data: &[u8],
    ) -> Result<(u32, u64)> {
        if self.header.grouped() {
            return self.group_data(storage, logical, data);
        }
        let page = u64::from(self.header.page_bytes);
        let wanted = data.len() as u64;
        let aligned = self.align_from_bytes > 0 && wanted >= u64::from(self.align_from_bytes);
        let (lead, fits) = loop {
            let mut lead = self.mark();
            if aligned {
                self.pad_to_page(&mut lead);
            }
            let start = self.position + lead.len() as u64 + TAG_BYTES;
            let room = self.records_end(1).saturating_sub(start) / TAG_BYTES * TAG_BYTES;
            let mut fits = room.min(wanted).min(u64::from(RECORD_BYTES_MAX));
            if aligned && fits < wanted && fits >= page {
                fits -= fits % page;
            }
            if fits >= wanted.min(SPLIT_BYTES_MIN) {
                break (lead, fits);
            }
            self.finish_segment(storage)?;
        };
        let length = u32::try_from(fits).unwrap_or(RECORD_BYTES_MAX);
        let data = &data[..length as usize];
        let tag = Tag {
            kind: Kind::Data,
            data_cell: 0,
            length,
            data_crc: syncline_base::crc32c(data),
            logical,
            sequence: self.sequence,
        };
        let at = self.append(storage, lead, &tag, data)?;
        self.data_bytes += u64::from(length);
        Ok((length, at + TAG_BYTES))
    }

    /// Appends a record without data.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn note(
        &mut self,
        storage: &dyn Storage,
        kind: Kind,
        logical: u64,
        data_crc: u32,
    ) -> Result<()> {
        if self.header.grouped() {
            return self.group_note(storage, kind, logical, data_crc);
        }
        if self.records_end(1) < self.position + 2 * TAG_BYTES {
            self.finish_segment(storage)?;
        }
        let tag = Tag { kind, data_cell: 0, length: 0, data_crc, logical, sequence: self.sequence };
        self.append(storage, self.mark(), &tag, &[]).map(|_| ())
    }

    /// Writes `lead`, tag and data; returns where the tag stands.
    fn append(
        &mut self,
        storage: &dyn Storage,
        lead: Vec<u8>,
        tag: &Tag,
        data: &[u8],
    ) -> Result<u64> {
        let at = self.position + lead.len() as u64;
        let fill = tag.span_bytes() - TAG_BYTES - data.len() as u64;
        let encoded = tag.encode(at);
        let parts = [
            IoSlice::new(&lead),
            IoSlice::new(&encoded),
            IoSlice::new(data),
            IoSlice::new(&ZEROS[..fill as usize]),
        ];
        self.write(storage, &parts, self.position)?;
        if !lead.is_empty() {
            self.marked = self.durable;
        }
        let base = self.header.segment_base(self.header.segment(at));
        self.entries.push(Entry::new(tag, at - base));
        self.sequence += 1;
        self.position = at + tag.span_bytes();
        self.end = self.position;
        self.needed = self.end;
        Ok(at)
    }

    /// Writes, unless an earlier write failed.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn write(
        &mut self,
        storage: &dyn Storage,
        parts: &[IoSlice<'_>],
        at: u64,
    ) -> Result<()> {
        if self.latched {
            return Err(Error::Latched);
        }
        storage.write_at(parts, at).map_err(Error::io("writing the log")).inspect_err(|error| {
            self.latched = !matches!(error, Error::Full);
        })
    }

    /// A mark, if what is durable has not been told yet.
    fn mark(&self) -> Vec<u8> {
        if self.marked == self.durable {
            return Vec::new();
        }
        let tag = Tag {
            kind: Kind::Mark,
            data_cell: 0,
            length: 0,
            data_crc: 0,
            logical: self.durable,
            sequence: self.sequence,
        };
        tag.encode(self.position).to_vec()
    }

    /// Adds to `lead` what makes the data after the next tag start at a page.
    fn pad_to_page(&self, lead: &mut Vec<u8>) {
        let at = self.position + lead.len() as u64;
        let page = u64::from(self.header.page_bytes);
        let gap = (at + TAG_BYTES).next_multiple_of(page) - (at + TAG_BYTES);
        self.pad(lead, gap);
    }

    /// Adds a padding of `gap` bytes, a multiple of a tag's, to `lead`.
    fn pad(&self, lead: &mut Vec<u8>, gap: u64) {
        let Some(length) = gap.checked_sub(TAG_BYTES) else { return };
        let at = self.position + lead.len() as u64;
        let length = u32::try_from(length).unwrap_or(0);
        let tag = Tag {
            kind: Kind::Pad,
            data_cell: 0,
            length,
            data_crc: 0,
            logical: 0,
            sequence: self.sequence,
        };
        lead.extend_from_slice(&tag.encode(at));
        lead.resize(lead.len() + length as usize, 0);
    }

    fn segment_end(&self) -> u64 {
        self.header.segment_end(self.header.segment(self.position))
    }

    /// Returns the position at which the records of this segment must end if it gets `more` of
    /// them.
    pub(crate) fn records_end(&self, more: u64) -> u64 {
        self.header.records_end(self.position, self.entries.len() as u64 + more)
    }

    /// Ends the segment: index and footer at its end. The next record starts a new one.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn finish_segment(&mut self, storage: &dyn Storage) -> Result<()> {
        self.write_waiting(storage)?;
        let index_at = self.records_end(0);
        let end = self.segment_end();
        let bytes = index_bytes(&self.entries, self.durable, self.sequence, end);
        // Behind a group that has ended its page stays as it is.
        let from = if self.group.is_some() { self.end } else { self.position };
        let gap = index_at.saturating_sub(from);
        let filled = if gap <= GAP_BYTES_MAX { gap } else { 0 };
        let parts = [IoSlice::new(&ZEROS[..filled as usize]), IoSlice::new(&bytes)];
        self.write(storage, &parts, index_at - filled)?;
        let start = end - u64::from(self.header.segment_bytes);
        self.indexes.push(u32::try_from(index_at - start).unwrap_or(u32::MAX));
        self.marked = self.durable;
        self.entries.clear();
        self.group = None;
        self.skipped = 0;
        self.position = end;
        self.end = end;
        self.needed = end;
        Ok(())
    }

    /// Fills the page or ends the group, so that no later write touches a page that a sync wrote.
    /// Returns the end of the log then, or `None` if all of it is durable.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn fill_page(&mut self, storage: &dyn Storage) -> Result<Option<u64>> {
        if self.latched {
            return Err(Error::Latched);
        }
        if self.needed <= self.durable {
            return Ok(None);
        }
        if self.header.grouped() {
            self.end_group_for_sync(storage)?;
            return Ok(Some(self.end));
        }
        let page = u64::from(self.header.page_bytes);
        let end = self.position.next_multiple_of(page);
        if end > self.position && end > self.records_end(0) {
            self.finish_segment(storage)?;
        } else if end > self.position {
            let mut padding = Vec::new();
            self.pad(&mut padding, end - self.position);
            self.write(storage, &[IoSlice::new(&padding)], self.position)?;
            self.position = end;
            self.end = end;
        }
        Ok(Some(self.position))
    }

    /// Makes the log durable up to its end, writers waiting.
    ///
    /// # Errors
    /// `Latched`, `Full`, `Io`.
    pub(crate) fn sync(&mut self, storage: &dyn Storage) -> Result<()> {
        let Some(end) = self.fill_page(storage)? else { return Ok(()) };
        let done = storage.sync_data();
        self.synced(end, done)
    }

    /// Takes note of how a sync that covered everything up to `end` went.
    ///
    /// # Errors
    /// `Io`; the log is latched from then on.
    pub(crate) fn synced(&mut self, end: u64, done: std::io::Result<()>) -> Result<()> {
        if let Err(source) = done {
            self.latched = true;
            return Err(Error::Io { doing: "syncing the log", source });
        }
        self.durable = self.durable.max(end);
        Ok(())
    }

    /// Tells what is durable in the log itself, as the last thing before it is closed.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn write_mark(&mut self, storage: &dyn Storage) -> Result<()> {
        let mark = self.mark();
        if !mark.is_empty() && self.header.grouped() {
            return self.mark_group(storage);
        }
        if mark.is_empty() || self.records_end(0) < self.position + TAG_BYTES {
            return Ok(());
        }
        self.write(storage, &[IoSlice::new(&mark)], self.position)?;
        self.position += TAG_BYTES;
        self.end = self.position;
        self.marked = self.durable;
        Ok(())
    }

    /// Bytes of records, tags and padding that no sync has covered.
    pub(crate) fn written_since_sync(&self) -> u64 {
        self.end.saturating_sub(self.durable)
    }
}

/// The index of a segment and its footer, which end at `end`.
pub(crate) fn index_bytes(entries: &[Entry], durable: u64, sequence: u64, end: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity((entries.len() + 2) * ENTRY_BYTES as usize);
    for entry in entries {
        bytes.extend_from_slice(&entry.encode());
    }
    let footer = Tag {
        kind: Kind::Footer,
        data_cell: 0,
        length: u32::try_from(bytes.len()).unwrap_or(0),
        data_crc: syncline_base::crc32c(&bytes),
        logical: durable,
        sequence,
    };
    bytes.extend_from_slice(&footer.encode(end - TAG_BYTES));
    bytes
}
