//! The bytes of a log: header, tags, index. `docs/FORMAT.md` has the drawing.
//!
//! In version 1 the data of a record follow its tag. In version 2 the tags of many records stand
//! together at the head of a group and their data behind it, so that data can be aligned.
//!
//! Little endian. Every tag stands at a multiple of [`TAG_BYTES`] and its checksum covers its own
//! position, so that a tag copied elsewhere, or a log inside a log, is not taken for one.
//! Tested at the end and by the fuzz tests of `tests/it`.

use crate::{Error, Result};

/// Bytes of a tag, and what records are aligned to.
pub const TAG_BYTES: u64 = 32;
/// Bytes of one entry of a segment's index.
pub const ENTRY_BYTES: u64 = 24;
/// Longest data of one record; longer writes become several.
pub const RECORD_BYTES_MAX: u32 = 1 << 20;
/// Format version of new logs: tags in heads of groups.
pub const VERSION: u32 = 2;
/// Tag and data in turn; such logs are read, and go on like that.
pub const VERSION_INLINE: u32 = 1;
/// Places of data fit three bytes of a tag: units of a tag from the start of the segment.
const CELLS_MAX: u32 = 1 << 24;
/// Largest logical size: positions stay within what file systems can address.
pub const SIZE_BYTES_MAX: u64 = i64::MAX as u64;

const MAGIC: [u8; 8] = *b"flashlit";
const HEADER_USED_BYTES: usize = 64;

/// Contents of the first page of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Of the format, 1 or 2.
    pub version: u32,
    /// Bytes of a segment; a multiple of the page.
    pub segment_bytes: u32,
    /// Alignment of syncs and long records, in bytes.
    pub page_bytes: u32,
}

