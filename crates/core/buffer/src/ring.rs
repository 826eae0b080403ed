//! The ring of pages on its device: append a batch, read pages, move the tail.
//!
//! ```text
//!   tail ............ head ............ tail + pages
//!    read by recovery   |  free: may be overwritten
//! ```
//!
//! A batch is one write (two where it crosses the end of the ring). Sequences never go back: a slot
//! that is written again has a sequence `pages` higher. Exercised by `tests/it`.
//!
//! On a zoned device the ring is the zones, and the superblocks are before them. The head is always
//! at a write pointer: a zone is reset before its first page, and a zone is free when the tail has
//! left it. After a start the head is at a zone that is reset first, since nobody tells where a
//! power cut left the pointer of the one before.
//!
//! ```text
//!   superblocks | zone 0: free | zone 1: tail ..... | zone 2: ... head      | zone 3: free |
//!                 `-- reset, then written from its begin   `-- write pointer
//! ```
//!
//! Rejected for zoned devices: a host-side translation for the home blocks as well (dm-zoned),
//! which needs a map and a collector of its own, where ext4 fits in the conventional area.

use std::sync::Arc;

use syncline_device::{BlockDevice, DeviceError, Geometry, Kind, Op, Origin, Plug, Request};

use crate::format::{
    Opaque, PAGE_BYTES, Range, Stamp, Superblock, decode, decode_opaque, describes_itself, encode,
    encode_header, encode_opaque,
};

/// Pages of superblocks, at the begin of the area.
pub(crate) const SUPERBLOCKS: u64 = 2;
/// Zones of a ring at least: a sweep begins when two are used, and the tail's is not free.
const ZONES_MIN: u64 = 4;
/// Pages of a batch at most, without its header; an eighth of a small ring.
pub(crate) const BATCH_PAGES_MAX: u64 = 128;
const PAGE: u64 = PAGE_BYTES as u64;

/// Origin of the log's own requests.
pub(crate) const LOG: Origin = Origin::new(Kind::Other, true);

/// Position of the newest copy of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) sequence: u64,
    /// Description from the header, if the page does not describe itself.
    pub(crate) opaque: Option<Opaque>,
    /// Also written to its home block.
    pub(crate) clean: bool,
}

/// Pages of a log area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// First page of the ring.
    pub(crate) first: u64,
    /// Pages for the ring.
    pub(crate) pages: u64,
    /// Pages of a zone; 1: there are none.
    pub(crate) zone_pages: u64,
}

impl Place {
    /// Of an area with this geometry; `None` if it holds no superblocks, or too few zones.
    pub(crate) fn of(geometry: &Geometry) -> Option<Place> {
        let pages = geometry.size_bytes / PAGE;
        let Some(zones) = geometry.zones else {
            let pages = pages.checked_sub(SUPERBLOCKS)?;
            return Some(Place { first: SUPERBLOCKS, pages, zone_pages: 1 });
        };
        let first = zones.conventional_bytes / PAGE;
        let zone_pages = zones.zone_bytes / PAGE;
        let whole = (zones.conventional_bytes | zones.zone_bytes) % PAGE == 0;
        let pages = pages.checked_sub(first)? / zone_pages.max(1) * zone_pages;
        let has_room = first >= SUPERBLOCKS && pages >= ZONES_MIN * zone_pages;
        (whole && has_room).then_some(Place { first, pages, zone_pages })
    }
}

pub(crate) struct Ring {
    place: Place,
    device: Arc<dyn BlockDevice>,
    pub(crate) superblock: Superblock,
    pub(crate) head: u64,
    /// True if pages below `head` may still be volatile.
    pub(crate) owed: bool,
}

