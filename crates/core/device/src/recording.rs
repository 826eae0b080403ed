//! A device that passes everything on and counts it: the block trace behind every metric.
//!
//! Promises
//! - Requests are counted at submission, in the order in which the device below gets them, also
//!   when they then fail. With events on, each carries its submission time from the [`Clock`].
//! - A phase is exact, bursts included. [`RecordingDevice::begin_phase`] ends the burst under way
//!   and returns the counts so far; `recording.counts() - start` then equals a recording that
//!   began there. [`RecordingDevice::counts`] changes nothing: the burst under way counts as if it
//!   ended now, so a phase may be looked at several times (foreground, then with its unmount).
//! - Counting costs one short lock per batch. The event list is bounded by the caller; what did not
//!   fit is counted in [`RecordingDevice::events_lost`].
//!
//! Tested below with hand-made request lists.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    BURST_SECTORS, BlockDevice, Clock, Counts, DeviceError, Geometry, Op, Origin, Request,
    SECTOR_BYTES,
};

/// Operation of a trace event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceOp {
    /// A read command.
    Read,
    /// A write command.
    Write,
    /// A flush command.
    Flush,
    /// A discard command.
    Discard,
}

/// One command of the block trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// When it was submitted, in nanoseconds of the recording's clock.
    pub time_ns: u64,
    /// Operation.
    pub op: TraceOp,
    /// First byte; zero for a flush.
    pub offset_bytes: u64,
    /// Length in bytes; zero for a flush.
    pub len_bytes: u64,
    /// Origin of the request.
    pub origin: Origin,
    /// True if the request was to be durable on completion.
    pub fua: bool,
}

#[derive(Default)]
struct State {
    /// Closed bursts only; [`State::closed`] adds the one under way.
    counts: Counts,
    burst_end_bytes: u64,
    burst_sectors: u64,
    events: Vec<TraceEvent>,
    events_lost: u64,
}

impl State {
    fn closed(&self) -> Counts {
        let mut counts = self.counts;
        if self.burst_sectors > 0 {
            counts.bursts += 1;
        }
        if self.burst_sectors > BURST_SECTORS {
            counts.sequential_sectors += self.burst_sectors;
        }
        counts
    }

    fn end_burst(&mut self) {
        self.counts = self.closed();
        self.burst_sectors = 0;
    }

    fn count(&mut self, request: &Request<'_>, geometry: Geometry) {
        let len = request.len_bytes();
        let counts = self.counts.kind_mut(request.origin.kind);
        match request.op {
            Op::Read { .. } => {
                counts.read_requests += 1;
                counts.read_bytes += len;
            }
            Op::Write { fua, .. } => {
                counts.write_requests += 1;
                counts.written_bytes += len;
                counts.fua_writes += u64::from(fua);
                counts.flushes += u64::from(fua && !geometry.fua);
                if request.offset_bytes != self.burst_end_bytes {
                    self.end_burst();
                }
                self.burst_sectors += len / SECTOR_BYTES;
                self.burst_end_bytes = request.offset_bytes.saturating_add(len);
            }
            Op::Flush if geometry.barrier && request.is_barrier() => counts.barriers += 1,
            Op::Flush => counts.flushes += 1,
            Op::Discard { .. } => {
                counts.discards += 1;
                counts.discarded_bytes += len;
            }
        }
    }
}

/// Counts, and on demand lists, every request to `D`. See the module's description.
pub struct RecordingDevice<D> {
    inner: D,
    geometry: Geometry,
    clock: Option<Arc<dyn Clock>>,
    events_max: usize,
    state: Mutex<State>,
}

impl<D: BlockDevice> RecordingDevice<D> {
    /// Counts only.
    pub fn new(inner: D) -> Self {
        let geometry = inner.geometry();
        RecordingDevice { inner, geometry, clock: None, events_max: 0, state: Mutex::default() }
    }

    /// Counts, and keeps the first `events_max` events with times of `clock`.
    pub fn with_events(inner: D, clock: Arc<dyn Clock>, events_max: usize) -> Self {
        RecordingDevice { clock: Some(clock), events_max, ..RecordingDevice::new(inner) }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Everything since the recording was made; a burst under way counts as if it ended now.
    pub fn counts(&self) -> Counts {
        self.state.lock().closed()
    }

    /// Ends the burst under way and returns the counts so far. Subtract them from a later
    /// [`RecordingDevice::counts`] to get the phase between.
    pub fn begin_phase(&self) -> Counts {
        let mut state = self.state.lock();
        state.end_burst();
        // A following write never continues the ended burst, wherever it starts: length zero.
        state.counts
    }

    /// Takes the events kept so far, oldest first.
    pub fn take_events(&self) -> Vec<TraceEvent> {
        std::mem::take(&mut self.state.lock().events)
    }

    /// Events that did not fit.
    pub fn events_lost(&self) -> u64 {
        self.state.lock().events_lost
    }
}

/// The event of a request that is submitted at `time_ns`.
pub(crate) fn event(request: &Request<'_>, time_ns: u64) -> TraceEvent {
    let (op, fua) = match request.op {
        Op::Read { .. } => (TraceOp::Read, false),
        Op::Write { fua, .. } => (TraceOp::Write, fua),
        Op::Flush => (TraceOp::Flush, false),
        Op::Discard { .. } => (TraceOp::Discard, false),
    };
    let (offset_bytes, len_bytes) = (request.offset_bytes, request.len_bytes());
    TraceEvent { time_ns, op, offset_bytes, len_bytes, origin: request.origin, fua }
}

impl<D: BlockDevice> BlockDevice for RecordingDevice<D> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        {
            let mut state = self.state.lock();
            for request in batch.iter() {
                state.count(request, self.geometry);
                let Some(clock) = &self.clock else { continue };
                if state.events.len() < self.events_max {
                    state.events.push(event(request, clock.now_ns()));
                } else {
                    state.events_lost += 1;
                }
            }
        }
        self.inner.submit(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, VirtualClock};

