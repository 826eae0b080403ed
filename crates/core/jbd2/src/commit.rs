//! Commit: freeze the running transaction, write it to the log, publish its images.
//!
//! ```text
//!  lock state | wait for handles | clone images | unlock      new handles run from here on
//!  [revoke blocks][descriptor + copies]...   one plug of large sequential writes
//!  flush                                     covers the copies, and data written in place before
//!  [commit block]  FUA, or write + flush     the transaction is durable
//!  lock state | images become checkpoint obligations | freed blocks drop theirs | callbacks | wake
//! ```
//!
//! Torn commit blocks: the v3 checksum covers the whole commit block, and e2fsck 1.47 calls the
//! journal corrupt when only the first sector of it arrived over stale log contents. So where the
//! commit block's place is not known to be zero (`blank.rs`) the body also zeroes it, and only its
//! first sector, which holds everything, is written after the flush. That is 512 bytes more a
//! commit and no more requests.
//!
//! One transaction is in flight at a time (`committing` in the state is the token). Counted exactly
//! in `tests/transactions.rs`: a small transaction is 2 writes and 2 flushes (1 with FUA).
//!
//! This file is long because the steps of a commit are right only in their order.

use parking_lot::MutexGuard;
use syncline_device::{Kind, Origin, SECTOR_BYTES};

use crate::blank::{LOOK_BYTES, is_blank};
use crate::isets::Release;
use crate::journal::{Checksums, Committed, Committing, Journal, LogTransaction, Pending, State};
use crate::log_superblock::LogSuperblock;
use crate::record::Record;
use crate::transaction::{Callback, Copy, Frozen};
use crate::{JournalError, Tid, tid_geq};

pub(crate) const LOG: Origin = Origin::new(Kind::Journal, true);

impl Journal {
    /// Waits until `tid` is durable, committing it if nobody else is. Concurrent callers share one
    /// commit. A transaction that holds nothing is left running and costs nothing.
    ///
    /// # Errors
    /// `Aborted` once the journal is latched, which includes a failure of this very commit; `Usage`
    /// for a transaction that never started.
    pub fn commit(&self, tid: Tid) -> Result<Committed, JournalError> {
        self.commit_inner(tid, false)
    }

    /// As [`Journal::commit`], but ends the transaction even if its handles have done nothing yet:
    /// their credits are what fills it.
    pub(crate) fn commit_full(&self, tid: Tid) -> Result<Committed, JournalError> {
        self.commit_inner(tid, true)
    }

    fn commit_inner(&self, tid: Tid, even_idle: bool) -> Result<Committed, JournalError> {
        let mut state = self.state.lock();
        let mut flushed = false;
        loop {
            state.check()?;
            if tid_geq(state.committed_tid, tid) {
                return Ok(Committed { tid, flushed });
            }
            if let Some(committing) = &state.committing {
                // Its flush covers what was written before this call only if it is still to come.
                flushed |= committing.tid == tid && !committing.flush_started;
                // Re-evaluated only after that commit is over: `flushed` must not see a later
                // flush.
                let waited_for = committing.turn;
                self.wait_for_turn(&mut state, |state| {
                    state.committing.as_ref().is_some_and(|c| c.turn == waited_for)
                });
                continue;
            }
            if state.full_was_last && state.batch_callers > 0 {
                // Bursts and full commits take turns (`burst.rs`).
                self.wait_for_turn(&mut state, |state| {
                    state.full_was_last && state.batch_callers > 0 && state.committing.is_none()
                });
                continue;
            }
            let Some(running) = &state.running else {
                return Err(JournalError::Usage("commit of a transaction that never started"));
            };
            let running_tid = running.transaction.tid;
            if !tid_geq(running_tid, tid) {
                return Err(JournalError::Usage("commit of a transaction that never started"));
            }
            if !even_idle && running.transaction.is_idle() {
                return Ok(Committed { tid, flushed: false });
            }
            flushed = self.commit_running(&mut state)?;
        }
    }

    /// Waits as a full commit that may want the token next.
    fn wait_for_turn(
        &self,
        state: &mut MutexGuard<'_, State>,
        mut busy: impl FnMut(&State) -> bool,
    ) {
        state.full_waiting += 1;
        while busy(state) && state.aborted.is_none() {
            self.changed.wait(state);
        }
        state.full_waiting -= 1;
        if state.batch_callers > 0 {
            // They let this one pass; it may have nothing to do any more.
            self.changed.notify_all();
        }
    }

