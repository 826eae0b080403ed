//! Inode cache: one [`Inode`] per number, loaded once, bounded in number.
//!
//! The cache is sharded by number, so that lookups of different inodes do not meet. Unreferenced
//! inodes stay cached until a shard holds more than its part of the bytes for inodes; then those
//! without references, dirty pages or lazy timestamps go, oldest first with a second chance. An
//! inode that is being freed leaves the cache before its number can be reused. What was read from a
//! slot only enters the cache if no inode has left it since: another thread may have loaded,
//! changed and dropped the same one between.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use syncline_base::lockrank::Mutex;

use crate::incore::Inode;
use crate::ranks;

/// Memory for an inode in release builds, in bytes. In debug builds its locks have ranks, but the
/// cache holds as many inodes.
const INODE_BYTES: usize = 448;
const _: () = assert!(cfg!(debug_assertions) || size_of::<Inode>() <= INODE_BYTES, "it grew");
/// Memory for an inode here beside the inode itself, in bytes: its counters, its number in map and
/// ring.
const OVERHEAD_BYTES: usize = 48;
/// Inodes kept however small the cache is.
const INODES_MIN: usize = 1024;
/// Independent parts of the cache.
const SHARDS: usize = 16;
/// Inodes looked at for eviction per insertion: bounds the work of one miss.
const EVICTION_STEPS: usize = 8;

pub(crate) struct Icache {
    pub(crate) shards: [Mutex<Shard>; SHARDS],
    /// Unreferenced inodes kept at most in each shard.
    pub(crate) shard_max: usize,
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) inodes: FxHashMap<u32, Arc<Inode>>,
    /// Numbers in the order in which they are looked at for eviction; some may have left the map.
    pub(crate) ring: VecDeque<u32>,
    /// Inodes that have left the map.
    pub(crate) removals: u64,
}

impl Icache {
    /// A cache of about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Icache {
        let inodes = bytes_max / (INODE_BYTES + OVERHEAD_BYTES) as u64;
        let inodes = usize::try_from(inodes).unwrap_or(usize::MAX).max(INODES_MIN);
        let shard = |_| Mutex::new(ranks::INODE_CACHE, Shard::default());
        Icache { shards: std::array::from_fn(shard), shard_max: inodes / SHARDS }
    }

    /// Memory of the cached inodes.
    pub(crate) fn bytes(&self) -> usize {
        let inodes = |shard: &Mutex<Shard>| shard.lock().inodes.len();
        self.shards.iter().map(inodes).sum::<usize>() * (INODE_BYTES + OVERHEAD_BYTES)
    }

    pub(crate) fn shard(&self, ino: u32) -> &Mutex<Shard> {
        &self.shards[ino as usize % SHARDS]
    }
}

impl Shard {
    /// The inode, or how many have left the shard until now.
    pub(crate) fn get(&self, ino: u32) -> Result<Arc<Inode>, u64> {
        self.inodes.get(&ino).cloned().ok_or(self.removals)
    }

    /// Puts an inode in, unless another thread was faster; returns the one that is in.
    pub(crate) fn insert(&mut self, fresh: Arc<Inode>) -> Arc<Inode> {
        match self.inodes.entry(fresh.ino) {
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(room) => {
                self.ring.push_back(fresh.ino);
                Arc::clone(room.insert(fresh))
            }
        }
    }

    /// As [`Shard::insert`] for an inode as it was read from its slot after `removals` had left the
    /// shard. `None`: one has left since, so the image of the slot may be old.
    pub(crate) fn insert_read(&mut self, read: Arc<Inode>, removals: u64) -> Option<Arc<Inode>> {
        (self.removals == removals).then(|| self.insert(read))
    }

    pub(crate) fn remove(&mut self, ino: u32) -> Option<Arc<Inode>> {
        let removed = self.inodes.remove(&ino);
        self.removals += u64::from(removed.is_some());
        removed
    }

    /// Takes unused inodes out until the shard is within its share, as far as [`EVICTION_STEPS`]
    /// looks allow.
    pub(crate) fn make_room(&mut self, inodes_max: usize) -> Vec<Arc<Inode>> {
        let mut dropped = Vec::new();
        for _ in 0..EVICTION_STEPS {
            if self.inodes.len() <= inodes_max {
                break;
            }
            let Some(ino) = self.ring.pop_front() else { break };
            let Some(inode) = self.inodes.get(&ino) else { continue };
            // Locks are tried only: their holders may be waiting for this shard.
            let idle = Arc::strong_count(inode) == 1
                && inode.refs() == 0
                && inode.state.try_read().is_some_and(|st| !st.times_dirty && st.newer_by_ns == 0)
                && inode.pages.try_lock().is_some_and(|pages| !pages.has_dirty());
            if !idle {
                self.ring.push_back(ino);
            } else if let Some(inode) = self.remove(ino) {
                dropped.push(inode);
            }
        }
        dropped
    }
}
