//! A device that passes everything on and estimates the costs of its requests.
//!
//! ```text
//!   flush | w w w ... | flush | w w | fua       an interval: writes, to the flush or FUA write
//!           time = write_ns + byte_ns * bytes + sum of the ways to its runs, + flush_ns
//!   bytes: in whole units, since flash programs whole pages, of several dies at once
//!   run: writes of which each begins where the one before it ended
//!   back_ns: a run that goes on where one of the last runs ended
//!   near_ns: one that begins at most 4 MiB from the end of the one before it
//!   run_ns: any other
//! ```
//!
//! The costs are the least squares of the last intervals ([`INTERVALS_KEPT`], the older ones count
//! less), none below zero. An error counts as a share of the time that was expected, so that the
//! costs of a fast device are found as soon as those of a slow one. They begin with assumed ones
//! ([`Costs::ASSUMED`]), which weigh the less the further devices lie apart in them: one interval
//! says more of a flush than the assumption, and a run may cost nothing or the time of a merge of
//! 4 MiB. The unit is that of 4, 8 and 16 KiB whose costs foretell the intervals best. A flush and
//! the writes before it are taken together because a volatile cache answers writes at once and pays
//! for them in the flush. Without one a batch of writes is an interval.
//!
//! Promises
//! - Costs follow from requests and the clock alone: equal runs in virtual time have equal costs.
//! - An interval in which no time passed says nothing and is left out.
//! - Constant memory; two readings of the clock for each batch.
//!
//! Requests of several threads at once count their waiting for each other. Tested below. This file
//! is long because the estimate and the tests that give it every kind of device belong together.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{BlockDevice, Clock, DeviceError, Geometry, Op, Request};

/// Weight of all older intervals together, in intervals.
const INTERVALS_KEPT: f64 = 256.0;
/// Flash programs whole pages, of some planes or dies at once: less takes as long. The first one is
/// assumed.
const UNITS_BYTES: [u64; 3] = [16 << 10, 8 << 10, 4 << 10];
/// Runs that can be gone on with: files that are written in turn, and the log.
const STREAMS: usize = 4;
/// Distance of a near run: the allocation unit of most cards, within which they write a page and
/// beyond which some of them merge a whole unit.
const NEAR_BYTES: u64 = 4 << 20;
/// Distance of the costs of devices from the assumed ones: 1.4 ms of writes and of flushes, 60 ns
/// of bytes, 100 ms of ways.
const SPREAD_NS: [f64; COSTS] = [1.41e6, 1.41e6, 60.0, 1e8, 1e8, 1e8];
/// Distance of the time of an interval from that of its costs, as a share of it.
const NOISE: f64 = 0.5;
/// Shortest time that an interval is expected to take, in nanoseconds.
const EXPECTED_NS_MIN: f64 = 1e3;
/// Times that an interval without ways may take of what is expected.
const OUTLIER: f64 = 4.0;
/// Weight of all that was before an interval that says that the device has become slow.
const KEPT_OF_OLD: f64 = 0.5;
/// A smaller unit has to err less than this share of the error of a larger one.
const BETTER: f64 = 0.7;
const COSTS: usize = 6;
/// The first cost that is a way.
const FIRST_WAY: usize = 3;

/// Time that a device takes for writes and flushes, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// An interval beside its bytes and ways if a FUA write ends it, in nanoseconds.
    pub write_ns: f64,
    /// Time that a flush at its end adds, in nanoseconds. Without a cache each interval has one.
    pub flush_ns: f64,
    /// A byte of whole units, in nanoseconds: see [`Costs::interval_ns`].
    pub byte_ns: f64,
    /// Smallest number of bytes that a write takes time for; less takes as long.
    pub unit_bytes: u64,
    /// Going on where one of the last runs ended, in nanoseconds: back to the log, or to a file
    /// that is written in order.
    pub back_ns: f64,
    /// Going to an address at most 4 MiB from the end of the last write, in nanoseconds.
    pub near_ns: f64,
    /// Going to any other address that does not follow the last one, in nanoseconds.
    pub run_ns: f64,
}

