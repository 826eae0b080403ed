//! The functions that programs call in place of libc's. Each asks `library` and passes on.
//!
//! This file is long because libc has many such functions; each is short.
//!
//! `open` and its kin take a variable number of arguments in C. They are defined here with the
//! largest number: on Linux's ABIs (x86-64, AArch64) those that were not passed are registers with
//! some other value, which is passed on and which nobody looks at without `O_CREAT`.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};

use libc::{iovec, mode_t, off64_t, size_t, ssize_t};

use crate::library::{self, Call};
use crate::macros::{alike, hooks, pass_on};
use crate::system::text;
use crate::{log_hooks, logs, naming};

/// libc's own.
pub(crate) mod real {
    use super::{c_char, c_int, c_long, c_uint, c_void, iovec, off64_t, size_t, ssize_t};
    use crate::macros::reals;
    use crate::system::Real;

    pub(crate) type OfFd = unsafe extern "C" fn(c_int) -> c_int;
    pub(crate) type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
    pub(crate) type OpenAt = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    type Rename = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
    type RenameAt = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char) -> c_int;
    type Flagged =
        unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int;
    type Write = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    type Range = unsafe extern "C" fn(c_int, off64_t, off64_t, c_uint) -> c_int;
    type Msync = unsafe extern "C" fn(*mut c_void, size_t, c_int) -> c_int;
    type Exit = unsafe extern "C" fn(c_int) -> !;
    type Exec =
        unsafe extern "C" fn(*const c_char, *const *const c_char, *const *const c_char) -> c_int;
    type ExecHere = unsafe extern "C" fn(*const c_char, *const *const c_char) -> c_int;
    type Ring = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void) -> c_int;

    reals! {
        FSYNC: OfFd = c"fsync";
        FDATASYNC: OfFd = c"fdatasync";
        SYNCFS: OfFd = c"syncfs";
        SYNC: unsafe extern "C" fn() = c"sync";
        SYNC_FILE_RANGE: Range = c"sync_file_range";
        MSYNC: Msync = c"msync";
        OPEN: Open = c"open";
        OPEN64: Open = c"open64";
        OPENAT: OpenAt = c"openat";
        OPENAT64: OpenAt = c"openat64";
        PWRITEV2: Write = c"pwritev2";
        PWRITEV64V2: Write = c"pwritev64v2";
        RENAME: Rename = c"rename";
        RENAMEAT: RenameAt = c"renameat";
        RENAMEAT2: Flagged = c"renameat2";
        LINK: Rename = c"link";
        LINKAT: unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int =
            c"linkat";
        EXIT: Exit = c"_exit";
        EXECVE: Exec = c"execve";
        EXECVPE: Exec = c"execvpe";
        EXECV: ExecHere = c"execv";
        EXECVP: ExecHere = c"execvp";
        SYSCALL: unsafe extern "C" fn(c_long, ...) -> c_long = c"syscall";
        RING_INIT: Ring = c"io_uring_queue_init_params";
    }
}

// SAFETY, in all of them: pointers and lengths are the caller's, as of libc's function.

/// Syncs a descriptor, unless the call is skipped or its log is synced.
fn syncs(fd: c_int, call: Call, real: impl FnOnce() -> c_int) -> c_int {
    if library::skips(fd, call) { 0 } else { log_hooks::syncs(fd).unwrap_or_else(real) }
}

hooks! {
    fn fsync(fd: c_int) -> c_int {
        syncs(fd, Call::Fsync, || pass_on!(FSYNC, fd))
    }

    fn fdatasync(fd: c_int) -> c_int {
        syncs(fd, Call::Fdatasync, || pass_on!(FDATASYNC, fd))
    }

    fn syncfs(fd: c_int) -> c_int {
        if library::skips_all(Call::Syncfs) { 0 } else { pass_on!(SYNCFS, fd) }
    }

    fn sync() -> () {
        if !library::skips_all(Call::Sync) {
            pass_on!(SYNC or (),)
        }
    }

    fn sync_file_range(fd: c_int, offset: off64_t, length: off64_t, flags: c_uint) -> c_int {
        syncs(fd, Call::SyncFileRange, || pass_on!(SYNC_FILE_RANGE, fd, offset, length, flags))
    }

    fn msync(address: *mut c_void, length: size_t, flags: c_int) -> c_int {
        // libc judges a range that is no multiple of pages, and other flags.
        let plain = flags == libc::MS_SYNC && address as usize % 4096 == 0;
        if plain && library::skips_mapping(address as usize, length) {
            return 0;
        }
        pass_on!(MSYNC, address, length, flags)
    }
}

