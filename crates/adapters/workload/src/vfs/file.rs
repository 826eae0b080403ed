//! An open file of the VFS, in safe Rust: what each io method does, and the result code it gives.
//!
//! The calls are those of SQLite's own unix VFS, so that the file system below sees the same
//! sequence as on Linux:
//! - xSync is fdatasync whatever the flags. `SQLITE_SYNC_FULL` asks for more only on macOS
//!   (`F_FULLFSYNC`); `SQLITE_SYNC_DATAONLY` is what fdatasync does already.
//! - The first xSync of a journal or WAL opened with CREATE also syncs its directory (unix VFS:
//!   `UNIXFILE_DIRSYNC`), so that the name survives a power cut.
//! - A read past the end fills with zeroes and says so.
//!
//! Tested in `tests/vfs.rs`.

use std::sync::Arc;

use rusqlite::ffi;
use syncline_fs::{FsError, InodeRef};

use super::locks::{LockTable, NONE};
use crate::volume_fs::VolumeFs;

/// A result code of SQLite, never `SQLITE_OK`.
pub(super) type Code = std::os::raw::c_int;

/// An open file.
pub(super) struct VfsFile {
    pub(super) fs: Arc<VolumeFs>,
    pub(super) inode: InodeRef,
    pub(super) locks: Arc<LockTable>,
    /// Who holds the locks; unique per open file.
    pub(super) owner: u64,
    /// The directory to be made durable at the first sync.
    pub(super) new_in: Option<InodeRef>,
    pub(super) read_only: bool,
}

/// `SQLITE_FULL` for a full volume, otherwise `code`.
fn code(err: &FsError, code: Code) -> Code {
    if matches!(err, FsError::NoSpace) { ffi::SQLITE_FULL } else { code }
}

fn offset(at: i64) -> Result<u64, Code> {
    u64::try_from(at).map_err(|_| ffi::SQLITE_MISUSE)
}

impl VfsFile {
    pub(super) fn read(&self, into: &mut [u8], at: i64) -> Result<(), Code> {
        let got = self.fs.read(&self.inode, offset(at)?, into);
        let got = got.map_err(|_| ffi::SQLITE_IOERR_READ)?;
        if got < into.len() {
            into[got..].fill(0);
            return Err(ffi::SQLITE_IOERR_SHORT_READ);
        }
        Ok(())
    }

    pub(super) fn write(&self, from: &[u8], at: i64) -> Result<(), Code> {
        if self.read_only {
            return Err(ffi::SQLITE_READONLY);
        }
        let done = self.fs.write(&self.inode, offset(at)?, from);
        done.map_err(|err| code(&err, ffi::SQLITE_IOERR_WRITE))
    }

    pub(super) fn truncate(&self, size: i64) -> Result<(), Code> {
        let done = self.fs.truncate(&self.inode, offset(size)?);
        done.map_err(|err| code(&err, ffi::SQLITE_IOERR_TRUNCATE))
    }

    pub(super) fn sync(&mut self) -> Result<(), Code> {
        let done = self.fs.fsync(&self.inode, true);
        done.map_err(|err| code(&err, ffi::SQLITE_IOERR_FSYNC))?;
        if let Some(dir) = self.new_in.take() {
            let done = self.fs.fsync(&dir, true);
            done.map_err(|err| code(&err, ffi::SQLITE_IOERR_DIR_FSYNC))?;
        }
        Ok(())
    }

    pub(super) fn size(&self) -> i64 {
        i64::try_from(self.fs.size(&self.inode)).unwrap_or(i64::MAX)
    }

    pub(super) fn lock(&self, level: i32) -> Result<(), Code> {
        self.fs.enter();
        let granted = self.locks.lock(self.inode.ino, self.owner, level);
        if granted { Ok(()) } else { Err(ffi::SQLITE_BUSY) }
    }

    pub(super) fn unlock(&self, level: i32) {
        self.fs.enter();
        self.locks.unlock(self.inode.ino, self.owner, level);
    }

    pub(super) fn reserved(&self) -> bool {
        self.fs.enter();
        self.locks.reserved(self.inode.ino)
    }
}

impl Drop for VfsFile {
    fn drop(&mut self) {
        self.locks.unlock(self.inode.ino, self.owner, NONE);
    }
}
