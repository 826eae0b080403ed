//! ACLs as archives have them, and as system calls carry them.
//!
//! ```text
//!   user::rw-,user:1000:r--,group::r--,mask::r--,other::r--          GNU tar, bsdtar, star
//!   user:lisa:r--:1000                                               the number behind: star
//!   version u32 = 2 | tag u16, perm u16, id u32 | ...                setxattr
//! ```
//! Entries are parted by commas or line ends; `default:` may be in front. A name without a number
//! is a user or group of this system. Tested here.

use crate::platform;

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that have none.
const NO_ID: u32 = u32::MAX;

/// Tag, id, permissions.
type Entry = (u16, u32, u16);

/// An ACL that was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<Entry>);

/// Why there is no ACL, and the rights of the owning group, which the mode hides behind the mask.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) why: String,
    pub(super) group: Option<u16>,
}

fn permissions(text: &[u8]) -> Option<u16> {
    text.iter().try_fold(0, |bits, byte| match byte {
        b'r' => Some(bits | 4),
        b'w' => Some(bits | 2),
        b'x' => Some(bits | 1),
        b'-' => Some(bits),
        _ => None,
    })
}

/// An entry; the error names what could not be read.
fn entry(text: &[u8]) -> Result<Entry, String> {
    let wrong = || format!("`{}` is not an ACL entry", text.escape_ascii());
    let mut fields: Vec<&[u8]> = text.split(|byte| *byte == b':').map(<[u8]>::trim_ascii).collect();
    if fields.first().is_some_and(|first| matches!(*first, b"default" | b"d")) {
        fields.remove(0);
    }
    let (tag, rest) = fields.split_first().ok_or_else(wrong)?;
    let (named, unnamed) = match *tag {
        b"user" | b"u" => (USER, USER_OBJ),
        b"group" | b"g" => (GROUP, GROUP_OBJ),
        b"mask" | b"m" => (MASK, MASK),
        b"other" | b"o" => (OTHER, OTHER),
        _ => return Err(wrong()),
    };
    let (who, perms, id) = match rest {
        // Masks and others have no name, and some leave out its colon.
        [perms] if named == unnamed => (&b""[..], perms, None),
        [who, perms] => (*who, perms, None),
        [who, perms, id] => (*who, perms, Some(*id)),
        _ => return Err(wrong()),
    };
    let perms = permissions(perms).ok_or_else(wrong)?;
    if who.is_empty() {
        return Ok((unnamed, NO_ID, perms));
    }
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u32>().ok();
    let known = || match named {
        USER => platform::user_of(who),
        _ => platform::group_of(who),
    };
    let id = number(who).or_else(|| id.and_then(number)).or_else(known);
    let id = id.filter(|id| named != unnamed && *id != NO_ID);
    let unknown = || format!("this system has no `{}`", who.escape_ascii());
    Ok((named, id.ok_or_else(unknown)?, perms))
}

impl Acl {
    /// Reads the text of an archive.
    pub(super) fn from_text(text: &[u8]) -> Result<Acl, Refused> {
        let lines = text.split(|byte| matches!(byte, b',' | b'\n' | 0));
        // Comments tell which rights the mask leaves.
        let without = |line| <[u8]>::split(line, |byte| *byte == b'#').next().unwrap_or_default();
        let lines = lines.map(without).map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let (mut entries, mut why) = (Vec::new(), None);
        for line in lines {
            match entry(line) {
                Ok(entry) => entries.push(entry),
                Err(text) => why = why.or(Some(text)),
            }
        }
        entries.sort_unstable();
        let acl = Acl(entries);
        let why =
            why.or_else(|| acl.invalid().then(|| "entries are missing or duplicate".to_owned()));
        match why {
            Some(why) => Err(Refused { why, group: acl.of(GROUP_OBJ) }),
            None => Ok(acl),
        }
    }

