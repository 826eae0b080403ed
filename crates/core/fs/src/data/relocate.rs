//! Moves files into the blocks that the allocator keeps for what is updated often, on demand
//! (hot-zones paper, section 2: hot files lie in the zones; these are files that got their blocks
//! before they were known to be hot, or before the volume had zones).
//!
//! ```text
//!   for each piece of an extent that lies outside:
//!     take blocks in the zone (memory) -> write the contents there -> one handle: old blocks out
//!                                                                     of the tree, new ones in
//! ```
//!
//! Promises
//! - At every instant the file has its contents: a power cut leaves each piece where it was or
//!   where it went, because the commit that carries the switch flushes the copy first.
//! - Only the allocator sees a change: contents, size, times and `i_blocks` stay.
//! - When the zone is full the rest stays where it is; that is no error.
//!
//! Reached by [`crate::Volume::relocate`] and, on a mount, by setting the attribute
//! `user.syncline.relocate`, which is not stored. Tested in `tests/it/hot_zones.rs`, with power
//! cuts.

use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::flush::file::write_back;
use crate::data::inline::move_out;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, Lifetime};
use crate::inode::Inodes;
use crate::inode::blocks::FREE_ROOM;
use crate::inode::table::write_inode;
use crate::map::extents::Mapping;
use crate::map::extents::search::map_blocks;
use crate::map::extents::volume::{
    allocate_blocks, install_extent, map_credits, unmap_blocks, unmap_credits,
};
use crate::space::balloc::Range;

/// The attribute that asks for it.
pub(crate) const ATTRIBUTE: &[u8] = b"user.syncline.relocate";

/// Blocks that are copied and switched at once.
const PIECE_BLOCKS: u32 = 256;

/// Result for a piece.
enum Piece {
    Moved(Range),
    /// A hole, or in a zone already.
    Stays(u32),
    /// There is no room in a zone.
    Full,
}

pub(crate) fn relocate_file(files: &Files, inode: &Inode) -> Result<u64> {
    if !files.may_move_data() {
        let text = "moving files of a volume with bigalloc; copy the file instead";
        return Err(FsError::NotSupported(text.into()));
    }
    let _rwsem = inode.rwsem.write();
    move_out(files, inode)?;
    let (has_extents, size) = {
        let st = inode.state.read();
        (st.raw.is_file() && st.raw.has_flag(flags::EXTENTS), st.size)
    };
    if !has_extents {
        let text = "moving what is no file with extents; name a regular file";
        return Err(FsError::NotSupported(text.into()));
    }
    if !inode.life().is_hot() {
        inode.set_life(Lifetime::Updated);
    }
    files.balloc.drop_window(inode.ino);
    write_back(files, inode, 0, u64::MAX, true)?;
    let end = size.div_ceil(files.block_size() as u64).min(u32::MAX.into()) as u32;
    let (mut at, mut moved, mut goal) = (0, 0, None);
    while at < end {
        let _room = files.reserve_room(FREE_ROOM)?;
        let _io = inode.io.lock();
        match relocate_piece(files, inode, (at, (end - at).min(PIECE_BLOCKS)), goal)? {
            Piece::Moved(range) => {
                at += range.len;
                moved += u64::from(range.len);
                goal = Some(range.start + u64::from(range.len));
            }
            Piece::Stays(blocks) => at += blocks.max(1),
            Piece::Full => break,
        }
    }
    files.balloc.drop_window(inode.ino);
    Ok(moved)
}

/// One piece of `want` blocks at most, to `goal` if it can be; the caller holds `rwsem` and
/// `io`, and no delayed block is left.
fn relocate_piece(
    inodes: &Inodes,
    inode: &Inode,
    (at, want): (u32, u32),
    goal: Option<u64>,
) -> Result<Piece> {
    let mapping = map_blocks(inodes, inode, &inode.state.read(), at, want)?;
    let Mapping::Mapped { pblk, len, unwritten } = mapping else {
        let Mapping::Hole { len } = mapping else { return Ok(Piece::Stays(1)) };
        return Ok(Piece::Stays(len));
    };
    if inodes.balloc.life_at(pblk).is_hot() {
        return Ok(Piece::Stays(len));
    }
    let source = inodes.balloc.unreserved();
    let taken = allocate_blocks(inodes, inode, &inode.state.read(), (at, len), source, goal);
    let (range, source) = match taken {
        Err(FsError::NoSpace) => return Ok(Piece::Full),
        other => other?,
    };
    let old = Range { start: pblk, len: range.len };
    if !inodes.balloc.life_at(range.start).is_hot() {
        inodes.balloc.cancel(range, source);
        return Ok(Piece::Full);
    }
    let copied = if unwritten { Ok(()) } else { copy_blocks(inodes, inode, at, (old, range)) };
    let started = copied.and_then(|()| {
        let st = inode.state.read();
        inodes.start_under_io(1 + 2 * unmap_credits(inodes, &st) + map_credits(inodes, &st))
    });
    let mut h = match started {
        Ok(h) => h,
        Err(err) => {
            inodes.balloc.cancel(range, source);
            return Err(err);
        }
    };
    h.require_flush();
    let mut st = inode.state.write();
    let credits = 2 * unmap_credits(inodes, &st);
    let switched = unmap_blocks(inodes, &mut h, inode, &mut st, (at, at + range.len), credits)
        .and_then(|left| match left == at {
            true => install_extent(inodes, &mut h, inode, &mut st, at, range, unwritten),
            false => Err(inodes.corrupt(Some(inode.ino), Some(pblk), None, "an extent has moved")),
        })
        .and_then(|()| write_inode(inodes, &mut h, inode, &mut st, Dirty::Data));
    // Half a switch must not commit: the old blocks are out of the tree.
    switched.map_err(|err| inodes.give_up(err, "moving a file failed half way"))?;
    inode.pages.lock().forget_bases(at.into()..(at + range.len).into());
    Ok(Piece::Moved(range))
}

/// Writes the contents of a run to other blocks; cached pages may be newer than the device.
fn copy_blocks(inodes: &Inodes, inode: &Inode, at: u32, (from, to): (Range, Range)) -> Result<()> {
    let block_size = inodes.block_size();
    let origin = inode.origin(true);
    let mut bytes = vec![0; from.len as usize * block_size];
    inodes.dev.read(inodes.block_offset(from.start), &mut bytes, origin)?;
    let size = inode.state.read().size;
    {
        let tree = inode.pages.lock();
        for (lblk, block) in (u64::from(at)..).zip(bytes.chunks_exact_mut(block_size)) {
            if let Some(page) = tree.read(&inodes.pages, lblk) {
                block.copy_from_slice(&page);
            }
            let used = size.saturating_sub(lblk * block_size as u64).min(block_size as u64);
            block[used as usize..].fill(0);
        }
    }
    let written = inodes.dev.write(inodes.block_offset(to.start), &bytes, origin);
    written.map_err(|err| inodes.fail(FsError::Io(err)))
}
