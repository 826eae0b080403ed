//! Measures a path, a device or a profile as the papers' tables do: `syncline-lab probe`.
//!
//! ```text
//!   ProbeTarget: Simulated (a profile, virtual time) | DeviceTarget (any BlockDevice and Clock)
//!        |
//!   fill the region once | reads | writes | write + flush | interleaved | inside | sustained
//!        |
//!   ProbeDocument: figures, histogram, rates over time ──> table, JSON, page; fit() ──> a profile
//! ```
//!
//! Sources of the patterns: informed-storage paper, tables 2 and 9 (sequential and random, 4
//! KiB within 100 MB), table 6 (one request for each 32 KiB of the region, sorted and scattered);
//! eager-sync paper, section 3.2 (write and fsync). The interleaved runs show how many units
//! a device keeps open, writes within a window how large one is.
//!
//! Promises: nothing outside of the first `region_bytes` of the target is touched, and nothing is
//! written to a target that is not writable. Requests, bytes and time of each test are bounded by
//! the [`Plan`]. In virtual time a probe is exact and equal on every machine. One request at a
//! time. Tested in `tests.rs`, and through the binary.

mod cases;
mod document;
mod eager;
mod fit;
mod inside;
mod log_unit;
mod solve;
mod target;
#[cfg(test)]
mod tests;
mod watched;

pub use cases::Group;
pub use document::{FitFigure, FitSummary, PROBE_SCHEMA, ProbeDocument, ProbeFigure, Sustained};
pub use eager::EagerOptions;
pub use fit::{DEVICE_FACTOR, Fit, fit};
pub use inside::{Inside, inside};
pub use target::{DeviceTarget, ProbeTarget, Simulated};

use crate::error::{LabError, Result};
use crate::latency::Bucket;
use crate::observer::Observer;
use cases::{Case, Op, cases};
use syncline_device::SplitMix64;
use syncline_nand::Latencies;
use watched::Watched;

/// A request of the filling and of sustained sequential writes.
const LARGE_BYTES: u64 = 512 << 10;
const SMALL_BYTES: u64 = 4096;
/// Requests that each test sends whatever time they take.
const REQUESTS_MIN: usize = 8;
/// Rates that a sustained test reports.
const WINDOWS: u64 = 24;
/// Rest between two tests, and after the sustained ones, nanoseconds.
const REST_NS: u64 = 100_000_000;
const LONG_REST_NS: u64 = 5_000_000_000;
/// The least that the patterns need: 4 MiB.
pub const REGION_BYTES_MIN: u64 = 4 << 20;

/// Extent of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Bytes from the begin of the target that are used, a multiple of 1 MiB.
    pub region_bytes: u64,
    /// Most requests of a test, sorted and scattered ones aside: these have one for each 32 KiB.
    pub requests: u32,
    /// Most bytes of a test.
    pub test_bytes: u64,
    /// A test ends with the request that passes this time, nanoseconds, but has eight requests.
    pub test_ns: u64,
    /// Bytes of each sustained test; 0: none.
    pub sustained_bytes: u64,
    /// Seed of random places.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            region_bytes: 256 << 20,
            requests: 1024,
            test_bytes: 64 << 20,
            test_ns: 5_000_000_000,
            sustained_bytes: 512 << 20,
            seed: 1,
        }
    }
}

impl Plan {
    /// Refuses plans that measure nothing.
    pub fn validate(&self) -> Result<()> {
        if self.region_bytes < REGION_BYTES_MIN {
            let least = REGION_BYTES_MIN >> 20;
            return Err(LabError::Usage(format!(
                "a probe needs {least} MiB at least; give a larger --size or another target"
            )));
        }
        Ok(())
    }
}

/// Measures everything the target allows. The region is written once from begin to end first, if
/// the target is writable.
///
/// If `observer` stops it after the first figure, the document has the figures so far and says so.
///
/// # Errors
/// Usage: a plan that measures nothing. Interrupted: stopped before the first figure. Failed: a
/// request.
pub fn probe(
    target: &mut dyn ProbeTarget,
    plan: &Plan,
    observer: &dyn Observer,
) -> Result<ProbeDocument> {
    plan.validate()?;
    let mut document = ProbeDocument::new(plan, target.writable());
    match tests(&mut Watched::new(target, observer), plan, observer, &mut document) {
        Ok(()) => document.conclude(),
        Err(LabError::Interrupted) if !document.figures.is_empty() => document.interrupted = true,
        Err(err) => return Err(err),
    }
    Ok(document)
}

