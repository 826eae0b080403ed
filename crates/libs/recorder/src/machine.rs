//! The state machine: from the ring to the files of events. No clock, no thread, no file.
//!
//! ```text
//!   record with a fault --begin--> Recording --post records, or stop--> Finishing --> gone
//!                 |                    |  append a piece, write-back every 2 MB    ^
//!                 +--> refused         +--append fails--> Finishing (failed) ------+
//! ```
//!
//! A step takes from each event one piece of at most [`PIECE_BYTES`], so that saving the ring of a
//! new event does not delay another by more than a piece. Events overlap: a record goes into the
//! file of each. What is behind the pre-fault length and behind every event is given back to the
//! producer at the end of a step.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::config::Config;
use crate::error::{RecorderError, Result};
use crate::format::{FLAG_END, FLAG_STOP, FLAG_TRIGGER, HEADER_BYTES, Header};
use crate::ring::Consumer;
use crate::strategy::{Done, Job, Strategy};

/// Most bytes of one append, if a slot is not larger.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// Notice to the owner of a recorder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An event is being recorded.
    Started {
        /// Its number.
        event: u64,
        /// The record that triggered it.
        trigger_sequence: u64,
    },
    /// A fault whose event could not be begun.
    Refused {
        /// The record that triggered it.
        trigger_sequence: u64,
        /// Why.
        error: RecorderError,
    },
    /// Something failed; what is in the file stays there.
    Failed {
        /// Its number.
        event: u64,
        /// Why.
        error: RecorderError,
    },
    /// The first records of the file survive a power cut.
    Durable {
        /// Its number.
        event: u64,
        /// So many.
        records: u64,
    },
    /// The event is complete.
    Finished {
        /// Its number.
        event: u64,
        /// Records in its file.
        records: u64,
        /// True if all of them survive a power cut.
        durable: bool,
    },
}

/// Receiver of a step's jobs and reports.
pub trait Outputs {
    /// Work for the lower thread.
    fn job(&mut self, job: Job);
    /// Something to tell.
    fn report(&mut self, report: Report);
}

/// Results of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// There is more to write: call again at once.
    pub more: bool,
    /// Events not yet over.
    pub events: usize,
}

struct Event {
    number: u64,
    trigger_sequence: u64,
    /// Position in the ring's stream of the next record to write, and of the first not to.
    next: u64,
    end: u64,
    /// Bytes written to the file, and asked to be written back.
    offset: u64,
    asked: u64,
    asking: bool,
    records: u64,
    last_time_ns: u64,
    /// Sequence that the next record should have.
    next_sequence: u64,
    finishing: bool,
    failed: bool,
}

/// See the module's description. Made by [`crate::ring`].
pub struct Machine {
    config: Config,
    consumer: Consumer,
    staging: Vec<u8>,
    /// Position of the first record in the ring, and of the first that was not looked at.
    tail: u64,
    seen: u64,
    /// Of what was looked at: the sequence after the last one, and its time.
    next_sequence: u64,
    last_time_ns: u64,
    events: Events,
}

/// Events not yet over, oldest first.
struct Events {
    list: VecDeque<Event>,
    begun: u64,
    max: usize,
}

impl Events {
    /// Begins an event, or says why not.
    fn begin(&mut self, mut event: Event, strategy: &dyn Strategy, outputs: &mut dyn Outputs) {
        event.number = self.begun + 1;
        let trigger_sequence = event.trigger_sequence;
        let begun = if self.list.len() < self.max {
            strategy.begin(event.number)
        } else {
            let text = "the configured number of events is in progress; allow more at once";
            Err(RecorderError::Usage(text.to_owned()))
        };
        match begun {
            Ok(()) => {
                self.begun += 1;
                outputs.report(Report::Started { event: event.number, trigger_sequence });
                self.list.push_back(event);
            }
            Err(error) => outputs.report(Report::Refused { trigger_sequence, error }),
        }
    }

    fn recording(&mut self) -> impl Iterator<Item = &mut Event> {
        self.list.iter_mut().filter(|event| !event.finishing)
    }
}

