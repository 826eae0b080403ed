//! io_uring for batches: a group of transfers is queued, submitted with one system call and waited
//! for.
//!
//! Invariant (the reason why the unsafe code is sound): [`Ring::run`] returns only when the kernel
//! holds no entry that points into the transfers' buffers. After an error of the ring itself the
//! entries that the kernel took are waited for, the others are dropped with the ring, which is then
//! never used again.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, ReadWriteFlags};

use super::transfer::{BUFFERS_MAX, Parts, Transfer};

/// A ring, until it fails.
pub(super) struct Ring {
    ring: Option<IoUring>,
}

impl Ring {
    /// A ring for this many transfers at once; `None` where the kernel or its policy has none that
    /// can do transfers and nothing else (before Linux 5.10). A filter of system calls does not see
    /// the others.
    pub(super) fn new(entries: usize) -> Option<Ring> {
        let entries = u32::try_from(entries).ok()?;
        let ring = IoUring::builder().setup_r_disabled().build(entries).ok()?;
        let transfers = [opcode::Readv::CODE, opcode::Writev::CODE];
        let mut allowed = transfers.map(Restriction::sqe_op);
        ring.submitter().register_restrictions(&mut allowed).ok()?;
        ring.submitter().register_enable_rings().ok()?;
        Some(Ring { ring: Some(ring) })
    }

    /// True if the ring has not failed.
    pub(super) fn is_usable(&self) -> bool {
        self.ring.is_some()
    }

    /// Does the transfers and says which ones were done in full. `None`s and transfers with too
    /// many buffers are left undone.
    pub(super) fn run(&mut self, transfers: &mut [Option<Transfer<'_>>]) -> Vec<bool> {
        let mut done = vec![false; transfers.len()];
        let Some(ring) = &mut self.ring else { return done };
        let mut queued = 0;
        for (index, transfer) in transfers.iter_mut().enumerate() {
            let Some(transfer) = transfer.as_mut().filter(|t| t.buffers() <= BUFFERS_MAX) else {
                continue;
            };
            let entry = entry(transfer).user_data(index as u64);
            // SAFETY: the entry's buffers and iovec array live in `transfers`, which this function
            // borrows mutably until it has seen the completion of every entry that the kernel took.
            queued += usize::from(unsafe { ring.submission().push(&entry) }.is_ok());
        }
        let healthy = wait(ring, queued, |index, result| {
            let transfer = transfers.get(index as usize).and_then(Option::as_ref);
            let len = transfer.map(Transfer::len);
            if let Some(slot) = done.get_mut(index as usize) {
                *slot = usize::try_from(result).ok() == len;
            }
        });
        if !healthy {
            self.ring = None;
        }
        done
    }
}

/// The queue entry of a transfer.
fn entry(transfer: &mut Transfer<'_>) -> io_uring::squeue::Entry {
    let fd = types::Fd(transfer.file.as_raw_fd());
    let offset = transfer.offset;
    // Buffer counts are at most BUFFERS_MAX. IoSlice has the layout of iovec, as std promises.
    match &mut transfer.parts {
        Parts::Read(into) => {
            let count = into.len() as u32;
            opcode::Readv::new(fd, into.as_mut_ptr().cast(), count).offset(offset).build()
        }
        Parts::Write { from, dsync, stream } => {
            let flags = if *dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let writev = opcode::Writev::new(fd, from.as_ptr().cast(), from.len() as u32);
            writev.offset(offset).rw_flags(flags.bits() as _).write_stream(*stream).build()
        }
    }
}

/// Submits what is queued and collects the completions. False if the ring is not usable any more;
/// even then nothing of what the kernel took is outstanding.
fn wait(ring: &mut IoUring, queued: usize, mut completed: impl FnMut(u64, i32)) -> bool {
    let (mut taken, mut finished, mut healthy) = (0, 0, true);
    loop {
        for entry in ring.completion() {
            finished += 1;
            completed(entry.user_data(), entry.result());
        }
        if finished == queued || (!healthy && finished == taken) {
            return healthy;
        }
        if !healthy {
            // Completions arrive without the ring's system call; any call lets them in.
            rustix::thread::sched_yield();
            continue;
        }
        match ring.submit_and_wait(queued - finished) {
            Ok(count) => taken += count,
            // An error means that the kernel took nothing in this call (io_uring_enter(2)).
            Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Err(_) => healthy = false,
        }
    }
}
