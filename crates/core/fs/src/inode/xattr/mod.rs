//! Extended attributes.
//!
//! ```text
//!   setxattr ── acl: system call form <-> disk form
//!      |
//!   in the inode, if it fits there          (xattr_range, no extra I/O)
//!      | else
//!   in the xattr block of the inode         (journaled; copied first if other inodes share it)
//!      | else, with ea_inode
//!   in an inode of its own                  (journaled; users counted)
//! ```
//!
//! Promises
//! - An attribute is in one place. One call is one handle.
//! - `user.`, `trusted.`, `security.` and the two POSIX ACLs; anything else is
//!   [`FsError::NotSupported`], as in Linux. `user.` only on files and directories.
//! - ACLs are stored as Linux stores them; an access ACL also sets the permission bits, and one
//!   that says no more than those is not stored.
//! - Space is the inode's area and one block: more is [`FsError::NoSpace`], but for values that go
//!   to inodes of their own (`ea_inode`: `outside.rs`, `made.rs`, `users.rs`).
//!
//! Not here: permission to read or write an attribute, and inheritance of a default ACL (a creator
//! passes the mode and sets the ACLs). `i_extra_isize` is left as it is. Tested in
//! `tests/it/namespace_xattr.rs` and `tests/it/ea_inode.rs`.

pub(crate) mod acl;
pub(crate) mod made;
pub(crate) mod outside;
pub(crate) mod place;
pub(crate) mod users;

use acl::Acl;
use place::Attrs;
use syncline_ondisk::ea_inode::Outside;
use syncline_ondisk::inode::{S_IFDIR, S_IFMT, S_IFREG, flags};
use syncline_ondisk::run_time::Needed;
use syncline_ondisk::xattr::{self as disk, Entries, Place, Xattr, XattrSet};

use crate::error::{FsError, Result};
use crate::incore::{Dirty, InodeState};
use crate::inode::Inodes;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::inode::xattr::made::{Taken, make_value};
use crate::inode::xattr::outside::read_value;
use crate::inode::xattr::place::{
    read_attrs, store_in_block, store_in_inode, xattr_area, xattr_block,
};
use crate::inode::xattr::users::{
    USER_CREDITS, Value, blocks_of_value, charged_blocks, find_values,
};
use crate::map::extents::volume::{add_blocks, sub_blocks};
use crate::space::retry::retry_when_full;
use crate::store::Store;
use crate::store::superblock::need_feature;

/// Longest full name in bytes (XATTR_NAME_MAX).
const NAME_BYTES_MAX: usize = 255;

/// A longer value than a block without so many bytes is not tried in the block
/// (`EXT4_XATTR_MIN_LARGE_EA_SIZE`).
const LARGE_BELOW: usize = 56;

/// Blocks that one change may touch: the inode table, the old block, a new one, bitmap and
/// descriptor for each of the two, and the superblock for the first change of all.
const CREDITS: u32 = 8;

pub(crate) const INDEX_USER: u8 = 1;
const INDEX_ACL_ACCESS: u8 = 2;
pub(crate) const INDEX_ACL_DEFAULT: u8 = 3;
const INDEX_TRUSTED: u8 = 4;
const INDEX_SECURITY: u8 = 6;

/// Condition on setting an attribute (XATTR_CREATE, XATTR_REPLACE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrFlags {
    /// Either.
    #[default]
    Any,
    /// Fail with [`FsError::Exists`] if it does.
    Create,
    /// Fail with [`FsError::NoData`] if it does not.
    Replace,
    /// Both, so that it fails anyway: Linux lets the answer tell whether there is one.
    CreateReplace,
}

pub(crate) fn split(name: &[u8]) -> Result<(u8, &[u8])> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    match disk::split_name(name) {
        Some((index, rest)) if is_visible(index) => Ok((index, rest)),
        None if matches!(name, b"user." | b"trusted." | b"security.") => {
            Err(FsError::invalid("an attribute has a name behind its prefix"))
        }
        _ => Err(FsError::NotSupported("attributes of this namespace".into())),
    }
}

fn is_visible(index: u8) -> bool {
    matches!(
        index,
        INDEX_USER | INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT | INDEX_TRUSTED | INDEX_SECURITY
    )
}

pub(crate) fn is_acl(index: u8) -> bool {
    matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT)
}

fn has_user_attrs(st: &InodeState) -> bool {
    matches!(st.raw.i_mode & S_IFMT, S_IFREG | S_IFDIR)
}

impl crate::Volume {
    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if there is none, [`FsError::NotSupported`] for another namespace,
    /// [`FsError::Range`] for a name that is too long.
    pub fn getxattr(&self, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
        getxattr(&self.0, inode, name)
    }

    /// Returns the full names of all attributes, in the order in which they are stored.
    ///
    /// # Errors
    /// The error of a read.
    pub fn listxattr(&self, inode: &InodeRef) -> Result<Vec<Vec<u8>>> {
        let st = inode.state.read();
        let mut names = Vec::new();
        each_attr(&self.0, inode, &st, &mut |attr| {
            names.extend(is_visible(attr.index).then(|| attr.full_name()).flatten());
            Ok(true)
        })?;
        Ok(names)
    }
}

