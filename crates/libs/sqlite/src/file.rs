//! An open file of the VFS, in safe Rust: what each io method does, and the result code it gives.
//!
//! The calls are those of SQLite's own unix VFS, so that the file system below sees the same
//! sequence as on Linux:
//! - xSync is fdatasync whatever the flags, or a barrier ([`crate::VolumeFs::use_barriers`]).
//!   `SQLITE_SYNC_FULL` asks for more only on macOS (`F_FULLFSYNC`); `SQLITE_SYNC_DATAONLY` is what
//!   fdatasync does already.
//! - The first xSync of a journal or WAL opened with CREATE also syncs its directory (unix VFS:
//!   `UNIXFILE_DIRSYNC`), so that the name survives a power cut.
//! - A read past the end fills with zeroes and says so.
//!
//! Batch-atomic writes (`SQLITE_IOCAP_BATCH_ATOMIC`) are offered if
//! [`crate::VolumeFs::offer_atomic`] says so. The writes of a batch stay in the process until
//! SQLite commits it; the volume gets them in one call. A batch that does not fit one record is an
//! I/O error to SQLite, which then rolls it back and goes on with its journal.
//!
//! Tested in `tests/it/vfs.rs`.

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rusqlite::ffi;

use crate::barriers::Purpose;
use crate::batch::Batch;
use crate::locks::{LockTable, NONE};
use crate::shm::ShmTable;
use crate::store::{ENOSPC, OpenFile, Store};

/// A result code of SQLite, never `SQLITE_OK`.
pub type Code = std::os::raw::c_int;

/// An open file.
pub struct VfsFile {
    pub(crate) fs: Arc<dyn Store>,
    pub(crate) opened: Box<dyn OpenFile>,
    /// Its inode number.
    pub(crate) ino: u32,
    pub(crate) locks: Arc<LockTable>,
    pub(crate) shm: Arc<ShmTable>,
    /// Owner of the locks; unique per open file.
    pub(crate) owner: u64,
    /// The directory to be made durable at the first sync.
    pub(crate) new_in: Option<Box<dyn OpenFile>>,
    pub(crate) read_only: bool,
    pub(crate) purpose: Purpose,
    /// Set if the last connection is to leave the WAL behind.
    pub(crate) persists_wal: bool,
    /// A batch that SQLite has begun.
    pub(crate) batch: Option<Batch>,
    /// The counter of forks, and its value at the open.
    pub(crate) opened_in: Option<(&'static AtomicU32, u32)>,
    /// Dropped after everything else.
    pub(crate) held: Option<Box<dyn Any + Send>>,
}

/// `SQLITE_FULL` for a full volume, otherwise `code`.
fn code(errno: i32, code: Code) -> Code {
    if errno == ENOSPC { ffi::SQLITE_FULL } else { code }
}

fn offset(at: i64) -> Result<u64, Code> {
    u64::try_from(at).map_err(|_| ffi::SQLITE_MISUSE)
}

impl VfsFile {
    /// Keeps `held` until the file is closed and its inode is given back.
    pub fn hold(&mut self, held: Box<dyn Any + Send>) {
        self.held = Some(held);
    }

    /// # Errors
    /// `SQLITE_MISUSE` in a process that has inherited the connection by a fork: its volume knows
    /// nothing of what the other process writes, and locks may be held in it for ever.
    fn check_process(&self) -> Result<(), Code> {
        match self.opened_in {
            Some((forks, count)) if forks.load(Ordering::Relaxed) != count => {
                Err(ffi::SQLITE_MISUSE)
            }
            _ => Ok(()),
        }
    }

    /// Closes the file. One that was inherited by a fork is left alone.
    pub(crate) fn close(self: Box<Self>) {
        match self.check_process() {
            Ok(()) => drop(self),
            Err(_) => std::mem::forget(self),
        }
    }

