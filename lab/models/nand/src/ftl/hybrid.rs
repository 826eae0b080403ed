//! Parts that all schemes with maps of whole superblocks share: data blocks, registers, buffer,
//! copies.
//!
//! ```text
//!   logical superblock b  ->  data block   [0][1][2][ ][4][ ]..    unit o of b lies at place o
//!                         ->  elsewhere: the scheme's log or replacement blocks
//!
//!   partial writes -> registers (a few units in RAM) -> scheme.place -> program
//! ```
//!
//! The map unit is the effective page. A unit at or behind the first free place of its data block
//! is programmed there; every other one goes where the [`BlockScheme`] says, which merges when it
//! runs out of room. The host waits for a merge. A merge is accounted in one step: its copies are
//! counted from bitmaps, and their time is that of copies spread evenly over the dies.
//!
//! A write that covers a part of a unit stays in a register until the rest arrives, another unit
//! needs the register, or a flush asks; then what is missing is read first. Without a volatile
//! cache it is programmed with its command.
//!
//! Bounds: a data block for each logical superblock, the scheme's blocks and two more are always
//! there ([`Layout::new`] adds them), so a free one never lacks. Memory: 4 bytes and 2 bits a unit
//! at most, 8 bytes a superblock and the scheme's. Tested by `tests/it/schemes`.

use super::bits::Bits;
use super::{Arrival, Ftl, Span};
use crate::buffer::WriteCache;
use crate::flash::Flash;
use crate::geometry::Layout;
use std::collections::{BTreeSet, VecDeque};

pub(super) const NONE: u32 = u32::MAX;

/// Blocks taken between two looks at the wear: the look is a scan over the superblocks.
const LEVEL_EVERY: u64 = 16;

/// Way in which a merge made its new data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merge {
    /// The log block became the data block as it was.
    Switch,
    /// The log block became the data block after the missing units were copied into it.
    Partial,
    /// All units were copied into a fresh block.
    Full,
}

/// Data blocks and free blocks: the part of the state that every scheme has.
pub(super) struct Core {
    pub(super) layout: Layout,
    /// Data block of each logical superblock.
    pub(super) data: Vec<u32>,
    /// First place of each data block that was not programmed.
    pub(super) next: Vec<u32>,
    /// Units whose newest copy is in the data block.
    pub(super) in_data: Bits,
    /// Erases and number of the free blocks: least worn first.
    free: BTreeSet<(u32, u32)>,
    /// Blocks without valid units that were not erased yet.
    stale: Vec<u32>,
    /// Blocks taken so far.
    taken: u64,
    merge_ns: u64,
}

impl Core {
    fn new(layout: Layout, merge_ns: u64) -> Self {
        let rows = layout.host_units.div_ceil(layout.units_per_block);
        Core {
            layout,
            data: vec![NONE; rows as usize],
            next: vec![0; rows as usize],
            in_data: Bits::new(rows, layout.units_per_block),
            free: (0..layout.blocks).map(|b| (0, b)).collect(),
            stale: Vec::new(),
            taken: 0,
            merge_ns,
        }
    }

    /// Logical superblocks.
    pub(super) fn rows(&self) -> u32 {
        self.data.len() as u32
    }

    /// Logical superblock of a unit, and its place in it.
    pub(super) fn split(&self, unit: u32) -> (u32, u32) {
        (unit / self.layout.units_per_block, unit % self.layout.units_per_block)
    }

    /// Page number of a place of a block.
    pub(super) fn page(&self, block: u32, place: u32) -> u32 {
        block * self.layout.units_per_block + place
    }

    /// Takes the least worn free block, after one that waited for its erase.
    pub(super) fn take(&mut self, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let mut at_ns = at_ns;
        if let Some(block) = self.stale.pop() {
            at_ns = self.erase(block, at_ns, flash);
        }
        self.taken += 1;
        let (_, block) =
            self.free.pop_first().expect("there are more blocks than data, log and merging ones");
        (block, at_ns)
    }

    /// Erases a block and makes it free.
    pub(super) fn erase(&mut self, block: u32, at_ns: u64, flash: &mut Flash) -> u64 {
        let done_ns = flash.erase(block, at_ns);
        self.free.insert((flash.erases()[block as usize], block));
        done_ns
    }

