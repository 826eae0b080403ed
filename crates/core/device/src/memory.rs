//! A device in memory: sparse, fast, and snapshots that share unchanged parts.
//!
//! ```text
//!   segments  [ lock | Arc ]  one per 1 MiB, None = all zeroes
//!                  |
//!   chunks       [ Arc; 64 ]  16 KiB each,   None = zeroes
//! ```
//!
//! Promises
//! - Bytes never written, zeroes written there, and discarded whole chunks, cost no memory and read
//!   as zeroes.
//! - [`MemoryDevice::snapshot`] costs one reference per MiB; both sides copy a chunk when they
//!   first write to it. It is a picture of one instant only while nobody writes.
//! - Threads work in parallel, except writers within the same MiB.
//! - Everything completed is durable. It nevertheless reports a volatile cache and FUA by default,
//!   so that the layers above behave as they do on flash; change that with
//!   [`MemoryDevice::with_geometry`].
//!
//! Loading from and storing to files is in `mirror.rs`. Tested below and as the reference of the
//! plug, file device and crash tests.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::{BlockDevice, DeviceError, Geometry, Op, Request, SECTOR_BYTES};

/// Unit of copy-on-write, in bytes.
pub(crate) const CHUNK_BYTES: usize = 16 * 1024;
const SEGMENT_CHUNKS: usize = 64;
const SEGMENT_BYTES: u64 = (CHUNK_BYTES * SEGMENT_CHUNKS) as u64;
static ZERO_CHUNK: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// 16 KiB of content; always exactly [`CHUNK_BYTES`] long.
pub(crate) type Chunk = Arc<[u8]>;
type Segment = [Option<Chunk>; SEGMENT_CHUNKS];

/// A sparse device in memory. See the module's description.
#[derive(Debug)]
pub struct MemoryDevice {
    geometry: Geometry,
    segments: Box<[RwLock<Option<Arc<Segment>>>]>,
}

impl MemoryDevice {
    /// A device of zeroes; the size is rounded down to whole sectors.
    pub fn new(size_bytes: u64) -> Self {
        let size_bytes = size_bytes / SECTOR_BYTES * SECTOR_BYTES;
        let segments = (0..size_bytes.div_ceil(SEGMENT_BYTES)).map(|_| RwLock::new(None)).collect();
        let geometry = Geometry { fua: true, discard: true, ..Geometry::new(size_bytes) };
        MemoryDevice { geometry, segments }
    }

