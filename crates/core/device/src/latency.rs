//! A device whose commands take a fixed time, by a virtual or the wall clock.
//!
//! For tests of concurrency (does a write wait for another file's fsync?) and of timing without a
//! flash model. A batch takes the sum of its commands; batches of different threads overlap in wall
//! time. Tested below.

use std::sync::Arc;

use crate::{BlockDevice, Clock, DeviceError, Geometry, Op, Request};

/// Times of the commands of a [`LatencyDevice`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Nanoseconds per read.
    pub read_ns: u64,
    /// Nanoseconds per write.
    pub write_ns: u64,
    /// Nanoseconds per flush, and per FUA write on top of the write.
    pub flush_ns: u64,
    /// Nanoseconds per discard.
    pub discard_ns: u64,
}

impl Latencies {
    /// The same time for every command.
    pub const fn all(ns: u64) -> Self {
        Latencies { read_ns: ns, write_ns: ns, flush_ns: ns, discard_ns: ns }
    }

    fn of(&self, op: &Op<'_>) -> u64 {
        match op {
            Op::Read { .. } => self.read_ns,
            Op::Write { fua: false, .. } => self.write_ns,
            Op::Write { fua: true, .. } => self.write_ns.saturating_add(self.flush_ns),
            Op::Flush => self.flush_ns,
            Op::Discard { .. } => self.discard_ns,
        }
    }
}

/// Adds time to every command of `D`. See the module's description.
pub struct LatencyDevice<D> {
    inner: D,
    clock: Arc<dyn Clock>,
    latencies: Latencies,
}

impl<D: BlockDevice> LatencyDevice<D> {
    /// Commands of `inner` take `latencies` by `clock`.
    pub fn new(inner: D, clock: Arc<dyn Clock>, latencies: Latencies) -> Self {
        LatencyDevice { inner, clock, latencies }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: BlockDevice> BlockDevice for LatencyDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let time = |sum: u64, r: &Request<'_>| sum.saturating_add(self.latencies.of(&r.op));
        let done_ns = self.clock.now_ns().saturating_add(batch.iter().fold(0, time));
        let result = self.inner.submit(batch);
        self.clock.sleep_until(done_ns);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, Origin, VirtualClock};

    #[test]
    fn commands_move_the_virtual_clock() {
        let clock = Arc::new(VirtualClock::new(0));
        let times = Latencies { read_ns: 1, write_ns: 10, flush_ns: 100, discard_ns: 1000 };
        let device = LatencyDevice::new(MemoryDevice::new(8192), clock.clone(), times);
        let origin = Origin::new(Kind::Other, true);
        device.read(0, &mut [0; 512], origin).unwrap();
        device.write(0, &[0; 512], origin).unwrap();
        device.flush(origin).unwrap();
        device.discard(0, 512, origin).unwrap();
        assert_eq!(clock.now_ns(), 1111);
        device.write_durable(0, &[0; 512], origin).unwrap();
        assert_eq!(clock.now_ns(), 1221);
    }
}
