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
use crate::{log_hooks, logs, naming};

/// libc's own.
pub(crate) mod real {
    use super::{c_char, c_int, c_long, c_uint, c_void, iovec, off64_t, size_t, ssize_t};
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

    macro_rules! reals {
        ($($name:ident: $type:ty = $symbol:literal;)*) => {
            $(
                // SAFETY: the signature is that of the function's manual page.
                pub(crate) static $name: Real<$type> = unsafe { Real::new($symbol) };
            )*
        };
    }

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

/// Fails with ENOSYS, for functions that this libc lacks.
fn no_such_function() -> c_int {
    // SAFETY: the address of errno is valid in every thread.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Passes a call on. The arguments are the caller's, who answers for them as without this library.
macro_rules! pass_on {
    ($real:ident, $($argument:expr),*) => {
        match real::$real.get() {
            // SAFETY: the function has this signature, the arguments are those of our own caller.
            Some(function) => unsafe { function($($argument),*) },
            None => no_such_function().into(),
        }
    };
}

macro_rules! syncs_fd {
    ($($name:ident, $real:ident, $call:ident;)*) => {
        $(
            /// See its manual page. Takes any number: a wrong one is libc's to refuse.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(fd: c_int) -> c_int {
                if library::skips(fd, Call::$call) {
                    return 0;
                }
                match log_hooks::syncs(fd) {
                    Some(done) => done,
                    None => pass_on!($real, fd),
                }
            }
        )*
    };
}

syncs_fd! {
    fsync, FSYNC, Fsync;
    fdatasync, FDATASYNC, Fdatasync;
}

/// See its manual page.
#[unsafe(no_mangle)]
pub extern "C" fn syncfs(fd: c_int) -> c_int {
    if library::skips_all(Call::Syncfs) { 0 } else { pass_on!(SYNCFS, fd) }
}

/// See its manual page.
#[unsafe(no_mangle)]
pub extern "C" fn sync() {
    if !library::skips_all(Call::Sync) {
        if let Some(function) = real::SYNC.get() {
            // SAFETY: it takes nothing.
            unsafe { function() };
        }
    }
}

/// See its manual page.
#[unsafe(no_mangle)]
pub extern "C" fn sync_file_range(
    fd: c_int,
    offset: off64_t,
    length: off64_t,
    flags: c_uint,
) -> c_int {
    if library::skips(fd, Call::SyncFileRange) {
        return 0;
    }
    if let Some(done) = log_hooks::syncs(fd) {
        return done;
    }
    pass_on!(SYNC_FILE_RANGE, fd, offset, length, flags)
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn msync(address: *mut c_void, length: size_t, flags: c_int) -> c_int {
    // What is no multiple of pages, or has other flags, is libc's to judge.
    let plain = flags == libc::MS_SYNC && address as usize % 4096 == 0;
    if plain && library::skips_mapping(address as usize, length) {
        return 0;
    }
    pass_on!(MSYNC, address, length, flags)
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

macro_rules! open_hooks {
    ($($name:ident, $checked:ident, $real:ident;)*) => {
        $(
            /// See its manual page.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                path: *const c_char,
                flags: c_int,
                mode: mode_t,
            ) -> c_int {
                let real = |flags| pass_on!($real, path, flags, mode);
                // SAFETY: the path is the caller's.
                unsafe { opens(libc::AT_FDCWD, path, flags, real) }
            }

            /// Hooks the variant that programs compiled with `_FORTIFY_SOURCE` call.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked(path: *const c_char, flags: c_int) -> c_int {
                let real = |flags| pass_on!($real, path, flags);
                // SAFETY: the path is the caller's.
                unsafe { opens(libc::AT_FDCWD, path, flags, real) }
            }
        )*
    };
}

open_hooks! {
    open, __open_2, OPEN;
    open64, __open64_2, OPEN64;
}

macro_rules! openat_hooks {
    ($($name:ident, $checked:ident, $real:ident;)*) => {
        $(
            /// See its manual page.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                dirfd: c_int,
                path: *const c_char,
                flags: c_int,
                mode: mode_t,
            ) -> c_int {
                let real = |flags| pass_on!($real, dirfd, path, flags, mode);
                // SAFETY: the path is the caller's.
                unsafe { opens(dirfd, path, flags, real) }
            }

            /// Hooks the variant that programs compiled with `_FORTIFY_SOURCE` call.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $checked(
                dirfd: c_int,
                path: *const c_char,
                flags: c_int,
            ) -> c_int {
                let real = |flags| pass_on!($real, dirfd, path, flags);
                // SAFETY: the path is the caller's.
                unsafe { opens(dirfd, path, flags, real) }
            }
        )*
    };
}

