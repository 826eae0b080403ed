//! Creating a log and opening one: the map is rebuilt by reading the ring once from the tail.
//!
//! The scan takes pages in sequence order while each is valid and no epoch is lower than the one
//! before. The first page that is not ends the log: what comes later was not acknowledged, because
//! a flush covers all before it. That is checked: a later valid page that says "settled" proves
//! that the gap was durable once, so it is damage. All opaque pages of a header count or none.
//!
//! Cost: each page of the ring is read once at most, 1 MiB at a time, plus two superblock writes'
//! worth of flushes. Opening changes the superblock only, so a cut within recovery is a cut before
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;

use syncline_device::{BlockDevice, DeviceError, Geometry};

use crate::BufferError;
use crate::format::{
    Content, EPOCH_MAX, Found, LogId, MaybeSuperblock, PAGE_BYTES, Superblock, opaque_is_good,
    parse,
};
use crate::ring::{LOG, Mapped, Place, Ring, SUPERBLOCKS};

const PAGE: u64 = PAGE_BYTES as u64;
/// Fewest pages of a ring.
const RING_PAGES_MIN: u64 = 64;
/// Pages of one read while scanning.
const CHUNK_PAGES: u64 = 256;

/// The pages of an area that is large enough.
fn place(geometry: &Geometry) -> Result<Place, BufferError> {
    let place = Place::of(geometry).filter(|place| place.pages >= RING_PAGES_MIN);
    let (area_bytes, need_bytes) = (geometry.size_bytes, (SUPERBLOCKS + RING_PAGES_MIN) * PAGE);
    place.ok_or(match geometry.zones {
        None => BufferError::TooSmall { need_bytes, area_bytes },
        Some(_) => BufferError::FewZones,
    })
}

/// The two superblock pages.
fn read_superblocks(device: &dyn BlockDevice) -> Result<[MaybeSuperblock; 2], BufferError> {
    let geometry = device.geometry();
    place(&geometry)?;
    if geometry.read_only {
        return Err(BufferError::ReadOnly);
    }
    let mut pages = vec![0; 2 * PAGE_BYTES];
    device.read(0, &mut pages, LOG)?;
    Ok([Superblock::parse(&pages[..PAGE_BYTES]), Superblock::parse(&pages[PAGE_BYTES..])])
}

/// Makes an empty log on the whole of `device`.
pub(crate) fn create(
    device: &Arc<dyn BlockDevice>,
    home_bytes: u64,
    id: LogId,
    force: bool,
) -> Result<(), BufferError> {
    let found = read_superblocks(&**device)?;
    if !force {
        let mut front = vec![0; (SUPERBLOCKS * PAGE) as usize];
        device.read(0, &mut front, LOG)?;
        if found.iter().any(|f| *f != MaybeSuperblock::None) {
            return Err(BufferError::InUse { what: "a write log".to_owned() });
        }
        if front.iter().any(|&byte| byte != 0) {
            return Err(BufferError::InUse { what: "its first 8 KiB are not zero".to_owned() });
        }
    }
    let place = place(&device.geometry())?;
    let superblock = Superblock {
        epoch: 0,
        generation: 0,
        id,
        home_bytes,
        ring_pages: place.pages,
        tail: 0,
        tail_epoch: 0,
    };
    // Both copies, so that no older log is left in the second one.
    let mut ring = Ring::new(Arc::clone(device), place, superblock, 0);
    ring.write_superblock(superblock)?;
    ring.write_superblock(ring.superblock)?;
    Ok(())
}

fn newest(found: [MaybeSuperblock; 2]) -> Result<Superblock, BufferError> {
    let mut newest: Option<Superblock> = None;
    for one in &found {
        match one {
            MaybeSuperblock::Version(version) => {
                return Err(BufferError::Unsupported { version: *version });
            }
            MaybeSuperblock::Good(superblock) => {
                if newest.is_none_or(|n| n.generation < superblock.generation) {
                    newest = Some(*superblock);
                }
            }
            MaybeSuperblock::Torn | MaybeSuperblock::None => {}
        }
    }
    let torn = found.contains(&MaybeSuperblock::Torn);
    match newest {
        Some(superblock) => Ok(superblock),
        None if torn => {
            Err(BufferError::Corrupt { page: 0, what: "no superblock has a valid checksum" })
        }
        None => Err(BufferError::NoLog),
    }
}

fn check(superblock: &Superblock, home_bytes: u64, area_bytes: u64) -> Result<(), BufferError> {
    let corrupt = |what| Err(BufferError::Corrupt { page: 0, what });
    if superblock.home_bytes != home_bytes {
        let log_bytes = superblock.home_bytes;
        return Err(BufferError::OtherDevice { log_bytes, device_bytes: home_bytes });
    }
    let ring_pages = superblock.ring_pages;
    if ring_pages < RING_PAGES_MIN {
        return corrupt("the ring is shorter than the smallest");
    }
    let need_bytes = ring_pages.checked_add(SUPERBLOCKS).and_then(|pages| pages.checked_mul(PAGE));
    match need_bytes {
        Some(need_bytes) if need_bytes <= area_bytes => {}
        _ => {
            let need_bytes = need_bytes.unwrap_or(u64::MAX);
            return Err(BufferError::TooSmall { need_bytes, area_bytes });
        }
    }
    // Far below the end of the numbers, so that sequences and generations never overflow.
    let high = superblock.tail.max(superblock.generation);
    if high > u64::MAX / 4 || superblock.tail_epoch > superblock.epoch {
        return corrupt("a number of the superblock is out of range");
    }
    if superblock.epoch >= EPOCH_MAX {
        return corrupt("all epochs are used up; it was opened a thousand million times");
    }
    Ok(())
}

