//! Turns: one transaction at a time is written to the log, and the order of the callers.
//!
//! ```text
//!   callers of sync --> group commit (one of them leads) --\
//!                                                           >-- the turn: one holder
//!   callers of commit -> full commit -----------------------/
//! ```
//!
//! Promises
//! - At most one holder. It releases the turn exactly once, and then all waiters look again.
//! - A group commit that begins takes every caller that waits; a caller is not done before a group
//!   commit that began after its call has ended.
//! - Group commits and full commits alternate while both wait, so each waits for one of the other
//!   kind at most.
//! - Gathering: callers whose group commit just ended come back a moment after the next one has
//!   begun, so that two halves would take turns. A group commit with fewer callers than the last
//!   one therefore waits for more in [`GATHER_PARTS`] pauses. A caller that was alone last time
//!   never waits.
//!
//! Assumptions: the turns lie under one lock, and waiting for them releases it ([`Monitor`]). This
//! file knows neither the journal nor its locks, so that `tests/it/schedules.rs` runs the very same
//! code under every schedule that shuttle draws.

use crate::Tid;

/// Most pauses of a group commit while it waits for callers.
pub(crate) const GATHER_PARTS: u64 = 5;

/// The transaction on its way into the log: the holder of the turn.
pub(crate) struct Committing {
    pub(crate) tid: Tid,
    /// Different for every holder.
    pub(crate) turn: u64,
    /// Log blocks it needs, until they are taken from the ring.
    pub(crate) unplaced: u32,
    /// Its sequence in the log, if it writes anything.
    pub(crate) sequence: Option<u32>,
    /// Its first log block, once it has its place.
    pub(crate) first_block: Option<u32>,
    pub(crate) flush_started: bool,
}

/// Turn to commit: its holder, and the callers that wait for it.
#[derive(Default)]
pub(crate) struct Turns {
    committing: Option<Committing>,
    /// Turns taken so far.
    taken: u64,
    /// Full commits that wait, and whether the last holder was one.
    full_waiting: u32,
    full_was_last: bool,
    /// Callers that wait for the next group commit, and those of the last one.
    callers: u32,
    callers_before: u32,
    /// A group commit is about to begin and waits a moment for more callers.
    gathering: bool,
    /// Number of the next group commit, and how many have ended.
    group: u64,
    groups_done: u64,
}

/// The lock that the turns lie under, held.
pub(crate) trait Monitor {
    /// The turns.
    fn turns(&mut self) -> &mut Turns;
    /// No commit succeeds any more.
    fn is_stopped(&self) -> bool;
    /// Releases the lock until a call of `wake`.
    fn wait(&mut self);
    /// Wakes all waiters.
    fn wake(&mut self);
}

/// Answer to a caller of a group commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupTurn {
    /// Its group commit has ended.
    Over,
    /// It leads the next one.
    Lead,
    /// No commit succeeds any more.
    Stopped,
}

impl Turns {
    /// The holder, if there is one.
    pub(crate) fn committing(&self) -> Option<&Committing> {
        self.committing.as_ref()
    }

    pub(crate) fn committing_mut(&mut self) -> Option<&mut Committing> {
        self.committing.as_mut()
    }

    /// Acquires the turn, which the caller has found free.
    pub(crate) fn take(&mut self, tid: Tid) -> &mut Committing {
        assert!(self.committing.is_none(), "two transactions on their way into the log");
        self.taken += 1;
        self.committing.insert(Committing {
            tid,
            turn: self.taken,
            unplaced: 0,
            sequence: None,
            first_block: None,
            flush_started: false,
        })
    }

    /// A caller asks for a group commit: the number of the one that will take it.
    pub(crate) fn join_group(&mut self) -> u64 {
        self.callers += 1;
        self.group
    }

    /// Begins the holder's group commit, which serves all callers so far. Returns its number.
    pub(crate) fn begin_group(&mut self) -> u64 {
        let number = self.group;
        self.group += 1;
        self.callers_before = std::mem::take(&mut self.callers);
        number
    }

    /// A full commit lets the callers of a group commit pass, since the last holder was one too.
    pub(crate) fn group_is_next(&self) -> bool {
        self.full_was_last && self.callers > 0
    }

    fn group_may_lead(&self) -> bool {
        let turn = self.full_waiting == 0 || self.full_was_last;
        self.committing.is_none() && !self.gathering && turn
    }

    fn has_few_callers(&self) -> bool {
        self.callers < self.callers_before
    }
}

/// Waits until the group commit `number` is over, or the caller has to lead it.
pub(crate) fn await_group(monitor: &mut impl Monitor, number: u64) -> GroupTurn {
    loop {
        if monitor.is_stopped() {
            return GroupTurn::Stopped;
        }
        if monitor.turns().groups_done > number {
            return GroupTurn::Over;
        }
        if monitor.turns().group_may_lead() {
            return GroupTurn::Lead;
        }
        monitor.wait();
    }
}

/// Waits for callers that are probably on their way. False: somebody else took the turn meanwhile.
pub(crate) fn gather<M: Monitor>(monitor: &mut M, mut pause: impl FnMut(&mut M)) -> bool {
    let turns = monitor.turns();
    if turns.callers_before >= 2 && turns.has_few_callers() {
        turns.gathering = true;
        for _ in 0..GATHER_PARTS {
            let turns = monitor.turns();
            if !turns.has_few_callers() || turns.committing.is_some() {
                break;
            }
            pause(monitor);
        }
        monitor.turns().gathering = false;
    }
    monitor.turns().committing.is_none()
}

/// Waits, as a full commit, while somebody else holds the turn, which is `turn`.
pub(crate) fn await_end_of(monitor: &mut impl Monitor, turn: u64) {
    await_as_full(monitor, |turns| turns.committing.as_ref().is_some_and(|c| c.turn == turn));
}

/// Waits, as a full commit, until the group commit that is next has begun.
pub(crate) fn await_next_group(monitor: &mut impl Monitor) {
    await_as_full(monitor, |turns| turns.group_is_next() && turns.committing.is_none());
}

fn await_as_full(monitor: &mut impl Monitor, busy: impl Fn(&Turns) -> bool) {
    monitor.turns().full_waiting += 1;
    while busy(monitor.turns()) && !monitor.is_stopped() {
        monitor.wait();
    }
    monitor.turns().full_waiting -= 1;
    if monitor.turns().callers > 0 {
        // They let this one pass; it may have nothing to do any more.
        monitor.wake();
    }
}

/// The holder gives the turn back without a commit.
pub(crate) fn give_up(monitor: &mut impl Monitor) {
    monitor.turns().committing = None;
    monitor.wake();
}

/// The holder's full commit is over.
pub(crate) fn end_full(monitor: &mut impl Monitor) {
    monitor.turns().full_was_last = true;
    give_up(monitor);
}

/// The holder's group commit `number` is over.
pub(crate) fn end_group(monitor: &mut impl Monitor, number: u64) {
    let turns = monitor.turns();
    turns.full_was_last = false;
    turns.groups_done = number + 1;
    give_up(monitor);
}