    /// Commits the running transaction. Returns whether the device was flushed for it.
    fn commit_running(&self, state: &mut MutexGuard<'_, State>) -> Result<bool, JournalError> {
        let Some(frozen) = self.freeze_running(state)? else { return Ok(false) };
        let tid = state.committing.as_ref().map_or(state.committed_tid, |c| c.tid);
        let has_record = frozen.has_record();
        let mut placed = None;
        if has_record {
            match self.write_frozen(state, &frozen) {
                Ok(place) => placed = Some(place),
                Err(error) => return Err(self.fail_commit(state, frozen, error)),
            }
        }
        let callbacks = self.publish(state, frozen, placed);
        MutexGuard::unlocked(state, || callbacks.into_iter().for_each(|f| f()));
        state.full_was_last = true;
        state.committing = None;
        state.committed_tid = tid;
        self.changed.notify_all();
        if has_record {
            self.lazy_tail(state)?;
        }
        Ok(has_record)
    }

    /// Locks the running transaction, waits for its handles and takes its images. New handles run
    /// from then on. `None` if the transaction went away.
    fn freeze_running(
        &self,
        state: &mut MutexGuard<'_, State>,
    ) -> Result<Option<Frozen>, JournalError> {
        let Some(running) = &state.running else { return Ok(None) };
        let tid = running.transaction.tid;
        self.lock_running(state, tid)?;
        let Some(running) = state.running.take() else { return Ok(None) };
        let frozen = running.transaction.freeze();
        self.note_frozen(state, &frozen);
        self.changed.notify_all();
        Ok(Some(frozen))
    }

    /// Takes the commit token for `tid`, locks the running transaction, if there is one, and waits
    /// for its handles.
    pub(crate) fn lock_running(
        &self,
        state: &mut MutexGuard<'_, State>,
        tid: Tid,
    ) -> Result<(), JournalError> {
        let token = state.new_turn(tid);
        state.committing = Some(token);
        if let Some(running) = &mut state.running {
            running.locked = true;
        }
        while state.running.as_ref().is_some_and(|r| r.open_handles > 0) {
            self.changed.wait(state);
        }
        if let Err(error) = state.check() {
            state.committing = None;
            if let Some(running) = &mut state.running {
                running.locked = false;
            }
            self.changed.notify_all();
            return Err(error);
        }
        Ok(())
    }

    /// Gives what was frozen its sequence, before new handles run: what they free has a live copy
    /// from now on.
    pub(crate) fn note_frozen(&self, state: &mut State, frozen: &Frozen) {
        if !frozen.has_record() {
            return;
        }
        let sequence = state.next_sequence;
        state.next_sequence = sequence.wrapping_add(1);
        for copy in &frozen.copies {
            state.live.insert(copy.block, sequence);
        }
        let unplaced = self.log_blocks_for(frozen.copies.len(), frozen.revokes.len());
        if let Some(committing) = &mut state.committing {
            committing.sequence = Some(sequence);
            committing.unplaced = unplaced;
        }
    }

    /// Takes log space and writes the transaction durably. Returns sequence, first block and
    /// length.
    pub(crate) fn write_frozen(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: &Frozen,
    ) -> Result<(u32, u32, u32), JournalError> {
        let len = self.log_blocks_for(frozen.copies.len(), frozen.revokes.len());
        loop {
            state.check()?;
            let short = len.saturating_sub(self.free(state));
            if short == 0 {
                break;
            }
            self.make_space(state, short, true)?;
        }
        let first_block = state.head;
        state.head = self.ring_advance(first_block, len);
        state.used = state.used.saturating_add(len);
        let starts_log = !state.started;
        let Some(committing) = &mut state.committing else {
            return Err(JournalError::Usage("the commit token was lost"));
        };
        committing.unplaced = 0;
        committing.first_block = Some(first_block);
        let Some(sequence) = committing.sequence else {
            return Err(JournalError::Usage("a record without a sequence"));
        };
        let guarded = self.needs_guard(state, first_block, len)?;
        let written = MutexGuard::unlocked(state, || {
            self.write_record(frozen, sequence, first_block, starts_log, guarded)
        })?;
        for (index, blank) in (0..).zip(written) {
            state.blanks.set(self.ring_advance(first_block, index), blank);
        }
        state.started = true;
        Ok((sequence, first_block, len))
    }

