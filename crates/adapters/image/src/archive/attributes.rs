//! Extended attributes and ACLs in the records of a member, in the dialects of several programs.
//!
//! | record | written by |
//! |---|---|
//! | `SCHILY.xattr.NAME`, the bytes; `=`, `%` in NAME as `%3D`, `%25` | GNU tar, bsdtar, star |
//! | `LIBARCHIVE.xattr.NAME`, the name as in URLs, the bytes in base 64 | bsdtar |
//! | `SCHILY.acl.access`, `SCHILY.acl.default`, text | GNU tar, bsdtar, star |
//! | `RHT.security.selinux`, text | GNU tar |
//! | `SCHILY.acl.ace` (NFSv4) | bsdtar; has no place in ext4 |
//!
//! Tested here, and against GNU tar and bsdtar in `cli/tests/it/archives.rs`.

use super::acl::Acl;
use super::pax::Records;
use crate::copy::side::Xattr;

const SCHILY: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";
const SELINUX: &[u8] = b"RHT.security.selinux";
/// Record, and the attribute that has its ACL.
const ACLS: [(&[u8], &[u8]); 2] = [
    (b"SCHILY.acl.access", syncline_fs::acl::ACCESS),
    (b"SCHILY.acl.default", syncline_fs::acl::DEFAULT),
];

/// Attributes in the records of a member.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) xattrs: Vec<Xattr>,
    /// The permissions in place of those in the header.
    pub(super) mode: Option<u32>,
    /// Remarks on records that were not understood.
    pub(super) remarks: Vec<String>,
}

/// Reads the attributes of a member whose header has these permissions.
pub(super) fn read(records: &Records, mode: u32) -> Found {
    let mut found = Found::default();
    let mut keep = |name: Vec<u8>, value: Vec<u8>| {
        // The last of several counts.
        found.xattrs.retain(|(known, _)| *known != name);
        found.xattrs.push((name, value));
    };
    for (key, value) in records {
        if let Some(name) = key.strip_prefix(SCHILY) {
            keep(unescaped(name, Some(b"=%")), value.clone());
        } else if let Some(name) = key.strip_prefix(LIBARCHIVE) {
            match base64(value) {
                Some(value) => keep(unescaped(name, None), value),
                None => {
                    let name = name.escape_ascii();
                    found.remarks.push(format!("attribute {name} not kept: invalid base64"));
                }
            }
        } else if key == SELINUX {
            // Labels end in a zero where the kernel keeps them.
            keep(b"security.selinux".to_vec(), [&value[..], &[0]].concat());
        } else if key == b"SCHILY.acl.ace" {
            found.remarks.push("ACL not kept: ext4 has no NFSv4 ACLs".to_owned());
        }
    }
    for (key, name) in ACLS {
        let text = records.iter().rev().find(|(known, _)| known == key).map(|(_, text)| text);
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        match Acl::from_text(text) {
            Ok(acl) => {
                found.xattrs.retain(|(known, _)| known != name);
                found.xattrs.push((name.to_vec(), acl.to_value()));
                if name == syncline_fs::acl::ACCESS {
                    found.mode = Some(mode & !0o777 | acl.mode());
                }
            }
            Err(refused) => {
                found.xattrs.retain(|(known, _)| known != name);
                found.remarks.push(format!("ACL not kept: {}", refused.why));
                if name == syncline_fs::acl::ACCESS {
                    // The group bits of the header are the mask, which may grant more.
                    let group = refused.group.unwrap_or(0) & 7;
                    found.mode = Some(mode & !0o070 | u32::from(group) << 3 & mode);
                }
            }
        }
    }
    found
}

/// The records of a file's attributes.
pub(super) fn write(xattrs: Vec<Xattr>) -> Records {
    let record = |(name, value): Xattr| {
        let acl = ACLS.iter().find(|(_, known)| *known == name);
        match acl.and_then(|(key, _)| Some((key, Acl::from_value(&value)?))) {
            Some((key, acl)) => (key.to_vec(), acl.to_text()),
            None => ([SCHILY, &escaped(&name)].concat(), value),
        }
    };
    xattrs.into_iter().map(record).collect()
}

fn escaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => text.extend_from_slice(b"%3D"),
            b'%' => text.extend_from_slice(b"%25"),
            _ => text.push(*byte),
        }
    }
    text
}

/// Bytes for `%` and two digits, if it is one of `these`.
fn unescaped(mut text: &[u8], these: Option<&[u8]>) -> Vec<u8> {
    let mut name = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let digits = rest.get(..2).filter(|_| *first == b'%');
        let byte = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| these.is_none_or(|these| these.contains(byte))) {
            Some(byte) => {
                name.push(byte);
                text = rest.get(2..).unwrap_or_default();
            }
            None => {
                name.push(*first);
                text = rest;
            }
        }
    }
    name
}

/// The bytes of base 64, with or without `=` at its end.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.get(..end)?.chunks(4) {
        let mut bits = 0_u32;
        for byte in group {
            let digit = DIGITS.iter().position(|digit| digit == byte)?;
            bits = bits << 6 | u32::try_from(digit).ok()?;
        }
        bits <<= 6 * (4 - group.len());
        let whole = group.len().checked_sub(1)?;
        bytes.extend_from_slice(bits.to_be_bytes().get(1..=whole).unwrap_or_default());
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(of: &[(&str, &[u8])]) -> Records {
        of.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn each_dialect_is_read() {
        let found = read(
            &records(&[
                ("SCHILY.xattr.user.a%3Db%25c%41", b"1"),
                ("LIBARCHIVE.xattr.user.%C3%A9%3D", b"AAEC/w"),
                ("SCHILY.xattr.user.x", b"old"),
                ("LIBARCHIVE.xattr.user.x", b"bmV3"),
                ("RHT.security.selinux", b"u:r:t:s0"),
                ("LIBARCHIVE.xattr.user.bad", b"?"),
                ("SCHILY.acl.access", b"user::rw-,user:9:rwx,group::r--,mask::rw-,other::---"),
                ("SCHILY.acl.default", b"user::rwx,group::r-x,other::---"),
            ]),
            0o4777,
        );
        let names: Vec<&[u8]> = found.xattrs.iter().map(|(name, _)| &name[..]).collect();
        let expected: [&[u8]; 6] = [
            b"user.a=b%c%41",
            "user.é=".as_bytes(),
            b"user.x",
            b"security.selinux",
            syncline_fs::acl::ACCESS,
            syncline_fs::acl::DEFAULT,
        ];
        assert_eq!(names, expected);
        assert_eq!(found.xattrs[1].1, [0, 1, 2, 255]);
        assert_eq!(
            (&found.xattrs[2].1[..], &found.xattrs[3].1[..]),
            (&b"new"[..], &b"u:r:t:s0\0"[..])
        );
        assert_eq!((found.mode, found.remarks.len()), (Some(0o4660), 1));
        let again = read(&write(found.xattrs.clone()), 0o4777);
        assert_eq!((again.xattrs, again.mode), (found.xattrs, found.mode));
    }

    #[test]
    fn a_refused_acl_leaves_no_mask_as_rights_of_the_group() {
        let acl = b"user::rw-,user:no-such-user-here:rwx,group::r--,mask::rwx,other::---";
        let found = read(&records(&[("SCHILY.acl.access", acl)]), 0o670);
        assert_eq!((found.mode, found.xattrs.len(), found.remarks.len()), (Some(0o640), 0, 1));
    }
}
