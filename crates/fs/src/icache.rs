//! Inode cache: one [`Inode`] per number, loaded once, bounded in number.
//!
//! Unreferenced inodes stay cached until more than [`CACHED_INODES`] are held; then those without
//! references, dirty pages or lazy timestamps go, in ascending order from where the last sweep
//! stopped. An inode that is being freed leaves the cache before its number can be reused.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use syncline_ondisk::{OndiskError, inode as disk};

use crate::error::{FsError, Result};
use crate::inode::{Dirty, Inode, InodeRef};
use crate::volume::{Inner, Volume};

/// Unreferenced inodes kept at most, plus one sweep.
const CACHED_INODES: usize = 16 * 1024;
/// Inodes that one sweep looks at.
const SWEEP: usize = 2048;

#[derive(Default)]
pub(crate) struct Icache {
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    inodes: BTreeMap<u32, Arc<Inode>>,
    /// Where the next sweep starts.
    hand: u32,
}

impl Volume {
    /// The inode with this number.
    ///
    /// # Errors
    /// [`FsError::Stale`] if it is not in use, [`FsError::Corrupt`] if its slot is broken.
    pub fn iget(&self, ino: u32) -> Result<InodeRef> {
        self.0.iget(ino)
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`Volume::iget`].
    pub fn root(&self) -> Result<InodeRef> {
        self.0.iget(syncline_ondisk::superblock::ROOT_INO)
    }
}

impl Inner {
    pub(crate) fn iget(self: &Arc<Self>, ino: u32) -> Result<InodeRef> {
        let inode = self.iget_unlinked(ino)?;
        if inode.state.read().raw.i_links_count == 0 && inode.refs() <= 1 {
            return Err(FsError::Stale);
        }
        Ok(inode)
    }

    /// As [`Inner::iget`], but also for an inode with no links (orphan processing).
    pub(crate) fn iget_unlinked(self: &Arc<Self>, ino: u32) -> Result<InodeRef> {
        {
            let map = self.icache.map.lock();
            if let Some(inode) = map.inodes.get(&ino) {
                return Ok(InodeRef::new(self, Arc::clone(inode)));
            }
        }
        let raw = self.read_inode(ino)?;
        let synced = self.journal.get().map_or(0, |journal| journal.committed_tid());
        let fresh = Arc::new(Inode::new(ino, raw, synced));
        Ok(self.insert_inode(fresh))
    }

    /// Puts a new inode into the cache, unless another thread was faster.
    pub(crate) fn insert_inode(self: &Arc<Self>, fresh: Arc<Inode>) -> InodeRef {
        let mut map = self.icache.map.lock();
        let inode = Arc::clone(map.inodes.entry(fresh.ino).or_insert(fresh));
        let held = InodeRef::new(self, inode);
        let dropped = if map.inodes.len() > CACHED_INODES { sweep(&mut map) } else { Vec::new() };
        drop(map);
        for inode in dropped {
            self.forget_pages(&inode);
        }
        held
    }

    fn read_inode(&self, ino: u32) -> Result<disk::Inode> {
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
        self.balloc.drop_window(inode.ino);
        if inode.state.read().raw.i_links_count != 0 {
            return;
        }
        {
            let mut map = self.icache.map.lock();
            let cached = map.inodes.get(&inode.ino).is_some_and(|c| Arc::ptr_eq(c, inode));
            if !cached || inode.refs() != 0 {
                return;
            }
            map.inodes.remove(&inode.ino);
        }
        self.evict_unlinked(inode);
    }

    /// Removes an inode that never came to life (its creation failed).
    pub(crate) fn forget_inode(&self, ino: u32) {
        self.icache.map.lock().inodes.remove(&ino);
    }

    /// The inode if it is cached; not counted as a reference.
    pub(crate) fn cached_inode(&self, ino: u32) -> Option<Arc<Inode>> {
        self.icache.map.lock().inodes.get(&ino).cloned()
    }

    /// Every cached inode, ascending.
    pub(crate) fn cached_inodes(&self) -> Vec<Arc<Inode>> {
        self.icache.map.lock().inodes.values().cloned().collect()
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

/// Takes up to [`SWEEP`] unused inodes out of the map.
fn sweep(map: &mut Map) -> Vec<Arc<Inode>> {
    let hand = map.hand;
    let order: Vec<u32> =
        map.inodes.range(hand..).chain(map.inodes.range(..hand)).map(|(n, _)| *n).collect();
    let mut dropped = Vec::new();
    for ino in order.into_iter().take(SWEEP) {
        map.hand = ino.wrapping_add(1);
        let idle = map.inodes.get(&ino).is_some_and(|inode| {
            Arc::strong_count(inode) == 1
                && inode.refs() == 0
                && inode.state.try_read().is_some_and(|st| !st.times_dirty)
                && inode.pages.try_lock().is_some_and(|pages| !pages.has_dirty())
        });
        if idle && let Some(inode) = map.inodes.remove(&ino) {
            dropped.push(inode);
        }
    }
    dropped
}
