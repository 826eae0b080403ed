//! The log: ring, map, overtaken copies, and the sweep that cleans it.

use std::collections::BTreeMap;

use syncline_device::DeviceError;

use crate::format::{ITEMS_MAX, Range};
use crate::ring::{Mapped, Ring};

/// One pass of the cleaner over the map, in logical order. When it is through, everything below
/// `boundary` is in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub(crate) boundary: u64,
    /// Logical page at which the sweep began; it ends there after one round.
    pub(crate) start: u64,
    pub(crate) wrapped: bool,
    /// Pages to clean, at most.
    pub(crate) remaining: u64,
    /// Size of its steps.
    pub(crate) step: Step,
}

/// Limits of a cleaning step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Pages to clean.
    pub(crate) pages: usize,
    /// Most pages between two of them that are written again, so that both are one request.
    pub(crate) gap_pages: u64,
}

pub(crate) struct Log {
    pub(crate) ring: Ring,
    /// Newest copy of each logical page that has a valid one between tail and head.
    pub(crate) map: BTreeMap<u64, Mapped>,
    /// Logical pages whose newest copy in the ring, with this sequence, is older than their place.
    /// The next flush records them, after their place is durable and before it returns.
    pub(crate) overtaken: BTreeMap<u64, u64>,
    pub(crate) sweep: Option<Sweep>,
    /// Logical page at which the cleaner continues.
    pub(crate) hand: u64,
    /// Pages that foreground writes still owe to the cleaner.
    pub(crate) debt: u64,
}

impl Log {
    pub(crate) fn new(ring: Ring, map: BTreeMap<u64, Mapped>) -> Self {
        Log { ring, map, overtaken: BTreeMap::new(), sweep: None, hand: 0, debt: 0 }
    }

    /// The places of these pages are newer now than what the ring has.
    pub(crate) fn overtake(&mut self, pages: std::ops::Range<u64>) {
        let gone: Vec<(u64, u64)> =
            self.map.range(pages).map(|(&logical, mapped)| (logical, mapped.sequence)).collect();
        for (logical, sequence) in gone {
            self.map.remove(&logical);
            self.overtaken.insert(logical, sequence);
        }
    }

    /// Newest copies are at the head now.
    pub(crate) fn appended(&mut self, pages: Vec<(u64, Mapped)>) {
        for (logical, mapped) in pages {
            self.map.insert(logical, mapped);
            self.overtaken.remove(&logical);
        }
    }

    /// Collects the overtaken pages as ranges for one header.
    pub(crate) fn record(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for &logical in self.overtaken.keys() {
            let full = ranges.len() == ITEMS_MAX;
            match ranges.last_mut() {
                Some(last) if last.first + last.pages == logical => last.pages += 1,
                _ if full => break,
                _ => ranges.push(Range { first: logical, pages: 1 }),
            }
        }
        ranges
    }

    /// These ranges are recorded.
    pub(crate) fn recorded(&mut self, ranges: &[Range]) {
        for range in ranges {
            for logical in range.first..range.first + range.pages {
                self.overtaken.remove(&logical);
            }
        }
    }

    /// Ends a sweep whose pages are durable in their places.
    pub(crate) fn swept(&mut self, boundary: u64) -> Result<(), DeviceError> {
        self.ring.move_tail(boundary)?;
        self.map.retain(|_, mapped| mapped.sequence >= boundary);
        self.overtaken.retain(|_, sequence| *sequence >= boundary);
        self.sweep = None;
        Ok(())
    }
}
