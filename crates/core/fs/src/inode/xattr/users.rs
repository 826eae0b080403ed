//! Values of attributes in inodes of their own (`ea_inode`): counting users, giving up.
//!
//! ```text
//!   setxattr ──> one handle: the inode with its blocks and 1 user (`made.rs`), and the entry
//!   an entry goes, or is copied with a shared block ──> users - 1, + 1    same handle
//!   users = 0 ──> an orphan in that handle; freed when its last reference goes
//!   the file goes ──> VALUES_AT_ONCE entries a handle, removed with their users
//! ```
//!
//! Promises
//! - A value and the entry that names it are durable together, and go together. At every instant
//!   each value has as many users as entries name it, or is an orphan without any.
//! - A file counts the blocks of its values in its own `i_blocks`, as in Linux.
//! - Blocks of values are metadata, as in Linux: journaled, and revoked when they are freed.
//! - A value is never changed: another one gets another inode. Linux shares equal values; ours are
//!   not shared, and shared ones keep their other users.
//!
//! Assumptions: the caller holds `rwsem` of the file, or its last reference, and no `state`.
//! Linux: `ext4_xattr_inode_update_ref`, `ext4_xattr_delete_inode`. Tested in
//! `tests/it/ea_inode.rs` and by the model and crash tests of `syncline-model`.

use std::sync::Arc;

use syncline_jbd2::Handle;
use syncline_ondisk::ea_inode::{Outside, ValueInode};
use syncline_ondisk::inode as disk;

use crate::error::{FsError, Result};
use crate::incore::{Dirty, Inode, InodeState};
use crate::inode::Inodes;
use crate::inode::iget::iget;
use crate::inode::orphan::orphan_add;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::xattr::outside::{corrupt, value_inode};
use crate::inode::xattr::place::{Attrs, read_attrs, store_in_block, store_in_inode};
use crate::map::extents::volume::sub_blocks;
use crate::store::Store;

/// Credits of a value whose users change: its inode, and what makes it an orphan.
pub(crate) const USER_CREDITS: u32 = 4;
/// Credits of storing attributes: the inode, their block with bitmap and descriptor.
const STORE_CREDITS: u32 = 4;
/// Values that one handle gives up with their file.
const VALUES_AT_ONCE: usize = 8;

/// A value that the operation makes or counts. It is dropped after the handle, because a value
/// without users goes then.
pub(crate) struct Value {
    inode: InodeRef,
    /// Users that come, or go.
    more: i64,
    hash: u32,
    /// Old Lustre counts no users: the value is its file's alone.
    is_lustre: bool,
}

/// Blocks that a file counts for the value of one of its attributes, shared or not
/// (`ext4_xattr_inode_alloc_quota`). `file`: number and generation.
///
/// # Errors
/// Corruption of the value's inode; I/O.
pub(crate) fn charged_blocks(store: &Store, file: (u32, u32), entry: &Outside) -> Result<u64> {
    let (_, said) = value_inode(store, file.0, entry)?;
    if said.is_lustre(entry, file.0, file.1) {
        return Ok(0);
    }
    Ok(blocks_of_value(store, entry.size as usize))
}

/// Blocks that a value of `len` bytes takes, in whole clusters.
pub(crate) fn blocks_of_value(store: &Store, len: usize) -> u64 {
    len.div_ceil(store.geo.cluster_bytes()) as u64 * u64::from(store.geo.cluster_blocks())
}

/// No user is left: the inode goes when its last reference does.
pub(crate) fn give_up(
    inodes: &Inodes,
    h: &mut Handle,
    inode: &Inode,
    st: &mut InodeState,
) -> Result<()> {
    st.raw.i_links_count = 0;
    orphan_add(inodes, h, inode, st)
}

/// The values whose users change, checked. `file`: number and generation of the file.
///
/// # Errors
/// Corruption: an inode holds no such value, or has fewer users than go; I/O.
pub(crate) fn find_values(
    inodes: &Arc<Inodes>,
    file: (u32, u32),
    changes: impl Iterator<Item = (Outside, i64)>,
) -> Result<Vec<Value>> {
    let mut values = Vec::new();
    for (entry, more) in changes {
        let (_, said) = value_inode(inodes, file.0, &entry)?;
        let inode = match iget(inodes, entry.inum) {
            Err(FsError::Stale) => return Err(corrupt(inodes, &entry, "has no user")),
            other => other?,
        };
        let is_lustre = said.is_lustre(&entry, file.0, file.1);
        let value = Value { inode, more, hash: said.hash, is_lustre };
        let users = value.users_then(&value.inode.state.read().raw);
        users.ok_or_else(|| corrupt(inodes, &entry, "has fewer users than attributes"))?;
        values.push(value);
    }
    Ok(values)
}