    /// Takes a place in the data block if it is still free there.
    pub(super) fn in_place(
        &mut self,
        row: u32,
        place: u32,
        at_ns: u64,
        flash: &mut Flash,
    ) -> Option<(u32, u64)> {
        let r = row as usize;
        let mut at_ns = at_ns;
        if self.data[r] == NONE {
            (self.data[r], at_ns) = self.take(at_ns, flash);
            self.next[r] = 0;
        } else if place < self.next[r] {
            return None;
        }
        self.next[r] = place + 1;
        self.in_data.set(row, place);
        Some((self.page(self.data[r], place), at_ns))
    }

    /// Copies `units` units into the new data block of a row.
    pub(super) fn copy(&mut self, units: u32, at_ns: u64, flash: &mut Flash) -> u64 {
        flash.counters.merge_copies += u64::from(units);
        flash.copy(units, at_ns)
    }

    /// Counts a merge, installs the new data block, erases the old one. The row's bits must say
    /// what `block` holds; `programmed` of its places were programmed.
    pub(super) fn merged(
        &mut self,
        kind: Merge,
        (row, block, programmed): (u32, u32, u32),
        at_ns: u64,
        flash: &mut Flash,
    ) -> u64 {
        *match kind {
            Merge::Switch => &mut flash.counters.switch_merges,
            Merge::Partial => &mut flash.counters.partial_merges,
            Merge::Full => &mut flash.counters.full_merges,
        } += 1;
        let r = row as usize;
        let old = std::mem::replace(&mut self.data[r], block);
        self.next[r] = programmed.max(self.in_data.end(row));
        let done_ns = if old == NONE { at_ns } else { self.erase(old, at_ns, flash) };
        done_ns + self.merge_ns
    }

    /// Gives a data block back that lost its last unit; it is erased before it is needed.
    pub(super) fn drop_data(&mut self, row: u32) {
        let old = std::mem::replace(&mut self.data[row as usize], NONE);
        self.next[row as usize] = 0;
        if old != NONE {
            self.stale.push(old);
        }
    }
}

/// Scheme that maps whole superblocks. It decides where units go that are not at their place in a
/// data block.
pub(super) trait BlockScheme: Send {
    /// Page of the newest copy of a unit.
    fn locate(&self, core: &Core, unit: u32) -> Option<u32>;

    /// Finds the page for a new copy of a unit, merging first if there is no room. Returns the
    /// page, and when the merges are done.
    fn place(&mut self, core: &mut Core, unit: u32, at_ns: u64, flash: &mut Flash) -> (u32, u64);

    /// Unmaps a unit; returns whether it was mapped.
    fn forget(&mut self, core: &mut Core, unit: u32) -> bool;

    /// True if the data block of a row holds exactly what the core's bits say.
    fn movable(&self, _row: u32) -> bool {
        true
    }

    /// The blocks that the scheme holds besides the data blocks.
    fn blocks(&self) -> Vec<u32>;

    /// Bytes of its tables.
    fn memory_bytes(&self) -> u64;
}

/// Sectors of one unit that are in RAM only.
#[derive(Clone, Copy, Debug)]
struct Register {
    unit: u32,
    /// First sector within the unit.
    start: u64,
    /// Sector after the last.
    end: u64,
    /// True if all of `start..end` was written.
    whole: bool,
    ready_ns: u64,
}

/// A mapping scheme of whole superblocks. See the module's text.
pub(super) struct Hybrid<S> {
    core: Core,
    scheme: S,
    cache: Box<dyn WriteCache>,
    registers: VecDeque<Register>,
    registers_max: usize,
    /// Most erases that a block may have beyond the least worn one; 0: any number.
    wear_gap: u32,
    /// Blocks taken when the wear is looked at next.
    level_at: u64,
    dirty: bool,
}

impl<S: BlockScheme> Hybrid<S> {
    /// Over erased flash; `scheme` gets the core. At most `registers_max` (1 or more) partly
    /// written units stay in RAM, a merge takes `merge_ns` beside its copies and erases, and
    /// `wear_gap` is as in the profile.
    pub(super) fn new(
        layout: Layout,
        cache: Box<dyn WriteCache>,
        registers_max: u32,
        (merge_ns, wear_gap): (u64, u32),
        scheme: impl FnOnce(&Core) -> S,
    ) -> Self {
        let core = Core::new(layout, merge_ns);
        let scheme = scheme(&core);
        let registers_max = registers_max.max(1) as usize;
        let registers = VecDeque::with_capacity(registers_max + 1);
        let level_at = if wear_gap == 0 { u64::MAX } else { LEVEL_EVERY };
        Hybrid { core, scheme, cache, registers, registers_max, wear_gap, level_at, dirty: false }
    }

