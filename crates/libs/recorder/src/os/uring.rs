//! O_DIRECT with io_uring and registered buffers: no page cache, no copy in the kernel, and the
//! writer does not wait for the device.
//!
//! ```text
//!   append: copy into a free buffer -> one queue entry -> submit, return
//!   lower:  wait until the writes of the event are done, fdatasync, report
//! ```
//!
//! Files come from a pool as in `pool.rs`: zeroed, so that a direct write converts no extents.
//! Slots must be multiples of 4096 bytes. If all buffers are in flight, append waits for one: the
//! device is slower than the data, and the ring's slack is what is left.
//!
//! Invariant (why the unsafe code is sound): a buffer that the kernel may read is never touched; it
//! is marked in flight before its entry is queued and free only once its completion was seen. The
//! buffers are freed after the ring, and the ring only after every completion.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;

use super::paper::Open;
use super::pool::PoolStrategy;
use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::machine::PIECE_BYTES;
use crate::strategy::{Done, Job, Strategy};

/// Alignment that direct I/O is sure to take.
const ALIGN_BYTES: usize = 4096;
/// Buffers, and writes in flight at most.
const BUFFERS: usize = 16;
/// Poll interval of the lower thread.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// Why io_uring cannot be used.
fn refused(err: &dyn std::fmt::Display) -> RecorderError {
    RecorderError::Usage(format!("io_uring: {err}; use the pool strategy"))
}

/// Aligned memory: a vector of pages.
#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; ALIGN_BYTES]);

#[derive(Default)]
struct Flight {
    /// Writes that are not done, by event.
    outstanding: u32,
    failed: Option<String>,
}

struct Ring {
    /// Before the buffers, so that it is dropped first.
    ring: IoUring,
    buffers: Vec<Vec<Page>>,
    /// Event and length of the write that each buffer is in.
    busy: [Option<(u64, u32)>; BUFFERS],
    flights: BTreeMap<u64, Flight>,
}

/// See the module's description.
pub struct UringStrategy {
    pool: PoolStrategy,
    ring: Mutex<Ring>,
}

impl UringStrategy {
    /// Events go into `dir`.
    ///
    /// # Errors
    /// Slots that are not multiples of 4096 bytes, no io_uring, no spare files.
    pub fn new(dir: PathBuf, config: &Config) -> Result<UringStrategy> {
        let slot = config.slot_bytes() as usize;
        if slot % ALIGN_BYTES != 0 {
            let text = "direct I/O needs slots of multiples of 4096 bytes; align them to 4096";
            return Err(RecorderError::Usage(text.to_owned()));
        }
        let bytes = (PIECE_BYTES / slot).max(1) * slot;
        let pages = vec![Page([0; ALIGN_BYTES]); bytes / ALIGN_BYTES];
        let mut buffers = vec![pages; BUFFERS];
        let ring = IoUring::new(BUFFERS as u32).map_err(|err| refused(&err))?;
        let vectors: Vec<libc::iovec> = (buffers.iter_mut())
            .map(|b| libc::iovec { iov_base: b.as_mut_ptr().cast(), iov_len: bytes })
            .collect();
        // SAFETY: the buffers are allocated, never resized, and dropped after the ring (field
        // order), whose end takes the registration with it.
        unsafe { ring.submitter().register_buffers(&vectors) }.map_err(|err| refused(&err))?;
        let ring = Ring { ring, buffers, busy: [None; BUFFERS], flights: BTreeMap::new() };
        let pool = PoolStrategy::direct(dir, config)?;
        Ok(UringStrategy { pool, ring: Mutex::new(ring) })
    }

    /// Waits until no write of `event` is in flight; the lock is free while it waits.
    fn wait_until_idle(&self, event: u64) -> Result<()> {
        loop {
            {
                let mut ring = self.ring.lock();
                ring.reap();
                let flight = ring.flights.entry(event).or_default();
                if flight.outstanding == 0 {
                    return flight.failed.take().map_or(Ok(()), |why| {
                        Err(RecorderError::io(format!("direct write of event {event}"), &why))
                    });
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Ring {
    /// Takes what is done.
    fn reap(&mut self) {
        while let Some(entry) = self.ring.completion().next() {
            let Some(busy) = self.busy.get_mut(entry.user_data() as usize) else { continue };
            let Some((event, len)) = busy.take() else { continue };
            let flight = self.flights.entry(event).or_default();
            flight.outstanding = flight.outstanding.saturating_sub(1);
            let result = entry.result();
            if result < 0 {
                flight.failed = Some(std::io::Error::from_raw_os_error(-result).to_string());
            } else if u32::try_from(result) != Ok(len) {
                flight.failed = Some(format!("{result} of {len} bytes were written"));
            }
        }
    }

    /// A buffer that the kernel does not use; waits for one if there is none.
    fn free_buffer(&mut self) -> Result<usize> {
        loop {
            self.reap();
            if let Some(index) = self.busy.iter().position(Option::is_none) {
                return Ok(index);
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(refused(&err)),
            }
        }
    }

    fn write(&mut self, open: &Open, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        let index = self.free_buffer()?;
        if let Some(why) = self.flights.get_mut(&event).and_then(|flight| flight.failed.take()) {
            return Err(RecorderError::io(format!("direct write of event {event}"), &why));
        }
        let (Some(buffer), Ok(len)) = (self.buffers.get_mut(index), u32::try_from(slots.len()))
        else {
            return Err(refused(&"no buffer"));
        };
        if slots.len() > buffer.len() * ALIGN_BYTES {
            return Err(refused(&"the piece is longer than a buffer"));
        }
        for (page, from) in buffer.iter_mut().zip(slots.chunks(ALIGN_BYTES)) {
            page.0[..from.len()].copy_from_slice(from);
        }
        let fd = types::Fd(open.file.as_raw_fd());
        let entry = opcode::WriteFixed::new(fd, buffer.as_ptr().cast(), len, index as u16)
            .offset(offset)
            .build()
            .user_data(index as u64);
        self.busy[index] = Some((event, len));
        self.flights.entry(event).or_default().outstanding += 1;
        // SAFETY: the buffer is registered, as long as `len` (checked above) and marked in flight,
        // so that nobody touches it before its completion; the file stays open until the event's
        // writes are done.
        let queued = unsafe { self.ring.submission().push(&entry) };
        if queued.is_err() {
            // Cannot be: there are as many entries as buffers. Nothing was queued.
            self.busy[index] = None;
            self.flights.entry(event).or_default().outstanding -= 1;
            return Err(refused(&"the queue is full"));
        }
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(err) => return Err(refused(&err)),
            }
        }
    }
}

impl Strategy for UringStrategy {
    fn begin(&self, event: u64) -> Result<()> {
        self.pool.begin(event)
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        let open = self.pool.open(event)?;
        self.ring.lock().write(&open, event, offset, slots)
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        let idle = self.wait_until_idle(job.event());
        if matches!(job, Job::Finish { .. }) {
            self.ring.lock().flights.remove(&job.event());
            // The file is closed in any case.
            let done = self.pool.lower(job)?;
            return idle.map(|()| done);
        }
        idle?;
        self.pool.lower(job)
    }

    fn prepare(&self) -> Result<bool> {
        self.pool.prepare()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.reap();
        while self.busy.iter().any(Option::is_some) {
            let waited = self.ring.submit_and_wait(1);
            if waited.is_err_and(|err| err.kind() != std::io::ErrorKind::Interrupted) {
                // Without the ring nobody can say what the kernel still reads: keep the memory.
                std::mem::forget(std::mem::take(&mut self.buffers));
                return;
            }
            self.reap();
        }
    }
}
