//! Memory that the connections of a database in WAL mode share, and its locks: the wal-index.
//!
//! SQLite keeps the index of a WAL in regions of 32 KiB, which it maps through the VFS, and locks
//! eight bytes of it. A volume is mounted by one process, so that the memory is this process's own
//! and no `-shm` file is made. The memory goes with the last connection; the next one finds it
//! empty and reads the WAL again, as after a crash.
//!
//! Promises: a region stays at its address until its last user unmaps; memory is bounded by
//! [`REGIONS_MAX`] regions a file. Tested below and in `tests/it/vfs.rs`.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

/// Regions of a file: an index of eight million pages of WAL.
const REGIONS_MAX: usize = 2048;
/// Locks of a file, `SQLITE_SHM_NLOCK`.
const LOCKS: u32 = 8;

/// Locks that a connection holds, a bit each.
#[derive(Clone, Copy, Default)]
struct Held {
    shared: u32,
    exclusive: u32,
}

#[derive(Default)]
struct Node {
    /// SQLite gets addresses in here, and reads and writes them as it likes: atomics, so that
    /// nobody takes them for constant. No Rust code looks at them.
    regions: Vec<Box<[AtomicU64]>>,
    /// By owner; who has mapped the file is in here.
    holders: BTreeMap<u64, Held>,
}

/// Shared memory of all files, by inode number.
#[derive(Default)]
pub(crate) struct ShmTable(Mutex<BTreeMap<u32, Node>>);

impl ShmTable {
    /// The address of a region of `bytes`; null if there is none and none is to be made.
    /// `None`: more than there may be.
    pub(crate) fn map(
        &self,
        ino: u32,
        owner: u64,
        region: usize,
        bytes: usize,
        extend: bool,
    ) -> Option<*mut c_void> {
        let mut table = self.0.lock();
        let node = table.entry(ino).or_default();
        node.holders.entry(owner).or_default();
        if region >= REGIONS_MAX {
            return None;
        }
        if extend {
            while node.regions.len() <= region {
                let words = bytes.div_ceil(size_of::<u64>());
                node.regions.push((0..words).map(|_| AtomicU64::new(0)).collect());
            }
        }
        let found = node.regions.get(region);
        Some(found.map_or(std::ptr::null_mut(), |found| found.as_ptr().cast_mut().cast()))
    }

    /// Takes `count` locks from `first` on, all or none. False: another connection is in the way.
    pub(crate) fn lock(
        &self,
        ino: u32,
        owner: u64,
        first: u32,
        count: u32,
        exclusive: bool,
    ) -> bool {
        let mask = mask(first, count);
        let mut table = self.0.lock();
        let node = table.entry(ino).or_default();
        let others = node.holders.iter().filter(|(who, _)| **who != owner);
        let in_the_way = |held: &Held| {
            let bits = if exclusive { held.shared | held.exclusive } else { held.exclusive };
            bits & mask != 0
        };
        if others.map(|(_, held)| held).any(in_the_way) {
            return false;
        }
        let held = node.holders.entry(owner).or_default();
        *(if exclusive { &mut held.exclusive } else { &mut held.shared }) |= mask;
        true
    }

    /// Gives locks back.
    pub(crate) fn unlock(&self, ino: u32, owner: u64, first: u32, count: u32) {
        let mask = mask(first, count);
        let mut table = self.0.lock();
        if let Some(held) = table.get_mut(&ino).and_then(|node| node.holders.get_mut(&owner)) {
            held.shared &= !mask;
            held.exclusive &= !mask;
        }
    }

    /// Forgets `owner`; the memory goes with the last one.
    pub(crate) fn unmap(&self, ino: u32, owner: u64) {
        let mut table = self.0.lock();
        let Some(node) = table.get_mut(&ino) else { return };
        node.holders.remove(&owner);
        if node.holders.is_empty() {
            table.remove(&ino);
        }
    }
}

/// Bits of `count` locks from `first` on; those that there are not are left out.
fn mask(first: u32, count: u32) -> u32 {
    (first..first.saturating_add(count).min(LOCKS)).fold(0, |bits, at| bits | (1 << at))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 32768;

    #[test]
    fn regions_are_shared_stay_where_they_are_and_go_with_the_last_user() {
        let table = ShmTable::default();
        assert!(table.map(7, 1, 0, BYTES, false).unwrap().is_null());
        let first = table.map(7, 1, 0, BYTES, true).unwrap();
        let second = table.map(7, 2, 1, BYTES, true).unwrap();
        assert!(!first.is_null() && !second.is_null() && first != second);
        assert_eq!(table.map(7, 2, 0, BYTES, false), Some(first));
        assert_ne!(table.map(8, 3, 0, BYTES, true), Some(first), "files do not share");
        assert_eq!(table.map(7, 1, REGIONS_MAX, BYTES, true), None);
        table.unmap(7, 1);
        assert_eq!(table.map(7, 2, 0, BYTES, false), Some(first));
        table.unmap(7, 2);
        assert!(table.map(7, 2, 0, BYTES, false).unwrap().is_null());
    }

    #[test]
    fn locks_are_shared_or_exclusive_all_or_none() {
        let table = ShmTable::default();
        assert!(table.lock(7, 1, 3, 1, false) && table.lock(7, 2, 3, 1, false));
        assert!(!table.lock(7, 1, 2, 3, true), "another one reads the second of the three");
        assert!(table.lock(7, 3, 2, 1, true), "and the first was not kept");
        assert!(!table.lock(7, 1, 2, 1, false));
        table.unlock(7, 2, 3, 1);
        assert!(table.lock(7, 1, 3, 1, true), "its own shared lock is not in the way");
        table.unmap(7, 3);
        assert!(table.lock(7, 1, 2, 1, false), "the locks of a closed file are gone");
        assert!(table.lock(8, 9, 0, 8, true), "files do not know each other");
    }
}
