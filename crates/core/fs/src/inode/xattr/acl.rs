//! POSIX ACLs: conversion between the form of system calls and the form on disk, and their rules.
//!
//! ```text
//!   system call   version u32 = 2 | tag u16, perm u16, id u32         8 bytes each
//!   on disk       version u32 = 1 | tag u16, perm u16                 owner, group, mask, other
//!                                 | tag u16, perm u16, id u32         named user or group
//! ```
//! Source: fs/ext4/acl.c (ext4_acl_to_disk), fs/posix_acl.c (posix_acl_valid, posix_acl_equiv_mode,
//! posix_acl_permission, posix_acl_create_masq, __posix_acl_chmod_masq). Tested here.

use syncline_ondisk::OndiskError;
use syncline_ondisk::bytes::{le16, le32, put_le16, put_le32};

use crate::error::{FsError, Result};

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const HEADER_BYTES: usize = 4;
const LONG_BYTES: usize = 8;
const SHORT_BYTES: usize = 4;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The id of entries that have none.
const UNDEFINED_ID: u32 = u32::MAX;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A checked ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// From the value that setxattr carries. `None`: no entries, which means "remove".
    pub(crate) fn from_xattr(value: &[u8]) -> Result<Option<Acl>> {
        let body = value.get(HEADER_BYTES..).unwrap_or(&[]);
        if value.len() < HEADER_BYTES || body.len() % LONG_BYTES != 0 {
            return Err(FsError::invalid("an ACL has a wrong length"));
        }
        if le32(value, 0) != XATTR_VERSION {
            return Err(FsError::NotSupported("ACLs of a version other than 2".into()));
        }
        let acl = Acl::unchecked(value);
        match acl.0.is_empty() {
            true => Ok(None),
            false if valid(&acl.0) => Ok(Some(acl)),
            false => Err(FsError::invalid("an ACL is incomplete or out of order")),
        }
    }

    /// From the value that getxattr returned, without a check: an image may store any entries.
    pub(crate) fn unchecked(value: &[u8]) -> Acl {
        let entries = value.get(HEADER_BYTES..).unwrap_or(&[]).chunks_exact(LONG_BYTES);
        Acl(entries.map(|e| Entry { tag: le16(e, 0), perm: le16(e, 2), id: le32(e, 4) }).collect())
    }

    /// Reads the form on disk.
    pub(crate) fn from_disk(bytes: &[u8]) -> std::result::Result<Acl, OndiskError> {
        let fail = |at, detail| Err(OndiskError::corrupt_at("ACL", at, detail));
        if bytes.len() < HEADER_BYTES || le32(bytes, 0) != DISK_VERSION {
            return fail(0, "the version is not 1");
        }
        let mut acl = Vec::new();
        let mut at = HEADER_BYTES;
        while at < bytes.len() {
            let tag = le16(bytes, at);
            let len = if matches!(tag, USER | GROUP) { LONG_BYTES } else { SHORT_BYTES };
            let known = matches!(tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER);
            if !known || bytes.len() - at < len {
                return fail(at, "an entry has an unknown tag or runs past the end");
            }
            let id = if len == LONG_BYTES { le32(bytes, at + 4) } else { UNDEFINED_ID };
            acl.push(Entry { tag, perm: le16(bytes, at + 2), id });
            at += len;
        }
        Ok(Acl(acl))
    }

    /// As getxattr returns it.
    pub(crate) fn to_xattr(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER_BYTES + self.0.len() * LONG_BYTES];
        put_le32(&mut out, 0, XATTR_VERSION);
        for (entry, e) in out[HEADER_BYTES..].chunks_mut(LONG_BYTES).zip(&self.0) {
            put_le16(entry, 0, e.tag);
            put_le16(entry, 2, e.perm);
            put_le32(entry, 4, e.id);
        }
        out
    }

    /// As ext4 stores it.
    pub(crate) fn to_disk(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            out.extend_from_slice(&e.tag.to_le_bytes());
            out.extend_from_slice(&e.perm.to_le_bytes());
            if matches!(e.tag, USER | GROUP) {
                out.extend_from_slice(&e.id.to_le_bytes());
            }
        }
        out
    }

    /// The permission bits that an access ACL gives to a mode, and whether the bits say all of it
    /// (then no ACL is stored).
    pub(crate) fn mode(&self) -> (u16, bool) {
        let perm = |tag| self.0.iter().find(|e| e.tag == tag).map(|e| e.perm & 7);
        let group = perm(MASK).or(perm(GROUP_OBJ)).unwrap_or(0);
        let bits = perm(USER_OBJ).unwrap_or(0) << 6 | group << 3 | perm(OTHER).unwrap_or(0);
        (bits, self.is_plain())
    }

    fn is_plain(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Applies `change` to the permissions of owner, group class and others, with their place in a
    /// mode. The group class is the mask, or without a mask the owning group.
    fn each_class(&mut self, mut change: impl FnMut(u16, u32) -> u16) {
        let has_mask = self.0.iter().any(|e| e.tag == MASK);
        for entry in &mut self.0 {
            let shift = match entry.tag {
                USER_OBJ => 6,
                MASK => 3,
                GROUP_OBJ if !has_mask => 3,
                OTHER => 0,
                _ => continue,
            };
            entry.perm = change(entry.perm, shift);
        }
    }

    /// Narrows a default ACL to the permissions in `mode`. Returns the mode to make the file with,
    /// and whether the mode says all of the ACL, so that none is stored.
    pub(crate) fn narrow(&mut self, mode: u32) -> (u32, bool) {
        let mut left = mode;
        self.each_class(|perm, shift| {
            let perm = perm & (mode >> shift & 7) as u16;
            left = left & !(7 << shift) | u32::from(perm) << shift;
            perm
        });
        (left, self.is_plain())
    }

    /// Changes an access ACL as chmod to `mode` does.
    pub(crate) fn chmod(&mut self, mode: u32) {
        self.each_class(|_, shift| (mode >> shift & 7) as u16);
    }

    /// As [`crate::acl::grants`].
    pub(crate) fn grants(
        &self,
        uid: u32,
        is_in: impl Fn(u32) -> bool,
        gid: u32,
        want: u16,
    ) -> Option<bool> {
        let mask = self.0.iter().find(|e| e.tag == MASK).map_or(7, |e| e.perm);
        let has = |e: &Entry| e.perm & mask & want == want;
        if let Some(entry) = self.0.iter().find(|e| e.tag == USER && e.id == uid) {
            return Some(has(entry));
        }
        let groups = self.0.iter().filter(|e| match e.tag {
            GROUP_OBJ => is_in(gid),
            GROUP => is_in(e.id),
            _ => false,
        });
        groups.map(has).reduce(|one, other| one | other)
    }
}

