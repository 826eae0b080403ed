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
use syncline_ondisk::inode as disk;
use syncline_ondisk::superblock::ROOT_INO;

use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::blocks::forget_pages;
use crate::inode::evict::evict_unlinked;
use crate::inode::reference::InodeRef;
use crate::inode::table::read_inode;

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

/// The inode with this number.
///
/// # Errors
/// [`FsError::Stale`] if it is not in use, [`FsError::Corrupt`] if its slot is broken.
pub(crate) fn iget(inodes: &Arc<Inodes>, ino: u32) -> Result<InodeRef> {
    loop {
        let removals = match cached_reference(inodes, ino) {
            Ok(inode) if inode.state.read().raw.i_links_count == 0 && inode.refs() <= 1 => {
                return Err(FsError::Stale);
            }
            Ok(inode) => return Ok(inode),
            Err(removals) => removals,
        };
        let raw = read_inode(inodes, ino)?;
        if raw.i_links_count == 0 {
            // It was freed already. The last reference to it would free it once more.
            return Err(FsError::Stale);
        }
        if let Some(inode) = insert_read(inodes, ino, raw, removals) {
            return Ok(inode);
        }
    }
}

/// The inode that a file handle names, which may have any number.
///
/// # Errors
/// As [`iget`]; [`FsError::Stale`] also if no file can have the number, as the journal's.
pub(crate) fn iget_handle(inodes: &Arc<Inodes>, ino: u32) -> Result<InodeRef> {
    let geo = &inodes.geo;
    if ino != ROOT_INO && ino < geo.first_ino || ino > geo.inodes_count {
        return Err(FsError::Stale);
    }
    iget(inodes, ino)
}

/// The root directory.
///
/// # Errors
/// As [`iget`].
pub(crate) fn root(inodes: &Arc<Inodes>) -> Result<InodeRef> {
    iget(inodes, ROOT_INO)
}

/// As [`iget`], but also for an inode with no links (orphan processing).
pub(crate) fn iget_unlinked(inodes: &Arc<Inodes>, ino: u32) -> Result<InodeRef> {
    loop {
        let removals = match cached_reference(inodes, ino) {
            Ok(inode) => return Ok(inode),
            Err(removals) => removals,
        };
        let raw = read_inode(inodes, ino)?;
        if let Some(inode) = insert_read(inodes, ino, raw, removals) {
            return Ok(inode);
        }
    }
}

/// The cached inode, or how many have left its shard until now.
fn cached_reference(inodes: &Arc<Inodes>, ino: u32) -> std::result::Result<InodeRef, u64> {
    let shard = inodes.icache.shard(ino).lock();
    let inode = shard.inodes.get(&ino).ok_or(shard.removals)?;
    Ok(InodeRef::new(inodes, Arc::clone(inode)))
}

/// Puts an inode into the cache as it was read from its slot, if as many as `removals` had left
/// the shard before that and none has since; else what was read may be old.
fn insert_read(
    inodes: &Arc<Inodes>,
    ino: u32,
    raw: disk::Inode,
    removals: u64,
) -> Option<InodeRef> {
    let synced = inodes.journal.get().map_or(0, |journal| journal.committed_tid());
    let shard = inodes.icache.shard(ino).lock();
    let inode = Arc::new(Inode::new(ino, raw, synced));
    (shard.removals == removals).then(|| enter(inodes, shard, inode))
}

/// Puts a new inode into the cache, unless another thread was faster.
pub(crate) fn insert_inode(inodes: &Arc<Inodes>, fresh: Arc<Inode>) -> InodeRef {
    enter(inodes, inodes.icache.shard(fresh.ino).lock(), fresh)
}

fn enter(inodes: &Arc<Inodes>, mut shard: MutexGuard<'_, Shard>, fresh: Arc<Inode>) -> InodeRef {
    let ino = fresh.ino;
    let inode = match shard.inodes.entry(ino) {
        Entry::Occupied(found) => Arc::clone(found.get()),
        Entry::Vacant(room) => {
            let inode = Arc::clone(room.insert(fresh));
            shard.ring.push_back(ino);
            inode
        }
    };
    let held = InodeRef::new(inodes, inode);
    let dropped = shard.make_room(inodes.icache.shard_max);
    drop(shard);
    for inode in dropped {
        forget_pages(inodes, &inode);
    }
    held
}

/// Called when the count of references fell to zero.
pub(crate) fn last_reference_dropped(inodes: &Arc<Inodes>, inode: &Arc<Inode>) {
    // Nobody appends to it now: what was kept free for that may serve others.
    if inode.may_have_window.swap(false, Ordering::AcqRel) {
        inodes.balloc.drop_window(inode.ino);
    }
    if inode.state.read().raw.i_links_count != 0 {
        return;
    }
    {
        let mut shard = inodes.icache.shard(inode.ino).lock();
        let cached = shard.inodes.get(&inode.ino).is_some_and(|c| Arc::ptr_eq(c, inode));
        if !cached || inode.refs() != 0 {
            return;
        }
        shard.remove(inode.ino);
    }
    evict_unlinked(inodes, inode);
}

/// Removes an inode that never came to life (its creation failed).
pub(crate) fn forget_inode(inodes: &Inodes, ino: u32) {
    inodes.icache.shard(ino).lock().remove(ino);
}

/// The inode if it is cached; not counted as a reference.
pub(crate) fn cached_inode(inodes: &Inodes, ino: u32) -> Option<Arc<Inode>> {
    inodes.icache.shard(ino).lock().inodes.get(&ino).cloned()
}

/// Every cached inode, ascending.
pub(crate) fn cached_inodes(inodes: &Inodes) -> Vec<Arc<Inode>> {
    let mut all: Vec<Arc<Inode>> = Vec::new();
    for shard in &inodes.icache.shards {
        all.extend(shard.lock().inodes.values().cloned());
    }
    all.sort_unstable_by_key(|inode| inode.ino);
    all
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
    use crate::{Create, MountOptions, SetAttr, Volume};
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
        let removals = cached_reference(inner, ino).err().unwrap();
        let old = read_inode(inner, ino).unwrap();
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let other = volume.iget(ino).unwrap();
        volume.setattr(&other, &set).unwrap();
        drop(other);
        evict();
        assert!(insert_read(inner, ino, old, removals).is_none());
        let again = volume.iget(ino).unwrap();
        assert_eq!(volume.getattr(&again).mode & 0o7777, 0o600);
        // What is the newest goes in, and only once.
        let (removals, newest) =
            (inner.icache.shard(ino).lock().removals, again.state.read().raw.clone());
        let same = insert_read(inner, ino, newest, removals).unwrap();
        assert!(std::ptr::eq(&*same, &*again));
        drop((again, same));
        volume.unmount().unwrap();
    }
}
