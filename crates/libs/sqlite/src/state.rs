//! State of a registered VFS: its volume, locks, random numbers. Safe Rust; `ffi.rs` calls it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rusqlite::ffi;
use syncline_fs::Create;

use crate::barriers::{Barriers, Purpose};
use crate::file::{Code, VfsFile};
use crate::locks::LockTable;
use crate::shm::ShmTable;
use crate::store::{ENOENT, ENOSPC, ENOTDIR, EROFS, OpenFile, Store};
use crate::volume_fs::NEW_FILE;

/// Milliseconds from the Julian epoch to 1970.
const JULIAN_MS: i64 = 210_866_760_000_000;

/// Open flags of journals whose name must be durable before they are relied on.
const JOURNALS: i32 =
    ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;

/// Files of one volume as SQLite opens them, and their locks.
pub struct State {
    /// Holds the volume until the registration is dropped; from then on open files do.
    registered: Mutex<Option<Arc<dyn Store>>>,
    fs: Weak<dyn Store>,
    locks: Arc<LockTable>,
    shm: Arc<ShmTable>,
    random: Mutex<ChaCha8Rng>,
    /// Numbers open files (lock owners) and temporary names.
    serial: AtomicU64,
    forks: Option<&'static AtomicU32>,
}

impl State {
    /// Files of `fs`. `seed` is for the random numbers SQLite asks of a VFS.
    pub fn new(fs: Arc<dyn Store>, seed: u64) -> State {
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

    fn fs(&self) -> Result<Arc<dyn Store>, Code> {
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
        let (opened, created) = match path {
            Some(path) => open_or_create(&fs, path, flags)?,
            None => {
                let name = format!("/.sqlite-temporary-{owner}");
                let made = Arc::clone(&fs).create(&name, &NEW_FILE);
                let made = made.map_err(|_| ffi::SQLITE_CANTOPEN)?;
                // As the unix VFS: without a name from the start, gone with its last use.
                fs.unlink(&name).map_err(|_| ffi::SQLITE_CANTOPEN)?;
                (made, true)
            }
        };
        let attr = opened.attr().map_err(|_| ffi::SQLITE_CANTOPEN)?;
        if syncline_fs::type_letter(attr.mode) != '-' {
            return Err(ffi::SQLITE_CANTOPEN);
        }
        // The unix VFS looks at the CREATE flag, not at whether the file was there.
        let new_in = match path {
            Some(path) if has(ffi::SQLITE_OPEN_CREATE) && has(JOURNALS) => {
                Some(Arc::clone(&fs).parent(path).map_err(|_| ffi::SQLITE_CANTOPEN)?)
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
            opened,
            ino: attr.ino,
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
            Err(ENOENT) => return Err(ffi::SQLITE_IOERR_DELETE_NOENT),
            Err(_) => return Err(ffi::SQLITE_IOERR_DELETE),
        }
        if sync_dir {
            let dir = Arc::clone(&fs).parent(path).map_err(|_| ffi::SQLITE_IOERR_DIR_FSYNC)?;
            let done = match fs.barriers() {
                Barriers::All => dir.fdatabarrier(),
                Barriers::None | Barriers::Order => dir.fdatasync(),
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
        match fs.stat(path) {
            Ok(attr) if flags == ffi::SQLITE_ACCESS_EXISTS => {
                Ok(attr.size > 0 || syncline_fs::type_letter(attr.mode) != '-')
            }
            Ok(_) => Ok(true),
            Err(ENOENT | ENOTDIR) => Ok(false),
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
    fs: &Arc<dyn Store>,
    path: &str,
    flags: i32,
) -> Result<(Box<dyn OpenFile>, bool), Code> {
    let exclusive = flags & ffi::SQLITE_OPEN_EXCLUSIVE != 0;
    match Arc::clone(fs).open(path) {
        Ok(_) if exclusive => Err(ffi::SQLITE_CANTOPEN),
        Ok(opened) => Ok((opened, false)),
        Err(ENOENT) if flags & ffi::SQLITE_OPEN_CREATE != 0 => {
            let made = Arc::clone(fs).create(path, &whose(&**fs, path, flags));
            let made = made.map_err(|errno| match errno {
                ENOSPC => ffi::SQLITE_FULL,
                EROFS => ffi::SQLITE_READONLY,
                _ => ffi::SQLITE_CANTOPEN,
            })?;
            Ok((made, true))
        }
        Err(_) => Err(ffi::SQLITE_CANTOPEN),
    }
}

/// Owner and mode of a new file: of a journal and a WAL those of their database, as in the unix
/// VFS. Nobody may read there what he may not read in the database.
fn whose(fs: &dyn Store, path: &str, flags: i32) -> Create {
    let journals = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let database = path.rsplit_once('-').filter(|_| flags & journals != 0);
    match database.and_then(|(database, _)| fs.owner(database)) {
        Some(attr) => Create { mode: attr.mode & 0o777, uid: attr.uid, gid: attr.gid },
        None => NEW_FILE,
    }
}
