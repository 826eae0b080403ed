//! Creation of inodes: number, inherited flags, empty extent tree.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::inode as disk;

use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::Inodes;
use crate::inode::iget::{forget_inode, insert_inode};
use crate::inode::reference::InodeRef;
use crate::space::ialloc::{NewInode, blank_inode, group_order, take_inode};

/// Takes a free inode number near `parent` and makes an in-core inode for it: mode, owner,
/// times, generation, inherited flags and an empty extent tree are set, links are 1 (2 for a
/// directory). The caller fills in the rest and calls `write_inode`. Joins three blocks: the
/// inode bitmap, the group descriptor, and with `write_inode` the inode table.
///
/// # Errors
/// [`FsError::NoSpace`] if no inode is free.
pub(crate) fn new_inode(
    inodes: &Arc<Inodes>,
    h: &mut Handle,
    parent: &Inode,
    new: &NewInode,
) -> Result<InodeRef> {
    let is_dir = new.mode & disk::S_IFMT == disk::S_IFDIR;
    let home = inodes.geo.inode_group(parent.ino).ok_or(FsError::Stale)?;
    let hot = new.life.is_hot() && inodes.balloc.has_zones();
    for group in group_order(inodes, parent, is_dir, hot)? {
        let near = (group == home.0 && !is_dir).then_some(home.1);
        if let Some(ino) = take_inode(inodes, h, group, near, is_dir)? {
            let raw = blank_inode(inodes, parent, new);
            let mut inode = Inode::new(ino, raw, h.tid());
            inode.state.get_mut().fresh = true;
            *inode.shown.get_mut() = false;
            inode.set_life(new.life);
            forget_inode(inodes, ino);
            return Ok(insert_inode(inodes, Arc::new(inode)));
        }
    }
    Err(FsError::NoSpace)
}
