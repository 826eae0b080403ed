//! The C side: entry points, the VFS and `syncline_error()`. Files are those of `state.rs`.
//!
//! Promises of SQLite (sqlite3.h, "OS Interface Object", "Load An Extension"), on which every
//! SAFETY note relies:
//! - (A) the table of functions lives as long as the process, and is as long as its version says.
//! - (V) `pVfs` is the one that was registered here; it is leaked and never changes, and its
//!   `pAppData` is the default VFS, which lives as long as the process.
//! - (N) a name in xFullPathname and xOpen of a main database is one that SQLite's core has parsed:
//!   the parameters of its URI follow it, and `sqlite3_uri_parameter` may be asked for them.
//! - (F) `pFile` is `szOsFile` bytes, aligned for pointers, used by one thread at a time.
//! - (B) other buffers and C strings are valid for the length given with them, for the call.
//!
//! A panic cannot unwind into C: `extern "C"` functions abort instead.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::api::{Api, VERSION_MIN};
use super::{names, registry};
use crate::ffi::{FILE_BYTES, place};
use parking_lot::Mutex;
use rusqlite::ffi::{
    self, sqlite3, sqlite3_context, sqlite3_file, sqlite3_int64, sqlite3_value, sqlite3_vfs,
};

/// Longest full name.
const PATH_BYTES_MAX: c_int = 4096;
const NAME: &CStr = c"syncline";

/// The one SQLite that uses the extension.
static API: OnceLock<&'static Api> = OnceLock::new();

/// An xOpen.
type Open = unsafe extern "C" fn(
    *mut sqlite3_vfs,
    *const c_char,
    *mut sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
/// An entry point.
type EntryPoint = unsafe extern "C" fn(*mut sqlite3, *mut *mut c_char, *const Api) -> c_int;

/// The entry point that SQLite derives from the name of the library, `libsyncline_sqlite.so`.
/// Registers the VFS `syncline` for the process.
///
/// # Safety
/// As SQLite calls it: an open connection, room for a message, its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_synclinesqlite_init(
    db: *mut sqlite3,
    message: *mut *mut c_char,
    api: *const Api,
) -> c_int {
    // SAFETY: as this function.
    unsafe { sqlite3_syncline_init(db, message, api) }
}

/// The same, for programs that name the entry point or link it.
///
/// # Safety
/// As [`sqlite3_synclinesqlite_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_syncline_init(
    db: *mut sqlite3,
    message: *mut *mut c_char,
    api: *const Api,
) -> c_int {
    // SAFETY: (A): this function is in the table of every version; the rest of the table is not
    // looked at before its version is known.
    let version = unsafe { (&raw const (*api).libversion_number).read()() };
    // SAFETY: (A), likewise, for the function that makes messages.
    let format = unsafe { (&raw const (*api).mprintf).read() };
    let done = if version < VERSION_MIN {
        Err(c"SQLite is older than 3.14; take a later one")
    } else {
        // SAFETY: (A): a table of this version has every function of `Api`.
        unsafe { register(&*api) }
    };
    match done {
        // SAFETY: an open connection; the table is as long as it has to be, since it was used.
        Ok(()) => match unsafe { with_functions(db, message, api) } {
            ffi::SQLITE_OK => ffi::SQLITE_OK_LOAD_PERMANENTLY,
            code => code,
        },
        Err(text) => {
            if !message.is_null() {
                // SAFETY: (B); SQLite frees what its own function has made.
                unsafe { *message = format(c"%s".as_ptr(), text.as_ptr()) };
            }
            ffi::SQLITE_ERROR
        }
    }
}

