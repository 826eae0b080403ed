//! Writes that a thread does: a new image goes to its file while the tree is read.
//!
//! ```text
//!   submit -> full parts -> a thread -> the device
//!          <- empty parts, with what became of the write
//! ```
//! Promises: writes keep their order. Everything else waits until they are done. A write that fails
//! is the error of a later request; before a flush returns all were heard of. Memory:
//! [`PARTS_MAX`] parts as long as the writes.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use syncline_device::{BlockDevice, DeviceError, Geometry, Op, Origin, Request};

type Result<T> = std::result::Result<T, DeviceError>;

/// Writes that wait or are being done.
const PARTS_MAX: usize = 4;

/// Bytes, where they go, and why.
type Part = (Vec<u8>, u64, Origin);

/// The ends of the thread's queues.
struct Queues {
    full: Sender<Part>,
    done: Receiver<(Vec<u8>, Result<()>)>,
    /// Parts that are not with the thread.
    empty: Vec<Vec<u8>>,
}

impl Queues {
    /// Takes back a part.
    fn taken(&mut self) -> Result<()> {
        let Ok((part, done)) = self.done.recv() else { return Err(ended()) };
        self.empty.push(part);
        done
    }

    /// Waits for all writes.
    fn settle(&mut self) -> Result<()> {
        let mut first = Ok(());
        while self.empty.len() < PARTS_MAX {
            let done = self.taken();
            first = first.and(done);
        }
        first
    }

    fn write(&mut self, offset: u64, from: &[&[u8]], origin: Origin) -> Result<()> {
        if self.empty.is_empty() {
            self.taken()?;
        }
        let mut part = self.empty.pop().unwrap_or_default();
        part.clear();
        from.iter().for_each(|bytes| part.extend_from_slice(bytes));
        self.full.send((part, offset, origin)).map_err(|_| ended())
    }
}

fn ended() -> DeviceError {
    let reason = "the thread that writes ended".to_owned();
    DeviceError::Io { op: "write", offset_bytes: 0, len_bytes: 0, reason, errno: 5 }
}

/// A device whose writes are done by a thread, which ends with it.
pub(crate) struct Behind {
    device: Arc<dyn BlockDevice>,
    /// None: the system has no more threads, or it ends.
    queues: Option<Mutex<Queues>>,
    thread: Option<JoinHandle<()>>,
}

impl Behind {
    pub(crate) fn new(device: impl BlockDevice + 'static) -> Behind {
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let (full, parts) = channel::<Part>();
        let (back, done) = channel();
        let to = Arc::clone(&device);
        let thread = std::thread::Builder::new().spawn(move || {
            for (part, offset, origin) in parts {
                let written = to.write(offset, &part, origin);
                if back.send((part, written)).is_err() {
                    return;
                }
            }
        });
        let empty = vec![Vec::new(); PARTS_MAX];
        let queues = thread.is_ok().then(|| Mutex::new(Queues { full, done, empty }));
        Behind { device, queues, thread: thread.ok() }
    }
}

impl BlockDevice for Behind {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<()> {
        let Some(queues) = &self.queues else { return self.device.submit(batch) };
        // Nobody panics with the lock.
        let mut queues = queues.lock().unwrap_or_else(PoisonError::into_inner);
        for request in batch {
            match &request.op {
                Op::Write { from, fua: false } => {
                    queues.write(request.offset_bytes, from, request.origin)?;
                }
                _ => {
                    queues.settle()?;
                    self.device.submit(std::slice::from_mut(request))?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        drop(self.queues.take());
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
