//! Open files, their contents, and syncs.

use rustix::fs::OFlags;
use syncline_fs::{FallocateMode, FsError, Result};

use super::Serve;
use super::atomic;
use super::privileges::{drop_capabilities, drop_privileges};
use crate::caller::Caller;
use crate::handle::Handle;
use crate::wakeup::WritebackUrgency;

/// Bytes copied at once by copy_file_range.
const COPY_BYTES: usize = 1 << 20;
/// Bytes that one copy_file_range copies at most; the program calls again.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// Values of `whence` that reach a file system (lseek(2)).
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Flags of open(2) for synchronous writes; O_SYNC includes O_DSYNC.
const O_DSYNC: u32 = 0o10_000;
const O_SYNC: u32 = 0o4_010_000;

/// Flags of a WRITE: of the kernel's cache, and by somebody without privileges.
const WRITE_CACHE: u32 = 1;
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// A place in a file: inode and byte offset.
type Place = (u32, u64);

/// Demands of an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OpenHow {
    /// O_RDONLY or O_RDWR.
    pub(crate) read: bool,
    /// O_WRONLY or O_RDWR.
    pub(crate) write: bool,
    /// O_APPEND.
    pub(crate) append: bool,
    /// The kernel's cache stays right beside writes that go past it.
    pub(crate) may_bypass: bool,
}

impl OpenHow {
    pub(crate) fn new(flags: OFlags, may_bypass: bool) -> OpenHow {
        OpenHow {
            read: !flags.contains(OFlags::WRONLY),
            write: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
            append: flags.contains(OFlags::APPEND),
            may_bypass,
        }
    }
}

/// Demands of an open file on a write, besides the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteHow {
    /// Durable before it returns: O_DSYNC.
    pub(crate) dsync: bool,
    /// With all of the inode: O_SYNC.
    pub(crate) sync: bool,
    /// On the device before it returns, durable or not: O_DIRECT.
    pub(crate) direct: bool,
    /// Pages of the kernel's cache, of whatever program: the handle may be another's.
    of_cache: bool,
    /// Not through the kernel's cache, which takes capabilities away itself.
    uncached: bool,
    /// O_APPEND.
    pub(crate) append: bool,
    /// Set-id bits go, because somebody without privileges writes.
    drop_set_id: bool,
}

impl WriteHow {
    /// `bypasses`: the file was opened to be written past the kernel's cache.
    pub(crate) fn new(flags: OFlags, write_flags: u32, bypasses: bool) -> WriteHow {
        let direct = flags.contains(OFlags::DIRECT);
        // After a synchronous write through its cache the kernel sends an fsync by itself; after a
        // direct one it may not, if nobody waits for the write (io_uring).
        let uncached = direct || bypasses;
        let synced = |by: u32| uncached && flags.bits() & by == by;
        WriteHow {
            dsync: synced(O_DSYNC),
            sync: synced(O_SYNC),
            direct,
            of_cache: write_flags & WRITE_CACHE != 0,
            uncached,
            append: flags.contains(OFlags::APPEND),
            drop_set_id: write_flags & WRITE_KILL_SUIDGID != 0,
        }
    }
}

/// Opens a file or directory.
pub(crate) fn open(serve: &Serve, ino: u32, how: OpenHow) -> Result<Handle> {
    serve.vol.check_running()?;
    let inode = serve.inode(ino)?;
    serve.vol.check_open(&inode, how.write, how.append)?;
    Ok(serve.handles.next(serve.nodes.open(&inode, how.write), how.write))
}

/// Closes what an open or create has opened, and calls `contents_changed` if that aborts an atomic
/// write.
pub(crate) fn release(
    serve: &Serve,
    ino: u32,
    handle: Handle,
    contents_changed: impl FnOnce(),
) -> Result<()> {
    if atomic::abort(serve, handle) {
        contents_changed();
    }
    if let Ok(inode) = serve.inode(ino) {
        // Nobody waits for the answer of a close; a failed write has latched the volume.
        let _ = serve.vol.close(&inode);
    }
    serve.nodes.release(ino, handle.writes_bypassing());
    Ok(())
}

