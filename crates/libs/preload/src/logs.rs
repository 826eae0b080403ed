//! Files that are kept as FlashLite logs while the program runs.
//!
//! ```text
//!   NAME            the program's file: its length, owner and locks, and holes for bytes
//!   NAME.flashlite  the log, which has the bytes
//!   read, write, ... of a descriptor --> slot --> LogFile --> the log
//!   exit, exec, rename, link, mmap, stdio, fork --> convert: the log is rearranged into NAME
//! ```
//! A file becomes a log if a rule says so and it is empty when it is opened for writing, or if a
//! log is there from a program that was killed. Positions are the kernel's own, of the program's
//! descriptor. What cannot be done on a log ends it: the file is plain from then on, as it is
//! without this library.

use std::ffi::{CStr, OsString, c_int};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use syncline_flashlite::{Log, Options};

use crate::files::FileId;
use crate::library::{LIBRARY, absolute, is_owner};
use crate::log_file::{Errno, LogFile, Result};
use crate::system::{self, complain};

/// End of a log's name.
pub(crate) const ENDING: &str = ".flashlite";
/// Descriptors that can be of a log; larger numbers are of plain files.
const FDS: usize = 4096;
/// Logs of one process.
const LOGS_MAX: usize = 1024;

/// For each descriptor 0, or the index of its log and one.
static SLOTS: [AtomicUsize; FDS] = [const { AtomicUsize::new(0) }; FDS];
static LOGS: [OnceLock<LogFile>; LOGS_MAX] = [const { OnceLock::new() }; LOGS_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// First log of this process; those before it are of the parent.
static BASE: AtomicUsize = AtomicUsize::new(0);
/// Held while a log is made or opened, and over a fork.
static OPENING: AtomicBool = AtomicBool::new(false);
pub(crate) static ENDED_EARLY: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This library itself opens files.
    static INSIDE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// While it is there, this thread's opens are the library's own.
pub(crate) struct Inside(bool);

impl Inside {
    pub(crate) fn enter() -> Inside {
        Inside(INSIDE.replace(true))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ENDING);
    name.into()
}

/// True if any file can be a log.
fn wanted() -> bool {
    LIBRARY.get().is_some_and(|library| library.rules.logs()) && !INSIDE.get()
}

fn is_wanted(path: &Path) -> bool {
    let log = path.as_os_str().as_encoded_bytes().ends_with(ENDING.as_bytes());
    !log && LIBRARY.get().is_some_and(|library| library.rules.is_log(path))
}

fn all() -> impl Iterator<Item = (usize, &'static LogFile)> {
    let range = BASE.load(Ordering::Acquire)..COUNT.load(Ordering::Acquire).min(LOGS_MAX);
    range.filter_map(|index| Some((index, LOGS[index].get()?)))
}

fn find(id: &FileId) -> Option<(usize, &'static LogFile)> {
    all().find(|(_, log_file)| log_file.id == *id && !log_file.gone.load(Ordering::Relaxed))
}

fn slot(fd: c_int) -> Option<&'static AtomicUsize> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

/// The log of a descriptor.
pub(crate) fn of(fd: c_int) -> Option<&'static LogFile> {
    let slot = slot(fd)?;
    let index = slot.load(Ordering::Acquire).checked_sub(1)?;
    let log_file = LOGS.get(index)?.get()?;
    // It was closed where nobody saw it, and is another file by now.
    let same =
        system::keeping_errno(|| system::identity(fd).is_some_and(|file| file.id == log_file.id));
    if !same {
        clear(slot);
    }
    same.then_some(log_file)
}

/// Sets a slot, unless it is the parent's: a child of vfork has the parent's memory and descriptors
/// of its own.
fn set(slot: &AtomicUsize, value: usize) {
    if slot.load(Ordering::Acquire) != value && is_owner() {
        slot.store(value, Ordering::Release);
    }
}

fn clear(slot: &AtomicUsize) {
    set(slot, 0);
}

/// A descriptor is being closed.
pub(crate) fn forget(fd: c_int) {
    slot(fd).into_iter().for_each(clear);
}

/// Every descriptor from `first` to `last` is.
pub(crate) fn forget_range(first: usize, last: usize) {
    SLOTS.iter().take(last.saturating_add(1)).skip(first).for_each(clear);
}

/// A descriptor has another number, too; which is returned.
pub(crate) fn copied(from: c_int, to: c_int) -> c_int {
    if let (Some(from), Some(to)) = (slot(from), slot(to)) {
        set(to, from.load(Ordering::Acquire));
    }
    to
}

struct Opening;

impl Opening {
    fn lock() -> Opening {
        while OPENING.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        Opening
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        OPENING.store(false, Ordering::Release);
    }
}

/// A file was opened. Returns the descriptor; or -1 and errno, if the log that has its bytes cannot
/// be used.
pub(crate) fn opened(fd: c_int, flags: c_int) -> c_int {
    if fd < 0 || !wanted() || flags & libc::O_PATH != 0 {
        return fd;
    }
    forget(fd);
    match system::keeping_errno(|| open(fd, flags)) {
        Ok(()) => fd,
        Err(Errno(errno)) => {
            // SAFETY: the descriptor is ours alone still; the address of errno is always valid.
            unsafe {
                libc::close(fd);
                *libc::__errno_location() = errno;
            }
            -1
        }
    }
}

/// True if there is the log of this file. One that is older than the file is of another that had
/// its name: it is removed.
fn left_over(log_path: &Path, id: &FileId) -> bool {
    let name = std::ffi::CString::new(log_path.as_os_str().as_encoded_bytes());
    let log = name.ok().and_then(|name| system::identity_at(&name));
    let older = |log: &system::Identity| log.id.born_ns < id.born_ns && log.id.born_ns != 0;
    let old = log.as_ref().is_some_and(older);
    if old {
        complain(&format!("{} is of another file; it is removed", log_path.display()));
        // Making the new one says what is wrong.
        let _ = std::fs::remove_file(log_path);
    }
    log.is_some() && !old
}