    /// A device with these bytes, rounded up to whole sectors with zeroes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = MemoryDevice::new((bytes.len() as u64).next_multiple_of(SECTOR_BYTES));
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            if chunk != &ZERO_CHUNK[..chunk.len()] {
                device.copy_in((index * CHUNK_BYTES) as u64, chunk);
            }
        }
        device
    }

    /// Changes the reported abilities. The size stays.
    pub fn with_geometry(mut self, change: impl FnOnce(&mut Geometry)) -> Self {
        let size_bytes = self.geometry.size_bytes;
        change(&mut self.geometry);
        self.geometry.size_bytes = size_bytes;
        self
    }

    /// Takes all memory now, so that a measurement does not include the machine's page faults.
    /// Holes become chunks of zeroes; the content stays.
    pub fn populate(&self) {
        for segment in &self.segments {
            let mut segment = segment.write();
            let segment = segment.get_or_insert_with(|| Arc::new([const { None }; SEGMENT_CHUNKS]));
            for slot in Arc::make_mut(segment).iter_mut().filter(|slot| slot.is_none()) {
                *slot = Some(Arc::from(&ZERO_CHUNK[..]));
            }
        }
    }

    /// A device with the same content that shares unchanged chunks. Neither sees the other's
    /// later writes.
    pub fn snapshot(&self) -> MemoryDevice {
        let segments = self.segments.iter().map(|s| RwLock::new(s.read().clone())).collect();
        MemoryDevice { geometry: self.geometry, segments }
    }

    /// As [`MemoryDevice::snapshot`], with `room_bytes` of zeroes behind the content, rounded down
    /// to whole sectors.
    pub fn snapshot_with_room(&self, room_bytes: u64) -> MemoryDevice {
        let mut larger = MemoryDevice::new(self.geometry.size_bytes + room_bytes);
        larger.geometry = Geometry { size_bytes: larger.geometry.size_bytes, ..self.geometry };
        for (to, from) in larger.segments.iter_mut().zip(&self.segments) {
            *to = RwLock::new(from.read().clone());
        }
        larger
    }

    /// Memory that holds content, in bytes. Shared chunks count in every snapshot.
    pub fn allocated_bytes(&self) -> u64 {
        let chunks = |s: &Arc<Segment>| s.iter().flatten().count() as u64;
        let count: u64 = self.segments.iter().map(|s| s.read().as_ref().map_or(0, chunks)).sum();
        count * CHUNK_BYTES as u64
    }

    /// Reads without a request, for tests and judges. Any alignment.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`].
    pub fn read_at(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.inside("read", offset_bytes, into.len() as u64)?;
        self.copy_out(offset_bytes, into);
        Ok(())
    }

    /// Writes without a request, for tests and image builders. Any alignment.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`].
    pub fn write_at(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.inside("write", offset_bytes, from.len() as u64)?;
        self.copy_in(offset_bytes, from);
        Ok(())
    }

    /// Makes a range zero without a request, giving memory back. Any alignment.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`].
    pub fn zero_at(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.inside("discard", offset_bytes, len_bytes)?;
        self.zero(offset_bytes, len_bytes);
        Ok(())
    }

    /// The first 512-byte sector (as a byte offset) whose content differs, or where one device ends
    /// before the other. Chunks that both share are not compared.
    pub fn first_difference(&self, other: &MemoryDevice) -> Option<u64> {
        let (a_size, b_size) = (self.geometry.size_bytes, other.geometry.size_bytes);
        let common = a_size.min(b_size);
        for index in self.unshared_chunks(other) {
            let (a, b) = (self.chunk(index), other.chunk(index));
            let (a, b) = (bytes_of(&a), bytes_of(&b));
            let sectors = a.chunks(SECTOR_BYTES as usize).zip(b.chunks(SECTOR_BYTES as usize));
            for (sector, _) in sectors.enumerate().filter(|(_, (x, y))| x != y) {
                let at = index * CHUNK_BYTES as u64 + sector as u64 * SECTOR_BYTES;
                if at < common {
                    return Some(at);
                }
            }
        }
        (a_size != b_size).then_some(common)
    }

    /// The chunk with this number, `None` where it is zeroes or past the end.
    pub(crate) fn chunk(&self, index: u64) -> Option<Chunk> {
        let segment = self.segments.get((index / SEGMENT_CHUNKS as u64) as usize)?;
        segment.read().as_ref()?[(index % SEGMENT_CHUNKS as u64) as usize].clone()
    }

    /// Numbers of the chunks, in order, that are not the same allocation in both devices and so may
    /// differ. Costs one comparison per MiB that is shared as a whole.
    pub(crate) fn unshared_chunks(&self, other: &MemoryDevice) -> Vec<u64> {
        let mut unshared = Vec::new();
        let pairs = self.segments.iter().zip(other.segments.iter());
        for (first, (a, b)) in (0..).step_by(SEGMENT_CHUNKS).zip(pairs) {
            // A copy, so that no two locks are held at once.
            let (a, b) = (a.read().clone(), b.read().clone());
            let shared = match (&a, &b) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (a, b) => a.is_none() && b.is_none(),
            };
            if !shared {
                let of = |segment: &Option<Arc<Segment>>, i: usize| {
                    segment.as_ref().and_then(|s| s[i].as_ref().map(Arc::as_ptr))
                };
                let differ = |&i: &usize| of(&a, i) != of(&b, i);
                unshared.extend((0..SEGMENT_CHUNKS).filter(differ).map(|i| first + i as u64));
            }
        }
        unshared
    }

    fn inside(&self, op: &'static str, offset: u64, len: u64) -> Result<(), DeviceError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.geometry.size_bytes => Ok(()),
            _ => Err(DeviceError::OutOfRange { op, offset_bytes: offset, len_bytes: len }),
        }
    }

    /// Range is known to be inside.
    fn copy_out(&self, mut offset: u64, mut into: &mut [u8]) {
        while !into.is_empty() {
            let within = offset % SEGMENT_BYTES;
            let len = (SEGMENT_BYTES - within).min(into.len() as u64) as usize;
            let (head, tail) = into.split_at_mut(len);
            let segment = self.segments[(offset / SEGMENT_BYTES) as usize].read();
            match segment.as_ref() {
                None => head.fill(0),
                Some(segment) => copy_from_segment(segment, within as usize, head),
            }
            into = tail;
            offset += len as u64;
        }
    }

    /// Range is known to be inside.
    fn copy_in(&self, mut offset: u64, mut from: &[u8]) {
        while !from.is_empty() {
            let within = offset % SEGMENT_BYTES;
            let len = (SEGMENT_BYTES - within).min(from.len() as u64) as usize;
            let (head, tail) = from.split_at(len);
            let mut segment = self.segments[(offset / SEGMENT_BYTES) as usize].write();
            let segment = segment.get_or_insert_with(|| Arc::new([const { None }; SEGMENT_CHUNKS]));
            copy_to_segment(Arc::make_mut(segment), within as usize, head);
            from = tail;
            offset += len as u64;
        }
    }

    /// Range is known to be inside.
    fn zero(&self, mut offset: u64, mut len: u64) {
        while len > 0 {
            let within = (offset % CHUNK_BYTES as u64) as usize;
            let step = ((CHUNK_BYTES - within) as u64).min(len);
            let mut segment = self.segments[(offset / SEGMENT_BYTES) as usize].write();
            let number = ((offset % SEGMENT_BYTES) / CHUNK_BYTES as u64) as usize;
            if let Some(segment) = segment.as_mut().filter(|s| s[number].is_some()) {
                let slot = &mut Arc::make_mut(segment)[number];
                match slot {
                    Some(chunk) if step < CHUNK_BYTES as u64 => {
                        Arc::make_mut(chunk)[within..within + step as usize].fill(0);
                    }
                    _ => *slot = None,
                }
            }
            offset += step;
            len -= step;
        }
    }
}

