//! SQLite's file locks among the connections of this process.
//!
//! ```text
//!   NONE 0 ── SHARED 1 ── RESERVED 2 ── PENDING 3 ── EXCLUSIVE 4
//!             many        one, beside    one, no      one, alone
//!                         SHARED         new SHARED
//! ```
//!
//! A volume is mounted by one process, so nothing else can hold a lock. Tested below.

use std::collections::BTreeMap;

use parking_lot::Mutex;

pub(crate) const NONE: i32 = 0;
pub(crate) const SHARED: i32 = 1;
pub(crate) const RESERVED: i32 = 2;
pub(crate) const PENDING: i32 = 3;
#[cfg(test)]
pub(crate) const EXCLUSIVE: i32 = 4;

/// Locks of all files, by inode number and owner.
#[derive(Default)]
pub(crate) struct LockTable(Mutex<BTreeMap<u32, BTreeMap<u64, i32>>>);

impl LockTable {
    /// Raises `owner`'s lock on `ino` to `level`. False: somebody else holds too much; after a
    /// failed step to EXCLUSIVE the owner may be left PENDING, which keeps new readers out.
    pub(crate) fn lock(&self, ino: u32, owner: u64, level: i32) -> bool {
        let mut table = self.0.lock();
        let holders = table.entry(ino).or_default();
        let held = holders.get(&owner).copied().unwrap_or(NONE);
        if held >= level {
            return true;
        }
        let others = holders.iter().filter(|(who, _)| **who != owner).map(|(_, l)| *l).max();
        let others = others.unwrap_or(NONE);
        let granted = match level {
            SHARED => others < PENDING,
            RESERVED => others < RESERVED,
            _ if others >= RESERVED => false,
            _ => {
                holders.insert(owner, PENDING);
                level == PENDING || others == NONE
            }
        };
        if granted {
            holders.insert(owner, level);
        }
        granted
    }

    /// Lowers `owner`'s lock on `ino` to `level` (SHARED or NONE).
    pub(crate) fn unlock(&self, ino: u32, owner: u64, level: i32) {
        let mut table = self.0.lock();
        let Some(holders) = table.get_mut(&ino) else { return };
        if level == NONE {
            holders.remove(&owner);
        } else if let Some(held) = holders.get_mut(&owner) {
            *held = (*held).min(level);
        }
        if holders.is_empty() {
            table.remove(&ino);
        }
    }

    /// The lock of `owner` on `ino`.
    pub(crate) fn level(&self, ino: u32, owner: u64) -> i32 {
        let table = self.0.lock();
        table.get(&ino).and_then(|holders| holders.get(&owner)).copied().unwrap_or(NONE)
    }

    /// True if anybody holds RESERVED or more on `ino`.
    pub(crate) fn reserved(&self, ino: u32) -> bool {
        let table = self.0.lock();
        table.get(&ino).is_some_and(|h| h.values().any(|level| *level >= RESERVED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_beside_readers_and_alone_to_commit() {
        let t = LockTable::default();
        assert!(t.lock(7, 1, SHARED) && t.lock(7, 2, SHARED));
        assert!(t.lock(7, 1, RESERVED));
        assert!(!t.lock(7, 2, RESERVED), "one writer");
        assert!(t.reserved(7) && !t.reserved(8));
        assert!(!t.lock(7, 1, EXCLUSIVE), "a reader is there");
        assert!(!t.lock(7, 3, SHARED), "PENDING keeps new readers out");
        assert_eq!([1, 2, 3].map(|owner| t.level(7, owner)), [PENDING, SHARED, NONE]);
        t.unlock(7, 2, NONE);
        assert!(t.lock(7, 1, EXCLUSIVE));
        assert!(!t.lock(7, 2, SHARED));
        t.unlock(7, 1, SHARED);
        assert!(t.lock(7, 2, SHARED) && !t.reserved(7));
        assert!(t.lock(8, 9, EXCLUSIVE), "files do not know each other");
    }
}
