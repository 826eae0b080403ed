//! Calls of Linux that rustix has no safe wrapper for.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Starts write-back of a range and waits until it is written (`sync_file_range` with
/// WAIT_BEFORE, WRITE and WAIT_AFTER). Makes nothing durable.
///
/// # Errors
/// The error of the system call.
pub fn sync_file_range(file: &File, from: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let from = i64::try_from(from).map_err(too_far)?;
    let len = i64::try_from(len).map_err(too_far)?;
    // SAFETY: the descriptor is open as long as `file` is borrowed; the call takes no pointers.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), from, len, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the calling thread SCHED_FIFO with this priority, 1 to 99.
///
/// # Errors
/// Not permitted (CAP_SYS_NICE or RLIMIT_RTPRIO), or not a priority.
pub fn real_time(priority: i32) -> io::Result<()> {
    // SAFETY: sched_param is plain integers, for which zero is a value.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: zero is the calling thread, and the parameter is read during the call only.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps all memory of this process, also what it gets later, from being paged out.
///
/// # Errors
/// Not permitted (CAP_IPC_LOCK or RLIMIT_MEMLOCK).
pub fn lock_memory() -> io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE)?)
}
