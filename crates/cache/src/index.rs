//! Which frame holds a page: slot numbers in a hash table, the keys stay in the frames.

use crate::{FrameId, Frames, PageKey};
use hashbrown::HashTable;

/// A hash with good high and low bits from one multiplication.
#[inline]
pub(crate) fn key_hash(key: PageKey) -> u64 {
    let mixed = key.index ^ key.file.rotate_left(32);
    let product = u128::from(mixed ^ 0x243F_6A88_85A3_08D3) * 0x9E37_79B9_7F4A_7C15;
    (product >> 64) as u64 ^ product as u64
}

/// Frames by key, for a [`Frames`] that is given to every call.
#[derive(Default)]
pub(crate) struct PageIndex {
    slots: HashTable<u32>,
}

impl PageIndex {
    /// With room for `capacity` pages.
    pub fn new(capacity: usize) -> Self {
        PageIndex { slots: HashTable::with_capacity(capacity.min(1 << 24)) }
    }

    /// The frame with this page.
    #[inline]
    pub fn get(&self, frames: &Frames, key: PageKey) -> Option<FrameId> {
        let found = self.slots.find(key_hash(key), |slot| frames.key(FrameId(*slot)) == Some(key));
        found.map(|slot| FrameId(*slot))
    }

    /// Adds a frame; its page is in no other one.
    #[inline]
    pub fn insert(&mut self, frames: &Frames, key: PageKey, id: FrameId) {
        let hash = |slot: &u32| frames.key(FrameId(*slot)).map_or(0, key_hash);
        self.slots.insert_unique(key_hash(key), id.0, hash);
    }

    /// Removes a frame that still has its key.
    #[inline]
    pub fn remove(&mut self, key: PageKey, id: FrameId) {
        if let Ok(entry) = self.slots.find_entry(key_hash(key), |slot| *slot == id.0) {
            entry.remove();
        }
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.slots.allocation_size()
    }
}
