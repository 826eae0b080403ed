//! The C side of the VFS: the only unsafe code of this crate. Each function turns SQLite's pointers
//! into references, calls the safe code beside it, and returns its code.
//!
//! Promises of SQLite (sqlite3.h, "OS Interface Object" and after), on which every SAFETY note
//! relies:
//! - (V) `pVfs` is a `sqlite3_vfs` that was registered; ours are leaked and never change, and their
//!   `pAppData` is a leaked [`State`].
//! - (F) `pFile` is `szOsFile` bytes, aligned for pointers, used by one thread at a time; after
//!   xOpen set `pMethods` it holds our [`RawFile`] until xClose, which is called once.
//! - (B) buffers are valid for the length given with them and not aliased during the call.
//!
//! A panic cannot unwind into C: `extern "C"` functions abort instead.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{Ordering, fence};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};

use crate::file::{Code, VfsFile};
use crate::state::State;

/// Longest path, as in the unix VFS.
const PATH_BYTES_MAX: usize = 512;

/// Memory that SQLite allocates for an open file; `base` must be first.
#[repr(C)]
struct RawFile {
    base: sqlite3_file,
    file: *mut VfsFile,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes SQLite's own random numbers (journal nonces, WAL salts) start from `seed`, for the whole
/// process. 0: from the default VFS again, as SQLite does by itself.
pub fn seed_sqlite(seed: u32) {
    // SAFETY: the documented arguments of these two calls; both lock inside.
    unsafe {
        let no_connection: *mut ffi::sqlite3 = ptr::null_mut();
        let seed = seed as c_int;
        ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed, no_connection);
        ffi::sqlite3_randomness(0, ptr::null_mut());
    }
}

/// An ioctl that fails, whatever it is asked.
unsafe extern "C" fn no_ioctl() -> c_int {
    -1
}

/// Lets SQLite's own unix VFS find atomic writes of the file systems of this machine, or none.
/// For the whole process, and for files that are opened afterwards.
///
/// # Errors
/// A SQLite that was built without batch-atomic writes.
pub fn allow_host_atomic(allow: bool) -> Result<(), &'static str> {
    let missing = "SQLite was built without SQLITE_ENABLE_BATCH_ATOMIC_WRITE";
    // SAFETY: null finds the default VFS, which lives as long as the process.
    let vfs = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    // SAFETY: (V), as far as its function pointers go; null is checked first.
    let set = if vfs.is_null() { None } else { unsafe { (*vfs).xSetSystemCall } };
    let Some(set) = set else { return Err(missing) };
    type Failing = unsafe extern "C" fn() -> c_int;
    // SAFETY: SQLite casts it to `int (*)(int, int, ...)` before it calls it. The callee reads none
    // of the arguments, which the caller takes away again in every "C" convention.
    let failing = unsafe { std::mem::transmute::<Failing, unsafe extern "C" fn()>(no_ioctl) };
    let ioctl: ffi::sqlite3_syscall_ptr = if allow { None } else { Some(failing) };
    // SAFETY: the arguments that sqlite3.h documents; null puts the original back.
    match unsafe { set(vfs, c"ioctl".as_ptr(), ioctl) } {
        ffi::SQLITE_OK => Ok(()),
        _ => Err(missing),
    }
}

/// Reports whether the main database's file system offers atomic writes to SQLite.
pub fn offers_atomic(db: &rusqlite::Connection) -> bool {
    let mut file: *mut sqlite3_file = ptr::null_mut();
    // SAFETY: an open connection; the control stores the file of the main database, which lives as
    // long as the connection.
    unsafe {
        let op = ffi::SQLITE_FCNTL_FILE_POINTER;
        let into = (&raw mut file).cast();
        let asked = ffi::sqlite3_file_control(db.handle(), c"main".as_ptr(), op, into);
        if asked != ffi::SQLITE_OK || file.is_null() || (*file).pMethods.is_null() {
            return false;
        }
        let Some(characteristics) = (*(*file).pMethods).xDeviceCharacteristics else {
            return false;
        };
        characteristics(file) & ffi::SQLITE_IOCAP_BATCH_ATOMIC != 0
    }
}

