//! The tags of a segment, one after the other, as a writer may have put them.
//!
//! ```text
//!   version 1   tag data tag data ...
//!   version 2   | group tag tag ... next | data data ... | group tag ...
//!                 head, whole pages        |               ^ where `next` says
//! ```
//! A log whose tags do not stand like this ends there: so no tag is read twice, no data belongs to
//! two tags, and an index still fits behind them.

use crate::format::{Header, Kind, TAG_BYTES, Tag};

/// The group that tags are read from, or put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Position of its first tag.
    pub start: u64,
    /// First byte behind its head.
    pub head_end: u64,
}

/// A place between two tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    header: Header,
    /// Position of the next tag.
    pub at: u64,
    /// The group it is of; nothing in version 1 and where a group must start.
    pub group: Option<Group>,
    /// First byte behind everything so far.
    pub end: u64,
    /// Records so far.
    pub records: u64,
}

impl Chain {
    /// At the start of a segment.
    pub(crate) fn new(header: Header, segment: u64) -> Chain {
        let at = header.segment_start(segment);
        Chain { header, at, group: None, end: at, records: 0 }
    }

    /// Returns the position of the next tag, if there is room for one.
    pub(crate) fn next(&self) -> Option<u64> {
        let fits = |group: Group| self.at + TAG_BYTES <= group.head_end;
        self.group.is_none_or(fits).then_some(self.at)
    }

    /// True if no record is in the group yet.
    pub(crate) fn group_is_empty(&self) -> bool {
        self.group.is_some_and(|group| self.at == group.start + TAG_BYTES)
    }

    /// Steps over the tag that stands at [`Chain::next`]; whether a writer could have put it there,
    /// in a log of `len` bytes. If not, nothing is changed.
    pub(crate) fn take(&mut self, tag: &Tag, len: u64) -> bool {
        let mut next = *self;
        let fits = if self.header.grouped() { next.grouped(tag) } else { next.inline(tag) };
        next.records += u64::from(tag.kind.counts());
        let limit = self.header.records_end(self.at, next.records);
        // A head is written before its data, which may be missing; the data of a record may not.
        let there = !tag.kind.counts() && self.header.grouped() || next.end <= len;
        if !fits || next.end > limit || !there || next.at > limit {
            return false;
        }
        *self = next;
        true
    }

    fn inline(&mut self, tag: &Tag) -> bool {
        self.at = self.at.saturating_add(tag.span_bytes());
        self.end = self.at;
        tag.data_cell == 0 && !matches!(tag.kind, Kind::Footer | Kind::Group | Kind::Next)
    }

    fn grouped(&mut self, tag: &Tag) -> bool {
        let page = u64::from(self.header.page_bytes);
        let Some(group) = self.group else {
            let head_end = self.at.saturating_add(u64::from(tag.length));
            self.group = Some(Group { start: self.at, head_end });
            let whole = tag.length > 0 && u64::from(tag.length) % page == 0;
            let fits = tag.kind == Kind::Group && whole && tag.logical <= self.at;
            (self.at, self.end) = (self.at + TAG_BYTES, head_end);
            return fits;
        };
        if tag.kind == Kind::Next {
            self.group = None;
            self.at = tag.logical;
            return tag.logical == self.end.next_multiple_of(page);
        }
        let base = self.header.segment_base(self.header.segment(self.at));
        self.at += tag.span_bytes();
        if let Some((start, end)) = tag.apart(base) {
            if start < self.end {
                return false;
            }
            self.end = end;
        }
        tag.kind.counts() && self.at <= group.head_end
    }
}
