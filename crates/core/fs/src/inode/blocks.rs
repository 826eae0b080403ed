//! Freeing the blocks of an inode, in as many handles as it takes, and dropping its cached pages.
//!
//! Restartable: blocks that were freed before a crash are consistent, and the inode is an orphan
//! meanwhile.

use syncline_ondisk::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

use crate::error::Result;
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::delayed::forget_delayed;
use crate::inode::inline::is_inline;
use crate::inode::table::write_inode;
use crate::map::extents::search::is_hole;
use crate::map::extents::volume::{unmap_blocks, unmap_credits};
use crate::store::Store;

/// Credits of a handle that unmaps, if one extent does not need more.
const UNMAP_CREDITS: u32 = 96;

/// Room in the running transaction of an operation that frees blocks under `io`: one such handle,
/// and the handles around it. Further ones change the same bitmaps and descriptors, or others of
/// which a volume has few for the size of its log.
pub(crate) const FREE_ROOM: u32 = UNMAP_CREDITS + 16;

/// Unmaps and frees the blocks `from..to`, in as many handles as it takes. The caller holds
/// `io` and has dropped the pages.
///
/// # Errors
/// Corruption, I/O; [`crate::FsError::NoSpace`] for a hole whose edge needs an index block. What
/// was freed until then is consistent.
pub(crate) fn free_range(inodes: &Inodes, inode: &Inode, from: u32, to: u32) -> Result<()> {
    if is_inline(&inode.state.read()) {
        return Ok(());
    }
    let mut to = to;
    while to > from {
        let credits = {
            let st = inode.state.read();
            if is_hole(inodes, inode, &st, from, to)? {
                return Ok(());
            }
            UNMAP_CREDITS.max(unmap_credits(inodes, &st))
        };
        let mut h = inodes.start_under_io(credits)?;
        let mut st = inode.state.write();
        let left = unmap_blocks(inodes, &mut h, inode, &mut st, (from, to), credits);
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
        to = left?;
    }
    Ok(())
}

/// Frees all blocks of an inode that is going away; the caller holds `io`. Does nothing for
/// inodes whose `i_block` is not a map (device files, short symlinks).
pub(crate) fn free_all_blocks(inodes: &Inodes, inode: &Inode) -> Result<()> {
    let has_map = {
        let mut st = inode.state.write();
        let kind = st.raw.i_mode & S_IFMT;
        let short = st.raw.is_fast_symlink(inodes.geo.cluster_bytes(), inodes.ea_inode);
        let has_map = matches!(kind, S_IFREG | S_IFDIR | S_IFLNK) && !short;
        if has_map {
            // A file without links has no size to keep: nothing is written back any more.
            (st.size, st.raw.i_size) = (0, 0);
            drop_pages(inodes, inode, &mut st, 0, u64::MAX);
        }
        has_map
    };
    inodes.balloc.drop_window(inode.ino);
    if has_map { free_range(inodes, inode, 0, u32::MAX) } else { Ok(()) }
}

/// Frees the blocks of a file behind `size`. The caller holds `io`.
pub(crate) fn free_blocks_beyond(inodes: &Inodes, inode: &Inode, size: u64) -> Result<()> {
    free_range(inodes, inode, first_block_behind(inodes, size), u32::MAX)
}

/// The first block that lies wholly behind `size`.
pub(crate) fn first_block_behind(store: &Store, size: u64) -> u32 {
    let block = size.div_ceil(store.geo.block_size as u64);
    u32::try_from(block).unwrap_or(u32::MAX)
}

/// Forgets the cached blocks `from..to` of a file, dirty ones too, and gives back what they had
/// reserved. For truncate and hole punching: the caller holds `Inode::io`, so that nothing of
/// it is on its way to the device.
pub(crate) fn drop_pages(inodes: &Inodes, inode: &Inode, st: &mut InodeState, from: u64, to: u64) {
    let dropped = inode.pages.lock().remove_range(&inodes.pages, from, to) as u64;
    forget_delayed(inodes, st, (from, to), dropped);
}

/// Gives up every page of an inode that leaves the inode cache. It has nothing dirty, or what
/// is dirty is lost on purpose: it is being freed, or the volume is latched.
pub(crate) fn forget_pages(inodes: &Inodes, inode: &Inode) {
    drop_pages(inodes, inode, &mut inode.state.write(), 0, u64::MAX);
}
