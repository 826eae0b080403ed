//! Which events of jbd2, ext4 and the block layer overlapped the slowest calls, from tracefs.
//!
//! An instance of the trace of our own, on the monotonic clock, removed at the end. Where tracefs
//! is not there or not ours to use, that is said and the measurement goes on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use syncline_workload::Outlier;

/// Where tracefs may be.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// What is traced.
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
const BUFFER_KIB: &str = "16384";
/// Kinds of events that are named for one call.
const NAMED_MAX: usize = 6;

/// A trace that is running.
pub(super) struct Tracing(PathBuf);

impl Tracing {
    /// Starts tracing, or says why not.
    pub(super) fn start() -> Result<Tracing, String> {
        let root = ROOTS.iter().map(Path::new).find(|root| root.join("instances").is_dir());
        let root = root.ok_or("tracefs is not there; mount it on /sys/kernel/tracing")?;
        let dir = root.join("instances").join(format!("syncline-{}", std::process::id()));
        std::fs::create_dir(&dir)
            .map_err(|err| format!("tracefs: {}; run as root", crate::error::plain(&err)))?;
        let tracing = Tracing(dir);
        let set = |file: &str, text: &str| {
            let path = tracing.0.join(file);
            std::fs::write(&path, text)
                .map_err(|err| format!("{}: {}; run as root", file, crate::error::plain(&err)))
        };
        set("trace_clock", "mono")?;
        set("buffer_size_kb", BUFFER_KIB)?;
        // Kernels differ in the events that they have; one is enough.
        let on = EVENTS.iter().filter(|event| set(&format!("events/{event}/enable"), "1").is_ok());
        if on.count() == 0 {
            return Err("this kernel has none of the tracepoints; load ext4 first".to_owned());
        }
        Ok(tracing)
    }

    /// Gives each of the calls what overlapped it, and begins anew.
    pub(super) fn explain(&self, outliers: &mut [Outlier]) {
        let path = self.0.join("trace");
        let Ok(text) = std::fs::read_to_string(&path) else { return };
        explain(&text, outliers);
        // An old trace only costs space.
        let _ = std::fs::write(path, "");
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // The kernel removes what is in it. Nothing else can be done about a failure.
        let _ = std::fs::remove_dir(&self.0);
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
    Some((time_ns, words.next()?.strip_suffix(':')?))
}

fn explain(text: &str, outliers: &mut [Outlier]) {
    let events: Vec<(u64, &str)> = text.lines().filter_map(event).collect();
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
        if committing {
            cause += "a commit of jbd2, ";
        }
        for (name, count) in found.iter().take(NAMED_MAX) {
            // Writing to a string does not fail.
            let _ = write!(cause, "{count} x {name}, ");
        }
        let cause = cause.trim_end_matches(", ");
        outlier.cause = Some(if cause.is_empty() { "nothing traced" } else { cause }.to_owned());
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
            jbd2/loop0-8-99  [000] .....  10.002000: jbd2_end_commit: dev 7,0\n\
            nonsense\n[ ] : .\n";
        let call = |start_us: u64, latency_us| {
            let start_ns = 10_000_000_000 + start_us * 1000;
            Outlier { call: 1, start_ns, latency_us, cause: None }
        };
        let mut outliers = [call(400, 350.0), call(3000, 100.0), call(50, 60.0)];
        explain(text, &mut outliers);
        let causes = outliers.map(|outlier| outlier.cause.unwrap());
        assert_eq!(causes[0], "a commit of jbd2, 1 x jbd2_commit_flushing, 2 x block_rq_issue");
        assert_eq!(causes[1], "nothing traced");
        assert_eq!(causes[2], "1 x jbd2_start_commit");
    }
}
