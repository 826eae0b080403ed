//! The C interface of FlashLite: `include/flashlite.h` documents every function.
//!
//! Handles are boxes of [`Log`]. Null pointers and texts that are no paths give `FLASHLITE_EUSAGE`;
//! other pointers must be what the header asks for. Tested by `tests/it/download.c`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use syncline_flashlite::{Error, Log, Options, Progress, Rearrange};

use crate::pointers::exports;

const USAGE: Error = Error::Usage("a pointer is null; give a handle, a path and a buffer");

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Remembers the message of an error; its number.
fn failed(error: &Error) -> c_int {
    let text = error.to_string().replace('\0', " ");
    // Without zero bytes it is a C string.
    MESSAGE.set(CString::new(text).unwrap_or_default());
    match error {
        Error::Full => -2,
        Error::NotALog => -3,
        Error::Corrupt { .. } => -4,
        Error::Unsupported { .. } => -5,
        Error::Usage(_) => -6,
        Error::Latched => -7,
        Error::Moved { .. } => -8,
        Error::Stopped => -9,
        _ => -1,
    }
}

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(|error| failed(&error), |()| 0)
}

/// # Safety
/// `path` is null or a C string that lives as long as the result.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path, Error> {
    if path.is_null() {
        return Err(USAGE);
    }
    // SAFETY: not null, and the caller promises the rest.
    let text = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// # Safety
/// `log` is null or a handle that is not closed while the result lives.
unsafe fn log_of<'a>(log: *const Log) -> Result<&'a Log, Error> {
    // SAFETY: the caller promises it.
    unsafe { log.as_ref() }.ok_or(USAGE)
}

fn handle(result: Result<Log, Error>) -> *mut Log {
    match result {
        Ok(log) => Box::into_raw(Box::new(log)),
        Err(error) => {
            failed(&error);
            std::ptr::null_mut()
        }
    }
}

exports! {
    fn flashlite_create(path: *const c_char) -> *mut Log {
        // SAFETY: the caller promises it.
        let path = unsafe { path_of(path) };
        handle(path.and_then(|path| Log::create_file(path, Options::default())))
    }

    fn flashlite_create_paged(path: *const c_char, page_bytes: u32) -> *mut Log {
        // SAFETY: the caller promises it.
        let path = unsafe { path_of(path) };
        let options = Options { page_bytes, ..Options::default() };
        handle(path.and_then(|path| Log::create_file(path, options)))
    }

    fn flashlite_open(path: *const c_char, read_only: c_int) -> *mut Log {
        // SAFETY: the caller promises it.
        let path = unsafe { path_of(path) };
        handle(path.and_then(|path| match read_only {
            0 => Log::open_file(path, Options::default()),
            _ => Log::open_file_read_only(path),
        }))
    }

    fn flashlite_dropped_bytes(log: *const Log) -> u64 {
        // SAFETY: the caller promises it.
        let log = unsafe { log_of(log) };
        log.map_or(0, |log| log.opened().dropped.as_ref().map_or(0, |dropped| dropped.bytes))
    }

    fn flashlite_size(log: *const Log) -> u64 {
        // SAFETY: the caller promises it.
        unsafe { log_of(log) }.map_or(0, Log::len)
    }

    fn flashlite_pread(log: *const Log, into: *mut c_void, len: usize, offset: u64) -> i64 {
        // SAFETY: the caller promises it.
        let log = unsafe { log_of(log) };
        let read = log.and_then(|log| {
            if len == 0 {
                return Ok(0);
            }
            if into.is_null() {
                return Err(USAGE);
            }
            // SAFETY: not null, and the caller promises the room. The bytes are zeroed first: no
            // reference to uninitialized memory is made.
            let part = unsafe {
                into.cast::<u8>().write_bytes(0, len);
                std::slice::from_raw_parts_mut(into.cast::<u8>(), len)
            };
            log.read_at(part, offset)
        });
        match read {
            Ok(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
            Err(error) => failed(&error).into(),
        }
    }

    fn flashlite_pwrite(log: *mut Log, from: *const c_void, len: usize, offset: u64) -> c_int {
        // SAFETY: the caller promises it.
        let log = unsafe { log_of(log) };
        status(log.and_then(|log| {
            if len == 0 {
                return Ok(());
            }
            if from.is_null() {
                return Err(USAGE);
            }
            // SAFETY: not null, and the caller promises the bytes.
            log.write_at(unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }, offset)
        }))
    }

    fn flashlite_set_tags_at_once(log: *mut Log, tags: u32) -> c_int {
        // SAFETY: the caller promises it.
        status(unsafe { log_of(log) }.and_then(|log| log.set_tags_at_once(tags)))
    }

    fn flashlite_set_size(log: *mut Log, size_bytes: u64) -> c_int {
        // SAFETY: the caller promises it.
        status(unsafe { log_of(log) }.and_then(|log| log.set_len(size_bytes)))
    }

    fn flashlite_sync(log: *mut Log) -> c_int {
        // SAFETY: the caller promises it.
        status(unsafe { log_of(log) }.and_then(Log::sync_data))
    }
}

/// Called with its context, bytes done and bytes in all.
type Callback = unsafe extern "C" fn(*mut c_void, u64, u64) -> c_int;

exports! {
    fn flashlite_rearrange(log: *mut Log, path: *const c_char, release: c_int,
                           progress: Option<Callback>, context: *mut c_void) -> c_int {
        // SAFETY: the caller promises both.
        let (log, path) = unsafe { (log_of(log), path_of(path)) };
        let mut tell = |now: Progress| {
            let stop = progress.is_some_and(|progress| {
                // SAFETY: the caller promises that it may be called so.
                unsafe { progress(context, now.done_bytes, now.total_bytes) != 0 }
            });
            if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        status(log.and_then(|log| {
            let path = path?;
            if path.symlink_metadata().is_ok() {
                let source = std::io::ErrorKind::AlreadyExists.into();
                return Err(Error::Io { doing: "making the file", source });
            }
            let options = Rearrange { release: release != 0, ..Rearrange::default() };
            log.rearrange_to_file(path, options, &mut tell).map(|_| ())
        }))
    }

    fn flashlite_close(log: *mut Log) -> c_int {
        if log.is_null() {
            return failed(&USAGE);
        }
        // SAFETY: it came from `Box::into_raw`, and the caller gives it up.
        status(unsafe { Box::from_raw(log) }.close())
    }

    fn flashlite_message() -> *const c_char {
        MESSAGE.with_borrow(|message| message.as_ptr())
    }
}
