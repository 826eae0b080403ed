//! Causes of slow calls: the events of jbd2, ext4 and the block layer, from tracefs, that
//! overlapped the slowest calls, and the functions of the kernel in which those calls slept.
//!
//! It also lists the processor stalls that overlapped them. The trace is on the monotonic clock. If
//! tracefs is missing or not accessible, a remark says so and the measurement continues.

use std::fmt::Write as _;

use syncline_lab::latency::{Outlier, Stall};

use crate::tracefs::{Instance, kernel_filter};

/// Events that are traced.
const EVENTS: [&str; 10] = [
    "jbd2/jbd2_start_commit",
    "jbd2/jbd2_commit_locking",
    "jbd2/jbd2_commit_flushing",
    "jbd2/jbd2_commit_logging",
    "jbd2/jbd2_end_commit",
    "jbd2/jbd2_checkpoint",
    "ext4/ext4_load_inode",
    "ext4/ext4_mb_bitmap_load",
    "ext4/ext4_sync_file_enter",
    "block/block_rq_issue",
];
/// Where a call that cannot be interrupted sleeps: an event with the stack of its thread.
const SLEEP: &str = "sched/sched_switch";
const SLEEP_STACK: &str = "<stack";
/// Name of the thread whose sleep is traced.
pub(super) const THREAD: &str = "latency-call";
/// Functions on the way to every sleep.
const SCHEDULER: [&str; 7] = [
    "__traceiter_",
    "trace_event_",
    "__schedule",
    "schedule",
    "io_schedule",
    "bit_wait",
    "__wait_on",
];
/// Functions that are named for one sleep.
const FUNCTIONS_MAX: usize = 16;
/// Places of sleep that are named for one call.
const SLEEPS_MAX: usize = 2;
const BUFFER_KIB: &str = "16384";
/// Kinds of events that are named for one call.
const NAMED_MAX: usize = 6;

/// A trace that is running.
pub(super) struct Tracing(Instance);

impl Tracing {
    /// Starts tracing, or says why not.
    ///
    /// `device`: dev_t of the file system, whose events alone are wanted.
    pub(super) fn start(device: u64) -> Result<Tracing, String> {
        let trace = Instance::new()?;
        trace.set("trace_clock", "mono")?;
        trace.set("buffer_size_kb", BUFFER_KIB)?;
        // Kernels differ in the events that they have; one is enough.
        let filter = kernel_filter(device);
        let on = |event: &&&str| {
            let filtered = trace.set(&format!("events/{event}/filter"), &filter);
            filtered.and_then(|()| trace.set(&format!("events/{event}/enable"), "1")).is_ok()
        };
        if EVENTS.iter().filter(on).count() == 0 {
            return Err("this kernel has none of the tracepoints; load ext4 first".to_owned());
        }
        // 2 is a sleep that no signal ends. Without stacks, events are named all the same.
        let asleep = format!("prev_comm == \"{THREAD}\" && prev_state == 2");
        let _ = trace
            .set(&format!("events/{SLEEP}/trigger"), &format!("stacktrace if {asleep}"))
            .and_then(|()| trace.set(&format!("events/{SLEEP}/filter"), &asleep))
            .and_then(|()| trace.set(&format!("events/{SLEEP}/enable"), "1"));
        Ok(Tracing(trace))
    }