impl Machine {
    pub(crate) fn new(config: Config, consumer: Consumer) -> Machine {
        let slot = config.slot_bytes() as usize;
        let staging = vec![0; (PIECE_BYTES / slot).max(1) * slot];
        let max = config.events_max as usize;
        let events = Events { list: VecDeque::with_capacity(max), begun: 0, max };
        Machine {
            config,
            consumer,
            staging,
            tail: 0,
            seen: 0,
            next_sequence: 0,
            last_time_ns: 0,
            events,
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Records that the producer lost.
    pub fn lost(&self) -> u64 {
        self.consumer.shared.lost.load(Ordering::Relaxed)
    }

    /// Events not yet over.
    pub fn events(&self) -> usize {
        self.events.list.len()
    }

    /// Looks at what was pushed, begins and ends events, and writes one piece of each.
    pub fn step(&mut self, strategy: &dyn Strategy, outputs: &mut dyn Outputs) -> Step {
        let slot = self.config.slot_bytes() as usize;
        let slots = self.consumer.ring.slots() / slot;
        let Ok(chunk) = self.consumer.ring.read_chunk(slots * slot) else {
            return Step::default();
        };
        let behind = (slots as u64).saturating_sub(self.config.pre_records.into());
        self.consumer.shared.slack_used.fetch_max(behind, Ordering::Relaxed);
        let (first, second) = chunk.as_slices();
        let ring = View { first, second, slot, tail: self.tail };
        let head = self.tail + slots as u64;
        for position in self.seen..head {
            let Some(header) = Header::decode(ring.at(position)) else { continue };
            (self.next_sequence, self.last_time_ns) = (header.sequence + 1, header.time_ns);
            if header.flags & FLAG_STOP != 0 {
                self.events.recording().for_each(|event| event.end = event.end.min(position));
            }
            if header.flags & FLAG_TRIGGER != 0 {
                let from = self.tail.max(position.saturating_sub(self.config.pre_records.into()));
                // The ring has the length after the fault where a file has the sequence.
                let end = position.saturating_add(1).saturating_add(header.trigger_sequence);
                let event = Event::new(header.sequence, header.time_ns, from..end);
                self.events.begin(event, strategy, outputs);
            }
        }
        self.seen = head;
        let mut more = false;
        for event in self.events.recording() {
            event.advance(&self.config, &ring, head, &mut self.staging, strategy, outputs);
            more |= !event.finishing && (event.next < head || event.next >= event.end);
        }
        let keep = self.events.recording().map(|event| event.next).min().unwrap_or(head);
        let keep = keep.min(head.saturating_sub(self.config.pre_records.into())).max(self.tail);
        chunk.commit((keep - self.tail) as usize * slot);
        self.tail = keep;
        Step { more, events: self.events.list.len() }
    }

    /// No more records will come: every event ends with what the ring has; a fault that no record
    /// followed gets its event, too. To be called after a step; more steps are needed.
    pub fn close(&mut self, strategy: &dyn Strategy, outputs: &mut dyn Outputs) {
        let slot = self.config.slot_bytes() as usize;
        let slots = self.consumer.ring.slots() / slot;
        let head = self.tail + slots as u64;
        self.events.recording().for_each(|event| event.end = event.end.min(head));
        if self.consumer.shared.take_fault().is_none() {
            return;
        }
        let from = self.tail.max(head.saturating_sub(self.config.pre_records.into()));
        let event = Event::new(self.next_sequence, self.last_time_ns, from..head);
        self.events.begin(event, strategy, outputs);
    }

    /// A job was done.
    pub fn completed(&mut self, job: &Job, result: Result<Done>, outputs: &mut dyn Outputs) {
        let found = self.events.list.iter().position(|event| event.number == job.event());
        let Some(index) = found else { return };
        let number = job.event();
        let slot = self.config.slot_bytes();
        let event = &mut self.events.list[index];
        event.asking = false;
        let durable_bytes = match result {
            Ok(done) => done.durable_bytes,
            Err(error) => {
                event.failed = true;
                outputs.report(Report::Failed { event: number, error });
                0
            }
        };
        let records = (durable_bytes / slot).min(event.records);
        if records > 0 {
            outputs.report(Report::Durable { event: number, records });
        }
        if let Job::Finish { len_bytes, .. } = job {
            let durable = !event.failed && durable_bytes >= *len_bytes;
            outputs.report(Report::Finished { event: number, records: event.records, durable });
            self.events.list.remove(index);
        }
    }
}

/// The slots in the ring, by position in the stream.
struct View<'a> {
    first: &'a [u8],
    second: &'a [u8],
    slot: usize,
    tail: u64,
}

impl<'a> View<'a> {
    fn at(&self, position: u64) -> &'a [u8] {
        let at = (position - self.tail) as usize * self.slot;
        let (from, at) = match at.checked_sub(self.first.len()) {
            Some(at) => (self.second, at),
            None => (self.first, at),
        };
        from.get(at..at + self.slot).unwrap_or(&[])
    }
}

