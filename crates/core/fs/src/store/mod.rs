//! The store: a device with an ext4 on it, as far as reading needs it. It is the lowest part of a
//! volume.
//!
//! ```text
//!   Store ── dev, clock, options, geometry, checksum seeds   constant while mounted
//!         ├─ sb         superblock as it will be written
//!         ├─ buffers    metadata blocks (`jbd2::BufferCache`)
//!         ├─ journal    empty until the log is recovered, and on a read-only mount
//!         └─ latch      first fatal error; nothing is written after it
//! ```
//!
//! Promises
//! - Group descriptors and bitmaps are verified when they are read, and renewed together with their
//!   checksums (`group.rs`).
//! - No file block lies outside of the volume or on metadata (`validity.rs`).
//! - Corruption latches the volume read-only unless it is mounted with `errors=continue`; a failed
//!   write latches it always.
//!
//! A mount opens the store first, reads and recovers the log through it, and only then builds the
//! other parts (`mount.rs`).

pub(crate) mod buffered;
pub(crate) mod dir_format;
pub(crate) mod group;
pub(crate) mod host;
pub(crate) mod superblock;
pub(crate) mod validity;
pub(crate) mod verity;
pub(crate) mod zone;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use syncline_base::lockrank::Mutex;
use syncline_device::{BlockDevice, Clock, CostDevice, Costs};
use syncline_jbd2::{BufferCache, Handle, Journal, JournalError, Tid};
use syncline_ondisk::group::GroupCsum;
use syncline_ondisk::inode::GOOD_OLD_INODE_SIZE;
use syncline_ondisk::run_time::FoundErrors;
use syncline_ondisk::{Geometry, IncompatFeatures, RoCompatFeatures, Superblock};

use crate::error::{FsError, Result};
use crate::options::{BUFFER_SHARE, MountOptions, OnError};
use crate::ranks;
use crate::store::dir_format::DirConstants;
use crate::store::superblock::NeededFeatures;
use crate::store::verity::KnownVerity;
use crate::store::zone::Zone;
use crate::time::{self, Timestamp};

/// Notes of damage that are kept.
const MISSING_MAX: usize = 1000;

/// Damage that reads went past, each once.
#[derive(Default)]
pub(crate) struct Missing {
    notes: Vec<String>,
    /// How many of them were taken.
    taken: usize,
}

impl Missing {
    fn note(&mut self, what: String) {
        if self.notes.len() < MISSING_MAX && !self.notes.contains(&what) {
            self.notes.push(what);
        }
    }

    /// Those that were noted since the last call.
    pub(crate) fn take(&mut self) -> Vec<String> {
        let fresh = self.notes.get(self.taken..).unwrap_or(&[]).to_vec();
        self.taken = self.notes.len();
        fresh
    }
}

pub(crate) struct Store {
    pub(crate) dev: Arc<dyn BlockDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: MountOptions,
    pub(crate) geo: Geometry,
    pub(crate) csum: GroupCsum,
    /// Block of each descriptor block, in order.
    pub(crate) desc_blocks: Vec<u64>,
    /// Seed of every metadata checksum (`metadata_csum`).
    pub(crate) csum_seed: u32,
    pub(crate) sb: Mutex<Superblock>,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) journal: OnceLock<Arc<Journal>>,
    /// Directory properties from the superblock.
    pub(crate) dir_format: DirConstants,
    /// True if files may have more than 2^32 - 1 sectors (`huge_file`).
    pub(crate) huge_files: bool,
    /// Features that are set when they are first needed.
    pub(crate) needed: NeededFeatures,
    /// True if new files have extents, not block maps (`extent`).
    pub(crate) extents: bool,
    /// True if inodes may hold their data themselves (`inline_data`).
    pub(crate) inline_data: bool,
    /// True if values of attributes may have inodes of their own (`ea_inode`).
    pub(crate) ea_inode: bool,
    /// Blocks of the orphan file and the seed of their checksums.
    pub(crate) orphan_file: OnceLock<(Vec<u64>, Option<u32>)>,
    pub(crate) zone: OnceLock<Zone>,
    pub(crate) verity: KnownVerity,
    /// The same device, where its costs are measured.
    pub(crate) costs: OnceLock<Arc<CostDevice<Arc<dyn BlockDevice>>>>,
    pub(crate) latch: Latch,
    /// Corruption that the superblock does not tell of yet.
    pub(crate) found: Mutex<Option<FoundErrors>>,
    /// Damage that a reader with `rescue` went past.
    pub(crate) missing: Mutex<Missing>,
    /// Nothing is read for programs any more either: as after a crash.
    shut_down: AtomicBool,
    /// Newest time that was given between two ticks (`inode/times.rs`), in nanoseconds.
    pub(crate) fine_ns: AtomicU64,
    /// Set if the running transaction only commits together with file data.
    pub(crate) committer: OnceLock<Weak<dyn Committer>>,
}

