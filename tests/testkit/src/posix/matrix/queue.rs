//! Writes of which several are under way at once: io_submit and io_uring.
//!
//! Invariant (why the unsafe code is sound): `write` returns only when the kernel has ended every
//! write that points into the caller's bytes, or else the process ends.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::PAGE_BYTES;

/// Writes under way at once.
const DEPTH: usize = 4;

/// A way to have several writes under way.
pub(super) trait Queue {
    /// Writes it all, in pieces; returns when the last one is done.
    fn write(&mut self, file: &File, piece: &[u8], offset: u64) -> Result<()>;
}

/// The pieces of a write: whole pages.
fn pieces(piece: &[u8]) -> std::slice::Chunks<'_, u8> {
    piece.chunks(piece.len().div_ceil(DEPTH).next_multiple_of(PAGE_BYTES))
}

fn done_in_full(result: i64, len: usize) -> Result<()> {
    match i32::try_from(result) {
        Ok(errno) if errno < 0 => Err(Error::from_raw_os_error(-errno)),
        _ if usize::try_from(result) == Ok(len) => Ok(()),
        _ => Err(Error::other(format!("{result} bytes of {len} were written"))),
    }
}

/// Linux's native asynchronous I/O (io_submit(2)), as libaio has it.
pub(super) struct Aio(libc::c_ulong);

impl Aio {
    pub(super) fn new() -> Result<Aio> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: io_setup writes one word, which is there.
        match unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) } {
            0 => Ok(Aio(context)),
            _ => Err(Error::last_os_error()),
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nothing is under way in it: see the module.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// `struct io_event` (linux/aio_abi.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

/// `IOCB_CMD_PWRITE` (linux/aio_abi.h).
const PWRITE: u16 = 1;

impl Queue for Aio {
    fn write(&mut self, file: &File, piece: &[u8], offset: u64) -> Result<()> {
        let mut at = offset;
        let mut blocks = Vec::new();
        for part in pieces(piece) {
            // SAFETY: numbers alone; zero is what the fields that are not used want.
            let mut block: libc::iocb = unsafe { std::mem::zeroed() };
            block.aio_lio_opcode = PWRITE;
            block.aio_fildes = file.as_raw_fd().cast_unsigned();
            block.aio_buf = part.as_ptr() as u64;
            block.aio_nbytes = part.len() as u64;
            block.aio_offset = at.cast_signed();
            at += part.len() as u64;
            blocks.push(block);
        }
        let mut pointers: Vec<_> = blocks.iter_mut().map(std::ptr::from_mut).collect();
        let count = pointers.len();
        // SAFETY: `pointers` are `count` control blocks, and what those point to is borrowed until
        // this returns, before which all that were taken are waited for.
        let taken =
            unsafe { libc::syscall(libc::SYS_io_submit, self.0, count, pointers.as_mut_ptr()) };
        let refused = Error::last_os_error();
        let mut events = [Event::default(); DEPTH];
        let mut ended = 0;
        let mut failed = if taken == count as libc::c_long { None } else { Some(refused) };
        while ended < taken {
            let none = std::ptr::null::<libc::timespec>();
            // SAFETY: there is room for DEPTH events, and no more than that were taken.
            let got = unsafe {
                let (id, room) = (libc::SYS_io_getevents, events.as_mut_ptr());
                libc::syscall(id, self.0, 1, DEPTH, room, none)
            };
            let Ok(got) = usize::try_from(got) else { continue };
            ended += got as libc::c_long;
            for event in &events[..got] {
                // Its length is that of its block, whose address it has.
                let block = blocks.iter().find(|b| std::ptr::from_ref(*b) as u64 == event.obj);
                let len = block.map_or(0, |block| block.aio_nbytes as usize);
                failed = failed.or(done_in_full(event.res, len).err());
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// io_uring.
pub(super) struct Uring(IoUring);

impl Uring {
    pub(super) fn new() -> Result<Uring> {
        IoUring::new(DEPTH as u32).map(Uring)
    }

    /// Submits and waits; each entry carries its length.
    fn run(&mut self, entries: &[io_uring::squeue::Entry]) -> Result<Vec<i32>> {
        // SAFETY: the callers' bytes are borrowed until this returns, and it waits for all of them.
        // There is room for all.
        let pushed = unsafe { self.0.submission().push_multiple(entries) };
        pushed.map_err(Error::other)?;
        let mut results = Vec::new();
        let mut failed = None;
        while results.len() < entries.len() {
            // What was submitted cannot be left to itself: the bytes are the caller's.
            match self.0.submit_and_wait(1) {
                Err(err) if err.kind() != std::io::ErrorKind::Interrupted => std::process::abort(),
                _ => {}
            }
            for entry in self.0.completion() {
                let len = entry.user_data() as usize;
                failed = failed.or(done_in_full(i64::from(entry.result()), len).err());
                results.push(entry.result());
            }
        }
        failed.map_or(Ok(results), Err)
    }

    /// Reads the range in pieces, which must be in the file.
    pub(super) fn read(&mut self, file: &File, into: &mut [u8]) -> Result<()> {
        let len = into.len().div_ceil(DEPTH);
        let fd = types::Fd(file.as_raw_fd());
        let entries: Vec<_> = into
            .chunks_mut(len)
            .enumerate()
            .map(|(nr, part)| {
                let read = opcode::Read::new(fd, part.as_mut_ptr(), part.len() as u32);
                read.offset((nr * len) as u64).build().user_data(part.len() as u64)
            })
            .collect();
        self.run(&entries).map(drop)
    }
}

impl Queue for Uring {
    fn write(&mut self, file: &File, piece: &[u8], offset: u64) -> Result<()> {
        let fd = types::Fd(file.as_raw_fd());
        let mut at = offset;
        let entries: Vec<_> = pieces(piece)
            .map(|part| {
                let write = opcode::Write::new(fd, part.as_ptr(), part.len() as u32).offset(at);
                at += part.len() as u64;
                write.build().user_data(part.len() as u64)
            })
            .collect();
        self.run(&entries).map(drop)
    }
}
