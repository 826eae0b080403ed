//! The processes of a test program: found by a mark in their environment, shown with the place in
//! the kernel where they wait, ended by signals.
//!
//! A process in uninterruptible sleep never ends and can hold locks that a reader of its `/proc`
//! files needs. So every look that may wait for one runs on a thread of its own that is abandoned
//! after [`LOOK`].

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal};

/// Variable of the environment that marks every process a command has started.
pub const MARK: &str = "SYNCLINE_CI_MARK";
/// Longest wait for one file of `/proc`.
const LOOK: Duration = Duration::from_secs(1);
/// Threads that are shown of one process.
const THREADS_SHOWN_MAX: usize = 24;
/// Functions that are shown of a kernel stack.
const FRAMES_SHOWN_MAX: usize = 6;

/// The answer of `work`, or nothing when it is not there in time; then its thread is abandoned.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, answer) = mpsc::sync_channel(1);
    std::thread::spawn(move || send.send(work()));
    answer.recv_timeout(limit).ok()
}

/// Processes that carry the mark or are in the process group, but those that are only waited for.
pub fn of(mark: &str, group: Pid) -> BTreeSet<i32> {
    let entry = format!("{MARK}={mark}").into_bytes();
    pids().into_iter().filter(|&pid| belongs(pid, entry.clone(), group)).collect()
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn belongs(pid: i32, entry: Vec<u8>, group: Pid) -> bool {
    let Some(stat) = Stat::of(PathBuf::from(format!("/proc/{pid}/stat"))) else { return false };
    if stat.state == "Z" || stat.state == "X" {
        return false;
    }
    let marked = move || {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|word| word == entry)
    };
    stat.group == group.as_raw_nonzero().get() || within(LOOK, marked).unwrap_or(false)
}

/// Name and state of a process or a thread, from `/proc/PID/stat`.
struct Stat {
    name: String,
    state: String,
    group: i32,
}

impl Stat {
    fn of(path: PathBuf) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    /// The name stands in parentheses and may hold any of them.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(") ")?;
        let (_, name) = head.split_once(" (")?;
        let mut fields = tail.split(' ');
        let state = fields.next()?.to_owned();
        let group = fields.nth(1)?.parse().ok()?;
        Some(Self { name: name.to_owned(), state, group })
    }
}

/// One line for each thread of the processes: number, name, state, and the kernel function in
/// which it waits; the kernel stack too where it may be read.
pub fn shown(pids: &BTreeSet<i32>) -> String {
    let mut text = String::new();
    for &pid in pids {
        let tasks = format!("/proc/{pid}/task");
        let threads = std::fs::read_dir(&tasks).into_iter().flatten().flatten();
        let mut threads: Vec<PathBuf> = threads.map(|entry| entry.path()).collect();
        threads.sort();
        for (number, thread) in threads.iter().enumerate() {
            if number == THREADS_SHOWN_MAX {
                let _ = writeln!(text, "  {pid}: and {} threads more", threads.len() - number);
                break;
            }
            let Some(stat) = Stat::of(thread.join("stat")) else { continue };
            let id = thread.file_name().unwrap_or_default().to_string_lossy();
            let _ = writeln!(text, "  {pid}/{id} {} {} {}", stat.name, stat.state, waits(thread));
        }
    }
    text
}

fn waits(thread: &std::path::Path) -> String {
    let read = |name: &str| {
        let path = thread.join(name);
        within(LOOK, move || std::fs::read_to_string(path).unwrap_or_default())
            .unwrap_or_else(|| "(does not answer)".to_owned())
    };
    let stack = read("stack");
    let frames = stack.lines().filter_map(|line| line.split_whitespace().nth(1));
    let frames: Vec<&str> = frames.take(FRAMES_SHOWN_MAX).collect();
    if frames.is_empty() { read("wchan") } else { frames.join(" < ") }
}

/// Sends the signal to the process group and to the processes.
pub fn signal(group: Pid, pids: &BTreeSet<i32>, signal: Signal) {
    // A process that has ended meanwhile is what is wanted.
    let _ = rustix::process::kill_process_group(group, signal);
    for pid in pids.iter().filter_map(|&pid| Pid::from_raw(pid)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses() {
        let stat = Stat::parse("12 (a) b (c) D 1 77 77 0 -1").unwrap();
        assert_eq!((stat.name.as_str(), stat.state.as_str(), stat.group), ("a) b (c", "D", 77));
    }

    #[test]
    fn work_that_does_not_end_is_abandoned() {
        assert_eq!(within(LOOK, || 7), Some(7));
        let never = || std::thread::sleep(Duration::from_secs(3600));
        assert_eq!(within(Duration::from_millis(10), never), None);
    }
}
