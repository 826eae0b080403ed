//! A new value of an attribute in an inode of its own (`ea_inode`).
//!
//! ```text
//!   blocks taken in memory ──> the caller's handle: inode (1 user), its blocks journaled
//! ```
//!
//! Promises: a value that cannot be finished is an orphan, and blocks that it did not get are given
//! back. Linux: `ext4_xattr_inode_lookup_create`. Tested in `tests/it/ea_inode.rs`.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::checksum::crc32c;
use syncline_ondisk::ea_inode::{Outside, ValueInode};
use syncline_ondisk::inode::{S_IFREG, flags};

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState, Lifetime};
use crate::inode::Inodes;
use crate::inode::create::new_inode;
use crate::inode::table::write_inode;
use crate::inode::xattr::users::{Value, give_up};
use crate::map::blockmap::map_run;
use crate::map::extents::volume::install_extent;
use crate::space::Space;
use crate::space::balloc::{Range, Request, Wish};
use crate::space::ialloc::NewInode;

/// Credits of a new value beside its blocks: inode, bitmap and descriptor, and what makes it an
/// orphan if it cannot be finished.
const VALUE_CREDITS: u32 = 6;
/// Credits of one run of blocks: bitmap and descriptor, and nodes of a tree of two levels with
/// theirs.
const RUN_CREDITS: u32 = 2 + 8;
/// Runs more than there are ranges, where a map without extents divides them: values have less
/// than two tables.
const MAP_RUNS: u32 = 2;

/// Blocks that were taken, in memory, for one value.
pub(crate) struct Taken<'a> {
    space: &'a Space,
    ranges: Vec<Range>,
}

impl<'a> Taken<'a> {
    /// Takes blocks for a value of `len` bytes near `inode`.
    ///
    /// # Errors
    /// [`FsError::NoSpace`]; I/O.
    pub(crate) fn new(space: &'a Space, inode: &Inode, len: usize) -> Result<Self> {
        let mut taken = Taken { space, ranges: Vec::new() };
        let mut left = u32::try_from(len.div_ceil(space.block_size())).unwrap_or(u32::MAX);
        let (inode_group, _) = space.geo.inode_group(inode.ino).ok_or(FsError::Stale)?;
        let (life, source) = (Lifetime::Long, space.balloc.unreserved());
        let wish = Wish { inode_group, regular: false, life, lblk: 0, near: None };
        let mut goal = space.balloc.goal(&wish);
        while left > 0 {
            let request = Request { owner: 0, goal, want: left, source, file_blocks: 0, life };
            let range = space.balloc.allocate(&*space.store, &request)?;
            // What is behind it in its last cluster stays unmapped.
            let range = Range { len: range.len.min(left), ..range };
            taken.ranges.push(range);
            goal = range.start + u64::from(range.len);
            left -= range.len;
        }
        Ok(taken)
    }

    /// Credits of [`make_value`].
    pub(crate) fn credits(&self) -> u32 {
        let blocks: u32 = self.ranges.iter().map(|range| range.len).sum();
        VALUE_CREDITS + blocks + RUN_CREDITS * (self.ranges.len() as u32 + MAP_RUNS)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for range in &self.ranges {
            self.space.balloc.cancel(*range, self.space.balloc.unreserved());
        }
    }
}

/// Makes an inode that holds `value`, with one user, for attribute `name` of `file`. After an error
/// that is not fatal nothing is left but an orphan.
///
/// # Errors
/// [`FsError::NoSpace`]; whatever joining the transaction gives.
pub(crate) fn make_value(
    inodes: &Arc<Inodes>,
    h: &mut Handle,
    file: &Inode,
    (name, value): (&[u8], &[u8]),
    mut taken: Taken<'_>,
    values: &mut Vec<Value>,
) -> Result<Outside> {
    let (uid, gid) = {
        let st = file.state.read();
        (st.raw.i_uid, st.raw.i_gid)
    };
    let new = NewInode { mode: S_IFREG | 0o600, uid, gid, life: Lifetime::Long };
    let inode = new_inode(inodes, h, file, &new)?;
    let hash = crc32c(inodes.csum_seed, value);
    values.push(Value::new(inode.clone(), hash));
    let mut st = inode.state.write();
    st.raw.i_flags = flags::EA_INODE | st.raw.i_flags & flags::EXTENTS;
    ValueInode::put(&mut st.raw, hash, 1);
    let filled = fill(inodes, h, &inode, &mut st, (value, &mut taken));
    st.size = value.len() as u64;
    st.raw.i_size = st.size;
    match filled {
        Ok(()) => write_inode(inodes, h, &inode, &mut st, Dirty::Data)?,
        Err(err) => {
            give_up(inodes, h, &inode, &mut st)?;
            return Err(err);
        }
    }
    Ok(Outside::new(inode.ino, value.len() as u32, name, hash))
}

/// Installs the blocks and writes the value into them, in the handle's transaction.
fn fill(
    inodes: &Inodes,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
    (value, taken): (&[u8], &mut Taken<'_>),
) -> Result<()> {
    let block_size = inodes.block_size();
    let (mut parts, mut lblk) = (value.chunks(block_size), 0);
    let has_extents = st.raw.has_flag(flags::EXTENTS);
    while let Some(first) = taken.ranges.first_mut() {
        // Pointers of one run share a table.
        let most = if has_extents { first.len } else { map_run(inodes, lblk)? };
        let range = Range { start: first.start, len: first.len.min(most) };
        install_extent(inodes, h, inode, st, lblk, range, false)?;
        (first.start, first.len) = (first.start + u64::from(range.len), first.len - range.len);
        if first.len == 0 {
            taken.ranges.remove(0);
        }
        for (block, part) in (range.start..range.start + u64::from(range.len)).zip(&mut parts) {
            h.create(block, |bytes| bytes[..part.len()].copy_from_slice(part))?;
        }
        lblk += range.len;
    }
    Ok(())
}
