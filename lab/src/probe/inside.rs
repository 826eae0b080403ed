//! Parameters of a device that single tests show: what is inside.
//!
//! ```text
//!   write k bytes, flush: k = 4, 8 ... KiB   first step of the time   pages programmed at once
//!   k runs of 16 KiB writes in turn          knee, to the run         log blocks, or streams
//!   open runs + 1, d bytes apart, in turn    least d that merges      allocation unit
//!   writes that nobody flushes               where they slow down     volatile cache
//!   64 reads at once, and one                the rates                parallel reads
//!   write, flush                                                      time of a flush
//! ```
//!
//! Promises: nothing outside of the region is touched; every test is bounded by requests. A
//! parameter that no test shows is left out: `None` is "not seen", never "none there". Assumes that
//! the region is a whole number of allocation units and that the device does nothing else.
//!
//! The interleaved test is flashbench's (`--open-au`, Arnd Bergmann); the volatile cache follows
//! from two equations, the bytes until the stall and the rate after it. Tested in `tests.rs` on
//! every profile.

use serde::Serialize;
use syncline_device::SplitMix64;

use crate::error::Result;
use crate::probe::target::ProbeTarget;
use crate::probe::{Plan, REST_NS};

const KIB: u64 = 1024;
const STEP_BYTES: u64 = 4 * KIB;
/// Largest write of the page test, bytes.
const PAGES_BYTES_MAX: u64 = 256 * KIB;
/// A write takes this much longer at least where one more page is programmed, nanoseconds.
const STEP_NS: u64 = 50_000;
/// Requests of the interleaved tests, bytes of all runs of one together, and the least number of
/// requests of a run.
const RUN_BYTES: u64 = 16 * KIB;
const RUNS_BYTES: u64 = 4 << 20;
const ROUNDS: u64 = 4;
/// Distance of one interleaved test from the next: more than a unit.
const BASE_BYTES: u64 = 16 << 20;
/// Most runs at once.
const RUNS_MAX: u64 = 64;
/// A write of more runs than are open is this much slower.
const KNEE: f64 = 1.5;
/// Writes of the cache test: enough to fill the largest cache, 64 MiB.
const BURST_BYTES: u64 = 64 << 20;
const BURST_REQUEST_BYTES: u64 = 16 * KIB;
/// So many writes that together take so many times as long as the first ones wait for the flash.
const FIRST: usize = 8;
const WAITING: usize = 32;
const STALL: f64 = 1.2;
const READS: u64 = 512;

/// Parameters that were seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inside {
    /// Bytes of the pages that are programmed at once: effective page times dies.
    pub program_bytes: Option<u64>,
    /// Runs of writes that the device keeps open: log blocks, or streams. Nothing if no number was
    /// too many.
    pub open_runs: Option<u64>,
    /// Bytes of the unit that is merged; nothing if nothing is.
    pub allocation_unit_bytes: Option<u64>,
    /// Bytes of the volatile cache.
    pub cache_bytes: Option<u64>,
    /// A flush after a write of 4 KiB, microseconds.
    pub flush_us: f64,
    /// Rate of reads of 4 KiB, 64 at once, to that of one at a time.
    pub parallel_reads: f64,
}

impl Inside {
    /// A sentence for each parameter.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(open) = self.open_runs {
            lines.push(format!("open runs: {open}; one more write run at a time is slower"));
        }
        if let Some(bytes) = self.allocation_unit_bytes {
            let mib = bytes as f64 / f64::from(1 << 20);
            lines.push(format!("allocation unit: {mib} MiB; so much is merged"));
        }
        if let Some(bytes) = self.program_bytes {
            lines.push(format!("pages programmed at once: {} KiB", bytes / KIB));
        }
        lines.push(match self.cache_bytes {
            Some(bytes) => format!("volatile cache: {} KiB", bytes / KIB),
            None => "volatile cache: none seen".to_owned(),
        });
        lines.push(format!("flush after a write of 4 KiB: {:.0} us", self.flush_us));
        lines.push(format!(
            "64 reads at once: {:.1} times as fast as single ones",
            self.parallel_reads
        ));
        lines
    }
}

