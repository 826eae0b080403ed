//! A mounted volume: its parts, rules on its locks, mount and unmount.
//!
//! ```text
//!  Volume ── Names    directories, names, their cache                       names/
//!              └ Files   contents: read, write, write-back, sync            data/
//!                  └ Inodes   inodes in memory, orphans, attributes, pages  inode/
//!                      └ Space   free blocks and inodes                     space/  map/
//!                          └ Store   device, superblock, checksums, journal store/
//! ```
//!
//! Each part owns the part below and lends it by `Deref`. So the first parameter of a function
//! shows how much of the volume the function uses, and no function can reach a part above its own.
//! The methods of [`Volume`] stand in `impl crate::Volume` blocks beside the code of their part.
//!
//! `ranks.rs` has the order of the locks. In addition:
//!
//! - No handle is started while `state` or `pages` is held.
//! - Neither `rwsem` nor `io` is taken, no commit is waited for and no last [`InodeRef`] of
//!   an unlinked inode is dropped while a handle is held.
//! - No device write happens under `state`, `pages` or a handle.
//!
//! So a write does not wait for the device because of another file's fsync: the writer needs only
//! its own `rwsem` and `state`, and the journal admits handles while a commit is in flight.
//! `docs/papers/write-latency.md` lists the waits that remain.

use std::sync::Arc;

use syncline_device::{BlockDevice, Clock};

use crate::error::{FsError, Result};
#[cfg(doc)]
use crate::inode::reference::InodeRef;
use crate::mount::MountReport;
use crate::names::Names;
use crate::options::MountOptions;

/// A mounted ext4 volume. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Volume(pub(crate) Arc<Names>);

impl Volume {
    /// Mounts the ext4 volume on `dev`: replays its log, finishes its orphans. Timestamps and
    /// intervals come from `clock`.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] names a feature, [`FsError::Corrupt`] a broken structure; nothing
    /// has been written then, unless the log was replayed.
    pub fn mount(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Volume> {
        Ok(Volume::mount_report(dev, clock, options)?.0)
    }

    /// As [`Volume::mount`], with a report of the recovery.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub fn mount_report(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<(Volume, MountReport)> {
        let (names, report) = crate::mount::mount(dev, clock, options)?;
        Ok((Volume(names), report))
    }

    /// Recovers in memory, for a reader: returns `dev` as recovery would leave it, and the report.
    /// `dev` itself is only read. `None` if there is nothing to replay.
    ///
    /// # Errors
    /// As [`Volume::mount`].
    pub fn recovered_in_memory(
        dev: &Arc<dyn BlockDevice>,
        clock: &Arc<dyn Clock>,
        cache_bytes: u64,
    ) -> Result<Option<(Arc<dyn BlockDevice>, MountReport)>> {
        crate::mount::in_memory::recovered(dev, clock, cache_bytes)
    }

    /// Writes everything back and leaves the image clean. Calls of other clones fail afterwards.
    /// After an error the image is recoverable, as after a crash.
    ///
    /// # Errors
    /// The first failed write, or the error that latched the volume before.
    pub fn unmount(self) -> Result<()> {
        crate::mount::unmount(&self.0)
    }

    /// Makes a volume that was mounted read-only writable, as a remount of ext4 does. The device
    /// must be writable by now. Calls must not overlap.
    ///
    /// # Errors
    /// [`FsError::Unsupported`] for features that can only be read, a volume without a journal and
    /// one whose log has to be replayed; [`FsError::Invalid`] if the superblock is not the one that
    /// was mounted. The volume stays read-only then. After an I/O error it has to be unmounted.
    pub fn make_writable(&self) -> Result<()> {
        crate::mount::make_writable(&self.0)
    }

    /// Returns true if the volume was mounted read-only and was not made writable.
    pub fn is_read_only(&self) -> bool {
        self.0.journal.get().is_none()
    }

    /// Returns the resolution of timestamps in nanoseconds: a second with inodes of 128 bytes.
    pub fn time_granularity_ns(&self) -> u32 {
        if self.0.has_long_times() { 1 } else { 1_000_000_000 }
    }

    /// Returns counters and fill level of the journal; `None` on a read-only mount.
    pub fn journal_stats(&self) -> Option<syncline_jbd2::JournalStats> {
        self.0.journal.get().map(|journal| journal.stats())
    }

    /// Returns true if the volume was mounted with `rescue` or `undelete`.
    pub fn is_rescued(&self) -> bool {
        self.0.options.rescue.is_some()
    }

    /// Adds a note to those of [`Volume::take_missing`].
    pub fn note_missing(&self, what: String) {
        self.0.note_missing(what);
    }

    /// Takes the notes of the damage that reads with `rescue` went past until now, at most 1,000.
    pub fn take_missing(&self) -> Vec<String> {
        self.0.missing.lock().take()
    }

    /// Returns [`FsError::Latched`] with its cause if the volume has latched.
    pub fn latched(&self) -> Option<FsError> {
        self.0.latch.check().err()
    }
}