    pub(crate) fn read(&self, into: &mut [u8], at: i64) -> Result<(), Code> {
        self.check_process()?;
        let at = offset(at)?;
        let mut got = self.opened.read(at, into).map_err(|_| ffi::SQLITE_IOERR_READ)?;
        if let Some(batch) = &self.batch {
            got = batch.overlay(at, into, got);
        }
        if got < into.len() {
            into[got..].fill(0);
            return Err(ffi::SQLITE_IOERR_SHORT_READ);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, from: &[u8], at: i64) -> Result<(), Code> {
        if self.read_only {
            return Err(ffi::SQLITE_READONLY);
        }
        self.check_process()?;
        let at = offset(at)?;
        if let Some(batch) = &mut self.batch {
            batch.push(at, from);
            return Ok(());
        }
        self.purpose.note_write(at, from);
        let done = self.opened.write(at, from);
        done.map_err(|errno| code(errno, ffi::SQLITE_IOERR_WRITE))
    }

    /// `SQLITE_IOCAP_*` bits.
    pub(crate) fn characteristics(&self) -> i32 {
        let atomic = if self.fs.offers_atomic() { ffi::SQLITE_IOCAP_BATCH_ATOMIC } else { 0 };
        ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE | atomic
    }

    /// Does a file control; `SQLITE_NOTFOUND` for those that there are not.
    pub(crate) fn control(&mut self, op: i32) -> Result<(), Code> {
        self.check_process()?;
        match op {
            ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE if !self.read_only => {
                self.batch = Some(Batch::default());
                Ok(())
            }
            ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE => match self.batch.take() {
                Some(batch) => {
                    let done = self.opened.write_batch(&batch);
                    done.map_err(|errno| code(errno, ffi::SQLITE_IOERR_COMMIT_ATOMIC))
                }
                None => Err(ffi::SQLITE_IOERR_COMMIT_ATOMIC),
            },
            ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE => {
                self.batch = None;
                Ok(())
            }
            _ => Err(ffi::SQLITE_NOTFOUND),
        }
    }

    pub(crate) fn truncate(&mut self, size: i64) -> Result<(), Code> {
        self.check_process()?;
        let size = offset(size)?;
        self.purpose.note_truncate(size);
        let done = self.opened.truncate(size);
        done.map_err(|errno| code(errno, ffi::SQLITE_IOERR_TRUNCATE))
    }

    pub(crate) fn sync(&mut self) -> Result<(), Code> {
        self.check_process()?;
        let is_order = self.purpose.take_order(self.fs.barriers());
        let sync = |opened: &dyn OpenFile| match is_order {
            true => opened.fdatabarrier(),
            false => opened.fdatasync(),
        };
        let done = sync(&*self.opened);
        done.map_err(|errno| code(errno, ffi::SQLITE_IOERR_FSYNC))?;
        if let Some(dir) = &self.new_in {
            let done = sync(&**dir);
            done.map_err(|errno| code(errno, ffi::SQLITE_IOERR_DIR_FSYNC))?;
        }
        self.new_in = None;
        Ok(())
    }

    pub(crate) fn size(&self) -> Result<i64, Code> {
        self.check_process()?;
        let size = self.opened.size().map_err(|_| ffi::SQLITE_IOERR_FSTAT)?;
        Ok(i64::try_from(size).unwrap_or(i64::MAX))
    }

    pub(crate) fn lock(&self, level: i32) -> Result<(), Code> {
        self.check_process()?;
        self.fs.charge_syscall();
        let granted = self.locks.lock(self.ino, self.owner, level);
        if granted { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    pub(crate) fn unlock(&self, level: i32) -> Result<(), Code> {
        self.check_process()?;
        self.fs.charge_syscall();
        self.locks.unlock(self.ino, self.owner, level);
        Ok(())
    }

    /// The lock that this connection holds.
    pub(crate) fn lock_level(&self) -> Result<i32, Code> {
        self.check_process()?;
        Ok(self.locks.level(self.ino, self.owner))
    }

    /// Sets the mark that SQLite's core asks for at the last close: 0 clears it, more sets it, less
    /// leaves it. Returns what it is then.
    pub(crate) fn persist_wal(&mut self, asked: i32) -> bool {
        if asked >= 0 {
            self.persists_wal = asked > 0;
        }
        self.persists_wal
    }

    pub(crate) fn reserved(&self) -> Result<bool, Code> {
        self.check_process()?;
        self.fs.charge_syscall();
        Ok(self.locks.reserved(self.ino))
    }
}

/// Shared memory of WAL mode. It costs no system call: on Linux it is mapped.
impl VfsFile {
    /// The address of a region; null if there is none and none is to be made.
    pub(crate) fn shm_map(
        &self,
        region: i32,
        bytes: i32,
        extend: bool,
    ) -> Result<*mut c_void, Code> {
        self.check_process()?;
        let (Ok(region), Ok(bytes)) = (usize::try_from(region), usize::try_from(bytes)) else {
            return Err(ffi::SQLITE_MISUSE);
        };
        let mapped = self.shm.map(self.ino, self.owner, region, bytes, extend);
        mapped.ok_or(ffi::SQLITE_IOERR_SHMMAP)
    }

    pub(crate) fn shm_lock(&self, first: i32, count: i32, flags: i32) -> Result<(), Code> {
        self.check_process()?;
        let (Ok(first), Ok(count)) = (u32::try_from(first), u32::try_from(count)) else {
            return Err(ffi::SQLITE_MISUSE);
        };
        if flags & ffi::SQLITE_SHM_UNLOCK != 0 {
            self.shm.unlock(self.ino, self.owner, first, count);
            return Ok(());
        }
        let exclusive = flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
        let granted = self.shm.lock(self.ino, self.owner, first, count, exclusive);
        if granted { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    pub(crate) fn shm_unmap(&self) -> Result<(), Code> {
        self.check_process()?;
        self.shm.unmap(self.ino, self.owner);
        Ok(())
    }
}

impl Drop for VfsFile {
    fn drop(&mut self) {
        self.shm.unmap(self.ino, self.owner);
        self.locks.unlock(self.ino, self.owner, NONE);
    }
}
