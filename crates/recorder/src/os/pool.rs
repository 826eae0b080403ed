//! A pool of files that are allocated, zeroed and durable before a fault needs them.
//!
//! ```text
//!   spare-*.rec  --fault: taken from a list, no system call--> written --end--> renamed, synced
//!        ^---------------- made anew in the lower thread ---------------------------+
//! ```
//!
//! An event calls neither open nor fallocate. Because the blocks are zeroed, not only allocated,
//! writing them converts no extents, so that a data sync on the way makes what was recorded
//! durable: a power cut loses what came after the last one, not the event. The file has its own
//! name only in the end; until then readers find it among the spares.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::directory::{SPARE, allocate, create, failed, sync_names};
use super::paper::{Events, Open};
use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::format::file_name;
use crate::strategy::{Done, Job, Strategy};

/// Bytes of zeros of one write.
const ZEROS_BYTES: usize = 1 << 20;

/// See the module's description.
#[derive(Debug)]
pub struct PoolStrategy {
    dir: PathBuf,
    recorder: u64,
    file_bytes_max: u64,
    spares: Mutex<VecDeque<(File, PathBuf)>>,
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
            made: AtomicU64::new(0),
            flags,
            events: Events::default(),
        };
        for _ in 0..config.events_max {
            // What was made before is removed with the pool.
            pool.make_spare()?;
        }
        Ok(pool)
    }

    /// Spare files that are ready.
    pub fn spares(&self) -> usize {
        self.spares.lock().len()
    }

    fn make_spare(&self) -> Result<()> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("{SPARE}{:016x}-{number:06}.rec", self.recorder));
        let zeroing = create(&path, 0)?;
        allocate(&zeroing, &path, self.file_bytes_max)?;
        let zeroed = zero(&zeroing, self.file_bytes_max)
            .and_then(|()| zeroing.sync_all())
            .and_then(|()| reopen(&path, self.flags));
        let file = zeroed.map_err(|err| {
            // The first failure counts, not that of tidying up.
            let _ = std::fs::remove_file(&path);
            failed("write", &path, &err)
        })?;
        sync_names(&self.dir)?;
        self.spares.lock().push_back((file, path));
        Ok(())
    }
}

fn reopen(path: &std::path::Path, flags: i32) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).write(true).custom_flags(flags).open(path)
}

fn zero(file: &File, bytes: u64) -> std::io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut at = 0;
    while at < bytes {
        let n = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(ZEROS_BYTES);
        file.write_all_at(&zeros[..n], at)?;
        at += n as u64;
    }
    Ok(())
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
                // The event is safe; a spare that cannot be made is missed by the next fault, which
                // says so.
                let _ = self.make_spare();
                Ok(Done { durable_bytes: len_bytes })
            }
        }
    }
}

impl Drop for PoolStrategy {
    fn drop(&mut self) {
        for (_, path) in self.spares.lock().drain(..) {
            // Nothing is lost with a file of zeros that stays.
            let _ = std::fs::remove_file(path);
        }
    }
}
