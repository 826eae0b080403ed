//! Bytes of the log: pages that describe themselves, batch headers, the superblock.
//!
//! ```text
//!   log area    | superblock A | superblock B | ring of pages, sequence s in slot s % pages |
//!
//!   self-describing page (4096 bytes, little endian)
//!    0   u32  kind << 30 | epoch       kind 1
//!    4   u32  CRC-32C of log id and page, this field as zero
//!    8   u64  sequence
//!   16   u64  logical page number
//!   24   96 bits: nine times 10 bits, where the nine words 0..9 are now; bit 90 "settled"
//!   36   the page; at each of those places a displaced word instead of a zero word
//!
//!   batch header (kind 2)                   opaque page (kind 3), right behind its header
//!    0   u32  kind << 30 | epoch             0   u32  kind << 30 | epoch
//!    4   u32  CRC-32C                        4   the page from byte 4 on
//!    8   u64  sequence
//!   16   u16  opaque pages that follow, u16 dropped ranges, u32 bit 0 "settled"
//!   24   opaque: u64 logical page, u32 CRC-32C of id, sequence and stored page, u32 first word
//!   ..   dropped: u64 first logical page, u64 pages
//! ```
//!
//! After section 6.3.1 of the paper, which hides 22 bits of address and 22 of time in two zero
//! words and has no checksum. Here: 64-bit address and sequence, an epoch for each time the log was
//! opened, a checksum over the whole page. A displaced word that is zero itself needs no place (10
//! zero bits say so), so a page needs as many zero words behind its first nine as these have
//! non-zero words. A page that has fewer is opaque: one header describes all opaque pages of a
//! batch.
//!
//! Why no content can be mistaken for an entry. The kind is in the first word of every page that
//! was ever written to the ring, and the first word is always ours: of an opaque page it stands in
//! the header. So bytes of a user are never parsed as an entry or header. Old entries have another
//! sequence than their slot is to have; entries of a batch that was dropped as torn have a lower
//! epoch than what was written in front of them later. Pages of another log, and torn ones, fail
//! the checksum, which starts with the log's id (32 bits: one torn page in four thousand million
//! passes). "Settled" says that everything before was durable when the page was written: a gap in
//! front of a settled page is damage and not a torn end.

use syncline_base::crc32c_append;

/// Bytes of a page of the log and of the map.
pub const PAGE_BYTES: usize = 4096;
/// Words displaced by the description.
const HIDDEN_WORDS: usize = 9;
const PLACE_BITS: usize = 10;
const PLACE_MASK: u128 = (1 << PLACE_BITS) - 1;
const SETTLED_BIT: usize = HIDDEN_WORDS * PLACE_BITS;
const KIND_SHIFT: u32 = 30;
const ENTRY: u32 = 1;
const HEADER: u32 = 2;
const OPAQUE: u32 = 3;
/// Largest epoch.
pub(crate) const EPOCH_MAX: u32 = (1 << KIND_SHIFT) - 1;
/// Opaque pages and dropped ranges of one header.
pub(crate) const ITEMS_MAX: usize = (PAGE_BYTES - ITEMS_AT) / ITEM_BYTES;
const ITEMS_AT: usize = 24;
const ITEM_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"SYNCBUF1";
const VERSION: u32 = 2;
/// Within the first sector, which a power cut keeps or loses as a whole.
const SUPER_CRC_AT: usize = 512 - 4;

/// Tells one log from another; part of every checksum. Random where logs could be confused.
pub type LogId = [u8; 16];

fn word(page: &[u8], index: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[4 * index..4 * index + 4]);
    u32::from_le_bytes(bytes)
}

fn set_word(page: &mut [u8], index: usize, value: u32) {
    page[4 * index..4 * index + 4].copy_from_slice(&value.to_le_bytes());
}

