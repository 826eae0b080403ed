//! POSIX ACLs for callers that check permissions and make files: an adapter.
//!
//! ```text
//!   version u32 = 2 | tag u16, perm u16, id u32 | ...          the form of getxattr and setxattr
//! ```
//! The volume stores ACLs and keeps a mode in step with one that is set; who may do what, and
//! which ACL something new begins with, is the caller's business, in the kernel as here. Source:
//! fs/posix_acl.c (`posix_acl_permission`, `posix_acl_create_masq`, `__posix_acl_chmod_masq`).
//! Tested here.

use crate::error::{FsError, Result};
use crate::inode::reference::InodeRef;
use crate::inode::xattr::XattrFlags;
use crate::inode::xattr::acl::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};
use crate::volume::Volume;

/// The attribute with the ACL that permissions are checked against.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the ACL that new entries inherit.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

fn tag(entry: &[u8; ENTRY_BYTES]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

/// The entries of a value; none in one that is broken.
fn entries(value: &mut [u8]) -> &mut [[u8; ENTRY_BYTES]] {
    value.get_mut(HEADER_BYTES..).unwrap_or(&mut []).as_chunks_mut().0
}

/// The entry that the group bits of a mode stand for: the mask, or the owning group.
fn group_of(value: &mut [u8]) -> Option<&mut [u8; ENTRY_BYTES]> {
    let all = entries(value);
    let at = |wanted| all.iter().position(|entry| tag(entry) == wanted);
    let index = at(MASK).or(at(GROUP_OBJ))?;
    all.get_mut(index)
}

/// Applies `change` to the permissions for owner, group bits and others with their place in a mode.
fn each_class(value: &mut [u8], mut change: impl FnMut(u8, u32) -> u8) {
    for entry in entries(value) {
        let shift = match tag(entry) {
            USER_OBJ => 6,
            OTHER => 0,
            _ => continue,
        };
        entry[2] = change(entry[2], shift);
    }
    if let Some(entry) = group_of(value) {
        entry[2] = change(entry[2], 3);
    }
}

/// Narrows a default ACL to the permissions in `mode`. Returns the mode to make the file with, and
/// whether that says everything, so that no ACL need be stored.
pub fn narrow(value: &mut [u8], mode: u32) -> (u32, bool) {
    let mut left = mode;
    each_class(value, |perm, shift| {
        let perm = perm & (mode >> shift & 7) as u8;
        left = left & !(7 << shift) | u32::from(perm) << shift;
        perm
    });
    let plain =
        entries(value).iter().all(|entry| matches!(tag(entry), USER_OBJ | GROUP_OBJ | OTHER));
    (left, plain)
}

/// Makes `name` in `dir` by `make`, which is given the permissions to make it with: those of `mode`
/// that the default ACL of `dir` grants, or where it has none those that `umask` leaves. The new
/// inode gets the ACL; if it cannot, nothing is made. Also returns true if `dir` has one.
///
/// # Errors
/// Those of `make`, and of storing an ACL.
pub fn make(
    volume: &Volume,
    (dir, name): (&InodeRef, &[u8]),
    (mode, umask): (u32, u32),
    make: impl FnOnce(u32) -> Result<InodeRef>,
) -> Result<(InodeRef, bool)> {
    let mut access = match volume.getxattr(dir, DEFAULT) {
        Ok(default) => default,
        Err(FsError::NoData) => return Ok((make(mode & !umask)?, false)),
        Err(err) => return Err(err),
    };
    let default = access.clone();
    let (mode, plain) = narrow(&mut access, mode);
    let inode = make(mode)?;
    let set = |name, value: &[u8]| volume.setxattr(&inode, name, value, XattrFlags::Any);
    let directory = inode.is_dir();
    let access = if plain { Ok(()) } else { set(ACCESS, &access) };
    let both = access.and_then(|()| if directory { set(DEFAULT, &default) } else { Ok(()) });
    if let Err(err) = both {
        let undone = if directory { volume.rmdir(dir, name) } else { volume.unlink(dir, name) };
        return Err(undone.err().unwrap_or(err));
    }
    Ok((inode, true))
}

/// Changes an access ACL as chmod to `mode` does.
pub fn chmod(value: &mut [u8], mode: u32) {
    each_class(value, |_, shift| (mode >> shift & 7) as u8);
}

/// Verdict of an access ACL on a user who is not the owner, who asks for all permissions of
/// `want` on a file of the group `gid`. `None`: the ACL names the user nowhere, and the permissions
/// of all others count.
pub fn grants(
    value: &[u8],
    uid: u32,
    is_in: impl Fn(u32) -> bool,
    gid: u32,
    want: u16,
) -> Option<bool> {
    let body = value.get(HEADER_BYTES..).unwrap_or(&[]).as_chunks::<ENTRY_BYTES>().0;
    let all = || {
        body.iter().map(|entry| {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            (tag(entry), u16::from_le_bytes([entry[2], entry[3]]), id)
        })
    };
    let mask = all().find(|(tag, ..)| *tag == MASK).map_or(7, |(_, bits, _)| bits);
    let has = |bits: u16| bits & mask & want == want;
    if let Some((_, bits, _)) = all().find(|(tag, _, id)| *tag == USER && *id == uid) {
        return Some(has(bits));
    }
    let of_group = |(tag, bits, id): (u16, u16, u32)| {
        let id = if tag == GROUP_OBJ { gid } else { id };
        (matches!(tag, GROUP_OBJ | GROUP) && is_in(id)).then(|| has(bits))
    };
    all().filter_map(of_group).reduce(|one, other| one | other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(list: &[(u16, u8)]) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0];
        for (tag, perm) in list {
            out.extend([*tag as u8, 0, *perm, 0, 0xff, 0xff, 0xff, 0xff]);
        }
        out
    }

    #[test]
    fn new_files_get_no_more_than_they_ask_for() {
        let mut acl = value(&[(1, 7), (2, 7), (4, 5), (0x10, 7), (0x20, 0)]);
        assert_eq!(narrow(&mut acl, 0o100666), (0o100660, false));
        assert_eq!(acl, value(&[(1, 6), (2, 7), (4, 5), (0x10, 6), (0x20, 0)]));
        let mut plain = value(&[(1, 7), (4, 5), (0x20, 5)]);
        assert_eq!(narrow(&mut plain, 0o777), (0o755, true));
        assert_eq!(narrow(&mut [], 0o644), (0o644, true));
    }

    #[test]
    fn chmod_moves_the_mask() {
        let mut acl = value(&[(1, 6), (2, 6), (4, 4), (0x10, 6), (0x20, 0)]);
        chmod(&mut acl, 0o604);
        assert_eq!(acl, value(&[(1, 6), (2, 6), (4, 4), (0x10, 0), (0x20, 4)]));
    }

    #[test]
    fn named_users_and_groups_come_before_others_under_the_mask() {
        let entries = [
            (USER_OBJ, 7, u32::MAX),
            (USER, 7, 5),
            (USER, 0, 6),
            (GROUP_OBJ, 4, u32::MAX),
            (GROUP, 2, 70),
            (MASK, 6, u32::MAX),
            (OTHER, 7, u32::MAX),
        ];
        let mut acl = vec![2, 0, 0, 0];
        for (tag, bits, id) in entries {
            acl.extend(u16::to_le_bytes(tag));
            acl.extend(u16::to_le_bytes(bits));
            acl.extend(u32::to_le_bytes(id));
        }
        let user = |uid, gid, want| grants(&acl, uid, |id| id == gid, 60, want);
        assert_eq!((user(5, 1, 6), user(5, 1, 1)), (Some(true), Some(false)), "the mask");
        assert_eq!(user(6, 60, 4), Some(false), "a named user before groups");
        assert_eq!((user(9, 60, 4), user(9, 60, 2)), (Some(true), Some(false)));
        assert_eq!((user(9, 70, 2), user(9, 70, 4)), (Some(true), Some(false)));
        assert_eq!(user(9, 1, 4), None, "all others");
        let both = |id| [60, 70].contains(&id);
        assert_eq!(grants(&acl, 9, both, 60, 6), Some(false), "one entry has to grant all");
        assert_eq!(grants(&acl, 9, both, 60, 2), Some(true));
        assert_eq!(grants(&acl[..7], 9, both, 60, 2), None, "cut off");
    }
}
