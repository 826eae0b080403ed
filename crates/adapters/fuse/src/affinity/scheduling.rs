//! Scheduling policies of threads.
#![allow(unsafe_code)]

use rustix::thread::Pid;

/// Policies that a worker may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    Other,
    /// Runs where nothing else wants to.
    Idle,
}

/// The policy of a thread, the calling one without a number; `None`: one that is not ours to
/// change, or no such thread.
pub(crate) fn of(thread: Option<Pid>) -> Option<Policy> {
    // SAFETY: a call without pointers.
    match unsafe { libc::sched_getscheduler(Pid::as_raw(thread)) } {
        libc::SCHED_OTHER => Some(Policy::Other),
        libc::SCHED_IDLE => Some(Policy::Idle),
        _ => None,
    }
}

/// Sets the policy of a thread, the calling one without a number; true if it is set.
pub(crate) fn set(thread: Option<Pid>, policy: Policy) -> bool {
    let number = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads one `sched_param`, which lives until it returns. The number of a
    // thread that is gone is an error.
    unsafe { libc::sched_setscheduler(Pid::as_raw(thread), number, &none) == 0 }
}

/// Reports whether a thread of this process may leave SCHED_IDLE again. Without
/// privileges (RLIMIT_NICE) it may not, so this is tried with a thread that is not needed.
pub(crate) fn comes_back() -> bool {
    let tried = std::thread::spawn(|| set(None, Policy::Idle) && set(None, Policy::Other));
    tried.join().unwrap_or(false)
}
