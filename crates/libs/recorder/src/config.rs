//! Lengths of a recorder, from which its memory and the size of its files follow.

use crate::error::{RecorderError, Result};
use crate::format::{HEADER_BYTES, SLOT_BYTES_MAX};

/// Most memory that a ring may take, in bytes.
const RING_BYTES_MAX: u64 = 1 << 36;

/// Parameters of a recorder. Source: write-latency paper, section 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number that tells this run of the recorder from others, in every record and file name; the
    /// start time in nanoseconds is a good one.
    pub recorder: u64,
    /// Longest record in bytes.
    pub payload_bytes_max: u32,
    /// Records kept before the fault.
    pub pre_records: u32,
    /// Most records after the one that triggers, which sets the size that is allocated ahead.
    pub post_records_max: u32,
    /// Records that the writer may be behind before one is lost.
    pub slack_records: u32,
    /// Events recorded or being finished at one time; a fault beyond them is reported as refused.
    pub events_max: u32,
    /// Slots are a multiple of this many bytes, a power of two from 64 on; 4096 for direct I/O.
    pub slot_align_bytes: u32,
    /// Written back each time after so many bytes (2 MiB in the paper).
    pub writeback_bytes: u64,
}

impl Default for Config {
    /// The paper's evaluation (section 5): 16 KiB every 5 ms; five seconds before and up to ten
    /// after the fault, one second of slack, four events.
    fn default() -> Self {
        Config {
            recorder: 1,
            payload_bytes_max: 16 << 10,
            pre_records: 1000,
            post_records_max: 2000,
            slack_records: 200,
            events_max: 4,
            slot_align_bytes: 64,
            writeback_bytes: 2 << 20,
        }
    }
}

impl Config {
    /// Bytes of one slot: header and longest record, rounded up.
    pub fn slot_bytes(&self) -> u64 {
        let bytes = HEADER_BYTES as u64 + u64::from(self.payload_bytes_max);
        bytes.next_multiple_of(u64::from(self.slot_align_bytes.max(1)))
    }

    /// Slots of the ring.
    pub fn ring_slots(&self) -> u64 {
        u64::from(self.pre_records) + u64::from(self.slack_records)
    }

    /// Memory of the ring in bytes.
    pub fn ring_bytes(&self) -> u64 {
        self.ring_slots().saturating_mul(self.slot_bytes())
    }

    /// Largest file of an event in bytes, allocated ahead: before the fault, the record with the
    /// fault, those after it, the end mark.
    pub fn file_bytes_max(&self) -> u64 {
        let slots = u64::from(self.pre_records) + u64::from(self.post_records_max) + 2;
        slots.saturating_mul(self.slot_bytes())
    }

    /// Checks that a recorder with these parameters can be built.
    ///
    /// # Errors
    /// [`RecorderError::Usage`] that names the value.
    pub fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(RecorderError::Usage(text.to_owned()));
        if !self.slot_align_bytes.is_power_of_two() || self.slot_align_bytes < 64 {
            return refuse("slots are aligned to a power of two of at least 64; give 64 or 4096");
        }
        if self.payload_bytes_max < 8 {
            return refuse("records of less than 8 bytes have no end mark; give 8 or more");
        }
        if self.slot_bytes() > SLOT_BYTES_MAX {
            return refuse("records of more than 16 MiB are not handled; split them");
        }
        if self.slack_records == 0 || self.events_max == 0 || self.writeback_bytes == 0 {
            return refuse("slack, events and write-back must not be zero; give at least one");
        }
        if self.events_max > 1024 {
            return refuse("more than 1024 events at once are not handled; give fewer");
        }
        if self.ring_bytes() > RING_BYTES_MAX {
            return refuse("a ring of more than 64 GiB; keep fewer or shorter records");
        }
        Ok(())
    }
}
