//! The device: one lock, the state under it, and the dispatch of requests.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use syncline_device::{
    BlockDevice, Clock, CostDevice, Costs, DeviceError, Durability, Geometry, Kind, OffsetDevice,
    Op, Origin, Request, SECTOR_BYTES,
};

use crate::format::{LogId, PAGE_BYTES};
use crate::log::Log;
use crate::ram::{Ram, SECTORS};
use crate::ring::SUPERBLOCKS;
use crate::{BufferError, BufferOptions, recover};

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;
/// Origin of flushes and of pages that the cleaner moves.
pub(crate) const OWN: Origin = Origin::new(Kind::Other, false);
/// Pages that RAM gives up at a time.
pub(crate) const EVICT_PAGES: usize = 64;

/// Device, or part of a device, that holds a log.
#[derive(Clone)]
pub struct LogArea {
    /// The whole of it is the log.
    pub device: Arc<dyn BlockDevice>,
    /// True if the log is a region of the buffered device, so that one flush covers both.
    pub same_medium: bool,
}

impl LogArea {
    /// The parts of a zoned device: for home blocks the conventional area but for two pages, for
    /// the log these and the zones.
    ///
    /// # Errors
    /// [`BufferError::FewZones`] if there are none, or nothing before them.
    pub fn of_zones(
        device: &Arc<dyn BlockDevice>,
    ) -> Result<(Arc<dyn BlockDevice>, LogArea), BufferError> {
        let geometry = device.geometry();
        let before = geometry.zones.map_or(0, |zones| zones.conventional_bytes);
        let home_bytes = before.checked_sub(SUPERBLOCKS * PAGE).filter(|&bytes| bytes > 0);
        let home_bytes = home_bytes.ok_or(BufferError::FewZones)?;
        let home = OffsetDevice::new(Arc::clone(device), 0, home_bytes)?;
        let rest = geometry.size_bytes - home_bytes;
        let log = OffsetDevice::new(Arc::clone(device), home_bytes, rest)?;
        Ok((Arc::new(home), LogArea { device: Arc::new(log), same_medium: true }))
    }
}

/// Counters and current contents of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Pages that went to the log.
    pub logged_pages: u64,
    /// Of them those without zero words for their description.
    pub opaque_pages: u64,
    /// Headers that were written.
    pub header_pages: u64,
    /// Bytes that went to their place without the log, cleaning not counted.
    pub home_bytes: u64,
    /// Pages that the cleaner wrote to their place, and in how many runs.
    pub cleaned_pages: u64,
    /// Runs of consecutive pages among them.
    pub cleaned_runs: u64,
    /// Passes of the cleaner that are complete.
    pub sweeps: u64,
    /// Flushes and FUA writes asked for.
    pub flushes: u64,
    /// Of them those that needed nothing of the device.
    pub flushes_saved: u64,
    /// Pages that opening found in the log.
    pub recovered_pages: u64,
    /// Pages in RAM now.
    pub ram_pages: u64,
    /// Of them relaxed.
    pub relaxed_pages: u64,
    /// Pages of the ring between tail and head now.
    pub ring_used_pages: u64,
    /// Pages of the ring.
    pub ring_pages: u64,
    /// Pages whose newest copy is in the log now.
    pub mapped_pages: u64,
    /// True if a write or flush below failed. Every later write and flush is refused.
    pub latched: bool,
}

pub(crate) struct State {
    pub(crate) home: Arc<dyn BlockDevice>,
    /// Measures home, and the log on the same medium.
    measured: Option<Arc<CostDevice<Arc<dyn BlockDevice>>>>,
    pub(crate) same_medium: bool,
    pub(crate) options: BufferOptions,
    pub(crate) ram: Ram,
    pub(crate) log: Option<Log>,
    /// True if writes to home blocks, other than the cleaner's, have not been flushed yet.
    pub(crate) home_owed: bool,
    pub(crate) now: Duration,
    requests: u64,
    requests_at_tick: u64,
    last_request: Duration,
    pub(crate) failed: Option<DeviceError>,
    pub(crate) status: Status,
}

/// A shorter device would be served as one of no bytes.
fn has_a_page(device_bytes: u64) -> Result<(), BufferError> {
    if device_bytes < PAGE { Err(BufferError::NoPage { device_bytes }) } else { Ok(()) }
}

/// A device over a device. See the crate's description.
pub struct Buffer {
    geometry: Geometry,
    state: Mutex<State>,
}

