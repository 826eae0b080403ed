//! Which workers wait for requests: one, while requests are short.
//!
//! ```text
//!   worker:  waits in read(/dev/fuse) -> request -> begin -> answer -> end --+
//!               ^ nobody else waits                                          |
//!               +------------------------------------------------------------+
//!               +-- sent by begin, or by the watch <-- rests <-- another waits
//! ```
//!
//! The kernel wakes a waiting worker for each request, and of many always the one that has waited
//! longest: two switches of threads and cold caches for a request of a few microseconds, while the
//! worker that has just answered would have found it without a sleep. So whoever has answered
//! rests if another waits. Where the one that waits does so is a matter of its own (`follow.rs`).
//!
//! Promises
//! - Nobody waits for long requests: one that may be long (a sync, or a kind that lately was) sends
//!   a resting worker to wait before it begins; any other that does not end is noticed by the
//!   watch within two of its looks, which are 1 ms apart, 16 ms at most where none was lately.
//! - Nobody rests before all workers have been here once. When the mount is over the first worker
//!   to leave sends all others, so that they hear of it, too.
//!
//! This file is long because it is tested below, with a queue for the kernel.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::follow::{Follow, Follower};

/// A request that took this long was long.
const LONG: Duration = Duration::from_micros(100);
/// So many requests of a kind after a long one may be long as well; one that only lost its
/// processor for a while looks the same.
const LONG_TURNS: u8 = 2;
/// The same after several long ones.
const LONG_TURNS_MAX: u8 = 32;
/// How often the watch looks while requests come.
const LOOK: Duration = Duration::from_millis(1);
/// The same at most, while all requests end. The watch wakes on the processor of a program or of a
/// worker, and where one follows the other (`follow.rs`) the kernel then takes them apart: at every
/// millisecond that is a seventh of the time.
const LOOK_MAX: Duration = Duration::from_millis(16);
/// Looks at ends of requests only, after which it looks less often.
const CALM_LOOKS: u32 = 64;
/// Looks without a request after which the watch sleeps.
const QUIET_LOOKS: u32 = 100;

/// Kinds of requests, by what they may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Attributes and what is answered from memory.
    Attributes,
    /// Names: looked up, made, removed, listed.
    Names,
    /// Data to the program.
    Read,
    /// Data from the program, and changes of a file's blocks.
    Write,
    /// Always waits for the device.
    Sync,
}

#[derive(Default)]
struct State {
    /// Workers that have been here.
    known: usize,
    /// Of them, those that wait for a request or are on their way to.
    waiting: usize,
    /// Those that rest, by their numbers. The last to come is sent first: its stack and its buffer
    /// are still in the caches.
    resting: Vec<usize>,
    /// Requests begun and ended.
    moves: u64,
    watched: bool,
    over: bool,
}

/// The gate of one mount.
pub(crate) struct Gate {
    workers: usize,
    long: Duration,
    state: Mutex<State>,
    /// By the number of a worker.
    go: Box<[Condvar]>,
    look: Condvar,
    pub(crate) follow: Follow,
    /// By kind: requests that may still be long.
    turns: [AtomicU8; 5],
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// A worker's place; it is left when the thread ends.
struct Seat {
    gate: Arc<Gate>,
    number: usize,
    follower: Follower,
    /// What had moved when its last request had ended, if nothing else did during that.
    moves: Option<u64>,
    /// When the answer of its request was ready. Once that is sent the program may run instead.
    ready: Option<Instant>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.gate.follow.leave(&mut self.follower);
        self.gate.open();
    }
}

/// One request under way.
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    kind: Kind,
    began: Instant,
    /// What had moved with its begin.
    moves: u64,
    may_rest: bool,
}

/// Who waits for a request, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Its thread.
    pub(crate) thread: u32,
    /// Whether it is a small call: little is copied.
    pub(crate) small: bool,
}

impl Gate {
    /// A gate for so many workers.
    pub(crate) fn new(workers: usize, follow: Follow) -> Arc<Gate> {
        Gate::with(workers, LONG, follow)
    }

    fn with(workers: usize, long: Duration, follow: Follow) -> Arc<Gate> {
        let (state, look, turns) = Default::default();
        let go = std::iter::repeat_with(Condvar::new).take(workers).collect();
        Arc::new(Gate { workers, long, state, go, look, follow, turns })
    }

