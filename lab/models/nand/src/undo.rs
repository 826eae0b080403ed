//! Contents that a power cut brings back, by the cache barriers that they were written between.
//!
//! ```text
//!   flush      barrier      barrier        now
//!     |  epoch 0  |  epoch 1   |  epoch 2   |      a flush forgets all of them
//!      all there     some lost    all lost         after a cut: one epoch is in part there, those
//!                                                  after it are not at all
//! ```
//!
//! Each epoch remembers what a unit held before its first write there. A copy that a later epoch
//! replaced is in a page that the map does not name any more, so the epoch keeps that page's
//! number. A controller reaches this order by going through the pages in the order of their writes
//! after a power cut, up to the first that is missing. Tested in `tests/it/device.rs`.

use crate::sim::Simulator;
use std::collections::BTreeMap;
use std::ops::Range;
use syncline_device::DeviceError;

/// Units written between two barriers.
#[derive(Default)]
struct Epoch {
    /// Content of each before it was written.
    old: BTreeMap<u32, Vec<u8>>,
    /// Page of the copy of those that a later epoch replaced while it was volatile.
    replaced: BTreeMap<u32, u32>,
}

/// Changes that a cut would take back.
#[derive(Default)]
pub(crate) struct Undo {
    /// The last one is open, and there always is one after the first write.
    epochs: Vec<Epoch>,
}

impl Undo {
    /// Notes that units are about to be written. `read` gives the content of one.
    pub(crate) fn remember(
        &mut self,
        units: Range<u32>,
        simulator: &Simulator,
        now_ns: u64,
        mut read: impl FnMut(u32) -> Result<Vec<u8>, DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.epochs.is_empty() {
            self.epochs.push(Epoch::default());
        }
        for unit in units {
            let Some((open, closed)) = self.epochs.split_last_mut() else { continue };
            if open.old.contains_key(&unit) {
                continue;
            }
            open.old.insert(unit, read(unit)?);
            let before = closed.iter_mut().rev().find(|epoch| epoch.old.contains_key(&unit));
            if let (Some(before), Some(page)) = (before, simulator.volatile_page(unit, now_ns)) {
                before.replaced.insert(unit, page);
            }
        }
        Ok(())
    }

    /// Ends the epoch. Complete ones are forgotten.
    pub(crate) fn barrier(&mut self, simulator: &Simulator, now_ns: u64) {
        let lost = self.first_lost(simulator, now_ns);
        self.epochs.drain(..lost);
        if self.epochs.last().is_some_and(|open| !open.old.is_empty()) {
            self.epochs.push(Epoch::default());
        }
    }

    /// Everything is durable.
    pub(crate) fn clear(&mut self) {
        self.epochs.clear();
    }

    /// These units are durable as they are.
    pub(crate) fn forget(&mut self, units: Range<u32>) {
        for epoch in &mut self.epochs {
            for unit in units.clone() {
                epoch.old.remove(&unit);
                epoch.replaced.remove(&unit);
            }
        }
    }

    /// Forgets what is durable, if that may be many units.
    pub(crate) fn trim(&mut self, units_max: usize, simulator: &Simulator, now_ns: u64) {
        if let [open] = &mut self.epochs[..]
            && open.old.len() > units_max
        {
            open.old.retain(|unit, _| simulator.volatile_page(*unit, now_ns).is_some());
        }
    }

    /// Gives the contents that a cut brings back, in the order in which they are to be written.
    pub(crate) fn take_back(&mut self, simulator: &Simulator, now_ns: u64) -> Vec<(u32, Vec<u8>)> {
        let lost = self.first_lost(simulator, now_ns);
        let mut back = Vec::new();
        for n in (lost..self.epochs.len()).rev() {
            let old = std::mem::take(&mut self.epochs[n].old);
            let is_back = |unit: &u32| n > lost || self.is_volatile(n, *unit, simulator, now_ns);
            back.extend(old.into_iter().filter(|(unit, _)| is_back(unit)));
        }
        self.epochs.clear();
        back
    }

    /// The first epoch of which a unit is not in the cells.
    fn first_lost(&self, simulator: &Simulator, now_ns: u64) -> usize {
        let is_whole = |n: usize| {
            !self.epochs[n].old.keys().any(|unit| self.is_volatile(n, *unit, simulator, now_ns))
        };
        (0..self.epochs.len()).take_while(|n| is_whole(*n)).count()
    }

    /// True if the copy of `unit` that epoch `n` wrote is not in the cells.
    fn is_volatile(&self, n: usize, unit: u32, simulator: &Simulator, now_ns: u64) -> bool {
        match self.epochs[n].replaced.get(&unit) {
            Some(page) => simulator.is_page_volatile(*page, now_ns),
            None if self.epochs[n + 1..].iter().any(|later| later.old.contains_key(&unit)) => false,
            None => simulator.volatile_page(unit, now_ns).is_some(),
        }
    }
}
