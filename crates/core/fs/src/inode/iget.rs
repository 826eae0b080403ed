//! Lookup of inodes by number: in the cache, or from their slots.
//!
//! The image of a slot enters the cache only if no inode has left that part of it since it was
//! read: another thread may have loaded, changed and dropped the same inode between. Tested here,
//! and under many schedules in `inode/model_tests.rs`.

use std::sync::Arc;

use syncline_base::lockrank::MutexGuard;
use syncline_ondisk::inode as disk;
use syncline_ondisk::superblock::ROOT_INO;

use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::blocks::forget_pages;
use crate::inode::icache::Shard;
use crate::inode::reference::InodeRef;
use crate::inode::table::read_inode;

impl crate::Volume {
    /// Returns the inode with this number.
    ///
    /// # Errors
    /// [`FsError::Stale`] if it is not in use, [`FsError::Corrupt`] if its slot is broken.
    pub fn iget(&self, ino: u32) -> Result<InodeRef> {
        iget(&self.0, ino)
    }

    /// Returns the inode of a file handle, whose number may be any.
    ///
    /// # Errors
    /// As [`Self::iget`]; [`FsError::Stale`] also for an inode that is no file: the journal,
    /// or the value of an attribute.
    pub fn iget_handle(&self, ino: u32) -> Result<InodeRef> {
        let geo = &self.0.geo;
        if ino != ROOT_INO && ino < geo.first_ino || ino > geo.inodes_count {
            return Err(FsError::Stale);
        }
        let inode = iget(&self.0, ino)?;
        let holds_value = inode.state.read().raw.has_flag(disk::flags::EA_INODE);
        if holds_value { Err(FsError::Stale) } else { Ok(inode) }
    }

    /// True if directories of the volume may fold case.
    pub fn can_fold_case(&self) -> bool {
        self.0.dir_format.fold.is_some()
    }

    /// True for a directory, named by its inode number, whose names fold case.
    pub fn folds_case(&self, ino: u32) -> bool {
        let folds = |inode: InodeRef| inode.state.read().raw.has_flag(disk::flags::CASEFOLD);
        self.can_fold_case() && self.iget_handle(ino).is_ok_and(folds)
    }

    /// Returns the root directory.
    ///
    /// # Errors
    /// As [`Self::iget`].
    pub fn root(&self) -> Result<InodeRef> {
        iget(&self.0, ROOT_INO)
    }
}

/// Returns the inode with this number, from the cache or from its slot.
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
    shard.get(ino).map(|inode| InodeRef::new(inodes, inode))
}

/// Puts an inode into the cache as it was read from its slot, if as many as `removals` had left the
/// shard before that and none has since; else the image of the slot may be old.
fn insert_read(
    inodes: &Arc<Inodes>,
    ino: u32,
    raw: disk::Inode,
    removals: u64,
) -> Option<InodeRef> {
    let synced = inodes.journal.get().map_or(0, |journal| journal.committed_tid());
    let mut shard = inodes.icache.shard(ino).lock();
    let inode = shard.insert_read(Arc::new(Inode::new(ino, raw, synced)), removals)?;
    Some(entered(inodes, shard, inode))
}

/// Puts a new inode into the cache, unless another thread was faster.
pub(crate) fn insert_inode(inodes: &Arc<Inodes>, fresh: Arc<Inode>) -> InodeRef {
    let mut shard = inodes.icache.shard(fresh.ino).lock();
    let inode = shard.insert(fresh);
    entered(inodes, shard, inode)
}

/// A reference to an inode that is in the shard now, which may have grown too large by it.
fn entered(inodes: &Arc<Inodes>, mut shard: MutexGuard<'_, Shard>, inode: Arc<Inode>) -> InodeRef {
    let held = InodeRef::new(inodes, inode);
    let dropped = shard.make_room(inodes.icache.shard_max);
    drop(shard);
    for inode in dropped {
        forget_pages(inodes, &inode);
    }
    held
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
        let newest = again.state.read().raw.clone();
        let removals = inner.icache.shard(ino).lock().removals;
        let same = insert_read(inner, ino, newest, removals).unwrap();
        assert!(std::ptr::eq(&*same, &*again));
        drop((again, same));
        volume.unmount().unwrap();
    }
}
