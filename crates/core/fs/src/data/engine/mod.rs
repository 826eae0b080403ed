//! Sync engines: the differences between the modes of `sync=` above the journal.
//!
//! ```text
//!              ordered.rs              eager.rs                   periodic.rs
//!  fsync       data in place, then a   data and its metadata in   nothing
//!              commit or a flush       one write to the log
//!  write-back  every page in place     changed since logged: to   new data and long overwrites to
//!                                      the log; else in place     new blocks, others logged
//!  its units   whole files by age      steps of bounded length    sync points of the whole volume
//! ```
//!
//! The engine of a volume is chosen at mount and never changes. All other code asks the engine and
//! does not know the modes (`tidy` counts the exceptions).

pub(crate) mod eager;
pub(crate) mod ordered;
pub(crate) mod periodic;
pub(crate) mod route;

use syncline_jbd2::{Checksums, JournalOptions, Member};

use crate::data::Files;
use crate::data::flush::batch::{Job, OutPage};
use crate::data::flush::plan::Target;
use crate::data::schedule::state::SyncPointStats;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::reference::InodeRef;
use crate::options::{LogFormat, SyncMode};

/// One way to make files durable.
pub(crate) trait Engine: Send + Sync {
    /// Makes blocks `range` of a file durable, and its inode; with `datasync` the inode only if
    /// that is needed to read the data back. `range` is empty for an inode without data outside of
    /// the journal.
    ///
    /// # Errors
    /// I/O errors and [`crate::FsError::Latched`]; for lack of space the pages stay dirty.
    fn fsync(
        &self,
        files: &Files,
        inode: &Inode,
        range: std::ops::Range<u64>,
        datasync: bool,
    ) -> Result<()>;

    /// True if [`Engine::order`] is cheaper than fdatasync.
    fn can_order(&self) -> bool {
        false
    }

    /// Orders what fdatasync of blocks `range` would make durable before everything that is changed
    /// later.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn order(&self, files: &Files, inode: &Inode, range: std::ops::Range<u64>) -> Result<()> {
        self.fsync(files, inode, range, true)
    }

    /// True if fsync of this file only reports whether the volume has failed.
    fn defers_fsync(&self, files: &Files, inode: &InodeRef) -> bool {
        files.relaxed.is_relaxed(inode)
    }

    /// True if syncfs only reports whether the volume has failed.
    fn defers_syncfs(&self, _files: &Files) -> bool {
        false
    }

    /// Makes every file and all metadata durable.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn sync_all(&self, files: &Files) -> Result<()>;

    /// Figures of the sync points; `None` if there are none.
    fn sync_point_stats(&self, _files: &Files) -> Option<SyncPointStats> {
        None
    }

    /// True if the volume, not the journal, decides when the running transaction commits
    /// ([`JournalOptions::owner_commits`]).
    fn owner_commits(&self) -> bool {
        false
    }

    /// True if [`Engine::fsync`] chooses by the measured costs of the device.
    fn uses_costs(&self) -> bool {
        false
    }

    /// Bytes of one write that no commit may divide. `None`: it may lie between any two steps.
    ///
    /// # Errors
    /// [`FsError::Latched`] and [`FsError::ReadOnly`].
    fn whole_write_bytes(&self, _files: &Files) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Lowers the number of dirty pages further where a writer has written back its share: `pages`
    /// of its own file. The caller holds neither `io` nor a handle.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn throttle(&self, _files: &Files, _inode: &Inode, _pages: usize) -> Result<()> {
        Ok(())
    }

    /// Destination of the pages that write-back takes from a file.
    ///
    /// # Errors
    /// [`FsError::Latched`] and [`FsError::ReadOnly`].
    fn target(&self, _files: &Files, _inode: &Inode) -> Result<Target> {
        Ok(Target::Home)
    }

    /// Brings the changed pages of a file into the journal or to their places, so that no page of
    /// it waits for a sync. The caller does not hold `io`.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn prepare_sync(&self, files: &Files, inode: &Inode) -> Result<()> {
        self.fsync(files, inode, 0..u64::MAX, true)
    }

    /// True if the log takes file data, so that several pages can become durable together.
    fn logs_data(&self) -> bool {
        false
    }

    /// Puts pages of a file, with their blocks and `size` in bytes, into one operation of the
    /// journal. Returns the members of its set: the caller makes them durable. The caller holds
    /// `io` and `rwsem`, and no other page of the file waits for a sync.
    ///
    /// # Errors
    /// [`crate::FsError::AtomicTooBig`], or for lack of space: nothing was changed. Any other error
    /// may have latched the volume.
    fn log_together(
        &self,
        _files: &Files,
        _inode: &Inode,
        _size: u64,
        _pages: &mut [OutPage],
    ) -> Result<Vec<Member>> {
        Err(FsError::NotSupported("file data in the log without sync=eager".into()))
    }

    /// Makes the sets of these members durable, as a sync of their file does. The caller holds
    /// `io`.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn make_durable(&self, files: &Files, members: &[Member]) -> Result<()> {
        Ok(files.journal()?.sync(members, false)?)
    }

    /// Completes an atomic write of a file after [`Engine::make_durable`]. The caller holds
    /// nothing.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn finish_atomic(&self, _files: &Files, _inode: &InodeRef) -> Result<()> {
        Ok(())
    }

    /// Decides for each planned page how it reaches its home block. Those that must go through the
    /// journal are given to it.
    ///
    /// # Errors
    /// As joining a transaction.
    fn classify(&self, files: &Files, job: &mut Job<'_>) -> Result<()>;

    /// Notes that the pages that go to their home blocks were written there, without a flush.
    ///
    /// # Errors
    /// As joining a transaction.
    fn on_data_written(&self, files: &Files, job: &Job<'_>) -> Result<()>;

    /// Write-back in the background at `now_ns` of the volume's clock.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn background(&self, files: &Files, now_ns: u64) -> Result<()>;

    /// True if [`Engine::background`] has work to do now, regardless of the timers.
    fn is_due_at_once(&self, files: &Files) -> bool;

    /// When [`Engine::background`] has more to do than write-back, in nanoseconds of the clock.
    fn deadline_ns(&self, _files: &Files) -> Option<u64> {
        None
    }

    /// Clean pages between two dirty ones that are written along with them, at most.
    fn gap_pages_max(&self) -> usize;

    /// True if overwrites of relaxed files may be sent as relaxed.
    fn sends_relaxed(&self) -> bool;

    /// Options of a journal with this format, where a kernel's would have checksums `kernels`.
    fn journal_options(&self, log: LogFormat, kernels: Checksums) -> JournalOptions;
}

/// The engine for a mount option.
pub(crate) fn engine(sync: SyncMode) -> &'static dyn Engine {
    match sync {
        SyncMode::Ordered => &ordered::Ordered,
        SyncMode::Eager => &eager::Eager,
        SyncMode::Periodic => &periodic::Periodic,
    }
}
