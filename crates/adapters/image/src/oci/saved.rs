//! Names that a layer makes, kept in memory until those of the layers below are made.
//!
//! ```text
//!   bytes of the path that are those of the one before, the rest | kind | link
//!   mode, owner, group, device, times | attributes                          numbers are LEB128
//! ```
//! An entry takes about 50 bytes: an image may have a million. Tested here.

use syncline_fs::build::NodeId;

use crate::archive::reader::{Kind, Member};
use crate::copy::side::{Kind as FileKind, Meta, Xattr};

/// A name that a layer makes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) link: Vec<u8>,
    pub(super) meta: Meta,
    pub(super) xattrs: Vec<Xattr>,
    /// The contents of a regular file.
    pub(super) file: Option<NodeId>,
}

impl Entry {
    pub(super) fn new(path: Vec<u8>, member: Member, file: Option<NodeId>) -> Entry {
        let Member { kind, link, meta, xattrs, .. } = member;
        Entry { path, kind, link, meta, xattrs, file }
    }

    pub(super) fn is_dir(&self) -> bool {
        self.kind == Kind::Inode && self.meta.kind() == FileKind::Dir
    }
}

/// Entries in their order.
#[derive(Default)]
pub(super) struct Saved {
    bytes: Vec<u8>,
    /// Path of the last entry.
    last: Vec<u8>,
    files: Vec<NodeId>,
}

impl Saved {
    pub(super) fn push(&mut self, entry: Entry) {
        let Entry { path, kind, link, meta, xattrs, file } = entry;
        let shared = self.last.iter().zip(&path).take_while(|(a, b)| a == b).count();
        self.number(shared as u64);
        self.text(&path[shared..]);
        self.last = path;
        self.bytes.push(u8::from(kind == Kind::Link) | u8::from(file.is_some()) << 1);
        self.files.extend(file);
        self.text(&link);
        for number in [u64::from(meta.mode), meta.uid.into(), meta.gid.into(), meta.rdev] {
            self.number(number);
        }
        for (seconds, nanos) in [meta.mtime, meta.atime] {
            // Small where the sign is in the lowest bit.
            self.number((seconds << 1 ^ seconds >> 63) as u64);
            self.number(nanos.into());
        }
        self.number(xattrs.len() as u64);
        for (name, value) in &xattrs {
            self.text(name);
            self.text(value);
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text);
    }

    pub(super) fn entries(&self) -> Entries<'_> {
        Entries { bytes: &self.bytes, last: Vec::new(), files: self.files.iter() }
    }
}

/// Reads what [`Saved`] wrote, which nobody else changes.
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    last: Vec<u8>,
    files: std::slice::Iter<'a, NodeId>,
}

impl Entries<'_> {
    fn byte(&mut self) -> u8 {
        let byte = self.bytes[0];
        self.bytes = &self.bytes[1..];
        byte
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7F) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let len = self.number() as usize;
        let (text, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        text.to_vec()
    }

    fn time(&mut self) -> (i64, u32) {
        let seconds = self.number();
        let seconds = (seconds >> 1) as i64 ^ -((seconds & 1) as i64);
        (seconds, self.number() as u32)
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if self.bytes.is_empty() {
            return None;
        }
        let shared = self.number() as usize;
        self.last.truncate(shared);
        let rest = self.text();
        self.last.extend_from_slice(&rest);
        let flags = self.byte();
        let link = self.text();
        let (mode, uid) = (self.number() as u32, self.number() as u32);
        let (gid, rdev) = (self.number() as u32, self.number());
        let (mtime, atime) = (self.time(), self.time());
        let count = self.number();
        let xattrs = (0..count).map(|_| (self.text(), self.text())).collect();
        Some(Entry {
            path: self.last.clone(),
            kind: if flags & 1 == 0 { Kind::Inode } else { Kind::Link },
            link,
            meta: Meta { mode, uid, gid, rdev, mtime, atime, ..Meta::default() },
            xattrs,
            file: (flags & 2 != 0).then(|| self.files.next().copied()).flatten(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_was_put_in() {
        let entry = |path: &str, mtime: (i64, u32)| Entry {
            path: path.into(),
            kind: Kind::Inode,
            link: Vec::new(),
            meta: Meta { mode: 0o100_644, uid: 1000, gid: u32::MAX, mtime, ..Meta::default() },
            xattrs: vec![(b"user.x".to_vec(), vec![0; 300])],
            file: None,
        };
        let link = Entry {
            kind: Kind::Link,
            link: b"/usr/bin/a".to_vec(),
            file: Some(syncline_fs::build::ROOT),
            meta: Meta {
                rdev: u64::MAX,
                mtime: (i64::MAX, 0),
                atime: (i64::MIN, 999_999_999),
                ..Meta::default()
            },
            ..entry("/usr/bin/b", (0, 0))
        };
        let make = || {
            [
                entry("/usr/bin/a", (-1, 5)),
                entry("/usr", (0, 0)),
                entry("/usr/bin/ab", (1 << 40, 1)),
            ]
        };
        let mut saved = Saved::default();
        make().into_iter().for_each(|entry| saved.push(entry));
        saved.push(link);
        let found: Vec<Entry> = saved.entries().collect();
        assert_eq!(found.len(), 4);
        assert_eq!(found[..3], make());
        assert_eq!((found[3].kind, &found[3].link[..]), (Kind::Link, &b"/usr/bin/a"[..]));
        assert_eq!(found[3].meta.atime, (i64::MIN, 999_999_999));
        assert_eq!((found[3].meta.mtime.0, found[3].meta.rdev), (i64::MAX, u64::MAX));
        assert_eq!(found[3].file, Some(syncline_fs::build::ROOT));
    }
}
