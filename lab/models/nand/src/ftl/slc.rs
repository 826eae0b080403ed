//! A write cache of blocks in single-level mode, in front of any mapping scheme.
//!
//! ```text
//!   host -> [ open page ] -> tail [####][####][##..][....] head     a ring of superblocks
//!                              |     one bit a cell: few pages, fast ones
//!                              v  idle, or no room: fold
//!                            the scheme behind: two to four bits a cell
//! ```
//!
//! Every write goes to the ring while there is room, whatever its place: no stream is opened there
//! and nothing merged. A superblock is folded by writing its valid units, ascending, to the scheme
//! behind; then that is flushed and the superblock erased, so that a power cut finds each unit in
//! the one or the other. Folding begins when no command came for `slc_idle_ms`, step by step, and
//! stops for the next command after the step under way. Without room a command goes past the ring
//! (`slc_full = "direct"`) or waits for a superblock to be folded (`"fold"`): the cliff that long
//! writes meet.
//!
//! The size is `slc_mib`, and of `slc_dynamic_mib` the share of the address space that is not
//! mapped: the dynamic cache of drives that lend their free blocks. The flash of both is beside
//! that of the layout; programs and erases are counted apart ([`Counters::slc_programs`],
//! [`Counters::slc_erases`]), because a cell in this mode is worn otherwise. Units folded are no
//! host units of the scheme behind.
//!
//! Memory: 4 bytes a unit of the device, 4 a unit of the ring, a bit a unit if the size is dynamic.
//! Tested in `tests/it/schemes/slc.rs`, `tests/it/ftl.rs` and `tests/it/device.rs`.
//!
//! [`Counters::slc_programs`]: crate::Counters::slc_programs
//! [`Counters::slc_erases`]: crate::Counters::slc_erases

use super::bits::Bits;
use super::{Arrival, Ftl, Span};
use crate::buffer::{FifoBuffer, WriteCache};
use crate::flash::Flash;
use crate::geometry::Layout;
use crate::profile::{SlcFull, SlcParameters};
use syncline_device::WriteLife;

/// The ring and the scheme behind it.
pub(super) struct SlcCache {
    layout: Layout,
    behind: Box<dyn Ftl>,
    cache: FifoBuffer,
    full: SlcFull,
    idle_ns: u64,
    block_units: u64,
    /// Units of the ring, and how many of these stay when all of the device is mapped.
    ring_units: u64,
    static_units: u64,
    /// Place in the ring of each unit, plus one; 0: not in it.
    places: Vec<u32>,
    /// Unit at each place of the ring, plus one; 0: padding.
    units: Vec<u32>,
    /// Units written to the ring, padding included, and those whose superblocks were erased.
    head: u64,
    tail: u64,
    /// Host units in the open page, and when the last of them arrived.
    held: u32,
    ready_ns: u64,
    /// Units of the superblock that is being folded, descending; empty between two.
    folding: Vec<u32>,
    under_way: bool,
    /// Mapped units, for the dynamic size.
    mapped: Option<(Bits, u32)>,
    last_ns: u64,
    dirty: bool,
}

impl SlcCache {
    /// An empty ring before `behind`; the buffer holds `buffered` units.
    pub(super) fn new(
        slc: &SlcParameters,
        layout: Layout,
        buffered: u32,
        behind: Box<dyn Ftl>,
    ) -> Self {
        let pages = (layout.pages_per_block / slc.slc_bits).max(1);
        let block_units = u64::from(pages) * u64::from(layout.units_per_page);
        let blocks = |mib: u32| (u64::from(mib) << 20).div_ceil(block_units * layout.unit_bytes);
        // One superblock is filled while another is folded.
        let ring_units = (blocks(slc.slc_mib) + blocks(slc.slc_dynamic_mib)).max(2) * block_units;
        let dynamic = slc.slc_dynamic_mib > 0;
        SlcCache {
            layout,
            behind,
            cache: FifoBuffer::new(buffered.max(2 * layout.units_per_page * layout.dies)),
            full: slc.slc_full,
            idle_ns: u64::from(slc.slc_idle_ms) * 1_000_000,
            block_units,
            ring_units,
            static_units: blocks(slc.slc_mib) * block_units,
            places: vec![0; layout.host_units as usize],
            units: vec![0; ring_units as usize],
            head: 0,
            tail: 0,
            held: 0,
            ready_ns: 0,
            folding: Vec::new(),
            under_way: false,
            mapped: dynamic.then(|| (Bits::new(1, layout.host_units), 0)),
            last_ns: 0,
            dirty: false,
        }
    }

