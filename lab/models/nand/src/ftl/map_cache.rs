//! The bounded cache of map segments that controllers without much RAM have.
//!
//! ```text
//!   unit space   | segment 0 | segment 1 | segment 2 | ...     one map page for each segment
//!   in RAM       most recent <-> ... <-> least recent          `capacity` of them
//! ```
//!
//! A miss reads the map page from flash; the evicted segment is programmed if it was changed. Least
//! recently used: 9 bytes a segment. Tested here.

use super::MapTable;
use super::lru::Lru;
use crate::flash::Flash;

/// Cache of map segments in the controller's RAM.
#[derive(Clone, Debug)]
pub struct MapCache {
    /// Units that a segment covers; 0: the whole map is in RAM.
    segment_units: u32,
    capacity: u32,
    used: u32,
    recent: Lru,
    state: Vec<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Out,
    Clean,
    Dirty,
}

impl MapCache {
    /// For `units` units in segments of `segment_units`, `capacity` of them in RAM. A capacity of 0
    /// means that the whole map is.
    pub fn new(units: u32, segment_units: u32, capacity: u32) -> Self {
        let all = capacity == 0 || segment_units == 0;
        let segments = if all { 0 } else { units.div_ceil(segment_units) as usize };
        MapCache {
            segment_units: if all { 0 } else { segment_units },
            capacity,
            used: 0,
            recent: Lru::new(segments),
            state: vec![State::Out; segments],
        }
    }
}

impl MapTable for MapCache {
    fn touch(&mut self, unit: u32, dirty: bool, at_ns: u64, flash: &mut Flash) -> u64 {
        if self.segment_units == 0 {
            return at_ns;
        }
        let segment = unit / self.segment_units;
        let mut at_ns = at_ns;
        let s = segment as usize;
        if self.state[s] == State::Out {
            if self.used == self.capacity {
                at_ns = self.evict(at_ns, flash);
            }
            at_ns = flash.map_read(segment, at_ns);
            self.used += 1;
            self.state[s] = State::Clean;
            self.recent.push(segment);
        } else {
            self.recent.used(segment);
        }
        if dirty {
            self.state[s] = State::Dirty;
        }
        at_ns
    }

    fn units_to_next(&self, unit: u32) -> u32 {
        match self.segment_units {
            0 => u32::MAX,
            n => n - unit % n,
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.state.len() as u64 + self.recent.memory_bytes()
    }
}

impl MapCache {
    fn evict(&mut self, at_ns: u64, flash: &mut Flash) -> u64 {
        let Some(victim) = self.recent.oldest() else { return at_ns };
        self.recent.unlink(victim);
        self.used -= 1;
        let was = std::mem::replace(&mut self.state[victim as usize], State::Out);
        if was == State::Dirty { flash.map_program(at_ns) } else { at_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn flash() -> Flash {
        let p = Profile::by_name("nexus7-emmc").unwrap();
        Flash::new(&p.timing, None, p.layout(64 << 20).unwrap())
    }

    #[test]
    fn misses_and_dirty_evictions() {
        let mut f = flash();
        let mut c = MapCache::new(100, 10, 2);
        c.touch(0, true, 0, &mut f); // miss
        c.touch(15, false, 0, &mut f); // miss
        c.touch(9, false, 0, &mut f); // hit: segment 0 is now newest
        c.touch(20, false, 0, &mut f); // miss, evicts clean segment 1
        assert_eq!((f.counters.map_reads, f.counters.map_programs), (3, 0));
        c.touch(99, false, 0, &mut f); // miss, evicts dirty segment 0
        assert_eq!((f.counters.map_reads, f.counters.map_programs), (4, 1));
        c.touch(0, false, 0, &mut f); // miss, evicts clean segment 2; clean since it was written
        c.touch(10, false, 0, &mut f);
        assert_eq!((f.counters.map_reads, f.counters.map_programs), (6, 1));
    }

    #[test]
    fn capacity_zero_is_all_in_ram() {
        let mut f = flash();
        let mut c = MapCache::new(100, 10, 0);
        assert_eq!(c.touch(50, true, 77, &mut f), 77);
        assert_eq!(f.counters.map_reads, 0);
        assert_eq!(c.units_to_next(3), u32::MAX);
        assert_eq!(MapCache::new(100, 10, 1).units_to_next(3), 7);
    }
}