    /// Whether the commit block of a record must not be written over what its place may hold.
    fn needs_guard(
        &self,
        state: &mut MutexGuard<'_, State>,
        first_block: u32,
        len: u32,
    ) -> Result<bool, JournalError> {
        // Of the options, not of the superblock: whoever moves the tail holds that one and waits
        // for the state, which is locked here.
        if self.options.checksums != Checksums::V3 {
            return Ok(false);
        }
        let place = self.ring_advance(first_block, len.saturating_sub(1));
        if !state.blanks.is_known(place) {
            // A log that cannot be read can still be written: what is unknown is guarded.
            let looked = MutexGuard::unlocked(state, || self.look_ahead(place));
            let blanks = looked.unwrap_or_default();
            for (block, blank) in (place..).zip(blanks) {
                // What was written meanwhile is known better.
                if !state.blanks.is_known(block) {
                    state.blanks.set(block, blank);
                }
            }
        }
        Ok(!state.blanks.is_blank(place))
    }

    /// Reads log blocks from `place` on, as far as they lie together: for each whether it is blank.
    fn look_ahead(&self, place: u32) -> Result<Vec<bool>, JournalError> {
        let block_size = self.log.block_size;
        let most = (LOOK_BYTES / block_size).max(1).min(self.limits.end - place);
        let start = self.log.offset(place)?;
        let mut count = 1;
        while count < most
            && self.log.offset(place + count)? == start + u64::from(count * block_size)
        {
            count += 1;
        }
        let mut bytes = vec![0; (count * block_size) as usize];
        self.dev.read(start, &mut bytes, LOG)?;
        Ok(bytes.chunks(block_size as usize).map(is_blank).collect())
    }

    /// Writes body, flush, commit block. Returns for each block of the record whether it is blank.
    fn write_record(
        &self,
        frozen: &Frozen,
        sequence: u32,
        first_block: u32,
        starts_log: bool,
        guarded: bool,
    ) -> Result<Vec<bool>, JournalError> {
        let format = self.superblock.lock().format();
        if format.is_async && frozen.flush > self.state.lock().flushes_done {
            // Extents of data that was written in place must not be older than that data.
            self.flush()?;
        }
        let record = Record {
            format,
            sequence,
            commit_ns: self.clock.now_ns(),
            copies: &frozen.copies,
            revokes: &frozen.revokes,
        };
        let body = record.body()?;
        let commit_block = record.commit_block(&body)?;
        let blank = if guarded { vec![0; format.layout.block_size] } else { Vec::new() };
        if starts_log {
            // In one epoch with the body: until the flush below nothing can make the log look
            // longer than it is, because its first block does not carry `sequence` yet.
            let mut superblock = self.superblock.lock();
            superblock.set_start(sequence, first_block);
            superblock.write(&*self.dev, &self.log)?;
            self.count_superblock_write();
            drop(superblock);
            if format.is_async {
                // A burst has its commit block, which may be all that arrives. If the superblock
                // called the log empty then, the next mount would use the same sequence again and
                // stock recovery would find that block behind its first transaction.
                self.flush()?;
            }
        }
        if format.is_async {
            self.write_log(first_block, body.iter().map(|b| b.bytes()).chain([&*commit_block]))?;
            self.note_flush_started();
            self.flush()?;
            return Ok(Vec::new());
        }
        let blocks = body.iter().map(|b| b.bytes()).chain(guarded.then_some(&*blank));
        self.write_log(first_block, blocks)?;
        self.note_flush_started();
        self.flush()?;
        let at = self.ring_advance(first_block, body.len() as u32);
        let bytes = if guarded { &commit_block[..SECTOR_BYTES as usize] } else { &commit_block };
        self.write_durable(self.log.offset(at)?, bytes)?;
        Ok(body.iter().map(|b| is_blank(b.bytes())).chain([is_blank(&commit_block)]).collect())
    }

    fn note_flush_started(&self) {
        if let Some(committing) = &mut self.state.lock().committing {
            committing.flush_started = true;
        }
    }

    /// Flushes the device and remembers that it did.
    pub(crate) fn flush(&self) -> Result<(), JournalError> {
        let number = {
            let mut state = self.state.lock();
            state.flushes_begun += 1;
            state.flushes_begun
        };
        self.dev.flush(LOG)?;
        let mut state = self.state.lock();
        state.flushes_done = state.flushes_done.max(number);
        Ok(())
    }

    /// A failed commit latches the journal. Its images stay in memory, so that reads still see
    /// them.
    pub(crate) fn fail_commit(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: Frozen,
        error: JournalError,
    ) -> JournalError {
        MutexGuard::unlocked(state, || self.abort(error.clone()));
        state.lost.push(frozen);
        state.committing = None;
        self.changed.notify_all();
        state.aborted.clone().unwrap_or(error)
    }

