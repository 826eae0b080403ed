//! Changing the size of a file, and freeing its blocks.
//!
//! ```text
//!   smaller: zero the rest of the last block (cache) -> handle: orphan, sizes, pages dropped
//!            -> handles: unmap from the end, free -> handle: orphan no more, times
//!   larger:  zero the rest of the last block, write it if it is on disk -> handle: sizes, times
//! ```
//!
//! Promises
//! - Each handle changes a bounded number of blocks, however large the file; in between the inode
//!   is an orphan, so that a crash is finished by recovery.
//! - Data behind a truncated end never shows again: when the file grows over its old last block,
//!   the rest of that block is zero on the device before the new size can commit. A block that has
//!   no place yet reads as zeros until its data is there.
//! - Writers of other files wait for none of it.
//!
//! Linux: `ext4_setattr`, `ext4_truncate`. Tested in `tests/it/space.rs`.

use syncline_jbd2::Handle;
use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::blocks::check_regular;
use crate::data::flush::file::{place_edges, write_back};
use crate::data::inline::truncate_inline;
use crate::data::write::{clear_tail, size_limit};
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::blocks::{FREE_ROOM, drop_pages, first_block_behind, free_range};
use crate::inode::inline::is_inline;
use crate::inode::orphan::{orphan_add, orphan_del};
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::map::extents::search::is_hole;
use crate::store::Store;

/// Inode table, and orphan file block or superblock with a neighbour's inode.
const ORPHAN_CREDITS: u32 = 4;

fn touch_times(store: &Store, inode: &Inode, st: &mut InodeState) {
    let now = change_time(store, inode, st);
    st.set_times(inode, now, now);
}

/// Zeroes the last block behind the old end, so that a larger size shows zeros. The caller holds
/// `rwsem`.
pub(crate) fn prepare_extension(files: &Files, inode: &Inode, old: u64) -> Result<()> {
    let block_size = files.geo.block_size as u64;
    if old % block_size != 0 {
        {
            let _change = files.pages.change();
            clear_tail(files, inode, old)?;
        }
        // The zeros must not be later than the size that shows them.
        let lblk = old / block_size;
        let dirty = inode.pages.lock().is_dirty(lblk);
        let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
        if dirty && !is_hole(files, inode, &inode.state.read(), at, at + 1)? {
            write_back(files, inode, lblk, lblk + 1, true)?;
        }
    }
    Ok(())
}

/// Sets a larger size, after [`prepare_extension`]. The caller has room for one block.
pub(crate) fn set_larger_size(inodes: &Inodes, inode: &Inode, size: u64) -> Result<()> {
    let mut h = inodes.start_under_io(1)?;
    h.require_flush();
    let mut st = inode.state.write();
    (st.size, st.raw.i_size) = (size, size);
    touch_times(inodes, inode, &mut st);
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)
}

/// Shrinks a file, or frees its blocks behind the end. The caller holds `rwsem`.
fn shrink_file(inodes: &Files, inode: &Inode, size: u64) -> Result<()> {
    let _room = inodes.reserve_room(FREE_ROOM)?;
    let (change, _io) = inodes.pages.change_with(&inode.io);
    clear_tail(inodes, inode, size)?;
    let first = first_block_behind(inodes, size);
    inodes.balloc.drop_window(inode.ino);
    {
        let mut h = inodes.start_under_io(ORPHAN_CREDITS)?;
        let mut st = inode.state.write();
        (st.size, st.raw.i_size) = (size, size);
        st.write_at_close |= size == 0 && inodes.options.auto_da_alloc;
        touch_times(inodes, inode, &mut st);
        drop_pages(inodes, inode, &mut st, first.into(), u64::MAX);
        if is_hole(inodes, inode, &st, first, u32::MAX)? {
            return write_inode(inodes, &mut h, inode, &mut st, Dirty::Data);
        }
        orphan_add(inodes, &mut h, inode, &mut st)?;
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    }
    // From here on recovery finishes it.
    drop(change);
    free_range(inodes, inode, first, u32::MAX)?;
    let mut h = inodes.start_under_io(ORPHAN_CREDITS)?;
    let mut st = inode.state.write();
    if st.raw.i_links_count > 0 {
        orphan_del(inodes, &mut h, inode, &mut st)?;
    }
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)
}

/// Ends an operation that changed blocks: times, sizes already set, inode written.
pub(crate) fn finish_change(inodes: &Inodes, h: &mut Handle, inode: &Inode) -> Result<()> {
    let mut st = inode.state.write();
    touch_times(inodes, inode, &mut st);
    write_inode(inodes, h, inode, &mut st, Dirty::Data)
}

impl crate::Volume {
    /// Sets the size of a regular file. It frees blocks behind a smaller size; bytes up to a larger
    /// size read as zeros. If the size stays, it frees blocks that are allocated behind the end.
    ///
    /// # Errors
    /// [`FsError::IsDir`], [`FsError::Invalid`] for an inode without a size, [`FsError::Perm`]
    /// (immutable or append-only), [`FsError::TooBig`], [`FsError::ReadOnly`],
    /// [`FsError::Latched`], I/O errors.
    pub fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let files: &Files = &self.0;
        files.before_change()?;
        check_regular(inode)?;
        let _exclusive = inode.rwsem.write();
        let old = {
            let st = inode.state.read();
            if st.raw.i_flags & (flags::IMMUTABLE | flags::APPEND | flags::VERITY) != 0 {
                return Err(FsError::Perm);
            }
            let has_extents = st.raw.i_flags & flags::EXTENTS != 0;
            if size > size_limit(files, has_extents || files.extents && is_inline(&st)) {
                return Err(FsError::TooBig);
            }
            st.size
        };
        if truncate_inline(files, inode, size)? {
            return Ok(());
        }
        if size <= old {
            // Also where it stays: blocks behind the end go.
            place_edges(files, inode, (first_block_behind(files, size).into(), u64::MAX))?;
            return shrink_file(files, inode, size);
        }
        prepare_extension(files, inode, old)?;
        let _room = files.reserve_room(1)?;
        set_larger_size(files, inode, size)
    }
}
