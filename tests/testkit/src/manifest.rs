//! Everything a user can see of a tree, as data that can be compared.
//!
//! A [`TreeManifest`] is filled through a [`TreeSource`]: a directory of the running kernel
//! ([`crate::DirTree`]) or a volume of ours. Two manifests of the same tree must be equal; where
//! they are not, [`TreeManifest::diff`] says what differs, one line per difference.
//!
//! Paths are bytes relative to the root, without a leading slash; the root is the empty path. Inode
//! numbers are not compared, but which names share one inode is (`linked_to`).

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use sha2::{Digest, Sha256};

const S_IFMT: u32 = 0o170_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFCHR: u32 = 0o020_000;

/// A point in time as ext4 keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds into the second, 0..1_000_000_000.
    pub nanos: u32,
}

/// Attributes of one name, as from stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Inode number: only used to find names of one inode.
    pub ino: u64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: Time,
    /// Device number (major, minor) of a device file, else zeros.
    pub rdev: (u32, u32),
}

/// An extended attribute: full name and value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// A tree that can be read. Paths as in the module documentation.
pub trait TreeSource {
    /// Its error.
    type Error: Display;

    /// The names in a directory, without `.` and `..`, in any order.
    fn list(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// The attributes of a name; symbolic links are not followed, here and below.
    fn stat(&mut self, path: &[u8]) -> Result<Stat, Self::Error>;

    /// The target of a symbolic link.
    fn read_link(&mut self, path: &[u8]) -> Result<Vec<u8>, Self::Error>;

    /// Full names and values of the extended attributes, in any order.
    fn xattrs(&mut self, path: &[u8]) -> Result<Vec<Xattr>, Self::Error>;

    /// Reads a regular file from `offset`; returns the number of bytes, 0 at its end.
    fn read(&mut self, path: &[u8], offset: u64, into: &mut [u8]) -> Result<usize, Self::Error>;

    /// The ranges `start..end` of a regular file that SEEK_DATA and SEEK_HOLE call data, in bytes.
    fn data_ranges(&mut self, path: &[u8]) -> Result<Vec<(u64, u64)>, Self::Error>;
}

/// One name of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes; `ino` is zeroed.
    pub stat: Stat,
    /// The first path, in byte order, of the same inode, if that is another one.
    pub linked_to: Option<Vec<u8>>,
    /// Target of a symbolic link, else empty.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// SHA-256 of a regular file's bytes, else zeros.
    pub content: [u8; 32],
    /// Data ranges of a regular file in bytes, adjacent ones merged.
    pub data: Vec<(u64, u64)>,
}

impl Entry {
    /// True if it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.stat.mode & S_IFMT == S_IFDIR
    }

    /// True if it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.stat.mode & S_IFMT == S_IFREG
    }

    /// True if it is a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.stat.mode & S_IFMT == S_IFLNK
    }
}

/// Differences that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Sizes of directories: equal for two readers of one image, not for two writers of one tree.
    pub dir_sizes: bool,
    /// Holes of files: equal for two readers of one image, not for two writers of one tree.
    pub sparse_maps: bool,
    /// Times of the last change.
    pub mtimes: bool,
}

impl Compare {
    /// Two readers of the same image: everything counts.
    pub const SAME_IMAGE: Self = Self { dir_sizes: true, sparse_maps: true, mtimes: true };
    /// Two writers of the same tree: block allocation does not count.
    pub const SAME_TREE: Self = Self { dir_sizes: false, sparse_maps: false, mtimes: true };
}

/// A tree as data: every path with what can be seen of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeManifest {
    /// The entries by path; the root is the empty path.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

