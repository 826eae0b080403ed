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
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use syncline_ondisk::superblock::ROOT_INO;
use syncline_ondisk::{OndiskError, inode as disk};

use crate::error::{FsError, Result};
use crate::inode::{Dirty, Inode, InodeRef};
use crate::volume::{Inner, Volume};

/// What an inode costs here beside itself: its counters, its number in map and ring.
const OVERHEAD_BYTES: usize = 48;
/// Inodes kept however small the cache is.
const INODES_MIN: usize = 1024;
/// Independent parts of the cache.
const SHARDS: usize = 16;
/// Inodes looked at for eviction per insertion: bounds the work of one miss.
const EVICTION_STEPS: usize = 8;

pub(crate) struct Icache {
    shards: [Mutex<Shard>; SHARDS],
    /// Unreferenced inodes kept at most in each shard.
    shard_max: usize,
}

#[derive(Default)]
struct Shard {
    inodes: FxHashMap<u32, Arc<Inode>>,
    /// Numbers in the order in which they are looked at for eviction; some may have left the map.
    ring: VecDeque<u32>,
    /// Inodes that have left the map.
    removals: u64,
}

impl Icache {
    /// A cache of about `bytes_max` bytes.
    pub(crate) fn new(bytes_max: u64) -> Icache {
        let inodes = bytes_max / (size_of::<Inode>() + OVERHEAD_BYTES) as u64;
        let inodes = usize::try_from(inodes).unwrap_or(usize::MAX).max(INODES_MIN);
        Icache { shards: Default::default(), shard_max: inodes / SHARDS }
    }

    fn shard(&self, ino: u32) -> &Mutex<Shard> {
        &self.shards[ino as usize % SHARDS]
    }
}

impl Volume {
    /// The inode with this number.
    ///
    /// # Errors
    /// [`FsError::Stale`] if it is not in use, [`FsError::Corrupt`] if its slot is broken.
    pub fn iget(&self, ino: u32) -> Result<InodeRef> {
        self.0.iget(ino)
    }

    /// The inode that a file handle names, which may have any number.
    ///
    /// # Errors
    /// As [`Volume::iget`]; [`FsError::Stale`] also if no file can have the number, as the
    /// journal's.
    pub fn iget_handle(&self, ino: u32) -> Result<InodeRef> {
        let geo = &self.0.geo;
        if ino != ROOT_INO && ino < geo.first_ino || ino > geo.inodes_count {
            return Err(FsError::Stale);
        }
        self.0.iget(ino)
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`Volume::iget`].
    pub fn root(&self) -> Result<InodeRef> {
        self.0.iget(ROOT_INO)
    }
}

impl Inner {
    pub(crate) fn iget(self: &Arc<Self>, ino: u32) -> Result<InodeRef> {
        loop {
            let removals = match self.cached_reference(ino) {
                Ok(inode) if inode.state.read().raw.i_links_count == 0 && inode.refs() <= 1 => {
                    return Err(FsError::Stale);
                }
                Ok(inode) => return Ok(inode),
                Err(removals) => removals,
            };
            let raw = self.read_inode(ino)?;
            if raw.i_links_count == 0 {
                // It was freed already. The last reference to it would free it once more.
                return Err(FsError::Stale);
            }
            if let Some(inode) = self.insert_read(ino, raw, removals) {
                return Ok(inode);
            }
        }
    }

    /// As [`Inner::iget`], but also for an inode with no links (orphan processing).
    pub(crate) fn iget_unlinked(self: &Arc<Self>, ino: u32) -> Result<InodeRef> {
        loop {
            let removals = match self.cached_reference(ino) {
                Ok(inode) => return Ok(inode),
                Err(removals) => removals,
            };
            let raw = self.read_inode(ino)?;
            if let Some(inode) = self.insert_read(ino, raw, removals) {
                return Ok(inode);
            }
        }
    }

    /// The cached inode, or how many have left its shard until now.
    fn cached_reference(self: &Arc<Self>, ino: u32) -> std::result::Result<InodeRef, u64> {
        let shard = self.icache.shard(ino).lock();
        let inode = shard.inodes.get(&ino).ok_or(shard.removals)?;
        Ok(InodeRef::new(self, Arc::clone(inode)))
    }

    /// Puts an inode into the cache as it was read from its slot, if as many as `removals` had left
    /// the shard before that and none has since; else what was read may be old.
    fn insert_read(
        self: &Arc<Self>,
        ino: u32,
        raw: disk::Inode,
        removals: u64,
    ) -> Option<InodeRef> {
        let synced = self.journal.get().map_or(0, |journal| journal.committed_tid());
        let shard = self.icache.shard(ino).lock();
        let inode = Arc::new(Inode::new(ino, raw, synced));
        (shard.removals == removals).then(|| self.insert(shard, inode))
    }

    /// Puts a new inode into the cache, unless another thread was faster.
    pub(crate) fn insert_inode(self: &Arc<Self>, fresh: Arc<Inode>) -> InodeRef {
        self.insert(self.icache.shard(fresh.ino).lock(), fresh)
    }

    fn insert(self: &Arc<Self>, mut shard: MutexGuard<'_, Shard>, fresh: Arc<Inode>) -> InodeRef {
        let ino = fresh.ino;
        let inode = match shard.inodes.entry(ino) {
            Entry::Occupied(found) => Arc::clone(found.get()),
            Entry::Vacant(room) => {
                let inode = Arc::clone(room.insert(fresh));
                shard.ring.push_back(ino);
                inode
            }
        };
        let held = InodeRef::new(self, inode);
        let dropped = shard.make_room(self.icache.shard_max);
        drop(shard);
        for inode in dropped {
            self.forget_pages(&inode);
        }
        held
    }