impl Header {
    /// # Errors
    /// `Usage`, if sizes are no powers of two or out of range.
    pub(crate) fn new(segment_bytes: u32, page_bytes: u32) -> Result<Header> {
        let page = page_bytes.is_power_of_two() && (4 << 10..=64 << 10).contains(&page_bytes);
        let segment =
            segment_bytes.is_power_of_two() && (64 << 10..=256 << 20).contains(&segment_bytes);
        if page && segment && segment_bytes >= page_bytes.saturating_mul(4) {
            return Ok(Header { version: VERSION, segment_bytes, page_bytes });
        }
        Err(Error::Usage(
            "segments are powers of two from 64 KiB to 256 MiB, pages from 4 to 64 KiB and at most \
             a quarter of a segment; choose such sizes",
        ))
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![0; self.page_bytes as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.page_bytes.to_le_bytes());
        let sum = syncline_base::crc32c(&bytes[..HEADER_USED_BYTES - 4]);
        bytes[HEADER_USED_BYTES - 4..HEADER_USED_BYTES].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// From the first bytes of a file.
    ///
    /// # Errors
    /// `NotALog`, `Unsupported`, `Corrupt`.
    pub(crate) fn decode(bytes: &[u8; HEADER_USED_BYTES]) -> Result<Header> {
        if bytes[..8] != MAGIC {
            return Err(Error::NotALog);
        }
        if syncline_base::crc32c(&bytes[..HEADER_USED_BYTES - 4])
            != u32_at(bytes, HEADER_USED_BYTES - 4)
        {
            return Err(Error::corrupt("the header's checksum", 0));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION && version != VERSION_INLINE {
            return Err(Error::Unsupported { version });
        }
        Header::new(u32_at(bytes, 12), u32_at(bytes, 16))
            .map(|header| Header { version, ..header })
            .map_err(|_| Error::corrupt("sizes in the header", 12))
    }

    /// True if tags stand in the heads of groups, apart from long data.
    pub(crate) fn grouped(self) -> bool {
        self.version != VERSION_INLINE
    }

    /// Bytes between the data of one record and that of the next, if both are long.
    pub(crate) fn gap_bytes(self) -> u64 {
        if self.grouped() { 0 } else { TAG_BYTES }
    }

    /// Number of the segment that holds a byte.
    pub(crate) fn segment(self, position: u64) -> u64 {
        position / u64::from(self.segment_bytes)
    }

    /// First byte of a segment.
    pub(crate) fn segment_base(self, segment: u64) -> u64 {
        segment.saturating_mul(u64::from(self.segment_bytes))
    }

    /// Returns the position at which the records of the segment around `position` must end to leave
    /// room for an index of `entries` entries.
    pub(crate) fn records_end(self, position: u64, entries: u64) -> u64 {
        let end = self.segment_end(self.segment(position));
        end.saturating_sub(entries.saturating_mul(ENTRY_BYTES).saturating_add(TAG_BYTES))
    }

    /// First byte after a segment.
    pub(crate) fn segment_end(self, segment: u64) -> u64 {
        segment.saturating_add(1).saturating_mul(u64::from(self.segment_bytes))
    }

    /// First record of a segment.
    pub(crate) fn segment_start(self, segment: u64) -> u64 {
        if segment == 0 {
            u64::from(self.page_bytes)
        } else {
            segment.saturating_mul(u64::from(self.segment_bytes))
        }
    }
}

/// Reads the part of the header that has meaning.
pub(crate) const HEADER_READ_BYTES: usize = HEADER_USED_BYTES;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of the file follow.
    Data,
    /// The file has a new length.
    SetLen,
    /// The bytes below `logical` are durable in the rearranged file, `data_crc` is theirs.
    Moved,
    /// As `Moved`, and they may no longer be in the log.
    Released,
    /// Nothing, up to the next page.
    Pad,
    /// The log below byte `logical` was durable when this was written.
    Mark,
    /// Last tag of a segment; its index stands before it, `logical` as for `Mark`.
    Footer,
    /// First tag of a group, whose head has `length` bytes; `logical` as for `Mark`.
    Group,
    /// Last tag of a group; the next one is at byte `logical` of the log.
    Next,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Kind::Data => 1,
            Kind::SetLen => 2,
            Kind::Moved => 3,
            Kind::Released => 4,
            Kind::Pad => 5,
            Kind::Mark => 6,
            Kind::Footer => 7,
            Kind::Group => 8,
            Kind::Next => 9,
        }
    }

    fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Data,
            2 => Kind::SetLen,
            3 => Kind::Moved,
            4 => Kind::Released,
            5 => Kind::Pad,
            6 => Kind::Mark,
            7 => Kind::Footer,
            8 => Kind::Group,
            9 => Kind::Next,
            _ => return None,
        })
    }

    /// True if the record changes the file: it takes a sequence number and stands in the index.
    pub(crate) fn counts(self) -> bool {
        matches!(self, Kind::Data | Kind::SetLen | Kind::Moved | Kind::Released)
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub kind: Kind,
    /// Position of the data, in units of a tag from the start of the segment. 0: behind the tag.
    pub data_cell: u32,
    /// Bytes of the data.
    pub length: u32,
    /// crc32c of those bytes.
    pub data_crc: u32,
    /// Offset in the file, or what the kind says.
    pub logical: u64,
    /// Number of the record among those that change the file; of others, that of the next such.
    pub sequence: u64,
}