impl TreeManifest {
    /// Reads the whole tree. `lost+found` in the root is left out.
    pub fn from_source<S: TreeSource>(source: &mut S) -> Result<Self, String> {
        let mut manifest = Self::default();
        let mut first_path: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut inodes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut todo = vec![Vec::new()];
        while let Some(path) = todo.pop() {
            let (ino, entry) = read_entry(source, &path)?;
            if entry.is_dir() {
                let mut names = source.list(&path).map_err(|e| at(&path, "list", &e))?;
                names.retain(|name| !(path.is_empty() && name == b"lost+found"));
                todo.extend(names.iter().map(|name| join(&path, name)));
            }
            inodes.insert(path.clone(), ino);
            if manifest.entries.insert(path.clone(), entry).is_some() {
                return Err(format!("{} is listed twice", path.escape_ascii()));
            }
        }
        for (path, entry) in &mut manifest.entries {
            let ino = inodes[path];
            let first = first_path.entry(ino).or_insert_with(|| path.clone());
            entry.linked_to = (first != path).then(|| first.clone());
        }
        Ok(manifest)
    }

    /// Reads a directory of the running kernel.
    pub fn from_dir(dir: &std::path::Path) -> Result<Self, String> {
        Self::from_source(&mut crate::DirTree::new(dir))
    }

    /// The differences from `self` (left) to `other` (right), one line each.
    #[must_use]
    pub fn diff(&self, other: &Self, compare: Compare) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, left) in &self.entries {
            match other.entries.get(path) {
                None => lines.push(format!("/{}: only left", path.escape_ascii())),
                Some(right) => diff_entry(path, left, right, compare, &mut lines),
            }
        }
        let right_only = other.entries.keys().filter(|path| !self.entries.contains_key(*path));
        lines.extend(right_only.map(|path| format!("/{}: only right", path.escape_ascii())));
        lines
    }

    /// As [`TreeManifest::diff`], but panics with the first twenty lines.
    ///
    /// # Panics
    /// If there is a difference.
    pub fn assert_same(&self, other: &Self, compare: Compare, what: &str) {
        let lines = self.diff(other, compare);
        let shown = lines.iter().take(20).cloned().collect::<Vec<_>>().join("\n  ");
        assert!(lines.is_empty(), "{what}: {} differences:\n  {shown}", lines.len());
    }
}

/// `dir/name`, or `name` in the root.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_vec();
    }
    [dir, b"/", name].concat()
}

fn at(path: &[u8], what: &str, error: &impl Display) -> String {
    format!("{what} of /{}: {error}", path.escape_ascii())
}

fn read_entry<S: TreeSource>(source: &mut S, path: &[u8]) -> Result<(u64, Entry), String> {
    let mut stat = source.stat(path).map_err(|e| at(path, "stat", &e))?;
    let ino = std::mem::take(&mut stat.ino);
    if !matches!(stat.mode & S_IFMT, S_IFBLK | S_IFCHR) {
        stat.rdev = (0, 0);
    }
    let mut entry = Entry { stat, ..Entry::default() };
    let xattrs = source.xattrs(path).map_err(|e| at(path, "xattrs", &e))?;
    entry.xattrs = xattrs.into_iter().collect();
    if entry.is_symlink() {
        entry.target = source.read_link(path).map_err(|e| at(path, "readlink", &e))?;
    }
    if entry.is_file() {
        entry.content = hash(source, path, stat.size)?;
        let ranges = source.data_ranges(path).map_err(|e| at(path, "data ranges", &e))?;
        for (start, end) in ranges {
            match entry.data.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => entry.data.push((start, end)),
            }
        }
    }
    Ok((ino, entry))
}

fn hash<S: TreeSource>(source: &mut S, path: &[u8], size: u64) -> Result<[u8; 32], String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; size.clamp(1, 256 * 1024) as usize];
    let mut offset = 0;
    loop {
        let n = source.read(path, offset, &mut buffer).map_err(|e| at(path, "read", &e))?;
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        offset += n as u64;
    }
    if offset != size {
        return Err(format!("/{}: {offset} bytes read of {size}", path.escape_ascii()));
    }
    Ok(hasher.finalize().into())
}