/// Opens without the synchronous flags what is relaxed, and as a log what is to be one.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn opens(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    real: impl Fn(c_int) -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    logs::opened(unsafe { opens_file(dirfd, path, flags, real) }, flags)
}

/// Opens without the synchronous flags what is relaxed.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn opens_file(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    real: impl Fn(c_int) -> c_int,
) -> c_int {
    if flags & libc::O_DSYNC == 0 || path.is_null() {
        return real(flags);
    }
    // SAFETY: by the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    if !crate::system::keeping_errno(|| library::name_is_relaxed(dirfd, path)) {
        library::kept_open();
        return real(flags);
    }
    let fd = real(flags & !libc::O_SYNC);
    if fd < 0 || library::skips(fd, Call::OpenSync) {
        return fd;
    }
    // It is another file than its name said: once more, as the program asked.
    let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW;
    let link = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let again = pass_on!(OPEN, link.as_ptr(), flags & !once);
    // SAFETY: the descriptor is ours alone still.
    crate::system::keeping_errno(|| unsafe { libc::close(fd) });
    again
}

// `__open_2` and its kin are called by programs that were compiled with `_FORTIFY_SOURCE`.
hooks! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let real = |flags| pass_on!(OPEN, path, flags, mode);
        // SAFETY: see above.
        unsafe { opens(libc::AT_FDCWD, path, flags, real) }
    }

    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        let real = |flags| pass_on!(OPEN, path, flags);
        // SAFETY: see above.
        unsafe { opens(libc::AT_FDCWD, path, flags, real) }
    }

    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let real = |flags| pass_on!(OPEN64, path, flags, mode);
        // SAFETY: see above.
        unsafe { opens(libc::AT_FDCWD, path, flags, real) }
    }

    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        let real = |flags| pass_on!(OPEN64, path, flags);
        // SAFETY: see above.
        unsafe { opens(libc::AT_FDCWD, path, flags, real) }
    }

    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let real = |flags| pass_on!(OPENAT, dir, path, flags, mode);
        // SAFETY: see above.
        unsafe { opens(dir, path, flags, real) }
    }

    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        let real = |flags| pass_on!(OPENAT, dir, path, flags);
        // SAFETY: see above.
        unsafe { opens(dir, path, flags, real) }
    }

    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let real = |flags| pass_on!(OPENAT64, dir, path, flags, mode);
        // SAFETY: see above.
        unsafe { opens(dir, path, flags, real) }
    }

    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        let real = |flags| pass_on!(OPENAT64, dir, path, flags);
        // SAFETY: see above.
        unsafe { opens(dir, path, flags, real) }
    }
}

/// Writes without the synchronous flags if the file is relaxed. `real` gets the flags.
///
/// # Safety
/// As of pwritev2.
unsafe fn writes(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
    real: impl FnOnce(c_int) -> ssize_t,
) -> ssize_t {
    let sync = libc::RWF_SYNC | libc::RWF_DSYNC;
    let skipped = flags & sync != 0 && library::skips(fd, Call::WriteSync);
    let flags = if skipped { flags & !sync } else { flags };
    // SAFETY: by the caller's promise.
    if let Some(done) = unsafe { log_hooks::writes(fd, parts, count, offset) } {
        let synced = flags & sync == 0 || log_hooks::syncs(fd).is_none_or(|n| n == 0);
        return if synced { done } else { -1 };
    }
    real(flags)
}

// Another library may define one of the two names only, so each is passed on under its own.
hooks! {
    fn pwritev2(fd: c_int, parts: *const iovec, count: c_int, at: off64_t,
                flags: c_int) -> ssize_t {
        let real = |flags| pass_on!(PWRITEV2, fd, parts, count, at, flags);
        // SAFETY: see above.
        unsafe { writes(fd, parts, count, at, flags, real) }
    }

    fn pwritev64v2(fd: c_int, parts: *const iovec, count: c_int, at: off64_t,
                   flags: c_int) -> ssize_t {
        let real = |flags| pass_on!(PWRITEV64V2, fd, parts, count, at, flags);
        // SAFETY: see above.
        unsafe { writes(fd, parts, count, at, flags, real) }
    }
}