    fn register(&self, unit: u32) -> Option<usize> {
        self.registers.iter().position(|r| r.unit == unit)
    }

    /// Programs a unit whose room in the buffer is taken.
    fn program(&mut self, unit: u32, at_ns: u64, flash: &mut Flash) {
        let (page, at_ns) = self.scheme.place(&mut self.core, unit, at_ns, flash);
        let done_ns = flash.program(page, at_ns);
        self.cache.programmed(page, 1, done_ns);
        if self.core.taken >= self.level_at {
            self.level_at = self.core.taken + LEVEL_EVERY;
            self.level(done_ns, flash);
        }
    }

    /// Static wear levelling: moves the least worn data block into the most worn free one, if the
    /// gap is too wide. The host does not wait; the dies are busy.
    fn level(&mut self, at_ns: u64, flash: &mut Flash) {
        let core = &mut self.core;
        let data = (0..core.rows())
            .filter(|row| core.data[*row as usize] != NONE && self.scheme.movable(*row));
        let coldest = data.min_by_key(|row| flash.erases()[core.data[*row as usize] as usize]);
        let (Some(row), Some((erases, block))) = (coldest, core.free.last().copied()) else {
            return;
        };
        let old = core.data[row as usize];
        let gap = erases.saturating_sub(flash.erases()[old as usize]);
        if gap <= self.wear_gap || core.free.len() < 2 {
            return;
        }
        core.free.remove(&(erases, block));
        core.data[row as usize] = block;
        // `next` stays: the log may have newer copies of units before it.
        let copies = core.in_data.count(row);
        flash.counters.wear_moves += 1;
        flash.counters.gc_copies += u64::from(copies);
        let done_ns = flash.copy(copies, at_ns);
        core.erase(old, done_ns, flash);
    }

    /// Programs the unit of a register; what was not written of it is read first. Returns when the
    /// controller has everything.
    fn retire(&mut self, index: usize, at_ns: u64, flash: &mut Flash) -> u64 {
        let Some(r) = self.registers.remove(index) else { return at_ns };
        let mut at_ns = at_ns.max(r.ready_ns);
        let sectors = self.core.layout.unit_bytes / 512;
        if (!r.whole || r.start > 0 || r.end < sectors)
            && let Some(page) = self.scheme.locate(&self.core, r.unit)
        {
            flash.counters.rmw_reads += 1;
            at_ns = flash.read(page, self.core.layout.unit_bytes, at_ns);
        }
        self.program(r.unit, at_ns, flash);
        at_ns
    }

    fn retire_all(&mut self, at_ns: u64, flash: &mut Flash) -> u64 {
        let mut at_ns = at_ns;
        while !self.registers.is_empty() {
            at_ns = self.retire(0, at_ns, flash);
        }
        at_ns
    }

    /// Waits for room for one unit in the buffer.
    fn admit(&mut self, at_ns: u64, flash: &mut Flash) -> u64 {
        if let Some(ns) = self.cache.admit(at_ns) {
            return ns;
        }
        let at_ns = self.retire_all(at_ns, flash);
        self.cache.admit(at_ns).unwrap_or(at_ns)
    }

    /// Takes sectors `start..end` of a unit into the buffer.
    fn take_in(&mut self, unit: u32, start: u64, end: u64, at_ns: u64, flash: &mut Flash) -> u64 {
        let sectors = self.core.layout.unit_bytes / 512;
        if let Some(index) = self.register(unit) {
            flash.counters.coalesced_units += 1;
            let r = &mut self.registers[index];
            r.whole &= start <= r.end && end >= r.start;
            (r.start, r.end) = (r.start.min(start), r.end.max(end));
            r.whole |= start == 0 && end == sectors;
            r.ready_ns = r.ready_ns.max(at_ns);
            if r.whole && r.start == 0 && r.end == sectors {
                return self.retire(index, at_ns, flash);
            }
            return at_ns;
        }
        let mut at_ns = self.admit(at_ns, flash);
        if start == 0 && end == sectors {
            self.program(unit, at_ns, flash);
            return at_ns;
        }
        if self.registers.len() == self.registers_max {
            at_ns = self.retire(0, at_ns, flash);
        }
        self.registers.push_back(Register { unit, start, end, whole: true, ready_ns: at_ns });
        at_ns
    }
}

