//! Policy of workers that are bound to a processor from the start, as those of io_uring.
//!
//! With SCHED_IDLE they leave the program on its processor when they answer, and with no time of it
//! while other programs want all. So a canary, a thread of the same policy on the same processor,
//! shows whether such a thread gets time:
//!
//! ```text
//!   canary   stamps the time each 4 ms   many requests, and it was on time: workers are idle
//!                                        no requests: ordinary
//!   guard    an ordinary thread          a stamp is 12 ms old: ordinary, for 0.1 s first, and
//!                                        twice as long each time, 6.4 s at most
//! ```
//!
//! Promises
//! - A worker gets no time for 16 ms at most before it is an ordinary thread.
//! - Threads sleep while the processor has no requests, and end with its workers.
//!
//! Assumptions: as in the module above. Tested through the kernel in `tests/it/ring.rs`.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};
use syncline_base::lockrank::Mutex;

use super::scheduling::{self, Policy};
use crate::ranks;

/// Time between two stamps.
const PERIOD: Duration = Duration::from_millis(4);
/// A canary that was later than this had to wait for its processor.
const LATE: Duration = Duration::from_millis(2);
/// Age of a stamp at which the canary gets no time.
const STARVED: Duration = Duration::from_millis(12);
/// Requests between two stamps that are many.
const MANY: u64 = 16;
/// Periods without requests after which the canary sleeps.
const QUIET_PERIODS: u32 = 25;
/// Time for which workers stay ordinary threads, first and at most.
const BARRED: Duration = Duration::from_millis(100);
const BARRED_MAX: Duration = Duration::from_millis(6400);

/// Binds the calling thread to a processor; true if it is.
pub(crate) fn bind_to(cpu: u16) -> bool {
    let mut only = CpuSet::new();
    only.set(cpu.into());
    sched_setaffinity(None, &only).is_ok()
}

/// Reports whether workers may become idle threads and come back.
pub(crate) fn may_be_idle() -> bool {
    scheduling::of(None) == Some(Policy::Other) && scheduling::comes_back()
}

/// Workers of a processor, and their policy.
#[derive(Default)]
struct Workers {
    threads: Vec<Pid>,
    is_idle: bool,
    barred: Duration,
    /// They stay ordinary threads until then.
    barred_until: Duration,
}

/// One processor with bound workers.
pub(crate) struct QueuePolicy {
    began: Instant,
    workers: Mutex<Workers>,
    /// Workers that have not ended.
    left: AtomicUsize,
    requests: AtomicU64,
    stamp_us: AtomicU64,
    sleeps: AtomicBool,
    canary: OnceLock<Thread>,
    guard: OnceLock<Thread>,
}

impl QueuePolicy {
    /// The policy of so many workers of `cpu`, with the threads that decide about it.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(cpu: u16, workers: usize) -> io::Result<Arc<QueuePolicy>> {
        let policy = Arc::new(QueuePolicy {
            began: Instant::now(),
            workers: Mutex::new(ranks::QUEUE_POLICY, Workers::default()),
            left: AtomicUsize::new(workers),
            requests: AtomicU64::new(0),
            stamp_us: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            canary: OnceLock::new(),
            guard: OnceLock::new(),
        });
        let (for_canary, for_guard) = (Arc::clone(&policy), Arc::clone(&policy));
        let guard = thread::Builder::new().name(format!("guard-{cpu}"));
        let guard = guard.spawn(move || for_guard.run_guard())?;
        // The cells are new. The canary, which wakes the guard, comes after it.
        let _ = policy.guard.set(guard.thread().clone());
        let canary = thread::Builder::new().name(format!("canary-{cpu}"));
        let canary = canary.spawn(move || for_canary.run_canary(cpu))?;
        let _ = policy.canary.set(canary.thread().clone());
        Ok(policy)
    }

    /// The calling thread, a worker of the processor, is bound to it.
    pub(crate) fn join(&self) {
        self.workers.lock().threads.push(gettid());
    }

    /// The calling thread, a worker of the processor, is about to end.
    pub(crate) fn leave(&self) {
        let mine = gettid();
        self.workers.lock().threads.retain(|thread| *thread != mine);
        self.left.fetch_sub(1, Ordering::SeqCst);
        for thread in [&self.canary, &self.guard] {
            thread.get().into_iter().for_each(Thread::unpark);
        }
    }

    /// A worker of the processor has got a request.
    pub(crate) fn count(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst) {
            self.canary.get().into_iter().for_each(Thread::unpark);
        }
    }

    fn goes_on(&self) -> bool {
        self.left.load(Ordering::SeqCst) > 0
    }

    fn set(&self, workers: &mut Workers, is_idle: bool) {
        if workers.is_idle == is_idle {
            return;
        }
        workers.is_idle = is_idle;
        let policy = if is_idle { Policy::Idle } else { Policy::Other };
        for thread in &workers.threads {
            // Where it fails somebody else has given the thread a policy.
            scheduling::set(Some(*thread), policy);
        }
        if is_idle {
            self.guard.get().into_iter().for_each(Thread::unpark);
        }
    }

    fn run_canary(&self, cpu: u16) {
        if !(bind_to(cpu) && scheduling::set(None, Policy::Idle)) {
            return;
        }
        let (mut before, mut quiet) = (0, 0);
        while self.goes_on() {
            let slept = self.began.elapsed();
            thread::sleep(PERIOD);
            let now = self.began.elapsed();
            let on_time = now - slept < PERIOD + LATE;
            self.stamp_us.store(now.as_micros() as u64, Ordering::Release);
            let requests = self.requests.load(Ordering::SeqCst);
            let (new, seen) = (requests - before, requests);
            before = seen;
            let mut workers = self.workers.lock();
            if new >= MANY && on_time && now >= workers.barred_until {
                self.set(&mut workers, true);
            } else if new == 0 {
                self.set(&mut workers, false);
            }
            drop(workers);
            quiet = if new == 0 { quiet + 1 } else { 0 };
            if quiet >= QUIET_PERIODS {
                self.sleep_until_requests(seen);
                quiet = 0;
            }
        }
    }

    fn sleep_until_requests(&self, seen: u64) {
        self.sleeps.store(true, Ordering::SeqCst);
        while self.sleeps.load(Ordering::SeqCst)
            && self.requests.load(Ordering::SeqCst) == seen
            && self.goes_on()
        {
            thread::park();
        }
        self.sleeps.store(false, Ordering::SeqCst);
    }

    fn run_guard(&self) {
        while self.goes_on() {
            if !self.workers.lock().is_idle {
                thread::park();
                continue;
            }
            thread::sleep(PERIOD);
            let now = self.began.elapsed();
            let stamp = Duration::from_micros(self.stamp_us.load(Ordering::Acquire));
            if now.saturating_sub(stamp) > STARVED {
                let mut workers = self.workers.lock();
                self.set(&mut workers, false);
                // After a long time without it begins anew.
                let long_ago = now > workers.barred_until + BARRED_MAX;
                let next = if long_ago { BARRED } else { workers.barred * 2 };
                workers.barred = next.clamp(BARRED, BARRED_MAX);
                workers.barred_until = now + workers.barred;
            }
        }
    }
}