/// Returns the value of an attribute, in the form of the system call.
pub(crate) fn getxattr(store: &Store, inode: &InodeRef, name: &[u8]) -> Result<Vec<u8>> {
    let (index, rest) = split(name)?;
    let st = inode.state.read();
    if index == INDEX_USER && !has_user_attrs(&st) {
        return Err(FsError::NoData);
    }
    let value = stored_xattr(store, inode, &st, index, rest)?.ok_or(FsError::NoData)?;
    if !is_acl(index) {
        return Ok(value);
    }
    let acl = Acl::from_disk(&value)
        .map_err(|err| store.found_corrupt(FsError::from(err.in_inode(inode.ino))))?;
    Ok(acl.to_xattr())
}

/// Calls `each` for the attributes in the inode and then in its block, until it returns false.
fn each_attr(
    store: &Store,
    inode: &InodeRef,
    st: &InodeState,
    each: &mut dyn FnMut(Xattr<'_>) -> Result<bool>,
) -> Result<()> {
    let place = |err: syncline_ondisk::OndiskError| {
        store.found_corrupt(FsError::from(err.in_inode(inode.ino)))
    };
    if let Some((block, range)) = xattr_area(store, inode, st)? {
        let bytes = store.buffers.read(block)?;
        let area = bytes.get(range).unwrap_or(&[]);
        for attr in Entries::new(area, Place::Inode).map_err(place)? {
            if !each(attr.map_err(place)?)? {
                return Ok(());
            }
        }
    }
    let Some(bytes) = xattr_block(store, inode, st)? else { return Ok(()) };
    for attr in Entries::new(&bytes, Place::Block).map_err(place)? {
        if !each(attr.map_err(place)?)? {
            return Ok(());
        }
    }
    Ok(())
}

fn stored_xattr(
    store: &Store,
    inode: &InodeRef,
    st: &InodeState,
    index: u8,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    each_attr(store, inode, st, &mut |attr| {
        if attr.index != index || attr.name != name {
            return Ok(true);
        }
        let file = (inode.ino, st.raw.i_generation);
        found = Some(match &attr.outside {
            None => attr.value.to_vec(),
            Some(outside) => read_value(store, file, name, outside)?,
        });
        Ok(false)
    })?;
    Ok(found)
}

/// Sets (`Some`) or removes an attribute; `mode` are permission bits that change with it.
pub(crate) fn change_xattr(
    inodes: &Inodes,
    inode: &InodeRef,
    (index, name): (u8, &[u8]),
    value: Option<&[u8]>,
    flags: XattrFlags,
    mode: Option<u16>,
) -> Result<()> {
    inodes.before_change()?;
    retry_when_full(inodes, || change_xattr_once(inodes, inode, (index, name), value, flags, mode))
}

fn change_xattr_once(
    inodes: &Inodes,
    inode: &InodeRef,
    (index, name): (u8, &[u8]),
    value: Option<&[u8]>,
    flags: XattrFlags,
    mode: Option<u16>,
) -> Result<()> {
    // Dropped last: those without users go, which takes handles of their own.
    let mut values: Vec<Value>;
    let _rwsem = inode.rwsem.write();
    let (before, file) = {
        let st = inode.state.read();
        let fixed = st.raw.i_flags & (flags::IMMUTABLE | flags::APPEND) != 0;
        if fixed || index == INDEX_USER && !has_user_attrs(&st) {
            return Err(FsError::Perm);
        }
        (read_attrs(inodes, inode, &st)?, (inode.ino, st.raw.i_generation))
    };
    let old = before.inode.get(index, name).or(before.block.get(index, name));
    let exists = old.is_some();
    let old_outside = old.and_then(|old| old.outside);
    match flags {
        XattrFlags::Create | XattrFlags::CreateReplace if exists => {
            return Err(FsError::Exists);
        }
        XattrFlags::Replace | XattrFlags::CreateReplace if !exists => {
            return Err(FsError::NoData);
        }
        _ => {}
    }
    if !exists && value.is_none() && mode.is_none() {
        return Ok(());
    }
    let (mut after, goes_outside) = changed(inodes, &before, (index, name), value)?;
    // The value that it has: nothing happens, as in `ext4_xattr_set_handle`.
    if after.inode == before.inode && after.block == before.block && mode.is_none() {
        return Ok(());
    }
    let new_value = value.filter(|_| goes_outside);
    values = find_values(inode.inodes(), file, changed_users(&before, &after).into_iter())?;
    let freed = old_outside.map(|old| charged_blocks(inodes, file, &old)).transpose()?;
    let taken = new_value.map(|value| Taken::new(inodes, inode, value.len())).transpose()?;
    let more = taken.as_ref().map_or(0, Taken::credits) + values.len() as u32 * USER_CREDITS;
    if more > 0 && CREDITS + more > inodes.journal()?.max_credits() / 2 {
        return Err(FsError::NoSpace);
    }
    let mut h = inodes.start(CREDITS + more)?;
    let old_values = values.len();
    if let (Some(taken), Some(value)) = (taken, new_value) {
        let of = (name, value);
        let outside = make_value(inode.inodes(), &mut h, inode, of, taken, &mut values)?;
        put(&mut after, (index, name), NewValue::Outside(outside))?;
    }
    let mut st = inode.state.write();
    // The block first: only it can fail for lack of space.
    if after.block != before.block {
        if let Err(err) = store_in_block(inodes, &mut h, inode, &mut st, &after.block) {
            drop(st);
            values[old_values..].iter().try_for_each(|value| value.unmake(inodes, &mut h))?;
            return Err(err);
        }
    }
    let counted = values[..old_values].iter().try_for_each(|value| value.count(inodes, &mut h));
    inodes.all_or_nothing(&h, counted, "a change of attributes failed half way")?;
    if after.inode != before.inode {
        store_in_inode(inodes, &mut h, inode, &st, &after.inode)?;
    }
    sub_blocks(inodes, &mut st, freed.unwrap_or(0))?;
    let new_bytes = new_value.map_or(0, <[u8]>::len);
    add_blocks(inodes, &mut st, blocks_of_value(inodes, new_bytes))?;
    if let Some(bits) = mode {
        st.raw.i_mode = st.raw.i_mode & !0o777 | bits;
    }
    st.raw.i_ctime = change_time(inodes, inode, &mut st);
    need_feature(inodes, &mut h, Needed::ExtAttr)?;
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Times)
}

