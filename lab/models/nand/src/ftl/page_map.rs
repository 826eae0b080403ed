//! Page mapping: any unit can be anywhere; every stream has a write frontier of its own.
//!
//! ```text
//!   l2p[unit] -> flash unit + 1, 0: unmapped       p2l[flash unit] -> unit + 1, 0: padding
//!
//!   stream 0  -> superblock 12  [#### #### ##.. ....]   # written, . free; the page in the
//!   stream 1  -> superblock 40  [#### #... .... ....]   middle is open: the buffer holds it
//!   collector -> superblock  7  [###. .... .... ....]
//!   closed superblocks -> VictimPolicy;  free superblocks -> least worn first
//! ```
//!
//! A flash unit is valid when `l2p[p2l[p]-1] == p+1`: nothing has to be cleared by an erase, and
//! each superblock needs only a count of valid units and its handle. 8 bytes a flash unit and 25 a
//! superblock.
//!
//! A device with placement (`handles`) has streams and a collector of its own for each lifetime
//! that the host tells, so that data that dies together lies together. Collected data stays in its
//! handle, or goes to the first one (`initially_isolated`).
//!
//! Costs
//! - A write that continues a stream pays the bus and its share of a page program.
//! - A write that opens a stream in a used slot first closes that one: units of the run's first and
//!   last cluster (`merge_kib`) that the run did not write are read and programmed behind it, the
//!   open page is padded and programmed, `close_map_programs` map pages are programmed, and
//!   `close_us` passes. The host waits for that.
//! - Taking a superblock when only the reserve is free collects victims first; the host waits. A
//!   victim is collected in one go, as simple controllers do: that is the latency spike.
//! - A victim's units in the collector's open page count as safe (the erase would wait for that
//!   page in a real controller; its cost is the same).
//! - Discard costs nothing but its command.
//!
//! Bound: free superblocks never run out, because closed superblocks hold at least the usable size
//! plus over-provisioning when only the reserve is free, so some victim has an invalid unit. Tested
//! by `tests/it/ftl.rs` and `tests/it/device.rs`.
//! This file is long because writing, collecting and closing share the frontiers.

use super::{Arrival, Ftl, MapTable, Span};
use crate::buffer::WriteCache;
use crate::flash::Flash;
use crate::gc::VictimPolicy;
use crate::geometry::{FREE_BLOCKS_MIN, Layout};
use crate::streams::{Run, StreamTable};
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

/// Collections between two looks at the wear: the look is a scan over the superblocks.
const LEVEL_EVERY: u64 = 16;

/// Cost of closing a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseCost {
    /// Units of a cluster that must be complete; 1: nothing is copied.
    pub cluster_units: u32,
    /// Map pages programmed.
    pub map_programs: u32,
    /// Work of the controller, nanoseconds.
    pub close_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Frontier {
    block: u32,
    /// Units written in `block`, the open page included.
    next: u32,
    /// Host units of the open page that count in the write buffer.
    held: u32,
    /// When the last unit of the open page arrived.
    ready_ns: u64,
    /// Units written in `block` before the last cache barrier.
    ordered: u32,
}

const NO_BLOCK: Frontier = Frontier { block: NONE, next: 0, held: 0, ready_ns: 0, ordered: 0 };

/// The page map. See the module's text.
pub struct PageMap {
    layout: Layout,
    l2p: Vec<u32>,
    p2l: Vec<u32>,
    valid: Vec<u32>,
    /// One for each stream of each handle, then each handle's collector, then that of moved cold
    /// data.
    open: Vec<Frontier>,
    /// Erases and number of the free superblocks: least worn first.
    free: BTreeSet<(u32, u32)>,
    victims: Box<dyn VictimPolicy>,
    map: Box<dyn MapTable>,
    /// Runs of each handle.
    streams: Vec<StreamTable>,
    /// Handle of the data in each superblock.
    handle_of: Vec<u8>,
    /// True if what is collected goes to the first handle.
    initially_isolated: bool,
    cache: Box<dyn WriteCache>,
    close_cost: CloseCost,
    /// Most erases that a superblock may have beyond the least worn one; 0: any number.
    wear_gap: u32,
    /// Units moved by the collection under way.
    moved: Vec<u32>,
    dirty: bool,
}

