//! In-core inodes: the decoded inode, its locks, and how it goes back to the inode table.
//!
//! ```text
//!  InodeRef ──> Inode ── rwsem   serialises operations on the file (i_rwsem)
//!  counts        │       io      data in flight to its place, and freeing of blocks
//!  references    ├────── state   raw inode, i_size, delayed allocation, sync tids
//!                └────── pages   cached file blocks
//! ```
//!
//! Promises
//! - `state.raw` is what the inode table says after the running transaction; `raw.i_size` is
//!   `i_disksize`: it never covers data that has not been written. `state.size` is `i_size`.
//! - [`Inner::write_inode`] is the only function that writes an inode table slot.
//! - Dropping the last reference to an unlinked inode frees it ([`crate::evict`]).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock};
use syncline_jbd2::{Handle, Tid};
use syncline_ondisk::{checksum, inode as disk};

use crate::balloc::Lifetime;
use crate::error::{FsError, Result};
use crate::extents::ExtentCache;
use crate::orphan::OrphanPlace;
use crate::pagecache::PageTree;
use crate::volume::Inner;

/// Whether fdatasync must make a change of an inode durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// Timestamps and the like: fsync only.
    Times,
    /// Size, extents, or anything needed to read the data back.
    Data,
}

/// One cached inode.
pub struct Inode {
    /// Inode number.
    pub ino: u32,
    pub(crate) rwsem: RwLock<()>,
    pub(crate) io: Mutex<()>,
    pub(crate) state: RwLock<InodeState>,
    pub(crate) pages: Mutex<PageTree>,
    /// References held by callers; the cache itself does not count.
    refs: AtomicU32,
    /// Blocks were allocated for it, so the allocator may keep more for it.
    pub(crate) may_have_window: AtomicBool,
    /// [`Lifetime`] of its blocks (`crate::hot`), as its number.
    life: AtomicU8,
    /// Blocks written over since it is in memory.
    pub(crate) overwritten: AtomicU32,
    /// What is known about its durability; see `relaxed.rs`.
    pub(crate) durability: AtomicU8,
}

/// The changeable part of an inode.
pub(crate) struct InodeState {
    pub(crate) raw: disk::Inode,
    /// Never written yet: whatever its slot holds is from an earlier life.
    pub(crate) fresh: bool,
    /// `i_size` in bytes; ahead of `raw.i_size` while appended data waits for write-back.
    pub(crate) size: u64,
    /// Blocks reserved by delayed allocation.
    pub(crate) reserved_blocks: u64,
    /// Transaction that fsync must wait for.
    pub(crate) sync_tid: Tid,
    /// Transaction that fdatasync must wait for.
    pub(crate) datasync_tid: Tid,
    /// Counts what moved `datasync_tid`.
    pub(crate) data_changes: u64,
    /// Timestamps in `raw` are newer than the inode table (lazytime).
    pub(crate) times_dirty: bool,
    /// Cut to nothing since the last close: what is written now replaces something.
    pub(crate) write_at_close: bool,
    /// On the orphan list or in the orphan file.
    pub(crate) orphan: Option<OrphanPlace>,
    pub(crate) extent_cache: ExtentCache,
}

impl Inode {
    pub(crate) fn new(ino: u32, raw: disk::Inode, synced: Tid) -> Inode {
        let state = InodeState {
            size: raw.i_size,
            raw,
            fresh: false,
            reserved_blocks: 0,
            sync_tid: synced,
            datasync_tid: synced,
            data_changes: 0,
            times_dirty: false,
            write_at_close: false,
            orphan: None,
            extent_cache: ExtentCache::default(),
        };
        Inode {
            ino,
            rwsem: RwLock::new(()),
            io: Mutex::new(()),
            state: RwLock::new(state),
            pages: Mutex::new(PageTree::new(ino)),
            refs: AtomicU32::new(0),
            may_have_window: AtomicBool::new(false),
            life: AtomicU8::new(Lifetime::Long as u8),
            overwritten: AtomicU32::new(0),
            durability: AtomicU8::new(0),
        }
    }

