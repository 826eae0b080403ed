//! A device that passes everything on and estimates the costs of its requests.
//!
//! ```text
//!   flush | w w w ... | flush | w w | flush        an interval: writes and the flush that ends it
//!           time = flush_ns + byte_ns * bytes + run_ns * runs
//!   run: writes of which each begins where the one before it ended
//! ```
//!
//! The three costs are the least squares of the last intervals ([`INTERVALS_KEPT`], the older ones
//! count less), none below zero. They begin with assumed ones ([`Costs::ASSUMED`]), which weigh the
//! less the further devices lie apart in them. A flush and the writes before it are taken together
//! because a volatile cache answers writes at once and pays for them in the flush.
//!
//! Promises
//! - Costs follow from requests and the clock alone: equal runs in virtual time have equal costs.
//! - An interval in which no time passed says nothing and is left out.
//! - Constant memory; two readings of the clock for each batch.
//!
//! Requests of several threads at once count their waiting for each other. Tested below.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{BlockDevice, Clock, DeviceError, Geometry, Op, Request};

/// Weight of all older intervals together, in intervals.
const INTERVALS_KEPT: f64 = 256.0;
/// Longer intervals count less, as if they had so many bytes: in them the parts of a device work at
/// the same time.
const LONG_BYTES: f64 = 262_144.0;
/// Distance of the costs of devices from the assumed ones: 2 ms of flushes, 60 ns of bytes, 10 ms
/// of addresses.
const SPREAD_NS: [f64; COSTS] = [2e6, 60.0, 1e7];
/// Distance of the time of an interval from that of its costs.
const NOISE_NS: f64 = 5e6;
const COSTS: usize = 3;

/// Time that a device takes for writes and flushes, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A flush, and what an interval costs beside its bytes and runs, in nanoseconds.
    pub flush_ns: f64,
    /// A byte, in nanoseconds.
    pub byte_ns: f64,
    /// Going to an address that does not follow the last one, in nanoseconds.
    pub run_ns: f64,
}

impl Costs {
    /// Costs of a device of which nothing is known: those measured of the profile of an eMMC of
    /// 2012, `nexus7-emmc`.
    pub const ASSUMED: Costs = Costs { flush_ns: 1.2e6, byte_ns: 60.0, run_ns: 3.5e6 };

    fn from_array([flush_ns, byte_ns, run_ns]: [f64; COSTS]) -> Costs {
        Costs { flush_ns, byte_ns, run_ns }
    }
}

/// Sums of the normal equations, and the interval that has not ended.
struct Sums {
    /// Products of two of [1, bytes, runs].
    squares: [[f64; COSTS]; COSTS],
    /// Products of one of them and the time.
    times: [f64; COSTS],
    bytes: u64,
    runs: u64,
    time_ns: u64,
    /// End of the last write.
    end_bytes: u64,
}

impl Sums {
    fn new() -> Sums {
        let (mut squares, mut times) = ([[0.0; COSTS]; COSTS], [0.0; COSTS]);
        let assumed = [Costs::ASSUMED.flush_ns, Costs::ASSUMED.byte_ns, Costs::ASSUMED.run_ns];
        for (n, (spread_ns, cost)) in SPREAD_NS.into_iter().zip(assumed).enumerate() {
            squares[n][n] = (NOISE_NS / spread_ns) * (NOISE_NS / spread_ns);
            times[n] = squares[n][n] * cost;
        }
        Sums { squares, times, bytes: 0, runs: 0, time_ns: 0, end_bytes: 0 }
    }

