//! Counters of the device: exact numbers first, ratios and percentiles for reports.
//!
//! Counts are of events, not of time; they are equal on every machine for equal requests. Wear is
//! per superblock. Latencies are of single commands, from submission to completion. Tested in
//! `tests/it/ftl.rs` (they add up) and here.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Running totals. Take one before and one after a phase and use [`Counters::since`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Flush commands.
    pub flushes: u64,
    /// Cache barriers.
    pub barriers: u64,
    /// Discard commands.
    pub discards: u64,
    /// Bytes the host read.
    pub read_bytes: u64,
    /// Bytes the host wrote.
    pub written_bytes: u64,
    /// Map units the host wrote (units written again while still in the buffer included).
    pub host_units: u64,
    /// Units that replaced a copy still in the write buffer: written by the host, never programmed.
    pub coalesced_units: u64,
    /// Effective pages programmed for data: host, collector and merges.
    pub page_programs: u64,
    /// Bytes of those pages, and of map pages.
    pub programmed_bytes: u64,
    /// Units of programmed pages that hold nothing: pages closed before they were full.
    pub padded_units: u64,
    /// Pages read from the cells for any reason but the map.
    pub page_reads: u64,
    /// Reads that a write smaller than its unit needed.
    pub rmw_reads: u64,
    /// Units copied by the garbage collector.
    pub gc_copies: u64,
    /// Superblocks moved because they were worn least (static wear levelling).
    pub wear_moves: u64,
    /// Superblocks collected.
    pub gc_runs: u64,
    /// Units copied by merges, and to complete the clusters of closed streams.
    pub merge_copies: u64,
    /// Merges in which a log or replacement block became the data block as it was.
    pub switch_merges: u64,
    /// Merges in which it did after missing units were copied into it.
    pub partial_merges: u64,
    /// Merges that copied all units of a superblock into a fresh one.
    pub full_merges: u64,
    /// Writes that opened a stream.
    pub stream_opens: u64,
    /// Streams closed to make room for another.
    pub stream_closes: u64,
    /// Map pages read because their segment was not in the map cache.
    pub map_reads: u64,
    /// Map pages programmed: dirty segments evicted, and streams closed.
    pub map_programs: u64,
    /// Superblocks erased.
    pub erases: u64,
    /// Erases of the area of map pages (one for each superblock's worth of map programs).
    pub map_erases: u64,
    /// Units unmapped by discard.
    pub discarded_units: u64,
    /// Pages programmed in the SLC write cache; their bytes are among the programmed ones.
    pub slc_programs: u64,
    /// Superblocks of the SLC write cache erased.
    pub slc_erases: u64,
    /// Units copied from the SLC write cache to the scheme behind it.
    pub slc_folded_units: u64,
    /// Commands after [`WAKE_NS`] or more without one.
    pub wakeups: u64,
}

/// Time without a command after which a device counts as asleep, nanoseconds. Linux suspends an
/// eMMC or a card then (`mmc_blk_probe`).
pub const WAKE_NS: u64 = 3_000_000_000;

macro_rules! difference {
    ($later:expr, $earlier:expr; $($field:ident),+ $(,)?) => {
        Counters { $($field: $later.$field.saturating_sub($earlier.$field)),+ }
    };
}

impl Counters {
    /// Difference since `earlier` was taken.
    pub fn since(&self, earlier: &Counters) -> Counters {
        difference!(self, earlier;
            reads, writes, flushes, barriers, discards, read_bytes, written_bytes, host_units,
            coalesced_units, page_programs, programmed_bytes, padded_units, page_reads, rmw_reads,
            gc_copies, wear_moves, gc_runs, merge_copies, switch_merges,
            partial_merges, full_merges, stream_opens, stream_closes, map_reads,
            map_programs, erases, map_erases, discarded_units, slc_programs, slc_erases,
            slc_folded_units, wakeups,
        )
    }

    /// Pages programmed: of data, of the map, and in the SLC write cache.
    pub fn programs(&self) -> u64 {
        self.page_programs + self.map_programs + self.slc_programs
    }

    /// Bytes programmed for each byte the host wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        if self.written_bytes == 0 {
            return 0.0;
        }
        self.programmed_bytes as f64 / self.written_bytes as f64
    }
}

