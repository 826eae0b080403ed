//! A device whose writes stay in memory: the device below is only read.
//!
//! For looking at an image that wants its journal replayed without changing it. Promises: reads see
//! the overlay's writes; the device below gets no write, flush or discard. Memory: what was
//! written, in pieces of 4 KiB. Tested below.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use crate::{BlockDevice, DeviceError, Geometry, Op, Origin, Request};

const PIECE_BYTES: u64 = 4096;

type Piece = Box<[u8; PIECE_BYTES as usize]>;

/// See the module.
pub struct OverlayDevice<D> {
    below: D,
    pieces: Mutex<BTreeMap<u64, Piece>>,
}

impl<D: BlockDevice> OverlayDevice<D> {
    /// An overlay without writes.
    pub fn new(below: D) -> Self {
        OverlayDevice { below, pieces: Mutex::default() }
    }

    /// Byte ranges that were written, ascending, in whole pieces of 4 KiB.
    pub fn written(&self) -> Vec<Range<u64>> {
        let pieces = self.pieces.lock();
        pieces.keys().map(|nr| nr * PIECE_BYTES..(nr + 1) * PIECE_BYTES).collect()
    }

    /// Reads a piece of the device below; bytes past its end are zero.
    fn load(&self, nr: u64, origin: Origin) -> Result<Piece, DeviceError> {
        let mut piece = Box::new([0; PIECE_BYTES as usize]);
        let start = nr * PIECE_BYTES;
        let len = self.below.geometry().size_bytes.saturating_sub(start).min(PIECE_BYTES);
        if let Some(part) = piece.get_mut(..len as usize) {
            self.below.read(start, part, origin)?;
        }
        Ok(piece)
    }

    fn write_part(&self, at: u64, mut from: &[u8], origin: Origin) -> Result<(), DeviceError> {
        let mut pieces = self.pieces.lock();
        let mut at = at;
        while !from.is_empty() {
            let (nr, skip) = (at / PIECE_BYTES, (at % PIECE_BYTES) as usize);
            let len = from.len().min(PIECE_BYTES as usize - skip);
            let (now, rest) = from.split_at(len);
            let piece = match pieces.remove(&nr) {
                Some(piece) => piece,
                None if len == PIECE_BYTES as usize => Box::new([0; PIECE_BYTES as usize]),
                None => self.load(nr, origin)?,
            };
            let piece = pieces.entry(nr).or_insert(piece);
            if let Some(place) = piece.get_mut(skip..skip + len) {
                place.copy_from_slice(now);
            }
            from = rest;
            at += len as u64;
        }
        Ok(())
    }

    /// Reads the written bytes here and only the others below, where they may be unreadable.
    fn read_part(&self, at: u64, into: &mut [u8], origin: Origin) -> Result<(), DeviceError> {
        let end = at + into.len() as u64;
        let mut gaps = Vec::new();
        let mut next = at;
        let pieces = self.pieces.lock();
        for (nr, piece) in pieces.range(at / PIECE_BYTES..end.div_ceil(PIECE_BYTES)) {
            let start = nr * PIECE_BYTES;
            let (from, to) = (start.max(at), (start + PIECE_BYTES).min(end));
            let source = piece.get((from - start) as usize..(to - start) as usize);
            let target = into.get_mut((from - at) as usize..(to - at) as usize);
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
            gaps.push(next..from);
            next = to;
        }
        drop(pieces);
        gaps.push(next..end);
        for gap in gaps.into_iter().filter(|gap| !gap.is_empty()) {
            let place = into.get_mut((gap.start - at) as usize..(gap.end - at) as usize);
            place.map_or(Ok(()), |place| self.below.read(gap.start, place, origin))?;
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for OverlayDevice<D> {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: false, discard: false, zones: None, ..self.below.geometry() }
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        for request in batch {
            geometry.check(request)?;
            let (mut at, origin) = (request.offset_bytes, request.origin);
            match &mut request.op {
                Op::Read { into } => {
                    for part in into.iter_mut() {
                        self.read_part(at, part, origin)?;
                        at += part.len() as u64;
                    }
                }
                Op::Write { from, .. } => {
                    for part in from.iter() {
                        self.write_part(at, part, origin)?;
                        at += part.len() as u64;
                    }
                }
                Op::Flush | Op::Discard { .. } => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, MemoryDevice};
    use std::sync::Arc;

    #[test]
    fn writes_are_seen_above_and_not_below() {
        let origin = Origin::new(Kind::Metadata, true);
        // Not a multiple of the piece, to meet the end.
        let below = Arc::new(MemoryDevice::from_bytes(&[1; 4096 * 2 + 512]));
        let below = Arc::new(MemoryDevice::with_geometry(below.snapshot(), |g| g.read_only = true));
        let overlay = OverlayDevice::new(Arc::clone(&below));
        overlay.write(3584, &[2; 1024], origin).unwrap();
        overlay.write(8192, &[3; 512], origin).unwrap();
        overlay.flush(origin).unwrap();
        assert_eq!(overlay.written(), [0..4096, 4096..8192, 8192..12288]);
        let mut bytes = vec![0; 4096 * 2 + 512];
        overlay.read(0, &mut bytes, origin).unwrap();
        let runs: Vec<(u8, usize)> =
            bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        assert_eq!(runs, [(1, 3584), (2, 1024), (1, 3584), (3, 512)]);
        below.read(0, &mut bytes, origin).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1));
        assert!(overlay.write(8704, &[0; 512], origin).is_err());
    }
}
