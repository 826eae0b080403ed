//! Allocating ahead, punching holes, zeroing ranges.
//!
//! ```text
//!   default, KEEP_SIZE   holes of the range become unwritten extents (delayed blocks have their
//!                        space reserved already and stay as they are)
//!   PUNCH_HOLE           edges zeroed in the cache, whole blocks: pages dropped, unmapped, freed
//!   ZERO_RANGE           edges zeroed in the cache, whole blocks: pages dropped, written extents
//!                        become unwritten, holes as above
//! ```
//!
//! Each handle changes one run: a crash or an error in between leaves a file that is consistent and
//! partly done, as ext4 does. Files with block maps have no unwritten blocks: only PUNCH_HOLE works
//! on them, as in Linux.
//!
//! Linux: `ext4_fallocate`, `ext4_punch_hole`, `ext4_zero_range`. Tested in `tests/it/space.rs`.

use syncline_ondisk::extent::UNWRITTEN_MAX_LEN;
use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::blocks::{check_regular, zero_partial};
use crate::data::flush::file::{place_edges, write_back, write_delayed};
use crate::data::flush::plan::first_unreached_block;
use crate::data::inline::move_out;
use crate::data::truncate::{finish_change, prepare_extension, set_larger_size};
use crate::data::write::size_limit;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode};
use crate::inode::Inodes;
use crate::inode::blocks::{FREE_ROOM, drop_pages, free_range};
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::map::extents::volume::{allocate_blocks, convert_extent, install_extent, map_credits};
use crate::space::balloc::install::wait_for_freed_blocks;
use crate::store::Store;

/// Mode of [`crate::Volume::fallocate`], named as Linux's `FALLOC_FL_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FallocateMode {
    /// Allocate; the file grows to the end of the range.
    Allocate,
    /// Allocate, also behind the end; the size stays.
    KeepSize,
    /// Free; the range reads as zeros, the size stays.
    PunchHole,
    /// The range reads as zeros and is allocated; the file grows to the end of the range.
    ZeroRange,
    /// As `ZeroRange`, the size stays.
    ZeroRangeKeepSize,
}

/// The range in bytes, and its whole blocks.
struct Span {
    offset: u64,
    end: u64,
    /// First whole block, and one past the last; equal or crossed if there is none.
    whole: (u32, u32),
    /// First block touched, and one past the last.
    touched: (u32, u32),
}

impl crate::Volume {
    /// Allocates, punches or zeroes `len` bytes from `offset`.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for an empty range, [`FsError::TooBig`], [`FsError::NotSupported`] for
    /// files with block maps, [`FsError::NoSpace`] (a part may be done), [`FsError::IsDir`],
    /// [`FsError::Perm`], [`FsError::ReadOnly`], [`FsError::Latched`], I/O errors.
    pub fn fallocate(
        &self,
        inode: &InodeRef,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        let files: &Files = &self.0;
        files.before_change()?;
        check_regular(inode)?;
        if len == 0 {
            return Err(FsError::invalid("fallocate of an empty range"));
        }
        let _exclusive = inode.rwsem.write();
        {
            let st = inode.state.read();
            if st.raw.i_flags & (flags::IMMUTABLE | flags::VERITY) != 0
                || (st.raw.i_flags & flags::APPEND != 0 && mode != FallocateMode::KeepSize)
            {
                return Err(FsError::Perm);
            }
        }
        move_out(files, inode)?;
        let (has_extents, size) = {
            let st = inode.state.read();
            (st.raw.i_flags & flags::EXTENTS != 0, st.size)
        };
        let end = offset.checked_add(len).ok_or(FsError::TooBig)?;
        if end > size_limit(files, has_extents) {
            return Err(FsError::TooBig);
        }
        if !has_extents && mode != FallocateMode::PunchHole {
            return Err(FsError::NotSupported("unwritten blocks need extents".into()));
        }
        let span = block_span(files, offset, end)?;
        if !matches!(mode, FallocateMode::Allocate | FallocateMode::KeepSize) {
            write_unreached(files, inode)?;
        }
        match mode {
            FallocateMode::PunchHole => {
                place_edges(files, inode, (span.whole.0.into(), span.whole.1.into()))?;
                punch_hole(files, inode, &span)
            }
            FallocateMode::Allocate | FallocateMode::KeepSize => {
                let grow = mode == FallocateMode::Allocate && end > size;
                if files.geo.cluster_bits > 0 {
                    // Write-back that is under way may have a cluster for blocks of the same one.
                    write_delayed(files, inode)?;
                }
                allocate_range(files, inode, span.touched)?;
                if grow {
                    prepare_extension(files, inode, size)?;
                }
                let _room = files.reserve_room(1)?;
                change_size(files, inode, grow.then_some(end))
            }
            FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                let grow = mode == FallocateMode::ZeroRange && end > size;
                // Steps that may lack space, or wait for a sync point that frees some, come first:
                // a call that fails has zeroed nothing. They include delayed blocks, as in
                // `ext4_zero_range`.
                write_delayed(files, inode)?;
                allocate_range(files, inode, span.touched)?;
                if grow {
                    prepare_extension(files, inode, size)?;
                }
                zero_range(files, inode, &span, grow.then_some(end))
            }
        }
    }
}
fn block_span(store: &Store, offset: u64, end: u64) -> Result<Span> {
    let block_size = store.geo.block_size as u64;
    let block = |n: u64| u32::try_from(n).map_err(|_| FsError::TooBig);
    Ok(Span {
        offset,
        end,
        whole: (block(offset.div_ceil(block_size))?, block(end / block_size)?),
        touched: (block(offset / block_size)?, block(end.div_ceil(block_size))?),
    })
}

