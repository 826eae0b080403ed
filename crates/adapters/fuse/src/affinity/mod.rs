//! CPU affinity of the worker that waits for requests: while one program makes short calls one
//! after the other, it waits on the CPU of that program.
//!
//! ```text
//!   CPU A   program: call --+                +--> goes on --+
//!            worker:        +-> work, answer +              +-> work, answer ...
//! ```
//!
//! Left to itself the kernel wakes each of the two on whatever CPU is idle, because the one that
//! wakes it is still running. So every call wakes a sleeping CPU twice, which takes longer than the
//! work, in a virtual machine several times as long. A worker that is bound to the program's CPU is
//! found there; and as one of the policy SCHED_IDLE it leaves the program there when it answers,
//! since a CPU that runs nothing else counts as idle.
//!
//! Promises
//! - One worker is bound at a time, after a run of calls of one program that were small and met no
//!   other request (`calls.rs`); the first call that does not fit ends it. A call that may take
//!   long is no reason: another worker waits meanwhile (`parking/`), takes over, and is bound with
//!   its second call.
//! - A bound worker gets the time that other programs leave of that CPU. If it makes no progress
//!   although it has a request, the watchdog (`parking/watchdog.rs`) makes it an ordinary thread
//!   again at its second poll, and twice as many calls are wanted before the next time.
//! - A mount with a priority of its own (real-time, batch, idle), one whose threads could not come
//!   back from SCHED_IDLE (without privileges), and a machine with one CPU never bind a worker.
//!
//! Tested below; that both end up on one CPU, and that a busy one starves nobody, on a mount in
//! `tests/it/affinity.rs`.

mod calls;
mod queue;
mod scheduling;

pub(crate) use queue::{QueuePolicy, bind_to, may_be_idle};

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::host::Host;
use calls::{Calls, Step};
use scheduling::Policy;

/// Most doublings of the calls that are wanted.
const DOUBLINGS_MAX: u32 = 10;
/// Calls after which one doubling is forgiven.
const FORGIVEN_CALLS: u32 = 16 * 1024;
/// Bytes above which a read or write is not a small call: copying them takes longer than a wake,
/// and what the kernel reads ahead should run beside the program.
pub(crate) const SMALL_BYTES: usize = 64 * 1024;

/// Size of a buffer for /proc/PID/stat: more than 52 numbers and a name of 64 bytes take.
const STAT_BYTES_MAX: usize = 2048;

/// CPU affinity for the workers of one mount.
#[derive(Default)]
pub(crate) struct CpuAffinity {
    /// CPUs of a worker that is not bound; none: no worker is ever bound.
    allowed: Option<CpuSet>,
    host: Option<Arc<dyn Host>>,
    /// The thread that is bound; 0: none.
    bound: AtomicI32,
    /// Times that the watchdog made the bound thread an ordinary one.
    releases: AtomicU32,
    /// It was released because it got no CPU, and has not heard of that yet.
    starved: AtomicBool,
    /// Doublings of the calls that are wanted.
    doublings: AtomicU32,
    /// The program of a bound worker that was parked: the next worker that serves it takes over.
    handed_over: AtomicU32,
    device: OnceLock<OwnedFd>,
}

/// CPU affinity of one worker.
#[derive(Default)]
pub(crate) struct WorkerAffinity {
    calls: Calls,
    /// The CPU that the worker is bound to.
    cpu: Option<usize>,
    /// [`CpuAffinity::releases`] as of its last request.
    releases: u32,
    /// The file that the last caller's CPU was read from.
    stat: Option<(u32, File)>,
}

impl WorkerAffinity {
    /// The CPU that a thread runs on or ran on last.
    fn cpu_of(&mut self, host: &dyn Host, thread: u32) -> Option<usize> {
        if self.stat.as_ref().is_none_or(|(of, _)| *of != thread) {
            self.stat = Some((thread, host.stat_file(thread)?));
        }
        let (_, file) = self.stat.as_ref()?;
        let mut text = [0; STAT_BYTES_MAX];
        // A number that was given again reads as an error: the file is of the thread that is gone.
        let Ok(len) = file.read_at(&mut text, 0) else {
            self.stat = None;
            return None;
        };
        parsed(std::str::from_utf8(&text[..len]).ok()?)
    }
}

