//! Keys of pages that left, oldest forgotten first: the memory of the policies that have one.
//!
//! Promises: at most the given number of keys; every operation is O(1). Tested below.

use crate::PageKey;
use crate::index::key_hash;
use crate::lists::Lists;
use hashbrown::HashTable;

/// A bounded first-in first-out set of keys.
pub(crate) struct Ghosts {
    keys: Vec<PageKey>,
    order: Lists<1>,
    places: HashTable<u32>,
    free: Vec<u32>,
    max: usize,
}

impl Ghosts {
    /// At most `max` keys.
    pub fn new(max: usize) -> Self {
        Ghosts {
            keys: Vec::new(),
            order: Lists::new(max),
            places: HashTable::new(),
            free: Vec::new(),
            max: max.min(u32::MAX as usize / 2),
        }
    }

    /// Remembers a key that is not remembered, in place of the oldest if there is no room.
    pub fn push(&mut self, key: PageKey) {
        if self.max == 0 {
            return;
        }
        if self.len() >= self.max {
            self.forget_oldest();
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.keys.push(key);
            // It fits, `max` is bounded.
            self.keys.len() as u32 - 1
        });
        self.keys[place as usize] = key;
        self.order.push_newest(0, place);
        let keys = &self.keys;
        self.places.insert_unique(key_hash(key), place, |at| key_hash(keys[*at as usize]));
    }

    /// Keys that are remembered.
    pub fn len(&self) -> usize {
        self.order.len(0)
    }

    /// Forgets the oldest key. Whether there was one.
    pub fn forget_oldest(&mut self) -> bool {
        self.order.oldest(0).is_some_and(|oldest| self.take(self.keys[oldest as usize]))
    }

    /// Forgets a key. Whether it was there.
    pub fn take(&mut self, key: PageKey) -> bool {
        let keys = &self.keys;
        let Ok(entry) = self.places.find_entry(key_hash(key), |at| keys[*at as usize] == key)
        else {
            return false;
        };
        let (place, _) = entry.remove();
        self.order.unlink(place);
        self.free.push(place);
        true
    }

    /// Memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let each = size_of::<PageKey>() + Lists::<1>::SLOT_BYTES;
        self.keys.len() * each + self.places.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_and_room_is_used_again() {
        let key = |index| PageKey { file: 1, index };
        let mut ghosts = Ghosts::new(3);
        (0..4).for_each(|n| ghosts.push(key(n)));
        assert!(!ghosts.take(key(0)) && ghosts.take(key(2)) && !ghosts.take(key(2)));
        ghosts.push(key(7));
        assert_eq!(ghosts.keys.len(), 3);
        ghosts.push(key(8));
        assert!(!ghosts.take(key(1)) && ghosts.take(key(3)));
        let mut none = Ghosts::new(0);
        none.push(key(1));
        assert!(!none.take(key(1)));
    }
}
