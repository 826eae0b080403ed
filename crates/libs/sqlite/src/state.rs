//! State of a registered VFS: its volume, locks, random numbers. Safe Rust; `ffi.rs` calls it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rusqlite::ffi;
use syncline_fs::{Create, FsError};

use crate::barriers::{Barriers, Purpose};
use crate::file::{Code, VfsFile};
use crate::locks::LockTable;
use crate::shm::ShmTable;
use crate::volume_fs::{NEW_FILE, VolumeFs};

/// Milliseconds from the Julian epoch to 1970.
const JULIAN_MS: i64 = 210_866_760_000_000;

/// Open flags of journals whose name must be durable before they are relied on.
const JOURNALS: i32 =
    ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;

/// Files of one volume as SQLite opens them, and their locks.
pub struct State {
    /// Holds the volume until the registration is dropped; from then on open files do.
    registered: Mutex<Option<Arc<VolumeFs>>>,
    fs: Weak<VolumeFs>,
    locks: Arc<LockTable>,
    shm: Arc<ShmTable>,
    random: Mutex<ChaCha8Rng>,
    /// Numbers open files (lock owners) and temporary names.
    serial: AtomicU64,
    forks: Option<&'static AtomicU32>,
}

impl State {
    /// Files of `fs`. `seed` is for the random numbers SQLite asks of a VFS.
    pub fn new(fs: Arc<VolumeFs>, seed: u64) -> State {
        State {
            fs: Arc::downgrade(&fs),
            registered: Mutex::new(Some(fs)),
            locks: Arc::default(),
            shm: Arc::default(),
            random: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            serial: AtomicU64::new(1),
            forks: None,
        }
    }

    /// Refuses files in the children of the process that opened them. `forks` counts, in each
    /// process, the forks that it came from; a number of the process would be a system call.
    #[must_use]
    pub fn refuse_after_fork(mut self, forks: &'static AtomicU32) -> State {
        self.forks = Some(forks);
        self
    }

    pub(crate) fn detach(&self) {
        *self.registered.lock() = None;
    }

    fn fs(&self) -> Result<Arc<VolumeFs>, Code> {
        self.fs.upgrade().ok_or(ffi::SQLITE_CANTOPEN)
    }

