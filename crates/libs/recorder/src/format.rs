//! The file of an event: slots of one size, each with everything that is needed to understand it.
//!
//! ```text
//!   file   | slot 0 | slot 1 | ...  | end mark |   zeros up to what was allocated, if unfinished
//!
//!   slot    0  magic "SRC1"                 32  time, ns
//!           4  bytes of a slot              40  sequence of the record that triggered
//!           8  recorder                     48  bytes of the record
//!          16  event                        52  CRC-32C of the record
//!          24  sequence                     56  flags: 1 end mark, 2 fault, 4 stop
//!                                           60  CRC-32C of the bytes 0..60
//!          64  the record, then zeros
//! ```
//!
//! Little endian. There is no file header: a power cut may keep any subset of the sectors, so no
//! sector may be more important than another. Sequences count every push, lost ones too, so that a
//! missing record is a gap. In memory (the ring) a slot has the same form, with the length after
//! the fault in the place of the triggering sequence. Described in docs/FORMAT.md.

/// Bytes before the record.
pub const HEADER_BYTES: usize = 64;
/// Largest slot in bytes.
pub const SLOT_BYTES_MAX: u64 = 16 << 20;
/// First bytes of a slot.
pub const MAGIC: [u8; 4] = *b"SRC1";

/// The last slot; its record is the number of records before it, 8 bytes.
pub const FLAG_END: u32 = 1;
/// The fault happened before this record and after the last one.
pub const FLAG_TRIGGER: u32 = 2;
/// Every event ends before this record (in the ring only).
pub const FLAG_STOP: u32 = 4;

/// Header in front of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of each slot of the file.
    pub slot_bytes: u32,
    /// Number of the recorder's run.
    pub recorder: u64,
    /// Number of the event in that run, from 1.
    pub event: u64,
    /// Number of the record, from 0, over the life of the recorder.
    pub sequence: u64,
    /// When it was pushed, by the caller's clock, in nanoseconds.
    pub time_ns: u64,
    /// Sequence of the record that triggered the event.
    pub trigger_sequence: u64,
    /// Bytes of the record.
    pub payload_bytes: u32,
    /// CRC-32C of the record.
    pub payload_crc: u32,
    /// `FLAG_*`.
    pub flags: u32,
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Header {
    /// The bytes, with their checksum.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..8].copy_from_slice(&self.slot_bytes.to_le_bytes());
        let words = [self.recorder, self.event, self.sequence, self.time_ns, self.trigger_sequence];
        for (word, into) in words.iter().zip(bytes[8..48].chunks_exact_mut(8)) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[52..56].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.flags.to_le_bytes());
        let crc = syncline_base::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `slot`, if it is one: magic, checksum, lengths that fit, a
    /// sequence that has a next one.
    pub fn decode(slot: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = slot.get(..HEADER_BYTES)?.try_into().ok()?;
        if bytes[..4] != MAGIC || syncline_base::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return None;
        }
        let header = Header {
            slot_bytes: u32_at(bytes, 4),
            recorder: u64_at(bytes, 8),
            event: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
            time_ns: u64_at(bytes, 32),
            trigger_sequence: u64_at(bytes, 40),
            payload_bytes: u32_at(bytes, 48),
            payload_crc: u32_at(bytes, 52),
            flags: u32_at(bytes, 56),
        };
        let slot_bytes = u64::from(header.slot_bytes);
        let fits = slot_bytes >= HEADER_BYTES as u64 + u64::from(header.payload_bytes);
        let sane = slot_bytes <= SLOT_BYTES_MAX && slot_bytes % HEADER_BYTES as u64 == 0;
        // No run gets as far as the last number, and every sequence has a next one.
        (fits && sane && header.sequence < u64::MAX).then_some(header)
    }

    /// Header and record of a whole slot; `None` if either is damaged.
    pub fn decode_slot(slot: &[u8]) -> Option<(Header, &[u8])> {
        let header = Header::decode(slot)?;
        let end = HEADER_BYTES.checked_add(header.payload_bytes as usize)?;
        let payload = slot.get(HEADER_BYTES..end)?;
        (syncline_base::crc32c(payload) == header.payload_crc).then_some((header, payload))
    }

    /// True if the record is the end mark.
    pub fn is_end(&self) -> bool {
        self.flags & FLAG_END != 0
    }
}

/// Name of the file of an event.
pub fn file_name(recorder: u64, event: u64) -> String {
    format!("{recorder:016x}-{event:06}.rec")
}
