//! The journal: opening, handles, latch. Commit, group commit, space, checkpoint and recovery have
//! their own files, as the parts of the state have (`state.rs`).
//!
//! ```text
//!            start/drop handles            commit(tid)                      step / flusher
//!  running ----------------------> frozen -------------> in the log (pending) ----------> in place
//!  (one)      modify, forget       (one, images only)    newest image a block             tail
//!  moves on
//!
//!  log ring     s_first ... tail |== live transactions ==| head ... free ... s_maxlen  (ring.rs)
//! ```
//!
//! Locks and their order are in `ranks.rs`; debug builds check the order. The state is locked for
//! memory work only, so `start`, `modify` and `get` never wait for a commit's I/O - except `start`
//! when the log is full.
//!
//! A transaction's number ([`Tid`]) is given when it starts to run; its sequence in the log when it
//! is frozen. They are apart so that a transaction that logs a subset of blocks can be written
//! between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use syncline_base::lockrank::{Mutex, MutexGuard};
use syncline_device::{BlockDevice, Clock, DeviceError};

use crate::buffer::BufferCache;
use crate::dependency_sets::{Counters, DependencySet};
use crate::flushes::Flushes;
use crate::handle::Handle;
use crate::log_superblock::LogSuperblock;
use crate::packed::{LOG_UNIT_BYTES, PackedLog};
use crate::ring::Span;
use crate::state::{AtTurn, Running, Signals, State};
use crate::transaction::Transaction;
use crate::{JournalError, JournalStats, LogMap, Tid, ranks, tid_geq};

/// Checksums of the log that this journal writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// None, as the kernel does for file systems without `metadata_csum`.
    None,
    /// `JBD2_FEATURE_INCOMPAT_CSUM_V3`, as the kernel does for file systems with `metadata_csum`.
    V3,
    /// `JBD2_FEATURE_COMPAT_CHECKSUM` with `INCOMPAT_ASYNC_COMMIT`: one CRC in the commit block
    /// covers the whole transaction, which leaves as one write followed by one flush. Turns on
    /// dependency sets and group commits ([`Journal::sync`]).
    V1Async,
    /// Packed records instead of jbd2's blocks (`packed.rs`), otherwise as
    /// [`Checksums::V1Async`]. The journal superblock has the feature `packed_log` meanwhile, so
    /// that other programs refuse it; the file system marks its own superblock before the journal
    /// is opened.
    Packed,
}

/// Options of a journal. [`Default`] has Linux's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Checksums of new transactions.
    pub checksums: Checksums,
    /// Checksums that a clean shutdown declares where the log was found with the format of
    /// [`Checksums::V1Async`]: what the kernel would use for this file system.
    pub checksums_at_rest: Checksums,
    /// Packed records are padded to a multiple of so many bytes: a power of two between 4096 and
    /// 65536.
    pub log_unit_bytes: u32,
    /// True if the file system has the `64bit` feature, which makes block numbers in tags 64 bits.
    pub is_64bit: bool,
    /// `commit=`: a running transaction is committed at this age, in nanoseconds.
    pub commit_interval_ns: u64,
    /// `dirty_expire_centisecs`: committed blocks are written in place at this age, in nanoseconds.
    pub dirty_expire_ns: u64,
    /// Most blocks written in place in one step, which bounds how long a step takes.
    pub checkpoint_step_blocks: usize,
    /// The owner decides when the running transaction commits ([`Journal::commit_sealed`]): neither
    /// age nor size does. Operations then reserve their blocks first ([`Journal::reserve`]), within
    /// half of the log; the other half is for handles that cannot wait for the owner's commit.
    pub owner_commits: bool,
    /// The file system has the feature `fast_commit`: Linux will take the last blocks of the log
    /// for fast commits, and must not find transactions there.
    pub keeps_fast_commit_area: bool,
}

impl Default for JournalOptions {
    fn default() -> Self {
        JournalOptions {
            checksums: Checksums::V3,
            checksums_at_rest: Checksums::V3,
            log_unit_bytes: LOG_UNIT_BYTES,
            is_64bit: true,
            commit_interval_ns: 5_000_000_000,
            dirty_expire_ns: 30_000_000_000,
            checkpoint_step_blocks: 512,
            owner_commits: false,
            keeps_fast_commit_area: false,
        }
    }
}

/// Told when the journal latches.
pub trait Host: Send + Sync {
    /// The journal will not write any more because of `err`. Called once, without journal locks;
    /// must not start handles.
    fn aborted(&self, err: &JournalError);

