//! Files of `latency` and `record`: in a directory, or on a volume of this process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_device::{BlockDevice, Clock};
use syncline_fs::{Create, FallocateMode, FsError, InodeRef, MountOptions, Volume};
use syncline_recorder::os::sync_file_range;
use syncline_recorder::{EventVolume, RecorderError};

use crate::error::{Failure, Result};

/// Interval of a volume's background work.
const TICK: Duration = Duration::from_millis(5);

/// The calls that are timed, on files that were made by [`Place::create`].
pub trait Place: Sync {
    /// An open file.
    type File: Send + Sync;

    /// Makes an empty file.
    fn create(&self, name: &str) -> Result<Self::File>;
    /// Allocates the first `bytes`.
    fn fallocate(&self, file: &Self::File, bytes: u64) -> Result<()>;
    /// Writes all of `from` at `offset`.
    fn write(&self, file: &Self::File, offset: u64, from: &[u8]) -> Result<()>;
    /// Sets the size.
    fn truncate(&self, file: &Self::File, bytes: u64) -> Result<()>;
    /// fsync.
    fn fsync(&self, file: &Self::File) -> Result<()>;
    /// Writes a range back and waits for it.
    fn write_back(&self, file: &Self::File, from: u64, bytes: u64) -> Result<()>;
    /// Removes a file; not there is fine.
    fn remove(&self, name: &str);
    /// Makes everything durable.
    fn sync_all(&self) -> Result<()>;
}

/// A directory of this system.
pub struct Directory(pub PathBuf);

impl Directory {
    fn failed(&self, err: &io::Error) -> Failure {
        Failure::host(&self.0, err)
    }
}

impl Place for Directory {
    type File = File;

    fn create(&self, name: &str) -> Result<File> {
        let path = self.0.join(name);
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        file.map_err(|err| Failure::host(&path, &err))
    }

    fn fallocate(&self, file: &File, bytes: u64) -> Result<()> {
        let done = rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes);
        done.map_err(|err| self.failed(&err.into()))
    }

    fn write(&self, file: &File, offset: u64, from: &[u8]) -> Result<()> {
        file.write_all_at(from, offset).map_err(|err| self.failed(&err))
    }

    fn truncate(&self, file: &File, bytes: u64) -> Result<()> {
        file.set_len(bytes).map_err(|err| self.failed(&err))
    }

    fn fsync(&self, file: &File) -> Result<()> {
        file.sync_all().map_err(|err| self.failed(&err))
    }

    fn write_back(&self, file: &File, from: u64, bytes: u64) -> Result<()> {
        match sync_file_range(file, from, bytes) {
            // FUSE and others without it: the next best.
            Err(err) if err.kind() == io::ErrorKind::Unsupported => self.fsync(file),
            other => other.map_err(|err| self.failed(&err)),
        }
    }

    fn remove(&self, name: &str) {
        // What was never made need not be removed.
        let _ = std::fs::remove_file(self.0.join(name));
    }

    fn sync_all(&self) -> Result<()> {
        let dir = File::open(&self.0).map_err(|err| self.failed(&err))?;
        rustix::fs::syncfs(&dir).map_err(|err| self.failed(&err.into()))
    }
}

/// A volume in this process and the thread that does what is due in its background.
pub struct InProcess {
    volume: Volume,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl InProcess {
    /// Mounts `device`.
    pub fn mount(
        device: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<InProcess> {
        let volume = Volume::mount(device, Arc::clone(&clock), options)?;
        let stop = Arc::<AtomicBool>::default();
        let (ticked, stopped) = (volume.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let now_ns = clock.now_ns();
                if ticked.next_deadline_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                    // A failure has latched the volume: the next call reports it.
                    let _ = ticked.tick(now_ns);
                }
                std::thread::sleep(TICK);
            }
        });
        Ok(InProcess { volume, stop, thread: Some(thread) })
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }

    /// Unmounts.
    pub fn unmount(mut self) -> Result<()> {
        self.end();
        Ok(self.volume.clone().unmount()?)
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.end();
    }
}

/// All of a write, or an error.
fn write_all(
    volume: &Volume,
    file: &InodeRef,
    offset: u64,
    from: &[u8],
) -> syncline_fs::Result<()> {
    let written = volume.write(file, offset, from)?;
    if written == from.len() { Ok(()) } else { Err(FsError::NoSpace) }
}

impl Place for InProcess {
    type File = Arc<InodeRef>;

    fn create(&self, name: &str) -> Result<Self::File> {
        let how = Create { mode: 0o644, uid: 0, gid: 0 };
        Ok(Arc::new(self.volume.create(&self.volume.root()?, name.as_bytes(), &how)?))
    }

    fn fallocate(&self, file: &Self::File, bytes: u64) -> Result<()> {
        Ok(self.volume.fallocate(file, FallocateMode::Allocate, 0, bytes)?)
    }

    fn write(&self, file: &Self::File, offset: u64, from: &[u8]) -> Result<()> {
        Ok(write_all(&self.volume, file, offset, from)?)
    }

    fn truncate(&self, file: &Self::File, bytes: u64) -> Result<()> {
        Ok(self.volume.truncate(file, bytes)?)
    }

    fn fsync(&self, file: &Self::File) -> Result<()> {
        Ok(self.volume.fsync(file, false)?)
    }

    fn write_back(&self, file: &Self::File, from: u64, bytes: u64) -> Result<()> {
        Ok(self.volume.writeback_range(file, from, bytes).map(drop)?)
    }

    fn remove(&self, name: &str) {
        if let Ok(root) = self.volume.root() {
            // What was never made need not be removed.
            let _ = self.volume.unlink(&root, name.as_bytes());
        }
    }

    fn sync_all(&self) -> Result<()> {
        Ok(self.volume.sync()?)
    }
}

fn recording(name: &str) -> impl Fn(FsError) -> RecorderError {
    move |err| RecorderError::io(name.to_owned(), &err)
}

impl EventVolume for InProcess {
    type File = Arc<InodeRef>;

    fn create(&self, name: &str, bytes: u64) -> syncline_recorder::Result<Self::File> {
        let made = || {
            let how = Create { mode: 0o644, uid: 0, gid: 0 };
            let root = self.volume.root()?;
            let file = self.volume.create(&root, name.as_bytes(), &how)?;
            let done = self.volume.fallocate(&file, FallocateMode::Allocate, 0, bytes);
            if done.is_err() {
                // The first failure counts, not that of tidying up.
                let _ = self.volume.unlink(&root, name.as_bytes());
            }
            done.map(|()| Arc::new(file))
        };
        made().map_err(recording(name))
    }

    fn write(&self, file: &Self::File, offset: u64, from: &[u8]) -> syncline_recorder::Result<()> {
        write_all(&self.volume, file, offset, from).map_err(recording("write"))
    }

    fn truncate(&self, file: &Self::File, bytes: u64) -> syncline_recorder::Result<()> {
        self.volume.truncate(file, bytes).map_err(recording("truncate"))
    }

    fn sync(&self, file: &Self::File, datasync: bool) -> syncline_recorder::Result<()> {
        self.volume.fsync(file, datasync).map_err(recording("fsync"))
    }
}
