//! Which members of an archive are taken, and what of them is changed, by GNU tar's options.
//!
//! `--exclude` matches as GNU tar does without other options: a pattern of fnmatch(3), whose `*`
//! also matches slashes, against the name or what follows one of its slashes, and against the
//! directories above it. Tested here, and against GNU tar in `cli/tests/it/archives.rs`.

use super::reader::Member;
use crate::copy::side::{Kind as FileKind, Side};
use crate::{ImageError, Result, Watch, platform};

/// Choice of members, and how they are taken.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Patterns of names that are left out.
    pub exclude: Vec<Vec<u8>>,
    /// New owners.
    pub users: IdMap,
    /// New groups.
    pub groups: IdMap,
    /// A directory that comes where a link to a directory is leaves the link.
    pub keep_directory_symlink: bool,
}

/// Owners or groups, and their new numbers.
#[derive(Clone, Debug, Default)]
pub struct IdMap(Vec<(Id, u32)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Id {
    Number(u32),
    Name(Vec<u8>),
}

impl IdMap {
    /// Reads lines of `OLD NEW`, as `--owner-map` and `--group-map` of GNU tar have them. OLD is a
    /// name in the archive, or a number with or without `+`. NEW is a number, or a name with one
    /// (`NAME:NUMBER`), or a name of this system, which `known` gives the number of.
    ///
    /// # Errors
    /// A line of another form, a name that is not known.
    pub fn parse(text: &[u8], known: impl Fn(&[u8]) -> Option<u32>) -> Result<IdMap> {
        let mut map = Vec::new();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
            let fields: Vec<&[u8]> =
                line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
            let failed = |what: &[u8]| {
                let text = format!("line {number}: `{}` is no owner", what.escape_ascii());
                ImageError::Usage(format!("{text}; write OLD NEW, such as `1000 0`"))
            };
            match fields[..] {
                [] => {}
                [old, new] => {
                    let old = id(old).map_or_else(|| Id::Name(old.to_vec()), Id::Number);
                    let behind = new.iter().rposition(|byte| *byte == b':');
                    let new_id = match behind {
                        Some(colon) => id(&new[colon + 1..]),
                        None => id(new).or_else(|| known(new)),
                    };
                    map.push((old, new_id.ok_or_else(|| failed(new))?));
                }
                _ => return Err(failed(line)),
            }
        }
        Ok(IdMap(map))
    }

    /// [`IdMap::parse`] of users.
    ///
    /// # Errors
    /// As there.
    pub fn of_users(text: &[u8]) -> Result<IdMap> {
        IdMap::parse(text, platform::user_of)
    }

    /// [`IdMap::parse`] of groups.
    ///
    /// # Errors
    /// As there.
    pub fn of_groups(text: &[u8]) -> Result<IdMap> {
        IdMap::parse(text, platform::group_of)
    }

    fn apply(&self, id: &mut u32, name: &[u8]) {
        let is = |(old, _): &&(Id, u32)| match old {
            Id::Number(number) => number == id,
            Id::Name(old) => old == name,
        };
        if let Some((_, new)) = self.0.iter().find(is) {
            *id = *new;
        }
    }
}

fn id(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text.strip_prefix(b"+").unwrap_or(text)).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl Rules {
    /// Changes a member; false: it is left out. Remarks on it are said.
    pub(crate) fn take(&self, member: &mut Member, watch: &dyn Watch) -> Result<bool> {
        let path = &member.path;
        let name = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
        if self.exclude.iter().any(|pattern| excludes(pattern, name)) {
            return Ok(false);
        }
        self.users.apply(&mut member.meta.uid, &member.owner.0);
        self.groups.apply(&mut member.meta.gid, &member.owner.1);
        for remark in &member.remarks {
            watch.remark(&format!("{}: {remark}", member.path.escape_ascii()));
        }
        Ok(true)
    }

    /// Returns whether the link at a path stays where a directory comes.
    pub(crate) fn keeps_link(&self, to: &dyn Side, path: &[u8]) -> Result<bool> {
        let leads = || to.stat(path, true);
        Ok(self.keep_directory_symlink && leads()?.is_some_and(|to| to.kind() == FileKind::Dir))
    }
}

/// Matches a pattern against a name, what follows its slashes, and the directories above these.
fn excludes(pattern: &[u8], name: &[u8]) -> bool {
    let starts = name.windows(2).enumerate().filter(|(_, two)| two[0] == b'/' && two[1] != b'/');
    let mut starts = std::iter::once(0).chain(starts.map(|(at, _)| at + 1));
    starts.any(|start| matches(pattern, &name[start..]))
}

/// fnmatch(3) with FNM_LEADING_DIR: a slash may follow what matches. Only the last star that was
/// met is tried again, so that it takes the product of both lengths at most.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = &name[n..];
        if p == pattern.len() && matches!(rest.first(), None | Some(b'/')) {
            return true;
        }
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        match one(&pattern[p..], rest) {
            Some((of_pattern, of_name)) => (p, n) = (p + of_pattern, n + of_name),
            None => {
                let Some((behind, at)) = star.filter(|(_, at)| *at < name.len()) else {
                    return false;
                };
                star = Some((behind, at + 1));
                (p, n) = (behind, at + 1);
            }
        }
    }
}

