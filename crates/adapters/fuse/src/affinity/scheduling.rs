//! Scheduling policies of threads.
#![allow(unsafe_code)]

use libc::{c_int, c_long};
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
    // SAFETY: a call without pointers. The functions of musl refuse all that these calls do.
    let number = unsafe { libc::syscall(libc::SYS_sched_getscheduler, Pid::as_raw(thread)) };
    let is = |policy: c_int| number == c_long::from(policy);
    if is(libc::SCHED_OTHER) {
        Some(Policy::Other)
    } else {
        is(libc::SCHED_IDLE).then_some(Policy::Idle)
    }
}

/// Sets the policy of a thread, the calling one without a number; true if it is set.
pub(crate) fn set(thread: Option<Pid>, policy: Policy) -> bool {
    let number = match policy {
        Policy::Other => libc::SCHED_OTHER,
        Policy::Idle => libc::SCHED_IDLE,
    };
    let thread = Pid::as_raw(thread);
    // The kernel's `struct sched_param`: a priority, which these policies do not have.
    let param: c_int = 0;
    // SAFETY: the call reads one `c_int`, which lives until it returns. The number of a thread that
    // is gone is an error.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, number, &raw const param) == 0 }
}

/// Reports whether a thread of this process may leave SCHED_IDLE again. Without
/// privileges (RLIMIT_NICE) it may not, so this is tried with a thread that is not needed.
pub(crate) fn comes_back() -> bool {
    let tried = std::thread::spawn(|| set(None, Policy::Idle) && set(None, Policy::Other));
    tried.join().unwrap_or(false)
}
