//! A SQLite VFS over a volume: databases inside of an ext4 image, no mount, no FUSE.
//!
//! ```text
//!   rusqlite ── sqlite3_vfs / sqlite3_io_methods (ffi.rs: all unsafe code)
//!                   |
//!                state.rs: open, delete, access      file.rs: read, write, sync, lock
//!                   |
//!                VolumeFs ── Volume
//! ```
//!
//! Promises
//! - Journal modes DELETE, TRUNCATE, PERSIST, MEMORY; WAL with `locking_mode=EXCLUSIVE` (the io
//!   methods are version 1: no shared memory), set before `journal_mode=WAL`.
//! - The device characteristics are those of the unix VFS on Linux: `POWERSAFE_OVERWRITE` and
//!   nothing else. Claiming atomic or sequential writes would save syncs that a real file system
//!   needs.
//! - Time comes from the volume's clock and randomness from a seed: with a virtual clock a run
//!   repeats exactly.
//! - Locks hold among the connections of this process; a volume has one process.
//!
//! A registration may be dropped while connections are open: they stay usable, new ones are
//! refused. Each registration leaves some 300 bytes behind, since SQLite may keep its pointer.
//!
//! Tested in `tests/vfs.rs` (every journal mode, remount, power cuts with hot journals).

mod ffi;
mod file;
mod locks;
mod state;

use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

pub use ffi::seed_sqlite;
use state::State;

use crate::error::{Result, WorkloadError};
use crate::volume_fs::VolumeFs;

/// A registered VFS. Dropping it unregisters it.
pub struct SqliteVfs {
    name: String,
    state: &'static State,
}

impl SqliteVfs {
    /// Registers a VFS called `name` over `fs`. `seed` is for the random numbers SQLite asks of a
    /// VFS.
    ///
    /// # Errors
    /// [`WorkloadError::Usage`] for a name that is in use or no C string.
    pub fn register(name: &str, fs: Arc<VolumeFs>, seed: u64) -> Result<SqliteVfs> {
        let state: &'static State = Box::leak(Box::new(State::new(fs, seed)));
        ffi::register(name, state).map_err(|reason| {
            WorkloadError::Usage(format!("SQLite VFS `{name}`: {reason}; choose another name"))
        })?;
        Ok(SqliteVfs { name: name.to_owned(), state })
    }

    /// The name to give to SQLite.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens or creates a database at `path` inside of the volume.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn open(&self, path: &str) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Ok(Connection::open_with_flags_and_vfs(path, flags, self.name.as_str())?)
    }
}

impl Drop for SqliteVfs {
    fn drop(&mut self) {
        ffi::unregister(&self.name);
        // The volume must not live as long as the process.
        self.state.detach();
    }
}
