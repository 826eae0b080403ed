//! Log space: how much a transaction needs, and how the tail moves.
//!
//! ```text
//!   s_first                                            s_maxlen
//!   |  free  | checkpointed | pending ... newest | free  |
//!            ^ tail on the device                ^ head
//!                           ^ where the tail may move: flush, superblock, then the space is free
//! ```
//!
//! Blocks are counted as used until the superblock with the new tail is durable: a recovery that
//! starts at the old tail must still find them. Tested in `tests/transactions.rs` and
//! `tests/crash.rs`.

use parking_lot::MutexGuard;

use crate::journal::{Journal, State};
use crate::transaction::Callback;
use crate::{JournalError, tid_gt};

/// A position in the log and how many blocks are free once the tail is there.
struct Tail {
    sequence: u32,
    block: u32,
    freed: u32,
}

impl Journal {
    /// Log blocks of a transaction with that many copies and revokes.
    pub(crate) fn log_blocks_for(&self, copies: usize, revokes: usize) -> u32 {
        let descriptors = copies.div_ceil(self.limits.tags_per_block as usize);
        let revoke_blocks = revokes.div_ceil(self.limits.revokes_per_block as usize);
        let sum = copies.saturating_add(descriptors).saturating_add(revoke_blocks);
        u32::try_from(sum.saturating_add(1)).unwrap_or(u32::MAX)
    }

    /// Log blocks to keep ready for a running transaction of `blocks` blocks.
    pub(crate) fn log_blocks_reserved(&self, blocks: u32) -> u32 {
        self.log_blocks_for(blocks as usize, blocks as usize)
    }

    /// Log blocks that can be taken now. One always stays free.
    pub(crate) fn free(&self, state: &State) -> u32 {
        (self.limits.end - self.limits.first).saturating_sub(state.used).saturating_sub(1)
    }

    /// Log blocks that the committing transaction is still going to take.
    pub(crate) fn unplaced(&self, state: &State) -> u32 {
        state.committing.as_ref().map_or(0, |c| c.unplaced)
    }

    /// The log block `count` after `block` on the ring.
    pub(crate) fn ring_advance(&self, block: u32, count: u32) -> u32 {
        let ring = u64::from(self.limits.end - self.limits.first);
        let inside = u64::from(block - self.limits.first) + u64::from(count);
        self.limits.first + (inside % ring) as u32
    }

    /// Where the tail may move, if it can.
    fn reclaimable(&self, state: &State) -> Option<Tail> {
        if !state.started {
            return None;
        }
        let mut freed = 0u32;
        for transaction in &state.log {
            if !transaction.pending.is_empty() {
                let (sequence, block) = (transaction.sequence, transaction.first_block);
                return Some(Tail { sequence, block, freed }).filter(|t| t.freed > 0);
            }
            freed = freed.saturating_add(transaction.len);
        }
        // Nothing is pending: the tail is where the next transaction starts or will start.
        let committing = state.committing.as_ref();
        let sequence = committing.and_then(|c| c.sequence).unwrap_or(state.next_sequence);
        let block = committing.and_then(|c| c.first_block).unwrap_or(state.head);
        Some(Tail { sequence, block, freed }).filter(|t| t.freed > 0)
    }

    /// One bounded piece of work towards `short` more free log blocks: moves the tail, or writes a
    /// step of blocks in place, or waits for whoever is doing so.
    pub(crate) fn make_space(
        &self,
        state: &mut MutexGuard<'_, State>,
        short: u32,
        is_committer: bool,
    ) -> Result<(), JournalError> {
        let freed = self.reclaimable(state).map_or(0, |t| t.freed);
        if freed >= short || freed > 0 && state.pending.is_empty() {
            return MutexGuard::unlocked(state, || self.advance_tail());
        }
        if !state.pending.is_empty() {
            // More than asked for, so that not every operation pays for a tail update.
            let goal = short.max((self.limits.end - self.limits.first) / 8);
            return self.checkpoint_oldest(state, goal);
        }
        if !is_committer && state.committing.is_some() {
            self.changed.wait(state);
            return Ok(());
        }
        Err(JournalError::TooLarge { credits: short, limit: self.limits.soft })
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
        let free = self.state.lock().pop_before(tail.sequence);
        self.changed.notify_all();
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

impl State {
    /// The durable tail moved to `sequence`. Returns what may be given away now.
    fn pop_before(&mut self, sequence: u32) -> Vec<Callback> {
        while self.log.front().is_some_and(|t| tid_gt(sequence, t.sequence)) {
            let Some(gone) = self.log.pop_front() else { break };
            self.used = self.used.saturating_sub(gone.len);
            for block in gone.blocks {
                if self.live.get(&block) == Some(&gone.sequence) {
                    self.live.remove(&block);
                }
            }
        }
        let held = std::mem::take(&mut self.quarantine);
        let (free, held): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|(newest, _)| tid_gt(sequence, *newest));
        self.quarantine = held;
        free.into_iter().map(|(_, run)| run).collect()
    }
}
