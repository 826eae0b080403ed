//! The hand-over under schedules that shuttle draws.
//!
//! `handover.rs` itself runs here, over shuttle's mutex and condition variables; around it stand a
//! queue for the kernel and the few lines of `Parking` and of the watchdog that call it. Some
//! requests end only after the next one has been served, so that a worker that should wait for
//! requests and does not is a deadlock, which shuttle finds. Each canary plants one mistake, and
//! the same search must find it.

use std::collections::VecDeque;

use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;

use super::{Begun, Handover, Monitor, Watch, begin, end, finish};

/// Schedules drawn of each case. A canary stops at the first that shows its mistake, which is among
/// the first hundred.
const SCHEDULES: usize = 3000;

const WORKERS: usize = 3;

/// A mistake in the hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A worker is unparked, and not notified.
    SilentUnpark,
    /// A worker that was without the lock for a moment does not look again whether another waits.
    NoSecondLook,
    /// The first worker to leave wakes nobody.
    SilentFinish,
    /// The watchdog ends at once.
    NoWatchdog,
}

/// A request: what it waits for before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    Short,
    /// Waits until so many requests have begun; known to be long.
    Long(usize),
    /// The same, and nobody knows.
    Stuck(usize),
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    begun: usize,
    is_closed: bool,
}

struct Mount {
    mistake: Mistake,
    handover: Mutex<Handover>,
    places: [Condvar; WORKERS],
    watchdog: Condvar,
    queue: Mutex<Queue>,
    /// Something is new in the queue, or a request has begun.
    changed: Condvar,
}

/// The state, locked; `None` only while nobody looks.
struct At<'a> {
    mount: &'a Mount,
    guard: Option<MutexGuard<'a, Handover>>,
}

impl<'a> At<'a> {
    fn new(mount: &'a Mount) -> Self {
        At { mount, guard: Some(mount.handover.lock().unwrap()) }
    }

    fn wait_at(&mut self, place: &Condvar) {
        let guard = self.guard.take().unwrap();
        self.guard = Some(place.wait(guard).unwrap());
    }
}

impl Monitor for At<'_> {
    fn state(&mut self) -> &mut Handover {
        self.guard.as_mut().unwrap()
    }

    fn wait(&mut self, number: usize) {
        let mount = self.mount;
        self.wait_at(&mount.places[number]);
    }

    fn notify(&mut self, number: usize) {
        let silent =
            if self.state().is_over() { Mistake::SilentFinish } else { Mistake::SilentUnpark };
        if self.mount.mistake != silent {
            self.mount.places[number].notify_one();
        }
    }

    fn notify_watchdog(&mut self) {
        self.mount.watchdog.notify_one();
    }

    fn unlocked(&mut self, step: impl FnOnce()) {
        self.guard = None;
        step();
        thread::yield_now();
        self.guard = Some(self.mount.handover.lock().unwrap());
    }
}

/// As [`end`], with [`Mistake::NoSecondLook`].
fn end_without_second_look(at: &mut At<'_>, number: usize) {
    at.state().moves += 1;
    let parks = at.state().may_park();
    at.unlocked(|| ());
    if !parks {
        at.state().waiting += 1;
        return;
    }
    at.state().parked.push(number);
    while at.state().parked.contains(&number) && !at.state().over {
        at.wait(number);
    }
}

impl Mount {
    /// `None`: unmounted.
    fn take(&self) -> Option<Job> {
        let mut queue = self.queue.lock().unwrap();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.begun += 1;
                self.changed.notify_all();
                return Some(job);
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap();
        }
    }

    fn until_begun(&self, requests: usize) {
        let mut queue = self.queue.lock().unwrap();
        while queue.begun < requests {
            queue = self.changed.wait(queue).unwrap();
        }
    }

    fn put(&self, jobs: &[Job]) {
        self.queue.lock().unwrap().jobs.extend(jobs);
        self.changed.notify_all();
    }

    fn worker(&self) {
        let mut number = None;
        while let Some(job) = self.take() {
            let long = matches!(job, Job::Long(_));
            let Begun { moves, known } = begin(&mut At::new(self), number.is_none(), long);
            let number = *number.get_or_insert(known - 1);
            if let Job::Long(requests) | Job::Stuck(requests) = job {
                self.until_begun(requests);
            }
            let mut at = At::new(self);
            if self.mistake == Mistake::NoSecondLook {
                end_without_second_look(&mut at, number);
            } else {
                end(&mut at, number, moves, true, || ());
            }
        }
        finish(&mut At::new(self));
    }

    fn watch(&self) {
        let mut watch = Watch::default();
        loop {
            let mut at = At::new(self);
            if at.state().is_over() || self.mistake == Mistake::NoWatchdog {
                return;
            }
            if !at.state().is_watched() {
                at.wait_at(&self.watchdog);
                watch = Watch::default();
            } else {
                watch.poll(&mut at, || false);
            }
            drop(at);
            thread::yield_now();
        }
    }
}

/// Serves requests after every worker has been here once, then ends the mount.
fn run(jobs: &[Job], mistake: Mistake) {
    let mount = Arc::new(Mount {
        mistake,
        handover: Mutex::new(Handover::new(WORKERS)),
        places: Default::default(),
        watchdog: Condvar::new(),
        queue: Mutex::default(),
        changed: Condvar::new(),
    });
    let mut threads: Vec<_> = (0..WORKERS)
        .map(|_| {
            let mount = Arc::clone(&mount);
            thread::spawn(move || mount.worker())
        })
        .collect();
    if jobs.iter().any(|job| matches!(job, Job::Stuck(_))) {
        let mount = Arc::clone(&mount);
        threads.push(thread::spawn(move || mount.watch()));
    }
    mount.put(&[Job::Long(WORKERS); WORKERS]);
    mount.until_begun(WORKERS);
    mount.put(jobs);
    mount.until_begun(WORKERS + jobs.len());
    mount.queue.lock().unwrap().is_closed = true;
    mount.changed.notify_all();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Requests of which two last until the one after them has begun.
const LONG: [Job; 4] = [Job::Short, Job::Long(WORKERS + 3), Job::Long(WORKERS + 4), Job::Short];
const STUCK: [Job; 2] = [Job::Stuck(WORKERS + 2), Job::Short];

#[test]
fn a_worker_waits_beside_every_long_request_and_all_end() {
    shuttle::check_random(|| run(&LONG, Mistake::None), SCHEDULES);
    shuttle::check_pct(|| run(&LONG, Mistake::None), SCHEDULES, 3);
}

#[test]
fn the_watchdog_finds_every_request_that_lasts() {
    shuttle::check_random(|| run(&STUCK, Mistake::None), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_unpark_that_notifies_nobody_is_caught() {
    shuttle::check_random(|| run(&LONG, Mistake::SilentUnpark), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_that_does_not_look_again_is_caught() {
    shuttle::check_random(|| run(&LONG, Mistake::NoSecondLook), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_end_that_notifies_nobody_is_caught() {
    shuttle::check_random(|| run(&LONG, Mistake::SilentFinish), SCHEDULES);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_watchdog_that_does_not_poll_is_caught() {
    shuttle::check_random(|| run(&STUCK, Mistake::NoWatchdog), SCHEDULES);
}
