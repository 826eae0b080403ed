//! A device that fails on order: the k-th operation errors, is done in part, or lies.
//!
//! Promises
//! - [`FaultPlan::at`] counts operations of the plan's class from the moment it was armed, from 1;
//!   every request of a batch is one operation. Nothing else changes: requests before the failing
//!   one in the batch reach the device below as one batch.
//! - After an error in a batch the rest of the batch is not done.
//! - Every plan is exact and repeatable; there is no randomness.
//!
//! Assumes that one thread at a time cares which operation is the k-th. Tested below.

use parking_lot::Mutex;

use crate::{BlockDevice, DeviceError, Geometry, Op, Request, SECTOR_BYTES};

/// Operations that a plan counts and hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpClass {
    /// All of them.
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// Discards.
    Discard,
}

/// Effect on an operation that is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done; the caller gets an I/O error with this errno.
    Error {
        /// Linux errno, 5 for EIO.
        errno: i32,
    },
    /// A read or write is done for its first `sectors` sectors (all but the last at most), then
    /// EIO. Others just fail.
    Short {
        /// Sectors that are done.
        sectors: u64,
    },
    /// Success is reported and nothing is done. A read then returns zeroes.
    FaultyFlush,
}

/// The time and the class of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Class of the operations that are counted.
    pub class: OpClass,
    /// The first one hit, counted from 1 since arming. Zero hits nothing.
    pub at: u64,
    /// True if every later operation of the class is hit too.
    pub persistent: bool,
    /// Effect on the operation.
    pub fault: Fault,
}

impl FaultPlan {
    /// The `at`-th operation of `class` fails once with EIO.
    pub const fn once(class: OpClass, at: u64) -> Self {
        FaultPlan { class, at, persistent: false, fault: Fault::Error { errno: 5 } }
    }

    /// All operations of `class` from the `at`-th on fail with EIO.
    pub const fn from_then_on(class: OpClass, at: u64) -> Self {
        FaultPlan { class, at, persistent: true, fault: Fault::Error { errno: 5 } }
    }
}

/// Operations seen, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
}

impl OpCounts {
    /// Returns the number of operations of this class.
    pub fn of(&self, class: OpClass) -> u64 {
        match class {
            OpClass::Any => self.reads + self.writes + self.flushes + self.discards,
            OpClass::Read => self.reads,
            OpClass::Write => self.writes,
            OpClass::Flush => self.flushes,
            OpClass::Discard => self.discards,
        }
    }
}

#[derive(Default)]
struct State {
    plan: Option<FaultPlan>,
    /// Operations of the plan's class since it was armed.
    seen: u64,
    hits: u64,
    counts: OpCounts,
}

impl State {
    /// Counts one operation and returns its fault, if any.
    fn next(&mut self, op: &Op<'_>) -> Option<Fault> {
        let (class, count) = match op {
            Op::Read { .. } => (OpClass::Read, &mut self.counts.reads),
            Op::Write { .. } => (OpClass::Write, &mut self.counts.writes),
            Op::Flush => (OpClass::Flush, &mut self.counts.flushes),
            Op::Discard { .. } => (OpClass::Discard, &mut self.counts.discards),
        };
        *count += 1;
        let plan = self.plan.filter(|p| p.class == OpClass::Any || p.class == class)?;
        self.seen += 1;
        let hit = self.seen == plan.at || (plan.persistent && plan.at > 0 && self.seen > plan.at);
        self.hits += u64::from(hit);
        hit.then_some(plan.fault)
    }
}

/// Fails operations of `D` on order. See the module's description.
pub struct FailingDevice<D> {
    inner: D,
    state: Mutex<State>,
}