/// The id of the log in an area.
pub(crate) fn log_id(device: &dyn BlockDevice) -> Result<LogId, BufferError> {
    Ok(newest(read_superblocks(device)?)?.id)
}

/// The ring and its map, ready for writes of a new epoch.
pub(crate) fn open(
    device: Arc<dyn BlockDevice>,
    home_bytes: u64,
) -> Result<(Ring, BTreeMap<u64, Mapped>), BufferError> {
    let superblock = newest(read_superblocks(&*device)?)?;
    check(&superblock, home_bytes, device.geometry().size_bytes)?;
    let place = place(&device.geometry())?;
    if place.zone_pages > 1 && place.pages != superblock.ring_pages {
        return Err(BufferError::Corrupt {
            page: 0,
            what: "the ring is not all zones of its area",
        });
    }
    let mut ring = Ring::new(device, place, superblock, superblock.tail);
    // What a killed process left may be readable and still volatile.
    ring.device().flush(LOG)?;
    let mut scan = Scan::new(&ring, home_bytes.div_ceil(PAGE));
    scan.run()?;
    let (head, map) = (scan.at, scan.map);
    ring.head = head;
    let next = Superblock { epoch: superblock.epoch + 1, ..superblock };
    ring.write_superblock(next)?;
    Ok((ring, map))
}

/// One pass over the ring.
struct Scan<'a> {
    ring: &'a Ring,
    home_pages: u64,
    /// Next sequence.
    at: u64,
    end: u64,
    epoch: u32,
    map: BTreeMap<u64, Mapped>,
    chunk: Vec<u8>,
    chunk_start: u64,
}

impl<'a> Scan<'a> {
    fn new(ring: &'a Ring, home_pages: u64) -> Self {
        let at = ring.superblock.tail;
        Scan {
            ring,
            home_pages,
            at,
            end: at + ring.pages(),
            epoch: ring.superblock.tail_epoch,
            map: BTreeMap::new(),
            chunk: Vec::new(),
            chunk_start: at,
        }
    }

    fn page(&mut self, sequence: u64) -> Result<&[u8], DeviceError> {
        let inside = |start: u64, len: usize| {
            sequence >= start && sequence - start < (len / PAGE_BYTES) as u64
        };
        if !inside(self.chunk_start, self.chunk.len()) {
            let pages = CHUNK_PAGES.min(self.end - sequence) as usize;
            self.chunk.resize(pages * PAGE_BYTES, 0);
            self.ring.read_raw(sequence, &mut self.chunk)?;
            self.chunk_start = sequence;
        }
        let from = (sequence - self.chunk_start) as usize * PAGE_BYTES;
        Ok(&self.chunk[from..from + PAGE_BYTES])
    }

    /// The page with this sequence if it continues the log.
    fn valid(&mut self, sequence: u64) -> Result<Option<Found>, DeviceError> {
        let (id, newest) = (self.ring.superblock.id, self.ring.superblock.epoch);
        let lowest = self.epoch;
        let found = parse(self.page(sequence)?, &id, sequence);
        Ok(found.filter(|f| f.epoch >= lowest && f.epoch <= newest))
    }

    fn run(&mut self) -> Result<(), BufferError> {
        while self.at < self.end {
            let Some(found) = self.valid(self.at)? else { break };
            let sequence = self.at;
            match found.content {
                Content::Page { logical } => {
                    let mapped = Mapped { sequence, opaque: None, clean: false };
                    self.insert(logical, mapped)?;
                    self.at += 1;
                }
                Content::Header { opaque, dropped } => {
                    if !self.group_is_whole(&opaque)? {
                        break;
                    }
                    for range in dropped {
                        let end = range.first.saturating_add(range.pages);
                        let gone: Vec<u64> =
                            self.map.range(range.first..end).map(|(&logical, _)| logical).collect();
                        for logical in gone {
                            self.map.remove(&logical);
                        }
                    }
                    for (sequence, &(logical, item)) in (sequence + 1..).zip(&opaque) {
                        let mapped = Mapped { sequence, opaque: Some(item), clean: false };
                        self.insert(logical, mapped)?;
                    }
                    self.at += 1 + opaque.len() as u64;
                }
            }
            self.epoch = found.epoch;
        }
        self.nothing_settled_behind()
    }

    fn insert(&mut self, logical: u64, mapped: Mapped) -> Result<(), BufferError> {
        if logical >= self.home_pages {
            let page = SUPERBLOCKS + mapped.sequence % self.ring.pages();
            return Err(BufferError::Corrupt { page, what: "it belongs behind the device's end" });
        }
        self.map.insert(logical, mapped);
        Ok(())
    }

    fn group_is_whole(
        &mut self,
        opaque: &[(u64, crate::format::Opaque)],
    ) -> Result<bool, DeviceError> {
        let id = self.ring.superblock.id;
        for (sequence, &(_, item)) in (self.at + 1..).zip(opaque) {
            if sequence >= self.end || !opaque_is_good(self.page(sequence)?, item, &id, sequence) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The end is no damage: nothing behind it was written after it had been durable.
    fn nothing_settled_behind(&mut self) -> Result<(), BufferError> {
        let gap = self.at;
        for sequence in gap + 1..self.end {
            if self.valid(sequence)?.is_some_and(|found| found.settled) {
                let page = SUPERBLOCKS + gap % self.ring.pages();
                return Err(BufferError::Corrupt { page, what: "it was durable and is not valid" });
            }
        }
        Ok(())
    }
}
