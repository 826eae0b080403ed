//! Two readings of a block trace: the first finds its extent, the second passes requests to a
//! player.
//!
//! A trace is never in memory. [`Survey`] is the sink of the first reading, [`Feed`] that of the
//! second. [`Feed`] removes untouched addresses if [`Survey::new`] was called with `dense`.

use crate::error::LabError;
use crate::trace::{Names, Op, Record, Sink};

use crate::evaluate::{DenseAddresses, PageTrace};

/// A longer request (a discard of a whole device) uses no more than this of the address space.
const TOUCHED_BYTES_MAX: u64 = 1 << 30;

/// Requests, end and writes of a trace.
#[derive(Default)]
pub struct Survey {
    records: u64,
    writes: bool,
    end_bytes: u64,
    dense: Option<DenseAddresses>,
}

impl Survey {
    /// Before the first reading. `dense` leaves out addresses that no request touches.
    pub fn new(dense: bool) -> Survey {
        Survey { dense: dense.then(DenseAddresses::default), ..Survey::default() }
    }

    /// A trace of pages, which is in memory.
    pub fn of_pages(pages: &PageTrace) -> Survey {
        Survey {
            records: pages.accesses() as u64,
            writes: pages.reads() < pages.accesses() as u64,
            end_bytes: pages.end_bytes(),
            dense: None,
        }
    }

    /// Ends the first reading.
    pub fn finish(&mut self) {
        if let Some(dense) = &mut self.dense {
            dense.sort();
            self.end_bytes = dense.end_bytes();
        }
    }

    /// Records of the trace.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns whether a request writes or discards.
    pub fn writes(&self) -> bool {
        self.writes
    }

    /// The end of the highest request in bytes.
    pub fn end_bytes(&self) -> u64 {
        self.end_bytes
    }
}

impl Sink for Survey {
    fn record(&mut self, _: &Names, record: &Record) -> crate::error::Result<()> {
        self.records += 1;
        if record.failed() || !record.op.has_range() {
            return Ok(());
        }
        self.writes |= matches!(record.op, Op::Write | Op::Discard);
        let end = record.offset_bytes.saturating_add(record.len_bytes);
        self.end_bytes = self.end_bytes.max(end.min(1 << 62).next_multiple_of(512));
        if let Some(dense) = &mut self.dense {
            dense.touch(record.offset_bytes, record.len_bytes.min(TOUCHED_BYTES_MAX));
        }
        Ok(())
    }
}

/// The sink of the second reading. A failure of the player is kept for the caller.
pub struct Feed<'a, E> {
    survey: &'a Survey,
    play: &'a mut dyn FnMut(&Record) -> Result<(), E>,
    failed: &'a mut Option<E>,
}

impl<'a, E> Feed<'a, E> {
    /// Passes requests to `play` until it fails; its failure is put into `failed`.
    pub fn new(
        survey: &'a Survey,
        play: &'a mut dyn FnMut(&Record) -> Result<(), E>,
        failed: &'a mut Option<E>,
    ) -> Feed<'a, E> {
        Feed { survey, play, failed }
    }
}

impl<E> Sink for Feed<'_, E> {
    fn record(&mut self, _: &Names, record: &Record) -> crate::error::Result<()> {
        let mut record = *record;
        if let Some(dense) = &self.survey.dense {
            let end = dense.byte(record.offset_bytes.saturating_add(record.len_bytes));
            record.offset_bytes = dense.byte(record.offset_bytes);
            record.len_bytes = end.saturating_sub(record.offset_bytes).min(record.len_bytes);
        }
        (self.play)(&record).map_err(|failure| {
            *self.failed = Some(failure);
            LabError::Interrupted
        })
    }
}