impl CpuAffinity {
    /// Affinity for workers that the calling thread will start.
    pub(crate) fn new(host: Arc<dyn Host>) -> CpuAffinity {
        let allowed = sched_getaffinity(None).ok().filter(|cpus| cpus.count() > 1);
        let ordinary = scheduling::of(None) == Some(Policy::Other);
        let able = ordinary && scheduling::comes_back();
        let host = Some(host);
        CpuAffinity { allowed: allowed.filter(|_| able), host, ..CpuAffinity::default() }
    }

    /// Sets the device that requests come from, so that the watchdog sees if one waits.
    pub(crate) fn set_device(&self, device: OwnedFd) {
        // There is one; a second changes nothing.
        let _ = self.device.set(device);
    }

    /// The calling worker has a request of the thread `caller`, 0 if nobody waits for it; `fits`: a
    /// small one, and nobody has served another since its last.
    pub(crate) fn begin(&self, me: &mut WorkerAffinity, caller: u32, fits: bool) {
        let Some(allowed) = &self.allowed else { return };
        let releases = self.releases.load(Ordering::Acquire);
        if me.releases != releases {
            me.releases = releases;
            self.accept_release(me);
        }
        if caller == 0 {
            return;
        }
        let takes_over = self.handed_over.load(Ordering::Relaxed) == caller;
        let doublings = self.doublings.load(Ordering::Relaxed);
        match me.calls.add(caller, fits, doublings, takes_over, me.cpu.is_some()) {
            Step::Keep => {}
            Step::Unbind => self.unbind(me),
            Step::Locate => self.follow(me, caller, allowed),
        }
    }

    /// Binds the worker to the CPU of the caller, if that is another than now.
    fn follow(&self, me: &mut WorkerAffinity, caller: u32, allowed: &CpuSet) {
        let Some(host) = &self.host else { return };
        let cpu = me.cpu_of(&**host, caller).filter(|cpu| allowed.is_set(*cpu));
        if let Some(at) = cpu.filter(|_| cpu != me.cpu) {
            self.bind(me, at);
        }
        if me.calls.in_turn() % FORGIVEN_CALLS == 0 {
            self.change_doublings(|doublings| doublings.saturating_sub(1));
        }
    }

    /// Takes note that the watchdog has released the bound worker.
    fn accept_release(&self, me: &mut WorkerAffinity) {
        if me.cpu.is_some() {
            self.unbind(me);
            me.calls.restart();
            if self.starved.swap(false, Ordering::Relaxed) {
                self.change_doublings(|doublings| (doublings + 1).min(DOUBLINGS_MAX));
            }
        }
    }

    fn change_doublings(&self, change: impl Fn(u32) -> u32) {
        // Only the bound worker gets here; a lost update would be one doubling.
        let doublings = self.doublings.load(Ordering::Relaxed);
        self.doublings.store(change(doublings), Ordering::Relaxed);
    }

    fn bind(&self, me: &mut WorkerAffinity, cpu: usize) {
        if scheduling::of(None).is_none() || !(me.cpu.is_some() || self.claim()) {
            return;
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        me.cpu = Some(cpu);
        // The last step is the one after which this thread may have to wait for a CPU.
        let bound = sched_setaffinity(None, &only).is_ok();
        if !(bound && scheduling::set(None, Policy::Idle)) {
            self.unbind(me);
        }
    }

    /// Makes the calling worker the bound one, unless another is.
    fn claim(&self) -> bool {
        let mine = gettid().as_raw_pid();
        let claimed = self.bound.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Relaxed);
        self.handed_over.store(0, Ordering::Relaxed);
        claimed.is_ok()
    }

    /// The calling worker is about to be parked: the next one that serves its program takes over.
    pub(crate) fn hand_over(&self, me: &mut WorkerAffinity) {
        if me.cpu.is_some() {
            self.unbind(me);
            self.handed_over.store(me.calls.caller(), Ordering::Relaxed);
        }
    }

    /// Makes the calling worker an ordinary thread again, if it was not.
    pub(crate) fn unbind(&self, me: &mut WorkerAffinity) {
        if me.cpu.take().is_some() {
            self.reset(None);
            self.bound.store(0, Ordering::Release);
        }
    }

    fn reset(&self, thread: Option<Pid>) {
        // Neither can fail where `comes_back` held, and a policy that somebody else gave stays.
        if scheduling::of(thread) == Some(Policy::Idle) {
            scheduling::set(thread, Policy::Other);
        }
        if let Some(allowed) = &self.allowed {
            let _ = sched_setaffinity(thread, allowed);
        }
    }

