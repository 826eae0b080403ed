//! Sync engines: all that `sync=ordered` and `sync=eager` do differently above the journal.
//!
//! ```text
//!              ordered.rs                          eager.rs
//!  fsync       data in place, commit, flush        data and its metadata in one write to the log
//!  write-back  every page to its place             pages that the log holds: see the table there
//!  background  whole files by age                  steps of bounded length
//! ```
//!
//! The engine of a volume is chosen at mount and never changes. Everything else asks it and knows
//! no modes.

pub(crate) mod eager;
pub(crate) mod ordered;

use syncline_jbd2::{Checksums, JournalOptions, Member};

use crate::data::Files;
use crate::data::flush::batch::OutPage;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::options::{LogFormat, SyncMode};

/// One way to make files durable.
pub(crate) trait Engine: Send + Sync {
    /// Makes blocks `range` of a file durable, and its inode; with `datasync` the inode only if
    /// that is needed to read the data back. `range` is empty for what has no data outside of the
    /// journal.
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

    /// Decides for each planned page how it gets to its place. Those that must go through the
    /// journal are given to it.
    ///
    /// # Errors
    /// Whatever joining a transaction gives.
    fn classify(&self, files: &Files, inode: &Inode, pages: &mut [OutPage]) -> Result<()>;

    /// The pages with [`syncline_jbd2::WriteAction::Write`] are in their places, not flushed.
    fn sent(&self, files: &Files, pages: &[OutPage]);

    /// Write-back in the background at `now_ns` of the volume's clock.
    ///
    /// # Errors
    /// As [`Engine::fsync`].
    fn background(&self, files: &Files, now_ns: u64) -> Result<()>;

    /// True if [`Engine::background`] has work to do now, whatever the timers say.
    fn is_due_at_once(&self, files: &Files) -> bool;

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
    }
}