impl PageMap {
    /// An empty map over erased flash.
    pub fn new(
        layout: Layout,
        streams: Vec<StreamTable>,
        map: Box<dyn MapTable>,
        victims: Box<dyn VictimPolicy>,
        cache: Box<dyn WriteCache>,
        close_cost: CloseCost,
        wear_gap: u32,
    ) -> Self {
        let flash_units = layout.blocks as usize * layout.units_per_block as usize;
        PageMap {
            layout,
            l2p: vec![0; layout.host_units as usize],
            p2l: vec![0; flash_units],
            valid: vec![0; layout.blocks as usize],
            open: vec![NO_BLOCK; streams.iter().map(|s| s.len() + 1).sum::<usize>() + 1],
            free: (0..layout.blocks).map(|b| (0, b)).collect(),
            victims,
            map,
            streams,
            handle_of: vec![0; layout.blocks as usize],
            initially_isolated: false,
            cache,
            close_cost,
            wear_gap,
            moved: Vec::new(),
            dirty: false,
        }
    }

    /// The same map; with `initially_isolated`, what is collected goes to the first handle.
    pub fn with_isolation(self, initially_isolated: bool) -> Self {
        PageMap { initially_isolated, ..self }
    }

    /// Slots of one handle.
    fn slots(&self) -> usize {
        self.streams[0].len()
    }

    /// The collector of the first handle; those of the others follow it.
    fn collector(&self) -> usize {
        self.streams.len() * self.slots()
    }

    /// Handle of a frontier; moved cold data goes to the last one.
    fn handle(&self, slot: usize) -> usize {
        match slot.checked_sub(self.collector()) {
            Some(collector) => collector.min(self.streams.len() - 1),
            None => slot / self.slots(),
        }
    }

    /// True if flash unit `p` is in the open page of a stream.
    fn held(&self, p: u32) -> bool {
        let block = p / self.layout.units_per_block;
        let streams = &self.open[..self.collector()];
        streams.iter().any(|f| {
            let page_start = f.next - f.next % self.layout.units_per_page;
            f.block == block && p % self.layout.units_per_block >= page_start
        })
    }

    /// True if flash unit `p`, which is held, was written before the last cache barrier.
    fn is_ordered(&self, p: u32) -> bool {
        let (block, within) = (p / self.layout.units_per_block, p % self.layout.units_per_block);
        self.open[..self.collector()].iter().any(|f| f.block == block && within < f.ordered)
    }

    /// Unmaps `unit` and accounts for the lost copy.
    fn invalidate(&mut self, unit: u32) {
        let old = std::mem::replace(&mut self.l2p[unit as usize], 0);
        if old == 0 {
            return;
        }
        let block = (old - 1) / self.layout.units_per_block;
        self.valid[block as usize] -= 1;
        self.victims.invalidated(block, self.valid[block as usize]);
    }

    /// Puts an unmapped unit at the end of a frontier; returns when its page is programmed, 0 if
    /// the page is still open.
    fn append(
        &mut self,
        slot: usize,
        unit: u32,
        ready_ns: u64,
        host: bool,
        flash: &mut Flash,
    ) -> u64 {
        if self.open[slot].block == NONE {
            let (block, at_ns) = self.allocate(slot, ready_ns, flash);
            self.open[slot] = Frontier { block, ready_ns: at_ns, ..NO_BLOCK };
        }
        let f = &mut self.open[slot];
        let p = f.block * self.layout.units_per_block + f.next;
        f.next += 1;
        f.held += u32::from(host);
        f.ready_ns = f.ready_ns.max(ready_ns);
        self.l2p[unit as usize] = p + 1;
        self.p2l[p as usize] = unit + 1;
        self.valid[f.block as usize] += 1;
        if f.next.is_multiple_of(self.layout.units_per_page) {
            self.program(slot, flash)
        } else {
            0
        }
    }

    /// Programs the open page of a frontier, which is full or padded.
    fn program(&mut self, slot: usize, flash: &mut Flash) -> u64 {
        let collector = self.collector();
        let f = &mut self.open[slot];
        let last = f.block * self.layout.units_per_block + f.next - 1;
        let page = last / self.layout.units_per_page;
        let done_ns = flash.program(page, f.ready_ns);
        if slot < collector {
            self.cache.programmed(page, f.held, done_ns);
        }
        f.held = 0;
        if f.next == self.layout.units_per_block {
            let block = f.block;
            *f = NO_BLOCK;
            self.victims.closed(block, self.valid[block as usize]);
        }
        done_ns
    }