/// The content of a chunk.
pub(crate) fn bytes_of(chunk: &Option<Chunk>) -> &[u8] {
    chunk.as_deref().unwrap_or(&ZERO_CHUNK)
}

fn copy_from_segment(segment: &Segment, mut at: usize, mut into: &mut [u8]) {
    while !into.is_empty() {
        let within = at % CHUNK_BYTES;
        let len = (CHUNK_BYTES - within).min(into.len());
        let (head, tail) = into.split_at_mut(len);
        match &segment[at / CHUNK_BYTES] {
            None => head.fill(0),
            Some(chunk) => head.copy_from_slice(&chunk[within..within + len]),
        }
        into = tail;
        at += len;
    }
}

fn copy_to_segment(segment: &mut Segment, mut at: usize, mut from: &[u8]) {
    while !from.is_empty() {
        let within = at % CHUNK_BYTES;
        let len = (CHUNK_BYTES - within).min(from.len());
        let (head, tail) = from.split_at(len);
        let slot = &mut segment[at / CHUNK_BYTES];
        match slot {
            // A whole chunk that is shared or new: one copy, no zeroing and no copy of the old.
            Some(chunk) if len == CHUNK_BYTES => match Arc::get_mut(chunk) {
                Some(own) => own.copy_from_slice(head),
                None => *chunk = Arc::from(head),
            },
            None if head == &ZERO_CHUNK[..len] => {}
            None if len == CHUNK_BYTES => *slot = Some(Arc::from(head)),
            Some(chunk) => Arc::make_mut(chunk)[within..within + len].copy_from_slice(head),
            None => {
                let mut chunk: Chunk = Arc::from(&ZERO_CHUNK[..]);
                Arc::make_mut(&mut chunk)[within..within + len].copy_from_slice(head);
                *slot = Some(chunk);
            }
        }
        from = tail;
        at += len;
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        for request in batch {
            self.geometry.check(request)?;
            let mut at = request.offset_bytes;
            match &mut request.op {
                Op::Read { into } => {
                    for buffer in into {
                        self.copy_out(at, buffer);
                        at += buffer.len() as u64;
                    }
                }
                Op::Write { from, .. } => {
                    for buffer in from {
                        self.copy_in(at, buffer);
                        at += buffer.len() as u64;
                    }
                }
                Op::Discard { len_bytes } => self.zero(at, *len_bytes),
                Op::Flush => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Origin};

    const OTHER: Origin = Origin::new(Kind::Other, false);

    #[test]
    fn a_snapshot_with_room_has_zeroes_behind_the_content() {
        let small = MemoryDevice::new(3 * CHUNK_BYTES as u64 - 512);
        small.write_at(2 * CHUNK_BYTES as u64, &[7; 1024]).unwrap();
        let large = small.snapshot_with_room(2 << 20);
        assert_eq!(large.geometry().size_bytes, small.geometry().size_bytes + (2 << 20));
        let mut bytes = vec![1; large.geometry().size_bytes as usize];
        large.read_at(0, &mut bytes).unwrap();
        let is_content = |at: usize| (2 * CHUNK_BYTES..2 * CHUNK_BYTES + 1024).contains(&at);
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == 7 * u8::from(is_content(at))));
        large.write_at(2 * CHUNK_BYTES as u64, &[9]).unwrap();
        let mut one = [0];
        small.read_at(2 * CHUNK_BYTES as u64, &mut one).unwrap();
        assert_eq!(one, [7], "the snapshot's writes are its own");
    }

    #[test]
    fn unwritten_bytes_are_zero_and_free() {
        let device = MemoryDevice::new(1 << 40);
        let mut buffer = vec![7; 4096];
        device.read((1 << 40) - 4096, &mut buffer, OTHER).unwrap();
        assert_eq!(buffer, vec![0; 4096]);
        assert_eq!(device.allocated_bytes(), 0);
    }

    #[test]
    fn writes_across_chunks_and_segments_read_back() {
        let device = MemoryDevice::new(4 << 20);
        let bytes: Vec<u8> = (0..(1 << 20) + 1536).map(|i| (i % 251) as u8).collect();
        let at = (1 << 20) - 512;
        device.write(at, &bytes, OTHER).unwrap();
        let mut back = vec![0; bytes.len()];
        device.read(at, &mut back, OTHER).unwrap();
        assert!(back == bytes);
    }

    #[test]
    fn a_snapshot_and_its_source_do_not_see_each_other() {
        let device = MemoryDevice::from_bytes(&[1; 65536]);
        let copy = device.snapshot();
        assert_eq!(device.first_difference(&copy), None);
        device.write(16384, &[2; 512], OTHER).unwrap();
        copy.write(32768, &[3; 16384], OTHER).unwrap();
        assert_eq!(device.first_difference(&copy), Some(16384));
        let mut sector = [0; 512];
        copy.read(16384, &mut sector, OTHER).unwrap();
        assert_eq!(sector, [1; 512]);
        device.read(32768, &mut sector, OTHER).unwrap();
        assert_eq!(sector, [1; 512]);
    }

    #[test]
    fn discard_zeroes_exactly_its_range_and_frees_whole_chunks() {
        let device = MemoryDevice::from_bytes(&[9; 65536]);
        device.discard(512, 49152, OTHER).unwrap();
        let mut all = vec![1; 65536];
        device.read(0, &mut all, OTHER).unwrap();
        assert!(all[..512].iter().all(|&b| b == 9));
        assert!(all[512..49664].iter().all(|&b| b == 0));
        assert!(all[49664..].iter().all(|&b| b == 9));
        assert_eq!(device.allocated_bytes(), 2 * CHUNK_BYTES as u64);
    }

    #[test]
    fn bad_requests_are_refused() {
        let device = MemoryDevice::new(4096);
        let mut two = [0; 1024];
        for (offset, len) in [(3584, 1024), (u64::MAX - 511, 512), (100, 512), (0, 100)] {
            let result = device.read(offset, &mut two[..len], OTHER);
            assert!(matches!(result, Err(DeviceError::OutOfRange { .. })), "{offset} {len}");
        }
        let device = device.with_geometry(|g| g.read_only = true);
        assert_eq!(device.write(0, &two, OTHER), Err(DeviceError::ReadOnly));
        assert_eq!(device.read(0, &mut two, OTHER), Ok(()));
    }

    /// `cargo test -p syncline-device --release -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        let buffer = vec![1; 512 * 1024];
        let measure = |device: &MemoryDevice, what| {
            let start = std::time::Instant::now();
            for i in 0..2048 {
                device.write(i * buffer.len() as u64, &buffer, OTHER).unwrap();
            }
            let gb_per_s = (1u64 << 30) as f64 / start.elapsed().as_secs_f64() / 1e9;
            println!("{what}, 1 GiB in 512 KiB requests: {gb_per_s:.1} GB/s");
        };
        let device = MemoryDevice::new(1 << 30);
        measure(&device, "first write");
        measure(&device, "overwrite");
        let device = MemoryDevice::new(1 << 30);
        device.populate();
        measure(&device, "first write after populate");
    }

    #[test]
    fn populated_holes_are_still_zero() {
        let device = MemoryDevice::from_bytes(&[1; 512]);
        device.populate();
        assert_eq!(device.allocated_bytes(), SEGMENT_BYTES);
        let mut sector = [1; 512];
        assert_eq!(device.read(0, &mut sector, OTHER), Ok(()));
        assert_eq!(sector, [1; 512]);
        assert!(device.read_at(512, &mut [0]).is_err());
    }

    #[test]
    fn threads_share_it() {
        let device = MemoryDevice::new(8 << 20);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let device = &device;
                scope.spawn(move || {
                    for i in 0..64u64 {
                        let at = (i * 4 + u64::from(thread)) * 4096;
                        device.write(at, &[thread + 1; 4096], OTHER).unwrap();
                    }
                });
            }
        });
        let mut page = [0; 4096];
        for block in 0..256 {
            device.read(block * 4096, &mut page, OTHER).unwrap();
            assert_eq!(page, [(block % 4) as u8 + 1; 4096]);
        }
    }
}