    /// Applies changes of group descriptors to `image`, the logged image of the descriptor block
    /// `block`, and renews the checksums in it. `bitmap` gives the next logged image of a bitmap
    /// block, if its bits change with the same commit. Called without locks of the journal, but by
    /// the holder of the commit turn: must not commit or start handles. `None`: not possible,
    /// everything will be committed instead.
    fn apply_counters(
        &self,
        _block: u64,
        _image: &mut [u8],
        _groups: &BTreeMap<u32, Counters>,
        _bitmap: &dyn Fn(u64) -> Option<Arc<[u8]>>,
    ) -> Option<()> {
        None
    }

    /// Renews the checksum of a whole block of slots, where it has one. As
    /// [`Host::apply_counters`].
    fn renew_checksum(&self, _block: u64, _image: &mut [u8]) {}
}

/// Result of a commit for its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The transaction asked for.
    pub tid: Tid,
    /// True if a device flush that started after the call began was part of it, so that data
    /// written before the call is durable as well. Otherwise the caller flushes itself.
    pub flushed: bool,
}

/// A jbd2 journal open for writing.
pub struct Journal {
    pub(crate) dev: Arc<dyn BlockDevice>,
    pub(crate) log: LogMap,
    pub(crate) buffers: Arc<BufferCache>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: JournalOptions,
    /// [`JournalOptions::dirty_expire_ns`], which may change while the journal is open.
    pub(crate) dirty_expire_ns: AtomicU64,
    pub(crate) limits: Limits,
    /// Set if packed records are written.
    pub(crate) packed: Option<PackedLog>,
    pub(crate) superblock: Mutex<LogSuperblock>,
    pub(crate) state: Mutex<State>,
    pub(crate) signals: Signals,
    pub(crate) flushes: Flushes,
    pub(crate) host: Mutex<Option<Arc<dyn Host>>>,
}

/// Sizes derived from the log once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) ring: Span,
    /// Tags of a descriptor block.
    pub(crate) tags_per_block: u32,
    /// Records of a revoke block.
    pub(crate) revokes_per_block: u32,
    /// Blocks of a transaction at which a commit is due (`log / 4`, as jbd2).
    pub(crate) soft: u32,
    /// Blocks that fit at all.
    pub(crate) hard: u32,
    /// Blocks of the device.
    pub(crate) device_blocks: u64,
}

impl Journal {
    /// Opens a clean log for writing. Nothing is written before the first commit.
    ///
    /// # Errors
    /// [`JournalError::NeedsRecovery`] if the log holds transactions, `Corrupt` or `Unsupported`
    /// for its superblock, `Io`.
    pub fn open(
        dev: Arc<dyn BlockDevice>,
        log: LogMap,
        buffers: Arc<BufferCache>,
        clock: Arc<dyn Clock>,
        options: JournalOptions,
        host: Option<Arc<dyn Host>>,
    ) -> Result<Arc<Journal>, JournalError> {
        let mut superblock = LogSuperblock::read(&*dev, &log)?;
        if superblock.start() != 0 {
            return Err(JournalError::NeedsRecovery);
        }
        let mut limits = superblock.prepare(&options, clock.now_ns())?;
        let packed = superblock.packed_log()?;
        limits.device_blocks = dev.geometry().size_bytes / u64::from(log.block_size);
        let sequence = superblock.sequence();
        let state = State::new(limits.ring, sequence);
        Ok(Arc::new(Journal {
            dev,
            log,
            buffers,
            clock,
            dirty_expire_ns: AtomicU64::new(options.dirty_expire_ns),
            options,
            limits,
            packed,
            superblock: Mutex::new(ranks::SUPERBLOCK, superblock),
            state: Mutex::new(ranks::STATE, state),
            signals: Signals::default(),
            flushes: Flushes::default(),
            host: Mutex::new(ranks::HOST, host),
        }))
    }

    /// Changes the age at which committed blocks are written in place, in nanoseconds.
    pub fn set_dirty_expire_ns(&self, expire_ns: u64) {
        self.dirty_expire_ns.store(expire_ns, Ordering::Relaxed);
    }

    pub(crate) fn dirty_expire_ns(&self) -> u64 {
        self.dirty_expire_ns.load(Ordering::Relaxed)
    }

    /// True if dependency sets are kept and a commit is one write, with FUA or a flush.
    pub fn is_eager(&self) -> bool {
        matches!(self.options.checksums, Checksums::V1Async | Checksums::Packed)
    }

    /// Sets the host that is told of an abort.
    pub fn set_host(&self, host: Arc<dyn Host>) {
        *self.host.lock() = Some(host);
    }

    /// The blocks this journal works on.
    pub fn buffers(&self) -> &Arc<BufferCache> {
        &self.buffers
    }

    /// Most credits that one handle can ask for.
    pub fn max_credits(&self) -> u32 {
        self.limits.soft
    }