    /// Adds the writes of a batch. True if it ended the interval.
    fn add(&mut self, batch: &[Request<'_>], took_ns: u64) -> bool {
        let is_part = |request: &Request<'_>| matches!(request.op, Op::Write { .. } | Op::Flush);
        if !batch.iter().all(is_part) {
            return false;
        }
        let mut ended = false;
        for request in batch {
            if let Op::Write { fua, .. } = request.op {
                self.runs += u64::from(request.offset_bytes != self.end_bytes);
                self.bytes += request.len_bytes();
                self.end_bytes = request.offset_bytes + request.len_bytes();
                ended |= fua;
            } else {
                ended = true;
            }
        }
        self.time_ns += took_ns;
        ended
    }

    fn end_interval(&mut self) {
        let (bytes, runs) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.runs));
        let time_ns = std::mem::take(&mut self.time_ns) as f64;
        if bytes == 0 || time_ns == 0.0 {
            return;
        }
        let weight = (LONG_BYTES / bytes as f64).min(1.0);
        let of = [1.0, bytes as f64, runs as f64].map(|factor| factor * weight);
        let kept = 1.0 - 1.0 / INTERVALS_KEPT;
        for (n, row) in self.squares.iter_mut().enumerate() {
            for (m, sum) in row.iter_mut().enumerate() {
                *sum = *sum * kept + of[n] * of[m];
            }
            self.times[n] = self.times[n] * kept + of[n] * time_ns * weight;
        }
    }

    /// The costs of least squares, none below zero.
    fn costs(&self) -> Costs {
        let mut used = [true; COSTS];
        loop {
            let found = self.solve(used);
            let worst = (0..COSTS).min_by(|&a, &b| found[a].total_cmp(&found[b]));
            match worst {
                Some(n) if found[n] < 0.0 => used[n] = false,
                _ => return Costs::from_array(found),
            }
        }
    }

    /// Gauss-Jordan elimination of the equations of the costs that are used; the others are zero.
    fn solve(&self, used: [bool; COSTS]) -> [f64; COSTS] {
        let (mut rows, mut right) = (self.squares, self.times);
        for n in (0..COSTS).filter(|&n| !used[n]) {
            rows[n] = [0.0; COSTS];
            rows.iter_mut().for_each(|row| row[n] = 0.0);
            (rows[n][n], right[n]) = (1.0, 0.0);
        }
        for n in 0..COSTS {
            // Positive: the assumed costs keep the equations definite.
            let (pivot, value) = (rows[n], right[n]);
            for m in (0..COSTS).filter(|&m| m != n) {
                let factor = rows[m][n] / pivot[n];
                rows[m].iter_mut().zip(pivot).for_each(|(at, from)| *at -= factor * from);
                right[m] -= factor * value;
            }
        }
        std::array::from_fn(|n| right[n] / rows[n][n])
    }
}

/// Passes requests on to `D` and estimates their costs. See the module's description.
pub struct CostDevice<D> {
    inner: D,
    clock: Arc<dyn Clock>,
    sums: Arc<Mutex<Sums>>,
}

impl<D: BlockDevice> CostDevice<D> {
    /// Measures requests to `inner` by `clock`.
    pub fn new(inner: D, clock: Arc<dyn Clock>) -> CostDevice<D> {
        CostDevice { inner, clock, sums: Arc::new(Mutex::new(Sums::new())) }
    }

    /// Measures requests to `inner`, another part of the same device, together with those of this
    /// one.
    pub fn beside<E: BlockDevice>(&self, inner: E) -> CostDevice<E> {
        CostDevice { inner, clock: Arc::clone(&self.clock), sums: Arc::clone(&self.sums) }
    }

    /// Costs of the last requests.
    pub fn costs(&self) -> Costs {
        self.sums.lock().costs()
    }
}