    const DATA: Origin = Origin::new(Kind::Data { inode: 12 }, true);
    const LOG: Origin = Origin::new(Kind::Journal, true);

    fn recording() -> RecordingDevice<MemoryDevice> {
        RecordingDevice::new(MemoryDevice::new(1 << 20))
    }

    #[test]
    fn kinds_are_counted_apart() {
        let device = recording();
        device.write(0, &[0; 4096], DATA).unwrap();
        device.write(65536, &[0; 8192], LOG).unwrap();
        device.flush(LOG).unwrap();
        device.read(0, &mut [0; 512], DATA).unwrap();
        device.discard(0, 4096, DATA).unwrap();
        let counts = device.counts();
        assert_eq!((counts.write_requests(), counts.written_bytes()), (2, 12288));
        assert_eq!((counts.data_bytes(), counts.journal_bytes()), (4096, 8192));
        assert_eq!((counts.flushes(), counts.journal.flushes), (1, 1));
        assert_eq!((counts.data.read_bytes, counts.data.discarded_bytes), (512, 4096));
        assert_eq!(counts.mean_write_sectors(), 12.0);
        assert_eq!(counts.bursts, 2);
    }

    #[test]
    fn fua_without_fua_counts_as_write_and_flush() {
        for (has_fua, flushes) in [(true, 0), (false, 1)] {
            let memory = MemoryDevice::new(8192).with_geometry(|g| g.fua = has_fua);
            let device = RecordingDevice::new(memory);
            let op = Op::Write { from: vec![&[0; 512]], fua: true };
            device.submit(&mut [Request { offset_bytes: 0, op, origin: LOG }]).unwrap();
            assert_eq!((device.counts().write_requests(), device.counts().flushes()), (1, flushes));
        }
    }

    #[test]
    fn bursts_longer_than_128_sectors_are_sequential() {
        let device = recording();
        // 128 sectors exactly, then away: not sequential.
        device.write(0, &[0; 65536], DATA).unwrap();
        device.write(131072, &[0; 512], DATA).unwrap();
        assert_eq!(device.counts().sequential_ratio(), 0.0);
        // 129 sectors over a flush and a read: sequential.
        device.write(262144, &[0; 65536], DATA).unwrap();
        device.flush(LOG).unwrap();
        device.read(0, &mut [0; 512], DATA).unwrap();
        device.write(262144 + 65536, &[0; 512], LOG).unwrap();
        let counts = device.counts();
        assert_eq!((counts.sequential_sectors, counts.bursts), (129, 3));
        assert_eq!(counts.sequential_ratio(), 129.0 / (128.0 + 1.0 + 129.0));
        assert_eq!(device.counts(), counts, "looking changes nothing");
    }

    #[test]
    fn a_phase_equals_a_recording_that_began_there() {
        let whole = recording();
        whole.write(0, &[0; 65536], DATA).unwrap();
        let start = whole.begin_phase();
        let alone = recording();
        for device in [&whole, &alone] {
            // Continues the burst of the phase before, but is only 100 sectors of this one.
            device.write(65536, &[0; 51200], DATA).unwrap();
            device.write(512, &[0; 66048], DATA).unwrap();
        }
        assert_eq!(whole.counts() - start, alone.counts());
        assert_eq!(alone.counts().sequential_sectors, 129);
    }

    #[test]
    fn events_carry_virtual_time_and_are_bounded() {
        let clock = Arc::new(VirtualClock::new(5));
        let device = RecordingDevice::with_events(MemoryDevice::new(8192), clock.clone(), 2);
        device.write(512, &[0; 1024], DATA).unwrap();
        clock.sleep_until(9);
        device.flush(LOG).unwrap();
        device.flush(LOG).unwrap();
        assert_eq!(device.events_lost(), 1);
        let write = TraceEvent {
            time_ns: 5,
            op: TraceOp::Write,
            offset_bytes: 512,
            len_bytes: 1024,
            origin: DATA,
            fua: false,
        };
        let events = device.take_events();
        assert_eq!((events.len(), events[0], events[1].time_ns), (2, write, 9));
        assert!(device.take_events().is_empty());
    }
}