    /// As the kernel's `posix_acl_valid`.
    fn invalid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.0 == tag).count();
        let named = count(USER) + count(GROUP);
        let doubled =
            self.0.windows(2).any(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        let once = [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1);
        doubled || !once || named > 0 && count(MASK) != 1
    }

    fn of(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.0 == tag).map(|entry| entry.2)
    }

    /// The permissions that the mode of a file with this ACL shows.
    pub(super) fn mode(&self) -> u32 {
        let group = self.of(MASK).or_else(|| self.of(GROUP_OBJ));
        let classes = [self.of(USER_OBJ), group, self.of(OTHER)];
        classes.into_iter().fold(0, |mode, class| mode << 3 | u32::from(class.unwrap_or(0)))
    }

    /// As setxattr takes it.
    pub(super) fn to_value(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, id, perms) in &self.0 {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&perms.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// From what getxattr gives; `None` if that is no ACL.
    pub(super) fn from_value(value: &[u8]) -> Option<Acl> {
        let body = value.strip_prefix(&VERSION.to_le_bytes())?;
        let entries = body.chunks_exact(8);
        let whole = entries.remainder().is_empty();
        let entry = |e: &[u8]| {
            let half = |at: usize| u16::from_le_bytes([e[at], e[at + 1]]);
            let (tag, perms) = (half(0), half(2));
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            (tag, if matches!(tag, USER | GROUP) { id } else { NO_ID }, perms)
        };
        let mut entries: Vec<Entry> = entries.map(entry).collect();
        entries.sort_unstable();
        let acl = Acl(entries);
        (whole && !acl.invalid()).then_some(acl)
    }

    /// As archives have it, with numbers.
    pub(super) fn to_text(&self) -> Vec<u8> {
        let entry = |(tag, id, perms): &Entry| {
            let (name, id) = match *tag {
                USER_OBJ => ("user", String::new()),
                USER => ("user", id.to_string()),
                GROUP_OBJ => ("group", String::new()),
                GROUP => ("group", id.to_string()),
                MASK => ("mask", String::new()),
                _ => ("other", String::new()),
            };
            let bit = |bit, letter| if perms & bit == 0 { '-' } else { letter };
            format!("{name}:{id}:{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))
        };
        self.0.iter().map(entry).collect::<Vec<_>>().join(",").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_give_one_acl() {
        let plain = b"user::rw-,user:1000:r--,group::r-x,group:7:--x,mask::rwx,other::---";
        let acl = Acl::from_text(plain).unwrap();
        assert_eq!((acl.to_text(), acl.mode()), (plain.to_vec(), 0o670));
        for text in [
            "u::rw-\nuser:1000:r--\ng::r-x\ngroup:7:--x\nmask:rwx\nother:---\n",
            "user::rw-,user:nobody-here:r--:1000,group::r-x,group:no:--x:7,mask::rwx,other::---",
            "default:user::rw-\ndefault:user:1000:r--\t#effective:r--\ndefault:group::r-x\n\
             default:group:7:--x\ndefault:mask::rwx\ndefault:other::---\n\n",
            "other::---,mask::rwx,group:7:--x,group::r-x,user:1000:r--,user::rw-",
        ] {
            assert_eq!(Acl::from_text(text.as_bytes()), Ok(Acl(acl.0.clone())), "{text}");
        }
        assert_eq!(Acl::from_value(&acl.to_value()), Some(acl));
        let root = Acl::from_text(b"user::rw-,user:root:r--,group::r-x,mask::r--,other::---");
        assert!(root.unwrap().to_text().starts_with(b"user::rw-,user:0:r--"));
    }

    #[test]
    fn what_is_no_acl_is_refused_and_tells_the_groups_rights() {
        for text in [
            &b"user::rw-,user:no-such-user-here:rwx,group::r--,mask::rwx,other::r--"[..],
            b"user::rw-,user:5:rwx,group::r--,other::r--",
            b"user::rw-,user::rw-,group::r--,other::r--",
            b"user::rw-,user:5:r,user:5:r,group::r--,mask::r,other::r--",
            b"user::rw-,group::r--,mask::rwq,other::r--",
            b"owner@:rwx,group::r--",
            b"group::r--",
            b"user::rw-,user:4294967295:r--,group::r--,mask::r--,other::r--",
        ] {
            assert_eq!(Acl::from_text(text).unwrap_err().group, Some(4), "{}", text.escape_ascii());
        }
        assert!(Acl::from_text(b"").is_err() && Acl::from_value(b"\x02\0\0\0x").is_none());
    }
}
