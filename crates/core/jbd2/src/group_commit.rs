//! Group commit of eager mode: the dependency sets of a few files go to the log as one write and
//! one flush.
//!
//! ```text
//!  fsync A --\                        |  turn free: one caller leads
//!  fsync B ----> queue of members ----+-> lock, wait for handles, take the sets, unlock
//!  fsync C --/     (while one is      |   [descriptor][copies]...[commit]  one sequential write
//!                   in flight)        |   flush                            all of them return
//! ```
//!
//! Promises
//! - When [`Journal::sync`] returns, the sets of its members, as they were when it was called, are
//!   durable, and so is everything written to the device before the call.
//! - One transaction is in flight at a time: callers that come meanwhile share the next group
//!   commit.
//! - The running transaction goes on: its other sets are not written and not waited for.
//! - [`Journal::order_sets`] does the same with cache barriers for flushes. One caller of `sync`
//!   among those of a group commit makes it durable for all.
//! - A set that depends on data written in place is preceded by a flush, unless one has happened
//!   since ([`crate::Handle::require_flush`]).
//!
//! Fairness and gathering are in `turns.rs`. A pause of gathering is a fraction of an eighth of the
//! time that the last group commit took, a millisecond in all at most.
//!
//! The images that a group commit logged become the "logged images" of blocks that other sets have
//! changed as well (`dependency_sets/`). Tested in the file system's `fs/tests/it/eager.rs`.

use syncline_base::lockrank::MutexGuard;

use crate::commit::Ending;
use crate::dependency_sets::compose;
use crate::journal::Journal;
use crate::state::State;
use crate::transaction::Frozen;
use crate::turns::{self, GATHER_PARTS, GroupTurn};
use crate::{JournalError, Member, Tid};

/// Longest wait for more callers, in nanoseconds.
const GATHER_NS_MAX: u64 = 1_000_000;

/// Requests of callers that no group commit has taken up.
#[derive(Default)]
pub(crate) struct Requests {
    seeds: Vec<Member>,
    /// One of the callers needs a flush even if there is nothing to log.
    flush: bool,
    /// One of the callers needs more than order.
    durable: bool,
    /// Duration of the last group commit's device requests, in nanoseconds.
    pub(crate) took_ns: u64,
}

impl Journal {
    /// Makes the sets that hold `seeds` durable, and everything that was written to the device
    /// before. Members that are in no set (nothing changed since the last commit) cost nothing. If
    /// that leaves nothing to write the device is flushed only with `flush`: for data that was
    /// written in place.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn sync(&self, seeds: &[Member], flush: bool) -> Result<(), JournalError> {
        self.sync_or_order(seeds, flush, true)
    }

    /// As [`Journal::sync`] on a device with a cache barrier, without waiting for the cells: after
    /// a power cut nothing that is written after this call is there without all that `sync` would
    /// have made durable. That is so at the next flush, and [`Journal::tick`] flushes after the
    /// commit interval. Blocks that were freed with it stay held until then, since a discard would
    /// not be ordered.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn order_sets(&self, seeds: &[Member], flush: bool) -> Result<(), JournalError> {
        self.sync_or_order(seeds, flush, !self.dev.geometry().barrier)
    }

    fn sync_or_order(
        &self,
        seeds: &[Member],
        flush: bool,
        durable: bool,
    ) -> Result<(), JournalError> {
        let mut state = self.state.lock();
        state.check()?;
        let number = state.turns.join_group();
        state.requests.seeds.extend_from_slice(seeds);
        state.requests.flush |= flush;
        state.requests.durable |= durable;
        loop {
            match turns::await_group(&mut self.at_turn(&mut state), number) {
                GroupTurn::Over => return Ok(()),
                GroupTurn::Stopped => state.check()?,
                GroupTurn::Lead => {
                    let part_ns = (state.requests.took_ns / 8).min(GATHER_NS_MAX) / GATHER_PARTS;
                    let still_free = turns::gather(&mut self.at_turn(&mut state), |at| {
                        let until_ns = self.clock.now_ns() + part_ns;
                        MutexGuard::unlocked(at.state, || self.clock.sleep_until(until_ns));
                    });
                    if still_free {
                        self.lead(&mut state)?;
                    }
                }
            }
        }
    }

    /// Makes one group commit for all waiting callers.
    fn lead(&self, state: &mut MutexGuard<'_, State>) -> Result<(), JournalError> {
        let before = state.committed_tid;
        self.lock_running(state, before)?;
        let number = state.turns.begin_group();
        let started_ns = self.clock.now_ns();
        let durable = std::mem::take(&mut state.requests.durable);
        let flush =
            std::mem::take(&mut state.requests.flush) || durable && !self.flushes.all_durable();
        let (mut frozen, whole) = self.take_sets(state);
        (frozen.only_record, frozen.ordered) = (!flush, !durable);
        self.note_frozen(state, &mut frozen);
        self.signals.unlocked.notify_all();
        // Full commits that let this one pass wait for its end from now on.
        self.signals.turn.notify_all();
        let written = if flush && !frozen.has_record() {
            MutexGuard::unlocked(state, || if durable { self.flush() } else { self.order() })
                .map(|()| None)
        } else {
            self.write_if_any(state, &frozen)
        };
        self.finish(state, frozen, written, Ending::Group { number, started_ns, whole })
    }

    /// Takes the sets that were asked for and unlocks the running transaction, or, where sets
    /// cannot be told apart, takes all of it; then with its number. The state is unlocked while
    /// images are composed.
    fn take_sets(&self, state: &mut MutexGuard<'_, State>) -> (Frozen, Option<Tid>) {
        let seeds = std::mem::take(&mut state.requests.seeds);
        let Some(running) = &state.running else { return (Frozen::default(), None) };
        if let Some(taken) = running.transaction.take_sets(&seeds) {
            let images = MutexGuard::unlocked(state, || {
                let host = self.host.lock().clone();
                compose(&taken.shared, host.as_deref())
            });
            if let Some(running) = &mut state.running {
                if let Some(frozen) = running.transaction.freeze_sets(taken, images) {
                    running.locked = false;
                    return (frozen, None);
                }
            }
        }
        let Some(running) = state.running.take() else { return (Frozen::default(), None) };
        (running.transaction.freeze(), Some(running.transaction.tid))
    }
}