    /// Opens `path`, or an unnamed temporary file. Returns the file and the flags it has.
    ///
    /// # Errors
    /// A result code of SQLite.
    pub fn open(&self, path: Option<&str>, flags: i32) -> Result<(VfsFile, i32), Code> {
        let fs = self.fs()?;
        let owner = self.serial.fetch_add(1, Ordering::Relaxed);
        let has = |flag: i32| flags & flag != 0;
        let (inode, created) = match path {
            Some(path) => open_or_create(&fs, path, flags)?,
            None => {
                let name = format!("/.sqlite-temporary-{owner}");
                let inode = fs.create(&name).map_err(|_| ffi::SQLITE_CANTOPEN)?;
                // As the unix VFS: without a name from the start, gone with its last use.
                fs.unlink(&name).map_err(|_| ffi::SQLITE_CANTOPEN)?;
                (inode, true)
            }
        };
        let attr = fs.volume().getattr_unseen(&inode);
        if syncline_fs::type_letter(attr.mode) != '-' {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        // The unix VFS looks at the CREATE flag, not at whether the file was there.
        let new_in = match path {
            Some(path) if has(ffi::SQLITE_OPEN_CREATE) && has(JOURNALS) => {
                Some(fs.parent(path).map_err(|_| ffi::SQLITE_CANTOPEN)?)
            }
            _ => None,
        };
        if let (Some(path), false) = (path, created)
            && has(ffi::SQLITE_OPEN_DELETEONCLOSE)
        {
            fs.unlink(path).map_err(|_| ffi::SQLITE_CANTOPEN)?;
        }
        let read_only = has(ffi::SQLITE_OPEN_READONLY);
        let (locks, shm) = (Arc::clone(&self.locks), Arc::clone(&self.shm));
        let file = VfsFile {
            fs,
            inode,
            locks,
            shm,
            owner,
            new_in,
            read_only,
            purpose: Purpose::new(flags),
            persists_wal: false,
            batch: None,
            opened_in: self.forks.map(|forks| (forks, forks.load(Ordering::Relaxed))),
            held: None,
        };
        Ok((file, flags))
    }

    /// Removes a name, and with `sync_dir` makes that durable.
    ///
    /// # Errors
    /// A result code of SQLite.
    pub fn delete(&self, path: &str, sync_dir: bool) -> Result<(), Code> {
        let fs = self.fs()?;
        match fs.unlink(path) {
            Ok(()) => {}
            Err(FsError::NotFound) => return Err(ffi::SQLITE_IOERR_DELETE_NOENT),
            Err(_) => return Err(ffi::SQLITE_IOERR_DELETE),
        }
        if sync_dir {
            let dir = fs.parent(path).map_err(|_| ffi::SQLITE_IOERR_DIR_FSYNC)?;
            let done = match fs.barriers() {
                Barriers::All => fs.fdatabarrier(&dir),
                Barriers::None | Barriers::Order => fs.fsync(&dir, true),
            };
            done.map_err(|_| ffi::SQLITE_IOERR_DIR_FSYNC)?;
        }
        Ok(())
    }

    /// True if `path` exists; with `SQLITE_ACCESS_EXISTS` an empty regular file does not, as in the
    /// unix VFS (an empty journal is no hot journal).
    ///
    /// # Errors
    /// A result code of SQLite.
    pub fn access(&self, path: &str, flags: i32) -> Result<bool, Code> {
        let fs = self.fs()?;
        match fs.open(path) {
            Ok(inode) if flags == ffi::SQLITE_ACCESS_EXISTS => {
                let attr = fs.volume().getattr_unseen(&inode);
                Ok(attr.size > 0 || syncline_fs::type_letter(attr.mode) != '-')
            }
            Ok(_) => Ok(true),
            Err(FsError::NotFound | FsError::NotDir) => Ok(false),
            Err(_) => Err(ffi::SQLITE_IOERR_ACCESS),
        }
    }

    pub(crate) fn randomness(&self, into: &mut [u8]) {
        self.random.lock().fill_bytes(into);
    }

    /// Sleeps; returns the microseconds.
    pub(crate) fn sleep(&self, us: u64) {
        if let Ok(fs) = self.fs() {
            fs.clock().sleep_until(fs.clock().now_ns() + us * 1000);
        }
    }

    /// Milliseconds since the Julian epoch.
    pub(crate) fn julian_ms(&self) -> i64 {
        let now_ns = self.fs().map_or(0, |fs| fs.clock().now_ns());
        (now_ns / 1_000_000) as i64 + JULIAN_MS
    }
}

/// The file at `path`, made if it is missing and may be. And whether it was made.
fn open_or_create(
    fs: &VolumeFs,
    path: &str,
    flags: i32,
) -> Result<(syncline_fs::InodeRef, bool), Code> {
    let exclusive = flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0;
    match fs.open(path) {
        Ok(_) if exclusive => Err(ffi::SQLITE_CANTOPEN),
        Ok(inode) => Ok((inode, false)),
        Err(FsError::NotFound) if flags & ffi::SQLITE_OPEN_CREATE != 0 => {
            let made = fs.create_as(path, &whose(fs, path, flags)).map_err(|err| match err {
                FsError::NoSpace => ffi::SQLITE_FULL,
                FsError::ReadOnly => ffi::SQLITE_READONLY,
                _ => ffi::SQLITE_CANTOPEN,
            })?;
            Ok((made, true))
        }
        Err(_) => Err(ffi::SQLITE_CANTOPEN),
    }
}

/// Owner and mode of a new file: of a journal and a WAL those of their database, as in the unix
/// VFS. Nobody may read there what he may not read in the database.
fn whose(fs: &VolumeFs, path: &str, flags: i32) -> Create {
    let journals = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let database = path.rsplit_once('-').filter(|_| flags & journals != 0);
    // Not `fs.open`: the price of a call is in the stored figures of every journal mode.
    match database.map(|(database, _)| fs.volume().resolve(database)) {
        Some(Ok(database)) => {
            let attr = fs.volume().getattr_unseen(&database);
            Create { mode: attr.mode & 0o777, uid: attr.uid, gid: attr.gid }
        }
        _ => NEW_FILE,
    }
}
