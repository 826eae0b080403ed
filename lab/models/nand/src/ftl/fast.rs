//! FAST: log blocks are shared by all superblocks, and one is kept for sequential writes.
//!
//! ```text
//!   sequential log block   [0 of 7][1 of 7][2 of 7][ ]      began at place 0, goes on in order
//!   random log blocks      [3 of 9][0 of 4][3 of 9]...  ->  [ ][ ][ ]   a ring, oldest first out
//! ```
//!
//! Fully associative sector translation (Lee et al., "A log buffer-based flash translation layer
//! using fully-associative sector translation", ACM TECS 2007). A write to place 0 takes the
//! sequential block, merging what was in it (switch if complete, partial else); the next places
//! of the same superblock follow it there; another place of that superblock ends it. Everything
//! else goes to the ring. When the ring is full its oldest block is reclaimed: each superblock
//! that has a valid unit in it gets a full merge, which takes its units out of the whole ring.
//! Full use of the log, and rare but long merges.

use super::bits::Bits;
use super::hybrid::{BlockScheme, Core, Merge, NONE};
use crate::flash::Flash;

/// The log blocks.
pub(super) struct Fast {
    /// Superblock of the sequential log block.
    row: u32,
    block: u32,
    /// Places programmed in it.
    next: u32,
    /// Units in it; one row.
    in_order: Bits,
    /// Blocks of the ring.
    ring: Vec<u32>,
    /// Unit at each place of the ring.
    units: Vec<u32>,
    /// Place of the ring that is programmed next.
    head: u32,
    /// True if the block of the head is erased and holds nothing.
    fresh: bool,
    in_ring: Bits,
    /// Place of the ring of each unit that `in_ring` has.
    places: Vec<u32>,
}

impl Fast {
    /// A ring of `log_blocks` blocks, 1 or more, besides the sequential one.
    pub(super) fn new(core: &Core, log_blocks: u32) -> Self {
        let per_block = core.layout.units_per_block;
        Fast {
            row: NONE,
            block: NONE,
            next: 0,
            in_order: Bits::new(1, per_block),
            ring: vec![NONE; log_blocks as usize],
            units: vec![NONE; log_blocks as usize * per_block as usize],
            head: 0,
            fresh: false,
            in_ring: Bits::new(core.rows(), per_block),
            places: vec![0; core.layout.host_units as usize],
        }
    }

    fn ring_page(&self, core: &Core, place: u32) -> u32 {
        let (slot, place) = core.split(place);
        core.page(self.ring[slot as usize], place)
    }

    /// The sequential log block becomes the data block of its superblock.
    fn end_sequential(&mut self, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let row = std::mem::replace(&mut self.row, NONE);
        if row == NONE {
            return at_ns;
        }
        // The newest copies of what is missing are in the old data block and in the ring.
        let others = core.in_data.count(row) + self.in_ring.count(row);
        core.in_data.move_row(row, &mut self.in_ring, row);
        core.in_data.move_row(row, &mut self.in_order, 0);
        let kind = if others == 0 { Merge::Switch } else { Merge::Partial };
        let at_ns = core.copy(others, at_ns, flash);
        core.merged(kind, (row, self.block, self.next), at_ns, flash)
    }

    /// Copies all units of a superblock into a fresh data block.
    fn merge(&mut self, row: u32, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let (block, mut at_ns) = core.take(at_ns, flash);
        core.in_data.move_row(row, &mut self.in_ring, row);
        if self.row == row {
            core.in_data.move_row(row, &mut self.in_order, 0);
            self.row = NONE;
            at_ns = core.erase(self.block, at_ns, flash);
        }
        let at_ns = core.copy(core.in_data.count(row), at_ns, flash);
        core.merged(Merge::Full, (row, block, 0), at_ns, flash)
    }