    /// Reports whether a worker is bound and a request waits for it.
    pub(crate) fn has_waiting_request(&self) -> bool {
        self.bound.load(Ordering::Acquire) != 0 && self.device.get().is_some_and(has_request)
    }

    /// Makes the bound worker, if there is one, an ordinary thread. It hears of it with its next
    /// request. `starved`: because it made no progress.
    pub(crate) fn release(&self, starved: bool) {
        if let Some(thread) = Pid::from_raw(self.bound.load(Ordering::Acquire)) {
            self.starved.fetch_or(starved, Ordering::Relaxed);
            self.releases.fetch_add(1, Ordering::Release);
            self.reset(Some(thread));
        }
    }
}

fn has_request(device: &OwnedFd) -> bool {
    let mut ask = [PollFd::new(device, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut ask, Some(&at_once)), Ok(1)) && ask[0].revents().contains(PollFlags::IN)
}

/// Field 39 of proc(5)'s `stat`. The second field may hold anything, also blanks and brackets.
fn parsed(stat: &str) -> Option<usize> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_ascii_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::calls::RUN_CALLS;
    use super::*;
    use crate::host::Machine;
    use crate::options::FuseOptions;

    fn machine() -> Arc<dyn Host> {
        Arc::new(Machine::new("/".as_ref(), "/".as_ref(), &FuseOptions::default()))
    }

    #[test]
    fn the_worker_that_takes_over_is_bound_at_once() {
        let affinity = CpuAffinity::new(machine());
        let (mut first, mut second) = (WorkerAffinity::default(), WorkerAffinity::default());
        let myself = std::process::id();
        (0..=RUN_CALLS).for_each(|_| affinity.begin(&mut first, myself, true));
        let bound = first.cpu.is_some();
        affinity.hand_over(&mut first);
        assert_eq!(scheduling::of(None), Some(Policy::Other));
        affinity.begin(&mut second, myself, false);
        affinity.begin(&mut second, myself, true);
        assert_eq!(second.cpu.is_some(), bound, "as far as workers are bound here");
        affinity.unbind(&mut second);
        affinity.begin(&mut first, myself, false);
        affinity.begin(&mut first, myself, true);
        assert_eq!(first.cpu, None, "it was handed over to one");
    }

    #[test]
    fn a_worker_is_bound_and_released_and_hears_from_the_watchdog() {
        let affinity = CpuAffinity::new(machine());
        let Some(cpus) = affinity.allowed.map(|allowed| allowed.count()) else {
            let cpus = sched_getaffinity(None).unwrap().count();
            let ordinary = scheduling::of(None) == Some(Policy::Other);
            assert!(cpus == 1 || !ordinary || !scheduling::comes_back());
            return;
        };
        let myself = std::process::id();
        let mut me = WorkerAffinity::default();
        // Calls until it is bound.
        let mut until = |calls: u32| {
            let bound = (1..=calls).find(|_| {
                affinity.begin(&mut me, myself, true);
                me.cpu.is_some()
            });
            (bound, scheduling::of(None), sched_getaffinity(None).unwrap().count())
        };
        let (bound, free) = ((Some(Policy::Idle), 1), (Some(Policy::Other), cpus));
        assert_eq!(until(RUN_CALLS), (None, free.0, free.1));
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        affinity.release(true);
        assert_eq!(scheduling::of(None), free.0);
        assert_eq!(until(2 * RUN_CALLS - 1), (None, free.0, free.1), "twice as many calls");
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        affinity.release(false);
        assert_eq!(until(2 * RUN_CALLS - 1), (None, free.0, free.1), "not more than before");
        assert_eq!(until(1), (Some(1), bound.0, bound.1));
        affinity.unbind(&mut me);
        assert_eq!(scheduling::of(None), free.0);
        assert_eq!(affinity.bound.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_cpu_is_found_behind_any_name() {
        let fields = (3..=52).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parsed(&format!("7 (a) b) (c) {fields}\n")), Some(39));
        assert_eq!(parsed("7 (cut) S 1 2"), None);
        let mut me = WorkerAffinity::default();
        let host = machine();
        assert_eq!(me.cpu_of(&*host, u32::MAX), None);
        assert!(me.cpu_of(&*host, std::process::id()).is_some());
        assert!(me.cpu_of(&*host, std::process::id()).is_some(), "read again");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id();
        assert!(me.cpu_of(&*host, number).is_some());
        child.wait().unwrap();
        assert_eq!(me.cpu_of(&*host, number), None, "it is gone");
        assert!(me.cpu_of(&*host, std::process::id()).is_some());
    }
}
