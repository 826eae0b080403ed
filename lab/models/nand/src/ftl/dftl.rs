//! DFTL: single map entries are cached on demand.
//!
//! ```text
//!   map page i  [entry][entry][entry]...     `page_units` entries, in flash
//!   in RAM      unit 5*, unit 90, unit 91*   the entries used last; * changed
//! ```
//!
//! Gupta, Kim, Urgaonkar, "DFTL: a flash translation layer employing demand-based selective caching
//! of page-level address mappings", ASPLOS 2009. A miss reads the entry's map page. An evicted
//! entry that was changed programs its map page, after a read, and all changed entries of that page
//! go with it (batch update). Units that the collector moves are changed in RAM if they are there;
//! else their map pages are read and programmed, each once a collection. Least recently used, where
//! the paper has a segmented list. Tested in `tests/it/schemes`.

use super::MapTable;
use super::bits::Bits;
use super::hybrid::NONE;
use super::lru::Lru;
use crate::flash::Flash;

/// Cache of map entries in the controller's RAM.
pub(super) struct Dftl {
    page_units: u32,
    /// Unit of each cache slot.
    units: Vec<u32>,
    used: u32,
    recent: Lru,
    slot_of: Vec<u32>,
    /// Changed entries; one row for each map page.
    changed: Bits,
}

impl Dftl {
    /// For `units` units, `page_units` entries in a map page, `entries` (1 or more) cached.
    pub(super) fn new(units: u32, page_units: u32, entries: u32) -> Self {
        let entries = entries.clamp(1, units.max(1));
        Dftl {
            page_units,
            units: vec![NONE; entries as usize],
            used: 0,
            recent: Lru::new(entries as usize),
            slot_of: vec![NONE; units as usize],
            changed: Bits::new(units.div_ceil(page_units), page_units),
        }
    }

    /// Gives the slot of the entry not used for longest.
    fn evict(&mut self, slot: u32, at_ns: u64, flash: &mut Flash) -> u64 {
        self.recent.unlink(slot);
        let unit = self.units[slot as usize];
        self.slot_of[unit as usize] = NONE;
        let page = unit / self.page_units;
        if !self.changed.get(page, unit % self.page_units) {
            return at_ns;
        }
        self.changed.clear_row(page);
        let at_ns = flash.map_read(page, at_ns);
        flash.map_program(at_ns)
    }
}

impl MapTable for Dftl {
    fn touch(&mut self, unit: u32, dirty: bool, at_ns: u64, flash: &mut Flash) -> u64 {
        let mut at_ns = at_ns;
        let slot = self.slot_of[unit as usize];
        if slot != NONE {
            self.recent.used(slot);
        } else {
            let mut slot = self.used;
            if self.used as usize == self.units.len() {
                slot = self.recent.oldest().unwrap_or(0);
                at_ns = self.evict(slot, at_ns, flash);
            } else {
                self.used += 1;
            }
            at_ns = flash.map_read(unit / self.page_units, at_ns);
            self.units[slot as usize] = unit;
            self.slot_of[unit as usize] = slot;
            self.recent.push(slot);
        }
        if dirty {
            self.changed.set(unit / self.page_units, unit % self.page_units);
        }
        at_ns
    }

    fn units_to_next(&self, _unit: u32) -> u32 {
        1
    }

    fn wants_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, units: &[u32], at_ns: u64, flash: &mut Flash) -> u64 {
        let (mut at_ns, mut before) = (at_ns, NONE);
        for &unit in units {
            let page = unit / self.page_units;
            if self.slot_of[unit as usize] != NONE {
                self.changed.set(page, unit % self.page_units);
            } else if page != before {
                at_ns = flash.map_read(page, at_ns);
                at_ns = flash.map_program(at_ns);
                before = page;
            }
        }
        at_ns
    }

    fn memory_bytes(&self) -> u64 {
        let tables = self.units.len() + self.slot_of.len();
        tables as u64 * 4 + self.recent.memory_bytes() + self.changed.memory_bytes()
    }
}