fn open(fd: c_int, flags: c_int) -> Result<()> {
    let Some(slot) = slot(fd) else { return Ok(()) };
    let file = system::identity(fd).filter(|file| file.plain && file.named && !file.directory);
    let Some(file) = file else { return Ok(()) };
    let Some(path) = system::path_of(fd).filter(|path| is_wanted(path)) else { return Ok(()) };
    let _opening = Opening::lock();
    let _inside = Inside::enter();
    if let Some((index, log_file)) = find(&file.id) {
        slot.store(index + 1, Ordering::Release);
        if flags & libc::O_TRUNC != 0 {
            log_file.set_len(0).transpose().map(drop)?;
        }
        return Ok(());
    }
    let log_path = beside(&path);
    let there = left_over(&log_path, &file.id);
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let empty = || std::fs::metadata(&path).is_ok_and(|found| found.len() == 0);
    let index = COUNT.load(Ordering::Acquire);
    if !there && (!writes || index >= LOGS_MAX || !empty()) {
        return Ok(());
    }
    let log = match there {
        true => Log::open_file(&log_path, Options::default()),
        false => Log::create_file(&log_path, Options::default()),
    };
    // Nobody else is to read in the log what the file does not show. It is empty still.
    let mode = || std::fs::set_permissions(&log_path, std::fs::metadata(&path)?.permissions());
    if !there && log.is_ok() && mode().is_err() {
        // The file is plain, as without rules.
        let _ = std::fs::remove_file(&log_path);
        return Ok(());
    }
    let log = match log {
        Ok(log) => log,
        // The file is plain, as without rules.
        Err(err) if !there => {
            complain(&format!("{} is a plain file: {err}", path.display()));
            return Ok(());
        }
        Err(err) => {
            complain(&format!("{}: {err}", log_path.display()));
            return Err(err.into());
        }
    };
    let file_itself = OpenOptions::new().read(true).write(true).open(&path)?;
    let size = file_itself.metadata()?.len();
    if flags & libc::O_TRUNC != 0 {
        log.set_len(0)?;
    }
    let log_file = LogFile::new(file.id, file_itself, size, log);
    // After a power cut the file may be shorter than what its log has.
    if let Some(len) = log_file.with(Log::len) {
        log_file.grow(len)?;
    }
    if index < LOGS_MAX && LOGS[index].set(log_file).is_ok() {
        COUNT.store(index + 1, Ordering::Release);
        slot.store(index + 1, Ordering::Release);
        return Ok(());
    }
    Err(Errno(libc::ENFILE))
}

/// Ends the log of a descriptor, if it has one.
pub(crate) fn convert(fd: c_int, why: &str) {
    if let Some(log_file) = of(fd) {
        system::keeping_errno(|| log_file.convert(Some(why)));
    }
}

/// Ends the log of a file, also one that a program left which was killed.
pub(crate) fn convert_path(dirfd: c_int, path: &CStr, why: &str) {
    if !wanted() {
        return;
    }
    system::keeping_errno(|| {
        let Some(path) = absolute(dirfd, path).filter(|path| is_wanted(path)) else { return };
        let known = || {
            let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
            find(&system::identity_of_link(libc::AT_FDCWD, &path)?.id)
        };
        if known().is_none() && beside(&path).exists() {
            // To open it is to know it: this library's own hook does.
            drop(OpenOptions::new().read(true).write(true).open(&path));
        }
        if let Some((_, log_file)) = known() {
            log_file.convert(Some(why));
        }
    });
}

/// Does `remove`, which takes a file's name away, and its log if it has one.
pub(crate) fn removing(dirfd: c_int, path: &CStr, remove: impl FnOnce() -> c_int) -> c_int {
    if !wanted() {
        return remove();
    }
    let before = system::keeping_errno(|| {
        let log_file = find(&system::identity_of_link(dirfd, path)?.id);
        Some((log_file, absolute(dirfd, path).filter(|path| is_wanted(path))))
    });
    let done = remove();
    if let Some((log_file, path)) = before.filter(|_| done == 0) {
        system::keeping_errno(|| {
            if let Some((_, log_file)) = log_file {
                log_file.gone.store(true, Ordering::Relaxed);
            }
            if let Some(path) = path {
                let _inside = Inside::enter();
                // There was none.
                let _ = std::fs::remove_file(beside(&path));
            }
        });
    }
    done
}

/// The end of the program: every log becomes a plain file.
pub(crate) fn finish() {
    for (_, log_file) in all() {
        log_file.convert(None);
    }
}

/// Logs that there were, and those of them that ended before the program. They start anew.
pub(crate) fn counts() -> (u64, u64) {
    (all().count() as u64, ENDED_EARLY.swap(0, Ordering::Relaxed))
}

/// Before a fork: both processes would write the logs.
pub(crate) extern "C" fn before_fork() {
    if all().next().is_some() {
        system::keeping_errno(|| {
            for (_, log_file) in all() {
                log_file.convert(Some("the program forks"));
            }
        });
    }
    std::mem::forget(Opening::lock());
}

/// After it, in the parent.
pub(crate) extern "C" fn after_fork() {
    OPENING.store(false, Ordering::Release);
}

/// After it, in the child, which knows of no log.
pub(crate) fn in_child() {
    BASE.store(COUNT.load(Ordering::Acquire), Ordering::Release);
    forget_range(0, FDS);
    ENDED_EARLY.store(0, Ordering::Relaxed);
    OPENING.store(false, Ordering::Release);
}