/// Runs the tests on a target that may be written and whose region was written once.
pub fn inside(target: &mut dyn ProbeTarget, plan: &Plan) -> Result<Inside> {
    let mut tests =
        Tests { target, region_bytes: plan.region_bytes, seed: plan.seed, base_bytes: 0 };
    let open_runs = tests.open_runs()?;
    let [idle_us, flush_us] = tests.flush_us()?;
    Ok(Inside {
        program_bytes: tests.program_bytes()?,
        open_runs,
        allocation_unit_bytes: match open_runs {
            Some(open) => tests.allocation_unit(open)?,
            None => None,
        },
        flush_us,
        // A flush that has nothing to write costs no more than an idle one.
        cache_bytes: match flush_us > idle_us * KNEE {
            true => tests.cache_bytes()?,
            false => None,
        },
        parallel_reads: tests.parallel_reads()?,
    })
}

struct Tests<'a> {
    target: &'a mut dyn ProbeTarget,
    region_bytes: u64,
    seed: u64,
    /// Begin of the last interleaved test.
    base_bytes: u64,
}

impl Tests<'_> {
    fn rest(&mut self) -> Result<()> {
        self.target.flush()?;
        self.target.rest(REST_NS);
        Ok(())
    }

    /// Time of a write at `offset` and a flush.
    fn sync_ns(&mut self, offset: u64, bytes: u64) -> Result<u64> {
        let start_ns = self.target.now_ns();
        self.target.write(offset, bytes)?;
        self.target.flush()?;
        Ok(self.target.now_ns() - start_ns)
    }

    /// The least number of bytes whose write takes one program more than 4 KiB do.
    fn program_bytes(&mut self) -> Result<Option<u64>> {
        let mut times_ns = Vec::new();
        let mut place = 0;
        for steps in 1..=PAGES_BYTES_MAX / STEP_BYTES + 1 {
            // The write before it is one of whole pages, and opens the unit if that is a new one.
            self.sync_ns(place, PAGES_BYTES_MAX)?;
            let behind = place + PAGES_BYTES_MAX;
            times_ns.push(self.sync_ns(behind, steps * STEP_BYTES)?);
            place = (behind + PAGES_BYTES_MAX) % (self.region_bytes - 2 * PAGES_BYTES_MAX);
        }
        let steps: Vec<u64> =
            times_ns.windows(2).map(|two| two[1].saturating_sub(two[0])).collect();
        let most = steps.iter().copied().max().unwrap_or(0);
        // A time that falls again right after is a collection.
        let stays = |n: usize| {
            times_ns.get(n + 2).is_none_or(|next_ns| *next_ns > times_ns[n] + steps[n] / 2)
        };
        // The first page of another die waits for its way too, but not for a program.
        let program_ns = (most / 5 * 4).max(STEP_NS);
        let first = (0..steps.len()).find(|n| steps[*n] > program_ns && stays(*n));
        Ok(first.map(|before| (before as u64 + 1) * STEP_BYTES))
    }

    /// Mean time of writes of `runs` runs in turn, `apart` bytes from each other, after a round
    /// that opens them; `slow_ns` ends the test as soon as the mean is certain to be longer.
    fn interleaved_ns(
        &mut self,
        (runs, rounds): (u64, u64),
        apart: u64,
        slow_ns: u64,
    ) -> Result<u64> {
        self.rest()?;
        let most = slow_ns.saturating_mul(rounds * runs);
        // Elsewhere than the test before, whose log blocks are half full.
        self.base_bytes = (self.base_bytes + BASE_BYTES) % self.region_bytes;
        let mut start_ns = self.target.now_ns();
        for round in 0..=rounds {
            for run in 0..runs {
                let offset = self.base_bytes + run * apart + round * RUN_BYTES;
                self.target.write(offset % self.region_bytes, RUN_BYTES)?;
                if round > 0 && self.target.now_ns() - start_ns > most {
                    return Ok(slow_ns);
                }
            }
            if round == 0 {
                start_ns = self.target.now_ns();
            }
        }
        Ok((self.target.now_ns() - start_ns) / (rounds * runs))
    }

    fn open_runs(&mut self) -> Result<Option<u64>> {
        let region = self.region_bytes;
        let most = RUNS_MAX.min(region / RUNS_BYTES);
        let rounds = |runs: u64| (RUNS_BYTES / RUN_BYTES / runs).max(ROUNDS);
        let one_ns = self.interleaved_ns((1, rounds(1)), 0, u64::MAX)?;
        let slow_ns = (one_ns as f64 * KNEE) as u64;
        let mut is_slow = |runs: u64| -> Result<bool> {
            let apart = region / runs / RUN_BYTES * RUN_BYTES;
            Ok(self.interleaved_ns((runs, rounds(runs)), apart, slow_ns)? >= slow_ns)
        };
        let mut fast = 1;
        while fast * 2 <= most && !is_slow(fast * 2)? {
            fast *= 2;
        }
        let mut slow = fast * 2;
        if slow > most {
            return Ok(None);
        }
        while slow - fast > 1 {
            let middle = (fast + slow) / 2;
            if is_slow(middle)? { slow = middle } else { fast = middle }
        }
        Ok(Some(fast))
    }

    /// The least distance at which one run more than are open no longer share units: `open` units
    /// hold `open + 1` runs that are less than a unit apart.
    fn allocation_unit(&mut self, open: u64) -> Result<Option<u64>> {
        // Few rounds: a log block that is full is merged too.
        let runs = open + 1;
        let near = ((ROUNDS + 1) * RUN_BYTES).next_power_of_two();
        let near_ns = self.interleaved_ns((runs, ROUNDS), near, u64::MAX)?;
        let slow_ns = (near_ns as f64 * KNEE) as u64;
        let mut apart = near;
        while apart * runs <= self.region_bytes {
            if self.interleaved_ns((runs, ROUNDS), apart, slow_ns)? >= slow_ns {
                return Ok(Some(apart));
            }
            apart *= 2;
        }
        Ok(None)
    }

    /// Mean time of a flush without a write before it, and with one, microseconds.
    fn flush_us(&mut self) -> Result<[f64; 2]> {
        const FLUSHES: u64 = 16;
        let mut sums_ns = [0; 2];
        self.rest()?;
        for n in 0..FLUSHES {
            for (sum_ns, written) in sums_ns.iter_mut().zip([false, true]) {
                if written {
                    self.target.write(n * STEP_BYTES, STEP_BYTES)?;
                }
                let start_ns = self.target.now_ns();
                self.target.flush()?;
                *sum_ns += self.target.now_ns() - start_ns;
            }
        }
        Ok(sums_ns.map(|ns| ns as f64 / FLUSHES as f64 / 1e3))
    }

    /// Bytes until a write waits, less those that were written meanwhile at the later rate. None if
    /// no write waits: there is no cache, or the flash is as fast as the bus.
    fn cache_bytes(&mut self) -> Result<Option<u64>> {
        self.rest()?;
        let count = BURST_BYTES.min(self.region_bytes) / BURST_REQUEST_BYTES;
        let mut ends_ns = vec![0];
        let start_ns = self.target.now_ns();
        for n in 0..count {
            self.target.write(n * BURST_REQUEST_BYTES, BURST_REQUEST_BYTES)?;
            ends_ns.push(self.target.now_ns() - start_ns);
        }
        let first_ns = ends_ns.windows(2).take(FIRST).map(|two| two[1] - two[0]).min();
        let first_ns = first_ns.unwrap_or(0);
        let limit = (STALL * first_ns as f64) as u64 * WAITING as u64;
        let waits = |n: &usize| ends_ns[n + WAITING] - ends_ns[*n] > limit;
        let Some(stall) = (FIRST..ends_ns.len() / 3).find(waits) else { return Ok(None) };
        // The rate of the flash, from as many writes after the stall as before it.
        let (from, to) = (stall + WAITING, (12 * stall + 12 * WAITING).min(ends_ns.len() - 1));
        let bytes = |writes: usize| (writes as u64 * BURST_REQUEST_BYTES) as f64;
        let per_ns = bytes(to - from) / (ends_ns[to] - ends_ns[from]).max(1) as f64;
        let held = (stall..from).map(|n| bytes(n) - ends_ns[n] as f64 * per_ns).fold(0.0, f64::max);
        Ok((held > bytes(2)).then_some(held as u64))
    }

    /// Rate of 4 KiB reads, 64 of them at once, to that of single ones.
    fn parallel_reads(&mut self) -> Result<f64> {
        self.rest()?;
        let mut took_ns = [0; 2];
        for (took_ns, at_once) in took_ns.iter_mut().zip([1, 64]) {
            let mut rng = SplitMix64::new(self.seed);
            let slots = self.region_bytes / STEP_BYTES;
            let start_ns = self.target.now_ns();
            for _ in 0..READS / at_once {
                let places: Vec<u64> =
                    (0..at_once).map(|_| rng.below(slots) * STEP_BYTES).collect();
                self.target.read_all(&places, STEP_BYTES)?;
            }
            *took_ns = self.target.now_ns() - start_ns;
        }
        Ok(took_ns[0] as f64 / took_ns[1].max(1) as f64)
    }
}
