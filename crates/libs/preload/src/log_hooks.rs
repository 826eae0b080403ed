//! The functions that programs call in place of libc's on files that may be logs. A call on a log
//! is made there; every other one is passed on.
//!
//! This file is long because libc has many such functions; each is short.
//!
//! The variable arguments of `fcntl` are as those of `open` in `hooks`.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use libc::{FILE, iovec, off64_t, size_t, ssize_t};

use crate::log_file::{Errno, LogFile};
use crate::logs;
use crate::macros::{alike, hooks, pass_on};
use crate::system::{keeping_errno, set_errno, text};

/// libc's own.
mod real {
    use super::{FILE, c_char, c_int, c_long, c_uint, c_void, iovec, off64_t, size_t, ssize_t};
    use crate::macros::reals;
    use crate::system::Real;

    type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t) -> ssize_t;
    type Write = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;
    type Pwrite = unsafe extern "C" fn(c_int, *const c_void, size_t, off64_t) -> ssize_t;
    type Parts = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
    type PartsAt = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t) -> ssize_t;
    type PartsFlagged = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    type SetLen = unsafe extern "C" fn(c_int, off64_t) -> c_int;
    type SetLenOf = unsafe extern "C" fn(*const c_char, off64_t) -> c_int;
    type Reserve = unsafe extern "C" fn(c_int, off64_t, off64_t) -> c_int;
    type Allocate = unsafe extern "C" fn(c_int, c_int, off64_t, off64_t) -> c_int;
    type Map =
        unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off64_t) -> *mut c_void;
    type Send = unsafe extern "C" fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
    type Copy =
        unsafe extern "C" fn(c_int, *mut off64_t, c_int, *mut off64_t, size_t, c_uint) -> ssize_t;
    type Control = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
    type Path = unsafe extern "C" fn(*const c_char) -> c_int;
    type Stream = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;

    reals! {
        READ: Read = c"read";
        WRITE: Write = c"write";
        PREAD: Pread = c"pread64";
        PWRITE: Pwrite = c"pwrite64";
        READV: Parts = c"readv";
        WRITEV: Parts = c"writev";
        PREADV: PartsAt = c"preadv64";
        PWRITEV: PartsAt = c"pwritev64";
        PREADV2: PartsFlagged = c"preadv64v2";
        FTRUNCATE: SetLen = c"ftruncate64";
        TRUNCATE: SetLenOf = c"truncate64";
        POSIX_FALLOCATE: Reserve = c"posix_fallocate64";
        FALLOCATE: Allocate = c"fallocate64";
        MMAP: Map = c"mmap64";
        SENDFILE: Send = c"sendfile64";
        COPY_FILE_RANGE: Copy = c"copy_file_range";
        SPLICE: Copy = c"splice";
        CLOSE: unsafe extern "C" fn(c_int) -> c_int = c"close";
        CLOSE_RANGE: unsafe extern "C" fn(c_uint, c_uint, c_int) -> c_int = c"close_range";
        DUP: unsafe extern "C" fn(c_int) -> c_int = c"dup";
        DUP2: unsafe extern "C" fn(c_int, c_int) -> c_int = c"dup2";
        DUP3: unsafe extern "C" fn(c_int, c_int, c_int) -> c_int = c"dup3";
        FCNTL: Control = c"fcntl64";
        UNLINK: Path = c"unlink";
        UNLINKAT: unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int = c"unlinkat";
        REMOVE: Path = c"remove";
        FOPEN: Stream = c"fopen64";
        FDOPEN: unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE = c"fdopen";
        FREOPEN: unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE =
            c"freopen64";
        FCLOSE: unsafe extern "C" fn(*mut FILE) -> c_int = c"fclose";
        CREAT: unsafe extern "C" fn(*const c_char, libc::mode_t) -> c_int = c"creat64";
    }

    /// Type that the hooks of the functions with more arguments share.
    pub(super) type Word = c_long;
}

/// The result of a call on a log, as libc's: a number, or -1 and errno.
fn done(result: Result<usize, Errno>) -> ssize_t {
    result.map_or_else(
        |Errno(errno)| {
            set_errno(errno);
            -1
        },
        |bytes| bytes as ssize_t,
    )
}

