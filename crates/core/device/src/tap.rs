//! A device that passes everything on and tells an observer of each command.
//!
//! Promises
//! - The observer hears of a command after it has ended, well or not; those of a batch have the
//!   batch's time, because a device does them in any order.
//! - Nothing is kept here: what the observer does with a command is its own memory and time.
//!
//! Tested below; used by captures of a mount.

use std::sync::Arc;

use crate::recording::{TraceEvent, event};
use crate::{BlockDevice, Clock, DeviceError, Geometry, Request};

/// Receiver of the commands that pass through a [`TapDevice`].
pub trait Observer: Send + Sync {
    /// `event` took `latency_ns` nanoseconds from its submission.
    fn ended(&self, event: &TraceEvent, latency_ns: u64, result: &Result<(), DeviceError>);
}

/// Passes requests on to `D`. See the module's description.
pub struct TapDevice<D> {
    inner: D,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

impl<D: BlockDevice> TapDevice<D> {
    /// Tells `observer` of every command to `inner`, with times of `clock`.
    pub fn new(inner: D, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> TapDevice<D> {
        TapDevice { inner, clock, observer }
    }
}

impl<D: BlockDevice> BlockDevice for TapDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let from_ns = self.clock.now_ns();
        let events: Vec<TraceEvent> = batch.iter().map(|r| event(r, from_ns)).collect();
        let done = self.inner.submit(batch);
        let latency_ns = self.clock.now_ns().saturating_sub(from_ns);
        for event in &events {
            self.observer.ended(event, latency_ns, &done);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{Kind, Latencies, LatencyDevice, MemoryDevice, Op, Origin, TraceOp, VirtualClock};

    #[derive(Default)]
    struct Heard(Mutex<Vec<(TraceEvent, u64, bool)>>);

    impl Observer for Heard {
        fn ended(&self, event: &TraceEvent, latency_ns: u64, result: &Result<(), DeviceError>) {
            self.0.lock().push((*event, latency_ns, result.is_ok()));
        }
    }

    #[test]
    fn every_command_is_heard_with_its_time_and_its_end() {
        let clock = Arc::new(VirtualClock::new(100));
        let heard = Arc::new(Heard::default());
        let origin = Origin::new(Kind::Journal, true);
        let times = Latencies { read_ns: 1, write_ns: 5, flush_ns: 7, discard_ns: 0 };
        let memory = LatencyDevice::new(MemoryDevice::new(8192), clock.clone(), times);
        let device = TapDevice::new(memory, clock, heard.clone());
        let op = Op::Write { from: vec![&[0; 512], &[1; 512]], fua: true };
        device.submit(&mut [Request { offset_bytes: 512, op, origin }]).unwrap();
        device.flush(origin).unwrap();
        device.read(8192, &mut [0; 512], origin).unwrap_err();
        let heard = heard.0.lock();
        let write = TraceEvent {
            time_ns: 100,
            op: TraceOp::Write,
            offset_bytes: 512,
            len_bytes: 1024,
            origin,
            fua: true,
        };
        assert_eq!(heard[0], (write, 12, true));
        assert_eq!((heard[1].0.op, heard[1].0.time_ns, heard[1].1), (TraceOp::Flush, 112, 7));
        assert_eq!((heard[2].0.op, heard[2].2), (TraceOp::Read, false));
    }
}