/// Commits on behalf of the journal, if the owner of the volume decides about commits.
pub(crate) trait Committer: Send + Sync {
    /// Makes everything durable that was done before this call. The caller holds neither `io` nor a
    /// handle.
    ///
    /// # Errors
    /// As write-back and commit.
    fn commit_all(&self) -> Result<()>;
}

impl Store {
    /// The part of a volume that reads: nothing is read from the device yet.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a geometry that cannot be.
    pub(crate) fn new(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
        sb: Superblock,
    ) -> Result<Store> {
        let geo = Geometry::new(&sb, dev.geometry().size_bytes)?;
        let capacity = (options.cache_bytes / BUFFER_SHARE) as usize / geo.block_size;
        let buffers = BufferCache::new(Arc::clone(&dev), geo.block_size, capacity.max(1024));
        Ok(Store {
            csum: GroupCsum::new(&sb),
            csum_seed: sb.csum_seed(),
            desc_blocks: (0..geo.gdt_blocks).map(|nr| geo.desc_block(&sb, nr)).collect(),
            dir_format: DirConstants::new(&sb),
            huge_files: sb.s_feature_ro_compat.contains(RoCompatFeatures::HUGE_FILE),
            needed: NeededFeatures::new(&sb),
            extents: sb.s_feature_incompat.contains(IncompatFeatures::EXTENTS),
            inline_data: sb.s_feature_incompat.contains(IncompatFeatures::INLINE_DATA),
            ea_inode: sb.s_feature_incompat.contains(IncompatFeatures::EA_INODE),
            orphan_file: OnceLock::new(),
            zone: OnceLock::new(),
            verity: KnownVerity::default(),
            costs: OnceLock::new(),
            latch: Latch::default(),
            found: Mutex::new(ranks::FOUND_ERRORS, None),
            missing: Mutex::new(ranks::MISSING, Missing::default()),
            shut_down: AtomicBool::new(false),
            fine_ns: AtomicU64::new(0),
            committer: OnceLock::new(),
            journal: OnceLock::new(),
            sb: Mutex::new(ranks::SUPERBLOCK, sb),
            options,
            dev,
            clock,
            geo,
            buffers,
        })
    }

    /// Starts a journal handle for at most `credits` metadata blocks without room reserved for it:
    /// for callers that hold `io`, changes or a reservation, and so cannot wait for a commit of
    /// everything. All others use [`crate::inode::Inodes::start`].
    ///
    /// # Errors
    /// [`FsError::ReadOnly`], [`FsError::Latched`], or the error of the journal.
    pub(crate) fn start_under_io(&self, credits: u32) -> Result<Handle> {
        self.latch.check()?;
        let journal = self.journal.get().ok_or(FsError::ReadOnly)?;
        Ok(journal.start(credits)?)
    }

