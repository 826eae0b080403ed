//! Registration of a VFS with SQLite, and databases opened through it.

use std::sync::Arc;

use rusqlite::{Connection, OpenFlags};

use crate::error::{Result, VfsError};
use crate::ffi;
use crate::state::State;
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
    /// [`VfsError::Usage`] for a name that is in use or no C string.
    pub fn register(name: &str, fs: Arc<VolumeFs>, seed: u64) -> Result<SqliteVfs> {
        let state: &'static State = Box::leak(Box::new(State::new(fs, seed)));
        ffi::register(name, state).map_err(|reason| {
            VfsError::Usage(format!("SQLite VFS `{name}`: {reason}; choose another name"))
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
    /// SQLite's error.
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
