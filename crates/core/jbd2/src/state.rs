//! State of the journal in memory: parts that each own their rules, under one lock.
//!
//! ```text
//!   State ─┬─ running     the transaction that handles join
//!          ├─ promised    blocks that operations reserved before they began  reserve.rs
//!          ├─ turns       who may commit next                          turns.rs
//!          ├─ requests    what callers of sync asked for               group_commit.rs
//!          ├─ ring        the log: head, tail, free space, live copies ring.rs
//!          ├─ write_back  committed images that are not in place       write_back.rs
//!          ├─ deferred    freed blocks that wait for the tail          deferred.rs
//!          └─ latch, lost, tids, stats
//! ```
//!
//! The lock is held for memory work only. Each condition to wait for has a name ([`Signals`]).

use std::sync::Arc;

use syncline_base::lockrank::{Condvar, MutexGuard};

use crate::deferred::DeferredFree;
use crate::group_commit::Requests;
use crate::ring::{Ring, Span};
use crate::transaction::{Base, Copy, Frozen, Transaction};
use crate::turns::{Monitor, Turns};
use crate::write_back::{Pending, WriteBack};
use crate::{JournalError, JournalStats, Tid};

/// The running transaction and its handles.
pub(crate) struct Running {
    pub(crate) transaction: Arc<Transaction>,
    pub(crate) open_handles: u32,
    /// Credits of the open handles.
    pub(crate) reserved: u32,
    /// Being frozen: no handle joins any more.
    pub(crate) locked: bool,
    pub(crate) started_ns: u64,
}

impl Running {
    /// Blocks joined, and those that open handles may still join.
    pub(crate) fn blocks(&self) -> u32 {
        self.transaction.len_blocks().saturating_add(self.reserved)
    }
}

/// Why nothing is written any more.
#[derive(Default)]
pub(crate) struct Latch {
    pub(crate) aborted: Option<JournalError>,
    pub(crate) closed: bool,
}

impl Latch {
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        match &self.aborted {
            Some(error) => Err(error.clone()),
            None if self.closed => Err(JournalError::Usage("the journal was shut down")),
            None => Ok(()),
        }
    }
}

/// Everything under the state lock.
pub(crate) struct State {
    pub(crate) running: Option<Running>,
    /// Blocks of the running transaction, or of the next ones, that are reserved.
    pub(crate) promised: u32,
    pub(crate) turns: Turns,
    pub(crate) requests: Requests,
    pub(crate) ring: Ring,
    pub(crate) write_back: WriteBack,
    pub(crate) deferred: DeferredFree,
    pub(crate) latch: Latch,
    pub(crate) committed_tid: Tid,
    pub(crate) next_tid: Tid,
    /// Contents of failed commits; kept, so that reads still see them.
    pub(crate) lost: Vec<Frozen>,
    pub(crate) stats: JournalStats,
}

