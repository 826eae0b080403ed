//! Moves the data of a file out of its inode (`inline_data`), before it changes.
//!
//! ```text
//!   take a block (memory) -> write the data there -> one handle: flag and attribute go, the block
//!                                                    is mapped
//! ```
//!
//! Promises: a power cut leaves the data in the inode or in the block, because the commit that
//! carries the handle flushes the block first. Size, times and contents stay. Without room for the
//! block nothing has changed.

use crate::data::Files;
use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::inline::{
    become_inline_again, become_mapped, inline_bytes, is_inline, remove_inline, store_inline,
};
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::map::extents::volume::{allocate_blocks, install_extent, map_credits};
use crate::space::balloc::Range;
use crate::space::balloc::install::wait_for_freed_blocks;

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
    let mut data = inline_bytes(files, inode, &st)?;
    data.truncate(usize::try_from(st.size).unwrap_or(usize::MAX));
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
    let range = allocate_blocks(files, inode, st, (0, 1), source, None)?;
    match files.dev.write(files.block_offset(range.start), &data, inode.origin(true)) {
        Ok(()) => Ok(Some(range)),
        Err(err) => {
            files.balloc.cancel(range, source);
            Err(files.fail(FsError::Io(err)))
        }
    }
}

/// Makes an inline file smaller. The caller holds `rwsem`.
pub(crate) fn shrink_inline(files: &Files, inode: &Inode, size: u64) -> Result<()> {
    let mut h = files.start(1)?;
    let mut st = inode.state.write();
    let mut data = inline_bytes(files, inode, &st)?;
    let kept = usize::try_from(size).unwrap_or(usize::MAX).min(data.len());
    data[kept..].fill(0);
    store_inline(files, &mut h, inode, &mut st, &data)?;
    (st.size, st.raw.i_size) = (size, size);
    let now = change_time(files, inode, &mut st);
    st.set_times(inode, now, now);
    write_inode(files, &mut h, inode, &mut st, Dirty::Data)
}
