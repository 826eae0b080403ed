//! One file of the program that is a log, or was one.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use syncline_flashlite::{Error, Log, Rearrange, Storage};

use crate::files::FileId;
use crate::logs::{ENDED_EARLY, ENDING, Inside, beside};
use crate::system::{self, complain};

/// A log whose writes are this much more than twice the file is ended: the program overwrites.
const OVERWRITTEN_BYTES: u64 = 64 << 20;

/// A number of errno.
pub(crate) struct Errno(pub(crate) c_int);

impl From<Error> for Errno {
    fn from(err: Error) -> Errno {
        Errno(match err {
            Error::Full => libc::ENOSPC,
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => libc::EIO,
        })
    }
}

impl From<io::Error> for Errno {
    fn from(err: io::Error) -> Errno {
        Errno(err.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Result of a call on a log.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// A file of the program that is a log, or was one.
pub(crate) struct LogFile {
    pub(crate) id: FileId,
    /// The program's file. Open until the process ends, since a close would end its locks.
    file: File,
    /// None once the file is plain.
    log: RwLock<Option<Log>>,
    /// Length of the file.
    size: Mutex<u64>,
    /// The length changed since the last sync.
    resized: AtomicBool,
    /// Held by calls that use and move the position.
    position: Mutex<()>,
    written: AtomicU64,
    /// It has lost its name.
    pub(crate) gone: AtomicBool,
}

/// The file that a log is rearranged to. It keeps its length, which others may look at.
struct Destination<'a>(&'a LogFile);

impl Storage for Destination<'_> {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.file.read_exact_at(into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.0.file.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let grows = self.len()? < len_bytes;
        if grows { self.0.file.set_len(len_bytes) } else { Ok(()) }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.file.sync_data()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.0.file))
    }
}

impl LogFile {
    /// The file of this length, whose bytes are in `log`.
    pub(crate) fn new(id: FileId, file: File, size_bytes: u64, log: Log) -> LogFile {
        LogFile {
            id,
            file,
            log: RwLock::new(Some(log)),
            size: Mutex::new(size_bytes),
            resized: AtomicBool::new(true),
            position: Mutex::new(()),
            written: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// Calls `f` with the log; nothing if the file is plain.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&Log) -> R) -> Option<R> {
        self.log.read().as_ref().map(f)
    }

    /// Reads; nothing if the file is plain.
    pub(crate) fn read(&self, into: &mut [u8], offset: u64) -> Option<Result<usize>> {
        self.with(|log| -> Result<usize> {
            let left = self.size.lock().saturating_sub(offset);
            let len = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = log.read_at(&mut into[..len], offset)?;
            // The file is longer than the log: a hole.
            into[read..len].fill(0);
            Ok(len)
        })
    }

    /// Writes all of `parts`; nothing if the file is plain.
    pub(crate) fn write(&self, parts: &[&[u8]], offset: u64) -> Option<Result<usize>> {
        let done = self.with(|log| -> Result<usize> {
            let mut at = offset;
            for part in parts {
                log.write_at(part, at)?;
                at += part.len() as u64;
            }
            if at > offset {
                self.grow(at)?;
            }
            Ok((at - offset) as usize)
        })?;
        if let Ok(bytes) = &done {
            let bytes = *bytes;
            let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
            if written > 2 * *self.size.lock() + OVERWRITTEN_BYTES {
                self.convert(Some("it is overwritten again and again"));
            }
        }
        Some(done)
    }

    /// Makes the file at least this long; nothing if it is plain.
    pub(crate) fn extend(&self, len_bytes: u64) -> Option<Result<()>> {
        self.with(|_| self.grow(len_bytes))
    }

    /// Makes the file at least this long.
    pub(crate) fn grow(&self, len_bytes: u64) -> Result<()> {
        let mut size = self.size.lock();
        if len_bytes > *size {
            self.file.set_len(len_bytes)?;
            *size = len_bytes;
            self.resized.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets the length; nothing if the file is plain.
    pub(crate) fn set_len(&self, len_bytes: u64) -> Option<Result<()>> {
        self.with(|log| -> Result<()> {
            let mut size = self.size.lock();
            if len_bytes < log.len() {
                log.set_len(len_bytes)?;
            }
            self.file.set_len(len_bytes)?;
            *size = len_bytes;
            self.resized.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Makes durable what was written, and the length; nothing if the file is plain.
    pub(crate) fn sync(&self) -> Option<Result<()>> {
        self.with(|log| -> Result<()> {
            log.sync_data()?;
            if self.resized.swap(false, Ordering::Relaxed) {
                self.file.sync_all()?;
            }
            Ok(())
        })
    }

    /// Calls `f` with the position of a descriptor, and moves it by what `f` did; nothing if the
    /// file is plain.
    pub(crate) fn at_position(
        &self,
        fd: c_int,
        writes: bool,
        f: impl FnOnce(u64) -> Option<Result<usize>>,
    ) -> Option<Result<usize>> {
        let _held = self.position.lock();
        // SAFETY: the call takes any numbers.
        let append = writes && unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_APPEND != 0;
        // SAFETY: as above.
        let now = unsafe { libc::lseek64(fd, 0, libc::SEEK_CUR) };
        let Ok(now) = u64::try_from(now) else {
            return Some(Err(io::Error::last_os_error().into()));
        };
        let from = if append { *self.size.lock() } else { now };
        let done = f(from)?;
        if let Ok(bytes) = &done {
            let to = i64::try_from(from + *bytes as u64).unwrap_or(i64::MAX);
            // SAFETY: as above.
            unsafe { libc::lseek64(fd, to, libc::SEEK_SET) };
        }
        Some(done)
    }

    /// Makes a plain file of the log. `why` is told; without one it is the end of the program.
    pub(crate) fn convert(&self, why: Option<&str>) {
        let mut log = self.log.write();
        let Some(open) = log.as_ref().filter(|_| !self.gone.load(Ordering::Relaxed)) else {
            return;
        };
        let _inside = Inside::enter();
        let path = system::path_of(self.file.as_raw_fd()).unwrap_or_default();
        let times =
            self.file.metadata().and_then(|found| Ok((found.accessed()?, found.modified()?)));
        let mut go_on = |_| ControlFlow::Continue(());
        let done = open.rearrange_to(&Destination(self), Rearrange::default(), &mut go_on);
        if let Err(err) = done {
            complain(&format!(
                "{}: its data is only in {}{ENDING}: {err}; correct that and run the program again \
                 in the same way, or `syncline flashlite rearrange` that log",
                path.display(),
                path.display()
            ));
            return;
        }
        if let Ok((accessed, modified)) = times {
            // Programs compare them with what they saw. A failure changes no byte.
            let times = std::fs::FileTimes::new().set_accessed(accessed).set_modified(modified);
            let _ = self.file.set_times(times);
        }
        // What is left is a log that says the same as the file.
        let _ = std::fs::remove_file(beside(&path));
        *log = None;
        if let Some(why) = why {
            ENDED_EARLY.fetch_add(1, Ordering::Relaxed);
            complain(&format!("{} was converted to a plain file: {why}", path.display()));
        }
    }
}
