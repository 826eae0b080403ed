//! The strategy on a volume of this process: allocated ahead, synced each time after 2 MB.
//!
//! With `sync=eager` on a Syncline volume, writes to blocks that are there and preallocation do not
//! wait for another file's truncation and fsync, which is what the write-latency paper leaves open
//! (section 6). A sync on the way makes what was recorded so far durable, so that a power cut
//! loses less than with the paper's sequence, which syncs at the end only.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::{RecorderError, Result};
use crate::format::file_name;
use crate::strategy::{Done, Job, Strategy};

/// The calls that a volume must have.
pub trait EventVolume: Send + Sync {
    /// An open file.
    type File: Clone + Send + Sync;

    /// Makes a file of this name with `bytes` allocated, which read as zeros.
    ///
    /// # Errors
    /// Whatever the volume says.
    fn create(&self, name: &str, bytes: u64) -> Result<Self::File>;

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the volume says.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Result<()>;

    /// Cuts the file to `bytes`.
    ///
    /// # Errors
    /// Whatever the volume says.
    fn truncate(&self, file: &Self::File, bytes: u64) -> Result<()>;

    /// Makes the file durable: fsync, or fdatasync with `datasync`.
    ///
    /// # Errors
    /// Whatever the volume says.
    fn sync(&self, file: &Self::File, datasync: bool) -> Result<()>;
}

/// Events as files of a volume. See the module's description.
pub struct VolumeStrategy<V: EventVolume> {
    volume: V,
    recorder: u64,
    file_bytes_max: u64,
    files: Mutex<BTreeMap<u64, V::File>>,
}

impl<V: EventVolume> VolumeStrategy<V> {
    /// Events of recorder `recorder`, of at most `file_bytes_max` bytes each.
    pub fn new(volume: V, recorder: u64, file_bytes_max: u64) -> Self {
        VolumeStrategy { volume, recorder, file_bytes_max, files: Mutex::default() }
    }

    /// The volume.
    pub fn volume(&self) -> &V {
        &self.volume
    }

    /// The volume, to unmount it. Events that are not over stay as they are.
    pub fn into_volume(self) -> V {
        self.volume
    }

    fn file(&self, event: u64) -> Result<V::File> {
        let file = self.files.lock().get(&event).cloned();
        file.ok_or_else(|| RecorderError::io(format!("event {event}"), &"it is over"))
    }
}

impl<V: EventVolume> Strategy for VolumeStrategy<V> {
    fn begin(&self, event: u64) -> Result<()> {
        let name = file_name(self.recorder, event);
        let file = self.volume.create(&name, self.file_bytes_max)?;
        self.files.lock().insert(event, file);
        Ok(())
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        self.volume.write(&self.file(event)?, offset, slots)
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        match *job {
            Job::WriteBack { event, to, .. } => {
                self.volume.sync(&self.file(event)?, true)?;
                Ok(Done { durable_bytes: to })
            }
            Job::Finish { event, len_bytes } => {
                let file = self.file(event)?;
                self.files.lock().remove(&event);
                self.volume.truncate(&file, len_bytes)?;
                self.volume.sync(&file, false)?;
                Ok(Done { durable_bytes: len_bytes })
            }
        }
    }
}
