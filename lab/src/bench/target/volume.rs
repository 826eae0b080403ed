//! A volume of this process as a target.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use syncline_device::Clock;
use syncline_fs::{InodeRef, Volume};
use syncline_sqlite::SqliteVfs;
use syncline_sqlite::{AppBytes, VolumeFs};

use crate::bench::target::{Open, Target, TargetFile};
use crate::error::Result;

/// Makes VFS names unique in this process; they reach neither the image nor a report.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A mounted [`Volume`] with a SQLite VFS over it.
pub struct VolumeTarget {
    fs: Arc<VolumeFs>,
    vfs: SqliteVfs,
}

impl VolumeTarget {
    /// Runs on `volume`, whose clock is `clock`; a system call costs `syscall_us` of virtual time.
    pub fn new(
        volume: Volume,
        clock: Arc<dyn Clock>,
        syscall_us: u32,
        seed: u64,
    ) -> Result<VolumeTarget> {
        let fs = Arc::new(VolumeFs::new(volume, clock, syscall_us));
        let name = format!("syncline-{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        let vfs = SqliteVfs::register(&name, Arc::clone(&fs), seed)?;
        Ok(VolumeTarget { fs, vfs })
    }

    /// The calls below.
    pub fn fs(&self) -> &Arc<VolumeFs> {
        &self.fs
    }

    /// Unmounts the volume. Files and databases must be closed.
    pub fn unmount(self) -> Result<()> {
        Ok(self.fs.volume().clone().unmount()?)
    }
}

impl Target for VolumeTarget {
    fn now_ns(&self) -> u64 {
        self.fs.clock().now_ns()
    }

    fn open(&self, path: &str, how: Open) -> Result<Box<dyn TargetFile>> {
        let inode = match how {
            Open::Existing => self.fs.open(path)?,
            Open::New => self.fs.create(path)?,
        };
        Ok(Box::new(VolumeFile { fs: Arc::clone(&self.fs), inode }))
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        Ok(self.fs.mkdir(path)?)
    }

    fn remove(&self, path: &str) -> Result<()> {
        Ok(self.fs.unlink(path)?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(self.fs.rename(from, to)?)
    }

    fn allow_atomic(&self, allow: bool) -> Result<()> {
        self.fs.offer_atomic(allow);
        Ok(())
    }

    fn database(&self, path: &str) -> Result<Connection> {
        Ok(self.vfs.open(path)?)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn app_bytes(&self) -> Option<AppBytes> {
        Some(self.fs.app_bytes())
    }
}

struct VolumeFile {
    fs: Arc<VolumeFs>,
    inode: InodeRef,
}

impl TargetFile for VolumeFile {
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.fs.read(&self.inode, offset, into)?)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> Result<()> {
        Ok(self.fs.write(&self.inode, offset, from)?)
    }

    fn sync(&mut self, datasync: bool) -> Result<()> {
        Ok(self.fs.fsync(&self.inode, datasync)?)
    }

    fn size(&mut self) -> Result<u64> {
        Ok(self.fs.size(&self.inode))
    }

    fn drop_cache(&mut self) -> Result<()> {
        // The runner remounts between preparation and measurement, which empties the cache.
        Ok(())
    }
}