    /// What its blocks are expected to do.
    pub(crate) fn life(&self) -> Lifetime {
        match self.life.load(Ordering::Relaxed) {
            life if life == Lifetime::Updated as u8 => Lifetime::Updated,
            life if life == Lifetime::Short as u8 => Lifetime::Short,
            _ => Lifetime::Long,
        }
    }

    /// Its blocks are expected to do this.
    pub(crate) fn set_life(&self, life: Lifetime) {
        self.life.store(life as u8, Ordering::Relaxed);
    }

    /// References held by callers.
    pub(crate) fn refs(&self) -> u32 {
        self.refs.load(Ordering::Acquire)
    }
}

/// A counted reference to an inode. While one exists the inode stays usable, also when unlinked.
///
/// The last one of an unlinked inode frees the file when dropped: it must not be dropped while a
/// journal handle or a lock of that inode is held.
pub struct InodeRef {
    vol: Arc<Inner>,
    inode: Arc<Inode>,
}

impl InodeRef {
    pub(crate) fn new(vol: &Arc<Inner>, inode: Arc<Inode>) -> InodeRef {
        inode.refs.fetch_add(1, Ordering::AcqRel);
        InodeRef { vol: Arc::clone(vol), inode }
    }

    pub(crate) fn arc(&self) -> &Arc<Inode> {
        &self.inode
    }

    pub(crate) fn volume(&self) -> &Arc<Inner> {
        &self.vol
    }
}

impl Clone for InodeRef {
    fn clone(&self) -> InodeRef {
        InodeRef::new(&self.vol, Arc::clone(&self.inode))
    }
}

impl Deref for InodeRef {
    type Target = Inode;
    fn deref(&self) -> &Inode {
        &self.inode
    }
}

impl std::fmt::Debug for InodeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InodeRef({})", self.inode.ino)
    }
}

impl Drop for InodeRef {
    fn drop(&mut self) {
        if self.inode.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.vol.last_reference_dropped(&self.inode);
        }
    }
}

impl Inner {
    /// Block of the inode table that holds `ino`, and the byte offset of its slot.
    ///
    /// # Errors
    /// [`FsError::Corrupt`] for a number outside of the volume.
    pub(crate) fn inode_place(&self, ino: u32) -> Result<(u64, usize)> {
        let (group, index) = self.geo.inode_group(ino).ok_or_else(|| {
            self.corrupt(Some(ino), None, None, "inode number outside of the volume")
        })?;
        let (block, offset) = self.geo.inode_slot(index);
        Ok((self.group_desc(group)?.bg_inode_table + u64::from(block), offset))
    }

    /// Puts `st.raw` into its slot of the inode table, in the handle's transaction, and notes which
    /// transaction a sync of the file must wait for (`ext4_mark_inode_dirty`).
    ///
    /// # Errors
    /// Whatever reading the block or joining the transaction gives.
    pub(crate) fn write_inode(
        &self,
        h: &mut Handle,
        inode: &Inode,
        st: &mut InodeState,
        dirty: Dirty,
    ) -> Result<()> {
        let (block, offset) = self.inode_place(inode.ino)?;
        let size = self.geo.inode_size;
        let seed = self.inode_csum_seed(inode.ino, st.raw.i_generation);
        // The lock of the orphan list is held while the slot is written: see `crate::orphan`.
        let listed = (st.orphan == Some(OrphanPlace::List)).then(|| self.orphans.lock());
        if let Some(orphans) = &listed {
            st.raw.i_dtime = orphans.next(inode.ino);
        }
        let (raw, fresh) = (&st.raw, st.fresh);
        h.modify_slot(block, offset..offset + size, |slot| {
            if fresh {
                slot.fill(0);
            }
            Ok::<(), FsError>(raw.encode_into(slot, seed)?)
        })?;
        drop(listed);
        st.fresh = false;
        st.times_dirty = false;
        st.sync_tid = h.tid();
        if dirty == Dirty::Data {
            st.datasync_tid = h.tid();
            st.data_changes += 1;
        }
        Ok(())
    }

    /// Seed for the checksum of one inode, `None` without `metadata_csum`.
    pub(crate) fn inode_csum_seed(&self, ino: u32, generation: u32) -> Option<u32> {
        self.geo.metadata_csum.then(|| checksum::inode_seed(self.csum_seed, ino, generation))
    }
}
