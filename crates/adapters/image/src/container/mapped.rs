//! A disk whose parts are anywhere in a file.

use std::io::{self, Read};
use std::sync::Mutex;

use syncline_device::{
    BlockDevice, DeviceError, Geometry, MAX_REQUEST_BYTES, Op, Request, SECTOR_BYTES,
};

use super::{RUNS_MAX, Source, damaged};
use crate::Result;

/// Bytes of a part of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Zeros,
    /// These four bytes again and again.
    Fill([u8; 4]),
    /// From this byte of the file on.
    At(u64),
    /// A zlib stream of so many bytes there.
    Zlib(u64, u32),
}

/// Parts of a disk in order, without gaps.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Where each begins.
    runs: Vec<(u64, Piece)>,
    /// The end of the last.
    end: u64,
}

impl Runs {
    /// A disk that is the first bytes of the file.
    #[cfg(any(unix, windows))]
    pub(super) fn whole(len: u64) -> Result<Runs> {
        let mut runs = Runs::default();
        runs.push(len, Piece::At(0))?;
        Ok(runs)
    }

    /// Adds a part, which joins the one before where it can.
    pub(super) fn push(&mut self, len: u64, piece: Piece) -> Result<()> {
        let follows = self.runs.last().is_some_and(|(start, last)| match (last, piece) {
            (Piece::At(at), Piece::At(next)) => at.checked_add(self.end - start) == Some(next),
            (Piece::Zeros, Piece::Zeros) => true,
            (Piece::Fill(last), Piece::Fill(next)) => *last == next,
            _ => false,
        });
        if len > 0 && !follows {
            if self.runs.len() == RUNS_MAX {
                return Err(damaged("its tables have more parts than a disk of 2 TiB"));
            }
            self.runs.push((self.end, piece));
        }
        self.end = self.end.checked_add(len).ok_or_else(|| damaged("it is too large"))?;
        Ok(())
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The part at a place: its piece, where it begins and where it ends.
    fn at(&self, place: u64) -> Option<(Piece, u64, u64)> {
        let next = self.runs.partition_point(|(start, _)| *start <= place);
        let (start, piece) = *self.runs.get(next.checked_sub(1)?)?;
        Some((piece, start, self.runs.get(next).map_or(self.end, |(start, _)| *start)))
    }
}

/// The disk as a device.
pub(super) struct Mapped {
    source: Source,
    runs: Runs,
    /// The compressed part that was read last, and where it is.
    last: Mutex<(u64, Vec<u8>)>,
    geometry: Geometry,
}

impl Mapped {
    /// Checks that all parts are in the file.
    pub(super) fn new(source: Source, runs: Runs) -> Result<Mapped> {
        let ends = runs.runs.iter().skip(1).map(|(start, _)| *start).chain([runs.end]);
        for ((start, piece), end) in runs.runs.iter().zip(ends) {
            let last = match piece {
                Piece::Zeros | Piece::Fill(_) => Some(0),
                Piece::At(at) => at.checked_add(end - start),
                Piece::Zlib(at, len) => at.checked_add((*len).into()),
            };
            // The last cluster of a file may be cut where the disk ends.
            if last.is_none_or(|last| last > source.len) {
                return Err(damaged("its tables lead beyond its end"));
            }
        }
        let geometry = Geometry {
            size_bytes: runs.end / SECTOR_BYTES * SECTOR_BYTES,
            max_request_bytes: MAX_REQUEST_BYTES,
            volatile_cache: false,
            fua: false,
            barrier: false,
            discard: false,
            read_only: true,
            zones: None,
            write_hints: false,
        };
        // No part begins there.
        let last = Mutex::new((u64::MAX, Vec::new()));
        Ok(Mapped { source, runs, last, geometry })
    }

    fn read_at(&self, mut place: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            let (piece, start, end) = self.runs.at(place).ok_or(io::ErrorKind::UnexpectedEof)?;
            let len = usize::try_from(end - place).unwrap_or(usize::MAX).min(into.len());
            let (part, rest) = into.split_at_mut(len);
            match piece {
                Piece::Zeros => part.fill(0),
                Piece::Fill(bytes) => {
                    let from = ((place - start) % 4) as usize;
                    let bytes = bytes.iter().cycle().skip(from);
                    part.iter_mut().zip(bytes).for_each(|(into, from)| *into = *from);
                }
                Piece::At(at) => {
                    self.source.file.read_exact_at(part, at + (place - start))?;
                }
                Piece::Zlib(at, packed) => {
                    let from = usize::try_from(place - start).unwrap_or(usize::MAX);
                    self.inflated(start, (at, packed), end - start, |bytes| {
                        let bytes = bytes.get(from..).and_then(|bytes| bytes.get(..len));
                        bytes.map(|bytes| part.copy_from_slice(bytes))
                    })?;
                }
            }
            place += len as u64;
            into = rest;
        }
        Ok(())
    }

    /// Calls `take` with the bytes of a compressed part.
    fn inflated(
        &self,
        start: u64,
        (at, packed): (u64, u32),
        len: u64,
        take: impl FnOnce(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        // Nobody panics with the lock.
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0 != start {
            last.0 = u64::MAX;
            let mut bytes = vec![0; packed as usize];
            self.source.file.read_exact_at(&mut bytes, at)?;
            last.1.clear();
            let mut decoder = flate2::read::ZlibDecoder::new(&bytes[..]).take(len);
            decoder.read_to_end(&mut last.1)?;
            last.0 = start;
        }
        take(&last.1).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl BlockDevice for Mapped {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        for request in batch {
            self.geometry.check(request)?;
            let mut at = request.offset_bytes;
            let Op::Read { into } = &mut request.op else { continue };
            for part in into.iter_mut() {
                self.read_at(at, part).map_err(|err| DeviceError::Io {
                    op: "read",
                    offset_bytes: at,
                    len_bytes: part.len() as u64,
                    reason: err.to_string(),
                    errno: err.raw_os_error().unwrap_or(5),
                })?;
                at += part.len() as u64;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_follow_each_other_are_one() {
        let mut runs = Runs::default();
        for (len, piece) in [
            (512, Piece::At(1024)),
            (512, Piece::At(1536)),
            (0, Piece::Zeros),
            (512, Piece::At(9000)),
            (512, Piece::Zeros),
            (512, Piece::Zeros),
        ] {
            runs.push(len, piece).unwrap();
        }
        assert_eq!(runs.runs.len(), 3);
        assert_eq!(runs.at(1023), Some((Piece::At(1024), 0, 1024)));
        assert_eq!(runs.at(1024), Some((Piece::At(9000), 1024, 1536)));
        assert_eq!(runs.at(2559), Some((Piece::Zeros, 1536, 2560)));
        assert!(runs.push(u64::MAX, Piece::Zeros).is_err());
    }
}