    /// Units that the ring may hold now, in whole superblocks.
    fn limit_units(&self) -> u64 {
        let Some((_, mapped)) = &self.mapped else { return self.ring_units };
        let (all, free) = (u64::from(self.layout.host_units), self.layout.host_units - mapped);
        let dynamic = (self.ring_units - self.static_units) * u64::from(free) / all.max(1);
        (self.static_units + dynamic) / self.block_units * self.block_units
    }

    /// Units that fit before a superblock must be folded, those of the open page included.
    fn room(&self) -> u64 {
        (self.tail + self.limit_units()).saturating_sub(self.head)
    }

    fn place(&self, unit: u32) -> Option<u32> {
        self.places[unit as usize].checked_sub(1)
    }

    fn page(&self, place: u32) -> u32 {
        place / self.layout.units_per_page
    }

    /// True if a place of the ring is in the open page.
    fn held(&self, place: u32) -> bool {
        let open = self.head % u64::from(self.layout.units_per_page);
        let at = self.head % self.ring_units;
        open > 0 && (at - open..at).contains(&u64::from(place))
    }

    fn note_mapped(&mut self, unit: u32, now: bool) {
        if let Some((bits, count)) = &mut self.mapped {
            let was = bits.take(0, unit);
            *count = *count + u32::from(now) - u32::from(was);
            if now {
                bits.set(0, unit);
            }
        }
    }

    /// Puts a unit into the open page; programs it when it is full.
    fn append(&mut self, unit: u32, at_ns: u64, flash: &mut Flash) {
        let place = (self.head % self.ring_units) as u32;
        self.units[place as usize] = unit + 1;
        self.places[unit as usize] = place + 1;
        self.head += 1;
        self.held += 1;
        self.ready_ns = self.ready_ns.max(at_ns);
        if self.head.is_multiple_of(u64::from(self.layout.units_per_page)) {
            self.program(flash);
        }
    }

    /// Programs the page that ends at the head.
    fn program(&mut self, flash: &mut Flash) {
        let last = ((self.head - 1) % self.ring_units) as u32;
        let page = self.page(last);
        let done_ns = flash.slc_program(page, self.ready_ns);
        self.cache.programmed(page, self.held, done_ns);
        self.held = 0;
    }

    /// Pads the open page; returns how many units that is.
    fn skip_to_page_end(&mut self) -> u64 {
        let end = self.head.next_multiple_of(u64::from(self.layout.units_per_page));
        let skipped = end - self.head;
        for place in self.head..end {
            self.units[(place % self.ring_units) as usize] = 0;
        }
        self.head = end;
        skipped
    }

    /// Pads and programs the open page, if there is one.
    fn pad(&mut self, at_ns: u64, flash: &mut Flash) {
        if self.held > 0 {
            flash.counters.padded_units += self.skip_to_page_end();
            self.ready_ns = self.ready_ns.max(at_ns);
            self.program(flash);
        }
    }

    /// Folds a step of the oldest superblock, if one is full; returns when that is done.
    fn fold(&mut self, at_ns: u64, flash: &mut Flash) -> Option<u64> {
        if self.head < self.tail + self.block_units {
            return None;
        }
        let first = self.tail % self.ring_units;
        let block = first as u32..(first + self.block_units) as u32;
        if !self.under_way {
            self.under_way = true;
            let here = block.clone().map(|place| (place, self.units[place as usize]));
            let valid = here
                .filter(|(place, unit)| *unit > 0 && self.places[*unit as usize - 1] == place + 1);
            self.folding = valid.map(|(_, unit)| unit - 1).collect();
            self.folding.sort_unstable_by(|a, b| b.cmp(a));
        }
        let (mut at_ns, mut page_read) = (at_ns, u32::MAX);
        let (mut run, mut ready_ns) = (Vec::new(), at_ns);
        for _ in 0..self.layout.dies * self.layout.units_per_page {
            let Some(unit) = self.folding.pop() else { break };
            let Some(place) = self.place(unit).filter(|place| block.contains(place)) else {
                continue;
            };
            if self.page(place) != page_read {
                page_read = self.page(place);
                ready_ns = ready_ns.max(flash.slc_read(page_read, self.layout.page_bytes(), at_ns));
            }
            run.push(unit);
        }
        for units in run.chunk_by(|a, b| a + 1 == *b) {
            let span = Span::of_units(units[0], units.len() as u32, self.layout.unit_bytes);
            let life = WriteLife::NotSet;
            let arrival = Arrival { at_ns: ready_ns, bus_ns: 0, through: false, life };
            ready_ns = self.behind.write(&span, arrival, flash);
            flash.counters.host_units -= u64::from(span.units);
            flash.counters.slc_folded_units += u64::from(span.units);
        }
        at_ns = at_ns.max(ready_ns);
        if self.folding.is_empty() {
            at_ns = self.behind.flush(at_ns, flash).0;
            for place in block {
                let unit = self.units[place as usize];
                if unit > 0 && self.places[unit as usize - 1] == place + 1 {
                    self.places[unit as usize - 1] = 0;
                }
            }
            at_ns = flash.slc_erase(at_ns);
            self.tail += self.block_units;
            self.under_way = false;
        }
        Some(at_ns)
    }