    /// A worker has got a request.
    pub(crate) fn begin(self: &Arc<Gate>, kind: Kind, caller: Caller) -> Turn<'_> {
        self.turn(kind, Some(caller))
    }

    /// As [`Gate::begin`] of a part of a request, after which the worker has the next part to do,
    /// and for which nobody waits.
    pub(crate) fn begin_part(self: &Arc<Gate>, kind: Kind) -> Turn<'_> {
        self.turn(kind, None)
    }

    fn turn(self: &Arc<Gate>, kind: Kind, caller: Option<Caller>) -> Turn<'_> {
        let may_be_long =
            kind == Kind::Sync || self.turns[kind as usize].load(Ordering::Relaxed) > 0;
        SEAT.with_borrow_mut(|place| {
            let (moves, known) = self.enter(place.is_none(), may_be_long);
            let seat = place.get_or_insert_with(|| Seat {
                gate: Arc::clone(self),
                number: known - 1,
                follower: Follower::default(),
                moves: None,
                ready: None,
            });
            seat.ready = None;
            if let Some(caller) = caller {
                let in_turn = seat.moves.is_some_and(|last| last + 1 == moves);
                self.follow.serves(&mut seat.follower, caller.thread, in_turn && caller.small);
            }
            let began = Instant::now();
            Turn { gate: self, kind, began, moves, may_rest: caller.is_some() }
        })
    }

    /// A worker has a request, and waits no more. Returns how much has moved with that, and how
    /// many workers are known.
    fn enter(&self, is_new: bool, may_be_long: bool) -> (u64, usize) {
        let mut state = self.state.lock();
        state.moves += 1;
        if is_new {
            state.known += 1;
        } else {
            state.waiting = state.waiting.saturating_sub(1);
        }
        if state.waiting == 0 && self.workers > 1 {
            if may_be_long {
                self.send(&mut state);
            } else if !state.watched {
                state.watched = true;
                self.look.notify_one();
            }
        }
        (state.moves, state.known)
    }

    /// Sends a resting worker to wait, if there is one.
    fn send(&self, state: &mut State) {
        if let Some(number) = state.resting.pop() {
            state.waiting += 1;
            self.go[number].notify_one();
        }
    }

    /// The request is answered. Returns when this worker is to wait for another.
    fn end(&self, turn: &Turn<'_>) {
        let (mut ready, mut number) = (None, 0);
        seated(|seat| (ready, number) = (seat.ready, seat.number));
        let took = ready.unwrap_or_else(Instant::now).saturating_duration_since(turn.began);
        let turns = &self.turns[turn.kind as usize];
        // A lost update makes the next request cautious, or one too few.
        let left = turns.load(Ordering::Relaxed);
        let left = if took < self.long { left.saturating_sub(1) } else { left + LONG_TURNS };
        turns.store(left.min(LONG_TURNS_MAX), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.moves += 1;
        let alone = (state.moves == turn.moves + 1).then_some(state.moves);
        if turn.may_rest && self.may_rest(&state) {
            // Whoever is sent later must not have to wait for a processor.
            drop(state);
            seated(|seat| self.follow.rests(&mut seat.follower));
            state = self.state.lock();
        }
        if !turn.may_rest || !self.may_rest(&state) {
            state.waiting += 1;
            drop(state);
            return seated(|seat| seat.moves = alone);
        }
        state.resting.push(number);
        while state.resting.contains(&number) && !state.over {
            self.go[number].wait(&mut state);
        }
    }

    /// Whether a worker that has answered is not wanted.
    fn may_rest(&self, state: &State) -> bool {
        state.waiting > 0 && state.known == self.workers && !state.over
    }

    /// Nobody rests from now on.
    pub(crate) fn open(&self) {
        self.state.lock().over = true;
        for go in &self.go {
            go.notify_one();
        }
        self.look.notify_all();
    }

    /// The watch, on a thread of its own: sends a worker to wait where none has waited and nothing
    /// has moved between two looks. Returns when the gate is open.
    pub(crate) fn watch(&self) {
        let mut last = Look::default();
        let (mut quiet, mut pace) = (0, Pace::default());
        loop {
            let Some(mut state) = self.state.try_lock_for(LOOK) else {
                // Whoever has it got no processor meanwhile.
                self.follow.take_back(true);
                continue;
            };
            if state.over {
                return;
            }
            if !state.watched {
                self.look.wait(&mut state);
                (last, quiet) = Default::default();
                pace = Pace::default();
                continue;
            }
            let mut now = Look { moves: state.moves, alone: state.waiting == 0, behind: false };
            if now.moves != last.moves {
                quiet = 0;
                pace.moved();
            } else {
                pace.stood();
                now.behind = self.follow.is_behind();
                if now.alone && last.alone || now.behind && last.behind {
                    pace = Pace::default();
                    self.follow.take_back(true);
                    self.send(&mut state);
                } else {
                    quiet += 1;
                    state.watched = quiet < QUIET_LOOKS;
                }
            }
            if !state.watched {
                // Nobody would see that it gets no processor.
                self.follow.take_back(false);
            }
            drop(state);
            last = now;
            thread::sleep(pace.pause);
        }
    }
}

