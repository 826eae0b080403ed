//! Checkpoint and incremental write-back: newest committed images go to their home blocks, in
//! bounded steps.
//!
//! A step writes at most [`crate::JournalOptions::checkpoint_step_blocks`] blocks (512 by default:
//! 2 MiB of 4 KiB blocks) as one sorted plug, without a flush; the flush comes with the tail. A
//! caller waits for at most one step and one tail update. Only committed images are written: later
//! changes of the running transaction stay in memory. Tested in `tests/it/transactions.rs` and
//! `tests/it/crash.rs`.

use std::sync::Arc;
use syncline_base::lockrank::MutexGuard;
use syncline_device::{Origin, Plug};

use crate::journal::Journal;
use crate::state::State;
use crate::write_back::Pending;
use crate::{JournalError, tid_geq, turns};

impl Journal {
    /// Commits a running transaction that is older than the commit interval, and writes committed
    /// blocks in place once the oldest is older than `dirty_expire`: all of them, as the kernel's
    /// flusher treats the block device's inode, except blocks in the running transaction. In eager
    /// mode it only commits: see [`Journal::take_expired`]. With
    /// [`crate::JournalOptions::owner_commits`] it does not commit either.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn tick(&self, now_ns: u64) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.check()?;
        let interval_ns = self.options.commit_interval_ns;
        let mut due = None;
        if !self.options.owner_commits {
            if let Some(running) = &mut state.running {
                if now_ns >= running.started_ns.saturating_add(interval_ns) {
                    if running.transaction.is_idle() {
                        running.started_ns = now_ns;
                    } else {
                        due = Some(running.transaction.tid);
                    }
                }
            }
        }
        let expired = state.write_back.is_expired(now_ns, self.dirty_expire_ns());
        // In eager mode the file system decides: `checkpoint_step`.
        let write_back = !self.is_eager() && expired;
        let ordered = self.ordered_due_ns(&state).is_some_and(|due_ns| now_ns >= due_ns);
        drop(state);
        if ordered {
            self.flush_ordered()?;
        }
        if let Some(tid) = due {
            self.commit(tid)?;
        }
        if write_back {
            self.write_back()?;
        }
        Ok(())
    }

    /// When [`Journal::tick`] has something to do next, in nanoseconds of the clock.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let state = self.state.lock();
        if state.check().is_err() {
            return None;
        }
        let running = state.running.as_ref().filter(|r| !r.transaction.is_idle());
        let commit_ns =
            running.map(|r| r.started_ns.saturating_add(self.options.commit_interval_ns));
        let dirtied_ns = state.write_back.dirtied_ns;
        let expire_ns = dirtied_ns.map(|d| d.saturating_add(self.dirty_expire_ns()));
        [commit_ns, expire_ns, self.ordered_due_ns(&state)].into_iter().flatten().min()
    }

    /// When transactions that are ordered only have to be durable.
    fn ordered_due_ns(&self, state: &State) -> Option<u64> {
        let since_ns = state.deferred.unflushed_ns.filter(|_| !self.flushes.all_durable());
        since_ns.map(|ns| ns.saturating_add(self.options.commit_interval_ns))
    }

    /// Writes every committed block in place that is not part of the running transaction, without a
    /// flush: what the flusher or `sync` does to the block device.
    ///
    /// # Errors
    /// `Aborted`, or the device's error, which latches the journal.
    pub fn write_back(&self) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.write_back.dirtied_ns = None;
        let committing = state.committing_sequence();
        let cold = |block: &u64, p: &Pending| {
            let frozen_again = committing.is_some() && state.ring.live(*block) == committing;
            let busy = p.buffer.as_ref().is_some_and(|b| b.lock().running.is_some());
            !frozen_again && !busy
        };
        let blocks = state.write_back.select(usize::MAX, cold);
        for step in blocks.chunks(self.step_blocks()) {
            self.write_in_place(&mut state, step)?;
        }
        Ok(())
    }

    /// Writes every committed block in place and moves the tail behind them. Does not commit.
    ///
    /// # Errors
    /// As [`Journal::write_back`].
    pub fn checkpoint_all(&self) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        // Transactions that commit meanwhile are the next caller's.
        let last = state.ring.next_sequence();
        loop {
            state.check()?;
            let old = |_: &u64, p: &Pending| !tid_geq(p.chain, last);
            let blocks = state.write_back.select(self.step_blocks(), old);
            if blocks.is_empty() {
                break;
            }
            self.write_in_place(&mut state, &blocks)?;
        }
        if state.write_back.pending.is_empty() {
            state.write_back.dirtied_ns = None;
        }
        MutexGuard::unlocked(&mut state, || self.advance_tail())
    }

    /// True if the log is nearly full: seven eighths are in use.
    pub fn is_space_low(&self) -> bool {
        let state = self.state.lock();
        !state.ring.is_empty() && state.ring.free() < self.limits.ring.len() / 8
    }

    /// Sequence of the next transaction in the log.
    pub fn next_sequence(&self) -> u32 {
        self.state.lock().ring.next_sequence()
    }

    /// True if committed blocks have waited for `dirty_expire`; then their time starts anew.
    pub fn take_expired(&self, now_ns: u64) -> bool {
        let mut state = self.state.lock();
        let expired = state.write_back.is_expired(now_ns, self.dirty_expire_ns());
        if expired {
            state.write_back.dirtied_ns = None;
        }
        expired
    }

    /// One step of [`Journal::checkpoint_all`], of the transactions before sequence `upto`. False:
    /// nothing is left of them. `make_room`: then the tail is moved behind them; otherwise only
    /// metadata is written, since file data expires by itself.
    ///
    /// # Errors
    /// As [`Journal::write_back`].
    pub fn checkpoint_step(&self, upto: u32, make_room: bool) -> Result<bool, JournalError> {
        let mut state = self.state.lock();
        state.check()?;
        let old =
            |_: &u64, p: &Pending| !tid_geq(p.chain, upto) && (make_room || p.buffer.is_some());
        let blocks = state.write_back.select(self.step_blocks(), old);
        if !blocks.is_empty() {
            self.write_in_place(&mut state, &blocks)?;
            return Ok(true);
        }
        if make_room {
            MutexGuard::unlocked(&mut state, || self.advance_tail())?;
        }
        Ok(false)
    }

    /// Commits, writes everything in place and marks the log empty (`s_start` = 0), durably.
    /// Handles that start meanwhile are not part of it. As `jbd2_journal_flush`.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn flush_all(&self) -> Result<(), JournalError> {
        loop {
            if let Some(tid) = self.running_tid() {
                self.commit_inner(tid, false)?;
            }
            self.checkpoint_all()?;
            let mut state = self.state.lock();
            state.check()?;
            if state.turns.committing().is_some() {
                self.signals.turn.wait(&mut state);
                continue;
            }
            if !state.write_back.pending.is_empty() {
                continue;
            }
            if !state.ring.is_started() {
                return Ok(());
            }
            return self.empty_log(&mut state);
        }
    }

    /// Marks the log empty, durably: no obligation is left and the turn is free. Takes it, so that
    /// the log stays empty until the superblock says so.
    pub(crate) fn empty_log(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        let tid = state.committed_tid;
        state.turns.take(tid).flush_started = true;
        let next_sequence = state.ring.next_sequence();
        let result = MutexGuard::unlocked(state, || self.mark_empty(next_sequence));
        turns::give_up(&mut self.at_turn(state));
        result
    }

    /// Marks the log empty, durably. No obligation is left. The caller has the turn; its
    /// transaction, if it has a number, is `next_sequence`.
    pub(crate) fn mark_empty(&self, next_sequence: u32) -> Result<(), JournalError> {
        self.try_mark_empty(next_sequence).map_err(|error| self.latch(error))
    }

    fn try_mark_empty(&self, next_sequence: u32) -> Result<(), JournalError> {
        let mut superblock = self.superblock.lock();
        self.flush()?;
        superblock.set_start(next_sequence, 0);
        self.write_superblock(&mut superblock)?;
        // While the superblock is still locked: the next thread that moves the tail finds none.
        let free = {
            let mut state = self.state.lock();
            state.ring.restart(next_sequence);
            state.deferred.release_before(next_sequence, self.flushes.all_durable())
        };
        free.into_iter().for_each(|run| run());
        Ok(())
    }

    /// [`Journal::flush_all`], and no handle starts any more. Open handles must have ended.
    /// Afterwards the file system may clear `needs_recovery`. The format of eager syncs goes from
    /// the superblock in a write of its own, once nothing can be committed any more.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn shutdown(&self) -> Result<(), JournalError> {
        if self.state.lock().latch.closed {
            return Ok(());
        }
        self.flush_all()?;
        let mut state = self.state.lock();
        let busy = state.running.as_ref().is_some_and(|r| !r.transaction.is_idle());
        if busy || state.ring.is_started() {
            return Err(JournalError::Usage("handles were started during the shutdown"));
        }
        state.latch.closed = true;
        self.signals.wake_all();
        drop(state);
        let mut superblock = self.superblock.lock();
        if superblock.rest()? {
            self.write_superblock(&mut superblock)?;
        }
        Ok(())
    }

    fn step_blocks(&self) -> usize {
        self.options.checkpoint_step_blocks.max(1)
    }

    /// One step on the oldest transactions, as far as `goal` log blocks can be freed by it.
    pub(crate) fn checkpoint_oldest(
        &self,
        state: &mut MutexGuard<'_, State>,
        goal: u32,
    ) -> Result<(), JournalError> {
        let blocks = state.ring.oldest_pending(self.step_blocks(), goal);
        self.write_in_place(state, &blocks)
    }

    /// Writes the newest committed images of `blocks` in place as one plug. If another step is
    /// running, waits for its end instead.
    fn write_in_place(
        &self,
        state: &mut MutexGuard<'_, State>,
        blocks: &[u64],
    ) -> Result<(), JournalError> {
        while state.write_back.stepping {
            self.signals.step_ended.wait(state);
        }
        state.check()?;
        let images: Vec<(u64, u32, Arc<[u8]>, Origin)> = (blocks.iter())
            .filter_map(|b| {
                let pending = state.write_back.pending.get_mut(b)?;
                pending.after_step = None;
                Some((*b, pending.sequence, Arc::clone(&pending.image), pending.origin))
            })
            .collect();
        if images.is_empty() {
            return Ok(());
        }
        state.write_back.stepping = true;
        state.write_back.in_flight = images.iter().map(|(b, ..)| *b).collect();
        let result = MutexGuard::unlocked(state, || {
            let started_ns = self.clock.now_ns();
            let mut plug = Plug::new();
            for (block, _, image, origin) in &images {
                plug.write(block * u64::from(self.log.block_size), image, *origin);
            }
            let result = plug.submit(&*self.dev).map_err(JournalError::from);
            let result = result.map_err(|error| self.latch(error));
            result.map(|()| self.clock.now_ns().saturating_sub(started_ns))
        });
        state.write_back.stepping = false;
        state.write_back.in_flight.clear();
        self.signals.step_ended.notify_all();
        let step_ns = result?;
        state.stats.checkpoint_steps += 1;
        state.stats.blocks_checkpointed += images.len() as u64;
        state.stats.checkpoint_step_ns_max = state.stats.checkpoint_step_ns_max.max(step_ns);
        for (block, sequence, ..) in images {
            state.end_step_of(block, sequence);
        }
        Ok(())
    }
}