/// Registers a VFS over `state`, leaking its description.
pub(crate) fn register(name: &str, state: &'static State) -> Result<(), &'static str> {
    let name = CString::new(name).map_err(|_| "the name has a NUL byte")?;
    // SAFETY: a C string; SQLite initialises itself.
    if !unsafe { ffi::sqlite3_vfs_find(name.as_ptr()) }.is_null() {
        return Err("the name is in use");
    }
    let vfs = Box::leak(Box::new(sqlite3_vfs {
        iVersion: 2,
        szOsFile: size_of::<RawFile>() as c_int,
        mxPathname: PATH_BYTES_MAX as c_int,
        pNext: ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: ptr::from_ref(state).cast_mut().cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: `vfs` is leaked, so it lives as long as SQLite may use it.
    match unsafe { ffi::sqlite3_vfs_register(vfs, 0) } {
        ffi::SQLITE_OK => Ok(()),
        _ => Err("SQLite refused it"),
    }
}

/// Takes the VFS called `name` off SQLite's list.
pub(crate) fn unregister(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: a C string, and a VFS from SQLite's own list.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(name.as_ptr());
        if !vfs.is_null() {
            ffi::sqlite3_vfs_unregister(vfs);
        }
    }
}

fn done(result: Result<(), Code>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// # Safety
/// `vfs` is one of ours (V).
unsafe fn state(vfs: *mut sqlite3_vfs) -> &'static State {
    // SAFETY: (V).
    unsafe { &*(*vfs).pAppData.cast::<State>() }
}

/// # Safety
/// `file` is an open file of ours (F).
unsafe fn opened<'a>(file: *mut sqlite3_file) -> &'a mut VfsFile {
    // SAFETY: (F): xOpen stored a live box, one thread uses it at a time.
    unsafe { &mut *(*file.cast::<RawFile>()).file }
}

/// # Safety
/// `name` is null or a C string that lives for the call (B).
unsafe fn path<'a>(name: *const c_char) -> Result<Option<&'a str>, Code> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: (B).
    let name = unsafe { CStr::from_ptr(name) };
    name.to_str().map(Some).map_err(|_| ffi::SQLITE_CANTOPEN)
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: (V), (F): `file` has room for a RawFile; `out_flags` is null or writable.
    unsafe {
        (*file).pMethods = ptr::null();
        let opened = path(name).and_then(|path| state(vfs).open(path, flags));
        let (opened, flags) = match opened {
            Ok(opened) => opened,
            Err(code) => return code,
        };
        if !out_flags.is_null() {
            *out_flags = flags;
        }
        place(file, opened);
    }
    ffi::SQLITE_OK
}

/// Bytes that [`place`] needs, the least `szOsFile` of a VFS.
pub const FILE_BYTES: usize = size_of::<RawFile>();

/// Makes `opened` the file that SQLite's memory describes, until its xClose. Calls no function of
/// SQLite.
///
/// # Safety
/// `file` has room for [`FILE_BYTES`], is aligned for pointers and has no open file yet (F).
pub unsafe fn place(file: *mut sqlite3_file, opened: VfsFile) {
    // SAFETY: the caller promises room and alignment.
    unsafe {
        let raw = file.cast::<RawFile>();
        (*raw).file = Box::into_raw(Box::new(opened));
        (*raw).base.pMethods = &raw const METHODS;
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: (F): the box was made by `open` and is given back once.
    unsafe {
        let raw = file.cast::<RawFile>();
        Box::from_raw((*raw).file).close();
        (*raw).base.pMethods = ptr::null();
    }
    ffi::SQLITE_OK
}

/// Methods of an open file: name, arguments, and the call of the safe code.
macro_rules! methods {
    ($($name:ident($($argument:ident: $type:ty),*) = |$file:ident| $call:expr;)*) => {
        $(
            unsafe extern "C" fn $name(file: *mut sqlite3_file, $($argument: $type),*) -> c_int {
                // SAFETY: (F), (B); pointers for results are writable, and a control that has an
                // int has one that is readable and writable (sqlite3.h).
                unsafe {
                    let $file = opened(file);
                    done($call)
                }
            }
        )*
    };
}

/// A length that SQLite gives.
fn length(len: c_int) -> usize {
    usize::try_from(len).unwrap_or(0)
}

methods! {
    read(into: *mut c_void, len: c_int, at: sqlite3_int64) =
        |file| file.read(std::slice::from_raw_parts_mut(into.cast(), length(len)), at);
    write(from: *const c_void, len: c_int, at: sqlite3_int64) =
        |file| file.write(std::slice::from_raw_parts(from.cast(), length(len)), at);
    truncate(size: sqlite3_int64) = |file| file.truncate(size);
    sync(_flags: c_int) = |file| file.sync();
    file_size(size: *mut sqlite3_int64) = |file| file.size().map(|bytes| *size = bytes);
    lock(level: c_int) = |file| file.lock(level);
    unlock(level: c_int) = |file| file.unlock(level);
    check_reserved_lock(out: *mut c_int) =
        |file| file.reserved().map(|held| *out = c_int::from(held));
    file_control(op: c_int, arg: *mut c_void) = |file| match op {
        ffi::SQLITE_FCNTL_LOCKSTATE => file.lock_level().map(|level| *arg.cast::<c_int>() = level),
        ffi::SQLITE_FCNTL_PERSIST_WAL => {
            let asked = arg.cast::<c_int>();
            *asked = c_int::from(file.persist_wal(*asked));
            Ok(())
        }
        _ => file.control(op),
    };
    shm_map(region: c_int, bytes: c_int, extend: c_int, out: *mut *mut c_void) =
        |file| file.shm_map(region, bytes, extend != 0).map(|address| *out = address);
    shm_lock(first: c_int, count: c_int, flags: c_int) = |file| file.shm_lock(first, count, flags);
    shm_unmap(_delete: c_int) = |file| file.shm_unmap();
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: (F).
    unsafe { opened(file).characteristics() }
}

unsafe extern "C" fn shm_barrier(_: *mut sqlite3_file) {
    fence(Ordering::SeqCst);
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: (V), (B).
    unsafe {
        match path(name) {
            Ok(Some(path)) => done(state(vfs).delete(path, sync_dir & 1 != 0)),
            _ => ffi::SQLITE_IOERR_DELETE,
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: (V), (B); `out` is writable.
    unsafe {
        let found = match path(name) {
            Ok(Some(path)) => state(vfs).access(path, flags),
            _ => Ok(false),
        };
        *out = c_int::from(found.unwrap_or(false));
        done(found.map(|_| ()))
    }
}

unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    out_len: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: (B): `name` is a C string, `out` has room for `out_len` bytes.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes();
        let slash: &[u8] = if name.starts_with(b"/") { b"" } else { b"/" };
        let len = slash.len() + name.len();
        if len >= usize::try_from(out_len).unwrap_or(0) {
            return ffi::SQLITE_CANTOPEN;
        }
        let into = std::slice::from_raw_parts_mut(out.cast::<u8>(), len + 1);
        into[..slash.len()].copy_from_slice(slash);
        into[slash.len()..len].copy_from_slice(name);
        into[len] = 0;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: (V), (B).
    unsafe { state(vfs).randomness(std::slice::from_raw_parts_mut(out.cast(), length(len))) };
    len
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, us: c_int) -> c_int {
    // SAFETY: (V).
    unsafe { state(vfs).sleep(u64::try_from(us).unwrap_or(0)) };
    us
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: (V); `out` is writable.
    unsafe { *out = state(vfs).julian_ms() as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_time_int64(vfs: *mut sqlite3_vfs, out: *mut sqlite3_int64) -> c_int {
    // SAFETY: (V); `out` is writable.
    unsafe { *out = state(vfs).julian_ms() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn get_last_error(_: *mut sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
