//! Appending to logs of version 2: groups of tags with their data behind them.
//!
//! ```text
//!   | head: group tag tag tag next | data data data | head: ...
//! ```
//! A record is its data, written at a page where its length is one of pages, and then its tag, in
//! the head. So programs that write whole blocks get whole blocks, which the page cache of the
//! system copies faster and a reader finds in as few pages as in a normal file. A sync ends the
//! group, because a head that is on the device is not written again. Groups that no sync has
//! cut short have heads that end at 16 KiB, and so does what is behind them.

use std::io::IoSlice;

use crate::chain::Group;
use crate::format::{Entry, Kind, RECORD_BYTES_MAX, TAG_BYTES, Tag, padded};
use crate::tail::{SPLIT_BYTES_MIN, Tail, ZEROS};
use crate::{Result, Storage};

/// Alignment, in bytes, of the ends of heads, and of data whose length is a multiple of it.
const ALIGN_BYTES: u64 = 16 << 10;
/// Alignment, in bytes, of longer data, unless a sync may come soon: the page cache then takes them
/// in one piece. Shorter data are aligned to the largest power of two that divides their length.
const LONG_UNIT_BYTES: u64 = 256 << 10;
/// The share of a segment that is left unused for that: one in so many bytes.
const SKIP_SHARE: u64 = 64;
/// After a sync that covered less than this heads take one page, and data starts behind it.
const LONG_BYTES: u64 = 2 << 20;
/// Longer data are not put into a head, unless syncs are frequent.
const INLINE_BYTES_MAX: u64 = 512;

/// Position for a record.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its group, and whether that is to be made.
    group: Group,
    fresh: bool,
    /// Position of its tag.
    at: u64,
    /// Position of its data; `None`: behind the tag.
    data_at: Option<u64>,
    /// First byte behind everything so far.
    end: u64,
    length: u64,
}

impl Tail {
    /// As [`Tail::data`].
    pub(crate) fn group_data(
        &mut self,
        storage: &dyn Storage,
        logical: u64,
        data: &[u8],
    ) -> Result<(u32, u64)> {
        let place = self.make_place(storage, data.len() as u64)?;
        let data = &data[..place.length as usize];
        let base = self.header.segment_base(self.header.segment(place.at));
        let cell = place.data_at.map_or(0, |at| (at - base) / TAG_BYTES);
        let tag = Tag {
            kind: Kind::Data,
            // Segments have at most 256 MiB, and cells 24 bits.
            data_cell: u32::try_from(cell).unwrap_or(u32::MAX),
            length: u32::try_from(data.len()).unwrap_or(RECORD_BYTES_MAX),
            data_crc: syncline_base::crc32c(data),
            logical,
            sequence: self.sequence,
        };
        self.put(storage, &place, &tag, data)?;
        self.data_bytes += place.length;
        Ok((tag.length, place.data_at.unwrap_or(place.at + TAG_BYTES)))
    }

    /// As [`Tail::note`].
    pub(crate) fn group_note(
        &mut self,
        storage: &dyn Storage,
        kind: Kind,
        logical: u64,
        data_crc: u32,
    ) -> Result<()> {
        let place = self.make_place(storage, 0)?;
        let sequence = self.sequence;
        let tag = Tag { kind, data_cell: 0, length: 0, data_crc, logical, sequence };
        self.put(storage, &place, &tag, &[])
    }

    /// A place for as much of `wanted` bytes as fits a record; groups and segments that are full
    /// are finished before.
    fn make_place(&mut self, storage: &dyn Storage, wanted: u64) -> Result<Place> {
        loop {
            self.syncs_are_frequent &= self.written_since_sync() < LONG_BYTES;
            let limit = self.records_end(1);
            let (group, fresh) = match self.group {
                Some(group) => (group, false),
                None => (self.new_group(), true),
            };
            let at = if fresh { group.start + TAG_BYTES } else { self.position };
            let end = if fresh { group.head_end } else { self.end };
            if end > limit || fresh && limit - end < SPLIT_BYTES_MIN {
                self.finish_segment(storage)?;
                continue;
            }
            // One more tag must fit, the one that ends the group.
            let Some(room) = group.head_end.checked_sub(at + 2 * TAG_BYTES) else {
                self.end_group(storage)?;
                continue;
            };
            let place = Place { group, fresh, at, data_at: None, end, length: wanted };
            let inline_max = if self.syncs_are_frequent { room } else { INLINE_BYTES_MAX };
            if wanted <= inline_max && wanted.next_multiple_of(TAG_BYTES) <= room {
                return Ok(place);
            }
            let (start, unit) = self.aligned(end, wanted);
            // Whatever it starts at, it may be split at multiples of this.
            let unit = unit.min(ALIGN_BYTES.max(u64::from(self.header.page_bytes)));
            // Data is filled up to a multiple of a tag.
            let room = limit.saturating_sub(start) / TAG_BYTES * TAG_BYTES;
            let room = room.min(u64::from(RECORD_BYTES_MAX));
            let length = if room < wanted { room / unit * unit } else { wanted };
            if length >= wanted.min(SPLIT_BYTES_MIN) {
                return Ok(Place { data_at: Some(start), length, ..place });
            }
            self.finish_segment(storage)?;
        }
    }

    /// The group that starts at the end of the log.
    fn new_group(&self) -> Group {
        let (start, page) = (self.position, u64::from(self.header.page_bytes));
        let align = if self.syncs_are_frequent { page } else { ALIGN_BYTES.max(page) };
        Group { start, head_end: (start + page).next_multiple_of(align) }
    }