/// Reads into `into`; returns the bytes read.
pub(crate) fn read(
    serve: &Serve,
    (ino, offset): Place,
    (handle, flags): (Handle, OFlags),
    into: &mut [u8],
) -> Result<usize> {
    serve.status.reads.add(into.len());
    serve.status.traffic.read(ino, into.len());
    // The kernel caches what it reads.
    let staged = serve.atomics.with(handle, |own| serve.vol.read_atomic(own, offset, &mut *into));
    match staged {
        Some(read) => read,
        None if flags.contains(OFlags::NOATIME) => {
            serve.vol.read_unseen(&serve.inode(ino)?, offset, into)
        }
        None => serve.vol.read_once(&serve.inode(ino)?, offset, into),
    }
}

pub(crate) fn write(
    serve: &Serve,
    caller: Caller,
    (ino, offset): Place,
    (handle, data): (Handle, &[u8]),
    how: WriteHow,
) -> Result<usize> {
    serve.status.writes.add(data.len());
    serve.status.traffic.written(ino, data.len());
    if !how.of_cache {
        let staged = serve.atomics.with(handle, |own| match how.direct {
            true => Err(FsError::invalid("O_DIRECT within an atomic write")),
            false => serve.vol.write_atomic(own, offset, data),
        });
        if let Some(written) = staged {
            return written;
        }
    }
    let inode = serve.inode(ino)?;
    if how.drop_set_id {
        drop_privileges(serve, caller, &inode)?;
    }
    if how.uncached {
        drop_capabilities(serve, &inode)?;
    }
    if how.sync || how.dsync {
        let from = serve.clock.now_ns();
        let done = serve.vol.write_sync(&inode, offset, data, !how.sync)?;
        serve.status.synced(serve.clock.now_ns().saturating_sub(from));
        return Ok(done);
    }
    let done = serve.vol.write(&inode, offset, data)?;
    serve.wakeup.wake(WritebackUrgency::of(&serve.vol));
    // Eager mode puts the data of the next fsync into its log; until then nobody waits for it.
    if how.direct && !serve.eager {
        serve.vol.writeback_range(&inode, offset, done as u64)?;
    }
    Ok(done)
}

/// Makes a file or directory durable.
pub(crate) fn fsync(serve: &Serve, ino: u32, datasync: bool) -> Result<()> {
    let from = serve.clock.now_ns();
    serve.vol.fsync(&serve.inode(ino)?, datasync)?;
    serve.status.traffic.synced(ino);
    serve.status.synced(serve.clock.now_ns().saturating_sub(from));
    Ok(())
}

/// Allocates, punches or zeroes; `mode` is that of fallocate(2).
pub(crate) fn fallocate(serve: &Serve, ino: u32, mode: i32, offset: u64, len: u64) -> Result<()> {
    let mode = match mode {
        0x00 => FallocateMode::Allocate,
        0x01 => FallocateMode::KeepSize,
        0x03 => FallocateMode::PunchHole,
        0x10 => FallocateMode::ZeroRange,
        0x11 => FallocateMode::ZeroRangeKeepSize,
        _ => return Err(FsError::NotSupported("a mode of fallocate".to_owned())),
    };
    serve.vol.fallocate(&serve.inode(ino)?, mode, offset, len)
}

/// Finds data or a hole from `offset` on.
pub(crate) fn seek(serve: &Serve, ino: u32, offset: i64, whence: i32) -> Result<u64> {
    let offset = u64::try_from(offset).map_err(|_| FsError::NoSuchOffset)?;
    let inode = serve.inode(ino)?;
    match whence {
        SEEK_DATA => serve.vol.seek_data(&inode, offset),
        SEEK_HOLE => serve.vol.seek_hole(&inode, offset),
        _ => Err(FsError::invalid("whence of lseek")),
    }
}

/// Copies a range; returns the bytes copied, at most [`COPY_BYTES_MAX`].
pub(crate) fn copy(serve: &Serve, from: Place, to: Place, len: u64) -> Result<u64> {
    let (source, target) = (serve.inode(from.0)?, serve.inode(to.0)?);
    let len = len.min(COPY_BYTES_MAX);
    let mut buffer = vec![0; COPY_BYTES.min(len as usize)];
    let mut done = 0;
    while done < len {
        let want = buffer.len().min((len - done) as usize);
        let step = serve
            .vol
            .read(&source, from.1.saturating_add(done), &mut buffer[..want])
            .and_then(|n| serve.vol.write(&target, to.1.saturating_add(done), &buffer[..n]));
        match step {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(_) if done > 0 => break,
            Err(err) => return Err(err),
        }
    }
    Ok(done)
}