fn good(result: Result<(), Errno>) -> c_int {
    done(result.map(|()| 0)) as c_int
}

/// Syncs the log of a descriptor; nothing if it has none.
pub(crate) fn syncs(fd: c_int) -> Option<c_int> {
    logs::of(fd)?.sync().map(good)
}

fn number(value: off64_t) -> Result<u64, Errno> {
    u64::try_from(value).map_err(|_| Errno(libc::EINVAL))
}

/// Offset that means the descriptor's position.
const HERE: off64_t = -1;

/// Bytes of the caller that a call reads.
///
/// # Safety
/// `count` parts at `parts`, each of readable memory.
unsafe fn parts_of<'a>(parts: *const iovec, count: c_int) -> Vec<&'a [u8]> {
    let count = usize::try_from(count).unwrap_or(0);
    let one = |index| {
        // SAFETY: by the caller's promise; an empty part may have no address.
        unsafe {
            let part = &*parts.add(index);
            match part.iov_len {
                0 => &[][..],
                len => std::slice::from_raw_parts(part.iov_base.cast::<u8>(), len),
            }
        }
    };
    (0..count).map(one).collect()
}

/// Calls `call` with `offset`, or with the position of the descriptor.
fn at_offset(
    fd: c_int,
    log_file: &LogFile,
    offset: off64_t,
    writes: bool,
    call: impl FnOnce(u64) -> Option<Result<usize, Errno>>,
) -> Option<ssize_t> {
    let result = match number(offset) {
        _ if offset == HERE => log_file.at_position(fd, writes, call),
        Ok(at) => call(at),
        Err(err) => Some(Err(err)),
    };
    result.map(done)
}

/// Writes to a log, at `offset` or at the descriptor's position.
fn write_parts(fd: c_int, log_file: &LogFile, parts: &[&[u8]], offset: off64_t) -> Option<ssize_t> {
    at_offset(fd, log_file, offset, true, |at| log_file.write(parts, at))
}

/// Writes what the caller's parts have, if the descriptor is of a log.
///
/// # Safety
/// As of pwritev.
pub(crate) unsafe fn writes(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
) -> Option<ssize_t> {
    let log_file = logs::of(fd)?;
    // SAFETY: by the caller's promise.
    write_parts(fd, log_file, &unsafe { parts_of(parts, count) }, offset)
}

/// Reads into the caller's parts, if the descriptor is of a log.
///
/// # Safety
/// As of preadv.
unsafe fn reads(fd: c_int, parts: *const iovec, count: c_int, offset: off64_t) -> Option<ssize_t> {
    let log_file = logs::of(fd)?;
    let read = |from: u64| {
        let mut total = 0;
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: by the caller's promise; an empty part may have no address.
            let into = unsafe {
                let part = &*parts.add(index);
                match part.iov_len {
                    0 => continue,
                    len => std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len),
                }
            };
            let wanted = into.len();
            match log_file.read(into, from + total as u64)? {
                Ok(read) => total += read,
                Err(err) => return Some(Err(err)),
            }
            if total < wanted {
                break;
            }
        }
        Some(Ok(total))
    };
    at_offset(fd, log_file, offset, false, read)
}

fn part(at: *const c_void, len: size_t) -> iovec {
    iovec { iov_base: at.cast_mut(), iov_len: len }
}

// SAFETY, in all of them: pointers and lengths are the caller's, as of libc's function.

hooks! {
    fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
        let parts = part(into, len);
        // SAFETY: see above.
        let read = unsafe { reads(fd, &raw const parts, 1, HERE) };
        read.unwrap_or_else(|| pass_on!(READ, fd, into, len))
    }

    fn __read_chk(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        if len > room {
            std::process::abort();
        }
        // SAFETY: see above.
        unsafe { read(fd, into, len) }
    }

    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        let parts = part(from, len);
        // SAFETY: see above.
        let written = unsafe { writes(fd, &raw const parts, 1, HERE) };
        written.unwrap_or_else(|| pass_on!(WRITE, fd, from, len))
    }

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: see above.
        let read = unsafe { reads(fd, parts, count, HERE) };
        read.unwrap_or_else(|| pass_on!(READV, fd, parts, count))
    }

    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: see above.
        let written = unsafe { writes(fd, parts, count, HERE) };
        written.unwrap_or_else(|| pass_on!(WRITEV, fd, parts, count))
    }
}