impl Event {
    fn new(trigger_sequence: u64, time_ns: u64, records: Range<u64>) -> Event {
        Event {
            number: 0,
            trigger_sequence,
            next: records.start,
            end: records.end,
            offset: 0,
            asked: 0,
            asking: false,
            records: 0,
            last_time_ns: time_ns,
            next_sequence: trigger_sequence,
            finishing: false,
            failed: false,
        }
    }

    /// Writes one piece, and the end mark once everything is written.
    fn advance(
        &mut self,
        config: &Config,
        ring: &View<'_>,
        head: u64,
        staging: &mut [u8],
        strategy: &dyn Strategy,
        outputs: &mut dyn Outputs,
    ) {
        let slot = ring.slot;
        let upto = self.end.min(head).min(self.next + (staging.len() / slot) as u64);
        let records = upto.saturating_sub(self.next);
        let mut used = 0;
        for (position, into) in (self.next..upto).zip(staging.chunks_exact_mut(slot)) {
            self.copy(ring.at(position), into);
            used += slot;
        }
        self.next = upto;
        // With the last piece, where there is room for it.
        let last = self.next >= self.end && used + slot <= staging.len();
        if last {
            self.end_mark(config, self.records + records, &mut staging[used..used + slot]);
            used += slot;
        }
        if used > 0 {
            if let Err(error) = strategy.append(self.number, self.offset, &staging[..used]) {
                self.failed = true;
                outputs.report(Report::Failed { event: self.number, error });
                return self.finish(outputs);
            }
            self.offset += used as u64;
            self.records += records;
        }
        if last {
            return self.finish(outputs);
        }
        if self.offset - self.asked >= config.writeback_bytes && !self.asking {
            self.asking = true;
            let (event, from, to) = (self.number, self.asked, self.offset);
            self.asked = to;
            outputs.job(Job::WriteBack { event, from, to });
        }
    }

    /// A slot of the ring as it is in the file of this event.
    fn copy(&mut self, from: &[u8], into: &mut [u8]) {
        into.copy_from_slice(from);
        let Some(mut header) = Header::decode(from) else { return };
        header.event = self.number;
        header.trigger_sequence = self.trigger_sequence;
        header.flags &= !FLAG_STOP;
        if header.sequence != self.trigger_sequence {
            header.flags &= !FLAG_TRIGGER;
        }
        self.last_time_ns = header.time_ns;
        self.next_sequence = header.sequence + 1;
        // What an earlier, longer record left in the ring is no part of this one.
        into[HEADER_BYTES + header.payload_bytes as usize..].fill(0);
        into[..HEADER_BYTES].copy_from_slice(&header.encode());
    }

    fn end_mark(&self, config: &Config, records: u64, into: &mut [u8]) {
        let payload = records.to_le_bytes();
        let header = Header {
            slot_bytes: into.len() as u32,
            recorder: config.recorder,
            event: self.number,
            sequence: self.next_sequence,
            time_ns: self.last_time_ns,
            trigger_sequence: self.trigger_sequence,
            payload_bytes: payload.len() as u32,
            payload_crc: syncline_base::crc32c(&payload),
            flags: FLAG_END,
        };
        into.fill(0);
        into[..HEADER_BYTES].copy_from_slice(&header.encode());
        into[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(&payload);
    }

    fn finish(&mut self, outputs: &mut dyn Outputs) {
        self.finishing = true;
        outputs.job(Job::Finish { event: self.number, len_bytes: self.offset });
    }
}