    /// Pads and programs the open page of a stream if it has one; returns when it is done, 0 if
    /// there is none.
    fn pad(&mut self, slot: usize, at_ns: u64, flash: &mut Flash) -> u64 {
        let per_page = self.layout.units_per_page;
        let f = &mut self.open[slot];
        if f.block == NONE || f.next.is_multiple_of(per_page) {
            return 0;
        }
        f.ready_ns = f.ready_ns.max(at_ns);
        flash.counters.padded_units += u64::from(self.skip_to_page_end(slot));
        self.program(slot, flash)
    }

    /// Marks the rest of the open page as padding; returns how many units that is.
    fn skip_to_page_end(&mut self, slot: usize) -> u32 {
        let f = &mut self.open[slot];
        let end = f.next.next_multiple_of(self.layout.units_per_page);
        let base = f.block * self.layout.units_per_block;
        for p in base + f.next..base + end {
            self.p2l[p as usize] = 0;
        }
        let skipped = end - f.next;
        f.next = end;
        skipped
    }

    /// Takes a free superblock, collecting first when a stream asks and only the reserve is left.
    fn allocate(&mut self, slot: usize, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let mut at_ns = at_ns;
        if slot < self.collector() {
            while self.free.len() <= FREE_BLOCKS_MIN as usize {
                match self.collect(at_ns, flash) {
                    Some(done_ns) => at_ns = done_ns,
                    None => break,
                }
            }
        }
        // Cold data goes where the wear is, so that the unworn superblock gets into use.
        let cold = slot == self.open.len() - 1;
        let taken = if cold { self.free.pop_last() } else { self.free.pop_first() };
        let (_, block) =
            taken.expect("the reserve is never used up: each collection frees what it takes");
        self.handle_of[block as usize] = self.handle(slot) as u8;
        (block, at_ns)
    }

    /// Copies what is valid in one victim and erases it; returns when that is done.
    fn collect(&mut self, at_ns: u64, flash: &mut Flash) -> Option<u64> {
        let per_page = self.layout.units_per_page;
        let cold = self.cold_victim(flash);
        let victim = cold.or_else(|| self.victims.pick())?;
        let to = match cold {
            Some(_) => self.open.len() - 1,
            None if self.initially_isolated => self.collector(),
            None => self.collector() + usize::from(self.handle_of[victim as usize]),
        };
        flash.counters.gc_runs += 1;
        let note_moves = self.map.wants_moves();
        let first = victim * self.layout.units_per_block;
        let mut left = self.valid[victim as usize];
        let mut done_ns = at_ns;
        let mut p = first;
        while left > 0 && p < first + self.layout.units_per_block {
            let mut read_ns = None;
            for q in p..p + per_page {
                let unit = self.p2l[q as usize];
                if unit == 0 || self.l2p[unit as usize - 1] != q + 1 {
                    continue;
                }
                let ready_ns = match read_ns {
                    Some(ns) => ns,
                    None => flash.read(q / per_page, self.layout.page_bytes(), at_ns),
                };
                read_ns = Some(ready_ns);
                done_ns = done_ns.max(self.append(to, unit - 1, ready_ns, false, flash));
                left -= 1;
                flash.counters.gc_copies += 1;
                if note_moves {
                    self.moved.push(unit - 1);
                }
            }
            p += per_page;
        }
        self.valid[victim as usize] = 0;
        if note_moves {
            self.moved.sort_unstable();
            done_ns = self.map.moved(&self.moved, done_ns, flash);
            self.moved.clear();
        }
        done_ns = flash.erase(victim, done_ns);
        self.free.insert((flash.erases()[victim as usize], victim));
        Some(done_ns)
    }

    /// Static wear levelling: now and then the least worn closed superblock, if others are worn
    /// much more. What is in it does not change by itself.
    fn cold_victim(&mut self, flash: &mut Flash) -> Option<u32> {
        if self.wear_gap == 0 || !flash.counters.gc_runs.is_multiple_of(LEVEL_EVERY) {
            return None;
        }
        let erases = flash.erases();
        let most = erases.iter().max()?;
        let closed = (0..self.layout.blocks).filter(|b| self.victims.has(*b));
        let coldest = closed.min_by_key(|b| erases[*b as usize])?;
        if most - erases[coldest as usize] <= self.wear_gap {
            return None;
        }
        self.victims.remove(coldest);
        flash.counters.wear_moves += 1;
        Some(coldest)
    }

