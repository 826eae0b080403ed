//! The four cases: fallocate and write, each with and without the background.
//!
//! ```text
//!   measuring thread (SCHED_FIFO where permitted)   every 5 ms: write 16 KiB, timed
//!   lower thread                                    after every 2 MiB: sync_file_range
//!   background                                      ftruncate + fsync of another file, in a loop
//! ```
//!
//! Each fallocate of 100 MB is given back before the next one by ftruncate, and after every fourth
//! by fsync, both untimed, since no device has room for thousands of them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use syncline_lab::latency::{Calls, LatencyCase, LatencyDocument, Machine};
use syncline_recorder::os::real_time;

use super::Scratch;
use super::causes::{self, Tracing};
use super::stall_monitor::StallMonitor;
use crate::args::Latency;
use crate::progress;
use syncline_cli::error::{Failure, Result};
use syncline_cli::interrupt;
use syncline_cli::place::Place;

/// Written back each time after so many bytes.
const WRITE_BACK_BYTES: u64 = 2 << 20;
/// The other file's size alternates between this and nothing.
const OTHER_BYTES: u64 = 1 << 20;
/// Allocations between two syncs that make the freed space usable.
const GIVE_BACK: u64 = 4;
/// Poll interval of the wait for the background load's begin.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Longest wait between two looks for an interrupt.
const LOOK: Duration = Duration::from_millis(50);
/// Priority of the measuring thread.
const PRIORITY: i32 = 50;
/// Calls of the paper, and with `--quick`.
const CALLS: u64 = 8000;
const QUICK_FALLOCATES: u64 = 500;
const QUICK_WRITES: u64 = 2000;

/// Parameters of a measurement.
pub(super) struct Plan {
    fallocates: u64,
    writes: u64,
    fallocate_bytes: u64,
    write_bytes: usize,
    period_ns: u64,
}

impl Plan {
    pub(super) fn new(args: &Latency) -> Plan {
        let quick =
            |usual, quick| args.operations.unwrap_or(if args.quick { quick } else { usual });
        let asked = |what: &str| args.only.as_deref().is_none_or(|only| only == what);
        let calls = |what: &str, calls: u64| if asked(what) { calls } else { 0 };
        Plan {
            fallocates: calls("fallocate", quick(CALLS, QUICK_FALLOCATES)),
            writes: calls("write", quick(CALLS, QUICK_WRITES)),
            fallocate_bytes: args.fallocate_size,
            write_bytes: usize::try_from(args.write_size).unwrap_or(usize::MAX),
            period_ns: args.period_us * 1000,
        }
    }
}

/// CLOCK_MONOTONIC, which is also the clock of the kernel's trace.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(super) fn sleep_until(due_ns: u64) {
    std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(now_ns())));
}

/// Observers that run beside a case.
pub(super) struct Watch {
    pub(super) tracing: Option<Tracing>,
    pub(super) monitor: Option<StallMonitor>,
}

impl Watch {
    /// Looks at the machine while nothing runs.
    pub(super) fn idle(&self, time: Duration) -> Option<Machine> {
        let monitor = self.monitor.as_ref()?;
        monitor.take();
        let began = Instant::now();
        while began.elapsed() < time && !interrupt::asked() {
            std::thread::sleep(time.saturating_sub(began.elapsed()).min(LOOK));
        }
        Some(Machine::watched(began.elapsed().as_secs_f64(), &monitor.take()))
    }

    /// Begins a case anew.
    fn begin(&self) {
        // What came before it is nobody's.
        let _ = (
            self.monitor.as_ref().map(StallMonitor::take),
            self.tracing.as_ref().map(Tracing::take),
        );
    }
}

/// Measures every case into `document`.
pub(super) fn all<P: Place>(
    place: &P,
    plan: &Plan,
    document: &mut LatencyDocument,
    watch: &Watch,
) -> Result<()> {
    for background in [false, true] {
        if plan.fallocates > 0 {
            watch.begin();
            let case =
                case(place, background, plan.fallocates, document, |m| fallocates(place, plan, m))?;
            document.cases.push(finish("fallocate", case, background, watch));
        }
    }
    for background in [false, true] {
        if plan.writes > 0 {
            watch.begin();
            let case = case(place, background, plan.writes, document, |m| writes(place, plan, m))?;
            document.cases.push(finish("write", case, background, watch));
        }
    }
    interrupt::check()
}

/// Results of one case.
struct Measured {
    calls: Calls,
    began_ns: u64,
    late: u64,
    rounds: u64,
}

fn finish(call: &'static str, measured: Measured, background: bool, watch: &Watch) -> LatencyCase {
    let watched_s = (now_ns() - measured.began_ns) as f64 / 1e9;
    let stalls = watch.monitor.as_ref().map(StallMonitor::take);
    let seen = stalls.as_deref().map(|stalls| (watched_s, stalls));
    let mut case = measured.calls.case(call, background, seen);
    (case.late_periods, case.background_rounds) = (measured.late, measured.rounds);
    let text = watch.tracing.as_ref().map(Tracing::take);
    causes::explain(text.as_deref(), stalls.as_deref().unwrap_or_default(), &mut case.outliers);
    case
}

