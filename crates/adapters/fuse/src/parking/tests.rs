//! Parking of real threads, with a queue for the kernel.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex};
use std::thread::{self, JoinHandle, ThreadId};

use super::*;

const WORKERS: usize = 6;
/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(120);

type Job = (Class, Box<dyn FnOnce() + Send>);

/// Stands for the kernel.
#[derive(Default)]
struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

impl Queue {
    fn put(&self, class: Class, job: impl FnOnce() + Send + 'static) {
        self.jobs.lock().unwrap().0.push_back((class, Box::new(job)));
        self.changed.notify_one();
    }

    /// `None`: unmounted.
    fn take(&self) -> Option<Job> {
        let mut jobs = self.jobs.lock().unwrap();
        loop {
            if let Some(job) = jobs.0.pop_front() {
                return Some(job);
            }
            if jobs.1 {
                return None;
            }
            jobs = self.changed.wait(jobs).unwrap();
        }
    }

    fn close(&self) {
        self.jobs.lock().unwrap().1 = true;
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
        let mut there = self.there.lock().unwrap();
        *there += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(there, PATIENCE, |there| *there < all);
        assert!(!waited.unwrap().1.timed_out(), "nobody comes");
    }
}

struct Mount {
    queue: Arc<Queue>,
    parking: Arc<Parking>,
    workers: Vec<JoinHandle<()>>,
}

impl Mount {
    /// All workers known, all but one parked.
    fn new() -> Mount {
        let (queue, parking) = (
            Arc::<Queue>::default(),
            Parking::with(WORKERS, Duration::MAX, CpuAffinity::default()),
        );
        let worker = || {
            let (queue, parking) = (Arc::clone(&queue), Arc::clone(&parking));
            thread::spawn(move || {
                while let Some((class, job)) = queue.take() {
                    let _served = parking.begin(class, 0, 0);
                    job();
                }
            })
        };
        let workers = (0..WORKERS).map(|_| worker()).collect();
        let meeting = Arc::<Meeting>::default();
        for _ in 0..WORKERS {
            let meeting = Arc::clone(&meeting);
            queue.put(Class::Names, move || meeting.meet(WORKERS));
        }
        let mount = Mount { queue, parking, workers };
        mount.parked();
        mount
    }

    /// Parked workers, once all are but one.
    fn parked(&self) -> Vec<usize> {
        let began = Instant::now();
        loop {
            let parked = self.parking.state.lock().parked().to_vec();
            if parked.len() == WORKERS - 1 {
                return parked;
            }
            assert!(began.elapsed() < PATIENCE, "workers are not parked");
            thread::yield_now();
        }
    }

    /// The thread that served one request.
    fn serve(&self, class: Class) -> ThreadId {
        let served = Arc::new((Meeting::default(), Mutex::new(None)));
        let inner = Arc::clone(&served);
        self.queue.put(class, move || {
            *inner.1.lock().unwrap() = Some(thread::current().id());
            inner.0.meet(1);
        });
        served.0.meet(2);
        let id = served.1.lock().unwrap().take();
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
        (0..1000).map(|_| format!("{:?}", mount.serve(Class::Names))).collect();
    assert_eq!(served.len(), 1);
    mount.end();
}

#[test]
fn a_sync_does_not_hold_up_others() {
    let mount = Mount::new();
    let meeting = Arc::<Meeting>::default();
    for _ in 0..WORKERS {
        let meeting = Arc::clone(&meeting);
        mount.queue.put(Class::Sync, move || meeting.meet(WORKERS + 1));
    }
    meeting.meet(WORKERS + 1);
    mount.serve(Class::Read);
    mount.end();
}

#[test]
fn the_last_that_was_parked_is_unparked_first() {
    let mount = Mount::new();
    for _ in 0..100 {
        let last = mount.parked().pop().expect("others are parked");
        mount.serve(Class::Sync);
        assert!(!mount.parked().contains(&last));
    }
    mount.end();
}

#[test]
fn a_class_that_was_long_is_not_waited_for() {
    let mount = Mount::new();
    mount.parking.cautious[Class::Read as usize].store(CAUTIOUS_REQUESTS_MAX, Ordering::Relaxed);
    let meeting = Arc::<Meeting>::default();
    let inner = Arc::clone(&meeting);
    mount.queue.put(Class::Read, move || inner.meet(2));
    mount.serve(Class::Names);
    meeting.meet(2);
    mount.end();
}

#[test]
fn the_watchdog_finds_a_request_that_lasts() {
    let mount = Mount::new();
    let parking = Arc::clone(&mount.parking);
    let watch = thread::spawn(move || parking.watch());
    let meeting = Arc::<Meeting>::default();
    for _ in 0..WORKERS - 1 {
        let inner = Arc::clone(&meeting);
        mount.queue.put(Class::Names, move || inner.meet(WORKERS));
    }
    mount.serve(Class::Attributes);
    meeting.meet(WORKERS);
    mount.end();
    watch.join().expect("the watchdog ends with the workers");
}
