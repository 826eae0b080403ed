//! The end of an unlinked inode: its blocks, xattrs and number are given back.
//!
//! Runs when the last [`crate::InodeRef`] of an inode without links is dropped, and at mount for
//! orphans. Freeing is restartable: the inode stays an orphan until the handle that frees its
//! number, so that a crash in between is finished by recovery.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use syncline_ondisk::inode::S_IFDIR;

use crate::error::Result;
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::blocks::{FREE_ROOM, forget_pages, free_all_blocks, free_blocks_beyond};
use crate::inode::orphan::orphan_del;
use crate::inode::table::write_inode;
use crate::inode::xattr::place::release_xattrs;
use crate::inode::xattr::users::{Value, release_values};
use crate::space::ialloc::free_inode;

/// Blocks that the last handle of an eviction may change: inode table, inode bitmap, group
/// descriptor, superblock or orphan file, xattr block with its bitmap and descriptor, and the inode
/// table block of a neighbour on the orphan list.
const EVICT_CREDITS: u32 = 10;

/// Frees an inode that has neither links nor references. The inode has left the cache. A
/// failure leaves it an orphan, for recovery to finish.
fn evict_unlinked(inodes: &Arc<Inodes>, inode: &Arc<Inode>) {
    if inodes.check_writable().is_err() {
        forget_pages(inodes, inode);
        return;
    }
    if let Err(err) = inodes.relieve_log().and_then(|()| try_evict(inodes, inode)) {
        inodes.latch.set(&err);
    }
}

fn try_evict(inodes: &Arc<Inodes>, inode: &Arc<Inode>) -> Result<()> {
    // Dropped last: these go in the same way.
    let _values: Vec<Value>;
    let _room = inodes.reserve_room(FREE_ROOM)?;
    let _io = inode.io.lock();
    free_all_blocks(inodes, inode)?;
    forget_pages(inodes, inode);
    if inodes.ea_inode {
        _values = release_values(inodes, inode)?;
    }
    let mut h = inodes.start_under_io(EVICT_CREDITS)?;
    let mut st = inode.state.write();
    release_xattrs(inodes, &mut h, inode, &mut st)?;
    orphan_del(inodes, &mut h, inode, &mut st)?;
    st.raw.i_dtime = inodes.now().seconds.clamp(1, i64::from(u32::MAX)) as u32;
    let is_dir = st.raw.i_mode & syncline_ondisk::inode::S_IFMT == S_IFDIR;
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    free_inode(inodes, &mut h, inode.ino, is_dir)
}

/// Finishes a truncation that a crash interrupted.
pub(crate) fn truncate_orphan(inodes: &Arc<Inodes>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    let _rwsem = inode.rwsem.write();
    let _room = inodes.reserve_room(FREE_ROOM)?;
    let _io = inode.io.lock();
    free_blocks_beyond(inodes, inode, size)?;
    let mut h = inodes.start_under_io(EVICT_CREDITS)?;
    let mut st = inode.state.write();
    orphan_del(inodes, &mut h, inode, &mut st)?;
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)
}

/// Called when the count of references fell to zero.
pub(crate) fn last_reference_dropped(inodes: &Arc<Inodes>, inode: &Arc<Inode>) {
    // No writer appends to it now: blocks kept free for that may serve other files.
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