/// Where an attribute gets its value.
enum NewValue<'a> {
    Inside(&'a [u8]),
    Outside(Outside),
}

/// The attributes with one changed, and whether its value goes to an inode of its own: the entry
/// names no inode yet then. Places are tried as in Linux: the inode, the block, an inode of its
/// own; that first for what no block can hold.
fn changed(
    store: &Store,
    before: &Attrs,
    (index, name): (u8, &[u8]),
    value: Option<&[u8]>,
) -> Result<(Attrs, bool)> {
    let (inode, block) = (before.inode.clone(), before.block.clone());
    let mut after = Attrs { inode, block, room: before.room, shared: before.shared };
    let Some(value) = value else {
        after.inode.remove(index, name);
        after.block.remove(index, name);
        return Ok((after, false));
    };
    let block_size = store.block_size();
    let can_be_outside = store.ea_inode && !value.is_empty();
    if !can_be_outside || value.len() <= block_size - LARGE_BELOW {
        let in_inode = put(&mut after, (index, name), NewValue::Inside(value))?;
        // Entries of values outside need room, too (`EXT4_XATTR_BLOCK_RESERVE`).
        let reserve = if can_be_outside { (block_size / 8).min(1024) } else { 0 };
        let fits = after.block.fits(Place::Block, block_size)
            && after.block.value_bytes() + reserve <= block_size;
        if in_inode || fits {
            return Ok((after, false));
        }
    }
    let size = u32::try_from(value.len()).map_err(|_| FsError::ArgumentTooBig)?;
    let unknown = NewValue::Outside(Outside::new(u32::MAX, size, name, 0));
    let in_inode = can_be_outside && put(&mut after, (index, name), unknown)?;
    if in_inode || can_be_outside && after.block.fits(Place::Block, block_size) {
        return Ok((after, true));
    }
    Err(FsError::NoSpace)
}

/// Sets an attribute in the inode if it fits there, else in the block, where it may not fit either.
/// True: it is in the inode.
fn put(attrs: &mut Attrs, (index, name): (u8, &[u8]), value: NewValue<'_>) -> Result<bool> {
    let set = |set: &mut XattrSet| match value {
        NewValue::Inside(bytes) => set.set(index, name, bytes),
        NewValue::Outside(outside) => set.set_outside(index, name, outside),
    };
    set(&mut attrs.inode)?;
    if attrs.room.is_some_and(|room| attrs.inode.fits(Place::Inode, room)) {
        attrs.block.remove(index, name);
        return Ok(true);
    }
    attrs.inode.remove(index, name);
    set(&mut attrs.block)?;
    Ok(false)
}

/// How the users of values change. A shared block counts for all of its inodes, so the entries of
/// its copy come as new users.
fn changed_users(before: &Attrs, after: &Attrs) -> Vec<(Outside, i64)> {
    let old = before.users(false);
    let mut new = after.users(after.block != before.block);
    for (inum, (count, outside)) in old {
        new.entry(inum).or_insert((0, outside)).0 -= count;
    }
    // The one that is still to be made has its user from the beginning.
    let known = new.into_values().filter(|(_, outside)| outside.inum != u32::MAX);
    known.filter(|(more, _)| *more != 0).map(|(more, outside)| (outside, more)).collect()
}
