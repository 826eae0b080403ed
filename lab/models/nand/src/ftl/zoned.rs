//! Zones with write pointers behind a conventional area: the two logical units of a zoned UFS.
//!
//! ```text
//!   | conventional: any scheme, with SLC cache | zone 0 | zone 1 | ...            to the host
//!                                                  |        |
//!                                        superblock 17    superblock 3            whole ones
//!   zone: [ programmed pages | open page .... | nothing ]
//!                                        ^ write pointer: a write is here or is refused
//! ```
//!
//! A zone is a superblock, so there is nothing to collect and the map has one entry a zone. A reset
//! (a discard of the zone) erases it and takes the least worn free one at the next write.
//!
//! A flush can not pad the open page, as the rest of it is the place of later data. Its part goes
//! to a backup page in single-level mode as well, and is programmed at its place when the page is
//! full. A restart finds it there. Of more than `open_zones` zones that are written at once, the
//! one written longest ago is closed: its part leaves RAM for the backup, and is read from there
//! later. SCSI calls that implicitly closed.
//!
//! A power cut moves each write pointer back to the first unit that is not in the cells. The pages
//! behind it are programmed again without an erase, where a controller would take others.
//!
//! Rejected: a translation of random writes to zones in the device, as the device is zoned to have
//! none; and a report of write pointers, which a log that starts at a zone of its own after a
//! restart does not need. Tested in `tests/it/schemes/zoned.rs`.

use super::{Arrival, Ftl, Span};
use crate::buffer::{FifoBuffer, WriteCache};
use crate::flash::Flash;
use crate::geometry::Layout;
use std::collections::BTreeSet;

/// No superblock, no page.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Zone {
    block: u32,
    /// The write pointer, in units.
    next: u32,
    /// Units of the open page that count in the write buffer.
    held: u32,
    /// When the last unit of the open page arrived.
    ready_ns: u64,
    /// Units before this one are in the cells from `backed_ns` on.
    backed: u32,
    backed_ns: u64,
    /// Units that were in the cells before that.
    safe: u32,
    /// True if the open page is in the backup only.
    is_away: bool,
}

const EMPTY: Zone = Zone {
    block: NONE,
    next: 0,
    held: 0,
    ready_ns: 0,
    backed: 0,
    backed_ns: 0,
    safe: 0,
    is_away: false,
};

/// A conventional area and zones. See the module's text.
pub(super) struct Zoned {
    layout: Layout,
    conventional: Box<dyn Ftl>,
    zones: Vec<Zone>,
    /// Zones with a part of a page in RAM, last written last.
    open: Vec<u32>,
    open_max: usize,
    /// Erases and number of the superblocks without a zone: least worn first.
    free: BTreeSet<(u32, u32)>,
    cache: FifoBuffer,
    /// Programmed pages that may be in flight at once.
    flight_pages: u32,
    /// Backup pages programmed, and those of a superblock.
    backups: u32,
    backup_block_pages: u32,
    dirty: bool,
}

impl Zoned {
    /// Empty zones behind `conventional`, which has the superblocks before theirs. The buffer of
    /// the zones holds `buffered` units; a cell of the backup has one bit of `bits`.
    pub(super) fn new(
        layout: Layout,
        open_max: u32,
        buffered: u32,
        bits: u32,
        conventional: Box<dyn Ftl>,
    ) -> Self {
        // No write waits for pages that are open.
        let capacity = buffered.max((open_max + 1) * layout.units_per_page);
        Zoned {
            layout,
            conventional,
            zones: vec![EMPTY; layout.zones as usize],
            open: Vec::new(),
            open_max: open_max as usize,
            free: (layout.blocks - layout.zones..layout.blocks).map(|b| (0, b)).collect(),
            cache: FifoBuffer::new(capacity),
            flight_pages: capacity.div_ceil(layout.units_per_page) + 1,
            backups: 0,
            backup_block_pages: (layout.pages_per_block / bits).max(1),
            dirty: false,
        }
    }

    /// Zone of a unit, and its number there; `None` in the conventional area.
    fn zone_of(&self, unit: u32) -> Option<(usize, u32)> {
        let unit = unit.checked_sub(self.layout.conventional_units())?;
        let per_zone = self.layout.units_per_block;
        Some(((unit / per_zone) as usize, unit % per_zone))
    }

    fn page(&self, zone: &Zone, at: u32) -> u32 {
        zone.block * self.layout.pages_per_block + at / self.layout.units_per_page
    }

    /// First unit of the open page.
    fn open_page(&self, zone: &Zone) -> u32 {
        zone.next - zone.next % self.layout.units_per_page
    }