    /// Folds in the time without commands before `at_ns`.
    fn idle(&mut self, at_ns: u64, flash: &mut Flash) {
        let mut now_ns = self.last_ns.saturating_add(self.idle_ns);
        while now_ns < at_ns {
            match self.fold(now_ns, flash) {
                Some(done_ns) => now_ns = done_ns,
                None => break,
            }
        }
    }

    /// Makes room for a command, if the ring is to take it; returns when, or `None` if the command
    /// goes past the ring.
    fn make_room(&mut self, units: u32, at_ns: u64, flash: &mut Flash) -> Option<u64> {
        let mut at_ns = at_ns;
        while self.room() < u64::from(units) {
            if self.full == SlcFull::Direct || u64::from(units) > self.limit_units() {
                return None;
            }
            at_ns = self.fold(at_ns, flash)?;
        }
        Some(at_ns)
    }

    /// Reads what a write covers in part from the ring or from behind; returns when it is there.
    fn complete(&mut self, unit: u32, at_ns: u64, flash: &mut Flash) -> u64 {
        let bytes = self.layout.unit_bytes;
        if let Some(place) = self.place(unit) {
            if self.held(place) {
                return at_ns;
            }
            flash.counters.rmw_reads += 1;
            return flash.slc_read(self.page(place), bytes, at_ns);
        }
        match self.behind.locate(unit) {
            Some(at) => {
                flash.counters.rmw_reads += 1;
                flash.read(at / self.layout.units_per_page, bytes, at_ns)
            }
            None => at_ns,
        }
    }

    /// Writes to the ring, which has room.
    fn write_ring(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        let mut at_ns = arrival.at_ns;
        flash.counters.host_units += u64::from(span.units);
        for i in 0..span.units {
            let unit = span.unit + i;
            at_ns += arrival.bus_ns;
            if self.place(unit).is_some_and(|place| self.held(place)) {
                flash.counters.coalesced_units += 1;
                continue;
            }
            if span.partial(i) {
                at_ns = self.complete(unit, at_ns, flash);
            }
            at_ns = match self.cache.admit(at_ns) {
                Some(ns) => ns,
                None => {
                    self.pad(at_ns, flash);
                    self.cache.admit(at_ns).unwrap_or(at_ns)
                }
            };
            self.append(unit, at_ns, flash);
            self.note_mapped(unit, true);
        }
        if arrival.through {
            self.pad(at_ns, flash);
            at_ns = self.cache.drained(at_ns);
        }
        at_ns
    }

    /// Writes past the ring.
    fn write_behind(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        let mut at_ns = arrival.at_ns;
        let mut span = *span;
        let ends = [0, span.units - 1].map(|i| (span.unit + i, span.partial(i)));
        for (unit, partial) in ends {
            if partial && self.place(unit).is_some() {
                at_ns = self.complete(unit, at_ns, flash);
                span = Span::of_units(span.unit, span.units, self.layout.unit_bytes);
            }
        }
        for unit in span.unit..span.unit + span.units {
            self.places[unit as usize] = 0;
            self.note_mapped(unit, true);
        }
        self.behind.write(&span, Arrival { at_ns, ..arrival }, flash)
    }
}

