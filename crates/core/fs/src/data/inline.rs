//! Files whose data is in the inode (`inline_data`): writes, sizes, and the way out.
//!
//! ```text
//!   no bytes, no blocks ── a write that fits ──> inline ── any other change ──> blocks
//!                                               │    ^
//!                                 writes, sizes └────┘ within the room
//!
//!   the way out: take a block (memory) -> write the data there -> one handle: flag and attribute
//!                                                                 go, the block is mapped
//! ```
//!
//! Promises
//! - A write to an inline file is durable with its inode.
//! - A power cut leaves the data in the inode or in the block, because the commit that carries the
//!   handle flushes the block first. Size, times and contents stay. Without room for the block
//!   nothing has changed.
//!
//! Linux: fs/ext4/inline.c; there the way out is two transactions.

use std::sync::atomic::Ordering;

use crate::data::Files;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::inline::{
    become_inline_again, become_mapped, inline_bytes, inline_room, is_inline, remove_inline,
    store_inline,
};
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::map::extents::volume::{allocate_blocks, install_extent, map_credits};
use crate::space::balloc::Range;
use crate::space::balloc::install::wait_for_freed_blocks;

/// True for a file without bytes and blocks: its next write may go into the inode. A file under an
/// atomic write is none, because that stages blocks.
fn may_become_inline(files: &Files, inode: &Inode, st: &InodeState) -> bool {
    let block_size = files.block_size();
    let cluster_sectors = files.geo.cluster_bytes() as u64 / 512;
    let of_attributes = if st.raw.i_file_acl == 0 { 0 } else { cluster_sectors };
    st.size == 0
        && st.reserved_blocks == 0
        && st.raw.sectors(block_size) == of_attributes
        && !inode.has_atomic.load(Ordering::Acquire)
}

/// Writes all of `data` if it goes into the inode. False: it goes to blocks, and what was in the
/// inode is there. The caller holds `rwsem`, and neither `io` nor a handle.
///
/// # Errors
/// As [`move_out`].
pub(crate) fn write_inline(files: &Files, inode: &Inode, offset: u64, data: &[u8]) -> Result<bool> {
    let (room, has_data) = {
        let st = inode.state.read();
        let has_data = is_inline(&st);
        if !has_data && !may_become_inline(files, inode, &st) {
            return Ok(false);
        }
        (inline_room(files, inode, &st)?, has_data)
    };
    let end = offset.saturating_add(data.len() as u64);
    if end > room as u64 {
        move_out(files, inode)?;
        return Ok(false);
    }
    let (from, to) = (offset as usize, end as usize);
    let mut h = files.start(1)?;
    let mut st = inode.state.write();
    let mut bytes = if has_data { bytes_to_size(files, inode, &st)? } else { Vec::new() };
    bytes.resize(bytes.len().max(to), 0);
    bytes[from..to].copy_from_slice(data);
    store_inline(files, &mut h, inode, &mut st, &bytes)?;
    st.size = st.size.max(end);
    st.raw.i_size = st.size;
    write_inode(files, &mut h, inode, &mut st, Dirty::Data)?;
    Ok(true)
}

/// The inline bytes up to the size.
fn bytes_to_size(files: &Files, inode: &Inode, st: &InodeState) -> Result<Vec<u8>> {
    let mut bytes = inline_bytes(files, inode, st)?;
    bytes.truncate(usize::try_from(st.size).unwrap_or(usize::MAX));
    Ok(bytes)
}

/// Moves the data of an inline file to a block. Does nothing for others. The caller holds `rwsem`,
/// and neither `io` nor a handle.
///
/// # Errors
/// [`FsError::NoSpace`], corruption, I/O.
pub(crate) fn move_out(files: &Files, inode: &Inode) -> Result<()> {
    if !is_inline(&inode.state.read()) {
        return Ok(());
    }
    match move_out_once(files, inode) {
        Err(FsError::NoSpace) if wait_for_freed_blocks(files)? => move_out_once(files, inode),
        other => other,
    }
}

fn move_out_once(files: &Files, inode: &Inode) -> Result<()> {
    let credits = 1 + map_credits(files, &inode.state.read());
    let _room = files.reserve_room(credits)?;
    let _io = inode.io.lock();
    let mut h = files.start_under_io(credits)?;
    let mut st = inode.state.write();
    let data = bytes_to_size(files, inode, &st)?;
    let before = become_mapped(files, &mut st);
    let range = match write_block(files, inode, &st, data) {
        Ok(range) => range,
        Err(err) => {
            become_inline_again(&mut st, before);
            return Err(err);
        }
    };
    h.require_flush();
    let installed = match range {
        Some(range) => install_extent(files, &mut h, inode, &mut st, 0, range, false),
        None => Ok(()),
    };
    let moved = installed
        .and_then(|()| remove_inline(files, &mut h, inode, &st))
        .and_then(|()| write_inode(files, &mut h, inode, &mut st, Dirty::Data));
    moved.map_err(|err| files.give_up(err, "moving data out of an inode failed half way"))
}

/// Takes a block, and writes the data and zeros to it; none for no data.
fn write_block(
    files: &Files,
    inode: &Inode,
    st: &InodeState,
    mut data: Vec<u8>,
) -> Result<Option<Range>> {
    if data.is_empty() {
        return Ok(None);
    }
    data.resize(files.block_size(), 0);
    let source = files.balloc.unreserved();
    let (range, source) = allocate_blocks(files, inode, st, (0, 1), source, None)?;
    match files.dev.write(files.block_offset(range.start), &data, inode.origin(true)) {
        Ok(()) => Ok(Some(range)),
        Err(err) => {
            files.balloc.cancel(range, source);
            Err(files.fail(FsError::Io(err)))
        }
    }
}

/// Sets the size of an inline file. False: it is none, or its data left the inode because that has
/// no room for the size. The caller holds `rwsem`, and neither `io` nor a handle.
///
/// # Errors
/// As [`move_out`].
pub(crate) fn truncate_inline(files: &Files, inode: &Inode, size: u64) -> Result<bool> {
    let room = {
        let st = inode.state.read();
        if !is_inline(&st) {
            return Ok(false);
        }
        match inline_room(files, inode, &st)? as u64 {
            room if size <= st.size.max(room) => Some(room),
            _ => None,
        }
    };
    let Some(room) = room else {
        move_out(files, inode)?;
        return Ok(false);
    };
    let mut h = files.start(1)?;
    let mut st = inode.state.write();
    let mut bytes = bytes_to_size(files, inode, &st)?;
    bytes.resize(size.min(room) as usize, 0);
    store_inline(files, &mut h, inode, &mut st, &bytes)?;
    (st.size, st.raw.i_size) = (size, size);
    let now = change_time(files, inode, &mut st);
    st.set_times(inode, now, now);
    write_inode(files, &mut h, inode, &mut st, Dirty::Data)?;
    Ok(true)
}
