//! Ranks of this crate's locks, in the order in which they are taken.
//!
//! ```text
//!   incremental -> rename -> rwsem -> sync point -> changes -> io -> (handle) -> state -> pages
//!   state -> inode group -> freed inodes        state -> orphans -> superblock
//!   state -> allocation -> windows | group map -> superblock        bitmap -> superblock
//! ```
//!
//! | lock | protects | held during device I/O |
//! | --- | --- | --- |
//! | incremental | the incremental write-back under way; only tried | its step |
//! | rename | renames between directories, one at a time | reads of directories |
//! | rwsem | one operation on a file or directory | reads |
//! | sync point | the taking of a sync point (`sync=periodic`) | all of it |
//! | changes | no page and no size changes while a sync point begins | reads |
//! | io | data of a file on its way to the device | yes |
//! | state | the inode | reads of metadata |
//! | extent cache | extents of an inode that were looked up | never |
//! | pages | cached pages of a file | never |
//! | orphans | list and file of orphans | reads of metadata |
//! | inode group | free inodes of a group | reads of metadata |
//! | allocation | shared by allocations, exclusive to take all windows back | reads of bitmaps |
//! | windows, group map | free blocks in memory | reads of bitmaps |
//! | bitmap | changes of a block bitmap and its descriptor | reads of metadata |
//! | superblock | the superblock in memory | never |
//!
//! The others are leaves: caches of inodes and names, counters, lists. Those of a mount come before
//! all of these (`fuse/src/ranks.rs`), those of the journal after (`jbd2/src/ranks.rs`), but for
//! one group: the journal calls back when freed blocks and inodes may be used again, and holds its
//! superblock lock then. So the lists of these, group maps, counters and the superblock lie between
//! the journal's own state and its cached blocks. Under them no lock of the journal is taken but
//! those of single blocks.

use syncline_base::lockrank::Rank;

pub(crate) const INCREMENTAL: Rank = Rank::new(1000, "incremental write-back");
pub(crate) const RENAME: Rank = Rank::new(1050, "rename");
/// A family: parents first, then ascending numbers.
pub(crate) const RWSEM: Rank = Rank::family(1100, "inode rwsem");
pub(crate) const SYNC_POINT: Rank = Rank::new(1150, "sync point");
pub(crate) const CHANGES: Rank = Rank::new(1200, "changes");
/// A family: a batch takes the first and tries the others; a sync point takes them in ascending
/// order.
pub(crate) const IO: Rank = Rank::family(1250, "inode io");
/// A family: a directory, then the inodes that an operation on it changes.
pub(crate) const STATE: Rank = Rank::family(1300, "inode state");
pub(crate) const EXTENT_CACHE: Rank = Rank::new(1350, "extent cache");
pub(crate) const PAGES: Rank = Rank::new(1400, "inode pages");
pub(crate) const ORPHANS: Rank = Rank::new(1450, "orphans");
pub(crate) const INODE_GROUP: Rank = Rank::new(1500, "inode group");
pub(crate) const ALLOCATION: Rank = Rank::new(1550, "allocation");
pub(crate) const WINDOWS: Rank = Rank::new(1560, "allocation windows");
pub(crate) const BITMAP: Rank = Rank::new(1600, "block bitmap");
pub(crate) const INODE_CACHE: Rank = Rank::new(1700, "inode cache shard");
pub(crate) const NAME_CACHE: Rank = Rank::new(1710, "name cache shard");
pub(crate) const ENDINGS: Rank = Rank::new(1720, "lifetimes by ending");
pub(crate) const DIRTY_FILES: Rank = Rank::new(1760, "dirty files");
pub(crate) const SPARE_PAGES: Rank = Rank::new(1770, "spare pages");
pub(crate) const LIMITS: Rank = Rank::new(1780, "live limits");
pub(crate) const SYNC_POINT_STATS: Rank = Rank::new(1790, "figures of sync points");
pub(crate) const ROUTE: Rank = Rank::new(1795, "route of syncs");
pub(crate) const KNOWN_VERITY: Rank = Rank::new(1797, "files with fs-verity");
pub(crate) const VERITY: Rank = Rank::new(1798, "checked blocks of a verity tree");

// Taken also when the journal says that blocks or inodes are free, under its superblock lock.
pub(crate) const FREED_INODES: Rank = Rank::new(2240, "freed inodes");
pub(crate) const DEFERRED_FREE: Rank = Rank::new(2250, "deferred free");
pub(crate) const FREED_BLOCKS: Rank = Rank::new(2260, "freed blocks");
pub(crate) const GROUP_MAP: Rank = Rank::new(2270, "group map");
pub(crate) const SUPERBLOCK: Rank = Rank::new(2290, "superblock");
pub(crate) const RESERVE: Rank = Rank::new(2295, "reserved blocks");

/// Taken wherever corruption is found, also under a block's lock.
pub(crate) const FOUND_ERRORS: Rank = Rank::new(2990, "errors found");
pub(crate) const MISSING: Rank = Rank::new(2991, "damage that is gone past");

#[cfg(test)]
mod tests {
    use syncline_base::lockrank::Mutex;

    use super::*;

    /// Ranks in the order of the drawing; each may be taken under those before it.
    const ORDER: [Rank; 9] =
        [INCREMENTAL, RENAME, RWSEM, SYNC_POINT, CHANGES, IO, STATE, PAGES, SUPERBLOCK];

    fn panics(first: Rank, second: Rank) -> bool {
        let taken = std::thread::spawn(move || {
            let (first, second) = (Mutex::new(first, ()), Mutex::new(second, ()));
            let _held = first.lock();
            drop(second.lock());
        });
        taken.join().is_err()
    }

    #[test]
    fn the_order_of_the_drawing_is_that_of_the_levels() {
        for (at, first) in ORDER.iter().enumerate() {
            for second in ORDER.iter().skip(at + 1) {
                assert!(!panics(*first, *second), "{first:?}, then {second:?}");
                let wrong = panics(*second, *first);
                assert_eq!(wrong, cfg!(debug_assertions), "{second:?}, then {first:?}");
            }
        }
    }
}
