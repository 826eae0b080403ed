//! The unsafe part: entries of a ring, and memory that is shared with the kernel.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::abi;

/// User data of the entry that waits for workers; the others are tags.
pub(super) const WAKE: u64 = u64::MAX;

/// The ring of control commands, one at a time.
pub(super) struct ControlRing {
    ring: IoUring<Entry128, cqueue::Entry>,
    file: File,
}

impl ControlRing {
    pub(super) fn new(file: File) -> io::Result<ControlRing> {
        Ok(ControlRing { ring: IoUring::builder().build(2)?, file })
    }

    /// One command on `buffer`; what the kernel says of it.
    pub(super) fn command(
        &mut self,
        number: u32,
        id: u32,
        buffer: &mut [u8],
        data: u64,
    ) -> io::Result<()> {
        // Its own memory: if the wait fails, the kernel may still use it.
        let mut shared: Box<[u8]> = buffer.into();
        let length = u16::try_from(shared.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let command = abi::control(id, shared.as_mut_ptr() as u64, length, data);
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, number).cmd(command).build();
        // SAFETY: the entry's only pointer is to `shared`, `length` bytes, which nobody touches
        // until its completion was seen and which stays allocated if that does not come; the file
        // is open as long as the ring, which is dropped before it.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
                Err(err) => {
                    Box::leak(shared);
                    return Err(err);
                }
            }
            if let Some(done) = self.ring.completion().next() {
                buffer.copy_from_slice(&shared);
                let result = done.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                };
            }
        }
    }
}

/// A ring for a queue, which can send its commands, wait, and do nothing else.
pub struct UblkRing(IoUring);

impl UblkRing {
    /// A ring; a process that gives up its rights makes it before.
    ///
    /// # Errors
    /// The kernel has no rings, or its policy allows none.
    pub fn new() -> io::Result<UblkRing> {
        // An entry for each tag and one to wait.
        let entries = u32::from(abi::QUEUE_DEPTH) * 2;
        let ring = IoUring::builder().setup_r_disabled().build(entries)?;
        let mut allowed =
            [opcode::UringCmd16::CODE, opcode::PollAdd::CODE].map(Restriction::sqe_op);
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(UblkRing(ring))
    }
}

/// The ring of one queue.
pub(super) struct QueueRing<'a> {
    ring: IoUring,
    file: &'a File,
    wake: RawFd,
}

impl<'a> QueueRing<'a> {
    /// Requests come through `file`; `wake` becomes readable when workers have results.
    pub(super) fn new(ring: UblkRing, file: &'a File, wake: &'a impl AsRawFd) -> QueueRing<'a> {
        QueueRing { ring: ring.0, file, wake: wake.as_raw_fd() }
    }

    /// Queues a command of a tag; [`QueueRing::wait`] sends it.
    pub(super) fn push_io(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, number).cmd(abi::io(tag, result)).build();
        self.push(&entry.user_data(tag.into()))
    }

    /// Queues the wait for workers.
    pub(super) fn push_wake(&mut self) -> io::Result<()> {
        let readable = 1; // POLLIN
        let entry = opcode::PollAdd::new(types::Fd(self.wake), readable).build();
        self.push(&entry.user_data(WAKE))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: no entry of this ring has a pointer; both files outlive the ring (lifetime).
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }

    /// Sends what is queued, and waits until so many are done: user data and result of each.
    pub(super) fn wait(&mut self, many: usize, done: &mut Vec<(u64, i32)>) -> io::Result<()> {
        match self.ring.submit_and_wait(many) {
            Err(err) if err.kind() != io::ErrorKind::Interrupted => return Err(err),
            _ => {}
        }
        done.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        Ok(())
    }
}

/// The descriptors of a queue, which the kernel writes.
pub(super) struct Descriptors {
    memory: *mut c_void,
    bytes: usize,
}

impl Descriptors {
    /// Those of queue 0 of a device.
    pub(super) fn map(file: &File) -> io::Result<Descriptors> {
        // The kernel rounds it to pages.
        let bytes = usize::from(abi::QUEUE_DEPTH) * abi::DESCRIPTOR_BYTES;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at a place that the kernel chooses, read-only.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, flags, file, 0)? };
        Ok(Descriptors { memory, bytes })
    }

    /// The descriptor of a tag. Its request was fetched, so that the kernel leaves it alone.
    pub(super) fn get(&self, tag: u16) -> Option<[u8; abi::DESCRIPTOR_BYTES]> {
        if tag >= abi::QUEUE_DEPTH {
            return None;
        }
        let memory = self.memory.cast::<[u8; abi::DESCRIPTOR_BYTES]>();
        // SAFETY: there are QUEUE_DEPTH descriptors in the mapping, which is as old as `self`; any
        // bytes are a value. Volatile, because the kernel writes them.
        Some(unsafe { memory.add(tag.into()).read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference into it was given out.
        let unmapped = unsafe { munmap(self.memory, self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}
