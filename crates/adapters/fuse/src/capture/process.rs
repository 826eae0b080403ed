//! Processes of threads, with their names, from `/proc`.
//!
//! Read by the worker while the thread waits for its answer, so that it is still there: when the
//! worker sees it for the first time, and again when what is known is older than [`FRESH_NS`],
//! because a shell's child is called like the shell until it runs a program.

use std::cell::RefCell;

use rustc_hash::FxHashMap;

use super::event::Process;
use crate::host::Host;

/// Age up to which a name is believed, in nanoseconds.
const FRESH_NS: u64 = 50_000_000;

/// Threads that a worker remembers.
const KNOWN_MAX: usize = 1 << 12;

thread_local! {
    /// When each thread was read last.
    static KNOWN: RefCell<FxHashMap<u32, u64>> = RefCell::default();
}

/// The process of a thread, where it has to be said again. 0 is the kernel and has none.
pub(super) fn introduce(host: &dyn Host, thread: u32, now_ns: u64) -> Option<Process> {
    if thread == 0 {
        return None;
    }
    KNOWN.with_borrow_mut(|known| {
        let read_ns = known.get(&thread).copied();
        if read_ns.is_some_and(|read_ns| now_ns.saturating_sub(read_ns) < FRESH_NS) {
            return None;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(thread, now_ns);
        host.process(thread)
    })
}

/// The process of a thread, from `/proc`.
pub(crate) fn process_of(thread: u32) -> Option<Process> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let name = std::fs::read(format!("/proc/{number}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name).trim_end().into();
    Some(Process { number, name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;
    use crate::options::FuseOptions;

    #[test]
    fn a_thread_has_the_name_of_its_process() {
        let host = &Machine::new("/".as_ref(), "/".as_ref(), &FuseOptions::default());
        let this = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let process = introduce(host, this, 1).unwrap();
        assert_eq!(process.number, std::process::id());
        assert!(!process.name.is_empty());
        assert!(introduce(host, this, FRESH_NS).is_none(), "it was just said");
        assert!(introduce(host, this, FRESH_NS + 1).is_some());
        assert!(introduce(host, 0, 1).is_none());
        // PID_MAX_LIMIT of the kernel's threads.h: no thread has a number above it. A thread that
        // was joined may still be in `/proc`, since the kernel wakes the joiner first.
        let nobody = (1 << 22) + 1;
        assert!(introduce(host, nobody, 1).is_none());
    }
}