/// Reasons why a log ends.
const RENAMED: &str = "it is renamed";
const LINKED: &str = "it gets another name (link)";

/// A rename, with what has to happen before and after.
///
/// # Safety
/// The paths are C strings or null.
unsafe fn renames(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    exchange: bool,
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (from, to) = unsafe { ((old.0, text(old.1)), (new.0, text(new.1))) };
    let change = naming::naming(from, to, exchange);
    logs::convert_path(from.0, from.1, RENAMED);
    if exchange {
        naming::naming(to, from, true);
        logs::convert_path(to.0, to.1, RENAMED);
    }
    let done = if exchange { real() } else { logs::removing(to.0, to.1, real) };
    if done == 0 {
        naming::named(change, exchange);
    }
    done
}

/// A hard link, with the work before it.
///
/// # Safety
/// The paths are C strings or null.
unsafe fn links(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    real: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (from, to) = unsafe { ((old.0, text(old.1)), (new.0, text(new.1))) };
    naming::naming(from, to, false);
    logs::convert_path(from.0, from.1, LINKED);
    real()
}

hooks! {
    fn rename(old: *const c_char, new: *const c_char) -> c_int {
        let (here, real) = (libc::AT_FDCWD, || pass_on!(RENAME, old, new));
        // SAFETY: see above.
        unsafe { renames((here, old), (here, new), false, real) }
    }

    fn renameat(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char) -> c_int {
        let real = || pass_on!(RENAMEAT, old_dir, old, new_dir, new);
        // SAFETY: see above.
        unsafe { renames((old_dir, old), (new_dir, new), false, real) }
    }

    fn renameat2(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char,
                 flags: c_uint) -> c_int {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let real = || pass_on!(RENAMEAT2, old_dir, old, new_dir, new, flags);
        // SAFETY: see above.
        unsafe { renames((old_dir, old), (new_dir, new), exchange, real) }
    }

    fn link(old: *const c_char, new: *const c_char) -> c_int {
        let (here, real) = (libc::AT_FDCWD, || pass_on!(LINK, old, new));
        // SAFETY: see above.
        unsafe { links((here, old), (here, new), real) }
    }

    fn linkat(old_dir: c_int, old: *const c_char, new_dir: c_int, new: *const c_char,
              flags: c_int) -> c_int {
        let real = || pass_on!(LINKAT, old_dir, old, new_dir, new, flags);
        // SAFETY: see above.
        unsafe { links((old_dir, old), (new_dir, new), real) }
    }
}

alike! {
    _exit, _Exit = (code: c_int) -> ! {
        library::finish();
        pass_on!(EXIT or std::process::abort(), code)
    }
}

/// A list of arguments or of the environment.
type Words = *const *const c_char;

hooks! {
    fn execve(path: *const c_char, words: Words, env: Words) -> c_int {
        library::finish();
        pass_on!(EXECVE, path, words, env)
    }

    fn execvpe(file: *const c_char, words: Words, env: Words) -> c_int {
        library::finish();
        pass_on!(EXECVPE, file, words, env)
    }

    fn execv(path: *const c_char, words: Words) -> c_int {
        library::finish();
        pass_on!(EXECV, path, words)
    }

    fn execvp(file: *const c_char, words: Words) -> c_int {
        library::finish();
        pass_on!(EXECVP, file, words)
    }
}

/// See its manual page: rings of io_uring that are made this way are counted.
///
/// # Safety
/// As of libc's. Reads six arguments: those that were not passed are registers, or a word of the
/// caller's frame, which is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_uring_setup {
        library::ring_made();
    }
    pass_on!(SYSCALL, number, a, b, c, d, e, f)
}

/// liburing's, which makes the system call itself.
///
/// # Safety
/// As of liburing's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    params: *mut c_void,
) -> c_int {
    library::ring_made();
    pass_on!(RING_INIT, entries, ring, params)
}

/// The loader calls it before the program's first instruction.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = library::begin;

/// The loader calls it after the program's last handler.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = library::finish;
