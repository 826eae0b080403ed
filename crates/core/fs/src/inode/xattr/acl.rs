//! POSIX ACLs: conversion between the form of system calls and the form on disk.
//!
//! ```text
//!   system call   version u32 = 2 | tag u16, perm u16, id u32         8 bytes each
//!   on disk       version u32 = 1 | tag u16, perm u16                 owner, group, mask, other
//!                                 | tag u16, perm u16, id u32         named user or group
//! ```
//! Source: fs/ext4/acl.c (ext4_acl_to_disk), fs/posix_acl.c (posix_acl_valid,
//! posix_acl_equiv_mode). Tested here.

use syncline_ondisk::OndiskError;
use syncline_ondisk::bytes::{le16, le32, put_le16, put_le32};

use crate::error::{FsError, Result};

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
const HEADER_BYTES: usize = 4;
const LONG_BYTES: usize = 8;
const SHORT_BYTES: usize = 4;

pub(crate) const USER_OBJ: u16 = 0x01;
pub(crate) const USER: u16 = 0x02;
pub(crate) const GROUP_OBJ: u16 = 0x04;
pub(crate) const GROUP: u16 = 0x08;
pub(crate) const MASK: u16 = 0x10;
pub(crate) const OTHER: u16 = 0x20;

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
        let acl: Vec<Entry> = body
            .chunks(LONG_BYTES)
            .map(|e| Entry { tag: le16(e, 0), perm: le16(e, 2), id: le32(e, 4) })
            .collect();
        if acl.is_empty() {
            return Ok(None);
        }
        if !valid(&acl) {
            return Err(FsError::invalid("an ACL is incomplete or out of order"));
        }
        Ok(Some(Acl(acl)))
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
        let plain = self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER));
        (bits, plain)
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
