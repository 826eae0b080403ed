//! Default ACLs for what is made, and chmod of what has an ACL.
//!
//! ```text
//!   version u32 = 2 | tag u16, perm u16, id u32 | ...          the form of getxattr and setxattr
//! ```
//! The volume stores ACLs and keeps a mode in step with one that is set; which ACL something new
//! begins with is the caller's business, in the kernel as here. Source: fs/posix_acl.c
//! (`posix_acl_create_masq`, `__posix_acl_chmod_masq`).

/// The attribute with the ACL that permissions are checked against.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory with the ACL of what is made in it.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

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

/// Narrows a default ACL to what `mode` asks for. Returns the mode to make the file with, and
/// whether that says everything, so that no ACL need be stored.
pub(crate) fn narrow(value: &mut [u8], mode: u32) -> (u32, bool) {
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

/// Changes an access ACL as chmod to `mode` does.
pub(crate) fn chmod(value: &mut [u8], mode: u32) {
    each_class(value, |_, shift| (mode >> shift & 7) as u8);
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
}