impl<S: BlockScheme> Ftl for Hybrid<S> {
    fn read(&mut self, span: &Span, at_ns: u64, bus_ns: u64, flash: &mut Flash) -> u64 {
        let sectors = self.core.layout.unit_bytes / 512;
        let mut bus_free_ns = at_ns;
        for i in 0..span.units {
            let (start, end) = span.within(i, sectors);
            let mut ready_ns = at_ns;
            if self.register(span.unit + i).is_none()
                && let Some(page) = self.scheme.locate(&self.core, span.unit + i)
            {
                ready_ns = flash.read(page, (end - start) * 512, at_ns);
            }
            bus_free_ns = bus_free_ns.max(ready_ns) + bus_ns * (end - start) / sectors;
        }
        bus_free_ns
    }

    fn write(&mut self, span: &Span, arrival: Arrival, flash: &mut Flash) -> u64 {
        let Arrival { mut at_ns, bus_ns, through, .. } = arrival;
        let sectors = self.core.layout.unit_bytes / 512;
        self.dirty = true;
        flash.counters.host_units += u64::from(span.units);
        for i in 0..span.units {
            let (start, end) = span.within(i, sectors);
            at_ns += bus_ns * (end - start) / sectors;
            at_ns = self.take_in(span.unit + i, start, end, at_ns, flash);
        }
        if through {
            at_ns = self.retire_all(at_ns, flash);
            at_ns = self.cache.drained(at_ns);
        }
        at_ns
    }

    fn flush(&mut self, at_ns: u64, flash: &mut Flash) -> (u64, bool) {
        let at_ns = self.retire_all(at_ns, flash);
        let done_ns = self.cache.drained(at_ns);
        (done_ns, std::mem::replace(&mut self.dirty, false))
    }

    fn discard(&mut self, unit: u32, units: u32, flash: &mut Flash) {
        for u in unit..unit + units {
            if let Some(index) = self.register(u) {
                self.registers.remove(index);
                // Its room in the buffer is free at once.
                self.cache.programmed(NONE, 1, 0);
            }
            flash.counters.discarded_units += u64::from(self.scheme.forget(&mut self.core, u));
        }
    }

    fn durable(&self, unit: u32, at_ns: u64) -> bool {
        let page = self.scheme.locate(&self.core, unit);
        self.register(unit).is_none() && !page.is_some_and(|p| self.cache.in_flight(p, at_ns))
    }

    fn power_cycle(&mut self) {
        self.registers.clear();
        self.cache.clear();
        self.dirty = false;
    }

    fn locate(&self, unit: u32) -> Option<u32> {
        self.scheme.locate(&self.core, unit)
    }

    fn memory_bytes(&self) -> u64 {
        let core = &self.core;
        let blocks = (core.data.len() + core.next.len()) as u64 * 4;
        blocks
            + u64::from(core.layout.blocks) * 8
            + core.in_data.memory_bytes()
            + self.scheme.memory_bytes()
    }

    fn check(&self, flash: &Flash) -> Result<(), String> {
        let core = &self.core;
        let mut uses = vec![0u32; core.layout.blocks as usize];
        let data = core.data.iter().filter(|b| **b != NONE).copied();
        let free = core.free.iter().map(|(_, b)| *b);
        for block in data.chain(core.stale.iter().copied()).chain(free).chain(self.scheme.blocks())
        {
            uses[block as usize] += 1;
        }
        if let Some(b) = uses.iter().position(|n| *n != 1) {
            return Err(format!("superblock {b} has {} uses", uses[b]));
        }
        let mut held = vec![NONE; uses.len() * core.layout.units_per_block as usize];
        for unit in 0..core.layout.host_units {
            let Some(page) = self.scheme.locate(core, unit) else { continue };
            let before = std::mem::replace(&mut held[page as usize], unit);
            if before != NONE {
                return Err(format!("units {before} and {unit} are both at page {page}"));
            }
        }
        for (erases, b) in &core.free {
            let first = core.page(*b, 0) as usize;
            let pages = &held[first..first + core.layout.units_per_block as usize];
            if *erases != flash.erases()[*b as usize] || pages.iter().any(|u| *u != NONE) {
                return Err(format!("free superblock {b} is in use or its wear is wrong"));
            }
        }
        Ok(())
    }
}
