//! Finds stalls of the host: a thread on each processor does nothing but wake up.
//!
//! ```text
//!   processor 0  |..|..|..|........|..|..     wakes every 250 us at the highest priority;
//!   processor 1  |..|..|..|..|..|..|..|..     a wake-up over 200 us late is a stall
//! ```
//!
//! No user-space program can delay these threads, so the delays are host stalls: a hypervisor that
//! ran another guest, a late timer, or a kernel that was not preemptible. A call that overlaps a
//! stall says little about the file system. Linux's own tool for it is the osnoise tracer (kernel
//! `Documentation/trace/osnoise-tracer.rst`), which few kernels have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use syncline_lab::latency::Stall;
use syncline_recorder::os::real_time;

use super::measure::{now_ns, sleep_until};

/// Above the priority of the measured calls.
const PRIORITY: i32 = 99;
const PERIOD_NS: u64 = 250_000;
/// Lateness that counts.
const STALL_NS: u64 = 200_000;
/// Stalls that are kept of one case.
const KEPT_MAX: usize = 1 << 16;

/// Threads that watch the processors until this is dropped.
pub(super) struct StallMonitor {
    stalls: Arc<Mutex<Vec<Stall>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl StallMonitor {
    /// Starts a thread on each processor that this process may use, or says why not.
    pub(super) fn start() -> Result<StallMonitor, String> {
        let plain = |err: std::io::Error| syncline_cli::error::plain(&err);
        let allowed = sched_getaffinity(None).map_err(|err| plain(err.into()))?;
        let mut monitor =
            StallMonitor { stalls: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        let (ready, started) = std::sync::mpsc::channel();
        for processor in (0..CpuSet::MAX_CPU).filter(|n| allowed.is_set(*n)) {
            let (stalls, stop) = (monitor.stalls.clone(), monitor.stop.clone());
            let ready = ready.clone();
            monitor.threads.push(std::thread::spawn(move || {
                let placed = place(processor);
                let watches = placed.is_ok();
                // `start` waits for it.
                let _ = ready.send(placed);
                if watches {
                    watch(processor, &stalls, &stop);
                }
            }));
        }
        for _ in 0..monitor.threads.len() {
            let placed = started.recv().unwrap_or(Ok(()));
            placed.map_err(|err| format!("{}; run as root for it", plain(err)))?;
        }
        Ok(monitor)
    }

    /// The stalls since the last call of this.
    pub(super) fn take(&self) -> Vec<Stall> {
        std::mem::take(&mut self.stalls.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for StallMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to say.
            let _ = thread.join();
        }
    }
}

fn place(processor: usize) -> std::io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)?;
    real_time(PRIORITY)
}

fn watch(processor: usize, stalls: &Mutex<Vec<Stall>>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let due_ns = now_ns() + PERIOD_NS;
        sleep_until(due_ns);
        let woken_ns = now_ns();
        if woken_ns >= due_ns + STALL_NS {
            let mut stalls = stalls.lock().unwrap_or_else(PoisonError::into_inner);
            if stalls.len() < KEPT_MAX {
                stalls.push(Stall { processor, from_ns: due_ns, to_ns: woken_ns });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_processor_is_a_stall_only_for_what_may_not_preempt_it() {
        // With real-time priority a busy thread of ordinary priority is no stall; without the
        // permission there is no monitor at all, and the reason is one line.
        match StallMonitor::start() {
            Ok(monitor) => {
                let until_ns = now_ns() + 50_000_000;
                while now_ns() < until_ns {
                    std::hint::spin_loop();
                }
                let stalled_ns: u64 = monitor.take().iter().map(|s| s.to_ns - s.from_ns).sum();
                assert!(stalled_ns < 50_000_000, "{stalled_ns} ns of 50 ms and all processors");
                assert!(monitor.take().iter().all(|s| s.to_ns - s.from_ns >= STALL_NS));
            }
            Err(why) => assert!(!why.contains('\n') && why.contains("root"), "{why}"),
        }
    }
}