/// Runs in the child of a fork.
unsafe extern "C" fn forked() {
    registry::FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Adds the functions in SQL to a connection; SQLite calls it for every later one.
unsafe extern "C" fn with_functions(
    db: *mut sqlite3,
    _: *mut *mut c_char,
    api: *const Api,
) -> c_int {
    // SAFETY: (A), and an open connection; the name is copied.
    unsafe {
        let name = c"syncline_error".as_ptr();
        let create = (*api).create_function;
        create(db, name, 0, ffi::SQLITE_UTF8, ptr::null_mut(), Some(error), None, None)
    }
}

/// `syncline_error()`: the last reason for which an image or a database could not be opened.
unsafe extern "C" fn error(context: *mut sqlite3_context, _: c_int, _: *mut *mut sqlite3_value) {
    let Some(api) = API.get() else { return };
    let said = registry::said();
    let len = c_int::try_from(said.len()).unwrap_or(0);
    // SAFETY: (A): the one SQLite calls this. The text is copied, as SQLITE_TRANSIENT asks.
    unsafe { (api.result_text)(context, said.as_ptr().cast(), len, ffi::SQLITE_TRANSIENT()) };
}

/// Registers the VFS, once, leaking its description.
///
/// # Safety
/// `api` is the table of a SQLite of [`VERSION_MIN`] or later (A).
unsafe fn register(api: &'static Api) -> Result<(), &'static CStr> {
    if !ptr::eq(*API.get_or_init(|| api), api) {
        return Err(c"another SQLite of this process uses the extension; load it into one");
    }
    static REGISTERING: Mutex<()> = Mutex::new(());
    let _alone = REGISTERING.lock();
    // SAFETY: (A), C strings; null finds the default VFS.
    let (known, host) = unsafe { ((api.vfs_find)(NAME.as_ptr()), (api.vfs_find)(ptr::null())) };
    if !known.is_null() {
        // SAFETY: a VFS on SQLite's list lives.
        let xopen = unsafe { (*known).xOpen };
        let ours = xopen.is_some_and(|xopen| ptr::fn_addr_eq(xopen, open as Open));
        return if ours { Ok(()) } else { Err(c"another VFS is called syncline") };
    }
    if host.is_null() {
        return Err(c"SQLite has no default VFS for temporary files");
    }
    // SAFETY: (V).
    let host_bytes = unsafe { (*host).szOsFile };
    let vfs = Box::leak(Box::new(sqlite3_vfs {
        iVersion: 2,
        szOsFile: host_bytes.max(FILE_BYTES as c_int),
        mxPathname: PATH_BYTES_MAX,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: host.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: `vfs` is leaked, so it lives as long as SQLite may use it. `with_functions` has the
    // signature of an entry point, as sqlite3_auto_extension asks for behind its plain type.
    unsafe {
        if libc::pthread_atfork(None, None, Some(forked)) != 0 {
            return Err(c"there is no memory");
        }
        let each = std::mem::transmute::<EntryPoint, unsafe extern "C" fn()>(with_functions);
        if (api.vfs_register)(vfs, 0) != ffi::SQLITE_OK
            || (api.auto_extension)(Some(each)) != ffi::SQLITE_OK
        {
            return Err(c"SQLite refused the VFS");
        }
    }
    Ok(())
}

/// Remembers why an open failed, and writes it to SQLite's error log. Returns the code.
fn failed((code, reason): registry::Failed) -> c_int {
    registry::say(&reason);
    if let (Some(api), Ok(reason)) = (API.get(), CString::new(reason)) {
        // SAFETY: (A); the format takes one C string.
        unsafe { (api.log)(code, c"syncline: %s".as_ptr(), reason.as_ptr()) };
    }
    code
}

/// The default VFS.
///
/// # Safety
/// `vfs` is ours (V).
unsafe fn host(vfs: *mut sqlite3_vfs) -> *mut sqlite3_vfs {
    // SAFETY: (V).
    unsafe { (*vfs).pAppData.cast() }
}

/// # Safety
/// `text` is null or a C string that lives for the call (B).
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: (B).
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// A parameter of the URI that `name` was made from.
///
/// # Safety
/// SQLite's core has parsed `name` (N).
unsafe fn parameter<'a>(name: *const c_char, key: &CStr) -> Option<&'a str> {
    // SAFETY: (A), (N); the result lives as long as the name.
    unsafe { text((API.get()?.uri_parameter)(name, key.as_ptr())) }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: (V), (F), (N), (B); `szOsFile` has room for files of the default VFS as well.
    unsafe {
        (*file).pMethods = ptr::null();
        if name.is_null() {
            // A temporary file: the program's own business.
            let host = host(vfs);
            return (*host)
                .xOpen
                .map_or(ffi::SQLITE_CANTOPEN, |open| open(host, name, file, flags, out_flags));
        }
        let Some((image, path)) = text(name).and_then(names::split) else {
            return ffi::SQLITE_CANTOPEN;
        };
        let is_database = flags & ffi::SQLITE_OPEN_MAIN_DB != 0;
        let given = |key| parameter(name, key).filter(|_| is_database);
        let named = [("durability", given(c"durability")), ("isolate", given(c"isolate"))];
        let options = registry::options_of(given(c"options"), named);
        match registry::open(image, path, options.as_deref(), flags) {
            Ok((opened, flags)) => {
                if !out_flags.is_null() {
                    *out_flags = flags;
                }
                place(file, opened);
                ffi::SQLITE_OK
            }
            Err(err) => failed(err),
        }
    }
}

unsafe extern "C" fn delete(_: *mut sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: (B).
    let Some((image, path)) = unsafe { text(name) }.and_then(names::split) else {
        return ffi::SQLITE_IOERR_DELETE;
    };
    match registry::with(image, |files| files.delete(path, sync_dir & 1 != 0)) {
        Some(done) => done.err().unwrap_or(ffi::SQLITE_OK),
        None => ffi::SQLITE_IOERR_DELETE,
    }
}

unsafe extern "C" fn access(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: (B).
    let name = unsafe { text(name) }.and_then(names::split);
    let found = name.and_then(|(image, path)| registry::with(image, |f| f.access(path, flags)));
    let found = found.unwrap_or(Ok(false));
    // SAFETY: (B): `out` is writable.
    unsafe { *out = c_int::from(found.unwrap_or(false)) };
    found.err().unwrap_or(ffi::SQLITE_OK)
}

unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    out_len: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: (B), (N).
    let (path, image) = unsafe { (text(name), parameter(name, c"image")) };
    let Some(path) = path else { return ffi::SQLITE_CANTOPEN };
    let full = match names::full(path, image) {
        Ok(full) => full,
        Err(reason) => return failed((ffi::SQLITE_CANTOPEN, reason)),
    };
    if full.len() >= usize::try_from(out_len).unwrap_or(0) {
        return failed((ffi::SQLITE_CANTOPEN, format!("{full}: the name is too long")));
    }
    // SAFETY: (B): `out` has room for `out_len` bytes, more than the name.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(full.as_ptr(), full.len());
        out.add(full.len()).write(0);
    }
    ffi::SQLITE_OK
}

/// Functions that are the default VFS's, called with it: name, arguments, result, and the result if
/// it has none of them.
macro_rules! of_the_host {
    ($($name:ident = $method:ident($($arg:ident: $type:ty),*) -> $result:ty, $none:expr;)*) => {$(
        unsafe extern "C" fn $name(vfs: *mut sqlite3_vfs, $($arg: $type),*) -> $result {
            // SAFETY: (V), and the arguments are handed on as they came.
            unsafe {
                let host = host(vfs);
                match (*host).$method {
                    Some(method) => method(host, $($arg),*),
                    None => $none,
                }
            }
        }
    )*};
}

/// A function in a library.
type Symbol = unsafe extern "C" fn(*mut sqlite3_vfs, *mut c_void, *const c_char);

of_the_host! {
    dl_open = xDlOpen(path: *const c_char) -> *mut c_void, ptr::null_mut();
    dl_error = xDlError(len: c_int, message: *mut c_char) -> (), ();
    dl_sym = xDlSym(library: *mut c_void, name: *const c_char) -> Option<Symbol>, None;
    dl_close = xDlClose(library: *mut c_void) -> (), ();
    randomness = xRandomness(len: c_int, out: *mut c_char) -> c_int, 0;
    sleep = xSleep(us: c_int) -> c_int, 0;
    current_time = xCurrentTime(out: *mut f64) -> c_int, ffi::SQLITE_ERROR;
    current_time_int64 = xCurrentTimeInt64(out: *mut sqlite3_int64) -> c_int, ffi::SQLITE_ERROR;
    get_last_error = xGetLastError(len: c_int, message: *mut c_char) -> c_int, 0;
}
