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
//! rests if another waits.
//!
//! Promises
//! - Nobody waits for long requests: one that may be long (a sync, or a kind that lately was) sends
//!   a resting worker to wait before it begins; any other that does not end is noticed by the
//!   watch within two of its looks.
//! - Nobody rests before all workers have been here once. When the mount is over the first worker
//!   to leave sends all others, so that they hear of it, too.
//!
//! Tested below, with a queue for the kernel.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A request that took this long was long.
const LONG: Duration = Duration::from_micros(100);
/// So many requests of a kind after a long one may be long as well.
const LONG_TURNS: u8 = 32;
/// How often the watch looks while requests come.
const LOOK: Duration = Duration::from_millis(1);
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
    resting: usize,
    /// Resting ones that were sent and have not gone yet; they count as waiting.
    sent: usize,
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
    go: Condvar,
    look: Condvar,
    /// By kind: requests that may still be long.
    turns: [AtomicU8; 5],
}

thread_local! {
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// A worker's place; it is left when the thread ends.
struct Seat(Arc<Gate>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// One request under way.
pub(crate) struct Turn<'a> {
    gate: &'a Gate,
    kind: Kind,
    began: Instant,
    may_rest: bool,
}

impl Gate {
    /// A gate for so many workers.
    pub(crate) fn new(workers: usize) -> Arc<Gate> {
        Gate::with(workers, LONG)
    }

    fn with(workers: usize, long: Duration) -> Arc<Gate> {
        let (state, go, look, turns) = Default::default();
        Arc::new(Gate { workers, long, state, go, look, turns })
    }

    /// A worker has got a request.
    pub(crate) fn begin(self: &Arc<Gate>, kind: Kind) -> Turn<'_> {
        self.turn(kind, true)
    }

    /// As [`Gate::begin`] of a part of a request, after which the worker has the next part to do.
    pub(crate) fn begin_part(self: &Arc<Gate>, kind: Kind) -> Turn<'_> {
        self.turn(kind, false)
    }

    fn turn(self: &Arc<Gate>, kind: Kind, may_rest: bool) -> Turn<'_> {
        let is_new = SEAT.with_borrow_mut(|seat| {
            let is_new = seat.is_none();
            seat.get_or_insert_with(|| Seat(Arc::clone(self)));
            is_new
        });
        let may_be_long =
            kind == Kind::Sync || self.turns[kind as usize].load(Ordering::Relaxed) > 0;
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
        drop(state);
        Turn { gate: self, kind, began: Instant::now(), may_rest }
    }

    /// Sends a resting worker to wait, if there is one.
    fn send(&self, state: &mut State) {
        if state.resting > state.sent {
            state.sent += 1;
            state.waiting += 1;
            self.go.notify_one();
        }
    }

    /// The request is answered. Returns when this worker is to wait for another.
    fn end(&self, kind: Kind, took: Duration, may_rest: bool) {
        let turns = &self.turns[kind as usize];
        if took >= self.long {
            turns.store(LONG_TURNS, Ordering::Relaxed);
        } else {
            // A lost update makes the next request cautious, or one too few.
            let left = turns.load(Ordering::Relaxed);
            turns.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        let mut state = self.state.lock();
        state.moves += 1;
        if !may_rest || state.waiting == 0 || state.known < self.workers || state.over {
            state.waiting += 1;
            return;
        }
        state.resting += 1;
        while state.sent == 0 && !state.over {
            self.go.wait(&mut state);
        }
        state.resting -= 1;
        match state.sent.checked_sub(1) {
            Some(left) => state.sent = left,
            None => state.waiting += 1,
        }
    }

    /// Nobody rests from now on.
    pub(crate) fn open(&self) {
        self.state.lock().over = true;
        self.go.notify_all();
        self.look.notify_all();
    }

    /// The watch, on a thread of its own: sends a worker to wait where none has waited and nothing
    /// has moved between two looks. Returns when the gate is open.
    pub(crate) fn watch(&self) {
        let mut state = self.state.lock();
        let mut quiet = 0;
        while !state.over {
            if !state.watched {
                self.look.wait(&mut state);
                continue;
            }
            let (moves, was_alone) = (state.moves, state.waiting == 0);
            self.look.wait_for(&mut state, LOOK);
            if state.moves != moves {
                quiet = 0;
            } else if was_alone && state.waiting == 0 {
                self.send(&mut state);
            } else {
                quiet += 1;
                state.watched = quiet < QUIET_LOOKS;
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.end(self.kind, self.began.elapsed(), self.may_rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeSet, VecDeque};
    use std::thread::{self, JoinHandle, ThreadId};

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
            let (queue, gate) = (Arc::<Queue>::default(), Gate::with(WORKERS, Duration::MAX));
            let worker = || {
                let (queue, gate) = (Arc::clone(&queue), Arc::clone(&gate));
                thread::spawn(move || {
                    while let Some((kind, job)) = queue.take() {
                        let _turn = gate.begin(kind);
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
            let began = Instant::now();
            while gate.state.lock().resting < WORKERS - 1 {
                assert!(began.elapsed() < PATIENCE, "workers do not rest");
                thread::yield_now();
            }
            Mount { queue, gate, workers }
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
    fn a_kind_that_was_long_is_not_waited_for() {
        let mount = Mount::new();
        mount.gate.turns[Kind::Read as usize].store(LONG_TURNS, Ordering::Relaxed);
        let meeting = Arc::<Meeting>::default();
        let inner = Arc::clone(&meeting);
        mount.queue.put(Kind::Read, move || inner.meet(2));
        mount.serve(Kind::Names);
        meeting.meet(2);
        mount.end();
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
