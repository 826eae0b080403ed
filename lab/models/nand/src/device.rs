//! The simulated device: a model in front of a backing that holds the contents.
//!
//! ```text
//!   submit(batch) --> range check --> backing (bytes, by logical address) --> Simulator (time)
//!                                                                             |
//!                                      clock.sleep_until(last completion) <---+
//! ```
//!
//! Promises: contents are exactly what the backing would hold; time passes only in the clock; every
//! command of the batch is given to the model in the order of the batch, and the flush goes to the
//! backing as well. The simulated power can be cut ([`NandDevice::cut`]): units whose newest copy
//! was still in the write buffer fall back to what they held at the last flush, in the order of
//! cache barriers (`undo.rs`). Discarded sectors read what the backing's discard leaves; discards
//! are not ordered. A write to a zone elsewhere than at its write pointer is refused before
//! anything of its batch is done; what is read behind the pointer is not defined. Tested in
//! `tests/it/device.rs`, `tests/it/nexus7.rs` and `tests/it/schemes/zoned.rs`.

use crate::counters::{Counters, Report};
use crate::profile::Profile;
use crate::sim::Simulator;
use crate::undo::Undo;
use crate::{NandError, geometry::Layout};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use syncline_device::{
    BlockDevice, Clock, DeviceError, Geometry, Kind, MAX_REQUEST_BYTES, Op, Origin, Request,
    SECTOR_BYTES,
};

/// Origin of the reads and writes that restore contents around a power cut.
const CUT: Origin = Origin::new(Kind::Other, true);

/// A NAND device with an FTL, contents in a backing device, time in a clock.
pub struct NandDevice {
    backing: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    geometry: Geometry,
    profile: Profile,
    state: Mutex<State>,
}

struct State {
    simulator: Simulator,
    power: bool,
    /// `None`: cuts are not wanted and nothing is remembered.
    undo: Option<Undo>,
    /// Units remembered before those that became durable are forgotten. Twice what can be
    /// volatile, so that the scan is rare and the memory bounded.
    undo_units_max: usize,
}

