//! POSIX ACLs, as the value of an extended attribute: version u32, then entries of tag u16, bits
//! u16, id u32. Clients see the outcome in ACCESS, and not the ACL.
//!
//! Source: fs/posix_acl.c (`posix_acl_permission`, `__posix_acl_chmod_masq`).

use crate::export::Caller;

/// The attribute.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

fn word(entry: &[u8], at: usize) -> u16 {
    u16::from(entry[at]) | u16::from(entry[at + 1]) << 8
}

/// Tag, bits and id of every entry.
fn entries(acl: &[u8]) -> impl Iterator<Item = (u16, u16, u32)> {
    acl.get(HEADER_BYTES..).unwrap_or(&[]).chunks_exact(ENTRY_BYTES).map(|entry| {
        let id = u32::from(word(entry, 4)) | u32::from(word(entry, 6)) << 16;
        (word(entry, 0), word(entry, 2), id)
    })
}

/// Verdict of an ACL on a user who is not the owner; `None`: it names the user nowhere.
pub(crate) fn grants(acl: &[u8], caller: &Caller, gid: u32, want: u16) -> Option<bool> {
    let mask = entries(acl).find(|(tag, ..)| *tag == MASK).map_or(7, |(_, bits, _)| bits);
    let all = |bits: u16| bits & mask & want == want;
    if let Some((_, bits, _)) = entries(acl).find(|(tag, _, id)| *tag == USER && *id == caller.uid)
    {
        return Some(all(bits));
    }
    let of_group = |(tag, bits, id): (u16, u16, u32)| {
        let id = if tag == GROUP_OBJ { gid } else { id };
        (matches!(tag, GROUP_OBJ | GROUP) && caller.is_in(id)).then(|| all(bits))
    };
    entries(acl).filter_map(of_group).reduce(|one, other| one | other)
}

/// Moves owner, group (the mask, if there is one) and others with a new mode.
pub(crate) fn chmod(acl: &mut [u8], mode: u16) {
    let group = if entries(acl).any(|(tag, ..)| tag == MASK) { MASK } else { GROUP_OBJ };
    for entry in acl.get_mut(HEADER_BYTES..).unwrap_or(&mut []).chunks_exact_mut(ENTRY_BYTES) {
        let shift = match word(entry, 0) {
            USER_OBJ => 6,
            OTHER => 0,
            tag if tag == group => 3,
            _ => continue,
        };
        entry[2] = (mode >> shift & 7) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, bits, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
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
        let acl = acl(&entries);
        let user = |uid, gid, want| {
            let caller = Caller { uid, gid, ..Caller::default() };
            grants(&acl, &caller, 60, want)
        };
        assert_eq!((user(5, 1, 6), user(5, 1, 1)), (Some(true), Some(false)), "the mask");
        assert_eq!(user(6, 60, 4), Some(false), "a named user before groups");
        assert_eq!((user(9, 60, 4), user(9, 60, 2)), (Some(true), Some(false)));
        assert_eq!((user(9, 70, 2), user(9, 70, 4)), (Some(true), Some(false)));
        assert_eq!(user(9, 1, 4), None, "all others");
        let mut both = Caller { uid: 9, gid: 60, ..Caller::default() };
        both.groups[0] = 70;
        assert_eq!(grants(&acl, &both, 60, 6), Some(false), "one entry has to grant all");
        assert_eq!(grants(&acl, &both, 60, 2), Some(true));
        assert_eq!(grants(&acl[..7], &both, 60, 2), None, "cut off");
    }

    #[test]
    fn chmod_moves_the_mask_or_else_the_group() {
        let of = |list: &[(u16, u16)]| {
            let entries: Vec<_> = list.iter().map(|(tag, bits)| (*tag, *bits, 0)).collect();
            acl(&entries)
        };
        let mut masked = of(&[(USER_OBJ, 7), (USER, 7), (GROUP_OBJ, 5), (MASK, 7), (OTHER, 5)]);
        chmod(&mut masked, 0o640);
        let moved = of(&[(USER_OBJ, 6), (USER, 7), (GROUP_OBJ, 5), (MASK, 4), (OTHER, 0)]);
        assert_eq!(masked, moved);
        let mut plain = of(&[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 5)]);
        chmod(&mut plain, 0o2710);
        assert_eq!(plain, of(&[(USER_OBJ, 7), (GROUP_OBJ, 1), (OTHER, 0)]));
    }
}