    /// Completes the clusters of a run, pads its open page, writes its map; returns when done.
    fn close(&mut self, slot: usize, run: Run, at_ns: u64, flash: &mut Flash) -> u64 {
        flash.counters.stream_closes += 1;
        let sectors_per_unit = self.layout.unit_bytes / 512;
        let cluster = u64::from(self.close_cost.cluster_units);
        let start = run.start / sectors_per_unit;
        let end = run.end.div_ceil(sectors_per_unit);
        let tail_end = end.next_multiple_of(cluster).min(u64::from(self.layout.host_units));
        let mut at_ns = self.copy(slot, start - start % cluster, start, at_ns, flash);
        at_ns = self.copy(slot, end, tail_end, at_ns, flash);
        at_ns = at_ns.max(self.pad(slot, at_ns, flash));
        for _ in 0..self.close_cost.map_programs {
            at_ns = flash.map_program(at_ns);
        }
        at_ns + self.close_cost.close_ns
    }

    /// Copies the mapped units of `from..to` behind a frontier; returns when all are in the cells
    /// or in the open page.
    fn copy(&mut self, slot: usize, from: u64, to: u64, at_ns: u64, flash: &mut Flash) -> u64 {
        let (mut page_read, mut ready_ns, mut done_ns) = (NONE, at_ns, at_ns);
        for unit in from as u32..to as u32 {
            let old = self.l2p[unit as usize];
            if old == 0 || self.held(old - 1) {
                continue;
            }
            let page = (old - 1) / self.layout.units_per_page;
            if page != page_read {
                ready_ns = flash.read(page, self.layout.page_bytes(), at_ns);
                page_read = page;
            }
            flash.counters.merge_copies += 1;
            self.invalidate(unit);
            let programmed = self.append(slot, unit, ready_ns, false, flash);
            done_ns = done_ns.max(ready_ns).max(programmed);
        }
        done_ns
    }

    /// Waits for room in the buffer.
    fn admit(&mut self, at_ns: u64, flash: &mut Flash) -> u64 {
        if let Some(ns) = self.cache.admit(at_ns) {
            return ns;
        }
        for slot in 0..self.collector() {
            self.pad(slot, at_ns, flash);
        }
        self.cache.admit(at_ns).unwrap_or(at_ns)
    }
}

impl Ftl for PageMap {
    fn read(&mut self, span: &Span, at_ns: u64, bus_ns: u64, flash: &mut Flash) -> u64 {
        let (mut ready_ns, mut bus_free_ns) = (at_ns, at_ns);
        let (mut page_read, mut touch_at) = (NONE, 0);
        let page_bytes = self.layout.page_bytes();
        let bytes = page_bytes.min(u64::from(span.units) * self.layout.unit_bytes);
        let mut map_ns = at_ns;
        for i in 0..span.units {
            let unit = span.unit + i;
            if i >= touch_at {
                map_ns = self.map.touch(unit, false, map_ns, flash);
                touch_at = i.saturating_add(self.map.units_to_next(unit));
            }
            let p = self.l2p[unit as usize];
            let page = p.wrapping_sub(1) / self.layout.units_per_page;
            if p != 0 && page != page_read && !self.held(p - 1) {
                ready_ns = flash.read(page, bytes, map_ns);
                page_read = page;
            }
            bus_free_ns = bus_free_ns.max(ready_ns).max(map_ns) + bus_ns;
        }
        bus_free_ns
    }