impl NandDevice {
    /// A fresh device of the size of `backing`. A power cut of it loses nothing.
    pub fn new(
        profile: &Profile,
        backing: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, NandError> {
        let below = backing.geometry();
        let simulator = Simulator::new(profile, below.size_bytes)?;
        let geometry = Geometry {
            size_bytes: below.size_bytes,
            max_request_bytes: below.max_request_bytes.min(MAX_REQUEST_BYTES),
            volatile_cache: profile.buffer.is_volatile(),
            fua: profile.buffer.fua || !profile.buffer.is_volatile(),
            barrier: profile.buffer.barrier && profile.buffer.is_volatile(),
            discard: below.discard,
            read_only: below.read_only,
            zones: simulator.zones(),
            write_hints: simulator.layout().handles > 1,
        };
        let volatile_kib = profile.buffer.buffer_kib.max(64);
        let undo_units_max = (volatile_kib / profile.geometry.map_unit_kib).max(16) as usize * 2;
        let state = State { simulator, power: true, undo: None, undo_units_max };
        let state = Mutex::new(state);
        Ok(NandDevice { backing, clock, geometry, profile: profile.clone(), state })
    }

    /// As [`NandDevice::new`], and remembers what a power cut would lose. Each first write of a
    /// unit after a flush then reads the backing.
    pub fn with_power_cuts(
        profile: &Profile,
        backing: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, NandError> {
        let device = NandDevice::new(profile, backing, clock)?;
        device.state.lock().undo = Some(Undo::default());
        Ok(device)
    }

    /// The profile it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Derived sizes.
    pub fn layout(&self) -> Layout {
        *self.state.lock().simulator.layout()
    }

    /// Totals so far. Subtract two of them for a phase.
    pub fn counters(&self) -> Counters {
        self.state.lock().simulator.counters()
    }

    /// Totals, wear and latency percentiles so far.
    pub fn report(&self) -> Report {
        self.state.lock().simulator.report()
    }

    /// Starts the latency percentiles anew.
    pub fn reset_latencies(&self) {
        self.state.lock().simulator.reset_latencies();
    }

    /// Ages the mapping as [`Simulator::precondition`] does; contents and clock stay. For a device
    /// that was not used yet.
    pub fn precondition(&self, fill_percent: u32, seed: u64) {
        self.state.lock().simulator.precondition(fill_percent, seed);
    }

    /// Fills the mapping as [`Simulator::fill`] does; contents and clock stay. For a device that
    /// was not used yet.
    pub fn fill(&self) {
        self.state.lock().simulator.fill();
    }

    /// As [`Simulator::pointer_bytes`].
    pub fn pointer_bytes(&self, zone: u32) -> u64 {
        self.state.lock().simulator.pointer_bytes(zone)
    }

    /// True if the power is on.
    pub fn has_power(&self) -> bool {
        self.state.lock().power
    }

    /// Checks the mapping by a full scan.
    pub fn check(&self) -> Result<(), String> {
        self.state.lock().simulator.check()
    }

    /// Cuts the power now. What the write buffer still held is lost: those units read again what
    /// they held at the last flush (or FUA write). Every command fails until
    /// [`NandDevice::power_on`]. Returns how many units fell back.
    pub fn cut(&self) -> Result<u64, DeviceError> {
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.power = false;
        let unit_bytes = state.simulator.layout().unit_bytes;
        let mut lost = 0;
        if let Some(undo) = &mut state.undo {
            for (unit, old) in undo.take_back(&state.simulator, now_ns) {
                self.backing.write(u64::from(unit) * unit_bytes, &old, CUT)?;
                lost += 1;
            }
        }
        state.simulator.cut(now_ns);
        Ok(lost)
    }

    /// Switches the power on again after a cut.
    pub fn power_on(&self) {
        self.state.lock().power = true;
    }

    /// Refuses requests outside of the device before anything is done.
    fn check_range(&self, batch: &[Request<'_>]) -> Result<(), DeviceError> {
        for r in batch {
            let (op, offset_bytes, len_bytes) = (r.name(), r.offset_bytes, r.len_bytes());
            let end = offset_bytes.checked_add(len_bytes);
            let aligned = (offset_bytes | len_bytes).is_multiple_of(SECTOR_BYTES);
            if !aligned || end.is_none_or(|e| e > self.geometry.size_bytes) {
                return Err(DeviceError::OutOfRange { op, offset_bytes, len_bytes });
            }
            if self.geometry.read_only && matches!(r.op, Op::Write { .. } | Op::Discard { .. }) {
                return Err(DeviceError::ReadOnly);
            }
        }
        Ok(())
    }

    /// Refuses writes elsewhere than at write pointers, and discards of parts of zones, before
    /// anything is done. The requests of a batch move the pointers in its order.
    fn check_zones(&self, state: &State, batch: &[Request<'_>]) -> Result<(), DeviceError> {
        let Some(zones) = self.geometry.zones else { return Ok(()) };
        let mut moved = BTreeMap::new();
        for r in batch {
            let (op, offset_bytes) = (r.name(), r.offset_bytes);
            let end = offset_bytes + r.len_bytes();
            if end <= zones.conventional_bytes || matches!(r.op, Op::Read { .. } | Op::Flush) {
                continue;
            }
            let zone = zones.zone_of(offset_bytes.max(zones.conventional_bytes));
            let pointer = moved.entry(zone).or_insert_with(|| state.simulator.pointer_bytes(zone));
            let is_allowed = match r.op {
                Op::Discard { .. } => {
                    *pointer = zones.start_of(zone);
                    zones.is_whole(offset_bytes, end)
                }
                _ => {
                    let at = std::mem::replace(pointer, end);
                    let is_aligned = end.is_multiple_of(state.simulator.layout().unit_bytes);
                    at == offset_bytes && is_aligned && end <= zones.end_of(offset_bytes)
                }
            };
            if !is_allowed {
                let pointer_bytes = state.simulator.pointer_bytes(zone);
                return Err(DeviceError::UnalignedWrite { op, offset_bytes, pointer_bytes });
            }
        }
        Ok(())
    }

    /// Remembers what the units of a range hold, unless a durable version is remembered already.
    fn remember(&self, state: &mut State, r: &Request<'_>, now_ns: u64) -> Result<(), DeviceError> {
        let State { simulator, undo, .. } = state;
        let touched = simulator.touched_units(r.offset_bytes, r.len_bytes());
        let (Some(undo), Some((first, units))) = (undo, touched) else {
            return Ok(());
        };
        let unit_bytes = simulator.layout().unit_bytes;
        undo.remember(first..first + units, simulator, now_ns, |unit| {
            let offset = u64::from(unit) * unit_bytes;
            let mut old = vec![0; unit_bytes.min(self.geometry.size_bytes - offset) as usize];
            self.backing.read(offset, &mut old, CUT)?;
            Ok(old)
        })
    }

    /// True if a request is a barrier to this device.
    fn is_barrier(&self, r: &Request<'_>) -> bool {
        self.geometry.barrier && r.is_barrier()
    }

    /// Gives the batch to the model; returns when its last command is done.
    fn model(&self, state: &mut State, batch: &[Request<'_>], now_ns: u64) -> u64 {
        let mut done_ns = now_ns;
        for r in batch {
            let (offset, len) = (r.offset_bytes, r.len_bytes());
            let simulator = &mut state.simulator;
            let done = match &r.op {
                Op::Read { .. } => simulator.read(now_ns, offset, len),
                Op::Write { fua, .. } => {
                    let fua = *fua && self.geometry.fua;
                    simulator.write_with_life(now_ns, offset, len, fua, r.origin.life)
                }
                Op::Flush if self.is_barrier(r) => simulator.barrier(now_ns),
                Op::Flush => simulator.flush(now_ns),
                Op::Discard { .. } => simulator.discard(now_ns, offset, len),
            };
            done_ns = done_ns.max(done);
            self.forget(state, r, done);
        }
        done_ns
    }

    /// Drops what a command made durable from the undo list.
    fn forget(&self, state: &mut State, r: &Request<'_>, done_ns: u64) {
        let State { simulator, undo: Some(undo), undo_units_max, .. } = state else { return };
        let units = match &r.op {
            Op::Flush if self.is_barrier(r) => return undo.barrier(simulator, done_ns),
            Op::Flush => return undo.clear(),
            // It drains the buffer.
            Op::Write { fua: true, .. } if self.geometry.fua && self.geometry.barrier => {
                return undo.clear();
            }
            Op::Write { fua: true, .. } if self.geometry.fua => {
                simulator.touched_units(r.offset_bytes, r.len_bytes())
            }
            Op::Discard { .. } => simulator.whole_units(r.offset_bytes, r.len_bytes()),
            _ => None,
        };
        if let Some((first, units)) = units {
            undo.forget(first..first + units);
        }
        undo.trim(*undo_units_max, simulator, done_ns);
    }
}

impl BlockDevice for NandDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.check_range(batch)?;
        let now_ns = self.clock.now_ns();
        let mut state = self.state.lock();
        if !state.power {
            return Err(DeviceError::PowerCut);
        }
        self.check_zones(&state, batch)?;
        let done_ns = if state.undo.is_some() || self.geometry.zones.is_some() {
            for r in batch.iter().filter(|r| matches!(r.op, Op::Write { .. })) {
                self.remember(&mut state, r, now_ns)?;
            }
            self.backing.submit(batch)?;
            let done_ns = self.model(&mut state, batch, now_ns);
            drop(state);
            done_ns
        } else {
            // The backing works outside of the lock, so that threads copy in parallel.
            drop(state);
            self.backing.submit(batch)?;
            self.model(&mut self.state.lock(), batch, now_ns)
        };
        self.clock.sleep_until(done_ns);
        Ok(())
    }
}