/// Distribution of wear over the superblocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wear {
    /// Fewest erases of a superblock.
    pub erases_min: u32,
    /// Mean over all superblocks.
    pub erases_mean: f64,
    /// Most erases of a superblock.
    pub erases_max: u32,
}

impl Wear {
    /// Of the erase counts of all superblocks.
    pub fn of(erases: &[u32]) -> Wear {
        let sum: u64 = erases.iter().map(|&e| u64::from(e)).sum();
        Wear {
            erases_min: erases.iter().copied().min().unwrap_or(0),
            erases_mean: sum as f64 / erases.len().max(1) as f64,
            erases_max: erases.iter().copied().max().unwrap_or(0),
        }
    }
}

impl Wear {
    /// Erases that `percent` of 100 superblocks do not exceed; 0 without superblocks.
    pub fn percentile(erases: &[u32], percent: u32) -> u32 {
        let mut sorted = erases.to_vec();
        sorted.sort_unstable();
        let rank = (sorted.len() as u64 * u64::from(percent)).div_ceil(100).max(1) - 1;
        sorted.get(rank as usize).or(sorted.last()).copied().unwrap_or(0)
    }
}

/// Percentiles of one kind of command, microseconds (three significant digits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Commands.
    pub count: u64,
    /// Mean.
    pub latency_us_mean: f64,
    /// Median.
    pub latency_us_p50: f64,
    /// 95 of 100 are not slower.
    pub latency_us_p95: f64,
    /// 99 of 100 are not slower.
    pub latency_us_p99: f64,
    /// 999 of 1000 are not slower.
    pub latency_us_p999: f64,
    /// Slowest.
    pub latency_us_max: f64,
}

/// A latency histogram of bounded size: 1 ns to 1 h, three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

impl Latencies {
    /// Empty.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("1 < max and three digits are within what hdrhistogram takes");
        Latencies(histogram)
    }

    /// Adds one command.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Percentiles so far.
    pub fn report(&self) -> LatencyReport {
        let us = |q| self.0.value_at_quantile(q) as f64 / 1000.0;
        if self.0.is_empty() {
            return LatencyReport::default();
        }
        LatencyReport {
            count: self.0.len(),
            latency_us_mean: self.0.mean() / 1000.0,
            latency_us_p50: us(0.5),
            latency_us_p95: us(0.95),
            latency_us_p99: us(0.99),
            latency_us_p999: us(0.999),
            latency_us_max: self.0.max() as f64 / 1000.0,
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.reset();
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies::new()
    }
}

/// Everything a device can tell about its past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Totals.
    pub counters: Counters,
    /// Wear of the superblocks for data.
    pub wear: Wear,
    /// Read commands.
    pub read: LatencyReport,
    /// Write commands.
    pub write: LatencyReport,
    /// Flush commands.
    pub flush: LatencyReport,
    /// Discard commands.
    pub discard: LatencyReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_phases() {
        let mut l = Latencies::new();
        assert_eq!(l.report(), LatencyReport::default());
        for us in 1..=1000u64 {
            l.record(us * 1000);
        }
        let r = l.report();
        assert_eq!(r.count, 1000);
        assert!((r.latency_us_p50 - 500.0).abs() < 1.0, "{r:?}");
        assert!((r.latency_us_p99 - 990.0).abs() < 1.0, "{r:?}");
        assert!(r.latency_us_max >= 1000.0);

        let early = Counters { written_bytes: 100, programmed_bytes: 100, ..Default::default() };
        let late = Counters { written_bytes: 300, programmed_bytes: 700, ..Default::default() };
        assert_eq!(late.since(&early).write_amplification(), 3.0);
        assert_eq!(Counters::default().write_amplification(), 0.0);
    }

    #[test]
    fn wear_of_nothing_and_something() {
        assert_eq!(Wear::of(&[]), Wear::default());
        let w = Wear::of(&[1, 2, 6]);
        assert_eq!((w.erases_min, w.erases_mean, w.erases_max), (1, 3.0, 6));
        let of = |percent| Wear::percentile(&[9, 1, 5, 7], percent);
        assert_eq!([of(0), of(25), of(26), of(50), of(99), of(200)], [1, 1, 5, 5, 9, 9]);
        assert_eq!(Wear::percentile(&[], 50), 0);
    }
}