fn long(page: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn set_long(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn set_short(page: &mut [u8], at: usize, value: usize) {
    // Counts are at most ITEMS_MAX.
    page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

fn short(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([page[at], page[at + 1]]))
}

/// Of an entry or header: the field itself counts as zero.
fn checksum(id: &LogId, page: &[u8]) -> u32 {
    let crc = crc32c_append(syncline_base::crc32c(id), &page[..4]);
    crc32c_append(crc32c_append(crc, &[0; 4]), &page[8..])
}

fn opaque_checksum(id: &LogId, sequence: u64, stored: &[u8]) -> u32 {
    let crc = crc32c_append(syncline_base::crc32c(id), &sequence.to_le_bytes());
    crc32c_append(crc, stored)
}

/// Identity of a log page: the log, the epoch and the sequence it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: LogId,
    pub(crate) epoch: u32,
    pub(crate) sequence: u64,
    /// Everything with a lower sequence was durable before.
    pub(crate) settled: bool,
}

/// Finds enough zero words in `page` to hold its own description. Returns their positions packed in
/// one number, or `None` if there are too few.
fn places(page: &[u8]) -> Option<u128> {
    let mut free = (HIDDEN_WORDS..PAGE_BYTES / 4).filter(|&at| word(page, at) == 0);
    let mut places = 0;
    for hidden in 0..HIDDEN_WORDS {
        if word(page, hidden) != 0 {
            places |= (free.next()? as u128) << (hidden * PLACE_BITS);
        }
    }
    Some(places)
}

/// Turns `page` into an entry, in place.
///
/// Returns false, without a change, where the page has too few zero words.
pub(crate) fn encode(page: &mut [u8], logical: u64, stamp: &Stamp) -> bool {
    let Some(mut places) = places(page) else { return false };
    for hidden in 0..HIDDEN_WORDS {
        let place = place(places, hidden);
        if place != 0 {
            let value = word(page, hidden);
            set_word(page, place, value);
        }
    }
    places |= u128::from(stamp.settled) << SETTLED_BIT;
    set_word(page, 0, ENTRY << KIND_SHIFT | stamp.epoch);
    set_long(page, 8, stamp.sequence);
    set_long(page, 16, logical);
    page[24..36].copy_from_slice(&places.to_le_bytes()[..12]);
    let crc = checksum(&stamp.id, page);
    set_word(page, 1, crc);
    true
}

/// True if [`encode`] would succeed.
pub(crate) fn describes_itself(page: &[u8]) -> bool {
    places(page).is_some()
}

fn place(places: u128, hidden: usize) -> usize {
    (places >> (hidden * PLACE_BITS) & PLACE_MASK) as usize
}

fn stored_places(page: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes[..12].copy_from_slice(&page[24..36]);
    u128::from_le_bytes(bytes)
}

/// Gives a parsed entry its content back, in place.
fn restore(page: &mut [u8]) {
    let places = stored_places(page);
    for hidden in 0..HIDDEN_WORDS {
        let place = place(places, hidden);
        let value = if place == 0 { 0 } else { word(page, place) };
        if place != 0 {
            set_word(page, place, 0);
        }
        set_word(page, hidden, value);
    }
}

/// Description of an opaque page, which its batch's header holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opaque {
    pub(crate) crc: u32,
    pub(crate) first_word: u32,
}

/// Consecutive logical pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u64,
    pub(crate) pages: u64,
}

/// Turns `page` into the opaque page with this stamp, in place.
pub(crate) fn encode_opaque(page: &mut [u8], stamp: &Stamp) -> Opaque {
    let first_word = word(page, 0);
    set_word(page, 0, OPAQUE << KIND_SHIFT | stamp.epoch);
    Opaque { crc: opaque_checksum(&stamp.id, stamp.sequence, page), first_word }
}

/// Checks an opaque page and gives its content back, in place.
pub(crate) fn decode_opaque(page: &mut [u8], opaque: Opaque, id: &LogId, sequence: u64) -> bool {
    let good = opaque_is_good(page, opaque, id, sequence);
    if good {
        set_word(page, 0, opaque.first_word);
    }
    good
}

pub(crate) fn opaque_is_good(page: &[u8], opaque: Opaque, id: &LogId, sequence: u64) -> bool {
    word(page, 0) >> KIND_SHIFT == OPAQUE && opaque_checksum(id, sequence, page) == opaque.crc
}

/// Writes a header into `page`. At most [`ITEMS_MAX`] items.
pub(crate) fn encode_header(
    page: &mut [u8],
    stamp: &Stamp,
    opaque: &[(u64, Opaque)],
    dropped: &[Range],
) {
    page.fill(0);
    set_word(page, 0, HEADER << KIND_SHIFT | stamp.epoch);
    set_long(page, 8, stamp.sequence);
    set_short(page, 16, opaque.len());
    set_short(page, 18, dropped.len());
    page[20] = u8::from(stamp.settled);
    let mut at = ITEMS_AT;
    for (logical, item) in opaque {
        set_long(page, at, *logical);
        set_word(page, at / 4 + 2, item.crc);
        set_word(page, at / 4 + 3, item.first_word);
        at += ITEM_BYTES;
    }
    for range in dropped {
        set_long(page, at, range.first);
        set_long(page, at + 8, range.pages);
        at += ITEM_BYTES;
    }
    let crc = checksum(&stamp.id, page);
    set_word(page, 1, crc);
}

/// A valid page of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) epoch: u32,
    pub(crate) settled: bool,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Page { logical: u64 },
    Header { opaque: Vec<(u64, Opaque)>, dropped: Vec<Range> },
}