    pub(crate) fn read_inode(&self, ino: u32) -> Result<disk::Inode> {
        let (block, offset) = self.inode_place(ino)?;
        let bytes = self.buffers.read(block)?;
        let slot = bytes.get(offset..offset + self.geo.inode_size).ok_or(FsError::Stale)?;
        if slot.iter().all(|byte| *byte == 0) {
            return Err(FsError::Stale);
        }
        let place =
            |err: OndiskError| self.found_corrupt(FsError::from(err.in_inode(ino).in_block(block)));
        let raw = disk::Inode::decode(slot).map_err(place)?;
        if let Some(seed) = self.inode_csum_seed(ino, raw.i_generation) {
            raw.verify_checksum(slot, seed).map_err(place)?;
        }
        if raw.i_mode == 0 {
            return Err(FsError::Stale);
        }
        if raw.i_size > self.max_file_bytes() {
            return Err(self.corrupt(Some(ino), Some(block), None, "file size out of range"));
        }
        Ok(raw)
    }

    /// Largest size of a file: 2^32 - 1 blocks.
    pub(crate) fn max_file_bytes(&self) -> u64 {
        u64::from(u32::MAX) << self.geo.block_bits
    }

    /// Called when the count of references fell to zero.
    pub(crate) fn last_reference_dropped(self: &Arc<Self>, inode: &Arc<Inode>) {
        // Nobody appends to it now: what was kept free for that may serve others.
        if inode.may_have_window.swap(false, Ordering::AcqRel) {
            self.balloc.drop_window(inode.ino);
        }
        if inode.state.read().raw.i_links_count != 0 {
            return;
        }
        {
            let mut shard = self.icache.shard(inode.ino).lock();
            let cached = shard.inodes.get(&inode.ino).is_some_and(|c| Arc::ptr_eq(c, inode));
            if !cached || inode.refs() != 0 {
                return;
            }
            shard.remove(inode.ino);
        }
        self.evict_unlinked(inode);
    }

    /// Removes an inode that never came to life (its creation failed).
    pub(crate) fn forget_inode(&self, ino: u32) {
        self.icache.shard(ino).lock().remove(ino);
    }

    /// The inode if it is cached; not counted as a reference.
    pub(crate) fn cached_inode(&self, ino: u32) -> Option<Arc<Inode>> {
        self.icache.shard(ino).lock().inodes.get(&ino).cloned()
    }

    /// Every cached inode, ascending.
    pub(crate) fn cached_inodes(&self) -> Vec<Arc<Inode>> {
        let mut all: Vec<Arc<Inode>> = Vec::new();
        for shard in &self.icache.shards {
            all.extend(shard.lock().inodes.values().cloned());
        }
        all.sort_unstable_by_key(|inode| inode.ino);
        all
    }

    /// Writes lazily kept timestamps of all cached inodes into the running transaction
    /// (syncfs, unmount).
    pub(crate) fn write_lazy_times(&self) -> Result<()> {
        for inode in self.cached_inodes() {
            if inode.state.read().times_dirty {
                let mut h = self.start(2)?;
                let mut st = inode.state.write();
                if st.times_dirty {
                    self.write_inode(&mut h, &inode, &mut st, Dirty::Times)?;
                }
            }
        }
        Ok(())
    }
}

impl Shard {
    fn remove(&mut self, ino: u32) -> Option<Arc<Inode>> {
        let removed = self.inodes.remove(&ino);
        self.removals += u64::from(removed.is_some());
        removed
    }

    /// Takes unused inodes out until the shard is within its share, as far as [`EVICTION_STEPS`]
    /// looks allow.
    fn make_room(&mut self, inodes_max: usize) -> Vec<Arc<Inode>> {
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
                && inode.state.try_read().is_some_and(|st| !st.times_dirty)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Create, MountOptions, SetAttr};
    use syncline_device::{MemoryDevice, VirtualClock};
    use syncline_testkit::{ImageSpec, mkfs};

    /// One thread reads a slot and is held up; another loads the inode, changes it and drops it,
    /// and the cache evicts it. The first must not bring the old inode back.
    #[test]
    fn what_another_thread_has_changed_and_dropped_is_read_again() {
        let device = MemoryDevice::from_bytes(&mkfs(&ImageSpec::default()).bytes());
        let clock = Arc::new(VirtualClock::default());
        let options = MountOptions::parse("").unwrap();
        let volume = Volume::mount(Arc::new(device), clock, options).unwrap();
        let how = Create { mode: 0o644, uid: 0, gid: 0 };
        let ino = volume.create(&volume.root().unwrap(), b"f", &how).unwrap().ino;
        let inner = &volume.0;
        let evict = || {
            let mut shard = inner.icache.shard(ino).lock();
            assert!(!shard.make_room(0).is_empty());
            assert!(!shard.inodes.contains_key(&ino));
        };
        evict();
        let removals = inner.cached_reference(ino).err().unwrap();
        let old = inner.read_inode(ino).unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let other = volume.iget(ino).unwrap();
        volume.setattr(&other, &set).unwrap();
        drop(other);
        evict();
        assert!(inner.insert_read(ino, old, removals).is_none());
        let again = volume.iget(ino).unwrap();
        assert_eq!(volume.getattr(&again).mode & 0o7777, 0o600);
        // What is the newest goes in, and only once.
        let (removals, newest) =
            (inner.icache.shard(ino).lock().removals, again.state.read().raw.clone());
        let same = inner.insert_read(ino, newest, removals).unwrap();
        assert!(std::ptr::eq(&*same, &*again));
        drop((again, same));
        volume.unmount().unwrap();
    }
}