    /// Returns the position, at or behind `end`, for data of this length, and its alignment. The
    /// alignment is the power of two that divides the length, unless that wastes more than an
    /// eighth of the length or, for long data, more than this segment may still waste.
    fn aligned(&self, end: u64, length: u64) -> (u64, u64) {
        let page = u64::from(self.header.page_bytes);
        let asked = self.align_from_bytes > 0 && length >= u64::from(self.align_from_bytes);
        let unit = (1 << length.trailing_zeros()).min(LONG_UNIT_BYTES);
        if unit > ALIGN_BYTES.max(page) && self.written_since_sync() >= LONG_BYTES {
            let start = end.next_multiple_of(unit);
            let most = u64::from(self.header.segment_bytes) / SKIP_SHARE;
            if start == end || self.skipped.saturating_add(start - end) <= most {
                return (start, unit);
            }
        }
        for unit in [ALIGN_BYTES.max(page), page] {
            let start = end.next_multiple_of(unit);
            let cheap = length % unit == 0 && start - end <= length / 8;
            if cheap || asked && unit == page {
                return (start, unit);
            }
        }
        (end, TAG_BYTES)
    }

    /// Writes a record, with the head of its group if that is new.
    fn put(&mut self, storage: &dyn Storage, place: &Place, tag: &Tag, data: &[u8]) -> Result<()> {
        let mut head = if place.fresh { self.head_of(place.group) } else { Vec::new() };
        head.extend_from_slice(&tag.encode(place.at));
        let inline = if place.data_at.is_none() { data } else { &[] };
        head.extend_from_slice(inline);
        head.resize(head.len().next_multiple_of(TAG_BYTES as usize), 0);
        if place.fresh {
            head.resize((place.group.head_end - place.group.start) as usize, 0);
        }
        let mut end = place.end;
        let mut skipped = 0;
        if let Some(data_at) = place.data_at {
            skipped = data_at - end;
            // What does not fit the zeros is a hole.
            let zeros = skipped.min(ZEROS.len() as u64);
            let gap = &ZEROS[..zeros as usize];
            let fill = &ZEROS[..(padded(tag.length) as usize) - data.len()];
            let [gap, data, fill] = [gap, data, fill].map(IoSlice::new);
            if place.fresh && zeros == skipped {
                let head = IoSlice::new(&head);
                self.write(storage, &[head, gap, data, fill], place.group.start)?;
            } else {
                // The tag last: a record that has none was never there.
                self.write(storage, &[gap, data, fill], data_at - zeros)?;
                self.put_head(storage, place, &head, self.tags_at_once)?;
            }
            end = data_at + padded(tag.length);
        } else {
            self.put_head(storage, place, &head, 1)?;
        }
        if place.fresh {
            self.group = Some(place.group);
            self.marked = self.durable;
        }
        let base = self.header.segment_base(self.header.segment(place.at));
        self.entries.push(Entry::new(tag, place.at - base));
        self.sequence += 1;
        self.position = place.at + tag.span_bytes();
        self.end = end;
        self.needed = end;
        self.skipped = self.skipped.saturating_add(skipped);
        Ok(())
    }

    /// Writes a new head, or a tag. A tag may be deferred and written with later ones.
    fn put_head(
        &mut self,
        storage: &dyn Storage,
        place: &Place,
        head: &[u8],
        at_once: u32,
    ) -> Result<()> {
        if place.fresh {
            return self.write(storage, &[IoSlice::new(head)], place.group.start);
        }
        self.put_tag(storage, head, at_once)
    }

    /// The tag that starts a group. It says what is durable, as a mark.
    fn head_of(&self, group: Group) -> Vec<u8> {
        let tag = Tag {
            kind: Kind::Group,
            data_cell: 0,
            // At most two pages of 64 KiB.
            length: u32::try_from(group.head_end - group.start).unwrap_or(0),
            data_crc: 0,
            logical: self.durable,
            sequence: self.sequence,
        };
        tag.encode(group.start).to_vec()
    }

    /// Ends the group: the next one starts at the page behind it. Where no other fits, the segment
    /// is finished.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn end_group(&mut self, storage: &dyn Storage) -> Result<()> {
        let next = self.end.next_multiple_of(u64::from(self.header.page_bytes));
        if next > self.records_end(0) {
            return self.finish_segment(storage);
        }
        let tag = Tag {
            kind: Kind::Next,
            data_cell: 0,
            length: 0,
            data_crc: 0,
            logical: next,
            sequence: self.sequence,
        };
        self.put_tag(storage, &tag.encode(self.position), 0)?;
        self.group = None;
        self.position = next;
        Ok(())
    }

    /// Ends the group that a sync is to cover.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn end_group_for_sync(&mut self, storage: &dyn Storage) -> Result<()> {
        if self.group.is_some() {
            self.end_group(storage)?;
        }
        self.syncs_are_frequent = self.written_since_sync() < LONG_BYTES;
        Ok(())
    }

    /// Starts a group whose tag tells what is durable, as the last thing before the log is closed.
    ///
    /// # Errors
    /// As [`Tail::data`].
    pub(crate) fn mark_group(&mut self, storage: &dyn Storage) -> Result<()> {
        let group = self.new_group();
        if self.group.is_some() {
            return Ok(());
        }
        if group.head_end > self.records_end(1) {
            // The footer tells it.
            return self.finish_segment(storage);
        }
        let mut head = self.head_of(group);
        head.resize((group.head_end - group.start) as usize, 0);
        self.write(storage, &[IoSlice::new(&head)], group.start)?;
        self.group = Some(group);
        self.position = group.start + TAG_BYTES;
        self.end = group.head_end;
        self.marked = self.durable;
        Ok(())
    }
}