/// The character at the start, and its bytes. One that is no UTF-8 is a byte.
fn character(bytes: &[u8]) -> Option<(u32, usize)> {
    let valid = |len: usize| std::str::from_utf8(bytes.get(..len)?).ok()?.chars().next();
    let found = (1..=4).find_map(|len| Some((u32::from(valid(len)?), len)));
    found.or_else(|| bytes.first().map(|byte| (u32::from(*byte) | 1 << 31, 1)))
}

/// Matches one character: bytes of the pattern and of the name.
fn one(pattern: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let (there, of_name) = character(name)?;
    match pattern {
        [] => None,
        [b'?', ..] => Some((1, of_name)),
        [b'[', ..] => match set(pattern, there) {
            Some((true, of_pattern)) => Some((of_pattern, of_name)),
            Some((false, _)) => None,
            // Without its end it is a bracket.
            None => (there == u32::from(b'[')).then_some((1, of_name)),
        },
        [b'\\', rest @ ..] if !rest.is_empty() => {
            let (wanted, of_pattern) = character(rest)?;
            (wanted == there).then_some((1 + of_pattern, of_name))
        }
        _ => {
            let (wanted, of_pattern) = character(pattern)?;
            (wanted == there).then_some((of_pattern, of_name))
        }
    }
}

/// A set in brackets: whether the character is in it, and its bytes. None: it does not end.
fn set(pattern: &[u8], there: u32) -> Option<(bool, usize)> {
    let mut at = 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut found = false;
    loop {
        let rest = pattern.get(at..)?;
        if rest.first()? == &b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if let Some(class) = rest.strip_prefix(b"[:") {
            let end = class.windows(2).position(|two| two == b":]")?;
            found |= in_class(&class[..end], there);
            at += end + 4;
            continue;
        }
        let next = |at: &mut usize| {
            *at += usize::from(pattern.get(*at) == Some(&b'\\'));
            let (character, len) = character(pattern.get(*at..)?)?;
            *at += len;
            Some(character)
        };
        let low = next(&mut at)?;
        let is_range = pattern.get(at) == Some(&b'-') && pattern.get(at + 1) != Some(&b']');
        let high = match is_range {
            true => {
                at += 1;
                next(&mut at)?
            }
            false => low,
        };
        found |= (low..=high).contains(&there);
    }
}

fn in_class(class: &[u8], there: u32) -> bool {
    let Some(c) = char::from_u32(there) else { return false };
    match class {
        b"alpha" => c.is_alphabetic(),
        b"digit" => c.is_ascii_digit(),
        b"alnum" => c.is_alphabetic() || c.is_ascii_digit(),
        b"upper" => c.is_uppercase(),
        b"lower" => c.is_lowercase(),
        b"space" => c.is_whitespace(),
        b"blank" => matches!(c, ' ' | '\t'),
        b"punct" => c.is_ascii_punctuation(),
        b"cntrl" => c.is_control(),
        b"xdigit" => c.is_ascii_hexdigit(),
        b"print" => !c.is_control(),
        b"graph" => !c.is_control() && !c.is_whitespace(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_gnu_tar() {
        for (pattern, name, is) in [
            ("usr/share", "usr/share/doc/x", true),
            ("share", "./usr/share/doc", true),
            ("share", "usr/shares", false),
            ("*.pyc", "a/b.pyc", true),
            ("a*c", "x/a/b/c", true),
            ("a?c", "a/c", true),
            ("a?c", "aéc", true),
            ("[a-c]x", "d/bx", true),
            ("[!a-c]x", "bx", false),
            ("[[:digit:]]*", "9/z", true),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("", "a", false),
            ("doc/", "doc", false),
            ("*a*b*c", "aabbaac/x", true),
            ("*a*b*c", "aabbaa", false),
        ] {
            assert_eq!(excludes(pattern.as_bytes(), name.as_bytes()), is, "{pattern} {name}");
        }
        assert!(!matches("*a".repeat(500).as_bytes(), &[b'a'; 499]));
    }

    #[test]
    fn owners_are_numbers_or_names() {
        let known = |name: &[u8]| (name == b"daemon").then_some(7);
        let text = b"# new owners\n+1000 0\nlisa x:5\n\n20 daemon # last\n";
        let map = IdMap::parse(text, known).unwrap();
        for (old, name, new) in
            [(1000, "", 0), (3, "lisa", 5), (20, "", 7), (4, "mike", 4), (1000, "lisa", 0)]
        {
            let mut id = old;
            map.apply(&mut id, name.as_bytes());
            assert_eq!(id, new, "{old} {name}");
        }
        for bad in ["1000", "1 2 3", "1 nobody-knows", "1 a:b", "1 4294967296"] {
            let err = IdMap::parse(bad.as_bytes(), known).unwrap_err().to_string();
            assert!(err.contains("line 1") && err.contains("; "), "{bad}: {err}");
        }
    }
}