/// Writes delayed data back if the size on disk waits for it. Otherwise dropping such pages would
/// leave the size on disk too small, also after a later fsync (`ext4_punch_hole` writes the pages
/// first, too).
fn write_unreached(files: &Files, inode: &Inode) -> Result<()> {
    match first_unreached_block(files, inode) {
        u64::MAX => Ok(()),
        from => write_back(files, inode, from, u64::MAX, false).map(drop),
    }
}

/// Times, and the new size if the file grows.
fn change_size(inodes: &Inodes, inode: &Inode, size: Option<u64>) -> Result<()> {
    if let Some(size) = size {
        return set_larger_size(inodes, inode, size);
    }
    let mut h = inodes.start_under_io(1)?;
    finish_change(inodes, &mut h, inode)
}

/// Turns the holes of a block range into unwritten extents, one handle each.
fn allocate_range(inodes: &Inodes, inode: &Inode, (from, to): (u32, u32)) -> Result<()> {
    let mut at = from;
    let mut waited = false;
    while at < to {
        let (mapping, credits) = {
            let st = inode.state.read();
            let mapping = map_blocks(inodes, inode, &st, at, to - at)?;
            (mapping, map_credits(inodes, &st))
        };
        let hole = match mapping {
            Mapping::Mapped { len, .. } => {
                at += len;
                continue;
            }
            Mapping::Hole { len } => len,
        };
        let (delayed, len) = without_delayed(inode, at, hole);
        if delayed {
            at += len;
            continue;
        }
        match allocate_unwritten(inodes, inode, at, len, credits) {
            Ok(done) => {
                at += done;
                waited = false;
            }
            // Blocks may be waiting for the commit of what freed them.
            Err(FsError::NoSpace) if !waited && wait_for_freed_blocks(inodes)? => waited = true,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true if the first blocks of a hole hold delayed data, and the number of blocks of the
/// same state (at most one unwritten extent).
fn without_delayed(inode: &Inode, at: u32, hole: u32) -> (bool, u32) {
    let tree = inode.pages.lock();
    let most = hole.min(UNWRITTEN_MAX_LEN);
    if tree.delalloc() == 0 {
        return (false, most);
    }
    let delayed = tree.is_delalloc(at.into());
    let alike = |i: &u32| tree.is_delalloc(u64::from(at) + u64::from(*i)) == delayed;
    (delayed, (1..most).take_while(alike).count() as u32 + 1)
}

fn allocate_unwritten(
    inodes: &Inodes,
    inode: &Inode,
    at: u32,
    len: u32,
    credits: u32,
) -> Result<u32> {
    let source = inodes.balloc.unreserved();
    let mut h = inodes.start(credits)?;
    let mut st = inode.state.write();
    let (range, source) = allocate_blocks(inodes, inode, &st, (at, len), source, None)?;
    let installed = install_extent(inodes, &mut h, inode, &mut st, at, range, true);
    // After a failure too: an index block may have been added.
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
    match installed {
        Ok(()) => Ok(range.len),
        Err(error) => {
            inodes.balloc.cancel(range, source);
            Err(error)
        }
    }
}

/// Zeroes the parts of a range that do not fill a block.
fn zero_edges(inodes: &Inodes, inode: &Inode, span: &Span) -> Result<()> {
    let block_size = inodes.geo.block_size as u64;
    let first_end = (span.offset / block_size + 1).saturating_mul(block_size).min(span.end);
    if span.offset % block_size != 0 {
        zero_partial(inodes, inode, span.offset, first_end - span.offset)?;
    }
    let last = span.end - span.end % block_size;
    if span.end % block_size != 0 && last >= span.offset {
        zero_partial(inodes, inode, last, span.end - last)?;
    }
    Ok(())
}

fn punch_hole(inodes: &Inodes, inode: &Inode, span: &Span) -> Result<()> {
    let _room = inodes.reserve_room(FREE_ROOM)?;
    // The pages and the blocks under them go together.
    let (_change, _io) = inodes.pages.change_with(&inode.io);
    zero_edges(inodes, inode, span)?;
    let (from, to) = span.whole;
    if from < to {
        inodes.balloc.drop_window(inode.ino);
        {
            let mut st = inode.state.write();
            drop_pages(inodes, inode, &mut st, from.into(), to.into());
        }
        free_range(inodes, inode, from, to)?;
    }
    change_size(inodes, inode, None)
}

/// Zeroes a range that has its blocks, and makes the file as long as `size`: one change, so that no
/// sync point has half of it.
fn zero_range(inodes: &Inodes, inode: &Inode, span: &Span, size: Option<u64>) -> Result<()> {
    let _room = inodes.reserve_room(FREE_ROOM)?;
    let (_change, _io) = inodes.pages.change_with(&inode.io);
    zero_edges(inodes, inode, span)?;
    let (from, to) = span.whole;
    if from < to {
        unwrite(inodes, inode, from, to)?;
    }
    change_size(inodes, inode, size)
}

/// Makes written extents of a range unwritten, one a handle, and forgets its pages.
fn unwrite(inodes: &Inodes, inode: &Inode, from: u32, to: u32) -> Result<()> {
    {
        let mut st = inode.state.write();
        drop_pages(inodes, inode, &mut st, from.into(), to.into());
    }
    let mut at = from;
    while at < to {
        let credits = {
            let st = inode.state.read();
            match map_blocks(inodes, inode, &st, at, to - at)? {
                Mapping::Mapped { unwritten: false, .. } => map_credits(inodes, &st),
                other => {
                    at += other.len();
                    continue;
                }
            }
        };
        let mut h = inodes.start_under_io(credits)?;
        let mut st = inode.state.write();
        st.unwrote_tid = h.tid();
        let next = convert_extent(inodes, &mut h, inode, &mut st, (at, to), true);
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
        at = next?;
    }
    Ok(())
}