impl State {
    /// State of a journal whose log is empty and continues with `sequence`.
    pub(crate) fn new(span: Span, sequence: u32) -> State {
        State {
            running: None,
            promised: 0,
            turns: Turns::default(),
            requests: Requests::default(),
            ring: Ring::new(span, sequence),
            write_back: WriteBack::default(),
            deferred: DeferredFree::default(),
            latch: Latch::default(),
            committed_tid: sequence.wrapping_sub(1),
            next_tid: sequence,
            lost: Vec::new(),
            stats: JournalStats::default(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), JournalError> {
        self.latch.check()
    }

    /// Ends the obligation to write an older image of `block` in place.
    pub(crate) fn drop_pending(&mut self, block: u64) {
        if let Some(old) = self.write_back.pending.remove(&block) {
            self.ring.end_write(block, old.chain);
        }
    }

    /// The image of `block` in transaction `sequence` is in place. A newer one needs the records
    /// since then only.
    pub(crate) fn end_step_of(&mut self, block: u64, sequence: u32) {
        let Some(pending) = self.write_back.pending.get_mut(&block) else { return };
        if pending.sequence == sequence {
            self.drop_pending(block);
        } else if let Some(chain) = pending.after_step.take() {
            let before = std::mem::replace(&mut pending.chain, chain);
            self.ring.end_write(block, before);
            self.ring.owe_write(block, chain);
        }
    }

    /// Image number `sequence` of `copy`'s block is durable and is to be written in place.
    /// `is_packed`: recovery may need older records for it. Returns whether the obligation is the
    /// transaction's own, not an older one's.
    pub(crate) fn take_over(&mut self, copy: Copy, sequence: u32, is_packed: bool) -> bool {
        let Copy { block, image, buffer, origin, base } = copy;
        let old = self.write_back.pending.remove(&block);
        let in_flight = self.write_back.in_flight.contains(&block);
        let relative = is_packed && base.is_known();
        let chain = match &old {
            Some(old) if relative => old.chain,
            _ => sequence,
        };
        let mut after_step = None;
        if let Some(old) = old {
            if chain != old.chain {
                self.ring.end_write(block, old.chain);
            } else if in_flight {
                after_step = old.after_step.or(Some(sequence));
            }
        }
        let pending = Pending { sequence, chain, after_step, image, buffer, origin };
        self.write_back.pending.insert(block, pending);
        chain == sequence
    }

    /// Packed records: the images that the copies are relative to. That of file data is the last
    /// logged one while it is not in place; afterwards the caller's. A block that was freed in the
    /// same transaction has a new owner, for whom its old contents do not count.
    pub(crate) fn find_bases(&self, frozen: &mut Frozen) {
        for copy in &mut frozen.copies {
            if frozen.forgotten.binary_search(&copy.block).is_ok() {
                copy.base = Base::Unknown;
            } else if copy.buffer.is_none() {
                if let Some(pending) = self.write_back.pending.get(&copy.block) {
                    copy.base = Base::Image(Arc::clone(&pending.image));
                }
            }
        }
    }

    /// Log blocks that the committing transaction is still going to take.
    pub(crate) fn unplaced(&self) -> u32 {
        self.turns.committing().map_or(0, |c| c.unplaced)
    }

    /// Sequence of the transaction on its way into the log, if it writes anything.
    pub(crate) fn committing_sequence(&self) -> Option<u32> {
        self.turns.committing().and_then(|c| c.sequence)
    }
}

/// Conditions that threads wait for under the state lock, each with its waiters.
#[derive(Default)]
pub(crate) struct Signals {
    /// The running transaction takes handles again: [`crate::Journal::start`].
    pub(crate) unlocked: Condvar,
    /// The last handle of a transaction that is being frozen ended: the committer.
    pub(crate) handles_ended: Condvar,
    /// A handle or a reservation ended: for waiters for room in the running transaction, with
    /// [`crate::JournalOptions::owner_commits`].
    pub(crate) room: Condvar,
    /// Somebody took a turn, gave it back, or stands back: committers and callers of sync.
    pub(crate) turn: Condvar,
    /// A step of in-place writes ended: for the next step, and for writes and frees of its blocks.
    pub(crate) step_ended: Condvar,
}

impl Signals {
    /// The journal latched or closed: everybody looks again.
    pub(crate) fn wake_all(&self) {
        let Signals { unlocked, handles_ended, room, turn, step_ended } = self;
        for signal in [unlocked, handles_ended, room, turn, step_ended] {
            signal.notify_all();
        }
    }
}

/// The state lock as the turns see it.
pub(crate) struct AtTurn<'s, 'g> {
    pub(crate) state: &'s mut MutexGuard<'g, State>,
    pub(crate) signals: &'s Signals,
}

impl Monitor for AtTurn<'_, '_> {
    fn turns(&mut self) -> &mut Turns {
        &mut self.state.turns
    }

    fn is_stopped(&self) -> bool {
        self.state.check().is_err()
    }

    fn wait(&mut self) {
        self.signals.turn.wait(self.state);
    }

    fn wake(&mut self) {
        self.signals.turn.notify_all();
    }
}