impl Ring {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        place: Place,
        superblock: Superblock,
        head: u64,
    ) -> Self {
        Ring { place, device, superblock, head, owed: false }
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    pub(crate) fn pages(&self) -> u64 {
        self.superblock.ring_pages
    }

    pub(crate) fn used(&self) -> u64 {
        self.head - self.superblock.tail
    }

    pub(crate) fn free(&self) -> u64 {
        let tail_zone = self.superblock.tail / self.place.zone_pages * self.place.zone_pages;
        self.pages() - (self.head - tail_zone)
    }

    /// True if the ring is in zones and a zone is begun.
    pub(crate) fn is_within_zone(&self) -> bool {
        self.head % self.place.zone_pages != 0
    }

    /// Leaves the rest of the zone. The ring is empty.
    pub(crate) fn skip_zone(&mut self) -> Result<(), DeviceError> {
        self.head = self.head.next_multiple_of(self.place.zone_pages);
        self.move_tail(self.head)
    }

    /// Pages of a batch, without its header.
    pub(crate) fn batch_pages(&self) -> u64 {
        BATCH_PAGES_MAX.min(self.pages() / 8)
    }

    fn offset(&self, sequence: u64) -> u64 {
        (self.place.first + sequence % self.pages()) * PAGE
    }

    /// Pages that [`Ring::append`] takes for these.
    pub(crate) fn cost(pages: &[(u64, &[u8])], dropped: &[Range]) -> u64 {
        let header = !dropped.is_empty() || pages.iter().any(|(_, page)| !describes_itself(page));
        pages.len() as u64 + u64::from(header)
    }

    /// Writes a batch behind the head: a header if one is needed, the opaque pages, the others.
    /// Returns where each page is. The caller has made room, and keeps to [`Ring::batch_pages`].
    pub(crate) fn append(
        &mut self,
        pages: &[(u64, &[u8])],
        dropped: &[Range],
        fua: bool,
    ) -> Result<Vec<(u64, Mapped)>, DeviceError> {
        let (plain, opaque): (Vec<_>, Vec<_>) =
            pages.iter().partition(|(_, page)| describes_itself(page));
        let header = !opaque.is_empty() || !dropped.is_empty();
        let total = pages.len() + usize::from(header);
        let mut bytes = vec![0; total * PAGE_BYTES];
        let mut mapped = Vec::with_capacity(pages.len());
        let mut stamp = Stamp {
            id: self.superblock.id,
            epoch: self.superblock.epoch,
            sequence: self.head,
            settled: !self.owed,
        };
        let (head, rest) = bytes.split_at_mut(PAGE_BYTES * usize::from(header));
        let header_stamp = stamp;
        stamp.sequence += u64::from(header);
        stamp.settled &= !header;
        let mut items = Vec::with_capacity(opaque.len());
        for ((logical, content), page) in
            opaque.iter().chain(&plain).zip(rest.chunks_exact_mut(PAGE_BYTES))
        {
            page.copy_from_slice(content);
            let mut opaque = None;
            if !encode(page, *logical, &stamp) {
                let item = encode_opaque(page, &stamp);
                items.push((*logical, item));
                opaque = Some(item);
            }
            let sequence = stamp.sequence;
            mapped.push((*logical, Mapped { sequence, opaque, clean: false }));
            stamp.sequence += 1;
            stamp.settled = false;
        }
        if header {
            encode_header(head, &header_stamp, &items, dropped);
        }
        self.write(&bytes, fua)?;
        self.head = stamp.sequence;
        self.owed |= !fua;
        Ok(mapped)
    }

    fn write(&self, bytes: &[u8], fua: bool) -> Result<(), DeviceError> {
        let mut batch = Vec::new();
        let largest = (self.device.geometry().max_request_bytes / PAGE).max(1);
        let (mut at, mut rest) = (self.head, bytes);
        while !rest.is_empty() {
            let to_border = match self.place.zone_pages {
                1 => self.pages() - at % self.pages(),
                zone_pages => zone_pages - at % zone_pages,
            };
            if to_border == self.place.zone_pages && to_border > 1 {
                self.device.discard(self.offset(at), to_border * PAGE, LOG)?;
            }
            let pages = to_border.min(largest).min((rest.len() / PAGE_BYTES) as u64);
            let (piece, after) = rest.split_at(pages as usize * PAGE_BYTES);
            let op = Op::Write { from: vec![piece], fua };
            batch.push(Request { offset_bytes: self.offset(at), op, origin: LOG });
            (at, rest) = (at + pages, after);
        }
        self.device.submit(&mut batch)
    }

    /// Reads pages into consecutive pieces of `into` and checks them.
    pub(crate) fn read(&self, pages: &[(u64, Mapped)], into: &mut [u8]) -> Result<(), DeviceError> {
        let mut plug = Plug::new();
        for ((_, mapped), page) in pages.iter().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            plug.read(self.offset(mapped.sequence), page, LOG);
        }
        plug.submit(&*self.device)?;
        let id = &self.superblock.id;
        for ((logical, mapped), page) in pages.iter().zip(into.chunks_exact_mut(PAGE_BYTES)) {
            let good = match mapped.opaque {
                None => decode(page, *logical, id, mapped.sequence),
                Some(opaque) => decode_opaque(page, opaque, id, mapped.sequence),
            };
            if !good {
                return Err(DeviceError::Io {
                    op: "read",
                    offset_bytes: self.offset(mapped.sequence),
                    len_bytes: PAGE,
                    reason: "this page of the write log fails its checksum; restore the data of \
                             this range from a backup"
                        .to_owned(),
                    errno: 5,
                });
            }
        }
        Ok(())
    }

    /// Raw pages of the ring, for recovery.
    pub(crate) fn read_raw(&self, sequence: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let to_end = (self.pages() - sequence % self.pages()) * PAGE;
        let first = usize::try_from(to_end).unwrap_or(usize::MAX).min(into.len());
        let (before, after) = into.split_at_mut(first);
        let mut plug = Plug::new();
        plug.read(self.offset(sequence), before, LOG);
        plug.read(self.place.first * PAGE, after, LOG);
        plug.submit(&*self.device)
    }

    /// Everything below `tail` is in its place, durably: recovery starts there from now on.
    pub(crate) fn move_tail(&mut self, tail: u64) -> Result<(), DeviceError> {
        let next = Superblock { tail, tail_epoch: self.superblock.epoch, ..self.superblock };
        self.write_superblock(next)
    }

    /// Stores the next generation durably.
    pub(crate) fn write_superblock(&mut self, mut next: Superblock) -> Result<(), DeviceError> {
        next.generation += 1;
        let at = next.generation % SUPERBLOCKS * PAGE;
        self.device.write_durable(at, &next.encode(), LOG)?;
        self.superblock = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::{MemoryDevice, Zones};

    #[test]
    fn a_zone_is_free_when_the_tail_has_left_it() {
        let zones = Zones { conventional_bytes: 2 * PAGE, zone_bytes: 8 * PAGE };
        let geometry = Geometry { zones: Some(zones), ..Geometry::new(34 * PAGE) };
        let place = Place::of(&geometry).unwrap();
        assert_eq!(place, Place { first: 2, pages: 32, zone_pages: 8 });
        let superblock = |tail| Superblock {
            epoch: 0,
            generation: 0,
            id: [0; 16],
            home_bytes: PAGE,
            ring_pages: 32,
            tail,
            tail_epoch: 0,
        };
        let free = |place, tail| {
            let device = Arc::new(MemoryDevice::new(34 * PAGE));
            Ring::new(device, place, superblock(tail), 20).free()
        };
        assert_eq!([8, 15, 16, 20].map(|tail| free(place, tail)), [20, 20, 28, 28]);
        let plain = Place { zone_pages: 1, ..place };
        assert_eq!([8, 15, 16, 20].map(|tail| free(plain, tail)), [20, 27, 28, 32]);
    }

    #[test]
    fn a_place_has_two_pages_and_four_zones() {
        let of = |conventional, zone, pages| {
            let zones = Zones { conventional_bytes: conventional * PAGE, zone_bytes: zone * PAGE };
            Place::of(&Geometry { zones: Some(zones), ..Geometry::new(pages * PAGE) })
        };
        assert!(of(2, 8, 34).is_some());
        assert!(of(1, 8, 33).is_none());
        assert!(of(2, 8, 33).is_none());
        assert!(Place::of(&Geometry::new(PAGE)).is_none());
    }
}