/// Runs every test. Each, and each part of the sustained ones, is a step of `observer`.
fn tests(
    target: &mut dyn ProbeTarget,
    plan: &Plan,
    observer: &dyn Observer,
    document: &mut ProbeDocument,
) -> Result<()> {
    let cases = cases(plan, target.writable(), target.align_bytes());
    let (writable, is_sustained) = (target.writable(), plan.sustained_bytes > 0);
    let long = if writable && is_sustained { 2 * WINDOWS } else { 0 };
    let total = cases.len() as u64 + 2 * u64::from(writable) + long;
    let mut done = 0;
    let mut step = || {
        done += 1;
        observer.position(done, total);
    };
    observer.position(0, total);
    if writable {
        fill(target, plan)?;
        step();
    }
    for case in &cases {
        let (figure, latencies_ns) = measure(target, case, plan)?;
        if case.name == "sync-4k" {
            document.sync_histogram = histogram(&latencies_ns);
        }
        document.figures.push(figure);
        step();
    }
    if writable {
        document.inside = Some(inside(target, plan)?);
        step();
    }
    if writable && is_sustained {
        for random in [false, true] {
            document.sustained.push(sustained(target, plan, random, &mut step)?);
        }
    }
    Ok(())
}

/// The figures alone, of a filled target; what a fit compares.
fn figures(target: &mut dyn ProbeTarget, plan: &Plan, cases: &[Case]) -> Result<Vec<ProbeFigure>> {
    fill(target, plan)?;
    cases.iter().map(|case| Ok(measure(target, case, plan)?.0)).collect()
}

/// Writes the region once.
fn fill(target: &mut dyn ProbeTarget, plan: &Plan) -> Result<()> {
    let mut offset = 0;
    while offset < plan.region_bytes {
        target.write(offset, LARGE_BYTES.min(plan.region_bytes - offset))?;
        offset += LARGE_BYTES;
    }
    target.flush()?;
    target.rest(LONG_REST_NS);
    Ok(())
}

/// One test: its figure and the latency of each request.
fn measure(
    target: &mut dyn ProbeTarget,
    case: &Case,
    plan: &Plan,
) -> Result<(ProbeFigure, Vec<u64>)> {
    target.rest(REST_NS);
    let mut latencies = Latencies::new();
    let mut each_ns = Vec::with_capacity(case.offsets.len());
    let start_ns = target.now_ns();
    for &offset in &case.offsets {
        let sent_ns = target.now_ns();
        match case.op {
            Op::Read => target.read(offset, case.request_bytes)?,
            Op::Write => target.write(offset, case.request_bytes)?,
            Op::SyncWrite => {
                target.write(offset, case.request_bytes)?;
                target.flush()?;
            }
            Op::Flush => target.flush()?,
        }
        let now_ns = target.now_ns();
        latencies.record(now_ns - sent_ns);
        each_ns.push(now_ns - sent_ns);
        if now_ns - start_ns > plan.test_ns && each_ns.len() >= REQUESTS_MIN {
            break;
        }
    }
    if case.op == Op::Write {
        target.flush()?;
    }
    let elapsed_ns = (target.now_ns() - start_ns).max(1);
    let figure = ProbeFigure::new(case, each_ns.len() as u64, elapsed_ns, &latencies.report());
    Ok((figure, each_ns))
}

/// Requests by powers of two of a microsecond.
fn histogram(latencies_ns: &[u64]) -> Vec<Bucket> {
    let mut buckets = std::collections::BTreeMap::new();
    for ns in latencies_ns {
        let to_us = ns.div_ceil(1000).max(1).next_power_of_two();
        *buckets.entry(to_us).or_insert(0) += 1;
    }
    buckets.into_iter().map(|(to_us, calls)| Bucket { to_us, calls }).collect()
}

/// Writes in [`WINDOWS`] windows, rests, and writes one more window. The time of each window is
/// bounded like that of a test. `step` is called behind each of the first ones.
fn sustained(
    target: &mut dyn ProbeTarget,
    plan: &Plan,
    random: bool,
    step: &mut dyn FnMut(),
) -> Result<Sustained> {
    let name = if random { "random-4k" } else { "sequential-512k" };
    let request_bytes = if random { SMALL_BYTES } else { LARGE_BYTES };
    let mut result = Sustained::new(name, request_bytes);
    let mut rng = SplitMix64::new(plan.seed ^ 0x5a5a);
    let mut written = 0;
    let window_bytes = (plan.sustained_bytes / WINDOWS).max(request_bytes);
    let mut window = |target: &mut dyn ProbeTarget| -> Result<f64> {
        let (start_ns, mut bytes) = (target.now_ns(), 0);
        while bytes < window_bytes && target.now_ns() - start_ns <= plan.test_ns {
            let offset = match random {
                true => rng.below(plan.region_bytes / SMALL_BYTES) * SMALL_BYTES,
                false => written % (plan.region_bytes / LARGE_BYTES * LARGE_BYTES),
            };
            target.write(offset, request_bytes)?;
            bytes += request_bytes;
            written += request_bytes;
        }
        result.written_bytes += bytes;
        Ok(bytes as f64 * 1e3 / (target.now_ns() - start_ns).max(1) as f64)
    };
    target.rest(LONG_REST_NS);
    let mut rates = Vec::new();
    for _ in 0..WINDOWS {
        rates.push(window(target)?);
        step();
    }
    target.flush()?;
    target.rest(LONG_REST_NS);
    let recovered = window(target)?;
    target.flush()?;
    result.finish(rates, recovered);
    Ok(result)
}
