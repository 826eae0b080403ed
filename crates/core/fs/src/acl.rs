//! POSIX ACLs for callers that check permissions and make files: an adapter.
//!
//! The volume stores ACLs and keeps the mode in step with an ACL that is set. Permission checks and
//! the ACL of a new file are the caller's business, as in the kernel. The rules are in
//! `inode/xattr/acl.rs`, where they are tested.

use crate::error::{FsError, Result};
use crate::inode::reference::InodeRef;
use crate::inode::xattr::XattrFlags;
use crate::inode::xattr::acl::Acl;
use crate::volume::Volume;

/// The attribute with the ACL that permissions are checked against.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the ACL that new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Makes `name` in `dir` by `make`, which gets the permissions for it: those of `mode` that the
/// default ACL of `dir` grants, or without one those that `umask` leaves. The new inode gets the
/// ACL; if that fails, nothing is made. Also returns true if `dir` has a default ACL.
///
/// # Errors
/// Those of `make`, and of storing an ACL.
pub fn make(
    volume: &Volume,
    (dir, name): (&InodeRef, Option<&[u8]>),
    (mode, umask): (u32, u32),
    make: impl FnOnce(u32) -> Result<InodeRef>,
) -> Result<(InodeRef, bool)> {
    let default = match volume.getxattr(dir, DEFAULT) {
        Ok(default) => default,
        Err(FsError::NoData) => return Ok((make(mode & !umask)?, false)),
        Err(err) => return Err(err),
    };
    let mut access = Acl::unchecked(&default);
    let (mode, plain) = access.narrow(mode);
    let inode = make(mode)?;
    let set = |name, value: &[u8]| volume.setxattr(&inode, name, value, XattrFlags::Any);
    let directory = inode.is_dir();
    let access = if plain { Ok(()) } else { set(ACCESS, &access.to_xattr()) };
    let both = access.and_then(|()| if directory { set(DEFAULT, &default) } else { Ok(()) });
    if let Err(err) = both {
        // Without a name it goes with its last reference, which is here.
        let undone = name.map_or(Ok(()), |name| match directory {
            true => volume.rmdir(dir, name),
            false => volume.unlink(dir, name),
        });
        return Err(undone.err().unwrap_or(err));
    }
    Ok((inode, true))
}

/// Changes the value of an access ACL as chmod to `mode` does.
pub fn chmod(value: &mut Vec<u8>, mode: u32) {
    let mut acl = Acl::unchecked(value);
    acl.chmod(mode);
    *value = acl.to_xattr();
}

/// Verdict of an access ACL on a user who is not the owner and asks for all permissions of `want`
/// on a file of the group `gid`. `None`: no entry names the user or a group of the user, and the
/// permissions of all others count.
pub fn grants(
    value: &[u8],
    uid: u32,
    is_in: impl Fn(u32) -> bool,
    gid: u32,
    want: u16,
) -> Option<bool> {
    Acl::unchecked(value).grants(uid, is_in, gid, want)
}
