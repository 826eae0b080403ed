//! Results and settings of a player.

use crate::trace::{Op, Record};
use syncline_nand::{Counters, Latencies, LatencyReport};

use crate::error::{LabError, Result};

/// Bytes of a sector: what devices take.
pub(crate) const SECTOR: u64 = 512;

/// Pacing of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Requests that are under way at once, 1 at least.
    pub depth: usize,
    /// A request is sent when the trace says, if a place is free by then; else as soon as one is.
    pub timing: bool,
}

impl Default for Pace {
    /// One after the other, as fast as possible: the informed-storage paper's Workload Player.
    fn default() -> Pace {
        Pace { depth: 1, timing: false }
    }
}

/// The figures of a trace that was played. The time ends with a last flush.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Played {
    /// From the first request to the end of the last flush, seconds.
    pub elapsed_s: f64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Flushes of the trace, without the last one.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Latency of reads: from when they were sent, with the trace's timing from when they were due.
    pub read: LatencyReport,
    /// Of writes.
    pub write: LatencyReport,
    /// Of flushes.
    pub flush: LatencyReport,
    /// Counters of a simulated device.
    pub flash: Option<Counters>,
}

/// A request as a device takes it: whole sectors.
pub(crate) fn sectors(record: &Record) -> (u64, u64) {
    let offset = record.offset_bytes / SECTOR * SECTOR;
    let end = record.offset_bytes.saturating_add(record.len_bytes).min(u64::MAX - SECTOR);
    (offset, end.div_ceil(SECTOR) * SECTOR - offset)
}

/// Counts and latencies on their way.
#[derive(Default)]
pub(crate) struct Tally {
    pub played: Played,
    read: Latencies,
    write: Latencies,
    flush: Latencies,
}

impl Tally {
    /// A request that took `ns` for `len` bytes.
    pub(crate) fn add(&mut self, op: Op, len: u64, ns: u64) {
        let played = &mut self.played;
        match op {
            Op::Read => {
                played.reads += 1;
                played.read_bytes += len;
                self.read.record(ns);
            }
            Op::Write => {
                played.writes += 1;
                played.written_bytes += len;
                self.write.record(ns);
            }
            Op::Flush => {
                played.flushes += 1;
                self.flush.record(ns);
            }
            _ => played.discards += 1,
        }
    }

    pub(crate) fn finish(self, elapsed_ns: u64, flash: Option<Counters>) -> Played {
        Played {
            elapsed_s: elapsed_ns as f64 / 1e9,
            read: self.read.report(),
            write: self.write.report(),
            flush: self.flush.report(),
            flash,
            ..self.played
        }
    }
}

/// Refuses a request beyond the end of a device.
pub(crate) fn within(offset: u64, len: u64, size_bytes: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size_bytes => Ok(()),
        _ => Err(LabError::Usage(format!(
            "the trace goes to byte {} of a device of {size_bytes}; leave out what it does not \
             touch with --dense, or take a larger device",
            offset.saturating_add(len)
        ))),
    }
}