    /// Units of a zone that a power cut at `at_ns` leaves.
    fn durable_units(&self, zone: &Zone, at_ns: u64) -> u32 {
        let per_page = self.layout.units_per_page;
        let open = self.open_page(zone);
        let backed = if at_ns >= zone.backed_ns { zone.backed } else { zone.safe };
        // Older pages are not in flight any more.
        let oldest = open.saturating_sub(self.flight_pages * per_page);
        let mut at = oldest.max(backed - backed % per_page);
        while at < open && !self.cache.in_flight(self.page(zone, at), at_ns) {
            at += per_page;
        }
        at.max(backed)
    }

    /// Puts the part of an open page into the backup; returns when it is there.
    fn back_up(&mut self, zone: usize, at_ns: u64, flash: &mut Flash) -> u64 {
        let z = self.zones[zone];
        if z.next == self.open_page(&z) || z.backed == z.next {
            return z.backed_ns;
        }
        self.backups += 1;
        let mut done_ns = flash.slc_program(self.backups, z.ready_ns.max(at_ns));
        if self.backups.is_multiple_of(self.backup_block_pages) {
            done_ns = flash.slc_erase(done_ns);
        }
        let z = &mut self.zones[zone];
        if at_ns >= z.backed_ns {
            z.safe = z.backed;
        }
        // What is before the open page is in flight; the flush waits for it as well.
        (z.backed, z.backed_ns) = (z.next, done_ns.max(self.cache.last_done()));
        z.backed_ns
    }

    /// Makes the zone the last written one, and closes the first if there are too many.
    fn touch(&mut self, zone: usize, at_ns: u64, flash: &mut Flash) {
        self.open.retain(|z| *z as usize != zone);
        self.open.push(zone as u32);
        if self.open.len() > self.open_max {
            let oldest = self.open.remove(0) as usize;
            let done_ns = self.back_up(oldest, at_ns, flash);
            let z = &mut self.zones[oldest];
            z.is_away = !z.next.is_multiple_of(self.layout.units_per_page);
            self.cache.programmed(NONE, std::mem::take(&mut z.held), done_ns);
        }
    }

    /// Programs the open page, which is full.
    fn program(&mut self, zone: usize, flash: &mut Flash) {
        let z = self.zones[zone];
        let mut ready_ns = z.ready_ns;
        if z.is_away {
            ready_ns = flash.slc_read(self.backups, self.layout.page_bytes(), ready_ns);
        }
        let page = self.page(&z, z.next - 1);
        let done_ns = flash.program(page, ready_ns);
        self.cache.programmed(page, z.held, done_ns);
        let z = &mut self.zones[zone];
        (z.held, z.ready_ns, z.is_away) = (0, 0, false);
    }

    fn reset(&mut self, zone: usize, flash: &mut Flash) {
        let z = std::mem::replace(&mut self.zones[zone], EMPTY);
        self.open.retain(|open| *open as usize != zone);
        self.cache.programmed(NONE, z.held, 0);
        flash.counters.discarded_units += u64::from(z.next);
        if z.block != NONE {
            flash.erase(z.block, 0);
            self.free.insert((flash.erases()[z.block as usize], z.block));
        }
    }

    /// The part of a span before the zones, and what is left of it.
    fn split(&self, span: &Span) -> (Option<Span>, u32) {
        let units = self.layout.conventional_units().saturating_sub(span.unit).min(span.units);
        if units == span.units {
            return (Some(*span), units);
        }
        let end = u64::from(span.unit + units) * self.layout.unit_bytes / 512;
        let part =
            Span { units, sectors: end.saturating_sub(span.sector), tail_partial: false, ..*span };
        ((units > 0).then_some(part), units)
    }
}

impl Ftl for Zoned {
    fn read(&mut self, span: &Span, at_ns: u64, bus_ns: u64, flash: &mut Flash) -> u64 {
        let (before, skipped) = self.split(span);
        let mut bus_free_ns = match before {
            Some(part) => self.conventional.read(&part, at_ns, bus_ns, flash),
            None => at_ns,
        };
        let (mut ready_ns, mut page_read) = (at_ns, NONE);
        let bytes = self.layout.page_bytes().min(u64::from(span.units) * self.layout.unit_bytes);
        for unit in span.unit + skipped..span.unit + span.units {
            let Some((zone, at)) = self.zone_of(unit) else { continue };
            let z = self.zones[zone];
            let in_ram = at >= self.open_page(&z) && !z.is_away;
            if at < z.next && !in_ram && self.page(&z, at) != page_read {
                page_read = self.page(&z, at);
                ready_ns = match at >= self.open_page(&z) {
                    true => flash.slc_read(page_read, bytes, at_ns),
                    false => flash.read(page_read, bytes, at_ns),
                };
            }
            bus_free_ns = bus_free_ns.max(ready_ns) + bus_ns;
        }
        bus_free_ns
    }

