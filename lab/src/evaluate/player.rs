//! The Workload Player in virtual time: requests of a trace on a simulated device.
//!
//! ```text
//!   fast:    a request is sent when fewer than `depth` are under way
//!   timing:  and not before the trace's time, counted from the first request
//!   flush, preflush: after all previous requests completed
//! ```
//!
//! First the whole device is written once in order, so that every write of the trace replaces data.
//! Deterministic to the nanosecond. Tested in `lab/tests/evaluate/player.rs`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::trace::{Flags, Names, Op, Record, Sink};
use syncline_nand::{Counters, Profile, Simulator};

use crate::error::{LabError, Result};
use crate::evaluate::played::{Pace, Played, Tally, sectors, within};

/// Smallest device that a trace is put on, bytes.
const SIZE_MIN: u64 = 64 << 20;
/// Largest: its tables take up to 16 bytes for each page of the flash.
const SIZE_MAX: u64 = 512 << 30;
/// Bytes of the writes that fill the device before.
const FILL_BYTES: u64 = 1 << 20;
/// Rest after that, nanoseconds.
const REST_NS: u64 = 1_000_000_000;
/// Times of a trace beyond this one (146 years) count as this one.
const TIME_NS_MAX: u64 = 1 << 62;

/// Plays requests: a [`Sink`] for a block trace.
pub struct VirtualPlayer {
    device: Simulator,
    pace: Pace,
    start_ns: u64,
    /// When the last request was sent.
    sent_ns: u64,
    /// The end of everything so far.
    end_ns: u64,
    /// Ends of those under way.
    under_way: BinaryHeap<Reverse<u64>>,
    before: Counters,
    tally: Tally,
}

impl VirtualPlayer {
    /// A device of `profile` that holds a trace that ends at byte `end_bytes`: the next power of
    /// two, 64 MiB at least, written once.
    pub fn new(profile: &Profile, end_bytes: u64, pace: Pace) -> Result<VirtualPlayer> {
        let size = end_bytes.max(SIZE_MIN).checked_next_power_of_two();
        let Some(size) = size.filter(|size| *size <= SIZE_MAX) else {
            let text = format!(
                "the trace reaches {} GiB, a simulated device {} at most; leave out what it does \
                 not touch with --dense",
                end_bytes >> 30,
                SIZE_MAX >> 30
            );
            return Err(LabError::Usage(text));
        };
        let mut device = Simulator::new(profile, size)?;
        let mut now_ns = 0;
        for offset in (0..size).step_by(FILL_BYTES as usize) {
            now_ns = device.write(now_ns, offset, FILL_BYTES, false);
        }
        let start_ns = device.flush(now_ns) + REST_NS;
        Ok(VirtualPlayer {
            before: device.counters(),
            device,
            pace: Pace { depth: pace.depth.max(1), ..pace },
            start_ns,
            sent_ns: start_ns,
            end_ns: start_ns,
            under_way: BinaryHeap::new(),
            tally: Tally::default(),
        })
    }

    /// Size of the device in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    /// Plays a request; what is none (an open, a rename) does nothing.
    pub fn play(&mut self, record: &Record) -> Result<()> {
        let known = matches!(record.op, Op::Read | Op::Write | Op::Flush | Op::Discard);
        if record.failed() || !known {
            return Ok(());
        }
        let (offset, len) = if record.op == Op::Flush { (0, 0) } else { sectors(record) };
        within(offset, len, self.device.size_bytes())?;
        let due_ns = self.start_ns.saturating_add(record.time_ns.min(TIME_NS_MAX));
        let mut now_ns = if self.pace.timing { due_ns.max(self.sent_ns) } else { self.sent_ns };
        if record.op == Op::Flush || record.flags.has(Flags::PREFLUSH) {
            now_ns = now_ns.max(self.end_ns);
            self.under_way.clear();
        }
        if self.under_way.len() >= self.pace.depth
            && let Some(Reverse(free_ns)) = self.under_way.pop()
        {
            now_ns = now_ns.max(free_ns);
        }
        self.sent_ns = now_ns;
        let device = &mut self.device;
        let at_ns = if record.flags.has(Flags::PREFLUSH) { device.flush(now_ns) } else { now_ns };
        let done_ns = match record.op {
            Op::Read => device.read(at_ns, offset, len),
            Op::Write => device.write(at_ns, offset, len, record.flags.has(Flags::FUA)),
            Op::Flush => device.flush(at_ns),
            _ => device.discard(at_ns, offset, len),
        };
        self.under_way.push(Reverse(done_ns));
        self.end_ns = self.end_ns.max(done_ns);
        let from_ns = if self.pace.timing { due_ns } else { now_ns };
        self.tally.add(record.op, len, done_ns - from_ns.min(done_ns));
        Ok(())
    }

    /// A last flush, and the figures.
    pub fn finish(mut self) -> Played {
        let end_ns = self.device.flush(self.end_ns);
        let flash = self.device.counters().since(&self.before);
        self.tally.finish(end_ns - self.start_ns, Some(flash))
    }
}

impl Sink for VirtualPlayer {
    fn record(&mut self, _: &Names, record: &Record) -> crate::error::Result<()> {
        self.play(record)
    }
}