fn diff_entry(path: &[u8], l: &Entry, r: &Entry, compare: Compare, lines: &mut Vec<String>) {
    let mut say = |what: &str, left: String, right: String| {
        if left != right {
            let mut line = format!("/{}: {what} ", path.escape_ascii());
            let _ = write!(line, "{left} left, {right} right");
            lines.push(line);
        }
    };
    say("mode", format!("{:o}", l.stat.mode), format!("{:o}", r.stat.mode));
    say("uid", l.stat.uid.to_string(), r.stat.uid.to_string());
    say("gid", l.stat.gid.to_string(), r.stat.gid.to_string());
    say("nlink", l.stat.nlink.to_string(), r.stat.nlink.to_string());
    if compare.dir_sizes || !(l.is_dir() && r.is_dir()) {
        say("size", l.stat.size.to_string(), r.stat.size.to_string());
    }
    if compare.mtimes {
        let time = |t: Time| format!("{}.{:09}", t.seconds, t.nanos);
        say("mtime", time(l.stat.mtime), time(r.stat.mtime));
    }
    say("rdev", format!("{:?}", l.stat.rdev), format!("{:?}", r.stat.rdev));
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let link = |e: &Entry| e.linked_to.as_deref().map_or("nothing".to_owned(), text);
    say("linked to", link(l), link(r));
    say("target", text(&l.target), text(&r.target));
    for name in l.xattrs.keys().chain(r.xattrs.keys().filter(|k| !l.xattrs.contains_key(*k))) {
        let value = |e: &Entry| e.xattrs.get(name).map_or("absent".to_owned(), |v| text(v));
        say(&format!("xattr {}", text(name)), value(l), value(r));
    }
    let hex = |h: &[u8; 32]| h[..8].iter().map(|b| format!("{b:02x}")).collect::<String>();
    say("content", hex(&l.content), hex(&r.content));
    if compare.sparse_maps {
        say("data ranges", format!("{:?}", l.data), format!("{:?}", r.data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(change: impl Fn(&mut Entry)) -> TreeManifest {
        let stat = Stat { mode: 0o100_644, nlink: 1, size: 10, ..Stat::default() };
        let mut entry = Entry { stat, data: vec![(0, 10)], ..Entry::default() };
        change(&mut entry);
        TreeManifest { entries: BTreeMap::from([(b"a".to_vec(), entry)]) }
    }

    /// The canary: each thing that can differ is named, and nothing else.
    #[test]
    fn every_difference_is_named() {
        let base = one(|_| ());
        assert!(base.diff(&base, Compare::SAME_IMAGE).is_empty());
        type Change = Box<dyn Fn(&mut Entry)>;
        let cases: Vec<(&str, Change)> = vec![
            ("mode 100644 left, 100600 right", Box::new(|e| e.stat.mode = 0o100_600)),
            ("uid 0 left, 5 right", Box::new(|e| e.stat.uid = 5)),
            ("gid 0 left, 5 right", Box::new(|e| e.stat.gid = 5)),
            ("nlink 1 left, 2 right", Box::new(|e| e.stat.nlink = 2)),
            ("size 10 left, 11 right", Box::new(|e| e.stat.size = 11)),
            ("mtime 0.000000000 left, -1.000000007 right", {
                Box::new(|e| e.stat.mtime = Time { seconds: -1, nanos: 7 })
            }),
            ("rdev (0, 0) left, (8, 1) right", Box::new(|e| e.stat.rdev = (8, 1))),
            ("linked to nothing left, b right", Box::new(|e| e.linked_to = Some(b"b".to_vec()))),
            ("target  left, x right", Box::new(|e| e.target = b"x".to_vec())),
            ("xattr user.n absent left, v right", {
                Box::new(|e| drop(e.xattrs.insert(b"user.n".to_vec(), b"v".to_vec())))
            }),
            ("content 0000000000000000 left, 0700000000000000 right", {
                Box::new(|e| e.content[0] = 7)
            }),
            ("data ranges [(0, 10)] left, [] right", Box::new(|e| e.data.clear())),
        ];
        for (line, change) in cases {
            let said = base.diff(&one(change), Compare::SAME_IMAGE);
            assert_eq!(said, [format!("/a: {line}")]);
        }
    }

    #[test]
    fn missing_names_are_named_on_their_side() {
        let (full, empty) = (one(|_| ()), TreeManifest::default());
        assert_eq!(full.diff(&empty, Compare::SAME_TREE), ["/a: only left"]);
        assert_eq!(empty.diff(&full, Compare::SAME_TREE), ["/a: only right"]);
    }
}
