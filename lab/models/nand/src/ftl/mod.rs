//! Mapping schemes. One file each behind [`Ftl`]; which one a device has is a line of its profile.
//!
//! | `mapping =` | file | a unit can be | other writes |
//! |---|---|---|---|
//! | `page` | `page_map`, maps in `map_cache` | anywhere | superblocks are collected |
//! | `zone` | `page_map`, maps in `zone_map` | anywhere | the same |
//! | `dftl` | `page_map`, maps in `dftl` | anywhere | the same |
//! | `bast` | `bast` | at its place or in its superblock's log block | log block merged |
//! | `fast` | `fast` | at its place or in the log blocks of all | all of a log block merged |
//! | `block` | `block_map` | at its place | superblock replaced as a whole |
//!
//! `slc` puts a write cache of single-level blocks in front of any of them, and `zoned` zones with
//! write pointers behind it.
//!
//! A scheme decides where units go, when pages are programmed and what is collected. It has no
//! contents and no clock: times come in with the call, and every flash operation goes through
//! [`Flash`]. All state is integers, so that equal requests give equal results everywhere.

mod bast;
mod bits;
mod block_map;
mod build;
mod dftl;
mod fast;
mod hybrid;
mod lru;
mod map_cache;
mod page_map;
mod slc;
mod zone_map;
mod zoned;

pub(crate) use build::build;
pub use map_cache::MapCache;
pub use page_map::{CloseCost, PageMap};

use crate::flash::Flash;
use syncline_device::WriteLife;

/// Sectors of one write or read, with the numbers of the units they touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First sector (512 bytes).
    pub sector: u64,
    /// Sectors.
    pub sectors: u64,
    /// First unit touched.
    pub unit: u32,
    /// Units touched.
    pub units: u32,
    /// True if the first unit is covered in part only.
    pub head_partial: bool,
    /// True if the last unit is covered in part only.
    pub tail_partial: bool,
}

impl Span {
    /// Of `len_bytes` (sector aligned, not empty) at `offset_bytes` on units of `unit_bytes`.
    pub fn new(offset_bytes: u64, len_bytes: u64, unit_bytes: u64) -> Span {
        let end = offset_bytes + len_bytes;
        let first = offset_bytes / unit_bytes;
        let after = end.div_ceil(unit_bytes);
        Span {
            sector: offset_bytes / 512,
            sectors: len_bytes / 512,
            unit: first as u32,
            units: (after - first) as u32,
            head_partial: !offset_bytes.is_multiple_of(unit_bytes),
            tail_partial: !end.is_multiple_of(unit_bytes),
        }
    }

    /// Of whole units.
    pub fn of_units(unit: u32, units: u32, unit_bytes: u64) -> Span {
        Span::new(u64::from(unit) * unit_bytes, u64::from(units) * unit_bytes, unit_bytes)
    }

    /// Sectors of the `i`-th unit that the span covers, counted from the begin of that unit of
    /// `unit_sectors`: first, and the one after the last.
    pub fn within(&self, i: u32, unit_sectors: u64) -> (u64, u64) {
        let base = (u64::from(self.unit) + u64::from(i)) * unit_sectors;
        let end = if i + 1 == self.units && !self.tail_partial {
            base + unit_sectors
        } else {
            (self.sector + self.sectors).min(base + unit_sectors)
        };
        (self.sector.max(base) - base, end - base)
    }

    /// True if the `i`-th unit of the span is covered in part only.
    pub fn partial(&self, i: u32) -> bool {
        (i == 0 && self.head_partial) || (i + 1 == self.units && self.tail_partial)
    }
}

/// Time at which the data of a write arrives at the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// From when on.
    pub at_ns: u64,
    /// Host bus time of a unit.
    pub bus_ns: u64,
    /// True if the write is done only when the cells have the data.
    pub through: bool,
    /// Expected lifetime of the data.
    pub life: WriteLife,
}

/// Page map of which the controller's RAM holds a part: cached entries, and the cost of reading and
/// writing the others.
pub trait MapTable: Send {
    /// Makes the entry of `unit` present, changed if `dirty`; returns when it is.
    fn touch(&mut self, unit: u32, dirty: bool, at_ns: u64, flash: &mut Flash) -> u64;

    /// Units from `unit` on that the same touch covers, so that a run is touched once for all.
    fn units_to_next(&self, unit: u32) -> u32;

    /// True if [`MapTable::moved`] is to be called.
    fn wants_moves(&self) -> bool {
        false
    }

    /// The collector moved these units, ascending; returns when their maps are changed.
    fn moved(&mut self, units: &[u32], at_ns: u64, flash: &mut Flash) -> u64 {
        let _ = (units, flash);
        at_ns
    }

    /// Bytes of its tables.
    fn memory_bytes(&self) -> u64;
}

/// A mapping scheme: maps units, drives the flash, accounts for the write buffer.
pub trait Ftl: Send {
    /// Reads a span from `at_ns` on; `bus_ns` is the host bus time of a unit. Returns when the
    /// host has everything.
    fn read(&mut self, span: &Span, at_ns: u64, bus_ns: u64, flash: &mut Flash) -> u64;

    /// Writes a span. Returns when the buffer has everything, or the cells where that was asked.
    fn write(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64;

    /// Programs everything that the buffer holds. Returns when it is in the cells, and whether
    /// there was anything since the last flush.
    fn flush(&mut self, at_ns: u64, flash: &mut Flash) -> (u64, bool);

    /// Unmaps `units` whole units from `unit` on.
    fn discard(&mut self, unit: u32, units: u32, flash: &mut Flash);

    /// True if the newest copy of a unit survives a power cut at `at_ns`. Unmapped units do.
    fn durable(&self, unit: u32, at_ns: u64) -> bool;

    /// A cache barrier: copies that the buffer holds are not replaced there any more. Only schemes
    /// with cache barriers do this.
    fn barrier(&mut self) {}

    /// The page with the newest copy of a unit, if that would not survive a power cut at `at_ns`;
    /// any number in schemes without cache barriers.
    fn volatile_page(&self, unit: u32, at_ns: u64) -> Option<u32> {
        (!self.durable(unit, at_ns)).then_some(0)
    }

    /// True if a power cut at `at_ns` would lose a page; asked for those of
    /// [`Ftl::volatile_page`] in schemes with cache barriers.
    fn is_page_volatile(&self, page: u32, at_ns: u64) -> bool {
        let _ = (page, at_ns);
        false
    }

    /// A power cut and restart: streams are closed, open pages are lost, the buffer is empty.
    fn power_cycle(&mut self);

    /// A power cut at `at_ns` is about to follow: write pointers go back to what is in the cells.
    fn fall_back(&mut self, at_ns: u64) {
        let _ = at_ns;
    }

    /// Write pointer of a zone, in units from its start.
    fn pointer(&self, zone: u32) -> u32 {
        let _ = zone;
        0
    }

    /// Does all that waits for idle time. Its time is not told: for ageing before a run.
    fn settle(&mut self, flash: &mut Flash) {
        let _ = flash;
    }

    /// Superblocks of an SLC write cache.
    fn slc_blocks(&self) -> u64 {
        0
    }

    /// Returns the flash unit with the newest copy of a unit. `None`: unmapped, or in RAM only.
    fn locate(&self, unit: u32) -> Option<u32>;

    /// Bytes of the scheme's tables.
    fn memory_bytes(&self) -> u64;

    /// Checks every invariant by a full scan: no lost unit, counts agree.
    fn check(&self, flash: &Flash) -> Result<(), String>;
}