impl Costs {
    /// Costs of a device of which nothing is known: those measured of the profile of an eMMC of
    /// 2012, `nexus7-emmc`.
    pub const ASSUMED: Costs = Costs {
        write_ns: 4e5,
        flush_ns: 8e5,
        byte_ns: 60.0,
        unit_bytes: UNITS_BYTES[0],
        back_ns: 1e6,
        near_ns: 2.5e6,
        run_ns: 3.5e6,
    };

    /// Time of the bytes between two flushes, in nanoseconds: whole units.
    pub fn interval_ns(&self, bytes: u64) -> f64 {
        bytes.next_multiple_of(self.unit_bytes) as f64 * self.byte_ns
    }

    /// Time of an interval beside its bytes and ways, in nanoseconds: with a flush at its end, or a
    /// FUA write.
    pub fn end_ns(&self, flush: bool) -> f64 {
        self.write_ns + if flush { self.flush_ns } else { 0.0 }
    }

    /// True if going from one of these bytes to the other is going to a near address.
    pub fn is_near(from_bytes: u64, to_bytes: u64) -> bool {
        from_bytes.abs_diff(to_bytes) <= NEAR_BYTES
    }

    const fn from_array(found: [f64; COSTS], unit_bytes: u64) -> Costs {
        let [write_ns, flush_ns, byte_ns, back_ns, near_ns, run_ns] = found;
        Costs { write_ns, flush_ns, byte_ns, unit_bytes, back_ns, near_ns, run_ns }
    }

    fn to_array(self) -> [f64; COSTS] {
        let ways = [self.back_ns, self.near_ns, self.run_ns];
        [self.write_ns, self.flush_ns, self.byte_ns, ways[0], ways[1], ways[2]]
    }
}

/// Costs if writes take time for whole units of one size.
struct Fit {
    /// Sums of the normal equations: products of two of [1, flushes, bytes, resumed runs, near
    /// runs, other runs].
    squares: [[f64; COSTS]; COSTS],
    /// Products of one of them and the time.
    times: [f64; COSTS],
    costs: Costs,
    /// Sum of the squares of the errors, as shares of the time.
    misfit: f64,
    /// Time of the last interval without ways.
    straight_ns: f64,
    /// The first of the assumed costs that shrink with those that were measured.
    shrinks_from: usize,
}

/// The fits, and the interval that has not ended.
struct Sums {
    fits: [Fit; UNITS_BYTES.len()],
    bytes: u64,
    flushed: bool,
    runs: Runs,
    time_ns: u64,
    /// Ends of the last runs, the newest first.
    ends: [u64; STREAMS],
}

/// Runs of an interval, by the way to them.
#[derive(Default)]
struct Runs {
    resumed: f64,
    near: f64,
    far: f64,
}

impl Sums {
    fn new(geometry: &Geometry) -> Sums {
        let is_of_today = geometry.fua && geometry.volatile_cache;
        let shrinks_from = if is_of_today { 0 } else { FIRST_WAY };
        let fit = |unit_bytes| Fit {
            squares: [[0.0; COSTS]; COSTS],
            times: [0.0; COSTS],
            costs: Costs { unit_bytes, ..Costs::ASSUMED },
            misfit: 0.0,
            straight_ns: 0.0,
            shrinks_from,
        };
        Sums {
            fits: UNITS_BYTES.map(fit),
            bytes: 0,
            flushed: false,
            runs: Runs::default(),
            time_ns: 0,
            ends: [0; STREAMS],
        }
    }

    /// Adds the writes of a batch. True if it ended the interval.
    fn add(&mut self, batch: &[Request<'_>], took_ns: u64) -> bool {
        // A barrier does not wait for what was written.
        let is_part = |request: &Request<'_>| {
            matches!(request.op, Op::Write { .. } | Op::Flush) && !request.is_barrier()
        };
        if !batch.iter().all(is_part) {
            return false;
        }
        let mut ended = false;
        for request in batch {
            if let Op::Write { fua, .. } = request.op {
                self.add_run(request.offset_bytes, request.len_bytes());
                ended |= fua;
            } else {
                self.flushed = true;
                ended = true;
            }
        }
        self.time_ns += took_ns;
        ended
    }

