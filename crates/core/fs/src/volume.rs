//! The volume: what every operation shares.
//!
//! ```text
//!  Volume (Arc) ── Inner ─┬─ dev, clock, options, geo        constant
//!                         ├─ sb            Mutex: the ext4 superblock as it will be written
//!                         ├─ buffers       metadata blocks (jbd2::BufferCache)
//!                         ├─ journal       empty when mounted read-only
//!                         ├─ balloc        block allocator          ─┐
//!                         ├─ ialloc        inode allocator           ├ per-group locks
//!                         ├─ pages         page cache accounting    ─┘
//!                         ├─ icache        inode number -> Arc<Inode>
//!                         ├─ dcache        (directory, name) -> inode number
//!                         └─ latch         first fatal error; nothing is written after it
//! ```
//!
//! Lock order, each level may be skipped, never taken backwards: `rename_lock`, `Inode::rwsem`
//! (parents before children, then ascending inode number), `Inode::io`, a journal handle,
//! `Inode::state`, `Inode::pages`, allocator groups, `sb`, buffer internals.
//!
//! - No handle is started while `state` or `pages` is held.
//! - Neither `rwsem` nor `io` is taken, no commit is waited for and no last [`crate::InodeRef`] of
//!   an unlinked inode is dropped while a handle is held.
//! - No device write happens under `state`, `pages` or a handle.
//!
//! So an fsync of one file never makes a write to another wait for the device: the writer needs
//! only its own `rwsem` and `state`, and the journal admits handles while a commit is in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use syncline_device::{BlockDevice, Clock};
use syncline_jbd2::{BufferCache, Counters, Handle, Host, Journal, JournalError};
use syncline_ondisk::{Geometry, Superblock, group::GroupCsum};

use crate::balloc::Balloc;
use crate::dcache::Dcache;
use crate::dir::live::DirConstants;
use crate::error::{FsError, Result};
use crate::hot::HotFiles;
use crate::ialloc::Ialloc;
use crate::icache::Icache;
use crate::live::LiveLimits;
use crate::options::{MountOptions, OnError};
use crate::orphan::Orphans;
use crate::pagecache::PageCache;
use crate::relaxed::RelaxedFiles;
use crate::sweep::Sweep;
use crate::time::{self, Timestamp};

/// A mounted ext4 volume. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Volume(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) dev: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    /// What of the options may have changed since.
    pub(crate) live: Mutex<LiveLimits>,
    pub(crate) geo: Geometry,
    pub(crate) csum: GroupCsum,
    /// Block of each descriptor block, in order.
    pub(crate) desc_blocks: Vec<u64>,
    /// Seed of every metadata checksum (`metadata_csum`).
    pub(crate) csum_seed: u32,
    pub(crate) sb: Mutex<Superblock>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) journal: OnceLock<Arc<Journal>>,
    pub(crate) balloc: Balloc,
    pub(crate) hot: HotFiles,
    pub(crate) relaxed: RelaxedFiles,
    pub(crate) ialloc: Ialloc,
    pub(crate) pages: PageCache,
    pub(crate) icache: Icache,
    pub(crate) dcache: Dcache,
    /// What the superblock says about every directory.
    pub(crate) dir_format: DirConstants,
    pub(crate) orphans: Mutex<Orphans>,
    /// Blocks of the orphan file and the seed of their checksums.
    pub(crate) orphan_file: OnceLock<(Vec<u64>, Option<u32>)>,
    /// Background write-back of eager mode that is under way.
    pub(crate) sweep: Mutex<Option<Sweep>>,
    pub(crate) rename_lock: Mutex<()>,
    pub(crate) latch: Latch,
}

impl Volume {
    /// Counters and fill level of the journal; `None` on a read-only mount.
    pub fn journal_stats(&self) -> Option<syncline_jbd2::JournalStats> {
        self.0.journal.get().map(|journal| journal.stats())
    }

