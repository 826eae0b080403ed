//! The unsafe part: a ring whose commands point to memory of entries, the copy of a device,
//! and the size of a page.
//!
//! Invariant: the kernel reads and writes the memory of an entry from the moment its command is
//! pushed until the completion of that command was seen ([`Entry::is_lent`]). References to it are
//! made only in between, and it is freed only then: an entry that is still lent when its ring goes
//! leaves its memory allocated.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::ioctl::{Setter, ioctl};

use super::Device;

/// `FUSE_DEV_IOC_CLONE`.
const CLONE: u32 = 0x8004_e500;

/// Pause before the kernel is asked for memory again.
const PAUSE: Duration = Duration::from_millis(1);

/// Numbers of commands (linux/fuse.h).
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// `struct fuse_uring_req_header`: a header, the structure of the request, and sizes.
const HEADERS_BYTES: usize = 288;
const FIXED: std::ops::Range<usize> = 128..256;
const COMMIT_ID: usize = 264;
const PAYLOAD_SIZE: usize = 272;

/// Makes `device`, which is /dev/fuse, one more queue of the mount of another.
pub(super) fn clone_device(device: impl AsFd, of: BorrowedFd<'_>) -> io::Result<()> {
    let number = of.as_raw_fd() as u32;
    // SAFETY: the request reads 32 bits, a descriptor that is open during the call.
    unsafe { ioctl(device, Setter::<CLONE, u32>::new(number)) }.map_err(io::Error::from)
}

/// Bytes of a page, without a file of /proc.
pub(super) fn page_bytes() -> u32 {
    // SAFETY: a call without pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(bytes).expect("a page has less than 4 GiB")
}

/// A ring that can send commands to devices and do nothing else.
pub(super) struct Ring(IoUring<Entry128, cqueue::Entry>);

impl Ring {
    /// A ring for so many entries.
    ///
    /// # Errors
    /// The kernel has no rings, or its policy allows none.
    pub(super) fn new(entries: u32) -> io::Result<Ring> {
        let mut builder = IoUring::builder();
        let ring = builder.setup_r_disabled().setup_coop_taskrun().build(entries)?;
        let mut allowed = [Restriction::sqe_op(opcode::UringCmd80::CODE)];
        ring.submitter().register_restrictions(&mut allowed)?;
        ring.submitter().register_enable_rings()?;
        Ok(Ring(ring))
    }
}

/// Memory of one request at a time: its headers, and a payload.
struct Entry {
    queue: u16,
    headers: NonNull<[u8; HEADERS_BYTES]>,
    payload: NonNull<[u8]>,
    /// The kernel's view of both, read when the entry is registered.
    parts: Vec<libc::iovec>,
    is_lent: bool,
}

impl Entry {
    fn new(queue: u16, payload_bytes: usize) -> Entry {
        let headers = NonNull::from(Box::leak(Box::new([0; HEADERS_BYTES])));
        let payload = NonNull::from(Box::leak(vec![0; payload_bytes].into_boxed_slice()));
        let part = |base: NonNull<u8>, bytes| libc::iovec {
            iov_base: base.as_ptr().cast(),
            iov_len: bytes,
        };
        let parts = vec![part(headers.cast(), HEADERS_BYTES), part(payload.cast(), payload_bytes)];
        Entry { queue, headers, payload, parts, is_lent: false }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.is_lent {
            std::mem::forget(std::mem::take(&mut self.parts));
            return;
        }
        // SAFETY: both were leaked boxes, and nobody else has them (see the module).
        unsafe {
            drop(Box::from_raw(self.headers.as_ptr()));
            drop(Box::from_raw(self.payload.as_ptr()));
        }
    }
}

/// Entries of a worker, and its ring.
pub(super) struct Entries {
    // Dropped before the memory that its commands point to.
    ring: Ring,
    device: Device,
    entries: Vec<Entry>,
}

/// A request in an entry, or what was said about the entry instead.
pub(super) type Completion = (usize, Result<(), io::Error>);

/// Parts of a request, and the memory for its answer.
pub(super) struct Parts<'a> {
    pub(super) header: &'a mut [u8],
    pub(super) fixed: &'a [u8],
    /// Names and data; the answer may be written over them.
    pub(super) payload: &'a mut [u8],
    /// Bytes of names and data.
    pub(super) payload_len: usize,
}

impl Entries {
    /// One entry of each of the kernel's queues.
    pub(super) fn new(ring: Ring, device: Device, queues: &[u16], payload_bytes: usize) -> Entries {
        let entries = queues.iter().map(|queue| Entry::new(*queue, payload_bytes)).collect();
        Entries { ring, device, entries }
    }

