//! The ring between the producer and the writer: slots in memory, one producer, one consumer.
//!
//! ```text
//!    tail                                 head
//!   --|---- last pre_records ----|-- new --|----- free -----|
//!     the writer frees slots that are older than the pre-fault length and every event
//! ```
//!
//! The ring is the pre-fault buffer: nothing is copied out before a fault. A push that finds it
//! full loses its record, counts it, and uses its sequence up, so that the gap shows.
//! Slots never wrap, because the ring's length is a multiple of theirs.
//!
//! A fault is a number in shared memory that the next push takes into its record: exact and in
//! order with the data, from any thread and from signal handlers. Faults between two pushes are one
//! event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::format::{FLAG_STOP, FLAG_TRIGGER, HEADER_BYTES, Header};

/// State shared by producer, triggers and writer.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Records after the fault, plus one; zero: no fault.
    fault: AtomicU64,
    stop: AtomicBool,
    /// Records that found the ring full.
    pub(crate) lost: AtomicU64,
    /// Most of the slack that was in use when the writer looked.
    pub(crate) slack_used: AtomicU64,
}

impl Shared {
    /// Takes the fault that waits for a record: records after it.
    pub(crate) fn take_fault(&self) -> Option<u64> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            _ => self.fault.swap(0, Ordering::Acquire).checked_sub(1),
        }
    }
}

/// The record was lost: the ring is full, or the record is longer than configured. The sequence is
/// used up, so that the gap is reported to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Number of the record.
    pub sequence: u64,
}

/// The end that records go into. One thread.
#[derive(Debug)]
pub struct Producer {
    ring: rtrb::Producer<u8>,
    shared: Arc<Shared>,
    header: Header,
    slot_bytes: usize,
    payload_bytes_max: usize,
}

/// The end that the machine reads.
pub(crate) struct Consumer {
    pub(crate) ring: rtrb::Consumer<u8>,
    pub(crate) shared: Arc<Shared>,
}

/// Reports faults, from any thread and from signal handlers.
#[derive(Clone, Debug)]
pub struct Trigger {
    shared: Arc<Shared>,
    post_records_max: u32,
}

/// A ring of this configuration. Its memory is touched here, so that no push meets a page fault.
///
/// # Errors
/// [`RecorderError::Usage`] as [`Config::check`].
pub fn ring(config: &Config) -> Result<(Producer, Trigger, crate::Machine)> {
    config.check()?;
    let too_big = || RecorderError::Usage("the ring does not fit; keep fewer records".to_owned());
    let bytes = usize::try_from(config.ring_bytes()).map_err(|_| too_big())?;
    let slot_bytes = usize::try_from(config.slot_bytes()).map_err(|_| too_big())?;
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(bytes);
    if let Ok(chunk) = producer.write_chunk(bytes) {
        chunk.commit_all();
    }
    if let Ok(chunk) = consumer.read_chunk(bytes) {
        chunk.commit_all();
    }
    let shared = Arc::<Shared>::default();
    let header = Header {
        slot_bytes: u32::try_from(slot_bytes).map_err(|_| too_big())?,
        recorder: config.recorder,
        ..Header::default()
    };
    let producer = Producer {
        ring: producer,
        shared: Arc::clone(&shared),
        header,
        slot_bytes,
        payload_bytes_max: config.payload_bytes_max as usize,
    };
    let trigger =
        Trigger { shared: Arc::clone(&shared), post_records_max: config.post_records_max };
    let machine = crate::Machine::new(config.clone(), Consumer { ring: consumer, shared });
    Ok((producer, trigger, machine))
}

impl Producer {
    /// Gives a record to the recorder. Wait-free: no system call, no lock, no allocation.
    ///
    /// # Errors
    /// [`Lost`], with nothing of the record kept.
    pub fn push(&mut self, time_ns: u64, payload: &[u8]) -> std::result::Result<u64, Lost> {
        let sequence = self.header.sequence;
        self.header.sequence = sequence.wrapping_add(1);
        let lost = Lost { sequence };
        let end = HEADER_BYTES + payload.len();
        let fits = payload.len() <= self.payload_bytes_max;
        let Some(mut chunk) = self.ring.write_chunk(self.slot_bytes).ok().filter(|_| fits) else {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return Err(lost);
        };
        let mut header = Header {
            time_ns,
            sequence,
            // The slot is smaller than 16 MiB.
            payload_bytes: payload.len() as u32,
            payload_crc: syncline_base::crc32c(payload),
            ..self.header
        };
        // Taken only now: a fault whose record is lost goes to the next one.
        if let Some(post_records) = self.shared.take_fault() {
            header.flags |= FLAG_TRIGGER;
            header.trigger_sequence = post_records;
        }
        if self.shared.stop.load(Ordering::Relaxed)
            && self.shared.stop.swap(false, Ordering::Acquire)
        {
            header.flags |= FLAG_STOP;
        }
        let (slot, _) = chunk.as_mut_slices();
        slot[..HEADER_BYTES].copy_from_slice(&header.encode());
        slot[HEADER_BYTES..end].copy_from_slice(payload);
        chunk.commit_all();
        Ok(sequence)
    }

    /// True if the next record would be kept, provided that it is not too long.
    pub fn has_room(&self) -> bool {
        self.ring.slots() >= self.slot_bytes
    }

    /// Sequence that the next record gets.
    pub fn next_sequence(&self) -> u64 {
        self.header.sequence
    }

    /// Records lost so far.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Trigger {
    /// A fault happened: the next record begins an event, with as many records after it as are
    /// configured.
    pub fn fire(&self) {
        self.fire_for(self.post_records_max);
    }

    /// As [`Trigger::fire`], with this many records after the fault, at most those configured. Of
    /// two faults before the same record the longer one counts.
    pub fn fire_for(&self, post_records: u32) {
        let post = u64::from(post_records.min(self.post_records_max));
        self.shared.fault.fetch_max(post + 1, Ordering::Release);
    }

    /// Records lost so far.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Most records that the writer was behind so far, of the configured slack: what tells how much
    /// of it a device and a strategy need.
    pub fn slack_used(&self) -> u64 {
        self.shared.slack_used.load(Ordering::Relaxed)
    }

    /// The next record ends every event that is being recorded.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }
}