    /// Fails unless the volume can be written to.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.latch.check()?;
        if self.journal.get().is_none() { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Commits transaction `tid`, or with `sync=periodic` everything. The caller holds neither `io`
    /// nor a handle.
    ///
    /// # Errors
    /// The journal's, or those of write-back.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        match self.committer.get().map(Weak::upgrade) {
            Some(Some(committer)) => committer.commit_all(),
            // The volume is going away.
            Some(None) => self.latch.check(),
            None => Ok(self.journal()?.commit(tid).map(drop)?),
        }
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

    /// Notes a [`FsError::Corrupt`] in the superblock and latches for it as [`Store::corrupt`]
    /// does; other errors pass through.
    pub(crate) fn found_corrupt(&self, err: FsError) -> FsError {
        let FsError::Corrupt { inode, block, .. } = &err else { return err };
        if self.journal.get().is_some() && self.latch.check().is_ok() {
            superblock::note_error(self, (inode.unwrap_or(0), block.unwrap_or(0)));
        }
        if self.options.errors == OnError::RemountRo {
            self.latch.set(&err);
        }
        err
    }

    /// Notes damage that is gone past.
    pub(crate) fn note_missing(&self, what: String) {
        self.missing.lock().note(what);
    }

    /// The journal refused a block of what may not commit without it: nothing is written any more.
    pub(crate) fn fail_journal(&self, err: JournalError) -> FsError {
        if let Some(journal) = self.journal.get() {
            journal.abort(err.clone());
        }
        let err = FsError::from(err);
        self.latch.set(&err);
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

    /// Half of an operation is in the running transaction, which must not commit: nothing is
    /// written any more, whatever the error was.
    pub(crate) fn give_up(&self, err: FsError, what: &'static str) -> FsError {
        let err = self.fail(err);
        if let Some(journal) = self.journal.get() {
            journal.abort(JournalError::Usage(what));
        }
        err
    }

    /// Ends an operation on several blocks that is not taken back where it fails: after a failed
    /// read, or corruption, behind its first change, as [`Store::give_up`].
    pub(crate) fn all_or_nothing<T>(
        &self,
        h: &Handle,
        done: Result<T>,
        what: &'static str,
    ) -> Result<T> {
        done.map_err(|err| match err {
            FsError::Io(_) | FsError::Corrupt { .. } if h.has_changed() => self.give_up(err, what),
            err => err,
        })
    }

    /// Nothing is written any more, nor read for programs, although nothing failed.
    pub(crate) fn shut_down(&self) {
        self.shut_down.store(true, Ordering::Release);
        let cause = JournalError::ShutDown;
        self.latch.set(&cause.clone().into());
        if let Some(journal) = self.journal.get() {
            journal.abort(cause);
        }
    }

    /// Fails after [`Store::shut_down`] (`ext4_forced_shutdown`).
    pub(crate) fn check_running(&self) -> Result<()> {
        if self.shut_down.load(Ordering::Acquire) {
            Err(JournalError::ShutDown.into())
        } else {
            Ok(())
        }
    }

    /// Time for timestamps, as an inode of this volume can hold it: so that a write does not change
    /// an inode again within what it can tell apart.
    pub(crate) fn now(&self) -> Timestamp {
        let fine_ns = self.fine_ns.load(Ordering::Relaxed);
        let now = time::coarse(&*self.clock, self.options.timer_tick_ms, fine_ns);
        now.fitted(self.has_long_times())
    }

    /// True if inodes have room for nanoseconds and for years after 2038.
    pub(crate) fn has_long_times(&self) -> bool {
        self.geo.inode_size > GOOD_OLD_INODE_SIZE
    }

    /// First byte of a block on the device.
    pub(crate) fn block_offset(&self, block: u64) -> u64 {
        block << self.geo.block_bits
    }

    /// Costs of the device as they were measured, or are assumed where they are not.
    pub(crate) fn device_costs(&self) -> Costs {
        self.costs.get().map_or(Costs::ASSUMED, |device| device.costs())
    }

    pub(crate) fn block_size(&self) -> usize {
        self.geo.block_size
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
        self.0.get().map_or(Ok(()), |err| Err(err.latched()))
    }
}