impl Buffer {
    /// Makes an empty log in `area` for a device of `home_bytes`. Without `force` the first 8 KiB
    /// of the area have to be zero.
    ///
    /// # Errors
    /// [`BufferError::InUse`], [`BufferError::TooSmall`], [`BufferError::NoPage`],
    /// [`BufferError::Device`].
    pub fn create_log(
        area: &LogArea,
        home_bytes: u64,
        id: LogId,
        force: bool,
    ) -> Result<(), BufferError> {
        has_a_page(home_bytes)?;
        recover::create(&area.device, home_bytes, id, force)
    }

    /// The id that the log in `area` was made with.
    ///
    /// # Errors
    /// [`BufferError::NoLog`], [`BufferError::Corrupt`], [`BufferError::Device`] and those of an
    /// area that can hold none.
    pub fn log_id(area: &LogArea) -> Result<LogId, BufferError> {
        recover::log_id(&*area.device)
    }

    /// Buffers `home`; with a log, what that holds is recovered first. The log is cleaned as on a
    /// device with the costs [`Costs::ASSUMED`].
    ///
    /// # Errors
    /// Every class of [`BufferError`] but `InUse`.
    pub fn open(
        home: Arc<dyn BlockDevice>,
        log: Option<LogArea>,
        options: BufferOptions,
    ) -> Result<Buffer, BufferError> {
        Self::open_measured(home, log, options, None)
    }

    /// As [`Buffer::open`]; the log is cleaned as the costs of the device want it, measured by
    /// `clock`.
    ///
    /// # Errors
    /// As [`Buffer::open`].
    pub fn open_measured(
        mut home: Arc<dyn BlockDevice>,
        mut log: Option<LogArea>,
        options: BufferOptions,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Buffer, BufferError> {
        let measured = clock.map(|clock| Arc::new(CostDevice::new(Arc::clone(&home), clock)));
        if let Some(measured) = &measured {
            home = measured.clone();
            if let Some(area) = log.as_mut().filter(|area| area.same_medium) {
                area.device = Arc::new(measured.beside(Arc::clone(&area.device)));
            }
        }
        let below = home.geometry();
        if below.read_only {
            return Err(BufferError::ReadOnly);
        }
        has_a_page(below.size_bytes)?;
        let geometry = Geometry { volatile_cache: true, fua: true, barrier: false, ..below };
        let same_medium = log.as_ref().is_some_and(|area| area.same_medium);
        if log.is_some() {
            // What a killed process wrote to its place may still be volatile.
            home.flush(OWN)?;
        }
        let log = log.map(|area| recover::open(area.device, below.size_bytes)).transpose()?;
        let log = log.map(|(ring, map)| Log::new(ring, map));
        let recovered_pages = log.as_ref().map_or(0, |log| log.map.len() as u64);
        let mut state = State {
            home,
            measured,
            same_medium,
            options,
            ram: Ram::default(),
            log,
            home_owed: false,
            now: Duration::ZERO,
            requests: 0,
            requests_at_tick: 0,
            last_request: Duration::ZERO,
            failed: None,
            status: Status { recovered_pages, ..Status::default() },
        };
        state.leave_zone()?;
        Ok(Buffer { geometry, state: Mutex::new(state) })
    }

    /// Time goes on: relaxed data that is due is written, and without requests since
    /// `idle_after` a piece of RAM is drained or a step of cleaning done. True: call again at once,
    /// as long as no request comes.
    ///
    /// # Errors
    /// The error of the device below; the buffer has latched.
    pub fn tick(&self, now: Duration) -> Result<bool, DeviceError> {
        let mut state = self.state.lock();
        state.latched()?;
        state.now = now;
        if state.requests != state.requests_at_tick {
            state.requests_at_tick = state.requests;
            state.last_request = now;
        }
        let idle = now.saturating_sub(state.last_request) >= state.options.idle_after;
        let result = state.expire().and_then(|()| if idle { state.idle() } else { Ok(false) });
        state.latch(result)
    }

    /// Returns the options in force.
    pub fn options(&self) -> BufferOptions {
        self.state.lock().options.clone()
    }

    /// Replaces the options. Data in RAM beyond the new limits is written out before this returns;
    /// relaxed data whose limit is 0 is then durable.
    ///
    /// # Errors
    /// The error of the device below; the buffer has latched.
    pub fn configure(&self, options: BufferOptions) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        state.latched()?;
        state.options = options;
        let result = state.shrink();
        state.latch(result)
    }

