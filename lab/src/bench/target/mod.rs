//! Target of a workload: a volume in this process, or a mounted directory.
//!
//! Workloads know only these traits, so the same code measures the simulated stack in virtual time
//! and any mounted file system in real time. Paths are relative to the target's root and use `/`.
//!
//! [`VolumeTarget`] is tested by every workload test, [`DirectoryTarget`] by
//! `lab/tests/bench/directory.rs`.

#[cfg(not(target_family = "wasm"))]
mod directory;
mod volume;

use rusqlite::Connection;

#[cfg(not(target_family = "wasm"))]
pub use directory::DirectoryTarget;
use syncline_sqlite::AppBytes;
pub use volume::VolumeTarget;

use crate::error::Result;

/// Mode of opening a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It is there.
    Existing,
    /// It is not there and is made.
    New,
}

/// An open file of a target.
pub trait TargetFile {
    /// pread: fewer bytes than asked only at the end of the file.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// pwrite of everything.
    fn write_at(&mut self, offset: u64, from: &[u8]) -> Result<()>;

    /// fsync, or fdatasync with `datasync`.
    fn sync(&mut self, datasync: bool) -> Result<()>;

    /// Size in bytes.
    fn size(&mut self) -> Result<u64>;

    /// Asks for the cached pages to be dropped, so that reads reach the device.
    fn drop_cache(&mut self) -> Result<()>;
}

/// A place where a workload runs. See the module's description.
pub trait Target {
    /// Nanoseconds of the target's clock.
    fn now_ns(&self) -> u64;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str, how: Open) -> Result<Box<dyn TargetFile>>;

    /// Makes a directory.
    fn mkdir(&self, path: &str) -> Result<()>;

    /// Removes a file.
    fn remove(&self, path: &str) -> Result<()>;

    /// Gives a file another name, in place of what has it.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Offers atomic writes to the databases that are opened from now on, where the file system
    /// has them, or keeps them from SQLite.
    fn allow_atomic(&self, allow: bool) -> Result<()>;

    /// Opens or creates a SQLite database.
    fn database(&self, path: &str) -> Result<Connection>;

    /// syncfs.
    fn sync_all(&self) -> Result<()>;

    /// Bytes that the application moved so far, where they can be counted.
    fn app_bytes(&self) -> Option<AppBytes>;
}
