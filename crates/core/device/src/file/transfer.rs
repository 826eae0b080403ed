//! One read or write of scattered buffers with `preadv`/`pwritev`, continued until complete.
//!
//! A durable write is `pwritev2` with `RWF_DSYNC`. Where there is none (Linux before 4.7, qemu's
//! emulation of system calls) it is a write and an `fdatasync` behind it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::fs::fdatasync;
use rustix::io::{Errno, ReadWriteFlags, preadv, pwritev, pwritev2};

/// `IOV_MAX`: buffers per system call.
pub(super) const BUFFERS_MAX: usize = 1024;

/// A prepared read or write.
pub(super) struct Transfer<'a> {
    pub(super) file: &'a File,
    pub(super) offset: u64,
    pub(super) parts: Parts<'a>,
}

/// Its buffers.
pub(super) enum Parts<'a> {
    /// Fill these.
    Read(Vec<IoSliceMut<'a>>),
    /// Store these, durably on completion where `dsync`; through a ring into this stream.
    Write { from: Vec<IoSlice<'a>>, dsync: bool, stream: u8 },
}

impl<'a> Transfer<'a> {
    /// A write.
    pub(super) fn write(file: &'a File, offset: u64, from: Vec<&'a [u8]>, dsync: bool) -> Self {
        let from = from.into_iter().map(IoSlice::new).collect();
        Transfer { file, offset, parts: Parts::Write { from, dsync, stream: 0 } }
    }

    /// A write into a stream, which is a hint.
    pub(super) fn into_stream(mut self, to: u8) -> Self {
        if let Parts::Write { stream, .. } = &mut self.parts {
            *stream = to;
        }
        self
    }

    /// A read.
    pub(super) fn read(file: &'a File, offset: u64, into: Vec<&'a mut [u8]>) -> Self {
        let into = into.into_iter().map(IoSliceMut::new).collect();
        Transfer { file, offset, parts: Parts::Read(into) }
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        match &self.parts {
            Parts::Read(into) => into.iter().map(|b| b.len()).sum(),
            Parts::Write { from, .. } => from.iter().map(|b| b.len()).sum(),
        }
    }

    /// Number of buffers.
    pub(super) fn buffers(&self) -> usize {
        match &self.parts {
            Parts::Read(into) => into.len(),
            Parts::Write { from, .. } => from.len(),
        }
    }

    /// Does it all with system calls, through interruptions and short transfers.
    pub(super) fn run(self) -> io::Result<()> {
        let Transfer { file, mut offset, parts } = self;
        match parts {
            Parts::Write { mut from, mut dsync, .. } => {
                let mut sync_behind = false;
                let mut rest = &mut from[..];
                IoSlice::advance_slices(&mut rest, 0);
                while !rest.is_empty() {
                    let part = &rest[..rest.len().min(BUFFERS_MAX)];
                    let written = if dsync {
                        pwritev2(file, part, offset, ReadWriteFlags::DSYNC)
                    } else {
                        pwritev(file, part, offset)
                    };
                    let done = match written {
                        Err(Errno::INTR) => continue,
                        Err(Errno::NOSYS | Errno::OPNOTSUPP) if dsync => {
                            (dsync, sync_behind) = (false, true);
                            continue;
                        }
                        done => done?,
                    };
                    if done == 0 {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    offset += done as u64;
                    IoSlice::advance_slices(&mut rest, done);
                }
                if sync_behind {
                    fdatasync(file)?;
                }
            }
            Parts::Read(mut into) => {
                let mut rest = &mut into[..];
                IoSliceMut::advance_slices(&mut rest, 0);
                while !rest.is_empty() {
                    let len = rest.len().min(BUFFERS_MAX);
                    let done = match preadv(file, &mut rest[..len], offset) {
                        Err(Errno::INTR) => continue,
                        done => done?,
                    };
                    if done == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    offset += done as u64;
                    IoSliceMut::advance_slices(&mut rest, done);
                }
            }
        }
        Ok(())
    }
}
