//! A pool of files that are allocated, zeroed and durable before a fault needs them.
//!
//! ```text
//!   spare-*.rec  --fault: taken from a list, no system call--> written --end--> renamed, synced
//!        ^---------- made anew in pieces while no event is under way --------------+
//! ```
//!
//! An event calls neither open nor fallocate. Because the blocks are zeroed, not only allocated,
//! writing them converts no extents, so that a data sync on the way makes what was recorded
//! durable: a power cut loses what came after the last one, not the event. The file has its own
//! name only in the end; until then readers find it among the spares.
//!
//! A new spare is as many zeros as an event is long. Each piece of them is on the device before the
//! next one is written, and none is written beside an event: a device that is busy with zeros loses
//! the periods of the events that it is kept for.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::directory::{SPARE, allocate, create, failed, sync_names};
use super::paper::{Events, Open};
use super::sys::sync_file_range;
use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::format::file_name;
use crate::strategy::{Done, Job, Strategy};

/// Bytes of zeros that are written and waited for at a time.
const ZEROS_BYTES: usize = 1 << 20;

/// A spare that is being made.
#[derive(Debug)]
struct Zeroing {
    file: File,
    path: PathBuf,
    at: u64,
}

/// See the module's description.
#[derive(Debug)]
pub struct PoolStrategy {
    dir: PathBuf,
    recorder: u64,
    file_bytes_max: u64,
    spares: Mutex<VecDeque<(File, PathBuf)>>,
    /// So many spares there should be.
    spares_max: usize,
    /// Never waited for by the writer.
    zeroing: Mutex<Option<Zeroing>>,
    made: AtomicU64,
    /// Of open(2), for the spares.
    flags: i32,
    events: Events,
}

impl PoolStrategy {
    /// Events go into `dir`; makes as many spare files as there may be events.
    ///
    /// # Errors
    /// The spares cannot be made; none is left.
    pub fn new(dir: PathBuf, config: &Config) -> Result<PoolStrategy> {
        PoolStrategy::with_flags(dir, config, 0)
    }

    /// As [`PoolStrategy::new`], with files for direct I/O.
    pub(super) fn direct(dir: PathBuf, config: &Config) -> Result<PoolStrategy> {
        PoolStrategy::with_flags(dir, config, libc::O_DIRECT)
    }

    pub(super) fn open(&self, event: u64) -> Result<Open> {
        self.events.get(event)
    }

    fn with_flags(dir: PathBuf, config: &Config, flags: i32) -> Result<PoolStrategy> {
        let pool = PoolStrategy {
            dir,
            recorder: config.recorder,
            file_bytes_max: config.file_bytes_max(),
            spares: Mutex::default(),
            spares_max: config.events_max as usize,
            zeroing: Mutex::default(),
            made: AtomicU64::new(0),
            flags,
            events: Events::default(),
        };
        // What was made before a failure is removed with the pool.
        while pool.prepare()? {}
        Ok(pool)
    }

    /// Spare files that are ready.
    pub fn spares(&self) -> usize {
        self.spares.lock().len()
    }

    /// Makes the file of a spare, without its zeros.
    fn start_spare(&self) -> Result<Zeroing> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{SPARE}{:016x}-{number:06}.rec", self.recorder));
        let file = create(&path, 0)?;
        allocate(&file, &path, self.file_bytes_max)?;
        Ok(Zeroing { file, path, at: 0 })
    }

    /// Writes one piece of a spare's zeros; the last one makes it a spare.
    fn continue_spare(&self, spare: &mut Zeroing) -> Result<bool> {
        let write_failed = |err: std::io::Error| failed("write", &spare.path, &err);
        if spare.at < self.file_bytes_max {
            let left = self.file_bytes_max - spare.at;
            let piece = vec![0; usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS_BYTES)];
            let bytes = piece.len() as u64;
            (spare.file.write_all_at(&piece, spare.at))
                .and_then(|()| sync_file_range(&spare.file, spare.at, bytes))
                .map_err(write_failed)?;
            spare.at += bytes;
            return Ok(false);
        }
        spare.file.sync_all().map_err(write_failed)?;
        let file = reopen(&spare.path, self.flags).map_err(write_failed)?;
        sync_names(&self.dir)?;
        self.spares.lock().push_back((file, std::mem::take(&mut spare.path)));
        Ok(true)
    }
}

fn reopen(path: &std::path::Path, flags: i32) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

impl Strategy for PoolStrategy {
    fn begin(&self, event: u64) -> Result<()> {
        let spare = self.spares.lock().pop_front();
        let (file, path) = spare.ok_or_else(|| {
            let text = "no spare file is ready; keep more, or wait for the last events to end";
            RecorderError::Usage(text.to_owned())
        })?;
        self.events.insert(event, file, path);
        Ok(())
    }

    fn append(&self, event: u64, offset: u64, slots: &[u8]) -> Result<()> {
        self.events.get(event)?.write(offset, slots)
    }

    fn lower(&self, job: &Job) -> Result<Done> {
        match *job {
            Job::WriteBack { event, to, .. } => {
                let open = self.events.get(event)?;
                open.file.sync_data().map_err(|err| failed("fdatasync", &open.path, &err))?;
                Ok(Done { durable_bytes: to })
            }
            Job::Finish { event, len_bytes } => {
                let open = self.events.remove(event)?;
                let path = self.dir.join(file_name(self.recorder, event));
                std::fs::rename(&*open.path, &path)
                    .map_err(|err| failed("rename", &open.path, &err))?;
                Open { file: open.file, path: Arc::new(path) }.finish(len_bytes)?;
                Ok(Done { durable_bytes: len_bytes })
            }
        }
    }

    fn prepare(&self) -> Result<bool> {
        let mut zeroing = self.zeroing.lock();
        let Some(spare) = zeroing.as_mut() else {
            let wanted = self.spares() < self.spares_max;
            *zeroing = wanted.then(|| self.start_spare()).transpose()?;
            return Ok(wanted);
        };
        match self.continue_spare(spare) {
            Ok(false) => {}
            Ok(true) => *zeroing = None,
            Err(error) => {
                // The first failure counts, not that of tidying up.
                let _ = std::fs::remove_file(&spare.path);
                *zeroing = None;
                return Err(error);
            }
        }
        Ok(true)
    }
}

impl Drop for PoolStrategy {
    fn drop(&mut self) {
        let unfinished = self.zeroing.lock().take().map(|spare| spare.path);
        let spares: Vec<PathBuf> = self.spares.lock().drain(..).map(|spare| spare.1).collect();
        for path in spares.into_iter().chain(unfinished) {
            // Nothing is lost with a file of zeros that stays.
            let _ = std::fs::remove_file(path);
        }
    }
}
