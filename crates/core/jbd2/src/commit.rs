//! Commit: freeze the running transaction, write it to the log, publish its images.
//!
//! ```text
//!  take the turn | wait for handles | clone images | unlock      new handles run from here on
//!  write_frozen (log_writer.rs)      the transaction is durable
//!  finish: images become checkpoint obligations | freed blocks drop theirs | callbacks |
//!          give the turn back
//! ```
//!
//! One transaction is in flight at a time (`turns.rs`). The holder of the turn, a full commit here
//! or a group commit (`group_commit.rs`), ends the transaction with [`Journal::finish`]. Counted
//! exactly in `tests/it/transactions.rs`: a small transaction is 2 writes and 2 flushes (1 with
//! FUA).

use syncline_base::lockrank::MutexGuard;

use crate::journal::{Committed, Journal};
use crate::ring::Place;
use crate::state::State;
use crate::transaction::{Callback, Frozen};
use crate::turns;
use crate::{JournalError, Tid, tid_geq};

/// Kind of commit that the holder of the turn made.
pub(crate) enum Ending {
    /// A full commit of the transaction with this number.
    Full(Tid),
    /// A group commit that began at this time. The number is that of the transaction, if all of it
    /// was taken.
    Group {
        /// Number of the group commit.
        number: u64,
        started_ns: u64,
        whole: Option<Tid>,
    },
}

impl Journal {
    /// Waits until `tid` is durable, and commits it unless another caller does. Concurrent callers
    /// share one commit. A transaction that holds nothing is left running and costs nothing.
    ///
    /// # Errors
    /// `Aborted` once the journal is latched, which includes a failure of this very commit; `Usage`
    /// for a transaction that never started, and with [`crate::JournalOptions::owner_commits`].
    pub fn commit(&self, tid: Tid) -> Result<Committed, JournalError> {
        if self.options.owner_commits {
            return Err(JournalError::Usage("the owner of the journal commits as a whole"));
        }
        let committed = self.commit_inner(tid, false)?;
        let flushed = committed.flushed || !self.flushes.all_durable();
        self.flush_ordered()?;
        Ok(Committed { flushed, ..committed })
    }

    /// As [`Journal::commit`], but ends the transaction even if its handles have done nothing yet:
    /// their credits are what fills it.
    pub(crate) fn commit_full(&self, tid: Tid) -> Result<Committed, JournalError> {
        self.commit_inner(tid, true)
    }

