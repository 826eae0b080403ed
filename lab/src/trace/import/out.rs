//! Output of importers: sorts by time within a window, starts at zero, drops repeats.
//!
//! Threads and processors log out of order by a little: records pass through a heap of
//! [`WINDOW`] records, so that what leaves is in order. A record that is later than that gets the
//! time of the one before it.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::{Report, SHOWN_BAD_LINES};
use crate::error::Result;
use crate::trace::model::{NameId, Names, Op, Record, Sink};

/// Records that are held to be sorted.
const WINDOW: usize = 1 << 15;
/// Records that a repeat is looked for in.
const REPEATS: usize = 32;
/// Characters of a bad line that are kept.
const SHOWN_CHARS: usize = 80;

pub(super) struct Out<'s> {
    pub(super) names: Names,
    pub(super) report: Report,
    sink: &'s mut dyn Sink,
    held: BinaryHeap<Held>,
    /// Number of the next record, which keeps those of one time in order.
    serial: u64,
    /// Time of the first record that left, and of the last.
    start_ns: Option<u64>,
    last_ns: u64,
    /// Set if repeats are dropped.
    recent: Option<VecDeque<Repeat>>,
}

type Repeat = (Op, u32, NameId, u64, u64);

struct Held {
    serial: u64,
    record: Record,
}

impl Held {
    fn key(&self) -> (u64, u64) {
        (self.record.time_ns, self.serial)
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    /// The earliest is the greatest, since a heap gives the greatest.
    fn cmp(&self, other: &Held) -> Ordering {
        other.key().cmp(&self.key())
    }
}

impl<'s> Out<'s> {
    pub(super) fn new(sink: &'s mut dyn Sink, drop_repeats: bool) -> Out<'s> {
        Out {
            names: Names::default(),
            report: Report::default(),
            sink,
            held: BinaryHeap::new(),
            serial: 0,
            start_ns: None,
            last_ns: 0,
            recent: drop_repeats.then(VecDeque::new),
        }
    }

    /// Takes a record with the time of its source.
    pub(super) fn push(&mut self, record: Record) -> super::Line {
        if record.check().is_err() {
            return Err("a number is 2^63 or more".into());
        }
        self.held.push(Held { serial: self.serial, record });
        self.serial += 1;
        if self.held.len() > WINDOW {
            self.pass_on()?;
        }
        Ok(())
    }

    /// An event that makes no record.
    pub(super) fn pass_over(&mut self) {
        self.report.passed_over += 1;
    }

    pub(super) fn bad(&mut self, number: u64, line: &str, why: String) {
        self.report.bad_lines += 1;
        if self.report.first_bad.len() < SHOWN_BAD_LINES {
            let start =
                line.chars().take(SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c });
            self.report.first_bad.push((number, start.collect(), why));
        }
    }

    fn pass_on(&mut self) -> Result<()> {
        let Some(Held { mut record, .. }) = self.held.pop() else { return Ok(()) };
        if let Some(recent) = &mut self.recent {
            let this =
                (record.op, record.device, record.file, record.offset_bytes, record.len_bytes);
            if record.op.has_range() && recent.contains(&this) {
                self.report.repeats += 1;
                return Ok(());
            }
            recent.push_back(this);
            if recent.len() > REPEATS {
                recent.pop_front();
            }
        }
        let start_ns = *self.start_ns.get_or_insert(record.time_ns);
        self.last_ns = record.time_ns.saturating_sub(start_ns).max(self.last_ns);
        record.time_ns = self.last_ns;
        self.report.records += 1;
        self.sink.record(&self.names, &record)
    }

    pub(super) fn finish(mut self) -> Result<(Report, Names)> {
        while !self.held.is_empty() {
            self.pass_on()?;
        }
        Ok((self.report, self.names))
    }
}