    /// Joins the running transaction with room for `credits` blocks. Waits while that transaction
    /// is being frozen; commits it when it is full, or with [`JournalOptions::owner_commits`] waits
    /// for the end of other handles; makes log space when there is too little, in steps of
    /// [`JournalOptions::checkpoint_step_blocks`].
    ///
    /// # Errors
    /// `TooLarge` above [`Journal::max_credits`], and with [`JournalOptions::owner_commits`] where
    /// the blocks of the transaction leave too little of the log; `Aborted`, or the I/O error that
    /// aborted it.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle, JournalError> {
        if credits > self.limits.soft {
            return Err(JournalError::TooLarge { credits, limit: self.limits.soft });
        }
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.running.as_ref().is_some_and(|r| r.locked) {
                self.signals.unlocked.wait(&mut state);
                continue;
            }
            let running = self.running(&mut state);
            let total = running.blocks().saturating_add(credits);
            let most = self.handle_blocks_max();
            if total > most && total > credits {
                if self.options.owner_commits {
                    self.await_handles(&mut state, credits)?;
                    continue;
                }
                let tid = running.transaction.tid;
                MutexGuard::unlocked(&mut state, || self.commit_full(tid))?;
                continue;
            }
            let needed = self.log_blocks_reserved(total).saturating_add(state.unplaced());
            let short = needed.saturating_sub(state.ring.free());
            if short > 0 {
                state.stats.space_waits += 1;
                self.make_space(&mut state, short, false)?;
                continue;
            }
            let running = self.running(&mut state);
            running.open_handles += 1;
            running.reserved = running.reserved.saturating_add(credits);
            let transaction = Arc::clone(&running.transaction);
            let op = self.is_eager().then(DependencySet::default);
            let journal = Arc::clone(self);
            return Ok(Handle { journal, transaction, credits, op, changed: false });
        }
    }

    /// The state as the turns see it.
    pub(crate) fn at_turn<'s, 'g>(
        &'s self,
        state: &'s mut MutexGuard<'g, State>,
    ) -> AtTurn<'s, 'g> {
        AtTurn { state, signals: &self.signals }
    }

    /// Refuses to journal a block that is not on the device or belongs to the log: its copy would
    /// make the log unrecoverable, its checkpoint would destroy it.
    pub(crate) fn check_block(&self, block: u64) -> Result<(), JournalError> {
        if block >= self.limits.device_blocks {
            let len_bytes = u64::from(self.log.block_size);
            let offset_bytes = block.saturating_mul(len_bytes);
            return Err(DeviceError::OutOfRange { op: "write", offset_bytes, len_bytes }.into());
        }
        if self.log.contains(block) {
            return Err(JournalError::Usage("a metadata block lies inside the journal"));
        }
        Ok(())
    }

    /// The running transaction, started if there is none.
    fn running<'a>(&self, state: &'a mut State) -> &'a mut Running {
        let next_tid = &mut state.next_tid;
        state.running.get_or_insert_with(|| {
            let tid = *next_tid;
            *next_tid = tid.wrapping_add(1);
            Running {
                transaction: Transaction::new(tid, self.limits.hard),
                open_handles: 0,
                reserved: 0,
                locked: false,
                started_ns: self.clock.now_ns(),
            }
        })
    }

    pub(crate) fn end_handle(&self, credits: u32) {
        let mut state = self.state.lock();
        // The handle's transaction cannot have been frozen: freezing waits for this handle.
        if let Some(running) = &mut state.running {
            running.open_handles = running.open_handles.saturating_sub(1);
            running.reserved = running.reserved.saturating_sub(credits);
            if running.open_handles == 0 && running.locked {
                self.signals.handles_ended.notify_all();
            }
            if self.options.owner_commits {
                self.signals.room.notify_all();
            }
        }
    }

    pub(crate) fn extend(&self, credits: u32) -> bool {
        let mut state = self.state.lock();
        let free = state.ring.free();
        let unplaced = state.unplaced();
        let Some(running) = state.running.as_mut().filter(|r| !r.locked) else { return false };
        let total = running.blocks().saturating_add(credits);
        let needed = self.log_blocks_reserved(total).saturating_add(unplaced);
        if total > self.running_blocks_max() || needed > free {
            return false;
        }
        running.reserved = running.reserved.saturating_add(credits);
        true
    }

    /// Blocks of the running transaction, those that its open handles may still add included.
    pub fn running_blocks(&self) -> u32 {
        self.state.lock().running.as_ref().map_or(0, Running::blocks)
    }

    /// Age at which the running transaction is due to commit, in nanoseconds of the clock; `None`
    /// while it holds nothing.
    pub fn commit_due_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        let running = state.running.as_ref().filter(|running| !running.transaction.is_idle());
        running.map(|r| r.started_ns.saturating_add(self.options.commit_interval_ns))
    }

    /// Number of the running transaction, if there is one.
    pub fn running_tid(&self) -> Option<Tid> {
        self.state.lock().running.as_ref().map(|r| r.transaction.tid)
    }

    /// Number of the newest transaction: running, else on its way into the log, else durable.
    pub fn newest_tid(&self) -> Tid {
        let state = self.state.lock();
        let running = state.running.as_ref().map(|r| r.transaction.tid);
        let committing = state.turns.committing().map(|c| c.tid);
        running.or(committing).unwrap_or(state.committed_tid)
    }

    /// Newest transaction that is durable.
    pub fn committed_tid(&self) -> Tid {
        self.state.lock().committed_tid
    }

    /// True if `tid` holds something that is not durable yet.
    pub fn needs_commit(&self, tid: Tid) -> bool {
        let state = self.state.lock();
        if tid_geq(state.committed_tid, tid) {
            return false;
        }
        match &state.running {
            Some(r) if r.transaction.tid == tid => !r.transaction.is_idle(),
            _ => state.turns.committing().is_some_and(|c| c.tid == tid),
        }
    }

    /// Number of the next device flush: what is in place now is durable once that one is over
    /// ([`Journal::is_flushed`]).
    pub fn next_flush(&self) -> u64 {
        self.flushes.next()
    }

    /// True if flush `number`, or one that began later, is over, or the device needs none. Number 0
    /// stands for none.
    pub fn is_flushed(&self, number: u64) -> bool {
        !self.dev.geometry().volatile_cache || self.flushes.is_over(number)
    }

    /// True if the log has packed records.
    pub fn is_packed(&self) -> bool {
        self.packed.is_some()
    }

    /// True if freed blocks wait for the tail to pass their copies.
    pub fn has_deferred_frees(&self) -> bool {
        !self.state.lock().deferred.is_empty()
    }

    /// True if recovery would replay a copy of `block` that is in the log now.
    pub fn is_live(&self, block: u64) -> bool {
        self.state.lock().ring.live(block).is_some()
    }

    pub(crate) fn live_in(&self, first: u64, count: u64) -> Vec<u64> {
        let end = first.saturating_add(count);
        self.state.lock().ring.live_in(first, end).map(|(block, _)| block).collect()
    }

    /// Latches the journal: no start and no commit succeeds any more, nothing is written.
    ///
    /// Unlike jbd2 this leaves `s_errno` of the journal superblock alone. The log recovers all that
    /// was acknowledged; with an errno there Linux takes the whole file system for damaged, and
    /// drops the list of orphans, after which only a full e2fsck helps.
    pub fn abort(&self, cause: JournalError) {
        let mut state = self.state.lock();
        if state.latch.aborted.is_some() {
            return;
        }
        let tid = match (state.turns.committing(), &state.running) {
            (Some(c), _) => c.tid,
            (None, Some(r)) => r.transaction.tid,
            (None, None) => state.committed_tid,
        };
        let error = JournalError::Aborted { tid, cause: Box::new(cause) };
        state.latch.aborted = Some(error.clone());
        self.signals.wake_all();
        drop(state);
        let host = self.host.lock().clone();
        if let Some(host) = host {
            host.aborted(&error);
        }
    }

    /// The error that latched the journal, if one did.
    pub fn aborted(&self) -> Option<JournalError> {
        self.state.lock().latch.aborted.clone()
    }

    /// The error that an earlier mount left in the journal superblock (`s_errno`, negative), or
    /// 0. The file system notes it in its own superblock, then [`Journal::clear_errno`].
    pub fn recorded_errno(&self) -> i32 {
        self.superblock.lock().errno()
    }

    /// Forgets `s_errno` once the file system has noted the error in its own superblock. Durable.
    ///
    /// # Errors
    /// The device's.
    pub fn clear_errno(&self) -> Result<(), JournalError> {
        let mut superblock = self.superblock.lock();
        if superblock.errno() == 0 {
            return Ok(());
        }
        superblock.clear_errno();
        self.write_superblock(&mut superblock)
    }

    /// Counters and fill level.
    pub fn stats(&self) -> JournalStats {
        let state = self.state.lock();
        JournalStats {
            log_blocks: self.limits.ring.len(),
            log_blocks_free: state.ring.free(),
            running_blocks: state.running.as_ref().map_or(0, |r| r.transaction.len_blocks()),
            dirty_blocks: state.write_back.pending.len(),
            ..state.stats
        }
    }
}