impl Tag {
    pub(crate) fn encode(&self, position: u64) -> [u8; TAG_BYTES as usize] {
        let mut bytes = [0; TAG_BYTES as usize];
        bytes[4..8].copy_from_slice(&(self.data_cell << 8).to_le_bytes());
        bytes[4] = self.kind.number();
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.logical.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        let sum = tag_crc(&bytes, position);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Nothing if no tag stands here.
    pub(crate) fn decode(bytes: &[u8; TAG_BYTES as usize], position: u64) -> Option<Tag> {
        if u32_at(bytes, 0) != tag_crc(bytes, position) {
            return None;
        }
        let tag = Tag {
            kind: Kind::of(bytes[4])?,
            data_cell: u32_at(bytes, 4) >> 8,
            length: u32_at(bytes, 8),
            data_crc: u32_at(bytes, 12),
            logical: u64_at(bytes, 16),
            sequence: u64_at(bytes, 24),
        };
        tag.possible().then_some(tag)
    }

    /// True if a writer could have written this tag.
    fn possible(&self) -> bool {
        if self.data_cell > 0 && (self.kind != Kind::Data || self.data_cell >= CELLS_MAX) {
            return false;
        }
        match self.kind {
            Kind::Data => {
                (1..=RECORD_BYTES_MAX).contains(&self.length)
                    && self.logical <= SIZE_BYTES_MAX - u64::from(self.length)
            }
            Kind::SetLen | Kind::Moved | Kind::Released => {
                self.length == 0 && self.logical <= SIZE_BYTES_MAX
            }
            Kind::Mark | Kind::Next => self.length == 0,
            Kind::Pad | Kind::Group => u64::from(self.length) % TAG_BYTES == 0,
            Kind::Footer => u64::from(self.length) % ENTRY_BYTES == 0,
        }
    }

    /// Bytes of this tag and what stands behind it.
    pub(crate) fn span_bytes(&self) -> u64 {
        let behind = self.data_cell == 0 && self.kind != Kind::Group;
        TAG_BYTES + if behind { padded(self.length) } else { 0 }
    }

    /// The range of the log with data that is not behind the tag, in a segment that starts at
    /// `base`.
    pub(crate) fn apart(&self, base: u64) -> Option<(u64, u64)> {
        let start = base.saturating_add(u64::from(self.data_cell) * TAG_BYTES);
        (self.data_cell > 0).then_some((start, start.saturating_add(padded(self.length))))
    }
}

/// Data of a record with what fills it up to the next tag, bytes.
pub(crate) fn padded(length: u32) -> u64 {
    u64::from(length).next_multiple_of(TAG_BYTES)
}

fn tag_crc(bytes: &[u8; TAG_BYTES as usize], position: u64) -> u32 {
    syncline_base::crc32c_append(syncline_base::crc32c(&position.to_le_bytes()), &bytes[4..])
}

/// A record as the index of its segment has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Position of its tag, from the start of the segment.
    pub at: u32,
    pub kind: Kind,
    pub length: u32,
    pub data_crc: u32,
    /// As in the tag.
    pub data_cell: u32,
    pub logical: u64,
}