    /// The events so far, and begins anew.
    pub(super) fn take(&self) -> String {
        let Ok(text) = self.0.read() else { return String::new() };
        // An old trace only costs space.
        let _ = self.0.set("trace", "");
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Time in nanoseconds and name of the event of a line of the trace.
fn event(line: &str) -> Option<(u64, &str)> {
    // `comm-pid [cpu] flags seconds.micros: name: arguments`; comm may have spaces.
    let (_, rest) = line.split_once("] ")?;
    let mut words = rest.split_whitespace().skip(1);
    let (seconds, micros) = words.next()?.strip_suffix(':')?.split_once('.')?;
    let micros: u64 = micros.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    let time_ns = seconds.checked_mul(1_000_000)?.checked_add(micros)?.checked_mul(1000)?;
    let name = words.next()?;
    Some((time_ns, if name == SLEEP_STACK { name } else { name.strip_suffix(':')? }))
}

/// The sleeps of the calls: time in nanoseconds, and functions, the innermost first.
fn sleeps(text: &str) -> Vec<(u64, Vec<&str>)> {
    let mut sleeps: Vec<(u64, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if let Some(function) = line.trim_start().strip_prefix("=> ") {
            let scheduling = SCHEDULER.iter().any(|start| function.starts_with(start));
            match sleeps.last_mut().map(|sleep| &mut sleep.1) {
                Some(functions) if functions.len() < FUNCTIONS_MAX && !scheduling => {
                    functions.push(function);
                }
                _ => (),
            }
        } else if let Some((time_ns, SLEEP_STACK)) = event(line) {
            sleeps.push((time_ns, Vec::new()));
        }
    }
    sleeps
}

/// Gives each of the calls what overlapped it.
pub(super) fn explain(text: Option<&str>, stalls: &[Stall], outliers: &mut [Outlier]) {
    let wanted =
        |event: &(u64, &str)| !event.1.starts_with(SLEEP_STACK) && event.1 != "sched_switch";
    let events: Vec<(u64, &str)> =
        text.unwrap_or_default().lines().filter_map(event).filter(wanted).collect();
    let sleeps = sleeps(text.unwrap_or_default());
    for outlier in outliers {
        let end_ns = outlier.start_ns.saturating_add((outlier.latency_us * 1e3) as u64);
        let mut found: Vec<(&str, u64)> = Vec::new();
        for (_, name) in events.iter().filter(|e| (outlier.start_ns..=end_ns).contains(&e.0)) {
            match found.iter_mut().find(|known| known.0 == *name) {
                Some(known) => known.1 += 1,
                None => found.push((name, 1)),
            }
        }
        // A commit that began before the call and had not ended.
        let before =
            events.iter().rev().find(|e| e.0 < outlier.start_ns && e.1.starts_with("jbd2"));
        let committing = before.is_some_and(|e| e.1 != "jbd2_end_commit");
        let mut cause = String::new();
        // Writing to a string does not fail.
        for stall in stalls.iter().filter(|s| s.from_ns < end_ns && s.to_ns > outlier.start_ns) {
            let stall_us = (stall.to_ns - stall.from_ns) / 1000;
            let _ = write!(cause, "processor {} stalled for {stall_us} us, ", stall.processor);
        }
        if committing {
            cause += "a commit of jbd2, ";
        }
        for (name, count) in found.iter().take(NAMED_MAX) {
            let _ = write!(cause, "{count} x {name}, ");
        }
        let during = outlier.start_ns..=end_ns;
        let mut slept: Vec<&[&str]> = Vec::new();
        for (_, functions) in sleeps.iter().filter(|sleep| during.contains(&sleep.0)) {
            if !slept.contains(&functions.as_slice()) {
                slept.push(functions);
            }
        }
        for functions in slept.iter().take(SLEEPS_MAX) {
            let _ = write!(cause, "slept in {}, ", functions.join(" < "));
        }
        let cause = cause.trim_end_matches(", ");
        outlier.cause = match (cause, text) {
            ("", None) => None,
            ("", Some(_)) => Some("nothing traced".to_owned()),
            (cause, _) => Some(cause.to_owned()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_get_the_events_that_overlap_them() {
        let text = "# tracer: nop\n\
            jbd2/loop0-8-99  [000] .....  10.000100: jbd2_start_commit: dev 7,0\n\
            jbd2/loop0-8-99  [000] .....  10.000500: jbd2_commit_flushing: dev 7,0\n\
            my prog-12 [001] d..1.  10.000600: block_rq_issue: 7,0 WS\n\
            my prog-12 [001] d..1.  10.000700: block_rq_issue: 7,0 WS\n\
            my prog-12 [001] d..2.  10.000710: sched_switch: prev_comm=latency-call\n\
            my prog-12 [001] d..2.  10.000720: <stack trace>\n => __traceiter_sched_switch\n\
            \x20=> __schedule\n => schedule\n => wait_transaction_locked\n => start_this_handle\n\
            jbd2/loop0-8-99  [000] .....  10.002000: jbd2_end_commit: dev 7,0\n\
            nonsense\n[ ] : .\n";
        let call = |start_us: u64, latency_us| {
            let start_ns = 10_000_000_000 + start_us * 1000;
            Outlier { call: 1, start_ns, latency_us, cause: None }
        };
        let mut outliers = [call(400, 350.0), call(3000, 100.0), call(50, 60.0)];
        let stall = |from_us: u64, to_us: u64| {
            let ns = |us| 10_000_000_000 + us * 1000;
            Stall { processor: 1, from_ns: ns(from_us), to_ns: ns(to_us) }
        };
        let stalls = [stall(700, 1000), stall(750, 900)];
        explain(Some(text), &stalls[1..], &mut outliers[1..]);
        explain(Some(text), &stalls[..1], &mut outliers[..1]);
        let mut untraced = outliers[1].clone();
        explain(None, &stalls, std::slice::from_mut(&mut untraced));
        assert_eq!(untraced.cause, None);
        let causes = outliers.map(|outlier| outlier.cause.unwrap());
        assert_eq!(
            causes[0],
            "processor 1 stalled for 300 us, a commit of jbd2, 1 x jbd2_commit_flushing, \
             2 x block_rq_issue, slept in wait_transaction_locked < start_this_handle"
        );
        assert_eq!(causes[1], "nothing traced");
        assert_eq!(causes[2], "1 x jbd2_start_commit");
    }
}
