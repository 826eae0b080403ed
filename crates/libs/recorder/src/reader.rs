//! Reads the file of an event: every whole record, each gap, and how it ends.
//!
//! The size of the slots is that of the first header with a right checksum that lies at a multiple
//! of its own slot size; then each slot stands for itself, so that lost or torn sectors cost their
//! own records only. Time is linear in the file's length, memory is one window and one slot.
//! Assumes nothing of the file: any bytes give an answer. Fuzzed in `tests/it/fuzz.rs`.

use crate::error::Result;
use crate::format::{HEADER_BYTES, Header};

/// Bytes read at once while looking for the first slot.
const WINDOW_BYTES: usize = 1 << 20;

/// Random-access input of a reader.
pub trait Source {
    /// Length in bytes, now.
    ///
    /// # Errors
    /// [`crate::RecorderError::Read`].
    fn len_bytes(&self) -> Result<u64>;

    /// Fills `into` from `offset`; what lies behind the end stays as it is.
    ///
    /// # Errors
    /// [`crate::RecorderError::Read`].
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()>;
}

impl Source for &[u8] {
    fn len_bytes(&self) -> Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let from = usize::try_from(offset).ok().and_then(|at| self.get(at..)).unwrap_or(&[]);
        let n = from.len().min(into.len());
        into[..n].copy_from_slice(&from[..n]);
        Ok(())
    }
}

/// Part of an event file, in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A whole record.
    Record(Header, &'a [u8]),
    /// Records that are not there.
    Gap {
        /// Sequence of the first of them.
        first: u64,
        /// Number of records.
        records: u64,
    },
    /// A slot that holds something, but no whole record of this event.
    Damaged {
        /// First byte of the slot in the file.
        offset: u64,
    },
    /// The end mark.
    End {
        /// Records that were written before it.
        records: u64,
    },
}

/// Summary of a whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Run of the recorder.
    pub recorder: u64,
    /// Event.
    pub event: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// The record that triggered.
    pub trigger_sequence: u64,
    /// Whole records.
    pub records: u64,
    /// Sequences of the first and the last of them.
    pub sequences: Option<(u64, u64)>,
    /// Times of the first and the last of them, in nanoseconds.
    pub times_ns: Option<(u64, u64)>,
    /// Gaps between records.
    pub gaps: u64,
    /// Records missing in gaps.
    pub missing: u64,
    /// Slots that hold something else.
    pub damaged: u64,
    /// Number of records according to the end mark. `None`: there is no end mark, because recording
    /// goes on or the power was cut.
    pub ended: Option<u64>,
}

impl Summary {
    /// Ended, and nothing is missing or damaged.
    pub fn is_whole(&self) -> bool {
        self.missing == 0 && self.damaged == 0 && self.ended == Some(self.records)
    }
}

/// Header of the first slot and its number; `None`: no slot of a recorder in it.
///
/// # Errors
/// The error of the source.
pub fn first_slot(source: &dyn Source) -> Result<Option<(Header, u64)>> {
    let len = source.len_bytes()?;
    let mut window = vec![0; WINDOW_BYTES];
    let mut at = 0;
    while at < len {
        let n = usize::try_from(len - at).unwrap_or(usize::MAX).min(WINDOW_BYTES);
        source.read_at(at, &mut window[..n])?;
        for (index, bytes) in window[..n].chunks_exact(HEADER_BYTES).enumerate() {
            let offset = at + (index * HEADER_BYTES) as u64;
            if let Some(header) = Header::decode(bytes) {
                if offset % u64::from(header.slot_bytes) == 0 {
                    return Ok(Some((header, offset / u64::from(header.slot_bytes))));
                }
            }
        }
        at += n as u64;
    }
    Ok(None)
}

/// Reads an event slot by slot; after the last one that is there now it can be asked again.
pub struct Reader {
    slot: Vec<u8>,
    first: Header,
    next: u64,
    expected: Option<u64>,
    summary: Summary,
}

enum Slot {
    Behind,
    Empty,
    Damaged,
    Good(Header),
}

impl Reader {
    /// A reader of `source`; `None` while there is no slot in it.
    ///
    /// # Errors
    /// The error of the source.
    pub fn new(source: &dyn Source) -> Result<Option<Reader>> {
        let Some((first, _)) = first_slot(source)? else { return Ok(None) };
        let summary = Summary {
            recorder: first.recorder,
            event: first.event,
            slot_bytes: first.slot_bytes.into(),
            trigger_sequence: first.trigger_sequence,
            ..Summary::default()
        };
        let slot = vec![0; first.slot_bytes as usize];
        Ok(Some(Reader { slot, first, next: 0, expected: None, summary }))
    }

