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
//! - What a file lost never shows again: when it grows over its old last block, that block's rest
//!   is zero on the device before the new size can commit. A block that has no place yet reads as
//!   zeros until its data is there.
//! - Writers of other files wait for none of it.
//!
//! Linux: `ext4_setattr`, `ext4_truncate`. Tested in `tests/space.rs`.

use crate::error::{FsError, Result};
use crate::extents::Mapping;
use crate::inode::{Dirty, Inode, InodeRef, InodeState};
use crate::volume::{Inner, Volume};
use syncline_jbd2::Handle;
use syncline_ondisk::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, flags};

/// Credits of a handle that unmaps, if one extent does not need more.
const UNMAP_CREDITS: u32 = 96;

/// Inode table, and orphan file block or superblock with a neighbour's inode.
const ORPHAN_CREDITS: u32 = 4;

impl Volume {
    /// Sets the size of a regular file. What is cut off is freed; what is added reads as zeros.
    /// Also frees what is allocated behind the end, if the size stays.
    ///
    /// # Errors
    /// [`FsError::IsDir`], [`FsError::Invalid`] for what has no size, [`FsError::Perm`] (immutable
    /// or append-only), [`FsError::TooBig`], [`FsError::ReadOnly`], [`FsError::Latched`], I/O
    /// errors.
    pub fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        let vol = &self.0;
        vol.check_writable()?;
        vol.check_regular(inode)?;
        let _exclusive = inode.rwsem.write();
        let old = {
            let st = inode.state.read();
            if st.raw.i_flags & (flags::IMMUTABLE | flags::APPEND) != 0 {
                return Err(FsError::Perm);
            }
            if size > vol.size_limit(st.raw.i_flags & flags::EXTENTS != 0) {
                return Err(FsError::TooBig);
            }
            st.size
        };
        if size > old { vol.extend(inode, old, size) } else { vol.shrink(inode, size) }
    }
}

impl Inner {
    /// The first block that lies wholly behind `size`.
    fn first_block_behind(&self, size: u64) -> u32 {
        let block = size.div_ceil(self.geo.block_size as u64);
        u32::try_from(block).unwrap_or(u32::MAX)
    }

    fn touch(&self, st: &mut InodeState) {
        let now = self.now();
        (st.raw.i_mtime, st.raw.i_ctime) = (now, now);
    }

    /// Grows a file; the caller holds `rwsem`.
    pub(crate) fn extend(&self, inode: &Inode, old: u64, size: u64) -> Result<()> {
        let block_size = self.geo.block_size as u64;
        if !old.is_multiple_of(block_size) {
            self.clear_tail(inode, old)?;
            // The zeros must not be later than the size that shows them.
            let lblk = old / block_size;
            let dirty = inode.pages.lock().is_dirty(lblk);
            let at = u32::try_from(lblk).map_err(|_| FsError::TooBig)?;
            if dirty && !self.is_hole(inode, &inode.state.read(), at, at + 1)? {
                self.write_back(inode, lblk, lblk + 1, true)?;
            }
        }
        let mut h = self.start(1)?;
        h.require_flush();
        let mut st = inode.state.write();
        (st.size, st.raw.i_size) = (size, size);
        self.touch(&mut st);
        self.write_inode(&mut h, inode, &mut st, Dirty::Data)
    }

    /// Shrinks a file, or frees what lies behind its end; the caller holds `rwsem`.
    fn shrink(&self, inode: &Inode, size: u64) -> Result<()> {
        let _io = inode.io.lock();
        self.clear_tail(inode, size)?;
        let first = self.first_block_behind(size);
        self.balloc.drop_window(inode.ino);
        {
            let mut h = self.start(ORPHAN_CREDITS)?;
            let mut st = inode.state.write();
            (st.size, st.raw.i_size) = (size, size);
            st.write_at_close |= size == 0 && self.options.auto_da_alloc;
            self.touch(&mut st);
            self.drop_pages(inode, &mut st, first.into(), u64::MAX);
            if self.is_hole(inode, &st, first, u32::MAX)? {
                return self.write_inode(&mut h, inode, &mut st, Dirty::Data);
            }
            self.orphan_add(&mut h, inode, &mut st)?;
            self.write_inode(&mut h, inode, &mut st, Dirty::Data)?;
        }
        self.free_range(inode, first, u32::MAX)?;
        let mut h = self.start(ORPHAN_CREDITS)?;
        let mut st = inode.state.write();
        if st.raw.i_links_count > 0 {
            self.orphan_del(&mut h, inode, &mut st)?;
        }
        self.write_inode(&mut h, inode, &mut st, Dirty::Data)
    }

    /// Whether nothing of `from..to` is on disk.
    pub(crate) fn is_hole(
        &self,
        inode: &Inode,
        st: &InodeState,
        from: u32,
        to: u32,
    ) -> Result<bool> {
        if from >= to {
            return Ok(true);
        }
        let mut at = from;
        // Block maps answer for one table at a time; their holes are few and large.
        while let Mapping::Hole { len } = self.map_blocks(inode, st, at, to - at)? {
            at = at.saturating_add(len);
            if at >= to {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Unmaps and frees the blocks `from..to`, in as many handles as it takes. The caller holds
    /// `io` and has dropped the pages.
    ///
    /// # Errors
    /// Corruption, I/O; [`FsError::NoSpace`] for a hole whose edge needs an index block. What was
    /// freed until then is consistent.
    pub(crate) fn free_range(&self, inode: &Inode, from: u32, to: u32) -> Result<()> {
        let mut to = to;
        while to > from {
            let credits = {
                let st = inode.state.read();
                if self.is_hole(inode, &st, from, to)? {
                    return Ok(());
                }
                UNMAP_CREDITS.max(self.unmap_credits(&st))
            };
            let mut h = self.start(credits)?;
            let mut st = inode.state.write();
            let left = self.unmap_blocks(&mut h, inode, &mut st, (from, to), credits);
            self.write_inode(&mut h, inode, &mut st, Dirty::Data)?;
            to = left?;
        }
        Ok(())
    }

    /// Frees all blocks of an inode that is going away; the caller holds `io`. Does nothing for
    /// inodes whose `i_block` is not a map (device files, short symlinks).
    pub(crate) fn free_all_blocks(&self, inode: &Inode) -> Result<()> {
        let has_map = {
            let mut st = inode.state.write();
            let kind = st.raw.i_mode & S_IFMT;
            let short = st.raw.is_fast_symlink(self.geo.block_size);
            let has_map = matches!(kind, S_IFREG | S_IFDIR | S_IFLNK) && !short;
            if has_map {
                // A file without links has no size to keep: nothing is written back any more.
                (st.size, st.raw.i_size) = (0, 0);
                self.drop_pages(inode, &mut st, 0, u64::MAX);
            }
            has_map
        };
        self.balloc.drop_window(inode.ino);
        if has_map { self.free_range(inode, 0, u32::MAX) } else { Ok(()) }
    }

    /// Frees what a file has behind `size`; the caller holds `io`.
    pub(crate) fn free_blocks_beyond(&self, inode: &Inode, size: u64) -> Result<()> {
        self.free_range(inode, self.first_block_behind(size), u32::MAX)
    }

    /// Ends an operation that changed blocks: times, sizes already set, inode written.
    pub(crate) fn finish_change(&self, h: &mut Handle, inode: &Inode) -> Result<()> {
        let mut st = inode.state.write();
        self.touch(&mut st);
        self.write_inode(h, inode, &mut st, Dirty::Data)
    }
}