    /// Empties and erases a block of the ring.
    fn reclaim(&mut self, slot: u32, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let mut at_ns = at_ns;
        let first = slot * core.layout.units_per_block;
        for place in first..first + core.layout.units_per_block {
            let unit = self.units[place as usize];
            let (row, bit) = core.split(unit);
            if self.in_ring.get(row, bit) && self.places[unit as usize] == place {
                at_ns = self.merge(row, core, at_ns, flash);
            }
        }
        core.erase(self.ring[slot as usize], at_ns, flash)
    }

    /// Makes sure that the head of the ring can be programmed.
    fn make_room(&mut self, core: &mut Core, at_ns: u64, flash: &mut Flash) -> u64 {
        let (slot, place) = core.split(self.head);
        if place > 0 || self.fresh {
            return at_ns;
        }
        let mut at_ns = at_ns;
        if self.ring[slot as usize] != NONE {
            at_ns = self.reclaim(slot, core, at_ns, flash);
        }
        (self.ring[slot as usize], at_ns) = core.take(at_ns, flash);
        self.fresh = true;
        at_ns
    }

    /// Takes the next place of the ring.
    fn append(&mut self, unit: u32, core: &mut Core) -> u32 {
        let (row, bit) = core.split(unit);
        let at = self.head;
        self.fresh = false;
        self.head = (at + 1) % self.units.len() as u32;
        self.units[at as usize] = unit;
        self.places[unit as usize] = at;
        core.in_data.take(row, bit);
        self.in_ring.set(row, bit);
        self.ring_page(core, at)
    }

    fn append_sequential(&mut self, core: &mut Core, row: u32) -> u32 {
        let place = self.next;
        self.next += 1;
        core.in_data.take(row, place);
        self.in_ring.take(row, place);
        self.in_order.set(0, place);
        core.page(self.block, place)
    }
}

impl BlockScheme for Fast {
    fn locate(&self, core: &Core, unit: u32) -> Option<u32> {
        let (row, place) = core.split(unit);
        if core.in_data.get(row, place) {
            Some(core.page(core.data[row as usize], place))
        } else if self.row == row && self.in_order.get(0, place) {
            Some(core.page(self.block, place))
        } else if self.in_ring.get(row, place) {
            Some(self.ring_page(core, self.places[unit as usize]))
        } else {
            None
        }
    }

    fn place(&mut self, core: &mut Core, unit: u32, at_ns: u64, flash: &mut Flash) -> (u32, u64) {
        let (row, place) = core.split(unit);
        let mut at_ns = at_ns;
        if self.row == row && place != self.next && place < core.next[row as usize] {
            at_ns = self.end_sequential(core, at_ns, flash);
        }
        if let Some(found) = core.in_place(row, place, at_ns, flash) {
            return found;
        }
        if place == 0 {
            at_ns = self.end_sequential(core, at_ns, flash);
            (self.block, at_ns) = core.take(at_ns, flash);
            (self.row, self.next) = (row, 0);
        }
        if self.row == row && self.next == place {
            return (self.append_sequential(core, row), at_ns);
        }
        at_ns = self.make_room(core, at_ns, flash);
        // Merges for room in the ring may have made room at the unit's own place.
        let found = core.in_place(row, place, at_ns, flash);
        found.unwrap_or_else(|| (self.append(unit, core), at_ns))
    }

    fn forget(&mut self, core: &mut Core, unit: u32) -> bool {
        let (row, place) = core.split(unit);
        let sequential = self.row == row && self.in_order.take(0, place);
        let was = sequential | core.in_data.take(row, place) | self.in_ring.take(row, place);
        let empty = |core: &Core, ring: &Bits| core.in_data.count(row) + ring.count(row) == 0;
        if was && self.row != row && empty(core, &self.in_ring) {
            core.drop_data(row);
        }
        was
    }

    fn blocks(&self) -> Vec<u32> {
        let sequential = (self.row != NONE).then_some(self.block);
        self.ring.iter().copied().filter(|b| *b != NONE).chain(sequential).collect()
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.ring.len() + self.units.len() + self.places.len();
        tables as u64 * 4 + self.in_ring.memory_bytes() + self.in_order.memory_bytes()
    }
}
