//! Accounts of free blocks: the counters behind `statfs` and "ENOSPC at write, never later".
//!
//! ```text
//!   free blocks                                   |<----------- free ---------->|
//!   promised to delayed data, not allocated       |<- delayed ->|
//!   index blocks at write-back (s_resv_clusters)                |<- pool ->|
//!   for privileged callers (s_r_blocks_count)                              |<- root ->|
//!   freed, when the transaction has committed: pending, not part of free
//! ```
//!
//! Promises: a block promised by [`Reserve::reserve`] is there when it is allocated, because
//! blocks whose freeing has not committed are not counted as free, and because what holds free
//! blocks back (windows) is given up before an allocation fails.
//! Tested here and in `space/balloc/tests.rs`.

use syncline_base::lockrank::Mutex;

use crate::error::{FsError, Result};
use crate::ranks;

/// Upper bound of the pool for metadata at write-back, in blocks (`ext4_calculate_resv_clusters`).
const POOL_BLOCKS_MAX: u64 = 4096;
/// Lower bound: a new tree and its splits, on a volume of few large clusters.
const POOL_BLOCKS_MIN: u64 = 8;

/// On whose account blocks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Promised by an earlier [`Reserve::reserve`]; cannot fail for lack of space.
    Reserved,
    /// Extent and index blocks: may use the pool and root's share.
    Metadata,
    /// Promised, and taken from what the inode itself has freed: see `space/balloc/held.rs`.
    Held {
        /// The free it is from.
        free: u64,
    },
    /// None: they are in a cluster that the file has.
    Owned,
    /// Anything else that was not reserved before.
    Free {
        /// True if root's share may be used.
        privileged: bool,
    },
}

#[derive(Debug, Default)]
struct Counts {
    free: u64,
    delayed: u64,
    pending: u64,
}

/// Numbers for `statfs`, in blocks; with `bigalloc` in clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceCounts {
    /// `f_bfree`: free blocks less those promised to delayed data.
    pub free: u64,
    /// `f_bavail`: blocks that an unprivileged caller can still get.
    pub available: u64,
    /// Promised to delayed data.
    pub delayed: u64,
    /// Freed in a transaction that has not committed.
    pub pending: u64,
}

/// The counters of one volume.
pub(crate) struct Reserve {
    counts: Mutex<Counts>,
    pool: u64,
    root: u64,
}

impl Reserve {
    /// `free` is the sum of `bg_free_blocks_count`, `root` is `s_r_blocks_count`.
    pub(crate) fn new(blocks_count: u64, free: u64, root: u64) -> Reserve {
        let least = POOL_BLOCKS_MIN.min(blocks_count / 8);
        let pool = (blocks_count / 50).clamp(least, POOL_BLOCKS_MAX);
        let counts = Counts { free, delayed: 0, pending: 0 };
        Reserve { counts: Mutex::new(ranks::RESERVE, counts), pool, root }
    }

    fn kept_back(&self, privileged: bool) -> u64 {
        if privileged { self.pool } else { self.pool.saturating_add(self.root) }
    }

    /// Promises `blocks` to delayed data.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; nothing is promised then.
    pub(crate) fn reserve(&self, blocks: u64, privileged: bool) -> Result<()> {
        let mut counts = self.counts.lock();
        let wanted = counts.delayed + self.kept_back(privileged);
        if counts.free.saturating_sub(wanted) < blocks {
            return Err(FsError::NoSpace);
        }
        counts.delayed += blocks;
        Ok(())
    }

    /// Takes a promise back.
    pub(crate) fn release(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        debug_assert!(counts.delayed >= blocks, "released more than was reserved");
        counts.delayed = counts.delayed.saturating_sub(blocks);
    }

    /// Takes up to `want` blocks from the account of `source`; says how many.
    ///
    /// # Errors
    /// [`FsError::NoSpace`] when not one block is left for this source.
    pub(crate) fn draw(&self, source: Source, want: u32) -> Result<u32> {
        let mut counts = self.counts.lock();
        let left = match source {
            Source::Reserved => counts.delayed.min(counts.free),
            // Claimed, or the file's, and not drawn.
            Source::Held { .. } | Source::Owned => 0,
            Source::Metadata => counts.free.saturating_sub(counts.delayed),
            Source::Free { privileged } => {
                counts.free.saturating_sub(counts.delayed + self.kept_back(privileged))
            }
        };
        let granted = left.min(u64::from(want)) as u32;
        if granted == 0 {
            return Err(FsError::NoSpace);
        }
        counts.free -= u64::from(granted);
        if source == Source::Reserved {
            counts.delayed -= u64::from(granted);
        }
        Ok(granted)
    }

    /// Undoes a part of a [`Reserve::draw`].
    pub(crate) fn undraw(&self, source: Source, blocks: u32) {
        let mut counts = self.counts.lock();
        counts.free += u64::from(blocks);
        if source == Source::Reserved {
            counts.delayed += u64::from(blocks);
        }
    }

    /// A promise is kept with blocks that are pending.
    pub(crate) fn claim(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        counts.pending = counts.pending.saturating_sub(blocks);
        counts.delayed = counts.delayed.saturating_sub(blocks);
    }

    /// Undoes a [`Reserve::claim`].
    pub(crate) fn unclaim(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        counts.pending += blocks;
        counts.delayed += blocks;
    }

    /// Blocks were freed in a transaction that still has to commit.
    pub(crate) fn freed(&self, blocks: u64) {
        self.counts.lock().pending += blocks;
    }

    /// That transaction has committed.
    pub(crate) fn committed(&self, blocks: u64) {
        let mut counts = self.counts.lock();
        counts.pending = counts.pending.saturating_sub(blocks);
        counts.free += blocks;
    }

    /// The numbers for `statfs`.
    pub(crate) fn counts(&self) -> SpaceCounts {
        let counts = self.counts.lock();
        let free = (counts.free + counts.pending).saturating_sub(counts.delayed);
        SpaceCounts {
            free,
            available: free.saturating_sub(self.kept_back(false)),
            delayed: counts.delayed,
            pending: counts.pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_and_the_pool_serves_metadata() {
        let reserve = Reserve::new(1000, 100, 10);
        assert_eq!(reserve.counts().available, 70);
        assert!(reserve.reserve(71, false).is_err());
        reserve.reserve(70, false).unwrap();
        assert!(reserve.reserve(1, false).is_err());
        reserve.reserve(10, true).unwrap();
        assert!(reserve.reserve(1, true).is_err());
        assert!(reserve.draw(Source::Free { privileged: true }, 1).is_err());
        assert_eq!(reserve.draw(Source::Metadata, 50).unwrap(), 20);
        assert!(reserve.draw(Source::Metadata, 1).is_err());
        assert_eq!(reserve.draw(Source::Reserved, 100).unwrap(), 80);
        assert!(reserve.draw(Source::Reserved, 1).is_err());
        reserve.undraw(Source::Reserved, 3);
        reserve.release(3);
        reserve.freed(5);
        assert_eq!((reserve.counts().free, reserve.counts().pending), (8, 5));
        assert_eq!(reserve.draw(Source::Metadata, 9).unwrap(), 3, "pending blocks are not there");
        reserve.committed(5);
        assert_eq!(reserve.counts().free, 5);
    }
}
