//! Setting of attributes, with the effects that some have: durability, relocation, mode of an ACL.

use syncline_ondisk::inode::flags;

use crate::data::Files;
use crate::data::durability::check_durability;
use crate::data::relaxed::note_attribute;
use crate::data::relocate::ATTRIBUTE;
use crate::error::{FsError, Result};
use crate::incore::Inode;
use crate::inode::attr::{Attr, SetAttr, setattr_locked};
use crate::inode::reference::InodeRef;
use crate::inode::xattr::acl::Acl;
use crate::inode::xattr::outside::VALUE_BYTES_MAX;
use crate::inode::xattr::{INDEX_ACL_DEFAULT, XattrFlags, change_xattr, is_acl, split};
use crate::names::relocate::relocate;
use crate::names::unlink::check_empty;

impl crate::Volume {
    /// Changes attributes. A size goes through [`Self::truncate`].
    ///
    /// # Errors
    /// [`FsError::Perm`] on an immutable file, and those of [`Self::truncate`]. For `CASEFOLD`
    /// [`FsError::NotDir`], [`FsError::NotEmpty`], and [`FsError::NotSupported`] on a volume
    /// without `casefold`.
    pub fn setattr(&self, inode: &InodeRef, set: &SetAttr) -> Result<Attr> {
        let files: &Files = &self.0;
        files.before_change()?;
        if let Some(size) = set.size {
            self.truncate(inode, size)?;
        }
        let other = SetAttr { size: None, ..*set };
        if other != SetAttr::default() {
            let _rwsem = inode.rwsem.write();
            check_folding(files, inode, other.flags)?;
            setattr_locked(files, inode, &other)?;
        }
        Ok(self.getattr(inode))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// [`FsError::Exists`] and [`FsError::NoData`] by `flags`, [`FsError::ArgumentTooBig`] above
    /// 64 KiB, [`FsError::NoSpace`] if it does not fit, [`FsError::Perm`] for immutable and
    /// append-only files and for `user.` on anything but files and directories,
    /// [`FsError::Invalid`] for a broken ACL. `user.syncline.relocate` is no attribute but a
    /// request: errors are those of [`Self::relocate`].
    pub fn setxattr(
        &self,
        inode: &InodeRef,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        setxattr(&self.0, inode, name, value, flags)
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if there is none; otherwise as [`Self::setxattr`].
    pub fn removexattr(&self, inode: &InodeRef, name: &[u8]) -> Result<()> {
        let (index, rest) = split(name)?;
        // Linux removes an ACL that is not there without complaint.
        let flags = if is_acl(index) { XattrFlags::Any } else { XattrFlags::Replace };
        let done = change_xattr(&self.0, inode, (index, rest), None, flags, None);
        note_attribute(&self.0, inode, name);
        done
    }
}

/// Sets an attribute, with its effect on durability, placement or mode.
pub(crate) fn setxattr(
    files: &Files,
    inode: &InodeRef,
    name: &[u8],
    value: &[u8],
    flags: XattrFlags,
) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(FsError::ArgumentTooBig);
    }
    let (index, rest) = split(name)?;
    check_durability(name, value)?;
    if name == ATTRIBUTE {
        return relocate(files, inode).map(drop);
    }
    if !is_acl(index) {
        let done = change_xattr(files, inode, (index, rest), Some(value), flags, None);
        note_attribute(files, inode, name);
        return done;
    }
    let acl = Acl::from_xattr(value)?;
    if index == INDEX_ACL_DEFAULT {
        if acl.is_some() && !inode.is_dir() {
            return Err(FsError::Perm);
        }
        let value = acl.map(|acl| acl.to_disk());
        return change_xattr(files, inode, (index, rest), value.as_deref(), flags, None);
    }
    let mode = acl.as_ref().map(|acl| acl.mode());
    let bits = mode.map(|(bits, _)| bits);
    let stored = acl.filter(|_| !mode.is_some_and(|(_, plain)| plain)).map(|a| a.to_disk());
    change_xattr(files, inode, (index, rest), stored.as_deref(), flags, bits)
}

/// As `ext4_ioctl_setflags`: only an empty directory begins to fold case, or ends to. The caller
/// holds `rwsem`.
fn check_folding(files: &Files, inode: &Inode, new: Option<u32>) -> Result<()> {
    let (old, is_dir) = {
        let st = inode.state.read();
        (st.raw.i_flags, st.raw.is_dir())
    };
    if new.is_none_or(|new| (new ^ old) & flags::CASEFOLD == 0) {
        return Ok(());
    }
    if files.dir_format.fold.is_none() {
        return Err(FsError::NotSupported("a directory that folds case, without casefold".into()));
    }
    if is_dir { check_empty(files, inode) } else { Err(FsError::NotDir) }
}