impl<D: BlockDevice> FailingDevice<D> {
    /// Fails nothing until armed.
    pub fn new(inner: D) -> Self {
        FailingDevice { inner, state: Mutex::default() }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Arms a plan, replacing the one before; counting towards it starts now.
    pub fn arm(&self, plan: FaultPlan) {
        let mut state = self.state.lock();
        state.plan = Some(plan);
        (state.seen, state.hits) = (0, 0);
    }

    /// From now on nothing fails.
    pub fn disarm(&self) {
        self.state.lock().plan = None;
    }

    /// Operations since the device was made.
    pub fn counts(&self) -> OpCounts {
        self.state.lock().counts
    }

    /// Returns the number of hits of the plan that was armed last.
    pub fn hits(&self) -> u64 {
        self.state.lock().hits
    }

    fn inject(&self, fault: Fault, request: &mut Request<'_>) -> Result<(), DeviceError> {
        let (offset_bytes, len_bytes) = (request.offset_bytes, request.len_bytes());
        let failed = |errno| DeviceError::Io {
            op: request.name(),
            offset_bytes,
            len_bytes,
            reason: "injected fault".to_string(),
            errno,
        };
        match fault {
            Fault::Error { errno } => Err(failed(errno)),
            Fault::Short { sectors } => {
                let error = failed(5);
                let all_but_one = (len_bytes / SECTOR_BYTES).saturating_sub(1);
                let done_bytes = sectors.min(all_but_one) * SECTOR_BYTES;
                if done_bytes > 0 {
                    self.do_prefix(request, done_bytes)?;
                }
                Err(error)
            }
            Fault::FaultyFlush => {
                if let Op::Read { into } = &mut request.op {
                    into.iter_mut().for_each(|b| b.fill(0));
                }
                Ok(())
            }
        }
    }

    fn do_prefix(&self, request: &mut Request<'_>, len_bytes: u64) -> Result<(), DeviceError> {
        let mut left = len_bytes;
        let mut take = |len: usize| {
            let part = (len as u64).min(left);
            left -= part;
            part as usize
        };
        let op = match &mut request.op {
            Op::Read { into } => {
                let into = into.iter_mut().map(|b| {
                    let len = take(b.len());
                    &mut b[..len]
                });
                Op::Read { into: into.filter(|b| !b.is_empty()).collect() }
            }
            Op::Write { from, fua } => {
                let from = from.iter().map(|b| &b[..take(b.len())]).filter(|b| !b.is_empty());
                Op::Write { from: from.collect(), fua: *fua }
            }
            Op::Flush | Op::Discard { .. } => return Ok(()),
        };
        let (offset_bytes, origin) = (request.offset_bytes, request.origin);
        self.inner.submit(&mut [Request { offset_bytes, op, origin }])
    }
}

impl<D: BlockDevice> BlockDevice for FailingDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let mut done = 0;
        for index in 0..batch.len() {
            // The lock is released before the device below works.
            let fault = self.state.lock().next(&batch[index].op);
            let Some(fault) = fault else { continue };
            if done < index {
                self.inner.submit(&mut batch[done..index])?;
            }
            self.inject(fault, &mut batch[index])?;
            done = index + 1;
        }
        if done < batch.len() { self.inner.submit(&mut batch[done..]) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, Origin};

    const OTHER: Origin = Origin::new(Kind::Other, true);

    fn device() -> FailingDevice<MemoryDevice> {
        FailingDevice::new(MemoryDevice::new(1 << 20))
    }

    fn sector(device: &FailingDevice<MemoryDevice>, at: u64) -> u8 {
        let mut buffer = [0xEE; 512];
        device.inner().read_at(at * 512, &mut buffer).unwrap();
        buffer[0]
    }

    #[test]
    fn the_kth_write_fails_once() {
        let device = device();
        device.write(0, &[1; 512], OTHER).unwrap();
        device.arm(FaultPlan::once(OpClass::Write, 2));
        device.write(0, &[2; 512], OTHER).unwrap();
        device.flush(OTHER).unwrap();
        let error = device.write(512, &[3; 512], OTHER).unwrap_err();
        assert!(matches!(error, DeviceError::Io { op: "write", offset_bytes: 512, errno: 5, .. }));
        device.write(1024, &[4; 512], OTHER).unwrap();
        assert_eq!([sector(&device, 0), sector(&device, 1), sector(&device, 2)], [2, 0, 4]);
        assert_eq!(
            (device.hits(), device.counts().writes, device.counts().of(OpClass::Any)),
            (1, 4, 5)
        );
    }

    #[test]
    fn a_persistent_fault_stays_until_disarmed() {
        let device = device();
        device.arm(FaultPlan::from_then_on(OpClass::Flush, 2));
        let results: Vec<bool> = (0..4).map(|_| device.flush(OTHER).is_ok()).collect();
        assert_eq!(results, [true, false, false, false]);
        device.disarm();
        assert!(device.flush(OTHER).is_ok());
    }

    #[test]
    fn a_short_write_does_a_prefix_of_its_scattered_buffers() {
        let device = device();
        let fault = Fault::Short { sectors: 3 };
        device.arm(FaultPlan { class: OpClass::Any, at: 1, persistent: false, fault });
        let (a, b) = ([1; 1024], [2; 1024]);
        let op = Op::Write { from: vec![&a, &b], fua: false };
        let request = Request { offset_bytes: 0, op, origin: OTHER };
        assert!(device.submit(&mut [request]).is_err());
        let got: Vec<u8> = (0..4).map(|i| sector(&device, i)).collect();
        assert_eq!(got, [1, 1, 2, 0]);
    }

    #[test]
    fn lies_report_success() {
        let device = device();
        device.write(0, &[7; 512], OTHER).unwrap();
        device.arm(FaultPlan {
            class: OpClass::Any,
            at: 1,
            persistent: true,
            fault: Fault::FaultyFlush,
        });
        device.write(0, &[8; 512], OTHER).unwrap();
        let mut buffer = [1; 512];
        device.read(0, &mut buffer, OTHER).unwrap();
        assert_eq!((buffer, sector(&device, 0)), ([0; 512], 7));
    }

    #[test]
    fn in_a_batch_the_requests_before_are_done_and_those_after_are_not() {
        let device = device();
        device.arm(FaultPlan::once(OpClass::Write, 2));
        let bytes = [[1; 512], [2; 512], [3; 512]];
        let mut batch: Vec<Request<'_>> = Vec::new();
        for (i, bytes) in bytes.iter().enumerate() {
            let op = Op::Write { from: vec![bytes], fua: false };
            batch.push(Request { offset_bytes: i as u64 * 512, op, origin: OTHER });
        }
        assert!(device.submit(&mut batch).is_err());
        assert_eq!([sector(&device, 0), sector(&device, 1), sector(&device, 2)], [1, 0, 0]);
    }
}