    fn write(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        let Arrival { mut at_ns, bus_ns, through, life } = arrival;
        let handle = if (life as usize) < self.streams.len() { life as usize } else { 0 };
        let placement = self.streams[handle].place(span.sector, span.sectors);
        let slot = handle * self.slots() + placement.slot;
        flash.counters.stream_opens += u64::from(placement.opened);
        if let Some(run) = placement.closed {
            at_ns = self.close(slot, run, at_ns, flash);
        }
        self.dirty = true;
        flash.counters.host_units += u64::from(span.units);
        let mut touch_at = 0;
        for i in 0..span.units {
            let unit = span.unit + i;
            if i >= touch_at {
                at_ns = self.map.touch(unit, true, at_ns, flash);
                touch_at = i.saturating_add(self.map.units_to_next(unit));
            }
            at_ns += bus_ns;
            let old = self.l2p[unit as usize];
            if old != 0 {
                let held = self.held(old - 1);
                if held && !self.is_ordered(old - 1) {
                    flash.counters.coalesced_units += 1;
                    continue;
                }
                if span.partial(i) && !held {
                    let page = (old - 1) / self.layout.units_per_page;
                    flash.counters.rmw_reads += 1;
                    at_ns = flash.read(page, self.layout.unit_bytes, at_ns);
                }
            }
            at_ns = self.admit(at_ns, flash);
            self.invalidate(unit);
            self.append(slot, unit, at_ns, true, flash);
        }
        if through {
            // A unit that was already held may be in the open page of another stream.
            for s in 0..self.collector() {
                self.pad(s, at_ns, flash);
            }
            at_ns = self.cache.drained(at_ns);
        }
        at_ns
    }

    fn flush(&mut self, at_ns: u64, flash: &mut Flash) -> (u64, bool) {
        for slot in 0..self.collector() {
            self.pad(slot, at_ns, flash);
        }
        let done_ns = self.cache.drained(at_ns);
        (done_ns, std::mem::replace(&mut self.dirty, false))
    }

    fn discard(&mut self, unit: u32, units: u32, flash: &mut Flash) {
        for u in unit..unit + units {
            flash.counters.discarded_units += u64::from(self.l2p[u as usize] != 0);
            self.invalidate(u);
        }
    }

    fn durable(&self, unit: u32, at_ns: u64) -> bool {
        self.volatile_page(unit, at_ns).is_none()
    }

    fn barrier(&mut self) {
        let collector = self.collector();
        self.open[..collector].iter_mut().for_each(|f| f.ordered = f.next);
    }

    fn volatile_page(&self, unit: u32, at_ns: u64) -> Option<u32> {
        let page = self.l2p[unit as usize].checked_sub(1)? / self.layout.units_per_page;
        self.is_page_volatile(page, at_ns).then_some(page)
    }

    fn is_page_volatile(&self, page: u32, at_ns: u64) -> bool {
        self.held(page * self.layout.units_per_page) || self.cache.in_flight(page, at_ns)
    }

    fn power_cycle(&mut self) {
        self.streams.iter_mut().for_each(StreamTable::clear);
        self.cache.clear();
        self.dirty = false;
        for slot in 0..self.open.len() {
            if self.open[slot].block == NONE {
                continue;
            }
            self.skip_to_page_end(slot);
            let f = &mut self.open[slot];
            (f.held, f.ready_ns) = (0, 0);
            if f.next == self.layout.units_per_block {
                let block = f.block;
                *f = NO_BLOCK;
                self.victims.closed(block, self.valid[block as usize]);
            }
        }
    }

    fn locate(&self, unit: u32) -> Option<u32> {
        self.l2p[unit as usize].checked_sub(1).filter(|p| !self.held(*p))
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.l2p.len() + self.p2l.len() + 3 * self.valid.len();
        let handles = self.handle_of.len() as u64;
        tables as u64 * 4 + handles + self.victims.memory_bytes() + self.map.memory_bytes()
    }

    fn check(&self, flash: &Flash) -> Result<(), String> {
        let mut valid = vec![0u32; self.valid.len()];
        for (unit, &p) in self.l2p.iter().enumerate().filter(|(_, p)| **p != 0) {
            let back = self.p2l[p as usize - 1];
            if back as usize != unit + 1 {
                return Err(format!("unit {unit} is at {}, which holds {back}-1", p - 1));
            }
            valid[((p - 1) / self.layout.units_per_block) as usize] += 1;
        }
        if let Some(b) = (0..valid.len()).find(|&b| valid[b] != self.valid[b]) {
            let (real, kept) = (valid[b], self.valid[b]);
            return Err(format!("superblock {b} has {real} valid units, {kept} counted"));
        }
        for (erases, b) in &self.free {
            let (valid, worn) = (valid[*b as usize], flash.erases()[*b as usize]);
            if valid != 0 || worn != *erases {
                return Err(format!("free superblock {b}: {valid} valid units, {worn} erases"));
            }
        }
        Ok(())
    }
}
