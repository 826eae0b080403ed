//! Hash table from page to frame. Entries are slot numbers; the keys stay in the frames.
//!
//! ```text
//!   entries: [ tag 5 : slot 12 | empty | tag 9 : slot 3 | tag 9 : slot 7 | ... ]   8 bytes each
//!              place = tag x entries / 2^32, or the next free one after it
//! ```
//!
//! One line of memory tells the slot, a second one, the frame's, that it is the right one. Three
//! quarters are used at most of a table made for its pages, four fifths before one grows. An entry
//! that goes lets those after it move up, so there are no tombstones. Tested below against a map.

use crate::{FrameId, Frames, PageKey};

/// A hash with good high and low bits from one multiplication.
#[inline]
pub(crate) fn key_hash(key: PageKey) -> u64 {
    let mixed = key.index ^ key.file.rotate_left(32);
    let product = u128::from(mixed ^ 0x243F_6A88_85A3_08D3) * 0x9E37_79B9_7F4A_7C15;
    (product >> 64) as u64 ^ product as u64
}

/// The part of the hash that is kept.
#[inline]
fn tag_of(key: PageKey) -> u32 {
    (key_hash(key) >> 32) as u32
}

/// No page: a slot is below `u32::MAX`, see [`Frames::new`].
const EMPTY: u64 = u64::MAX;

#[inline]
fn tag(entry: u64) -> u32 {
    (entry >> 32) as u32
}

#[inline]
fn slot(entry: u64) -> FrameId {
    FrameId(entry as u32)
}

/// Frames by key, for a [`Frames`] that is given to every call.
#[derive(Default)]
pub(crate) struct PageIndex {
    entries: Vec<u64>,
    len: usize,
}

impl PageIndex {
    /// With room for `capacity` pages; it grows when there are more.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(1 << 24);
        PageIndex { entries: vec![EMPTY; capacity + capacity / 3 + 2], len: 0 }
    }

    /// Returns the entry at which a search for this tag begins.
    #[inline]
    fn home(&self, tag: u32) -> usize {
        // Below the number of entries, which a `u64` holds times a `u32`.
        ((u64::from(tag) * self.entries.len() as u64) >> 32) as usize
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.entries.len() { 0 } else { at + 1 }
    }

    /// The place of the first entry from the home of `wanted` on for which `is` holds.
    #[inline]
    fn find(&self, wanted: u32, is: impl Fn(FrameId) -> bool) -> Option<usize> {
        let mut at = self.home(wanted);
        // Some entry is empty, so this ends; a table of none has no entry to begin with.
        loop {
            let entry = *self.entries.get(at)?;
            if entry == EMPTY {
                return None;
            }
            if tag(entry) == wanted && is(slot(entry)) {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// The frame with this page.
    #[inline]
    pub fn get(&self, frames: &Frames, key: PageKey) -> Option<FrameId> {
        let at = self.find(tag_of(key), |frame| frames.key(frame) == Some(key))?;
        Some(slot(self.entries[at]))
    }

    /// Adds a frame; its page is in no other one.
    #[inline]
    pub fn insert(&mut self, key: PageKey, id: FrameId) {
        if (self.len + 1) * 5 > self.entries.len() * 4 {
            self.grow();
        }
        self.len += 1;
        self.put(u64::from(tag_of(key)) << 32 | u64::from(id.0));
    }

    fn put(&mut self, entry: u64) {
        let mut at = self.home(tag(entry));
        while self.entries[at] != EMPTY {
            at = self.after(at);
        }
        self.entries[at] = entry;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; (self.entries.len() * 2).max(8)];
        let entries = std::mem::replace(&mut self.entries, larger);
        entries.into_iter().filter(|entry| *entry != EMPTY).for_each(|entry| self.put(entry));
    }

    /// Removes a frame that was added with this key.
    #[inline]
    pub fn remove(&mut self, key: PageKey, id: FrameId) {
        let Some(mut hole) = self.find(tag_of(key), |frame| frame == id) else { return };
        self.len -= 1;
        let mut at = hole;
        loop {
            at = self.after(at);
            let entry = self.entries[at];
            if entry == EMPTY {
                break;
            }
            // It moves up unless its home is behind the hole.
            let home = self.home(tag(entry));
            let stays =
                if hole <= at { hole < home && home <= at } else { hole < home || home <= at };
            if !stays {
                self.entries[hole] = entry;
                hole = at;
            }
        }
        self.entries[hole] = EMPTY;
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeMap;

    #[test]
    fn what_was_added_is_found_and_what_was_removed_is_not() {
        for (seed, capacity) in [(1, 0), (2, 7), (3, 200), (4, 1000)] {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let (frames, mut index) = (Frames::new(1000), PageIndex::new(capacity));
            let mut model = BTreeMap::new();
            for step in 0..20_000 {
                let key = PageKey { file: rng.random_range(0..3), index: rng.random_range(0..400) };
                assert_eq!(index.get(&frames, key), model.get(&key).copied(), "{seed} {step}");
                match model.remove(&key) {
                    Some(frame) => {
                        index.remove(key, frame);
                        frames.release(frame);
                    }
                    None if model.len() < 190 || capacity != 200 => {
                        let frame = frames.insert(key, false).expect("there is room");
                        index.insert(key, frame);
                        model.insert(key, frame);
                    }
                    None => {}
                }
                assert_eq!(index.len, model.len());
            }
            index.remove(PageKey { file: 9, index: 0 }, FrameId(0));
            assert_eq!(index.len, model.len());
            let all = model.iter().all(|(key, frame)| index.get(&frames, *key) == Some(*frame));
            assert!(all, "{seed}");
        }
    }

    /// The last place is followed by the first.
    #[test]
    fn entries_that_go_over_the_end_move_up_again() {
        let frames = Frames::new(10);
        let mut index = PageIndex::new(4);
        let places = index.entries.len() as u64;
        let last =
            |n: &u64| index.home(tag_of(PageKey { file: 0, index: *n })) as u64 + 1 == places;
        let keys = (0..).filter(last).take(3).map(|index| PageKey { file: 0, index });
        let keys: Vec<PageKey> = keys.collect();
        let ids: Vec<_> = keys.iter().map(|key| frames.insert(*key, false).unwrap()).collect();
        keys.iter().zip(&ids).for_each(|(key, id)| index.insert(*key, *id));
        assert_eq!(index.entries.len() as u64, places, "it has not grown");
        for (n, key) in keys.iter().enumerate() {
            assert_eq!(index.get(&frames, *key), Some(ids[n]));
            index.remove(*key, ids[n]);
            let left = keys[n + 1..].iter().zip(&ids[n + 1..]);
            left.for_each(|(key, id)| assert_eq!(index.get(&frames, *key), Some(*id)));
        }
        assert!(index.entries.iter().all(|entry| *entry == EMPTY));
    }
}