    /// The transaction is durable: its images replace older checkpoint obligations, freed blocks
    /// lose theirs. Returns the callbacks.
    pub(crate) fn publish(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: Frozen,
        placed: Option<(u32, u32, u32)>,
    ) -> Vec<Callback> {
        // A freed block may carry file data as soon as the callbacks ran; an in-place write of its
        // old contents must not arrive after that.
        while frozen.forgotten.iter().any(|b| state.in_flight.contains(b)) {
            self.changed.wait(state);
        }
        for &block in &frozen.forgotten {
            state.drop_pending(block);
        }
        if let Some((sequence, first_block, len)) = placed {
            for block in &frozen.revokes {
                // Dead from now on: the log is a queue, so the copy leaves it before the revoke
                // does.
                state.live.remove(block);
            }
            let blocks: Vec<u64> = frozen.copies.iter().map(|copy| copy.block).collect();
            state.log.push_back(LogTransaction {
                sequence,
                first_block,
                len,
                pending: blocks.iter().copied().collect(),
                blocks,
            });
            state.stats.commits += 1;
            state.stats.blocks_logged += frozen.copies.len() as u64;
            state.stats.revokes_logged += frozen.revokes.len() as u64;
            state.stats.log_blocks_written += u64::from(len);
            if !frozen.copies.is_empty() {
                let now_ns = self.clock.now_ns();
                state.dirtied_ns.get_or_insert(now_ns);
            }
            for Copy { block, image, buffer, kind } in frozen.copies {
                state.drop_pending(block);
                state.pending.insert(block, Pending { sequence, image, buffer, kind });
            }
        }
        for &block in &frozen.forgotten {
            self.buffers.drop_forgotten(block);
        }
        state.ready(frozen.callbacks)
    }

    /// Writes blocks to the log from `first_block` on, as one plug.
    fn write_log<'a>(
        &self,
        first_block: u32,
        blocks: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), JournalError> {
        let mut plug = syncline_device::Plug::new();
        let mut at = first_block;
        for bytes in blocks {
            plug.write(self.log.offset(at)?, bytes, LOG);
            at = self.ring_advance(at, 1);
        }
        Ok(plug.submit(&*self.dev)?)
    }

    /// Writes so that the bytes are durable on return: FUA, or write and flush.
    pub(crate) fn write_durable(
        &self,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let mut plug = syncline_device::Plug::new();
        if self.dev.geometry().fua {
            plug.write_fua(offset_bytes, bytes, LOG);
        } else {
            plug.write(offset_bytes, bytes, LOG);
            plug.flush(LOG);
        }
        Ok(plug.submit(&*self.dev)?)
    }

    pub(crate) fn count_superblock_write(&self) {
        self.state.lock().stats.superblock_writes += 1;
    }

    /// Writes the superblock durably.
    pub(crate) fn write_superblock(
        &self,
        superblock: &mut LogSuperblock,
    ) -> Result<(), JournalError> {
        let offset = self.log.offset(0)?;
        self.write_durable(offset, superblock.encoded()?)?;
        self.count_superblock_write();
        Ok(())
    }
}

impl State {
    /// The commit token for `tid`.
    pub(crate) fn new_turn(&mut self, tid: Tid) -> Committing {
        self.turns += 1;
        Committing {
            tid,
            turn: self.turns,
            unplaced: 0,
            sequence: None,
            first_block: None,
            flush_started: false,
        }
    }

    /// Of what waited for a commit: what can run now. Blocks with a live copy in the log stay where
    /// they are until the tail has passed it, since recovery would write the copy over whatever is
    /// there.
    fn ready(&mut self, callbacks: Vec<Release>) -> Vec<Callback> {
        let mut ready = Vec::with_capacity(callbacks.len());
        for Release { run, range } in callbacks {
            let live = range.map(|(first, count)| {
                let copies = self.live.range(first..first.saturating_add(count.max(1)));
                copies
                    .map(|(_, sequence)| *sequence)
                    .reduce(|a, b| if tid_geq(a, b) { a } else { b })
            });
            match live.flatten() {
                Some(newest) => self.quarantine.push((newest, run)),
                None => ready.push(run),
            }
        }
        ready
    }

    /// Ends the obligation to write an older image of `block` in place.
    pub(crate) fn drop_pending(&mut self, block: u64) {
        if let Some(old) = self.pending.remove(&block) {
            self.settle(block, old.sequence);
        }
    }

    /// `block` of transaction `sequence` needs no in-place write any more.
    pub(crate) fn settle(&mut self, block: u64, sequence: u32) {
        let Some(front) = self.log.front() else { return };
        let index = sequence.wrapping_sub(front.sequence) as usize;
        if let Some(transaction) = self.log.get_mut(index) {
            transaction.pending.remove(&block);
        }
    }
}
