//! The end of an unlinked inode: its blocks, xattrs and number are given back.
//!
//! Runs when the last [`crate::InodeRef`] of an inode without links is dropped, and at mount for
//! orphans. Freeing is restartable: the inode stays an orphan until the handle that frees its
//! number, so that a crash in between is finished by recovery.

use std::sync::Arc;

use syncline_ondisk::inode::S_IFDIR;

use crate::error::Result;
use crate::inode::{Dirty, Inode};
use crate::volume::Inner;

/// Blocks that the last handle of an eviction may change: inode table, inode bitmap, group
/// descriptor, superblock or orphan file, xattr block with its bitmap and descriptor, and the inode
/// table block of a neighbour on the orphan list.
const EVICT_CREDITS: u32 = 10;

impl Inner {
    /// Frees an inode that has neither links nor references. The inode has left the cache. A
    /// failure leaves it an orphan, for recovery to finish.
    pub(crate) fn evict_unlinked(self: &Arc<Self>, inode: &Arc<Inode>) {
        if self.check_writable().is_err() {
            self.forget_pages(inode);
            return;
        }
        if let Err(err) = self.try_evict(inode) {
            self.latch.set(&err);
        }
    }

    fn try_evict(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let _io = inode.io.lock();
        self.free_all_blocks(inode)?;
        self.forget_pages(inode);
        let mut h = self.start(EVICT_CREDITS)?;
        let mut st = inode.state.write();
        self.release_xattrs(&mut h, inode, &mut st)?;
        self.orphan_del(&mut h, inode, &mut st)?;
        st.raw.i_dtime = self.now().seconds.clamp(1, i64::from(u32::MAX)) as u32;
        let is_dir = st.raw.i_mode & syncline_ondisk::inode::S_IFMT == S_IFDIR;
        self.write_inode(&mut h, inode, &mut st, Dirty::Data)?;
        self.free_inode(&mut h, inode.ino, is_dir)
    }

    /// Finishes a truncation that a crash interrupted.
    pub(crate) fn truncate_orphan(self: &Arc<Self>, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let _rwsem = inode.rwsem.write();
        let _io = inode.io.lock();
        self.free_blocks_beyond(inode, size)?;
        let mut h = self.start(EVICT_CREDITS)?;
        let mut st = inode.state.write();
        self.orphan_del(&mut h, inode, &mut st)?;
        self.write_inode(&mut h, inode, &mut st, Dirty::Data)
    }
}