/// Runs one case: everything flushed first, the background beside it.
fn case<P: Place>(
    place: &P,
    background: bool,
    calls: u64,
    document: &mut LatencyDocument,
    measure: impl FnOnce(&mut Measured) -> Result<()> + Send,
) -> Result<Measured> {
    interrupt::check()?;
    place.sync_all()?;
    let other = background.then(|| Scratch::new(place, "other")).transpose()?;
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let calls = Calls::new(usize::try_from(calls).unwrap_or_default());
    let mut measured = Measured { calls, began_ns: now_ns(), late: 0, rounds: 0 };
    let (done, refused, behind) = std::thread::scope(|scope| {
        let behind = other.as_ref().map(|other| {
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || disturb(place, &other.file, stop, rounds))
        });
        // What is measured is beside the background, not before it.
        while behind.as_ref().is_some_and(|thread| !thread.is_finished())
            && rounds.load(Ordering::Relaxed) == 0
        {
            std::thread::sleep(POLL_INTERVAL);
        }
        let measured = &mut measured;
        let measuring = std::thread::Builder::new().name(causes::THREAD.to_owned());
        let measuring = measuring.spawn_scoped(scope, move || {
            let refused = real_time(PRIORITY).err();
            (measure(measured), refused)
        });
        let (done, refused) = match measuring.map(|thread| thread.join()) {
            Ok(ended) => ended.unwrap_or_else(|_| (Err(panicked()), None)),
            Err(err) => {
                (Err(Failure::Failed(format!("no thread: {err}; end other programs"))), None)
            }
        };
        stop.store(true, Ordering::Relaxed);
        let behind = behind.map_or(Ok(()), |t| t.join().unwrap_or_else(|_| Err(panicked())));
        (done, refused, behind)
    });
    if let Some(err) = refused {
        let why = syncline_cli::error::plain(&err);
        let said = format!("no real-time priority: {why}; run as root for it");
        if !document.remarks.contains(&said) {
            document.remarks.push(said);
        }
    }
    done.and(behind)?;
    measured.rounds = rounds.into_inner();
    Ok(measured)
}

fn panicked() -> Failure {
    Failure::Failed("a thread ended early; please report it".to_owned())
}

/// The background of the paper's evaluation.
fn disturb<P: Place>(
    place: &P,
    file: &P::File,
    stop: &AtomicBool,
    rounds: &AtomicU64,
) -> Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let round = rounds.load(Ordering::Relaxed);
        place.truncate(file, round % 2 * OTHER_BYTES)?;
        place.fsync(file)?;
        rounds.store(round + 1, Ordering::Relaxed);
    }
    Ok(())
}

fn fallocates<P: Place>(place: &P, plan: &Plan, measured: &mut Measured) -> Result<()> {
    let scratch = Scratch::new(place, "file")?;
    place.fsync(&scratch.file)?;
    let bar = progress::bar("fallocate", plan.fallocates);
    for call in 0..plan.fallocates {
        interrupt::check()?;
        let start_ns = now_ns();
        place.fallocate(&scratch.file, plan.fallocate_bytes)?;
        measured.calls.record(start_ns, now_ns() - start_ns);
        place.truncate(&scratch.file, 0)?;
        if call % GIVE_BACK == GIVE_BACK - 1 {
            place.fsync(&scratch.file)?;
        }
        bar.set_done(call + 1);
        bar.set_moved((call + 1).saturating_mul(plan.fallocate_bytes));
    }
    bar.clear();
    Ok(())
}

fn writes<P: Place>(place: &P, plan: &Plan, measured: &mut Measured) -> Result<()> {
    let scratch = Scratch::new(place, "file")?;
    let file = &scratch.file;
    let record = vec![0xa5; plan.write_bytes];
    place.fallocate(file, plan.writes.saturating_mul(plan.write_bytes as u64))?;
    place.fsync(file)?;
    let bar = progress::bar("write", plan.writes);
    let (ask, asked) = mpsc::channel::<(u64, u64)>();
    let (done, behind) = std::thread::scope(|scope| {
        let lower = scope.spawn(move || {
            asked.iter().try_for_each(|(from, bytes)| place.write_back(file, from, bytes))
        });
        let done = periodic(place, plan, file, &record, measured, |from, bytes| {
            // Its failure is what the thread returns.
            let _ = ask.send((from, bytes));
            bar.set_done((from + bytes) / plan.write_bytes.max(1) as u64);
            bar.set_moved(from + bytes);
        });
        drop(ask);
        (done, lower.join().unwrap_or_else(|_| Err(panicked())))
    });
    bar.clear();
    done.and(behind)
}

fn periodic<P: Place>(
    place: &P,
    plan: &Plan,
    file: &P::File,
    record: &[u8],
    measured: &mut Measured,
    mut write_back: impl FnMut(u64, u64),
) -> Result<()> {
    let first_ns = now_ns();
    let (mut offset, mut written_back) = (0, 0);
    for call in 0..plan.writes {
        interrupt::check()?;
        let due_ns = first_ns + call * plan.period_ns;
        sleep_until(due_ns);
        let start_ns = now_ns();
        measured.late += u64::from(start_ns >= due_ns + plan.period_ns);
        place.write(file, offset, record)?;
        measured.calls.record(start_ns, now_ns() - start_ns);
        offset += record.len() as u64;
        if offset - written_back >= WRITE_BACK_BYTES {
            write_back(written_back, offset - written_back);
            written_back = offset;
        }
    }
    Ok(())
}
