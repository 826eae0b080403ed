//! Parking of workers: one waits for requests while requests are short, the others are parked.
//!
//! The kernel wakes a waiting worker for each request, and of many always the one that has waited
//! longest: two switches of threads and cold caches for a request of a few microseconds, while the
//! worker that has just answered would have found it without a sleep. So a worker that has answered
//! is parked if another waits (`handover.rs`). The CPU that it waits on is chosen in `affinity/`.
//!
//! Promises
//! - No request waits behind a long one: one that may be long (a sync, or a class that lately was)
//!   unparks a worker before it begins; any other that lasts is noticed by the watchdog
//!   (`watchdog.rs`) within two of its polls, which are 1 ms apart, 16 ms at most where none lasted
//!   lately.
//! - When the mount is over the first worker to leave unparks all others, so that they hear of it.
//!
//! Tested in `tests.rs`, with a queue for the kernel, and under drawn schedules in
//! `handover/model_tests.rs`.

mod handover;
#[cfg(test)]
mod tests;
mod watchdog;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use syncline_base::lockrank::{Condvar, Mutex, MutexGuard};

use crate::affinity::{CpuAffinity, SMALL_BYTES, WorkerAffinity};
use crate::ranks;
use handover::{Begun, Handover, Monitor};

/// Time from which on a request counts as long.
const LONG: Duration = Duration::from_micros(100);
/// Requests of a class that may be long after a long one, too; one that only lost its CPU for a
/// while looks the same.
const CAUTIOUS_REQUESTS: u8 = 2;
/// The same after several long ones, at most.
const CAUTIOUS_REQUESTS_MAX: u8 = 32;

/// Classes of requests, by what they may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Attributes, and all that is answered from memory.
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

const CLASSES: usize = 5;

/// Parking of the workers of one mount.
pub(crate) struct Parking {
    long: Duration,
    state: Mutex<Handover>,
    /// Places where workers are parked, by number.
    places: Box<[Condvar]>,
    watchdog: Condvar,
    pub(crate) affinity: CpuAffinity,
    /// By class: requests that may still be long.
    cautious: [AtomicU8; CLASSES],
}

/// The state of [`Parking`], locked.
struct Locked<'a> {
    parking: &'a Parking,
    guard: MutexGuard<'a, Handover>,
}

impl Monitor for Locked<'_> {
    fn state(&mut self) -> &mut Handover {
        &mut self.guard
    }

    fn wait(&mut self, number: usize) {
        self.parking.places[number].wait(&mut self.guard);
    }

    fn notify(&mut self, number: usize) {
        self.parking.places[number].notify_one();
    }

    fn notify_watchdog(&mut self) {
        self.parking.watchdog.notify_one();
    }

    fn unlocked(&mut self, step: impl FnOnce()) {
        MutexGuard::unlocked(&mut self.guard, step);
    }
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

/// A worker of a mount, until its thread ends.
struct Worker {
    parking: Arc<Parking>,
    number: usize,
    affinity: WorkerAffinity,
    /// Moves with the end of its last request, if that was alone.
    moves: Option<u64>,
    /// Time at which the answer of its request was ready. Once that is sent the program may run in
    /// its place.
    ready: Option<Instant>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.parking.affinity.unbind(&mut self.affinity);
        self.parking.finish();
    }
}

/// One request under way.
pub(crate) struct Served<'a> {
    parking: &'a Parking,
    class: Class,
    began: Instant,
    /// Moves with its begin.
    moves: u64,
    /// The worker has nothing else to do after it.
    parks: bool,
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.parking.end(self);
    }
}

impl Parking {
    /// Parking for so many workers.
    pub(crate) fn new(workers: usize, affinity: CpuAffinity) -> Arc<Parking> {
        Parking::with(workers, LONG, affinity)
    }

    fn with(workers: usize, long: Duration, affinity: CpuAffinity) -> Arc<Parking> {
        let places = std::iter::repeat_with(Condvar::new).take(workers).collect();
        let state = Mutex::new(ranks::PARKING, Handover::new(workers));
        let (watchdog, cautious) = Default::default();
        Arc::new(Parking { long, state, places, watchdog, affinity, cautious })
    }

    fn lock(&self) -> Locked<'_> {
        Locked { parking: self, guard: self.state.lock() }
    }

    /// The calling worker has got a request of the thread `caller`, which copies so many bytes.
    pub(crate) fn begin(self: &Arc<Self>, class: Class, caller: u32, bytes: usize) -> Served<'_> {
        self.begin_any(class, Some((caller, bytes <= SMALL_BYTES)))
    }

    /// As [`Parking::begin`] of a part of a request, after which the worker has the next part to
    /// do, and for which nobody waits.
    pub(crate) fn begin_part(self: &Arc<Self>, class: Class) -> Served<'_> {
        self.begin_any(class, None)
    }

    fn begin_any(self: &Arc<Self>, class: Class, caller: Option<(u32, bool)>) -> Served<'_> {
        let may_be_long =
            class == Class::Sync || self.cautious[class as usize].load(Ordering::Relaxed) > 0;
        WORKER.with_borrow_mut(|worker| {
            let Begun { moves, known } =
                handover::begin(&mut self.lock(), worker.is_none(), may_be_long);
            let worker = worker.get_or_insert_with(|| Worker {
                parking: Arc::clone(self),
                number: known - 1,
                affinity: WorkerAffinity::default(),
                moves: None,
                ready: None,
            });
            worker.ready = None;
            if let Some((caller, small)) = caller {
                let in_turn = worker.moves.is_some_and(|last| last + 1 == moves);
                self.affinity.begin(&mut worker.affinity, caller, in_turn && small);
            }
            let began = Instant::now();
            Served { parking: self, class, began, moves, parks: caller.is_some() }
        })
    }

    /// The request is answered. Returns when this worker is to wait for another.
    fn end(&self, served: &Served<'_>) {
        let (mut ready, mut number) = (None, 0);
        with_worker(|worker| (ready, number) = (worker.ready, worker.number));
        let took = ready.unwrap_or_else(Instant::now).saturating_duration_since(served.began);
        let cautious = &self.cautious[served.class as usize];
        // A lost update makes the next request cautious, or one too few.
        let left = cautious.load(Ordering::Relaxed);
        let left = if took < self.long { left.saturating_sub(1) } else { left + CAUTIOUS_REQUESTS };
        cautious.store(left.min(CAUTIOUS_REQUESTS_MAX), Ordering::Relaxed);
        let prepare = || with_worker(|worker| self.affinity.hand_over(&mut worker.affinity));
        let moves = handover::end(&mut self.lock(), number, served.moves, served.parks, prepare);
        with_worker(|worker| worker.moves = moves);
    }

    /// Parks nobody from now on.
    pub(crate) fn finish(&self) {
        handover::finish(&mut self.lock());
    }
}

/// The answer of the calling worker's request is ready to be sent.
pub(crate) fn ready() {
    with_worker(|worker| worker.ready = Some(Instant::now()));
}

/// Calls `with` on the calling worker, which is one from its first request on.
fn with_worker(with: impl FnOnce(&mut Worker)) {
    WORKER.with_borrow_mut(|worker| {
        if let Some(worker) = worker {
            with(worker);
        }
    });
}
