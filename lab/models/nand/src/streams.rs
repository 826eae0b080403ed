//! Open write streams: the few sequential runs that the device keeps going at once.
//!
//! ```text
//!   slot 0   [start ........ end)   a write that starts at `end` continues the run: cheap
//!   slot 1   [start .. end)
//!            a write elsewhere opens a run in a free slot or in the one not used for longest,
//!            whose run is closed first: its clusters are completed, its map written
//! ```
//!
//! All in sectors of 512 bytes. The cost of closing is the mapping scheme's business
//! ([`crate::ftl`]); this is only the table. Least recently used by a counter, so exact and
//! deterministic. Tested here.

/// One sequential run of written sectors, `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First sector.
    pub start: u64,
    /// Sector after the last.
    pub end: u64,
}

/// Effect of a write on the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The slot, and with it the write frontier, that takes the data.
    pub slot: usize,
    /// True if the write starts a run.
    pub opened: bool,
    /// The run that was in the slot and must be closed first.
    pub closed: Option<Run>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    run: Run,
    last_use: u64,
}

/// The table of open runs.
#[derive(Clone, Debug)]
pub struct StreamTable {
    slots: Vec<Option<Slot>>,
    /// True if runs matter.
    tracked: bool,
    window_sectors: u64,
    uses: u64,
}

impl StreamTable {
    /// `streams` slots; 0: one slot that takes every write and never closes. A write that starts up
    /// to `window_sectors` after the end of a run still continues it.
    pub fn new(streams: u32, window_sectors: u64) -> Self {
        let slots = vec![None; streams.max(1) as usize];
        StreamTable { slots, tracked: streams > 0, window_sectors, uses: 0 }
    }

    /// Finds the slot for a write of `sectors` sectors at `start` and notes the write.
    pub fn place(&mut self, start: u64, sectors: u64) -> Placement {
        if !self.tracked {
            return Placement { slot: 0, opened: false, closed: None };
        }
        self.uses += 1;
        let window = self.window_sectors;
        let continues = |s: &Slot| start >= s.run.end && start - s.run.end <= window;
        let found = self.slots.iter().position(|s| s.as_ref().is_some_and(continues));
        if let Some(slot) = found {
            if let Some(s) = &mut self.slots[slot] {
                s.run.end = start + sectors;
                s.last_use = self.uses;
            }
            return Placement { slot, opened: false, closed: None };
        }
        let slot = self.coldest();
        let run = Run { start, end: start + sectors };
        let closed = self.slots[slot].replace(Slot { run, last_use: self.uses });
        Placement { slot, opened: true, closed: closed.map(|s| s.run) }
    }

    /// A free slot, or the one not used for longest.
    fn coldest(&self) -> usize {
        let age = |s: &Option<Slot>| s.as_ref().map_or(0, |s| s.last_use);
        let oldest = self.slots.iter().enumerate().min_by_key(|(_, s)| age(s));
        oldest.map_or(0, |(i, _)| i)
    }

    /// Forgets all runs, as after a power cycle.
    pub fn clear(&mut self) {
        self.slots.fill(None);
    }

    /// Slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Never: there is at least one slot.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_stay_open_in_two_slots() {
        let mut t = StreamTable::new(2, 0);
        assert_eq!(t.place(0, 8), Placement { slot: 0, opened: true, closed: None });
        assert_eq!(t.place(1000, 8), Placement { slot: 1, opened: true, closed: None });
        for i in 1..10 {
            assert_eq!(t.place(8 * i, 8), Placement { slot: 0, opened: false, closed: None });
            let p = t.place(1000 + 8 * i, 8);
            assert_eq!(p, Placement { slot: 1, opened: false, closed: None });
        }
        // The third run takes the slot of the run not used for longest.
        let closed = Some(Run { start: 0, end: 80 });
        assert_eq!(t.place(5000, 1), Placement { slot: 0, opened: true, closed });
    }

    #[test]
    fn one_slot_alternates() {
        let mut t = StreamTable::new(1, 0);
        t.place(0, 8);
        assert!(t.place(1000, 8).closed.is_some());
        assert!(t.place(8, 8).closed.is_some(), "the first run was closed");
    }

    #[test]
    fn without_streams_nothing_is_opened_or_closed() {
        let mut t = StreamTable::new(0, 0);
        for start in [0, 1000, 8, 0] {
            assert_eq!(t.place(start, 8), Placement { slot: 0, opened: false, closed: None });
        }
        assert_eq!(t.len(), 1);
    }

    #[test]
    fn window_and_overwrite() {
        let mut t = StreamTable::new(2, 16);
        t.place(0, 8);
        assert!(!t.place(24, 8).opened, "16 sectors after the end");
        assert!(t.place(49, 8).opened, "17 sectors after the end");
        assert!(t.place(0, 8).opened, "an overwrite is no continuation");
        t.clear();
        assert_eq!(t.place(8, 8), Placement { slot: 0, opened: true, closed: None });
    }
}
