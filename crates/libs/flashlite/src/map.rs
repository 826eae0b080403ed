//! Map from bytes of the file to positions in the log: the paper's list (ch. IV, 4.3, figure 9) as
//! an ordered map of extents.
//!
//! Records that follow one another in the log as in the file, all of one length but the last, are
//! one extent: their places are computed, with a gap for the tag where tags stand before the data.
//! Newer extents cut older ones; what no extent covers reads as zeros. An extent takes under 64
//! bytes of memory with its share of the tree (`tests/it/memory.rs` measures it). Tested against an
//! array of bytes at the end.

use std::collections::BTreeMap;

use crate::format::padded;

/// Records in a row. Packed: a u64 of alignment 8 would cost four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
struct Extent {
    /// Position of the first record's data in the log.
    base: u64,
    /// Bytes of the file covered.
    len: u32,
    /// Data bytes of each record but the last, which may have fewer.
    unit: u32,
    /// Bytes of the first record before the first covered one.
    skip: u32,
}

impl Extent {
    /// Bytes from the data of one record to that of the next.
    fn stride(self, gap: u64) -> u64 {
        padded(self.unit) + gap
    }

    /// Without its first `by` bytes, which is less than it has.
    fn advanced(self, by: u32, gap: u64) -> Extent {
        let offset = self.skip + by;
        let base = self.base + u64::from(offset / self.unit) * self.stride(gap);
        Extent { base, len: self.len - by, unit: self.unit, skip: offset % self.unit }
    }

    /// Takes in `len` bytes at `logical` whose data is at `data_at`, if they are the next record;
    /// whether they are. `key` is where this extent starts in the file.
    fn go_on(&mut self, key: u64, (logical, data_at): (u64, u64), len: u32, gap: u64) -> bool {
        let covered = self.skip.checked_add(self.len);
        let total = covered.and_then(|covered| covered.checked_add(len));
        let (Some(covered), Some(_)) = (covered, total) else { return false };
        let next = key + u64::from(self.len) == logical
            && len <= self.unit
            // Cheaper than the division: most extents are one record, and another follows.
            && data_at >= self.base + u64::from(covered)
            && covered % self.unit == 0
            && data_at == self.base + u64::from(covered / self.unit) * self.stride(gap);
        if next {
            self.len += len;
        }
        next
    }

    /// First byte after the last record it touches, padding included, as if that had `unit` bytes.
    fn records_end(self, gap: u64) -> u64 {
        let records = (self.skip + self.len).div_ceil(self.unit);
        self.base + u64::from(records) * self.stride(gap) - gap
    }
}

/// A part of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in the file.
    pub logical: u64,
    /// Bytes of the part.
    pub len: u32,
    /// Position of the record's data in the log.
    pub data_at: u64,
    /// Bytes of the record before the part.
    pub skip: u32,
    /// The record has at most this many data bytes.
    pub unit: u32,
}

impl Piece {
    /// Returns the position of the part in the log.
    pub(crate) fn position(&self) -> u64 {
        self.data_at + u64::from(self.skip)
    }
}

/// The map of one log.
#[derive(Debug)]
pub(crate) struct Map {
    extents: BTreeMap<u64, Extent>,
    /// Bytes between the data of records in a row.
    gap: u64,
}

impl Map {
    /// Of a log in which records in a row have so many bytes between their data.
    pub(crate) fn new(gap: u64) -> Map {
        Map { extents: BTreeMap::new(), gap }
    }

    /// Extents in it.
    pub(crate) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// `len` bytes at `logical` are now those of a record whose data starts at `data_at`.
    pub(crate) fn insert(&mut self, logical: u64, data_at: u64, len: u32) {
        let (end, gap) = (logical + u64::from(len), self.gap);
        // The last extent that starts before the end: in most cases the only one to be looked at.
        let last = self.extents.range_mut(..end).next_back();
        let goes_on = match last {
            None => false,
            Some((&key, before)) if key < logical && key + u64::from(before.len) <= logical => {
                before.go_on(key, (logical, data_at), len, gap)
            }
            Some(_) => {
                self.remove(logical, end);
                let before = self.extents.range_mut(..logical).next_back();
                before.is_some_and(|(&key, before)| before.go_on(key, (logical, data_at), len, gap))
            }
        };
        if goes_on {
            return;
        }
        self.extents.insert(logical, Extent { base: data_at, len, unit: len, skip: 0 });
    }