/// The entry or header that `page` is, if it is one of this log with this sequence.
pub(crate) fn parse(page: &[u8], id: &LogId, sequence: u64) -> Option<Found> {
    let (kind, epoch) = (word(page, 0) >> KIND_SHIFT, word(page, 0) & EPOCH_MAX);
    if long(page, 8) != sequence || word(page, 1) != checksum(id, page) {
        return None;
    }
    match kind {
        ENTRY => {
            let places = stored_places(page);
            let inside = |p: usize| p == 0 || p >= HIDDEN_WORDS;
            let sound = (0..HIDDEN_WORDS).all(|hidden| inside(place(places, hidden)));
            let content = Content::Page { logical: long(page, 16) };
            let settled = places >> SETTLED_BIT & 1 == 1;
            sound.then_some(Found { epoch, settled, content })
        }
        HEADER => {
            let (opaque, dropped) = (short(page, 16), short(page, 18));
            if opaque + dropped > ITEMS_MAX {
                return None;
            }
            let item = |index: usize| ITEMS_AT + index * ITEM_BYTES;
            let opaques = (0..opaque).map(item).map(|at| {
                let item =
                    Opaque { crc: word(page, at / 4 + 2), first_word: word(page, at / 4 + 3) };
                (long(page, at), item)
            });
            let ranges = (opaque..opaque + dropped)
                .map(item)
                .map(|at| Range { first: long(page, at), pages: long(page, at + 8) });
            let content = Content::Header { opaque: opaques.collect(), dropped: ranges.collect() };
            Some(Found { epoch, settled: page[20] & 1 == 1, content })
        }
        _ => None,
    }
}

/// Checks an entry and gives its content back, in place.
pub(crate) fn decode(page: &mut [u8], logical: u64, id: &LogId, sequence: u64) -> bool {
    let found = parse(page, id, sequence);
    let good = found.is_some_and(|f| f.content == Content::Page { logical });
    if good {
        restore(page);
    }
    good
}

/// Superblock of the log: its identity, its size and the position where reading starts.
///
/// ```text
///    0  magic "SYNCBUF1"   8  u32 version   12  u32 epoch   16  u64 generation
///   24  id (16 bytes)     40  u64 bytes of the device   48  u64 pages of the ring
///   56  u64 tail: first sequence to read   64  u32 lowest epoch from there   508  u32 CRC-32C
/// ```
/// One sector, so a cut while a log is made leaves zeros or a log and never something in between;
/// the rest of the page is zeros (version 1 had the checksum at its end). Two copies: generation g
/// is in page g % 2, so a device that tears sectors leaves the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) epoch: u32,
    pub(crate) generation: u64,
    pub(crate) id: LogId,
    pub(crate) home_bytes: u64,
    pub(crate) ring_pages: u64,
    pub(crate) tail: u64,
    pub(crate) tail_epoch: u32,
}

/// A page where a superblock may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaybeSuperblock {
    Good(Superblock),
    /// Of another version, which may have its checksum elsewhere.
    Version(u32),
    /// Has the magic and a wrong checksum.
    Torn,
    None,
}

impl Superblock {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        set_word(&mut page, 2, VERSION);
        set_word(&mut page, 3, self.epoch);
        set_long(&mut page, 16, self.generation);
        page[24..40].copy_from_slice(&self.id);
        set_long(&mut page, 40, self.home_bytes);
        set_long(&mut page, 48, self.ring_pages);
        set_long(&mut page, 56, self.tail);
        set_word(&mut page, 16, self.tail_epoch);
        let crc = syncline_base::crc32c(&page[..SUPER_CRC_AT]);
        set_word(&mut page, SUPER_CRC_AT / 4, crc);
        page
    }

    pub(crate) fn parse(page: &[u8]) -> MaybeSuperblock {
        if page[..8] != MAGIC {
            return MaybeSuperblock::None;
        }
        if word(page, 2) != VERSION {
            return MaybeSuperblock::Version(word(page, 2));
        }
        if syncline_base::crc32c(&page[..SUPER_CRC_AT]) != word(page, SUPER_CRC_AT / 4) {
            return MaybeSuperblock::Torn;
        }
        let mut id = [0; 16];
        id.copy_from_slice(&page[24..40]);
        MaybeSuperblock::Good(Superblock {
            epoch: word(page, 3),
            generation: long(page, 16),
            id,
            home_bytes: long(page, 40),
            ring_pages: long(page, 48),
            tail: long(page, 56),
            tail_epoch: word(page, 16),
        })
    }
}

/// Makes the checksum of a changed page right again.
#[cfg(test)]
pub(crate) fn reseal(page: &mut [u8], id: &LogId, superblock: bool) {
    if superblock {
        let crc = syncline_base::crc32c(&page[..SUPER_CRC_AT]);
        set_word(page, SUPER_CRC_AT / 4, crc);
    } else {
        let crc = checksum(id, page);
        set_word(page, 1, crc);
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