openat_hooks! {
    openat, __openat_2, OPENAT;
    openat64, __openat64_2, OPENAT64;
}

macro_rules! write_hooks {
    ($($name:ident, $real:ident;)*) => {
        $(
            /// See its manual page.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(
                fd: c_int,
                parts: *const iovec,
                count: c_int,
                offset: off64_t,
                flags: c_int,
            ) -> ssize_t {
                let sync = libc::RWF_SYNC | libc::RWF_DSYNC;
                let skipped = flags & sync != 0 && library::skips(fd, Call::WriteSync);
                let flags = if skipped { flags & !sync } else { flags };
                // SAFETY: the parts are the caller's.
                if let Some(done) = unsafe { log_hooks::writes(fd, parts, count, offset) } {
                    let synced = flags & sync == 0 || log_hooks::syncs(fd).is_none_or(|n| n == 0);
                    return if synced { done } else { -1 };
                }
                match real::$real.get() {
                    // SAFETY: the arguments are the caller's, but for flags that are taken away.
                    Some(function) => unsafe { function(fd, parts, count, offset, flags) },
                    None => no_such_function() as ssize_t,
                }
            }
        )*
    };
}

write_hooks! {
    pwritev2, PWRITEV2;
    pwritev64v2, PWRITEV64V2;
}

/// A path of the caller; an empty one for null, which is libc's to refuse.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn text<'a>(path: *const c_char) -> &'a CStr {
    // SAFETY: by the caller's promise, where it is not null.
    if path.is_null() { c"" } else { unsafe { CStr::from_ptr(path) } }
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
    logs::settle_path(from.0, from.1, RENAMED);
    if exchange {
        naming::naming(to, from, true);
        logs::settle_path(to.0, to.1, RENAMED);
    }
    let done = if exchange { real() } else { logs::removing(to.0, to.1, real) };
    if done == 0 {
        naming::named(change, exchange);
    }
    done
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(old: *const c_char, new: *const c_char) -> c_int {
    let (here, real) = (libc::AT_FDCWD, || pass_on!(RENAME, old, new));
    // SAFETY: the paths are the caller's.
    unsafe { renames((here, old), (here, new), false, real) }
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    olddir: c_int,
    old: *const c_char,
    newdir: c_int,
    new: *const c_char,
) -> c_int {
    let real = || pass_on!(RENAMEAT, olddir, old, newdir, new);
    // SAFETY: the paths are the caller's.
    unsafe { renames((olddir, old), (newdir, new), false, real) }
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    olddir: c_int,
    old: *const c_char,
    newdir: c_int,
    new: *const c_char,
    flags: c_uint,
) -> c_int {
    let exchange = flags & libc::RENAME_EXCHANGE != 0;
    let real = || pass_on!(RENAMEAT2, olddir, old, newdir, new, flags);
    // SAFETY: the paths are the caller's.
    unsafe { renames((olddir, old), (newdir, new), exchange, real) }
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(old: *const c_char, new: *const c_char) -> c_int {
    let here = libc::AT_FDCWD;
    // SAFETY: the paths are the caller's.
    naming::naming((here, unsafe { text(old) }), (here, unsafe { text(new) }), false);
    // SAFETY: as above.
    logs::settle_path(here, unsafe { text(old) }, LINKED);
    pass_on!(LINK, old, new)
}

/// See its manual page.
///
/// # Safety
/// As of libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    olddir: c_int,
    old: *const c_char,
    newdir: c_int,
    new: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the paths are the caller's.
    naming::naming((olddir, unsafe { text(old) }), (newdir, unsafe { text(new) }), false);
    // SAFETY: as above.
    logs::settle_path(olddir, unsafe { text(old) }, LINKED);
    pass_on!(LINKAT, olddir, old, newdir, new, flags)
}

macro_rules! exits {
    ($($name:ident;)*) => {
        $(
            /// See its manual page.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(code: c_int) -> ! {
                library::finish();
                match real::EXIT.get() {
                    // SAFETY: it takes any number.
                    Some(exit) => unsafe { exit(code) },
                    None => std::process::abort(),
                }
            }
        )*
    };
}

exits! {
    _exit;
    _Exit;
}

macro_rules! execs {
    ($($name:ident, $real:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// See its manual page.
            ///
            /// # Safety
            /// As of libc's.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
                library::finish();
                pass_on!($real, $($argument),*)
            }
        )*
    };
}

execs! {
    execve, EXECVE(path: *const c_char, words: *const *const c_char, env: *const *const c_char);
    execvpe, EXECVPE(file: *const c_char, words: *const *const c_char, env: *const *const c_char);
    execv, EXECV(path: *const c_char, words: *const *const c_char);
    execvp, EXECVP(file: *const c_char, words: *const *const c_char);
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