    /// Entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The queue of an entry.
    pub(super) fn queue(&self, index: usize) -> u16 {
        self.entries[index].queue
    }

    /// Reports whether the kernel has an entry.
    pub(super) fn is_lent(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_lent)
    }

    /// Gives an entry to the kernel for the first time.
    pub(super) fn register(&mut self, index: usize) {
        self.push(index, REGISTER, 0);
    }

    /// Gives an entry back with an answer: its header and payload are in place.
    pub(super) fn commit(&mut self, index: usize, len: usize) {
        let headers = self.headers(index);
        let id = headers[COMMIT_ID..].first_chunk().map_or(0, |id| u64::from_ne_bytes(*id));
        headers[PAYLOAD_SIZE..][..4].copy_from_slice(&(len as u32).to_ne_bytes());
        self.push(index, COMMIT_AND_FETCH, id);
    }

    fn push(&mut self, index: usize, number: u32, commit_id: u64) {
        let entry = &mut self.entries[index];
        assert!(!entry.is_lent, "an entry that the kernel has");
        // `struct fuse_uring_cmd_req`: flags, commit id, queue.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let fd = types::Fd(self.device.as_fd().as_raw_fd());
        let pushed = opcode::UringCmd80::new(fd, number).cmd(command);
        let mut pushed = pushed.addr(Some(entry.parts.as_ptr() as u64)).build();
        pushed.set_len(entry.parts.len() as u32);
        let pushed = pushed.user_data(index as u64);
        // SAFETY: the pointers of the command are `parts` and what they point to. All of it lives
        // until a completion of this entry was seen, or for ever; the device is open as long as the
        // ring.
        let pushed = unsafe { self.ring.0.submission().push(&pushed) };
        pushed.expect("a ring has room for each of its entries");
        entry.is_lent = true;
    }

    /// Sends what was pushed. What the kernel refuses at once is in [`Entries::completed`].
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.ring.0.submit().map(drop)
    }

    /// A completion that is there.
    pub(super) fn completed(&mut self) -> Option<Completion> {
        let done = self.ring.0.completion().next()?;
        let index = done.user_data() as usize;
        self.entries.get_mut(index)?.is_lent = false;
        let result = done.result();
        let done = if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) };
        Some((index, done))
    }

    /// Sends what was pushed and waits for a completion, also for memory that the kernel lacks.
    pub(super) fn wait(&mut self) -> io::Result<Completion> {
        loop {
            if let Some(done) = self.completed() {
                return Ok(done);
            }
            let Err(err) = self.ring.0.submit_and_wait(1) else { continue };
            match err.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock
                | io::ErrorKind::OutOfMemory
                | io::ErrorKind::ResourceBusy => std::thread::sleep(PAUSE),
                _ => return Err(err),
            }
        }
    }

    fn headers(&mut self, index: usize) -> &mut [u8; HEADERS_BYTES] {
        let entry = &mut self.entries[index];
        assert!(!entry.is_lent, "an entry that the kernel has");
        // SAFETY: the memory is this entry's, and the kernel does not have it.
        unsafe { entry.headers.as_mut() }
    }

    /// The request of an entry that was completed.
    pub(super) fn parts(&mut self, index: usize) -> Parts<'_> {
        let entry = &mut self.entries[index];
        assert!(!entry.is_lent, "an entry that the kernel has");
        // SAFETY: as in `headers`; the two do not overlap.
        let (headers, payload) = unsafe { (entry.headers.as_mut(), entry.payload.as_mut()) };
        let len = headers[PAYLOAD_SIZE..].first_chunk().map_or(0, |len| u32::from_ne_bytes(*len));
        let (header, rest) = headers.split_at_mut(FIXED.start);
        let payload_len = payload.len().min(len as usize);
        Parts { header, fixed: &rest[..FIXED.len()], payload, payload_len }
    }
}

/// The length of an entry, which the crate gives no command for a device.
trait SetLen {
    fn set_len(&mut self, len: u32);
}

impl SetLen for Entry128 {
    fn set_len(&mut self, len: u32) {
        const LEN: usize = 24;
        const _: () = assert!(size_of::<Entry128>() == 128);
        // SAFETY: an `Entry128` is `struct io_uring_sqe` with 128 bytes, whose `len` are the four
        // at 24; any value is one.
        unsafe { (&raw mut *self).byte_add(LEN).cast::<u32>().write_unaligned(len) }
    }
}