impl<D: BlockDevice> BlockDevice for CostDevice<D> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let from_ns = self.clock.now_ns();
        self.inner.submit(batch)?;
        let took_ns = self.clock.now_ns().saturating_sub(from_ns);
        let mut sums = self.sums.lock();
        if sums.add(batch, took_ns) {
            sums.end_interval();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice, Origin, VirtualClock};

    const ORIGIN: Origin = Origin::new(Kind::Other, true);
    const PAGE: usize = 4096;

    /// Takes exactly what its costs say, by a clock that only it moves.
    struct Exact {
        inner: MemoryDevice,
        clock: Arc<VirtualClock>,
        costs: Costs,
        end_bytes: Mutex<u64>,
    }

    impl BlockDevice for Exact {
        fn geometry(&self) -> Geometry {
            self.inner.geometry()
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            self.inner.submit(batch)?;
            let mut end_bytes = self.end_bytes.lock();
            for request in batch {
                let took_ns = match request.op {
                    Op::Flush => self.costs.flush_ns,
                    Op::Write { .. } => {
                        let goes = f64::from(u8::from(request.offset_bytes != *end_bytes));
                        *end_bytes = request.offset_bytes + request.len_bytes();
                        goes * self.costs.run_ns + request.len_bytes() as f64 * self.costs.byte_ns
                    }
                    _ => 7e9,
                };
                self.clock.sleep_until(self.clock.now_ns() + took_ns as u64);
            }
            Ok(())
        }
    }

    fn device(costs: Costs) -> CostDevice<Exact> {
        let clock = Arc::new(VirtualClock::default());
        let (inner, end_bytes) = (MemoryDevice::new(64 << 20), Mutex::new(0));
        let exact = Exact { inner, clock: clock.clone(), costs, end_bytes };
        CostDevice::new(exact, clock)
    }

    /// An interval of `runs` runs of `pages` pages.
    fn interval(device: &CostDevice<Exact>, runs: usize, pages: usize) {
        let bytes = vec![1; pages * PAGE];
        let mut requests: Vec<_> = (0..runs)
            .map(|n| Request {
                offset_bytes: ((n + 1) * (pages + 1) * PAGE) as u64,
                op: Op::Write { from: vec![&bytes], fua: false },
                origin: ORIGIN,
            })
            .collect();
        device.submit(&mut requests).unwrap();
        // Reads and discards are not part of it.
        device.read(0, &mut [0; 512], ORIGIN).unwrap();
        device.flush(ORIGIN).unwrap();
    }

    #[test]
    fn costs_are_found_whatever_was_assumed() {
        let sd = Costs { flush_ns: 5e6, byte_ns: 200.0, run_ns: 5e7 };
        let ufs = Costs { flush_ns: 2e5, byte_ns: 17.0, run_ns: 0.0 };
        for real in [sd, ufs] {
            let device = device(real);
            for n in 0..600 {
                interval(&device, 1 + n % 13, 1 + n % 7);
            }
            let found = device.costs();
            let near = |found: f64, real: f64| (found - real).abs() <= real * 0.03 + 2e4;
            assert!(near(found.flush_ns, real.flush_ns), "{found:?} of {real:?}");
            assert!(near(found.byte_ns * 1e5, real.byte_ns * 1e5), "{found:?} of {real:?}");
            assert!(near(found.run_ns, real.run_ns), "{found:?} of {real:?}");
        }
    }

    #[test]
    fn a_device_that_takes_no_time_leaves_what_was_assumed() {
        let device = device(Costs { flush_ns: 0.0, byte_ns: 0.0, run_ns: 0.0 });
        let clock = Arc::new(VirtualClock::default());
        let memory = CostDevice::new(MemoryDevice::new(1 << 20), clock);
        memory.write(0, &[1; PAGE], ORIGIN).unwrap();
        memory.flush(ORIGIN).unwrap();
        // Flushes alone say nothing of writes.
        device.flush(ORIGIN).unwrap();
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        for found in [memory.costs(), device.costs()] {
            assert!(close(found.flush_ns, Costs::ASSUMED.flush_ns), "{found:?}");
            assert!(close(found.byte_ns, Costs::ASSUMED.byte_ns), "{found:?}");
            assert!(close(found.run_ns, Costs::ASSUMED.run_ns), "{found:?}");
        }
    }

    #[test]
    fn no_cost_is_below_zero() {
        // Runs take less time the more there are: no positive cost fits.
        let device = device(Costs { flush_ns: 1e6, byte_ns: 50.0, run_ns: 0.0 });
        for n in 0..300 {
            interval(&device, 1 + n % 5, 12 / (1 + n % 5));
        }
        let found = device.costs();
        assert!(found.flush_ns >= 0.0 && found.byte_ns >= 0.0 && found.run_ns >= 0.0, "{found:?}");
        assert!(found.run_ns < 5e4, "{found:?}");
    }

    #[test]
    fn a_failed_request_and_its_time_do_not_count() {
        let device = device(Costs { flush_ns: 1e6, byte_ns: 50.0, run_ns: 1e6 });
        device.write(64 << 20, &[0; PAGE], ORIGIN).unwrap_err();
        assert_eq!(device.sums.lock().bytes, 0);
    }
}