/// How often the watch looks.
struct Pace {
    pause: Duration,
    /// Looks since a request did not end.
    calm: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { pause: LOOK, calm: 0 }
    }
}

impl Pace {
    /// Requests have ended since the last look.
    fn moved(&mut self) {
        self.calm = self.calm.saturating_add(1);
        if self.calm > CALM_LOOKS {
            self.pause = (self.pause * 2).min(LOOK_MAX);
        }
    }

    /// None has: if one is under way the next look tells.
    fn stood(&mut self) {
        self.pause = LOOK;
    }
}

/// What the watch saw.
#[derive(Default)]
struct Look {
    moves: u64,
    /// Nobody waited for requests.
    alone: bool,
    /// Nothing had moved, and the worker that follows a program had a request.
    behind: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.end(self);
    }
}

/// The answer of the calling worker's request is ready to be sent.
pub(crate) fn ready() {
    seated(|seat| seat.ready = Some(Instant::now()));
}

/// With the calling worker's place, which it has from its first request on.
fn seated(with: impl FnOnce(&mut Seat)) {
    SEAT.with_borrow_mut(|seat| {
        if let Some(seat) = seat {
            with(seat);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::thread::{JoinHandle, ThreadId};

    const WORKERS: usize = 6;
    /// Against hangs only.
    const PATIENCE: Duration = Duration::from_secs(120);

    type Job = (Kind, Box<dyn FnOnce() + Send>);

    /// What the kernel is to the workers.
    #[derive(Default)]
    struct Queue {
        jobs: Mutex<(VecDeque<Job>, bool)>,
        changed: Condvar,
    }

    impl Queue {
        fn put(&self, kind: Kind, job: impl FnOnce() + Send + 'static) {
            self.jobs.lock().0.push_back((kind, Box::new(job)));
            self.changed.notify_one();
        }

        /// `None`: unmounted.
        fn take(&self) -> Option<Job> {
            let mut jobs = self.jobs.lock();
            loop {
                if let Some(job) = jobs.0.pop_front() {
                    return Some(job);
                }
                if jobs.1 {
                    return None;
                }
                self.changed.wait(&mut jobs);
            }
        }

        fn close(&self) {
            self.jobs.lock().1 = true;
            self.changed.notify_all();
        }
    }

    /// Lets everybody through once so many are there.
    #[derive(Default)]
    struct Meeting {
        there: Mutex<usize>,
        changed: Condvar,
    }

    impl Meeting {
        fn meet(&self, all: usize) {
            let mut there = self.there.lock();
            *there += 1;
            self.changed.notify_all();
            while *there < all {
                assert!(!self.changed.wait_for(&mut there, PATIENCE).timed_out(), "nobody comes");
            }
        }
    }

    struct Mount {
        queue: Arc<Queue>,
        gate: Arc<Gate>,
        workers: Vec<JoinHandle<()>>,
    }

    impl Mount {
        /// All workers known, all but one resting.
        fn new() -> Mount {
            let (queue, gate) =
                (Arc::<Queue>::default(), Gate::with(WORKERS, Duration::MAX, Follow::default()));
            let worker = || {
                let (queue, gate) = (Arc::clone(&queue), Arc::clone(&gate));
                thread::spawn(move || {
                    while let Some((kind, job)) = queue.take() {
                        let _turn = gate.begin(kind, Caller { thread: 0, small: true });
                        job();
                    }
                })
            };
            let workers = (0..WORKERS).map(|_| worker()).collect();
            let meeting = Arc::<Meeting>::default();
            for _ in 0..WORKERS {
                let meeting = Arc::clone(&meeting);
                queue.put(Kind::Names, move || meeting.meet(WORKERS));
            }
            let mount = Mount { queue, gate, workers };
            mount.resting();
            mount
        }

        /// Who rests, once all do but one.
        fn resting(&self) -> Vec<usize> {
            let began = Instant::now();
            loop {
                let resting = self.gate.state.lock().resting.clone();
                if resting.len() == WORKERS - 1 {
                    return resting;
                }
                assert!(began.elapsed() < PATIENCE, "workers do not rest");
                thread::yield_now();
            }
        }

        /// Who served one request.
        fn serve(&self, kind: Kind) -> ThreadId {
            let served = Arc::new((Meeting::default(), Mutex::new(None)));
            let inner = Arc::clone(&served);
            self.queue.put(kind, move || {
                *inner.1.lock() = Some(thread::current().id());
                inner.0.meet(1);
            });
            served.0.meet(2);
            let id = served.1.lock().take();
            id.expect("it was served")
        }

        fn end(self) {
            self.queue.close();
            for worker in self.workers {
                worker.join().expect("a worker ends without a panic");
            }
        }
    }

    #[test]
    fn one_worker_serves_short_requests_and_all_end() {
        let mount = Mount::new();
        let served: BTreeSet<String> =
            (0..1000).map(|_| format!("{:?}", mount.serve(Kind::Names))).collect();
        assert_eq!(served.len(), 1);
        mount.end();
    }

    #[test]
    fn a_sync_does_not_hold_up_others() {
        let mount = Mount::new();
        let meeting = Arc::<Meeting>::default();
        for _ in 0..WORKERS {
            let meeting = Arc::clone(&meeting);
            mount.queue.put(Kind::Sync, move || meeting.meet(WORKERS + 1));
        }
        meeting.meet(WORKERS + 1);
        mount.serve(Kind::Read);
        mount.end();
    }

    #[test]
    fn the_last_that_went_to_rest_is_sent_first() {
        let mount = Mount::new();
        for _ in 0..100 {
            let last = mount.resting().pop().expect("others rest");
            mount.serve(Kind::Sync);
            assert!(!mount.resting().contains(&last));
        }
        mount.end();
    }

    #[test]
    fn a_kind_that_was_long_is_not_waited_for() {
        let mount = Mount::new();
        mount.gate.turns[Kind::Read as usize].store(LONG_TURNS_MAX, Ordering::Relaxed);
        let meeting = Arc::<Meeting>::default();
        let inner = Arc::clone(&meeting);
        mount.queue.put(Kind::Read, move || inner.meet(2));
        mount.serve(Kind::Names);
        meeting.meet(2);
        mount.end();
    }

    #[test]
    fn the_watch_looks_less_often_where_all_is_well() {
        let mut pace = Pace::default();
        for _ in 0..CALM_LOOKS {
            pace.moved();
            assert_eq!(pace.pause, LOOK);
        }
        for _ in 0..10 {
            pace.moved();
        }
        assert_eq!(pace.pause, LOOK_MAX);
        pace.stood();
        assert_eq!(pace.pause, LOOK, "nothing has moved");
        pace.moved();
        assert_eq!(pace.pause, LOOK * 2);
        pace = Pace::default();
        pace.moved();
        assert_eq!(pace.pause, LOOK, "a request did not end");
    }

    #[test]
    fn the_watch_finds_a_request_that_does_not_end() {
        let mount = Mount::new();
        let gate = Arc::clone(&mount.gate);
        let watch = thread::spawn(move || gate.watch());
        let meeting = Arc::<Meeting>::default();
        for _ in 0..WORKERS - 1 {
            let inner = Arc::clone(&meeting);
            mount.queue.put(Kind::Names, move || inner.meet(WORKERS));
        }
        mount.serve(Kind::Attributes);
        meeting.meet(WORKERS);
        mount.end();
        watch.join().expect("the watch ends with the workers");
    }
}