impl Ftl for SlcCache {
    fn read(&mut self, span: &Span, at_ns: u64, bus_ns: u64, flash: &mut Flash) -> u64 {
        self.idle(at_ns, flash);
        let (mut done_ns, mut page_read, mut ready_ns) = (at_ns, u32::MAX, at_ns);
        let (mut i, page_bytes) = (0, self.layout.page_bytes());
        while i < span.units {
            let here = (i..span.units).take_while(|i| self.place(span.unit + i).is_some());
            let ring = here.count() as u32;
            for unit in span.unit + i..span.unit + i + ring {
                let place = self.place(unit).unwrap_or_default();
                if !self.held(place) && self.page(place) != page_read {
                    page_read = self.page(place);
                    let bytes = page_bytes.min(u64::from(span.units) * self.layout.unit_bytes);
                    ready_ns = flash.slc_read(page_read, bytes, at_ns);
                }
                done_ns = done_ns.max(ready_ns) + bus_ns;
            }
            i += ring;
            let there = (i..span.units).take_while(|i| self.place(span.unit + i).is_none());
            let behind = there.count() as u32;
            if behind > 0 {
                let mut part = *span;
                if behind < span.units {
                    part = Span::of_units(span.unit + i, behind, self.layout.unit_bytes);
                }
                done_ns = self.behind.read(&part, done_ns, bus_ns, flash);
            }
            i += behind;
        }
        self.last_ns = done_ns;
        done_ns
    }

    fn write(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        self.idle(arrival.at_ns, flash);
        self.dirty = true;
        let done_ns = match self.make_room(span.units, arrival.at_ns, flash) {
            Some(at_ns) => self.write_ring(span, Arrival { at_ns, ..arrival }, flash),
            None => self.write_behind(span, arrival, flash),
        };
        self.last_ns = done_ns;
        done_ns
    }

    fn flush(&mut self, at_ns: u64, flash: &mut Flash) -> (u64, bool) {
        self.idle(at_ns, flash);
        self.pad(at_ns, flash);
        let ring_ns = self.cache.drained(at_ns);
        let behind_ns = match self.under_way {
            // What is folded is still in the ring: nothing to wait for, and no page to pad.
            true => at_ns,
            false => self.behind.flush(at_ns, flash).0,
        };
        self.last_ns = ring_ns.max(behind_ns);
        (self.last_ns, std::mem::replace(&mut self.dirty, false))
    }

    fn discard(&mut self, unit: u32, units: u32, flash: &mut Flash) {
        for u in unit..unit + units {
            let here = std::mem::take(&mut self.places[u as usize]) > 0;
            flash.counters.discarded_units += u64::from(here && self.behind.locate(u).is_none());
            self.note_mapped(u, false);
        }
        self.behind.discard(unit, units, flash);
    }

    fn durable(&self, unit: u32, at_ns: u64) -> bool {
        match self.place(unit) {
            Some(place) => !self.held(place) && !self.cache.in_flight(self.page(place), at_ns),
            None => self.behind.durable(unit, at_ns),
        }
    }

    fn power_cycle(&mut self) {
        self.skip_to_page_end();
        self.cache.clear();
        (self.held, self.ready_ns, self.last_ns, self.dirty) = (0, 0, 0, false);
        // A superblock that was being folded is folded from its begin again.
        self.folding.clear();
        self.under_way = false;
        self.behind.power_cycle();
    }

    fn settle(&mut self, flash: &mut Flash) {
        while self.fold(0, flash).is_some() {}
    }

    fn slc_blocks(&self) -> u64 {
        self.ring_units / self.block_units
    }

    fn locate(&self, unit: u32) -> Option<u32> {
        match self.place(unit) {
            Some(place) if self.held(place) => None,
            Some(place) => Some(self.layout.blocks * self.layout.units_per_block + place),
            None => self.behind.locate(unit),
        }
    }

    fn memory_bytes(&self) -> u64 {
        let tables = (self.places.len() + self.units.len()) as u64 * 4;
        let mapped = self.mapped.as_ref().map_or(0, |(bits, _)| bits.memory_bytes());
        tables + mapped + self.behind.memory_bytes()
    }

    fn check(&self, flash: &Flash) -> Result<(), String> {
        if self.head < self.tail || self.head - self.tail > self.ring_units {
            return Err(format!("the ring holds {} to {}", self.tail, self.head));
        }
        for (unit, place) in self.places.iter().enumerate().filter(|(_, place)| **place > 0) {
            let (place, back) = (u64::from(*place) - 1, self.units[*place as usize - 1]);
            let age = (place + self.ring_units - self.tail % self.ring_units) % self.ring_units;
            if back as usize != unit + 1 || age >= self.head - self.tail {
                return Err(format!("unit {unit} is at {place} of the ring, which holds {back}-1"));
            }
        }
        self.behind.check(flash)
    }
}