impl Entry {
    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES as usize] {
        // Tags stand at multiples of 32, which leaves the low bits for the kind.
        let place = self.at | u32::from(self.kind.number());
        let mut bytes = [0; ENTRY_BYTES as usize];
        bytes[..4].copy_from_slice(&place.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.length.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.data_cell.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.logical.to_le_bytes());
        bytes
    }

    /// Of a tag that stands at `at`, from the start of the segment.
    pub(crate) fn new(tag: &Tag, at: u64) -> Entry {
        Entry {
            // Segments have at most 256 MiB.
            at: u32::try_from(at).unwrap_or(u32::MAX),
            kind: tag.kind,
            length: tag.length,
            data_crc: tag.data_crc,
            data_cell: tag.data_cell,
            logical: tag.logical,
        }
    }

    /// Returns the position of its data, in a segment that starts at `base`.
    pub(crate) fn data_at(&self, base: u64) -> u64 {
        let behind = base + u64::from(self.at) + TAG_BYTES;
        self.tag(0).apart(base).map_or(behind, |(start, _)| start)
    }

    /// First byte after its tag and data.
    pub(crate) fn end(&self, base: u64) -> u64 {
        self.data_at(base).saturating_add(padded(self.length))
    }

    /// Nothing if it could not have been written.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Entry> {
        let bytes: &[u8; ENTRY_BYTES as usize] = bytes.try_into().ok()?;
        let place = u32_at(bytes, 0);
        let number = u8::try_from(place % TAG_BYTES as u32).ok()?;
        let kind = Kind::of(number).filter(|kind| kind.counts())?;
        let entry = Entry {
            at: place - u32::from(number),
            kind,
            length: u32_at(bytes, 4),
            data_crc: u32_at(bytes, 8),
            data_cell: u32_at(bytes, 12),
            logical: u64_at(bytes, 16),
        };
        entry.tag(0).possible().then_some(entry)
    }

    /// The tag that it was made from.
    pub(crate) fn tag(&self, sequence: u64) -> Tag {
        Tag {
            kind: self.kind,
            data_cell: self.data_cell,
            length: self.length,
            data_crc: self.data_crc,
            logical: self.logical,
            sequence,
        }
    }
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag {
        kind: Kind::Data,
        data_cell: 0,
        length: 100,
        data_crc: 0x0102_0304,
        logical: 3000,
        sequence: 7,
    };

    #[test]
    fn a_tag_has_these_bytes() {
        let bytes = TAG.encode(4096);
        assert_eq!(bytes[4..8], [1, 0, 0, 0]);
        assert_eq!(bytes[8..16], [100, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(bytes[16..24], 3000_u64.to_le_bytes());
        assert_eq!(bytes[24..32], 7_u64.to_le_bytes());
        assert_eq!(Tag::decode(&bytes, 4096), Some(TAG));
        assert_eq!((TAG.span_bytes(), padded(32), padded(1)), (160, 32, 32));
        let apart = Tag { data_cell: 0x0003_0201, ..TAG };
        assert_eq!(apart.encode(0)[4..8], [1, 1, 2, 3]);
        assert_eq!(Tag::decode(&apart.encode(0), 0), Some(apart));
        let start = 1000 + 0x0003_0201 * 32;
        assert_eq!((apart.span_bytes(), apart.apart(1000)), (32, Some((start, start + 128))));
    }

    #[test]
    fn every_changed_bit_and_another_position_are_noticed() {
        let bytes = TAG.encode(4096);
        assert_eq!(Tag::decode(&bytes, 4128), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Tag::decode(&bad, 4096), None, "bit {bit}");
        }
        assert_eq!(Tag::decode(&[0; 32], 0), None);
    }

    #[test]
    fn tags_that_no_writer_writes_are_refused() {
        let refused = |tag: Tag| assert_eq!(Tag::decode(&tag.encode(0), 0), None, "{tag:?}");
        refused(Tag { length: 0, ..TAG });
        refused(Tag { length: RECORD_BYTES_MAX + 1, ..TAG });
        refused(Tag { logical: u64::MAX - 10, ..TAG });
        refused(Tag { kind: Kind::SetLen, ..TAG });
        refused(Tag { kind: Kind::Pad, length: 33, ..TAG });
        refused(Tag { kind: Kind::Footer, length: 25, ..TAG });
        refused(Tag { kind: Kind::SetLen, length: 0, data_cell: 1, ..TAG });
        refused(Tag { kind: Kind::Next, length: 32, ..TAG });
    }

    #[test]
    fn entries_and_headers_round_trip() {
        let tag = Tag { length: 9, data_cell: 300, logical: 1 << 40, ..TAG };
        let entry = Entry::new(&tag, 4096);
        assert_eq!(Entry::decode(&entry.encode()), Some(entry));
        assert_eq!((entry.tag(7), entry.data_at(1 << 20)), (tag, (1 << 20) + 9600));
        assert_eq!((entry.end(0), Entry { data_cell: 0, ..entry }.data_at(64)), (9632, 4192));
        assert_eq!(Entry::decode(&[0; 24]), None);
        assert_eq!(Entry::decode(&[0; 23]), None);
        let header = Header::new(4 << 20, 4096).unwrap();
        let bytes: [u8; HEADER_USED_BYTES] = header.encode()[..64].try_into().unwrap();
        assert_eq!(Header::decode(&bytes).unwrap(), header);
        assert!(matches!(Header::decode(&[0; 64]), Err(Error::NotALog)));
        let mut bad = bytes;
        bad[13] ^= 1;
        assert!(matches!(Header::decode(&bad), Err(Error::Corrupt { .. })));
        let older = Header { version: VERSION_INLINE, ..header };
        let bytes_of = |header: Header| header.encode()[..64].try_into().unwrap();
        assert_eq!(Header::decode(&bytes_of(older)).unwrap(), older);
        let mut newer = bytes;
        newer[8] = 3;
        let sum = syncline_base::crc32c(&newer[..60]);
        newer[60..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(Header::decode(&newer), Err(Error::Unsupported { version: 3 })));
        assert!(Header::new(3 << 20, 4096).is_err() && Header::new(64 << 10, 64 << 10).is_err());
    }
}