    /// Returns the summary of the part read so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Gives everything up to the end of the file, or to the end mark, to `each`.
    ///
    /// # Errors
    /// The error of the source or of `each`.
    pub fn read(
        &mut self,
        source: &dyn Source,
        each: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()> {
        while self.summary.ended.is_none() {
            let found = self.load(source, self.next)?;
            if matches!(found, Slot::Behind) {
                return Ok(());
            }
            self.take(&found, each)?;
        }
        Ok(())
    }

    /// As [`Reader::read`] of a file that is being written: stops at the first slot that is not
    /// whole, unless the one after it is.
    ///
    /// # Errors
    /// The error of the source or of `each`.
    pub fn follow(
        &mut self,
        source: &dyn Source,
        each: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()> {
        while self.summary.ended.is_none() {
            let found = self.load(source, self.next)?;
            if !matches!(found, Slot::Good(_)) {
                if !matches!(self.load(source, self.next + 1)?, Slot::Good(_)) {
                    return Ok(());
                }
                // It may have been written between the two looks.
                let again = self.load(source, self.next)?;
                self.take(&again, each)?;
                continue;
            }
            self.take(&found, each)?;
        }
        Ok(())
    }

    /// Reads slot `number` into memory.
    fn load(&mut self, source: &dyn Source, number: u64) -> Result<Slot> {
        let size = self.slot.len() as u64;
        let at = number.saturating_mul(size);
        let len = source.len_bytes()?;
        if at >= len {
            return Ok(Slot::Behind);
        }
        self.slot.fill(0);
        let n = usize::try_from(len - at).unwrap_or(usize::MAX).min(self.slot.len());
        source.read_at(at, &mut self.slot[..n])?;
        let ours = |header: &Header| {
            header.slot_bytes == self.first.slot_bytes
                && (header.recorder, header.event) == (self.first.recorder, self.first.event)
                && self.expected.is_none_or(|expected| header.sequence >= expected)
        };
        Ok(match Header::decode_slot(&self.slot) {
            Some((header, _)) if ours(&header) => Slot::Good(header),
            None if self.slot.iter().all(|byte| *byte == 0) => Slot::Empty,
            _ => Slot::Damaged,
        })
    }

    fn take(&mut self, found: &Slot, each: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<()> {
        let number = self.next;
        self.next += 1;
        match found {
            Slot::Behind | Slot::Empty => Ok(()),
            Slot::Damaged => {
                self.summary.damaged += 1;
                each(Item::Damaged { offset: number.saturating_mul(self.slot.len() as u64) })
            }
            Slot::Good(header) => self.good(number, header, each),
        }
    }

    fn good(
        &mut self,
        number: u64,
        header: &Header,
        each: &mut dyn FnMut(Item<'_>) -> Result<()>,
    ) -> Result<()> {
        // Before the first record that is there: one for each slot.
        let expected = self.expected.unwrap_or(header.sequence.saturating_sub(number));
        let missing = header.sequence.saturating_sub(expected);
        if missing > 0 {
            self.summary.gaps += 1;
            self.summary.missing = self.summary.missing.saturating_add(missing);
            each(Item::Gap { first: expected, records: missing })?;
        }
        let end = HEADER_BYTES + header.payload_bytes as usize;
        let payload = self.slot.get(HEADER_BYTES..end).unwrap_or(&[]);
        if header.is_end() {
            let mut count = [0; 8];
            count.iter_mut().zip(payload).for_each(|(into, from)| *into = *from);
            let records = u64::from_le_bytes(count);
            self.expected = Some(header.sequence);
            self.summary.ended = Some(records);
            return each(Item::End { records });
        }
        self.expected = Some(header.sequence.saturating_add(1));
        let summary = &mut self.summary;
        summary.records += 1;
        let (first, time) = (summary.sequences, summary.times_ns);
        summary.sequences = Some((first.map_or(header.sequence, |s| s.0), header.sequence));
        summary.times_ns = Some((time.map_or(header.time_ns, |t| t.0), header.time_ns));
        each(Item::Record(*header, payload))
    }
}

/// Reads a whole event; `None`: no slot of a recorder in it.
///
/// # Errors
/// The error of the source or of `each`.
pub fn read(
    source: &dyn Source,
    each: &mut dyn FnMut(Item<'_>) -> Result<()>,
) -> Result<Option<Summary>> {
    let Some(mut reader) = Reader::new(source)? else { return Ok(None) };
    reader.read(source, each)?;
    Ok(Some(reader.summary))
}
