//! Eager sync: the indivisible sets of a few files go to the log as one write and one flush.
//!
//! ```text
//!  fsync A --\                        |  token free: one caller leads
//!  fsync B ----> queue of members ----+-> lock, wait for handles, take the sets, unlock
//!  fsync C --/     (while a burst is  |   [descriptor][copies]...[commit]  one sequential write
//!                   in flight)        |   flush                            all of them return
//! ```
//!
//! Promises
//! - When [`Journal::sync`] returns, the sets of its members, as they were when it was called, are
//!   durable, and so is everything written to the device before the call.
//! - One transaction is in flight at a time: what comes meanwhile waits for the next burst, all of
//!   it together.
//! - The running transaction goes on: its other sets are not written and not waited for.
//! - A set that depends on data written in place is preceded by a flush, unless one has happened
//!   since ([`crate::Handle::require_flush`]).
//!
//! Fairness: when both a burst and a full commit wait, they take turns, so each waits for one of
//! the other at most; of what comes while one is in flight all goes with the next.
//!
//! Gathering: callers whose burst just ended come back a moment after the next one has begun, so
//! that two halves would take turns. A burst with fewer callers than the last one therefore waits
//! for more, an eighth of the time that the last one took and never more than a millisecond. A
//! caller that was alone last time never waits.
//!
//! A burst leaves the block images it logged as the "logged image" of blocks that other sets have
//! changed as well (`isets.rs`). Tested in
//! `fs/tests/eager.rs`.

use parking_lot::MutexGuard;

use crate::journal::{Journal, State};
use crate::transaction::Frozen;
use crate::{JournalError, Member, Tid};

/// Longest wait for more callers, in nanoseconds, and in how many parts it is slept.
const GATHER_NS_MAX: u64 = 1_000_000;
const GATHER_PARTS: u64 = 5;

impl Journal {
    /// Makes the sets that hold `seeds` durable, and everything that was written to the device
    /// before. Members that are in no set (nothing changed since the last commit) cost nothing. If
    /// that leaves nothing to write the device is flushed only with `flush`: for data that was
    /// written in place.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn sync(&self, seeds: &[Member], flush: bool) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.check()?;
        let batch = state.batch;
        state.queue.extend_from_slice(seeds);
        state.queue_flush |= flush;
        state.batch_callers += 1;
        loop {
            state.check()?;
            if state.batches_done > batch {
                return Ok(());
            }
            let turn = state.full_waiting == 0 || state.full_was_last;
            if state.committing.is_some() || state.gathering || !turn {
                self.changed.wait(&mut state);
                continue;
            }
            self.gather(&mut state);
            if state.committing.is_none() {
                self.lead(&mut state)?;
            }
        }
    }

    /// Waits for callers that are probably on their way.
    fn gather(&self, state: &mut MutexGuard<'_, State>) {
        let few = |state: &State| state.batch_callers < state.callers_before;
        if state.callers_before < 2 || !few(state) {
            return;
        }
        let part_ns = (state.burst_ns / 8).min(GATHER_NS_MAX) / GATHER_PARTS;
        state.gathering = true;
        for _ in 0..GATHER_PARTS {
            if !few(state) || state.committing.is_some() {
                break;
            }
            MutexGuard::unlocked(state, || self.clock.sleep_until(self.clock.now_ns() + part_ns));
        }
        state.gathering = false;
    }

    /// Writes one burst for everybody who waits.
    fn lead(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        let before = state.committed_tid;
        self.lock_running(state, before)?;
        let batch = state.batch;
        state.batch += 1;
        state.callers_before = std::mem::take(&mut state.batch_callers);
        let started_ns = self.clock.now_ns();
        let flush = std::mem::take(&mut state.queue_flush);
        let (frozen, tid) = self.take_sets(state);
        self.note_frozen(state, &frozen);
        self.changed.notify_all();
        let has_record = frozen.has_record();
        let mut placed = None;
        if has_record {
            match self.write_frozen(state, &frozen) {
                Ok(place) => placed = Some(place),
                Err(error) => return Err(self.fail_commit(state, frozen, error)),
            }
        } else if flush && let Err(error) = MutexGuard::unlocked(state, || self.flush()) {
            return Err(self.fail_commit(state, frozen, error));
        }
        let callbacks = self.publish(state, frozen, placed);
        MutexGuard::unlocked(state, || callbacks.into_iter().for_each(|f| f()));
        state.burst_ns = self.clock.now_ns().saturating_sub(started_ns);
        state.full_was_last = false;
        state.committing = None;
        state.committed_tid = tid.unwrap_or(before);
        state.batches_done = batch + 1;
        self.changed.notify_all();
        if has_record {
            self.lazy_tail(state)?;
        }
        Ok(())
    }

    /// Takes the sets that were asked for and unlocks the running transaction, or, where sets
    /// cannot be told apart, takes all of it; then with its number.
    fn take_sets(&self, state: &mut MutexGuard<'_, State>) -> (Frozen, Option<Tid>) {
        let seeds = std::mem::take(&mut state.queue);
        let host = self.host.lock().clone();
        let Some(running) = &mut state.running else { return (Frozen::default(), None) };
        if let Some(frozen) = running.transaction.freeze_sets(&seeds, host.as_deref()) {
            running.locked = false;
            return (frozen, None);
        }
        let Some(running) = state.running.take() else { return (Frozen::default(), None) };
        (running.transaction.freeze(), Some(running.transaction.tid))
    }
}