    fn write(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        let Some((zone, at)) = self.zone_of(span.unit) else {
            return self.conventional.write(span, arrival, flash);
        };
        let Arrival { mut at_ns, bus_ns, through, .. } = arrival;
        if at != self.zones[zone].next || at + span.units > self.layout.units_per_block {
            return at_ns;
        }
        if at == 0 {
            let (_, block) = self.free.pop_first().expect("there is a superblock for each zone");
            self.zones[zone].block = block;
        }
        self.touch(zone, at_ns, flash);
        self.dirty = true;
        flash.counters.host_units += u64::from(span.units);
        for _ in 0..span.units {
            at_ns = self.cache.admit(at_ns + bus_ns).unwrap_or(at_ns + bus_ns);
            let z = &mut self.zones[zone];
            z.next += 1;
            z.held += 1;
            z.ready_ns = z.ready_ns.max(at_ns);
            if z.next.is_multiple_of(self.layout.units_per_page) {
                self.program(zone, flash);
            }
        }
        if self.zones[zone].next == self.layout.units_per_block {
            self.open.pop();
        }
        if through {
            at_ns = self.back_up(zone, at_ns, flash).max(self.cache.drained(at_ns));
        }
        at_ns
    }

    fn flush(&mut self, at_ns: u64, flash: &mut Flash) -> (u64, bool) {
        let (mut done_ns, was_dirty) = self.conventional.flush(at_ns, flash);
        for n in 0..self.open.len() {
            done_ns = done_ns.max(self.back_up(self.open[n] as usize, at_ns, flash));
        }
        done_ns = done_ns.max(self.cache.drained(at_ns));
        (done_ns, std::mem::replace(&mut self.dirty, false) | was_dirty)
    }

    fn discard(&mut self, unit: u32, units: u32, flash: &mut Flash) {
        let first = self.layout.conventional_units();
        if unit < first {
            self.conventional.discard(unit, units.min(first - unit), flash);
        }
        let per_zone = self.layout.units_per_block;
        let from = unit.saturating_sub(first).div_ceil(per_zone);
        for zone in from..(unit + units).saturating_sub(first) / per_zone {
            self.reset(zone as usize, flash);
        }
    }

    fn durable(&self, unit: u32, at_ns: u64) -> bool {
        let Some((zone, at)) = self.zone_of(unit) else {
            return self.conventional.durable(unit, at_ns);
        };
        let z = &self.zones[zone];
        at >= z.next || at < self.durable_units(z, at_ns)
    }

    fn fall_back(&mut self, at_ns: u64) {
        for n in 0..self.zones.len() {
            let next = self.durable_units(&self.zones[n], at_ns);
            let z = &mut self.zones[n];
            // A zone that lost all keeps no superblock.
            if next == 0 && z.block != NONE {
                self.free.insert((0, z.block));
                *z = EMPTY;
            }
            z.next = next.min(z.next);
        }
    }

    fn power_cycle(&mut self) {
        self.conventional.power_cycle();
        self.open.clear();
        self.cache.clear();
        self.dirty = false;
        for z in &mut self.zones {
            (z.held, z.ready_ns, z.backed, z.backed_ns, z.safe) = (0, 0, z.next, 0, 0);
            z.is_away = !z.next.is_multiple_of(self.layout.units_per_page);
        }
    }

    fn settle(&mut self, flash: &mut Flash) {
        self.conventional.settle(flash);
    }

    fn slc_blocks(&self) -> u64 {
        self.conventional.slc_blocks()
    }

    fn locate(&self, unit: u32) -> Option<u32> {
        let Some((zone, at)) = self.zone_of(unit) else { return self.conventional.locate(unit) };
        let z = &self.zones[zone];
        (at < self.open_page(z)).then(|| z.block * self.layout.units_per_block + at)
    }

    fn pointer(&self, zone: u32) -> u32 {
        self.zones[zone as usize].next
    }

    fn memory_bytes(&self) -> u64 {
        self.conventional.memory_bytes() + (self.zones.len() * size_of::<Zone>()) as u64
    }

    fn check(&self, flash: &Flash) -> Result<(), String> {
        self.conventional.check(flash)?;
        let mut blocks: Vec<u32> = self.free.iter().map(|(_, b)| *b).collect();
        for (n, z) in self.zones.iter().enumerate() {
            if (z.block == NONE) != (z.next == 0) || z.next > self.layout.units_per_block {
                return Err(format!("zone {n}: pointer {} in superblock {}", z.next, z.block));
            }
            blocks.extend((z.block != NONE).then_some(z.block));
        }
        blocks.sort_unstable();
        match blocks.iter().copied().eq(self.layout.blocks - self.layout.zones..self.layout.blocks)
        {
            true => Ok(()),
            false => Err(format!("superblocks of zones: {blocks:?}")),
        }
    }
}