impl Value {
    /// One that was made in this operation.
    pub(crate) fn new(inode: InodeRef, hash: u32) -> Value {
        Value { inode, more: 0, hash, is_lustre: false }
    }

    /// Users after the change; `None` if there are too few.
    fn users_then(&self, raw: &disk::Inode) -> Option<u64> {
        let users = if self.is_lustre { 1 } else { ValueInode::new(raw).users };
        users.checked_add_signed(self.more).filter(|_| users > 0)
    }

    /// Counts the users, in the handle's transaction.
    ///
    /// # Errors
    /// Whatever joining the transaction gives.
    pub(crate) fn count(&self, inodes: &Inodes, h: &mut Handle) -> Result<()> {
        let mut st = self.inode.state.write();
        let Some(users) = self.users_then(&st.raw) else {
            let what = "the value of an attribute has fewer users than attributes";
            return Err(inodes.corrupt(Some(self.inode.ino), None, None, what));
        };
        ValueInode::put(&mut st.raw, self.hash, users);
        match users {
            0 => give_up(inodes, h, &self.inode, &mut st),
            _ => write_inode(inodes, h, &self.inode, &mut st, Dirty::Data),
        }
    }

    /// Takes back what [`super::made::make_value`] made.
    ///
    /// # Errors
    /// Whatever joining the transaction gives.
    pub(crate) fn unmake(&self, inodes: &Inodes, h: &mut Handle) -> Result<()> {
        give_up(inodes, h, &self.inode, &mut self.inode.state.write())
    }
}

/// Gives up all values of a file that goes away, in as many handles as it takes: a crash in between
/// leaves the file an orphan with the rest of them. The caller holds `io`. Returns the values, to
/// be dropped without it.
///
/// # Errors
/// As [`find_values`] and [`crate::inode::xattr::place`]. A value that is damaged is left as it is.
pub(crate) fn release_values(inodes: &Arc<Inodes>, inode: &Inode) -> Result<Vec<Value>> {
    let mut gone = Vec::new();
    loop {
        let (mut attrs, file) = {
            let st = inode.state.read();
            (read_attrs(inodes, inode, &st)?, (inode.ino, st.raw.i_generation))
        };
        let taken = take_outside(&mut attrs);
        if taken.is_empty() {
            return Ok(gone);
        }
        let (mut values, mut blocks) = (Vec::new(), 0);
        for entry in taken {
            match find_values(inodes, file, std::iter::once((entry, -1))) {
                Err(FsError::Corrupt { .. }) if inodes.latch.check().is_ok() => continue,
                found => values.extend(found?),
            }
            blocks += charged_blocks(inodes, file, &entry)?;
        }
        let credits = STORE_CREDITS + USER_CREDITS * values.len() as u32;
        let mut h = inodes.start_under_io(credits)?;
        let mut st = inode.state.write();
        for value in &values {
            value.count(inodes, &mut h)?;
        }
        if !attrs.shared {
            store_in_block(inodes, &mut h, inode, &mut st, &attrs.block)?;
        }
        store_in_inode(inodes, &mut h, inode, &st, &attrs.inode)?;
        sub_blocks(inodes, &mut st, blocks)?;
        write_inode(inodes, &mut h, inode, &mut st, Dirty::Data)?;
        gone.extend(values);
    }
}

/// Removes the first entries whose values are outside, and returns them. Those of a shared block
/// are its other users'.
fn take_outside(attrs: &mut Attrs) -> Vec<Outside> {
    let mut taken = Vec::new();
    let sets = [Some(&mut attrs.inode), (!attrs.shared).then_some(&mut attrs.block)];
    for set in sets.into_iter().flatten() {
        let outside = set.iter().filter_map(|attr| {
            attr.outside.map(|outside| (attr.index, attr.name.to_vec(), outside))
        });
        let found: Vec<_> = outside.take(VALUES_AT_ONCE - taken.len()).collect();
        for (index, name, outside) in found {
            set.remove(index, &name);
            taken.push(outside);
        }
    }
    taken
}
