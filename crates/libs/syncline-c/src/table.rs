//! Handles: numbers that are never used twice, and the texts of errors.
//!
//! A forked process starts a table of its own: the one it inherited may be locked for ever. Its
//! numbers go on where the other table was at the fork, so an inherited handle is known as such.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use syncline::{Builder, Directory, Disk, Error, File, Result};

const EIO: i32 = 5;
const EBADF: i32 = 9;
const EDEADLK: i32 = 35;

/// The first handle: small numbers are what programs pass by mistake.
const FIRST: u64 = 0x1_0000;

/// Object behind a handle.
pub(crate) enum Object {
    Volume(Disk),
    File(File),
    Directory(Mutex<Directory>),
    /// None: it was made or given up.
    Build(Box<Mutex<Option<Builder>>>),
}

struct Entry {
    object: Object,
    /// The sentence of its last failure.
    error: Mutex<String>,
}

struct Table {
    pid: u32,
    /// Smaller numbers were opened by the process that this one was forked from.
    first: u64,
    next: AtomicU64,
    entries: RwLock<BTreeMap<u64, Arc<Entry>>>,
    /// The table of the process before the fork, which is never freed.
    _inherited: Option<&'static Table>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    /// The last failure without a handle.
    static ERROR: RefCell<String> = RefCell::default();
    /// A function of the caller's device is running.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// The table of this process.
fn table() -> &'static Table {
    let pid = std::process::id();
    let known = TABLE.load(Ordering::Acquire);
    // SAFETY: what `TABLE` holds came from `Box::leak`.
    let before: Option<&'static Table> = unsafe { known.as_ref() };
    if let Some(table) = before.filter(|table| table.pid == pid) {
        return table;
    }
    let first = before.map_or(FIRST, |table| table.next.load(Ordering::Relaxed));
    let fresh = Box::leak(Box::new(Table {
        pid,
        first,
        next: first.into(),
        entries: RwLock::default(),
        _inherited: before,
    }));
    match TABLE.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        // SAFETY: another thread was first with its table, which came from `Box::leak` too.
        Err(now) => unsafe { &*now },
    }
}

/// A new handle.
pub(crate) fn insert(object: Object) -> u64 {
    let table = table();
    let handle = table.next.fetch_add(1, Ordering::Relaxed);
    let entry = Arc::new(Entry { object, error: Mutex::default() });
    table.entries.write().insert(handle, entry);
    handle
}

fn get(handle: u64) -> Result<Arc<Entry>> {
    let table = table();
    if let Some(entry) = table.entries.read().get(&handle) {
        return Ok(Arc::clone(entry));
    }
    let text = if handle >= FIRST && handle < table.first {
        "the handle was opened before a fork; open the volume again in this process"
    } else {
        "no such handle, or it is closed; use one that an open gave"
    };
    Err(Error::new(EBADF, text))
}

fn wrong_kind(wanted: &str) -> Error {
    Error::new(EBADF, format!("the handle is not a {wanted}; pass the right one"))
}

/// The caller's function runs: calls into this library are refused meanwhile, on this thread.
pub(crate) fn in_callback<T>(call: impl FnOnce() -> T) -> T {
    let before = IN_CALLBACK.replace(true);
    let done = call();
    IN_CALLBACK.set(before);
    done
}

/// Runs a call; the answer as C gets it.
fn run<T>(
    call: impl FnOnce() -> Result<T>,
    say: impl FnOnce(&Error),
) -> std::result::Result<T, i32> {
    let call = || {
        if IN_CALLBACK.get() {
            let text = "called by a device's own function; let that return first";
            return Err(Error::new(EDEADLK, text));
        }
        call()
    };
    let done = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        Err(Error::new(
            EIO,
            "a bug in the library stopped the call; close the volume and report it",
        ))
    });
    done.map_err(|err| {
        say(&err);
        err.errno
    })
}

fn remember(err: &Error) {
    ERROR.with_borrow_mut(|text| err.text.clone_into(text));
}

/// A call without a handle.
pub(crate) fn without<T>(call: impl FnOnce() -> Result<T>) -> std::result::Result<T, i32> {
    run(call, remember)
}

fn with<T>(handle: u64, call: impl FnOnce(&Object) -> Result<T>) -> std::result::Result<T, i32> {
    match get(handle) {
        Ok(entry) => run(|| call(&entry.object), |err| entry.error.lock().clone_from(&err.text)),
        Err(err) => without(|| Err(err)),
    }
}

/// A call on a volume.
pub(crate) fn on_volume<T>(
    handle: u64,
    call: impl FnOnce(&Disk) -> Result<T>,
) -> std::result::Result<T, i32> {
    with(handle, |object| match object {
        Object::Volume(disk) => call(disk),
        _ => Err(wrong_kind("volume")),
    })
}

/// A call on a file.
pub(crate) fn on_file<T>(
    handle: u64,
    call: impl FnOnce(&File) -> Result<T>,
) -> std::result::Result<T, i32> {
    with(handle, |object| match object {
        Object::File(file) => call(file),
        _ => Err(wrong_kind("file")),
    })
}

/// A call on a directory.
pub(crate) fn on_directory<T>(
    handle: u64,
    call: impl FnOnce(&mut Directory) -> Result<T>,
) -> std::result::Result<T, i32> {
    with(handle, |object| match object {
        Object::Directory(directory) => call(&mut directory.lock()),
        _ => Err(wrong_kind("directory")),
    })
}

/// A call on an image that is being made.
pub(crate) fn on_build<T>(
    handle: u64,
    call: impl FnOnce(&mut Builder) -> Result<T>,
) -> std::result::Result<T, i32> {
    with(handle, |object| match object {
        Object::Build(build) => call(build.lock().as_mut().ok_or_else(ended)?),
        _ => Err(wrong_kind("build")),
    })
}

/// Ends the handle of an image that is being made.
pub(crate) fn end_build<T>(
    handle: u64,
    end: impl FnOnce(Builder) -> Result<T>,
) -> std::result::Result<T, i32> {
    let mut ends = None;
    remove(handle, |object| match object {
        Object::Build(build) => Some(build.lock().take().ok_or_else(ended).and_then(|build| {
            ends = Some(end(build)?);
            Ok(())
        })),
        _ => None,
    })?;
    ends.ok_or(EBADF)
}

fn ended() -> Error {
    Error::new(EBADF, "another thread ended the build; begin another one")
}

/// Ends a handle; `close` gives `None` for one of another kind, which stays. The handle is gone
/// whatever closing says, so the sentence of a failure is this thread's.
pub(crate) fn remove(
    handle: u64,
    close: impl FnOnce(&Object) -> Option<Result<()>>,
) -> std::result::Result<(), i32> {
    without(|| {
        let entry = get(handle)?;
        let Some(done) = close(&entry.object) else {
            return Err(wrong_kind("handle that this function closes"));
        };
        table().entries.write().remove(&handle);
        done
    })
}

/// The sentence of the last failure of a handle, or of this thread.
pub(crate) fn error_text(handle: u64) -> String {
    match get(handle) {
        Ok(entry) => entry.error.lock().clone(),
        Err(_) => ERROR.with_borrow(String::clone),
    }
}