    fn add_run(&mut self, start_bytes: u64, len_bytes: u64) {
        let stream = self.ends.iter().position(|end| *end == start_bytes);
        match stream {
            Some(0) => {}
            Some(_) => self.runs.resumed += 1.0,
            None if Costs::is_near(self.ends[0], start_bytes) => self.runs.near += 1.0,
            None => self.runs.far += 1.0,
        }
        self.ends[..=stream.unwrap_or(STREAMS - 1)].rotate_right(1);
        self.ends[0] = start_bytes + len_bytes;
        self.bytes += len_bytes;
    }

    fn end_interval(&mut self, is_durable: bool) {
        let (bytes, time_ns) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.time_ns));
        let flushes = u64::from(std::mem::take(&mut self.flushed) || is_durable);
        let Runs { resumed, near, far } = std::mem::take(&mut self.runs);
        if bytes == 0 || time_ns == 0 {
            return;
        }
        let (ends, ways) = ([flushes, bytes], [resumed, near, far]);
        self.fits.iter_mut().for_each(|fit| fit.add(ends, ways, time_ns as f64));
    }

    fn costs(&self) -> Costs {
        let mut fits = self.fits.iter();
        let first = fits.next().map_or((0.0, Costs::ASSUMED), |fit| (fit.misfit, fit.costs));
        fits.fold(first, |best, fit| match fit.misfit < BETTER * best.0 {
            true => (fit.misfit, fit.costs),
            false => best,
        })
        .1
    }
}

impl Fit {
    fn add(&mut self, [flushes, bytes]: [u64; 2], ways: [f64; 3], time_ns: f64) {
        let unit_bytes = self.costs.unit_bytes;
        let bytes = bytes.next_multiple_of(unit_bytes);
        let [resumed, near, far] = ways;
        let of = [1.0, flushes as f64, bytes as f64, resumed, near, far];
        let expected: Vec<f64> = of.iter().zip(self.costs.to_array()).map(|(a, b)| a * b).collect();
        let (straight, ways) = expected.split_at(FIRST_WAY);
        let straight = straight.iter().sum::<f64>().max(EXPECTED_NS_MIN);
        let ways: f64 = ways.iter().sum();
        // What goes straight on and takes much longer pays for a way that was taken before; not if
        // the last one took as long.
        let is_straight = resumed + near + far == 0.0;
        let limit_ns =
            if is_straight { OUTLIER * straight.max(self.straight_ns) } else { f64::MAX };
        if is_straight {
            self.straight_ns = time_ns;
        }
        let time_ns = time_ns.min(limit_ns);
        let weight = (straight + ways).powi(-2);
        // A device that has become slow is not found among times of which each counts as a share.
        let is_new = is_straight && time_ns > OUTLIER * straight;
        let kept = if is_new { KEPT_OF_OLD } else { 1.0 - 1.0 / INTERVALS_KEPT };
        let error = (straight + ways - time_ns) / time_ns;
        self.misfit = self.misfit * kept + error.powi(2).min(1.0);
        for (n, row) in self.squares.iter_mut().enumerate() {
            for (m, sum) in row.iter_mut().enumerate() {
                *sum = *sum * kept + of[n] * of[m] * weight;
            }
            self.times[n] = self.times[n] * kept + of[n] * time_ns * weight;
        }
        self.costs = self.least_squares();
    }

    /// The costs of least squares, none below zero.
    fn least_squares(&self) -> Costs {
        let mut used = [true; COSTS];
        loop {
            let found = self.solve(used);
            let worst = (0..COSTS).min_by(|&a, &b| found[a].total_cmp(&found[b]));
            match worst {
                Some(n) if found[n] < 0.0 => used[n] = false,
                _ => return Costs::from_array(found, self.costs.unit_bytes),
            }
        }
    }