    /// Bytes from `from` up to `to` are unwritten.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if let Some((&key, extent)) = self.extents.range_mut(..from).next_back() {
            let whole = *extent;
            let end = key + u64::from(whole.len);
            if end > from {
                extent.len = offset_in(key, from);
                self.keep_rest(key, whole, to);
            }
        }
        while let Some((&key, &extent)) = self.extents.range(from..to.max(from)).next() {
            self.extents.remove(&key);
            self.keep_rest(key, extent, to);
        }
    }

    /// Puts back the part of a removed extent from `to` on.
    fn keep_rest(&mut self, key: u64, extent: Extent, to: u64) {
        if key + u64::from(extent.len) > to {
            self.extents.insert(to, extent.advanced(offset_in(key, to), self.gap));
        }
    }

    /// The part of one record that has all bytes from `from` to `to`, if there is one.
    pub(crate) fn piece(&self, from: u64, to: u64) -> Option<Piece> {
        let (&key, &extent) = self.extents.range(..=from).next_back()?;
        let len = u32::try_from(to - from).ok()?;
        if key + u64::from(extent.len) < to {
            return None;
        }
        let offset = extent.skip + offset_in(key, from);
        let skip = offset % extent.unit;
        let data_at = extent.base + u64::from(offset / extent.unit) * extent.stride(self.gap);
        (skip.checked_add(len)? <= extent.unit).then_some(Piece {
            logical: from,
            len,
            data_at,
            skip,
            unit: extent.unit,
        })
    }

    /// The parts of records that make up the file from `from` to `to`, ascending, cut to that
    /// range. Gaps are zeros.
    pub(crate) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = Piece> + '_ {
        let first = self.extents.range(..from).next_back().filter(|(key, extent)| {
            let len = extent.len;
            *key + u64::from(len) > from
        });
        first.into_iter().chain(self.extents.range(from..to.max(from))).flat_map(
            move |(&key, &extent)| {
                let (key, extent) = match from.checked_sub(key) {
                    Some(by) if by > 0 => (from, extent.advanced(offset_in(key, from), self.gap)),
                    _ => (key, extent),
                };
                Units { key, extent: Some(extent), to, gap: self.gap }
            },
        )
    }

    /// For each extent that has bytes at or after `from`: where its records start and end in the
    /// log, tags included.
    pub(crate) fn records_from(&self, from: u64) -> Vec<(u64, u64)> {
        self.extents
            .iter()
            .filter(|(key, extent)| {
                let len = extent.len;
                **key + u64::from(len) > from
            })
            .map(|(_, extent)| (extent.base - self.gap, extent.records_end(self.gap)))
            .collect()
    }
}

/// `at - key`, which is within an extent and so fits.
fn offset_in(key: u64, at: u64) -> u32 {
    u32::try_from(at - key).unwrap_or(u32::MAX)
}

/// The records of one extent.
struct Units {
    key: u64,
    extent: Option<Extent>,
    to: u64,
    gap: u64,
}

impl Iterator for Units {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let extent = self.extent.filter(|_| self.key < self.to)?;
        let in_unit = (extent.unit - extent.skip).min(extent.len);
        let piece = Piece {
            logical: self.key,
            len: u32::try_from(self.to - self.key).unwrap_or(u32::MAX).min(in_unit),
            data_at: extent.base,
            skip: extent.skip,
            unit: extent.unit,
        };
        self.extent = (in_unit < extent.len).then(|| extent.advanced(in_unit, self.gap));
        self.key += u64::from(in_unit);
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::TAG_BYTES;
    use syncline_testkit::Random;

    #[test]
    fn equal_records_in_a_row_are_one_extent() {
        let mut map = Map::new(TAG_BYTES);
        for i in 0..100 {
            map.insert(i * 1000, 4096 + 32 + i * (1024 + 32), 1000);
        }
        map.insert(100_000, 4096 + 32 + 100 * (1024 + 32), 10);
        assert_eq!(map.extents(), 1);
        let piece = map.pieces(99_500, 99_501).next().unwrap();
        assert_eq!((piece.position(), piece.len), (4128 + 99 * 1056 + 500, 1));
        assert_eq!(map.pieces(0, u64::MAX).count(), 101);
        map.remove(50_001, 50_002);
        assert_eq!(map.extents(), 2);
        // The last record may have as many bytes as the others.
        assert_eq!(map.records_from(0)[1], (4096 + 50 * 1056, 4096 + 101 * 1056));
    }

    #[test]
    fn the_map_agrees_with_an_array_of_bytes() {
        const SIZE: u64 = 600;
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let gap = if seed % 2 == 0 { TAG_BYTES } else { 0 };
            let mut map = Map::new(gap);
            let mut model = vec![None; SIZE as usize];
            let mut position = 4096;
            let mut next = 0;
            for _ in 0..60 {
                let from = if random.one_in(2) { next % SIZE } else { random.below(SIZE) };
                let len = [20, 20, 1 + random.below(100)][random.index(3)].min(SIZE - from);
                next = from + len;
                if random.one_in(8) {
                    map.remove(from, next);
                    model[from as usize..next as usize].fill(None);
                    continue;
                }
                let data_at = position + gap;
                map.insert(from, data_at, u32::try_from(len).unwrap());
                for i in 0..len {
                    model[(from + i) as usize] = Some(data_at + i);
                }
                position = data_at + padded(u32::try_from(len).unwrap());
                let (a, b) = (random.below(SIZE), random.below(SIZE + 1));
                let mut found = vec![None; SIZE as usize];
                for piece in map.pieces(a, b) {
                    for i in 0..u64::from(piece.len) {
                        found[(piece.logical + i) as usize] = Some(piece.position() + i);
                    }
                }
                if let Some(piece) = map.piece(a, b.max(a + 1)) {
                    let whole: Vec<_> = map.pieces(a, b.max(a + 1)).collect();
                    assert_eq!(whole, [piece], "seed {seed}, {a}..{b}");
                } else {
                    let whole = |piece: Piece| u64::from(piece.len) >= b.max(a + 1) - a;
                    assert!(!map.pieces(a, b.max(a + 1)).next().is_some_and(whole), "{a}..{b}");
                }
                for at in 0..SIZE {
                    let wanted = model[at as usize].filter(|_| (a..b).contains(&at));
                    assert_eq!(found[at as usize], wanted, "seed {seed}, {a}..{b}, byte {at}");
                }
            }
        }
    }
}
