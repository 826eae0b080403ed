//! The paper's sequence: fallocate the maximum, write each period, sync_file_range in the lower
//! thread, ftruncate and fsync after the event. Source: write-latency paper, section 4, Figure 1.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::{allocate, create, failed, sync_names};
use super::sys::sync_file_range;
use crate::config::Config;
use crate::error::Result;
use crate::format::file_name;
use crate::strategy::{Done, Job, Strategy};

/// An open event. Shared, so that no lock is held across I/O.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) file: Arc<File>,
    pub(super) path: Arc<PathBuf>,
}

/// The open events of a strategy.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<BTreeMap<u64, Open>>);

impl Events {
    pub(super) fn insert(&self, event: u64, file: File, path: PathBuf) {
        let open = Open { file: Arc::new(file), path: Arc::new(path) };
        self.0.lock().insert(event, open);
    }

    pub(super) fn get(&self, event: u64) -> Result<Open> {
        let open = self.0.lock().get(&event).cloned();
        open.ok_or_else(|| crate::RecorderError::io(format!("event {event}"), &"it is over"))
    }

    pub(super) fn remove(&self, event: u64) -> Result<Open> {
        let open = self.0.lock().remove(&event);
        open.ok_or_else(|| crate::RecorderError::io(format!("event {event}"), &"it is over"))
    }
}

impl Open {
    pub(super) fn write(&self, offset: u64, slots: &[u8]) -> Result<()> {
        self.file.write_all_at(slots, offset).map_err(|err| failed("write", &self.path, &err))
    }

    /// Cuts to the length and makes data, length and name durable.
    pub(super) fn finish(&self, len_bytes: u64) -> Result<()> {
        self.file.set_len(len_bytes).map_err(|err| failed("ftruncate", &self.path, &err))?;
        self.file.sync_all().map_err(|err| failed("fsync", &self.path, &err))?;
        self.path.parent().map_or(Ok(()), sync_names)
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct PaperStrategy {
    dir: PathBuf,
    recorder: u64,
    file_bytes_max: u64,
    events: Events,
}

impl PaperStrategy {
    /// Events go into `dir`.
    pub fn new(dir: PathBuf, config: &Config) -> PaperStrategy {
        let (recorder, file_bytes_max) = (config.recorder, config.file_bytes_max());
        PaperStrategy { dir, recorder, file_bytes_max, events: Events::default() }
    }
}

impl Strategy for PaperStrategy {
    fn begin(&self, event: u64) -> Result<()> {
        let path = self.dir.join(file_name(self.recorder, event));
        let file = create(&path, 0)?;
        allocate(&file, &path, self.file_bytes_max)?;
        self.events.insert(event, file, path);
        Ok(())
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        self.events.get(event)?.write(offset, slots)
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        match *job {
            Job::WriteBack { event, from, to } => {
                let open = self.events.get(event)?;
                sync_file_range(&open.file, from, to - from)
                    .map_err(|err| failed("sync_file_range", &open.path, &err))?;
                // Written, but neither flushed nor reachable: the metadata is synced at the end.
                Ok(Done::default())
            }
            Job::Finish { event, len_bytes } => {
                self.events.remove(event)?.finish(len_bytes)?;
                Ok(Done { durable_bytes: len_bytes })
            }
        }
    }
}
