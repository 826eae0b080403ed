//! Changes of a page since an image of it that recovery has.
//!
//! ```text
//!   read from the device     base: the block, once a flush covers what was written in place before
//!   logged                   base: the logged image, at once
//!   written in place only    base: that image, once a flush that began afterwards is over
//!   new block, failed write  no base: the next record holds the page whole
//!
//!   write()   old and new bytes of each 64th compared -> bit set where they differ
//! ```
//!
//! Packed records log no more of a page than the parts with a bit (`jbd2/src/packed.rs`, rule 1).
//! A logged image needs no flush: while its records are live recovery has them, and the tail passes
//! them only after a flush that covers the image in place. Bits are never taken back: a byte that
//! changes and changes back is logged, no harm.
//!
//! Tested below and by the crash tests of packed volumes in `syncline-model`.

use std::ops::Range;

/// Parts of a page that are told apart.
const PARTS: usize = syncline_ondisk::packed::MASK_BITS;

/// The base of a page, and parts in which the page may differ from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Bit n: the n-th 64th of the page.
    parts: u64,
    /// Device flush that has to be over before the base is one. 0: none; [`TAKEN`], [`NO_BASE`].
    flush: u64,
}

/// A snapshot is out that is going to be the base, or not.
const TAKEN: u64 = u64::MAX - 1;
/// No base, and changes are not gathered.
const NO_BASE: u64 = u64::MAX;

impl Changes {
    /// No base.
    pub(crate) const UNKNOWN: Changes = Changes { parts: 0, flush: NO_BASE };
    /// None, since an image that was logged.
    pub(crate) const NONE: Changes = Changes { parts: 0, flush: 0 };

    /// None, since an image in place that is durable once flush `number` is over.
    pub(crate) fn since_flush(number: u64) -> Changes {
        Changes { parts: 0, flush: number }
    }

    /// The changes so far; from now on those since the present contents are gathered, until
    /// [`Changes::rebase`] says what became of these.
    pub(crate) fn take(&mut self) -> Changes {
        std::mem::replace(self, Changes { parts: 0, flush: TAKEN })
    }

    /// The contents at [`Changes::take`] differ from a base by `base`.
    pub(crate) fn rebase(&mut self, base: Changes) {
        self.parts |= base.parts;
        self.flush = base.flush;
    }

    /// Parts that differ from the base; `None` without one, or if it is not durable by
    /// `is_flushed`.
    pub(crate) fn known(&self, is_flushed: impl FnOnce(u64) -> bool) -> Option<u64> {
        (self.flush < TAKEN && is_flushed(self.flush)).then_some(self.parts)
    }

    /// Bytes `range` of a page of `page_len` bytes change.
    pub(crate) fn note_range(&mut self, range: Range<usize>, page_len: usize) {
        let part = (page_len / PARTS).max(1);
        if range.is_empty() {
            return;
        }
        for at in range.start / part..range.end.div_ceil(part) {
            self.parts |= 1 << at;
        }
    }

    /// Bytes from `at` on become `new`.
    pub(crate) fn note_write(&mut self, page: &[u8], at: usize, new: &[u8]) {
        // Parts that count already need no look: a page that is overwritten again and again before
        // a sync is compared once.
        if self.flush == NO_BASE || self.parts == u64::MAX {
            return;
        }
        let part = (page.len() / PARTS).max(1);
        let (mut from, mut rest) = (at, new);
        while !rest.is_empty() {
            let (these, behind) = rest.split_at((part - from % part).min(rest.len()));
            let bit = 1 << (from / part);
            if self.parts & bit == 0 && page[from..from + these.len()] != *these {
                self.parts |= bit;
            }
            (from, rest) = (from + these.len(), behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_with_other_bytes_count() {
        let page = [7u8; 4096];
        let mut changes = Changes::NONE;
        changes.note_write(&page, 0, &page);
        assert_eq!(changes.parts, 0);
        changes.note_write(&page, 60, &[7, 7, 7, 7, 8]);
        assert_eq!(changes.parts, 0b10);
        changes.note_write(&page, 4095, &[1]);
        assert_eq!(changes.parts, 0b10 | 1 << 63);
        changes.note_range(127..193, 4096);
        assert_eq!(changes.parts, 0b1110 | 1 << 63);
        let (mut whole, mut other) = (Changes::NONE, page);
        (other[70], other[4095]) = (1, 2);
        whole.note_write(&page, 0, &other);
        assert_eq!(whole.parts, 0b10 | 1 << 63);
        whole.note_write(&page, 128, &[7; 64]);
        whole.note_write(&page, 192, &[8; 128]);
        assert_eq!(whole.parts, 0b11010 | 1 << 63);
        let mut small = Changes::NONE;
        small.note_write(&[0; 1024], 16, &[1; 17]);
        assert_eq!(small.parts, 0b110);
    }

    #[test]
    fn a_base_counts_once_its_flush_is_over() {
        assert_eq!(Changes::UNKNOWN.known(|_| true), None);
        assert_eq!(Changes::NONE.known(|number| number == 0), Some(0));
        let mut changes = Changes::since_flush(5);
        changes.note_range(0..1, 4096);
        assert_eq!(changes.known(|number| number < 5), None);
        assert_eq!(changes.known(|number| number <= 5), Some(1));
    }

    #[test]
    fn changes_since_a_snapshot_are_kept_whatever_becomes_of_it() {
        let mut page = Changes::since_flush(3);
        page.note_range(0..1, 4096);
        let out = page.take();
        page.note_range(64..65, 4096);
        assert_eq!(page.known(|_| true), None);
        let mut new = Changes::UNKNOWN;
        new.take();
        new.note_write(&[0; 4096], 0, &[1]);
        new.rebase(Changes::NONE);
        assert_eq!(new.known(|_| true), Some(1), "changed while it was written for the first time");
        let mut failed = page;
        failed.rebase(out);
        assert_eq!((failed.parts, failed.flush), (0b11, 3));
        page.rebase(Changes::NONE);
        assert_eq!((page.parts, page.flush), (0b10, 0));
    }
}
