//! A device whose writes are done by a thread, so that the next files of a tree are read while the
//! image is still being written.
//!
//! ```text
//!   submit -> full parts -> a thread -> the device
//!          <- empty parts, and the first error
//! ```
//! Promises: writes keep their order. Every other request, such as a read or a flush, first waits
//! until all earlier writes are done. A write that fails makes a later request fail, the next flush
//! at the latest; that request is not carried out. Memory: [`PARTS_MAX`] buffers, each as long as
//! the longest write that it has held.
//!
//! Channels would do the same, with ten times the code in the program.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use syncline_device::{BlockDevice, DeviceError, Geometry, Op, Origin, Request};

type Result<T> = std::result::Result<T, DeviceError>;

/// Writes that wait or are being done.
const PARTS_MAX: usize = 4;

/// Bytes, where they go, and why.
type Part = (Vec<u8>, u64, Origin);

struct State {
    full: VecDeque<Part>,
    /// Parts that are not with the thread.
    empty: Vec<Vec<u8>>,
    failed: Option<DeviceError>,
    ends: bool,
}

/// Shared by the device and its thread.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// The state once it is so. Nobody panics with the lock.
    fn once(&self, is_so: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_while(state, |state| !is_so(state));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.once(|_| true));
        self.changed.notify_all();
    }

    /// Waits for all writes.
    fn settle(&self) -> Result<()> {
        self.once(|state| state.empty.len() == PARTS_MAX).failed.take().map_or(Ok(()), Err)
    }

    fn write(&self, offset: u64, from: &[&[u8]], origin: Origin) -> Result<()> {
        let mut state = self.once(|state| !state.empty.is_empty());
        if let Some(err) = state.failed.take() {
            return Err(err);
        }
        let mut part = state.empty.pop().unwrap_or_default();
        drop(state);
        part.clear();
        from.iter().for_each(|bytes| part.extend_from_slice(bytes));
        self.change(|state| state.full.push_back((part, offset, origin)));
        Ok(())
    }

    /// The thread.
    fn serve(&self, device: &dyn BlockDevice) {
        loop {
            let next = self.once(|state| state.ends || !state.full.is_empty()).full.pop_front();
            let Some((part, offset, origin)) = next else { return };
            let written = device.write(offset, &part, origin);
            self.change(|state| {
                state.empty.push(part);
                if let Err(err) = written {
                    state.failed.get_or_insert(err);
                }
            });
        }
    }
}

/// A device whose writes are done by a thread, which ends with it.
pub(crate) struct Behind {
    device: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
    /// None: the system has no more threads.
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    pub(crate) fn new(device: impl BlockDevice + 'static) -> Behind {
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let state = State {
            full: VecDeque::new(),
            empty: vec![Vec::new(); PARTS_MAX],
            failed: None,
            ends: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let (theirs, to) = (Arc::clone(&shared), Arc::clone(&device));
        let thread = std::thread::Builder::new().spawn(move || theirs.serve(&*to));
        Behind { device, shared, thread: thread.ok() }
    }
}

impl BlockDevice for Behind {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<()> {
        if self.thread.is_none() {
            return self.device.submit(batch);
        }
        for request in batch {
            match &request.op {
                Op::Write { from, fua: false } => {
                    self.shared.write(request.offset_bytes, from, request.origin)?;
                }
                _ => {
                    self.shared.settle()?;
                    self.device.submit(std::slice::from_mut(request))?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.shared.change(|state| state.ends = true);
        if let Some(thread) = self.thread.take() {
            // Nothing is written behind what comes next, as the removal of the file.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_device::{Kind, MemoryDevice};

    use super::*;

    const ORIGIN: Origin = Origin::new(Kind::Metadata, true);

    #[test]
    fn writes_keep_their_order_and_reads_see_them() {
        let device = Behind::new(MemoryDevice::new(1 << 20));
        let mut bytes = [0; 512];
        for round in 0..200_u8 {
            device.write(0, &[round; 4096], ORIGIN).unwrap();
            device.write(512, &[round + 1; 512], ORIGIN).unwrap();
            device.read(512, &mut bytes, ORIGIN).unwrap();
            assert_eq!(bytes, [round + 1; 512]);
        }
        device.flush(ORIGIN).unwrap();
        device.read(0, &mut bytes, ORIGIN).unwrap();
        assert_eq!(bytes, [199; 512]);
    }

    #[test]
    fn a_write_that_fails_is_heard_of() {
        let device = Behind::new(MemoryDevice::new(4096));
        device.write(0, &[1; 512], ORIGIN).unwrap();
        device.write(1 << 20, &[1; 512], ORIGIN).unwrap();
        assert!(device.flush(ORIGIN).is_err());
        device.flush(ORIGIN).unwrap();
    }
}
