//! Zone-based maps: each region of the address space has a map of its own that is loaded whole.
//!
//! ```text
//!   address space | zone 0 | zone 1 | zone 2 | ...     map of a zone: 4 bytes a unit, some pages
//!   in RAM          zone 1 (changed), zone 7           the working zones
//! ```
//!
//! Hot-zones paper, section 1: the map of a zone is loaded into the controller's SRAM when
//! the zone is worked on, so the cost depends on how local the accesses are. Loading reads all
//! pages of a map; leaving a changed one programs all of them. Units that the collector moves in
//! zones that are not loaded cost one read and one program of the map page, once a collection and
//! zone. Tested in `tests/it/schemes`.

use super::MapTable;
use super::lru::Lru;
use crate::flash::Flash;

/// Cache of whole zones of the map in the controller's RAM.
pub(super) struct ZoneMap {
    zone_units: u32,
    map_pages: u32,
    capacity: u32,
    used: u32,
    recent: Lru,
    loaded: Vec<bool>,
    changed: Vec<bool>,
}

impl ZoneMap {
    /// For `units` units in zones of `zone_units`, `capacity` (1 or more) of them in RAM; a map
    /// page holds `page_bytes`.
    pub(super) fn new(units: u32, zone_units: u32, capacity: u32, page_bytes: u64) -> Self {
        let zones = units.div_ceil(zone_units) as usize;
        ZoneMap {
            zone_units,
            map_pages: (u64::from(zone_units) * 4).div_ceil(page_bytes) as u32,
            capacity: capacity.max(1),
            used: 0,
            recent: Lru::new(zones),
            loaded: vec![false; zones],
            changed: vec![false; zones],
        }
    }

    fn leave(&mut self, at_ns: u64, flash: &mut Flash) -> u64 {
        let Some(zone) = self.recent.oldest() else { return at_ns };
        self.recent.unlink(zone);
        self.used -= 1;
        self.loaded[zone as usize] = false;
        let pages = match std::mem::take(&mut self.changed[zone as usize]) {
            true => self.map_pages,
            false => 0,
        };
        (0..pages).fold(at_ns, |at_ns, _| flash.map_program(at_ns))
    }
}

impl MapTable for ZoneMap {
    fn touch(&mut self, unit: u32, dirty: bool, at_ns: u64, flash: &mut Flash) -> u64 {
        let zone = unit / self.zone_units;
        let mut at_ns = at_ns;
        if self.loaded[zone as usize] {
            self.recent.used(zone);
        } else {
            if self.used == self.capacity {
                at_ns = self.leave(at_ns, flash);
            }
            at_ns = (0..self.map_pages).fold(at_ns, |at_ns, i| flash.map_read(zone + i, at_ns));
            self.loaded[zone as usize] = true;
            self.used += 1;
            self.recent.push(zone);
        }
        self.changed[zone as usize] |= dirty;
        at_ns
    }

    fn units_to_next(&self, unit: u32) -> u32 {
        self.zone_units - unit % self.zone_units
    }

    fn wants_moves(&self) -> bool {
        true
    }

    fn moved(&mut self, units: &[u32], at_ns: u64, flash: &mut Flash) -> u64 {
        let (mut at_ns, mut before) = (at_ns, u32::MAX);
        for zone in units.iter().map(|unit| unit / self.zone_units) {
            if self.loaded[zone as usize] {
                self.changed[zone as usize] = true;
            } else if zone != before {
                at_ns = flash.map_read(zone, at_ns);
                at_ns = flash.map_program(at_ns);
            }
            before = zone;
        }
        at_ns
    }

    fn memory_bytes(&self) -> u64 {
        2 * self.loaded.len() as u64 + self.recent.memory_bytes()
    }
}