/// An offset of a call that knows no position.
fn placed(offset: off64_t) -> off64_t {
    if offset == HERE { off64_t::MIN } else { offset }
}

alike! {
    pread, pread64 = (fd: c_int, into: *mut c_void, len: size_t, at: off64_t) -> ssize_t {
        let parts = part(into, len);
        // SAFETY: see above.
        let read = unsafe { reads(fd, &raw const parts, 1, placed(at)) };
        read.unwrap_or_else(|| pass_on!(PREAD, fd, into, len, at))
    }
}

alike! {
    __pread_chk, __pread64_chk =
    (fd: c_int, into: *mut c_void, len: size_t, at: off64_t, room: size_t) -> ssize_t {
        if len > room {
            std::process::abort();
        }
        // SAFETY: see above.
        unsafe { pread64(fd, into, len, at) }
    }
}

alike! {
    pwrite, pwrite64 = (fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t {
        let parts = part(from, len);
        // SAFETY: see above.
        let written = unsafe { writes(fd, &raw const parts, 1, placed(at)) };
        written.unwrap_or_else(|| pass_on!(PWRITE, fd, from, len, at))
    }
}

alike! {
    preadv, preadv64 = (fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t {
        // SAFETY: see above.
        let read = unsafe { reads(fd, parts, count, placed(at)) };
        read.unwrap_or_else(|| pass_on!(PREADV, fd, parts, count, at))
    }
}

alike! {
    pwritev, pwritev64 = (fd: c_int, parts: *const iovec, count: c_int, at: off64_t) -> ssize_t {
        // SAFETY: see above.
        let written = unsafe { writes(fd, parts, count, placed(at)) };
        written.unwrap_or_else(|| pass_on!(PWRITEV, fd, parts, count, at))
    }
}

alike! {
    preadv2, preadv64v2 =
    (fd: c_int, parts: *const iovec, count: c_int, at: off64_t, flags: c_int) -> ssize_t {
        // SAFETY: see above.
        let read = unsafe { reads(fd, parts, count, at) };
        read.unwrap_or_else(|| pass_on!(PREADV2, fd, parts, count, at, flags))
    }
}

alike! {
    ftruncate, ftruncate64 = (fd: c_int, len: off64_t) -> c_int {
        let set = logs::of(fd).and_then(|log_file| match number(len) {
            Ok(len) => log_file.set_len(len),
            Err(err) => Some(Err(err)),
        });
        set.map_or_else(|| pass_on!(FTRUNCATE, fd, len), good)
    }
}

alike! {
    truncate, truncate64 = (path: *const c_char, len: off64_t) -> c_int {
        // SAFETY: see above.
        unsafe { converts(path, "truncate was called with its name") };
        pass_on!(TRUNCATE, path, len)
    }
}

/// Reserves space in a log: there is none to reserve, but the length counts.
fn reserve(fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> Option<Result<(), Errno>> {
    let log_file = logs::of(fd)?;
    if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
        keeping_errno(|| log_file.convert(Some("a part of it is punched, zeroed or moved")));
        return None;
    }
    let end = number(offset).and_then(|from| match number(len)? {
        0 => Err(Errno(libc::EINVAL)),
        len => Ok(from.saturating_add(len)),
    });
    match end {
        Ok(end) if mode == 0 => log_file.extend(end),
        other => Some(other.map(drop)),
    }
}

alike! {
    fallocate, fallocate64 = (fd: c_int, mode: c_int, offset: off64_t, len: off64_t) -> c_int {
        let reserved = reserve(fd, mode, offset, len);
        reserved.map_or_else(|| pass_on!(FALLOCATE, fd, mode, offset, len), good)
    }
}

alike! {
    posix_fallocate, posix_fallocate64 = (fd: c_int, offset: off64_t, len: off64_t) -> c_int {
        match reserve(fd, 0, offset, len) {
            Some(Ok(())) => 0,
            Some(Err(Errno(errno))) => errno,
            None => pass_on!(POSIX_FALLOCATE or libc::ENOSYS, fd, offset, len),
        }
    }
}

alike! {
    mmap, mmap64 =
    (at: *mut c_void, len: size_t, how: c_int, flags: c_int, fd: c_int, offset: off64_t)
    -> *mut c_void {
        if flags & libc::MAP_ANONYMOUS == 0 {
            logs::convert(fd, "it is mapped (mmap)");
        }
        pass_on!(MMAP or libc::MAP_FAILED, at, len, how, flags, fd, offset)
    }
}

const COPIED: &str = "the kernel copies it (sendfile, copy_file_range, splice)";

alike! {
    sendfile, sendfile64 = (to: c_int, from: c_int, offset: *mut off64_t, len: size_t) -> ssize_t {
        logs::convert(from, COPIED);
        logs::convert(to, COPIED);
        pass_on!(SENDFILE, to, from, offset, len)
    }
}

macro_rules! copies {
    ($($name:ident, $real:ident;)*) => {
        $(hooks! {
            fn $name(from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t,
                     len: size_t, flags: c_uint) -> ssize_t {
                logs::convert(from, COPIED);
                logs::convert(to, COPIED);
                pass_on!($real, from, from_at, to, to_at, len, flags)
            }
        })*
    };
}

copies! {
    copy_file_range, COPY_FILE_RANGE;
    splice, SPLICE;
}

hooks! {
    fn close(fd: c_int) -> c_int {
        logs::forget(fd);
        pass_on!(CLOSE, fd)
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        logs::forget_range(first as usize, last as usize);
        pass_on!(CLOSE_RANGE, first, last, flags)
    }

    fn dup(fd: c_int) -> c_int {
        logs::copied(fd, pass_on!(DUP, fd))
    }

    fn dup2(fd: c_int, to: c_int) -> c_int {
        logs::copied(fd, pass_on!(DUP2, fd, to))
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        logs::copied(fd, pass_on!(DUP3, fd, to, flags))
    }

    fn unlink(path: *const c_char) -> c_int {
        // SAFETY: see above.
        let name = unsafe { text(path) };
        logs::removing(libc::AT_FDCWD, name, || pass_on!(UNLINK, path))
    }

    fn unlinkat(dirfd: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: see above.
        let name = unsafe { text(path) };
        logs::removing(dirfd, name, || pass_on!(UNLINKAT, dirfd, path, flags))
    }

    fn remove(path: *const c_char) -> c_int {
        // SAFETY: see above.
        let name = unsafe { text(path) };
        logs::removing(libc::AT_FDCWD, name, || pass_on!(REMOVE, path))
    }

    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        logs::convert(fd, STREAM);
        pass_on!(FDOPEN or std::ptr::null_mut(), fd, mode)
    }

    fn fclose(stream: *mut FILE) -> c_int {
        if !stream.is_null() {
            // SAFETY: the stream is the caller's.
            logs::forget(keeping_errno(|| unsafe { libc::fileno(stream) }));
        }
        pass_on!(FCLOSE or libc::EOF, stream)
    }
}

alike! {
    fcntl, fcntl64 = (fd: c_int, command: c_int, argument: real::Word) -> c_int {
        let result = pass_on!(FCNTL, fd, command, argument);
        match command {
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => logs::copied(fd, result),
            _ => result,
        }
    }
}

const STREAM: &str = "it is opened as a stream (stdio)";

/// Ends the log of a path.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn converts(path: *const c_char, why: &str) {
    // SAFETY: by the caller's promise.
    logs::convert_path(libc::AT_FDCWD, unsafe { text(path) }, why);
}

alike! {
    fopen, fopen64 = (path: *const c_char, mode: *const c_char) -> *mut FILE {
        // SAFETY: see above.
        unsafe { converts(path, STREAM) };
        pass_on!(FOPEN or std::ptr::null_mut(), path, mode)
    }
}

alike! {
    freopen, freopen64 =
    (path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        // SAFETY: see above.
        unsafe { converts(path, STREAM) };
        pass_on!(FREOPEN or std::ptr::null_mut(), path, mode, stream)
    }
}

alike! {
    creat, creat64 = (path: *const c_char, mode: libc::mode_t) -> c_int {
        let fd = pass_on!(CREAT, path, mode);
        logs::opened(fd, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)
    }
}
