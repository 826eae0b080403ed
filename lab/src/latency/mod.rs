//! Latencies of calls: timers, histograms, stalls of the machine, and the report of `syncline
//! latency`.
//!
//! ```text
//!   Timer   one histogram of many calls          bench, replay
//!   Calls   calls one by one, with the slowest ──> LatencyCase ──> LatencyDocument
//!   Stall   processors that stood still ───────────┘               table, JSON, page
//! ```
//!
//! Promises: memory is bounded by the number of calls that were asked for; a histogram has three
//! significant digits from 1 ns to one hour. Time comes from the caller: no clock, no thread.

mod stalls;
mod timer;

pub use stalls::{
    Bucket, Calls, LATENCY_SCHEMA, LatencyCase, LatencyDocument, Machine, OUTLIERS_MAX, Outlier,
    Stall,
};
pub use timer::Timer;

/// Longest latency that is told apart, in nanoseconds: one hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