    /// Commits all of the running transaction. `sealed` is called once it takes no more changes,
    /// before it is written: what the caller kept others from doing until then they may do again,
    /// and data that the transaction points at may be written there. Returns whether anything was
    /// written; without that `sealed` may not have been called.
    ///
    /// # Errors
    /// As [`Journal::commit`]. If `sealed` aborts the journal, nothing of the transaction is
    /// written.
    pub fn commit_sealed(&self, sealed: impl FnOnce()) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if let Some(committing) = state.turns.committing() {
                let waited_for = committing.turn;
                turns::await_end_of(&mut self.at_turn(&mut state), waited_for);
                continue;
            }
            let running = state.running.as_ref();
            let Some(running) = running.filter(|running| !running.transaction.is_idle()) else {
                return Ok(false);
            };
            let tid = running.transaction.tid;
            self.commit_running(&mut state, tid, sealed)?;
            return Ok(true);
        }
    }

    pub(crate) fn commit_inner(
        &self,
        tid: Tid,
        even_idle: bool,
    ) -> Result<Committed, JournalError> {
        let mut state = self.state.lock();
        let mut flushed = false;
        loop {
            state.check()?;
            if tid_geq(state.committed_tid, tid) {
                return Ok(Committed { tid, flushed });
            }
            if let Some(committing) = state.turns.committing() {
                // Its flush covers what was written before this call only if it is still to come.
                flushed |= committing.tid == tid && !committing.flush_started;
                // Re-evaluated only after that commit is over: `flushed` must not see a later
                // flush.
                let waited_for = committing.turn;
                turns::await_end_of(&mut self.at_turn(&mut state), waited_for);
                continue;
            }
            if state.turns.group_is_next() {
                turns::await_next_group(&mut self.at_turn(&mut state));
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
            flushed = self.commit_running(&mut state, running_tid, || ())?;
        }
    }

    /// Commits the running transaction, which is `tid`, and calls `sealed` once it is frozen.
    /// Returns whether the device was flushed for it.
    fn commit_running(
        &self,
        state: &mut MutexGuard<'_, State>,
        tid: Tid,
        sealed: impl FnOnce(),
    ) -> Result<bool, JournalError> {
        self.lock_running(state, tid)?;
        let mut frozen = state.running.take().map(|r| r.transaction.freeze()).unwrap_or_default();
        self.note_frozen(state, &mut frozen);
        self.signals.unlocked.notify_all();
        self.signals.room.notify_all();
        MutexGuard::unlocked(state, sealed);
        let written = state.check().and_then(|()| self.write_if_any(state, &frozen));
        let flushed = frozen.has_record();
        self.finish(state, frozen, written, Ending::Full(tid))?;
        Ok(flushed)
    }

    /// Takes the turn for `tid`, locks the running transaction, if there is one, and waits for its
    /// handles.
    pub(crate) fn lock_running(
        &self,
        state: &mut MutexGuard<'_, State>,
        tid: Tid,
    ) -> Result<(), JournalError> {
        state.turns.take(tid);
        if let Some(running) = &mut state.running {
            running.locked = true;
        }
        while state.running.as_ref().is_some_and(|r| r.open_handles > 0) {
            self.signals.handles_ended.wait(state);
        }
        if let Err(error) = state.check() {
            if let Some(running) = &mut state.running {
                running.locked = false;
            }
            self.signals.unlocked.notify_all();
            turns::give_up(&mut self.at_turn(state));
            return Err(error);
        }
        Ok(())
    }

    /// Gives what was frozen its sequence, before new handles run: what they free has a live copy
    /// from now on.
    pub(crate) fn note_frozen(&self, state: &mut State, frozen: &mut Frozen) {
        if !frozen.has_record() {
            return;
        }
        if self.packed.is_some() {
            state.find_bases(frozen);
        }
        let sequence = state.ring.number(frozen.copies.iter().map(|copy| copy.block));
        let unplaced = self.log_blocks_for(frozen.copies.len(), frozen.revokes.len());
        if let Some(committing) = state.turns.committing_mut() {
            committing.sequence = Some(sequence);
            committing.unplaced = unplaced;
        }
    }

    /// Writes what was frozen, if that is anything.
    pub(crate) fn write_if_any(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: &Frozen,
    ) -> Result<Option<Place>, JournalError> {
        if !frozen.has_record() {
            return Ok(None);
        }
        self.write_frozen(state, frozen).map(Some)
    }

    /// The end of every commit: what was `written` is published and the turn given back. A failure
    /// latches the journal; the images stay in memory, so that reads still see them.
    pub(crate) fn finish(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: Frozen,
        written: Result<Option<Place>, JournalError>,
        ending: Ending,
    ) -> Result<(), JournalError> {
        let place = match written {
            Ok(place) => place,
            Err(error) => {
                MutexGuard::unlocked(state, || self.abort(error.clone()));
                state.lost.push(frozen);
                turns::give_up(&mut self.at_turn(state));
                return Err(state.latch.aborted.clone().unwrap_or(error));
            }
        };
        let callbacks = self.publish(state, frozen, place);
        MutexGuard::unlocked(state, || callbacks.into_iter().for_each(|f| f()));
        match ending {
            Ending::Full(tid) => {
                state.committed_tid = tid;
                turns::end_full(&mut self.at_turn(state));
            }
            Ending::Group { number, started_ns, whole } => {
                state.requests.took_ns = self.clock.now_ns().saturating_sub(started_ns);
                state.committed_tid = whole.unwrap_or(state.committed_tid);
                turns::end_group(&mut self.at_turn(state), number);
            }
        }
        if place.is_some() {
            self.lazy_tail(state)?;
        }
        Ok(())
    }

    /// The transaction is durable: its images replace older checkpoint obligations, freed blocks
    /// lose theirs. Returns the callbacks.
    fn publish(
        &self,
        state: &mut MutexGuard<'_, State>,
        frozen: Frozen,
        place: Option<Place>,
    ) -> Vec<Callback> {
        // A freed block may carry file data as soon as the callbacks ran; an in-place write of its
        // old contents must not arrive after that.
        while frozen.forgotten.iter().any(|b| state.write_back.in_flight.contains(b)) {
            self.signals.step_ended.wait(state);
        }
        for &block in &frozen.forgotten {
            state.drop_pending(block);
        }
        if let Some(place) = place {
            let blocks = frozen.copies.iter().map(|copy| copy.block).collect();
            state.ring.push(place, blocks, &frozen.revokes);
            state.stats.commits += 1;
            state.stats.blocks_logged += frozen.copies.len() as u64;
            state.stats.revokes_logged += frozen.revokes.len() as u64;
            state.stats.log_blocks_written += u64::from(place.len);
            if self.packed.is_some() {
                let plain = self.jbd2_blocks_for(frozen.copies.len(), frozen.revokes.len());
                state.stats.log_blocks_saved += u64::from(plain.saturating_sub(place.len));
            }
            if !frozen.copies.is_empty() {
                let now_ns = self.clock.now_ns();
                state.write_back.dirtied_ns.get_or_insert(now_ns);
            }
            let sequence = place.sequence;
            for copy in frozen.copies {
                let block = copy.block;
                if state.take_over(copy, sequence, self.packed.is_some()) {
                    state.ring.owe_write(block, sequence);
                }
            }
        }
        for &block in &frozen.forgotten {
            self.buffers.drop_forgotten(block);
        }
        let all_durable = self.flushes.all_durable();
        if !all_durable && state.deferred.unflushed_ns.is_none() {
            state.deferred.unflushed_ns = Some(self.clock.now_ns());
        }
        let State { deferred, ring, .. } = &mut **state;
        deferred.admit(frozen.callbacks, ring, all_durable)
    }
}
