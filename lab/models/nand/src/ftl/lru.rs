//! A list of numbers by last use, in flat arrays: 8 bytes a number, every operation O(1).
//!
//! ```text
//!   newest <-> ... <-> oldest
//! ```
//!
//! Shared by what keeps a bounded number of things: map segments, zones, log blocks. Tested here.

const NONE: u32 = u32::MAX;

/// Order of use of a subset of `0..n`.
#[derive(Clone, Debug)]
pub(super) struct Lru {
    newest: u32,
    oldest: u32,
    newer: Vec<u32>,
    older: Vec<u32>,
}

impl Lru {
    /// An empty list of numbers below `n`.
    pub(super) fn new(n: usize) -> Self {
        Lru { newest: NONE, oldest: NONE, newer: vec![NONE; n], older: vec![NONE; n] }
    }

    /// Puts a number that is not in the list at its new end.
    pub(super) fn push(&mut self, i: u32) {
        self.older[i as usize] = self.newest;
        self.newer[i as usize] = NONE;
        match self.newest {
            NONE => self.oldest = i,
            n => self.newer[n as usize] = i,
        }
        self.newest = i;
    }

    /// Takes a number out that is in the list.
    pub(super) fn unlink(&mut self, i: u32) {
        let (newer, older) = (self.newer[i as usize], self.older[i as usize]);
        match newer {
            NONE => self.newest = older,
            n => self.older[n as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.newer[o as usize] = newer,
        }
    }

    /// Makes a number of the list the newest.
    pub(super) fn used(&mut self, i: u32) {
        if self.newest != i {
            self.unlink(i);
            self.push(i);
        }
    }

    /// The number not used for longest.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Bytes of the list.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.newer.len() + self.older.len()) as u64 * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_use() {
        let mut l = Lru::new(4);
        assert_eq!(l.oldest(), None);
        for i in 0..4 {
            l.push(i);
        }
        l.used(0);
        l.used(0);
        assert_eq!(l.oldest(), Some(1));
        l.unlink(1);
        l.unlink(0);
        assert_eq!(l.oldest(), Some(2));
        l.unlink(2);
        l.unlink(3);
        assert_eq!(l.oldest(), None);
    }
}
