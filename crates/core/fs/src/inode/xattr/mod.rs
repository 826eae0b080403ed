//! Extended attributes.
//!
//! ```text
//!   setxattr ── acl: system call form <-> disk form
//!      |
//!   in the inode, if it fits there          (xattr_range, no extra I/O)
//!      | else
//!   in the xattr block of the inode         (journaled; copied first if other inodes share it)
//! ```
//!
//! Promises
//! - An attribute is in one place. One call is one handle.
//! - `user.`, `trusted.`, `security.` and the two POSIX ACLs; anything else is
//!   [`FsError::NotSupported`], as in Linux. `user.` only on files and directories.
//! - ACLs are stored as Linux stores them; an access ACL also sets the permission bits, and one
//!   that says no more than those is not stored.
//! - Space is the inode's area and one block: more is [`FsError::NoSpace`].
//!
//! Not here: permission to read or write an attribute, and inheritance of a default ACL (a creator
//! passes the mode and sets the ACLs). Values in inodes of their own (`ea_inode`, see `outside.rs`)
//! are read; a change of attributes beside them is refused by name. `i_extra_isize` is left as it
//! is. Tested in `tests/it/namespace_xattr.rs` and `tests/it/ea_inode.rs`.

pub(crate) mod acl;
pub(crate) mod outside;
pub(crate) mod place;

use acl::Acl;
use place::Attrs;
use syncline_ondisk::inode::{S_IFDIR, S_IFMT, S_IFREG, flags};
use syncline_ondisk::run_time::Needed;
use syncline_ondisk::xattr::{self as disk, Entries, Place, Xattr};

use crate::error::{FsError, Result};
use crate::incore::{Dirty, InodeState};
use crate::inode::Inodes;
use crate::inode::reference::InodeRef;
use crate::inode::table::write_inode;
use crate::inode::times::change_time;
use crate::inode::xattr::outside::read_value;
use crate::inode::xattr::place::{
    read_attrs, store_in_block, store_in_inode, xattr_area, xattr_block,
};
use crate::space::retry::retry_when_full;
use crate::store::Store;
use crate::store::superblock::need_feature;

/// Longest full name in bytes (XATTR_NAME_MAX).
const NAME_BYTES_MAX: usize = 255;

/// Longest value in bytes (XATTR_SIZE_MAX).
pub(crate) const VALUE_BYTES_MAX: usize = 65536;

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
    let _rwsem = inode.rwsem.write();
    {
        let st = inode.state.read();
        let fixed = st.raw.i_flags & (flags::IMMUTABLE | flags::APPEND) != 0;
        if fixed || index == INDEX_USER && !has_user_attrs(&st) {
            return Err(FsError::Perm);
        }
    }
    let mut h = inodes.start(CREDITS)?;
    let mut st = inode.state.write();
    let before = read_attrs(inodes, inode, &st)?;
    let exists = before.inode.get(index, name).or(before.block.get(index, name)).is_some();
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
    let after = changed(&before, (index, name), value, inodes.block_size())?;
    // The value that it has: nothing happens, as in `ext4_xattr_set_handle`.
    if after.inode == before.inode && after.block == before.block && mode.is_none() {
        return Ok(());
    }
    // The block first: only it can fail for lack of space.
    if after.block != before.block {
        store_in_block(inodes, &mut h, inode, &mut st, &after.block)?;
    }
    if after.inode != before.inode {
        store_in_inode(inodes, &mut h, inode, &st, &after.inode)?;
    }
    if let Some(bits) = mode {
        st.raw.i_mode = st.raw.i_mode & !0o777 | bits;
    }
    st.raw.i_ctime = change_time(inodes, inode, &mut st);
    need_feature(inodes, &mut h, Needed::ExtAttr)?;
    write_inode(inodes, &mut h, inode, &mut st, Dirty::Times)
}

/// The attributes with one changed: in the inode if it fits there, else in the block.
fn changed(
    before: &Attrs,
    (index, name): (u8, &[u8]),
    value: Option<&[u8]>,
    block_size: usize,
) -> Result<Attrs> {
    let (mut inode, mut block) = (before.inode.clone(), before.block.clone());
    let room = before.room;
    let Some(value) = value else {
        inode.remove(index, name);
        block.remove(index, name);
        return Ok(Attrs { inode, block, room });
    };
    inode.set(index, name, value)?;
    if room.is_some_and(|room| inode.fits(Place::Inode, room)) {
        block.remove(index, name);
    } else {
        inode.remove(index, name);
        block.set(index, name, value)?;
        if !block.fits(Place::Block, block_size) {
            return Err(FsError::NoSpace);
        }
    }
    Ok(Attrs { inode, block, room })
}
