//! A device with a volatile cache that remembers every write, for the explorer.
//!
//! Promises: reads see everything written so far, as on a running machine. The log is in the order
//! in which batches completed; batches of several threads are serialised, which is one of the legal
//! orders. Assumes that the workload is small enough for its writes to be kept in memory
//! ([`CrashLog::logged_bytes`] says how much).

use std::sync::Arc;

use parking_lot::Mutex;
use syncline_device::{BlockDevice, DeviceError, Geometry, MemoryDevice, Op, Request};

use crate::crash::{Content, CrashLog, Entry, LoggedWrite};

/// Promise that the device breaks. For canaries: a test that cannot see the lie is worth nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FaultyFlush {
    /// None; the honest device.
    #[default]
    None,
    /// The k-th flush, counted from 1, is acknowledged and not done.
    Flush(u64),
    /// No flush is done.
    EveryFlush,
    /// FUA writes are acknowledged when they are in the volatile cache.
    Fua,
    /// Cache barriers are acknowledged and order nothing.
    Barrier,
}

/// Properties of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashOptions {
    /// True if completed writes may be lost. Without it only the batch under way can be.
    pub volatile_cache: bool,
    /// True if the device has FUA. Where it has not, a FUA write is an ordinary one: callers have
    /// to send a flush.
    pub fua: bool,
    /// True if the device has a cache barrier; otherwise it flushes.
    pub barrier: bool,
    /// Promise that it breaks.
    pub faulty: FaultyFlush,
}

impl Default for CrashOptions {
    fn default() -> Self {
        CrashOptions { volatile_cache: true, fua: true, barrier: false, faulty: FaultyFlush::None }
    }
}

#[derive(Default)]
struct State {
    entries: Vec<Entry>,
    flushes: u64,
    powered_off: bool,
    /// Requests until the power goes, if that was asked for.
    cut_after: Option<u64>,
}

/// A device over a base image that logs what may be lost. See the module's description.
pub struct CrashDevice {
    base: MemoryDevice,
    live: MemoryDevice,
    options: CrashOptions,
    state: Mutex<State>,
}

impl CrashDevice {
    /// A device whose durable content is `base` (which is not changed).
    pub fn new(base: &MemoryDevice, options: CrashOptions) -> Self {
        let change = |g: &mut Geometry| {
            (g.volatile_cache, g.fua) = (options.volatile_cache, options.fua);
            g.barrier = options.barrier;
        };
        let live = base.snapshot().with_geometry(change);
        CrashDevice { base: base.snapshot(), live, options, state: Mutex::default() }
    }

    /// Notes in the log that something happened: every request that completed before is before it.
    /// Judges get the marks that precede the cut, in order.
    pub fn mark(&self, mark: u64) {
        let mut state = self.state.lock();
        if !state.powered_off {
            state.entries.push(Entry::Mark(mark));
        }
    }

    /// Turns the power off: every later request fails with [`DeviceError::PowerCut`].
    pub fn cut_power(&self) {
        self.state.lock().powered_off = true;
    }

    /// Turns the power off after so many more requests.
    pub fn cut_power_after(&self, requests: u64) {
        self.state.lock().cut_after = Some(requests);
    }

    /// The log so far. The device goes on; contents are shared, not copied.
    pub fn log(&self) -> CrashLog {
        let entries = self.state.lock().entries.clone();
        CrashLog { base: self.base.snapshot(), entries, options: self.options }
    }

    /// The content that a running machine sees.
    pub fn live_image(&self) -> MemoryDevice {
        self.live.snapshot()
    }

    fn logged(&self, request: &Request<'_>) -> Option<LoggedWrite> {
        let (content, fua) = match &request.op {
            Op::Write { from, fua } => (Content::Data(from.concat().into()), *fua),
            Op::Discard { len_bytes } => (Content::Discard { len_bytes: *len_bytes }, false),
            Op::Read { .. } | Op::Flush => return None,
        };
        let honest_fua = fua && self.options.fua && self.options.faulty != FaultyFlush::Fua;
        let durable = honest_fua || !self.options.volatile_cache;
        let (offset_bytes, origin) = (request.offset_bytes, request.origin);
        (request.len_bytes() > 0).then_some(LoggedWrite { offset_bytes, content, durable, origin })
    }

    fn flushed(&self, state: &mut State, is_barrier: bool) {
        if is_barrier && self.options.barrier {
            if self.options.faulty != FaultyFlush::Barrier {
                state.entries.push(Entry::Barrier);
            }
            return;
        }
        state.flushes += 1;
        let lied = match self.options.faulty {
            FaultyFlush::Flush(k) => k == state.flushes,
            FaultyFlush::EveryFlush => true,
            FaultyFlush::None | FaultyFlush::Fua | FaultyFlush::Barrier => false,
        };
        if !lied {
            state.entries.push(Entry::Flush);
        }
    }
}

impl BlockDevice for CrashDevice {
    fn geometry(&self) -> Geometry {
        self.live.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let geometry = self.live.geometry();
        for request in batch.iter() {
            geometry.check(request)?;
        }
        // One lock for log and live content, so that both agree on the order.
        let mut state = self.state.lock();
        let mut powered = batch.len();
        if let Some(left) = &mut state.cut_after {
            powered = usize::try_from(*left).unwrap_or(usize::MAX).min(batch.len());
            *left -= powered as u64;
        }
        if state.powered_off {
            return Err(DeviceError::PowerCut);
        }
        let (served, lost) = batch.split_at_mut(powered);
        // A flush should stand alone; beside writes it covers none of them, which is the stricter
        // reading of unordered.
        for request in served.iter().filter(|r| matches!(r.op, Op::Flush)) {
            self.flushed(&mut state, request.is_barrier());
        }
        let writes: Vec<LoggedWrite> = served.iter().filter_map(|r| self.logged(r)).collect();
        if !writes.is_empty() {
            state.entries.push(Entry::Batch(writes));
        }
        self.live.submit(served)?;
        if !lost.is_empty() {
            state.powered_off = true;
            return Err(DeviceError::PowerCut);
        }
        Ok(())
    }
}

/// Shared devices are how recovery gets one.
impl From<CrashDevice> for Arc<dyn BlockDevice> {
    fn from(device: CrashDevice) -> Self {
        Arc::new(device)
    }
}