/// Owner, named users, group, named groups, mask, other; a mask where anything is named.
fn valid(acl: &[Entry]) -> bool {
    let ordered = acl.windows(2).all(|pair| {
        let named = matches!(pair[1].tag, USER | GROUP);
        pair[0].tag < pair[1].tag || named && pair[0].tag == pair[1].tag
    });
    let has = |tag| acl.iter().any(|e| e.tag == tag);
    let known = acl.iter().all(|e| {
        matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER)
            && e.perm <= 7
            && (!matches!(e.tag, USER | GROUP) || e.id != UNDEFINED_ID)
    });
    ordered
        && known
        && has(USER_OBJ)
        && has(GROUP_OBJ)
        && has(OTHER)
        && (has(MASK) || !(has(USER) || has(GROUP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    const NONE: u32 = UNDEFINED_ID;

    #[test]
    fn both_forms_round_trip() {
        let value =
            xattr(&[(1, 7, NONE), (2, 6, 1000), (4, 5, NONE), (0x10, 7, NONE), (0x20, 4, NONE)]);
        let acl = Acl::from_xattr(&value).unwrap().unwrap();
        let disk = acl.to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 8);
        assert_eq!(disk[..12], [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0]);
        assert_eq!(Acl::from_disk(&disk).unwrap(), acl);
        assert_eq!(acl.to_xattr(), value);
        assert_eq!(acl.mode(), (0o774, false));
    }

    #[test]
    fn plain_acls_are_a_mode() {
        let acl = Acl::from_xattr(&xattr(&[(1, 6, NONE), (4, 4, NONE), (0x20, 0, NONE)]));
        assert_eq!(acl.unwrap().unwrap().mode(), (0o640, true));
        assert_eq!(Acl::from_xattr(&xattr(&[])).unwrap(), None);
    }

    #[test]
    fn new_files_get_no_more_than_they_ask_for() {
        let acl = |list: &[(u16, u16)]| {
            let entries: Vec<_> = list.iter().map(|(tag, perm)| (*tag, *perm, NONE)).collect();
            Acl::unchecked(&xattr(&entries))
        };
        let mut narrowed = acl(&[(1, 7), (2, 7), (4, 5), (0x10, 7), (0x20, 0)]);
        assert_eq!(narrowed.narrow(0o100666), (0o100660, false));
        assert_eq!(narrowed, acl(&[(1, 6), (2, 7), (4, 5), (0x10, 6), (0x20, 0)]));
        assert_eq!(acl(&[(1, 7), (4, 5), (0x20, 5)]).narrow(0o777), (0o755, true));
        assert_eq!(acl(&[]).narrow(0o644), (0o644, true));
        let mut changed = acl(&[(1, 6), (2, 6), (4, 4), (0x10, 6), (0x20, 0)]);
        changed.chmod(0o604);
        let mask_moved = acl(&[(1, 6), (2, 6), (4, 4), (0x10, 0), (0x20, 4)]);
        assert_eq!(changed, mask_moved);
    }

    #[test]
    fn named_users_and_groups_come_before_others_under_the_mask() {
        let value = xattr(&[
            (USER_OBJ, 7, NONE),
            (USER, 7, 5),
            (USER, 0, 6),
            (GROUP_OBJ, 4, NONE),
            (GROUP, 2, 70),
            (MASK, 6, NONE),
            (OTHER, 7, NONE),
        ]);
        let acl = Acl::unchecked(&value);
        let user = |uid, gid, want| acl.grants(uid, |id| id == gid, 60, want);
        assert_eq!((user(5, 1, 6), user(5, 1, 1)), (Some(true), Some(false)), "the mask");
        assert_eq!(user(6, 60, 4), Some(false), "a named user before groups");
        assert_eq!((user(9, 60, 4), user(9, 60, 2)), (Some(true), Some(false)));
        assert_eq!((user(9, 70, 2), user(9, 70, 4)), (Some(true), Some(false)));
        assert_eq!(user(9, 1, 4), None, "all others");
        let both = |id| [60, 70].contains(&id);
        assert_eq!(acl.grants(9, both, 60, 6), Some(false), "one entry has to grant all");
        assert_eq!(acl.grants(9, both, 60, 2), Some(true));
        assert_eq!(Acl::unchecked(&value[..7]).grants(9, both, 60, 2), None, "cut off");
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            vec![],
            vec![2, 0, 0],
            xattr(&[(1, 7, NONE), (4, 5, NONE)]),
            xattr(&[(4, 5, NONE), (1, 7, NONE), (0x20, 0, NONE)]),
            xattr(&[(1, 7, NONE), (2, 7, 5), (4, 5, NONE), (0x20, 0, NONE)]),
            xattr(&[(1, 8, NONE), (4, 5, NONE), (0x20, 0, NONE)]),
            xattr(&[(1, 7, NONE), (4, 5, NONE), (0x20, 0, NONE), (0x40, 0, NONE)]),
        ] {
            assert!(matches!(Acl::from_xattr(&bad), Err(FsError::Invalid(_))), "{bad:?}");
        }
        assert!(Acl::from_disk(&[1, 0, 0, 0, 2, 0, 7, 0]).is_err());
        assert!(Acl::from_disk(&[2, 0, 0, 0]).is_err());
    }
}
