//! Hand-over between workers: which of them waits in /dev/fuse, and which are parked.
//!
//! ```text
//!               +------------------------ answered, nobody else waits ----+
//!               v                                                         |
//!   worker:  waits in read(/dev/fuse) --> begin --> request --> end ------+
//!               ^                           |                             |
//!               |                           | may be long                 | another waits
//!               +------- unparked <---------+------------- parked <-------+
//! ```
//!
//! Promises
//! - As long as a request is under way that may be long, or that the watchdog has found to last,
//!   some worker waits for the next request, or every worker has a request.
//! - No worker is parked before all have been here once, and none after [`finish`].
//!
//! Assumptions: the state lies under one lock, and being parked releases it ([`Monitor`]). This
//! file knows neither threads nor time, so that `handover/model_tests.rs` runs the same code under
//! the schedules that shuttle draws.

#[cfg(test)]
mod model_tests;

/// Polls without a request after which the watchdog sleeps.
const QUIET_POLLS: u32 = 100;

/// State of the workers of one mount.
#[derive(Default)]
pub(super) struct Handover {
    /// Number of workers.
    workers: usize,
    /// Workers that have been here.
    known: usize,
    /// Of them, those that wait for a request or are on their way to.
    waiting: usize,
    /// Those that are parked, by their numbers. The last one is unparked first: its stack and its
    /// buffer are still in the caches.
    parked: Vec<usize>,
    /// Requests begun and ended.
    moves: u64,
    /// The watchdog is awake.
    watched: bool,
    over: bool,
}

/// The lock that the state lies under, held.
pub(super) trait Monitor {
    /// The state.
    fn state(&mut self) -> &mut Handover;
    /// Releases the lock until worker `number` is notified.
    fn wait(&mut self, number: usize);
    /// Notifies worker `number`.
    fn notify(&mut self, number: usize);
    /// Notifies the watchdog.
    fn notify_watchdog(&mut self);
    /// Runs `step` without the lock.
    fn unlocked(&mut self, step: impl FnOnce());
}

/// A request that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    /// Moves with its begin.
    pub(super) moves: u64,
    /// Workers that have been here.
    pub(super) known: usize,
}

impl Handover {
    pub(super) fn new(workers: usize) -> Handover {
        Handover { workers, ..Handover::default() }
    }

    /// Parked workers, the last of them at the end.
    #[cfg(test)]
    pub(super) fn parked(&self) -> &[usize] {
        &self.parked
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Reports whether the watchdog is to poll.
    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Reports whether a worker that has answered is not wanted.
    fn may_park(&self) -> bool {
        self.waiting > 0 && self.known == self.workers && !self.over
    }
}

/// A worker has got a request. `is_new`: its first; `may_be_long`: nobody else is to wait for it.
pub(super) fn begin(at: &mut impl Monitor, is_new: bool, may_be_long: bool) -> Begun {
    let state = at.state();
    state.moves += 1;
    if is_new {
        state.known += 1;
    } else {
        state.waiting = state.waiting.saturating_sub(1);
    }
    let begun = Begun { moves: state.moves, known: state.known };
    if state.waiting == 0 && state.workers > 1 {
        if may_be_long {
            unpark(at);
        } else if !state.watched {
            state.watched = true;
            at.notify_watchdog();
        }
    }
    begun
}

/// The request of worker `number` is answered. Returns when this worker is to wait for another: the
/// moves with this end, if the request was alone. `parks`: the worker has nothing else to do;
/// `prepare` is called without the lock before it is parked.
pub(super) fn end(
    at: &mut impl Monitor,
    number: usize,
    begun: u64,
    parks: bool,
    prepare: impl FnOnce(),
) -> Option<u64> {
    let state = at.state();
    state.moves += 1;
    let alone = (state.moves == begun + 1).then_some(state.moves);
    if parks && state.may_park() {
        // Who is unparked later must not have to wait for a CPU.
        at.unlocked(prepare);
    }
    // The one that waited may have a request by now.
    let state = at.state();
    if !parks || !state.may_park() {
        state.waiting += 1;
        return alone;
    }
    state.parked.push(number);
    while at.state().parked.contains(&number) && !at.state().over {
        at.wait(number);
    }
    None
}

/// Lets a parked worker wait for requests, if there is one.
fn unpark(at: &mut impl Monitor) {
    let state = at.state();
    if let Some(number) = state.parked.pop() {
        state.waiting += 1;
        at.notify(number);
    }
}

/// Parks nobody from now on, and wakes all.
pub(super) fn finish(at: &mut impl Monitor) {
    at.state().over = true;
    for number in 0..at.state().workers {
        at.notify(number);
    }
    at.notify_watchdog();
}

/// Memory of the watchdog between two polls.
#[derive(Default)]
pub(super) struct Watch {
    moves: u64,
    /// Nobody waited for requests.
    alone: bool,
    /// Nothing had moved, and the bound worker had a request.
    behind: bool,
    /// Polls without a request.
    quiet: u32,
}

/// Finding of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Requests have begun or ended.
    Moved,
    /// None has.
    Still,
    /// None has, and there are none: the watchdog may sleep.
    Quiet,
    /// One lasts, and a parked worker now waits for the next.
    Stuck,
}

impl Watch {
    /// Polls once; `is_behind` reports whether a request waits for the bound worker.
    pub(super) fn poll(
        &mut self,
        at: &mut impl Monitor,
        is_behind: impl FnOnce() -> bool,
    ) -> Found {
        let state = at.state();
        let (moves, alone) = (state.moves, state.waiting == 0);
        let last = std::mem::replace(self, Watch { moves, alone, behind: false, quiet: 0 });
        if moves != last.moves {
            return Found::Moved;
        }
        self.behind = is_behind();
        if alone && last.alone || self.behind && last.behind {
            self.quiet = last.quiet;
            unpark(at);
            return Found::Stuck;
        }
        self.quiet = last.quiet + 1;
        state.watched = self.quiet < QUIET_POLLS;
        if state.watched { Found::Still } else { Found::Quiet }
    }
}
