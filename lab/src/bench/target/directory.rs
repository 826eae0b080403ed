//! A directory of the host as a target: real files, real time, SQLite's own VFS.
//!
//! Works in a new subdirectory that disappears with the target, whatever happens. The clock is the
//! host's; this is an adapter, so it may read it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use syncline_device::{Clock, WallClock};
use syncline_sqlite::AppBytes;

use crate::bench::target::{Open, Target, TargetFile};
use crate::error::{LabError, Result};

/// Counters shared by the files of a target.
#[derive(Default)]
struct Moved {
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

/// A subdirectory of a mounted directory. See the module's description.
pub struct DirectoryTarget {
    root: tempfile::TempDir,
    clock: WallClock,
    moved: Arc<Moved>,
}

impl DirectoryTarget {
    /// Works in a new subdirectory of `dir`.
    pub fn new(dir: &Path) -> Result<DirectoryTarget> {
        let root = tempfile::Builder::new().prefix(".syncline-bench-").tempdir_in(dir);
        let root = root.map_err(|err| LabError::host(dir, &err))?;
        Ok(DirectoryTarget { root, clock: WallClock::new(), moved: Arc::default() })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }
}

impl Target for DirectoryTarget {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    fn open(&self, path: &str, how: Open) -> Result<Box<dyn TargetFile>> {
        let path = self.path(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(how == Open::New);
        let file = options.open(&path).map_err(|err| LabError::host(&path, &err))?;
        Ok(Box::new(HostFile { file, path, moved: Arc::clone(&self.moved) }))
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        std::fs::create_dir(&path).map_err(|err| LabError::host(&path, &err))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let path = self.path(path);
        std::fs::remove_file(&path).map_err(|err| LabError::host(&path, &err))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        std::fs::rename(&from, &to).map_err(|err| LabError::host(&from, &err))
    }

    fn allow_atomic(&self, allow: bool) -> Result<()> {
        syncline_sqlite::allow_host_atomic(allow).map_err(|text| LabError::Usage(text.to_owned()))
    }

    fn database(&self, path: &str) -> Result<Connection> {
        Ok(Connection::open(self.path(path))?)
    }

    fn sync_all(&self) -> Result<()> {
        let root = self.root.path();
        let dir = File::open(root).map_err(|err| LabError::host(root, &err))?;
        let synced = rustix::fs::syncfs(&dir);
        synced.map_err(|err| LabError::host(root, &err.into()))
    }

    /// Files only: what SQLite's own VFS moves is not seen from here.
    fn app_bytes(&self) -> Option<AppBytes> {
        Some(AppBytes {
            written_bytes: self.moved.written_bytes.load(Ordering::Relaxed),
            read_bytes: self.moved.read_bytes.load(Ordering::Relaxed),
            calls: 0,
        })
    }
}

struct HostFile {
    file: File,
    path: PathBuf,
    moved: Arc<Moved>,
}

impl HostFile {
    fn result<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|err| LabError::host(&self.path, &err))
    }
}

impl TargetFile for HostFile {
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.result(self.file.read_at(&mut into[done..], offset + done as u64))? {
                0 => break,
                n => done += n,
            }
        }
        self.moved.read_bytes.fetch_add(done as u64, Ordering::Relaxed);
        Ok(done)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> Result<()> {
        self.result(self.file.write_all_at(from, offset))?;
        self.moved.written_bytes.fetch_add(from.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&mut self, datasync: bool) -> Result<()> {
        let synced = if datasync { self.file.sync_data() } else { self.file.sync_all() };
        self.result(synced)
    }

    fn size(&mut self) -> Result<u64> {
        Ok(self.result(self.file.metadata())?.len())
    }

    fn drop_cache(&mut self) -> Result<()> {
        self.sync(false)?;
        let advised = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        self.result(advised.map_err(std::io::Error::from))
    }
}
