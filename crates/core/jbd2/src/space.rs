//! Log space: the amount that a transaction needs, and the steps that free it.
//!
//! The ring itself is in `ring.rs`. Tested in `tests/it/transactions.rs` and `tests/it/crash.rs`.

use syncline_base::lockrank::MutexGuard;

use crate::JournalError;
use crate::journal::Journal;
use crate::ring::Tail;
use crate::state::State;

impl Journal {
    /// Log blocks of a transaction with that many copies and revokes; of a packed one at most.
    pub(crate) fn log_blocks_for(&self, copies: usize, revokes: usize) -> u32 {
        match &self.packed {
            Some(packed) => packed.blocks_max(copies),
            None => self.jbd2_blocks_for(copies, revokes),
        }
    }

    /// Log blocks of such a transaction in a jbd2 log.
    pub(crate) fn jbd2_blocks_for(&self, copies: usize, revokes: usize) -> u32 {
        let descriptors = copies.div_ceil(self.limits.tags_per_block as usize);
        let revoke_blocks = revokes.div_ceil(self.limits.revokes_per_block as usize);
        let sum = copies.saturating_add(descriptors).saturating_add(revoke_blocks);
        u32::try_from(sum.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// Log blocks to keep ready for a running transaction of `blocks` blocks.
    pub(crate) fn log_blocks_reserved(&self, blocks: u32) -> u32 {
        self.log_blocks_for(blocks as usize, blocks as usize)
    }

    fn reclaimable(&self, state: &State) -> Option<Tail> {
        state.ring.reclaimable(state.turns.committing())
    }

    /// One bounded piece of work towards `short` more free log blocks: moves the tail, or writes a
    /// step of blocks in place, or waits for the thread that does so.
    pub(crate) fn make_space(
        &self,
        state: &mut MutexGuard<'_, State>,
        short: u32,
        is_committer: bool,
    ) -> Result<(), JournalError> {
        if state.ring.needs_restart() {
            return self.restart_log(state, is_committer);
        }
        let freed = self.reclaimable(state).map_or(0, |t| t.freed);
        let nothing_pending = state.write_back.pending.is_empty();
        if freed >= short || freed > 0 && nothing_pending {
            return MutexGuard::unlocked(state, || self.advance_tail());
        }
        if !nothing_pending {
            // More than asked for, so that not every operation pays for a tail update.
            let goal = short.max(self.limits.ring.len() / 8);
            return self.checkpoint_oldest(state, goal);
        }
        if !is_committer && state.turns.committing().is_some() {
            self.signals.turn.wait(state);
            return Ok(());
        }
        Err(JournalError::TooLarge { credits: short, limit: self.limits.soft })
    }

    /// One bounded piece of work towards an empty log, for one that does not wrap.
    fn restart_log(
        &self,
        state: &mut MutexGuard<'_, State>,
        is_committer: bool,
    ) -> Result<(), JournalError> {
        if !state.write_back.pending.is_empty() {
            return self.checkpoint_oldest(state, self.limits.ring.len());
        }
        if !is_committer && state.turns.committing().is_some() {
            self.signals.turn.wait(state);
            return Ok(());
        }
        match state.committing_sequence().filter(|_| is_committer) {
            Some(sequence) => MutexGuard::unlocked(state, || self.mark_empty(sequence)),
            None => self.empty_log(state),
        }
    }

    /// Frees log space until a running transaction of `blocks` blocks fits, in bounded steps.
    ///
    /// # Errors
    /// As [`Journal::write_back`]; [`JournalError::TooLarge`] if the log cannot hold it.
    pub fn prepare_space(&self, blocks: u32) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            let needed = self.log_blocks_reserved(blocks).saturating_add(state.unplaced());
            match needed.saturating_sub(state.ring.free()) {
                0 => return Ok(()),
                short => self.make_space(&mut state, short, false)?,
            }
        }
    }

    /// Moves the tail as far as it goes: flush, so that in-place writes are durable, then the
    /// superblock, durably, then the space is free.
    pub(crate) fn advance_tail(&self) -> Result<(), JournalError> {
        let result = self.try_advance_tail();
        result.map_err(|error| self.latch(error))
    }

    fn try_advance_tail(&self) -> Result<(), JournalError> {
        let mut superblock = self.superblock.lock();
        let tail = {
            let state = self.state.lock();
            state.check()?;
            self.reclaimable(&state)
        };
        let Some(tail) = tail else { return Ok(()) };
        self.flush()?;
        superblock.set_start(tail.sequence, tail.block);
        self.write_superblock(&mut superblock)?;
        let free = {
            let mut state = self.state.lock();
            state.ring.pop_before(tail.sequence);
            state.deferred.release_before(tail.sequence, self.flushes.all_durable())
        };
        self.signals.turn.notify_all();
        free.into_iter().for_each(|run| run());
        Ok(())
    }

    /// After a commit: moves the tail when that frees as much as one transaction may take, as jbd2.
    pub(crate) fn lazy_tail(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        if self.reclaimable(state).is_some_and(|t| t.freed >= self.limits.soft) {
            MutexGuard::unlocked(state, || self.advance_tail())?;
        }
        Ok(())
    }

    /// Aborts because of `error` and returns what callers see.
    pub(crate) fn latch(&self, error: JournalError) -> JournalError {
        if error.is_latched() || matches!(error, JournalError::Usage(_)) {
            return error;
        }
        self.abort(error.clone());
        self.aborted().unwrap_or(error)
    }
}