    /// Relaxed data that waits in these bytes is strict from now on: the next flush covers it.
    pub fn harden(&self, bytes: std::ops::Range<u64>) {
        self.state.lock().ram.harden(bytes.start / PAGE..bytes.end.div_ceil(PAGE));
    }

    /// Writes everything to its place, durably: afterwards the device below is plain data and the
    /// log is empty.
    ///
    /// # Errors
    /// The error of the device below; the buffer has latched.
    pub fn drain(&self) -> Result<(), DeviceError> {
        let mut state = self.state.lock();
        state.latched()?;
        let result = state.drain();
        state.latch(result)
    }

    /// Counts and fill levels now.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        let mut status = state.status;
        status.ram_pages = state.ram.pages.len() as u64;
        status.relaxed_pages = state.ram.relaxed_pages() as u64;
        status.latched = state.failed.is_some();
        if let Some(log) = &state.log {
            status.ring_used_pages = log.ring.used();
            status.ring_pages = log.ring.pages();
            status.mapped_pages = log.map.len() as u64;
        }
        status
    }
}

impl BlockDevice for Buffer {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch.iter() {
            self.geometry.check(request)?;
        }
        let mut state = self.state.lock();
        state.requests += 1;
        let (mut durable, mut relaxed_too) = (false, false);
        let mut writes = false;
        for request in batch.iter_mut() {
            match &mut request.op {
                Op::Read { into } => state.read(request.offset_bytes, into)?,
                Op::Flush => {
                    durable = true;
                    relaxed_too |= request.origin.durability == Durability::Relaxed;
                }
                Op::Write { fua, .. } => {
                    durable |= *fua;
                    writes = true;
                }
                Op::Discard { .. } => writes = true,
            }
        }
        if !durable && !writes {
            return Ok(());
        }
        state.latched()?;
        let result = state.change(batch, durable, relaxed_too);
        state.latch(result)
    }
}

impl State {
    /// Costs of the device, or those assumed.
    pub(crate) fn costs(&self) -> Costs {
        self.measured.as_ref().map_or(Costs::ASSUMED, |measured| measured.costs())
    }

    /// The error that stopped the buffer, with its meaning for the caller.
    fn latched(&self) -> Result<(), DeviceError> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(DeviceError::Io {
                op: "write",
                offset_bytes: 0,
                len_bytes: 0,
                reason: format!(
                    "the write buffer stopped after an error ({error}); detach it, correct the \
                     device and attach it again"
                ),
                errno: 5,
            }),
        }
    }

    /// After an error in something that writes nothing is certain: no later flush may succeed.
    fn latch<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        if let Err(error) = &result {
            if self.failed.is_none() {
                self.failed = Some(error.clone());
            }
        }
        result
    }

    /// After a start the write pointer of the zone at the head may be anywhere behind it: what the
    /// log has goes to its place, and the log goes on in the next zone.
    fn leave_zone(&mut self) -> Result<(), DeviceError> {
        if !self.log.as_ref().is_some_and(|log| log.ring.is_within_zone()) {
            return Ok(());
        }
        self.clean_all()?;
        self.log.as_mut().map_or(Ok(()), |log| log.ring.skip_zone())
    }

    /// The writes and discards of a batch, then the flush if one was asked for.
    fn change(
        &mut self,
        batch: &[Request<'_>],
        durable: bool,
        relaxed_too: bool,
    ) -> Result<(), DeviceError> {
        for request in batch {
            match &request.op {
                Op::Write { from, .. } => {
                    self.write(request.offset_bytes, from, request.len_bytes(), request.origin)?;
                }
                Op::Discard { len_bytes } => self.discard(request, *len_bytes)?,
                Op::Read { .. } | Op::Flush => {}
            }
        }
        if durable {
            return self.flush(relaxed_too);
        }
        // Without RAM nothing can wait, relaxed or not.
        if self.options.ram_bytes == 0 { self.write_out_all() } else { self.evict() }
    }

    /// Sectors that a page of the device has: fewer in the last one.
    pub(crate) fn full(&self, logical: u64) -> u8 {
        let left = self.home.geometry().size_bytes.saturating_sub(logical * PAGE) / SECTOR_BYTES;
        if left >= SECTORS as u64 { u8::MAX } else { (1 << left) - 1 }
    }
}
