//! Latencies of synchronous calls: timed by the caller's clock, kept in a bounded histogram.

use hdrhistogram::Histogram;

use crate::latency::LONGEST_NS;

/// Times calls. Three significant digits, from 1 ns to one hour.
pub struct Timer {
    histogram: Histogram<u64>,
}

impl Default for Timer {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Timer { histogram: histogram.expect("the bounds and the precision are in range") }
    }
}

impl Timer {
    /// Times `call` by a clock in nanoseconds. A failed call is not recorded.
    pub fn time<T, E>(
        &mut self,
        now_ns: impl Fn() -> u64,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let start_ns = now_ns();
        let value = call()?;
        self.add_ns(now_ns().saturating_sub(start_ns));
        Ok(value)
    }

    /// Counts a call of this length.
    pub fn add_ns(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
    }

    /// Calls timed.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Microseconds that `percent` of 100 calls do not exceed; 0 without calls.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.histogram.value_at_percentile(percent) as f64 / 1e3
    }

    /// Slowest call in microseconds; 0 without calls.
    pub fn max_us(&self) -> f64 {
        self.histogram.max() as f64 / 1e3
    }
}