    /// [`FsError::Latched`] with its cause once nothing is written any more.
    pub fn latched(&self) -> Option<FsError> {
        self.0.latch.check().err()
    }
}

/// The first fatal error of a volume. Shared with the journal, which may abort on its own.
#[derive(Default)]
pub(crate) struct Latch(OnceLock<FsError>);

impl Latch {
    /// Keeps the first error only.
    pub(crate) fn set(&self, err: &FsError) {
        let _ = self.0.set(err.clone());
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.0.get() {
            // What was reported as latched names its cause once.
            Some(FsError::Latched(cause)) => Err(FsError::Latched(cause.clone())),
            Some(err) => Err(FsError::Latched(err.to_string())),
            None => Ok(()),
        }
    }
}

impl Inner {
    /// Starts a journal handle for at most `credits` metadata blocks.
    ///
    /// # Errors
    /// [`FsError::ReadOnly`], [`FsError::Latched`], or what the journal says.
    pub(crate) fn start(&self, credits: u32) -> Result<Handle> {
        self.latch.check()?;
        let journal = self.journal.get().ok_or(FsError::ReadOnly)?;
        Ok(journal.start(credits)?)
    }

    /// Fails unless the volume can be written to.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.latch.check()?;
        if self.journal.get().is_none() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// The journal of a writable volume.
    pub(crate) fn journal(&self) -> Result<&Arc<Journal>> {
        self.journal.get().ok_or(FsError::ReadOnly)
    }

    /// Reports corruption: the returned error names the place, and the volume latches read-only
    /// unless it was mounted with `errors=continue`.
    pub(crate) fn corrupt(
        &self,
        inode: Option<u32>,
        block: Option<u64>,
        offset: Option<u64>,
        what: impl Into<String>,
    ) -> FsError {
        self.found_corrupt(FsError::Corrupt { inode, block, offset, what: what.into() })
    }

    /// Latches for a [`FsError::Corrupt`] as [`Inner::corrupt`] does; other errors pass through.
    pub(crate) fn found_corrupt(&self, err: FsError) -> FsError {
        if !matches!(err, FsError::Corrupt { .. }) {
            return err;
        }
        if self.options.errors == OnError::RemountRo {
            self.latch.set(&err);
        }
        err
    }

    /// A write of file data or metadata failed: nothing is written any more.
    pub(crate) fn fail(&self, err: FsError) -> FsError {
        self.latch.set(&err);
        if let (Some(journal), FsError::Io(device)) = (self.journal.get(), &err) {
            journal.abort(JournalError::Io(device.clone()));
        }
        err
    }

    /// Time for timestamps.
    pub(crate) fn now(&self) -> Timestamp {
        time::coarse(&*self.clock, self.options.timer_tick_ms)
    }

    /// First byte of a block on the device.
    pub(crate) fn block_offset(&self, block: u64) -> u64 {
        block << self.geo.block_bits
    }

    pub(crate) fn block_size(&self) -> usize {
        self.geo.block_size
    }
}

/// Latches the volume when the journal aborts by itself.
pub(crate) struct AbortHost(pub(crate) std::sync::Weak<Inner>);

impl Host for AbortHost {
    fn aborted(&self, err: &JournalError) {
        if let Some(inner) = self.0.upgrade() {
            inner.latch.set(&FsError::from(err.clone()));
        }
    }

    fn apply_counters(
        &self,
        block: u64,
        image: &mut [u8],
        groups: &BTreeMap<u32, Counters>,
        bitmap: &dyn Fn(u64) -> Option<Arc<[u8]>>,
    ) -> Option<()> {
        self.0.upgrade()?.apply_counters(block, image, groups, bitmap)
    }

    fn renew_checksum(&self, block: u64, image: &mut [u8]) {
        let Some(inner) = self.0.upgrade() else { return };
        if let Some((blocks, Some(seed))) = inner.orphan_file.get()
            && blocks.contains(&block)
        {
            syncline_ondisk::orphan_file::set_checksum(image, block, *seed);
        }
    }
}