    /// Gauss-Jordan elimination of the equations of the costs that are used; the others are zero.
    /// The assumed costs keep the equations definite. A device that is faster than assumed is so on
    /// ways that it was not seen to go, too. One of today (with FUA and a cache) is so in all
    /// parts.
    fn solve(&self, used: [bool; COSTS]) -> [f64; COSTS] {
        let (mut rows, mut right) = (self.squares, self.times);
        let straight_ns = |costs: &Costs| costs.end_ns(true) + costs.interval_ns(UNITS_BYTES[0]);
        let share = (straight_ns(&self.costs) / straight_ns(&Costs::ASSUMED)).min(1.0);
        for (n, mut assumed) in Costs::ASSUMED.to_array().into_iter().enumerate() {
            let weight = (NOISE / SPREAD_NS[n]).powi(2);
            if n >= self.shrinks_from {
                assumed *= share;
            }
            rows[n][n] += weight;
            right[n] += weight * assumed;
        }
        for n in (0..COSTS).filter(|&n| !used[n]) {
            rows[n] = [0.0; COSTS];
            rows.iter_mut().for_each(|row| row[n] = 0.0);
            (rows[n][n], right[n]) = (1.0, 0.0);
        }
        for n in 0..COSTS {
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
        let sums = Arc::new(Mutex::new(Sums::new(&inner.geometry())));
        CostDevice { inner, clock, sums }
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
        let is_durable = !self.inner.geometry().volatile_cache;
        let mut sums = self.sums.lock();
        if sums.add(batch, took_ns) || is_durable {
            sums.end_interval(is_durable);
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
        ways: Mutex<Sums>,
    }

    const NOTHING: Costs = Costs::from_array([0.0; COSTS], UNITS_BYTES[0]);

    impl BlockDevice for Exact {
        fn geometry(&self) -> Geometry {
            Geometry { volatile_cache: true, ..self.inner.geometry() }
        }

        fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
            self.inner.submit(batch)?;
            let mut ways = self.ways.lock();
            for request in batch {
                let took_ns = match request.op {
                    // The interval pays for its bytes in whole units.
                    Op::Flush => {
                        let bytes = std::mem::take(&mut ways.bytes);
                        self.costs.flush_ns + self.costs.interval_ns(bytes)
                    }
                    Op::Write { .. } => {
                        ways.add_run(request.offset_bytes, request.len_bytes());
                        let Runs { resumed, near, far } = std::mem::take(&mut ways.runs);
                        let of = [0.0, 0.0, 0.0, resumed, near, far];
                        of.iter().zip(self.costs.to_array()).map(|(a, b)| a * b).sum()
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
        let inner = MemoryDevice::new(64 << 20);
        let ways = Mutex::new(Sums::new(&inner.geometry()));
        let exact = Exact { inner, clock: clock.clone(), costs, ways };
        CostDevice::new(exact, clock)
    }

    /// An interval of `runs` runs of `pages` pages, so many pages apart, from page `start` on.
    fn interval(device: &CostDevice<Exact>, start: usize, runs: usize, pages: usize, apart: usize) {
        let bytes = vec![1; pages * PAGE];
        let mut requests: Vec<_> = (0..runs)
            .map(|n| Request {
                offset_bytes: ((start + n * (pages + apart)) * PAGE) as u64,
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
        let ways = Costs { back_ns: 1e7, near_ns: 2e7, run_ns: 5e7, ..NOTHING };
        let sd = Costs { flush_ns: 5e6, byte_ns: 200.0, ..ways };
        let ufs = Costs { flush_ns: 2e5, byte_ns: 17.0, ..NOTHING };
        for real in [sd, ufs] {
            let device = device(real);
            let mut log = 0;
            for n in 0..600 {
                // As a volume does: syncs to a log, and now and then data elsewhere.
                interval(&device, log, 1, 1 + n % 7, 0);
                log += 1 + n % 7;
                match n % 10 {
                    0 => interval(&device, 4096, 1 + n / 10 % 3, 1 + n / 10 % 5, 1),
                    5 => interval(&device, 5120, 1 + n / 10 % 3, 1 + n / 10 % 5, 2048),
                    _ => {}
                }
            }
            let found = device.costs();
            let sums = |costs: Costs| {
                let [_, _, byte_ns, ways @ ..] = costs.to_array();
                [costs.end_ns(true), byte_ns, ways[0], ways[1], ways[2]]
            };
            for (found, real) in sums(found).into_iter().zip(sums(real)) {
                assert!((found - real).abs() <= real * 0.1 + 2e4, "{found:?} of {real:?}");
            }
        }
    }

    #[test]
    fn the_unit_of_a_device_is_found() {
        for unit_bytes in UNITS_BYTES {
            let device = device(Costs { flush_ns: 5e5, byte_ns: 150.0, unit_bytes, ..NOTHING });
            (0..300).for_each(|n| interval(&device, 64, 1, 1 + n % 7, 0));
            assert_eq!(device.costs().unit_bytes, unit_bytes);
        }
    }

    /// An estimate that is far too low does not make every time an outlier.
    #[test]
    fn a_device_that_becomes_slow_is_noticed() {
        let mut device = device(Costs { flush_ns: 1e4, byte_ns: 1.0, ..NOTHING });
        let mut at = 0;
        let mut straight = |device: &CostDevice<Exact>| {
            interval(device, at, 1, 2, 0);
            at += 2;
        };
        (0..600).for_each(|_| straight(&device));
        device.inner.costs.flush_ns = 5e6;
        (0..600).for_each(|_| straight(&device));
        let found = device.costs();
        assert!(found.interval_ns(8192) + found.end_ns(true) > 4e6, "{found:?}");
    }

    #[test]
    fn a_fast_device_is_known_after_four_syncs() {
        let device = device(Costs { flush_ns: 4e5, byte_ns: 4.0, ..NOTHING });
        (0..4).for_each(|n| interval(&device, n % 2 * 2048, 1, 1 + n, 0));
        let found = device.costs();
        assert!(found.end_ns(true) < 6e5 && found.run_ns < 3e5, "{found:?}");
    }

    #[test]
    fn a_device_that_takes_no_time_leaves_what_was_assumed() {
        let device = device(NOTHING);
        let clock = Arc::new(VirtualClock::default());
        let memory = CostDevice::new(MemoryDevice::new(1 << 20), clock);
        memory.write(0, &[1; PAGE], ORIGIN).unwrap();
        memory.flush(ORIGIN).unwrap();
        // Flushes alone say nothing of writes.
        device.flush(ORIGIN).unwrap();
        let close = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        for found in [memory.costs(), device.costs()] {
            let pairs = found.to_array().into_iter().zip(Costs::ASSUMED.to_array());
            assert!(pairs.into_iter().all(|(a, b)| close(a, b)), "{found:?}");
        }
    }

    #[test]
    fn no_cost_is_below_zero() {
        // Runs take less time the more there are: no positive cost fits.
        let device = device(Costs { flush_ns: 1e6, byte_ns: 50.0, ..NOTHING });
        for n in 0..300 {
            interval(&device, 64, 1 + n % 5, 12 / (1 + n % 5), 1);
        }
        let found = device.costs();
        assert!(found.to_array().iter().all(|cost| *cost >= 0.0), "{found:?}");
        assert!(found.near_ns < 5e4, "{found:?}");
    }

    #[test]
    fn a_failed_request_and_its_time_do_not_count() {
        let device = device(Costs { flush_ns: 1e6, byte_ns: 50.0, near_ns: 1e6, ..NOTHING });
        device.write(64 << 20, &[0; PAGE], ORIGIN).unwrap_err();
        assert_eq!(device.sums.lock().bytes, 0);
    }
}
