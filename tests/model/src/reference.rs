//! The reference: what ext4 on Linux answers, in as few lines as possible and all in memory.
//!
//! Paths are relative to the root, symbolic links are never followed (a link in the middle of a
//! path is ENOTDIR). The caller is root: no permission checks. Errors are Linux errno, in the order
//! in which Linux finds them. Space, inodes and the room for attributes have no limit here: the
//! caller decides whether ENOSPC of the volume under test is fair and skips the operation.
//!
//! Times: the modification time only, as `u64` nanoseconds, given by the caller.

use std::collections::BTreeMap;

use crate::sparse::SparseBytes;

/// Linux errno of the answers given here.
#[allow(missing_docs, reason = "the names are Linux's")]
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const ENXIO: i32 = 6;
    pub const EEXIST: i32 = 17;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const ENOSPC: i32 = 28;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOTEMPTY: i32 = 39;
    pub const ENODATA: i32 = 61;
}
use errno::{EEXIST, EINVAL, EISDIR, ENAMETOOLONG, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY, EPERM};

/// Answer of an operation: a value or an errno.
pub type Answer<T> = Result<T, i32>;
/// A node's number; never used twice.
pub type NodeId = u64;

/// The number of the root.
pub const ROOT: NodeId = 1;

/// Treatment of an existing target by a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Linux's")]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// Condition on setting an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Linux's")]
pub enum XattrMode {
    Any,
    Create,
    Replace,
}

/// Kind of a node.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A directory: names and nodes.
    Dir(BTreeMap<Vec<u8>, NodeId>),
    /// A regular file.
    File(SparseBytes),
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A pipe, socket or device: type bits of the mode.
    Special(u16),
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Type and contents.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; of a directory, 2 plus its subdirectories.
    pub nlink: u32,
    /// Open handles.
    pub open: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Last change of the contents, in nanoseconds.
    pub mtime_ns: u64,
}

impl Node {
    fn new(kind: Kind, mode: u16, now_ns: u64) -> Self {
        let nlink = if matches!(kind, Kind::Dir(_)) { 2 } else { 1 };
        let xattrs = BTreeMap::new();
        Node { kind, mode, uid: 0, gid: 0, nlink, open: 0, xattrs, mtime_ns: now_ns }
    }

    /// Type and permission bits, as `st_mode`.
    #[must_use]
    pub fn st_mode(&self) -> u16 {
        let kind = match &self.kind {
            Kind::Dir(_) => 0o040_000,
            Kind::File(_) => 0o100_000,
            Kind::Symlink(_) => 0o120_000,
            Kind::Special(bits) => *bits,
        };
        kind | self.mode
    }

    fn is_dir(&self) -> bool {
        matches!(self.kind, Kind::Dir(_))
    }
}

/// A file system in memory. See the module's description.
#[derive(Clone, Debug)]
pub struct Reference {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
}

impl Default for Reference {
    fn default() -> Self {
        let root = Node::new(Kind::Dir(BTreeMap::new()), 0o755, 0);
        Reference { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }
}

/// Parent and last name of a path.
#[must_use]
pub fn split(path: &str) -> (&str, &[u8]) {
    match path.rsplit_once('/') {
        Some((parent, name)) => (parent, name.as_bytes()),
        None => ("", path.as_bytes()),
    }
}

fn check_name(name: &[u8]) -> Answer<()> {
    if name.len() > 255 { Err(ENAMETOOLONG) } else { Ok(()) }
}

impl Reference {
    /// An inode that exists: named, or open.
    ///
    /// # Panics
    /// If it does not: a mistake in the test.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[&id]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("names and handles only refer to nodes that exist")
    }

    /// Inodes that exist.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Never: there is a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The entries of a directory.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn entries(&self, dir: NodeId) -> Answer<&BTreeMap<Vec<u8>, NodeId>> {
        match &self.node(dir).kind {
            Kind::Dir(entries) => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn entries_mut(&mut self, dir: NodeId, now_ns: u64) -> &mut BTreeMap<Vec<u8>, NodeId> {
        let node = self.node_mut(dir);
        node.mtime_ns = now_ns;
        match &mut node.kind {
            Kind::Dir(entries) => entries,
            _ => unreachable!("parent() returned a directory"),
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Answer<NodeId> {
        let entries = self.entries(dir)?;
        check_name(name)?;
        entries.get(name).copied().ok_or(ENOENT)
    }

    /// The inode of a path.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG.
    pub fn resolve(&self, path: &str) -> Answer<NodeId> {
        let mut at = ROOT;
        for name in path.split('/').filter(|n| !n.is_empty()) {
            at = self.lookup(at, name.as_bytes())?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Answer<(NodeId, &'p [u8])> {
        let (parent, name) = split(path);
        let dir = self.resolve(parent)?;
        self.entries(dir)?;
        Ok((dir, name))
    }

    fn insert(&mut self, path: &str, node: Node) -> Answer<NodeId> {
        let (dir, name) = self.parent(path)?;
        check_name(name)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(EEXIST);
        }
        let (id, is_dir, now_ns) = (self.next, node.is_dir(), node.mtime_ns);
        self.next += 1;
        self.nodes.insert(id, node);
        self.entries_mut(dir, now_ns).insert(name.to_vec(), id);
        self.node_mut(dir).nlink += u32::from(is_dir);
        Ok(id)
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// Those of [`Reference::resolve`] for the parent; EEXIST.
    pub fn create(&mut self, path: &str, mode: u16, now_ns: u64) -> Answer<NodeId> {
        self.insert(path, Node::new(Kind::File(SparseBytes::default()), mode, now_ns))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Reference::create`].
    pub fn mkdir(&mut self, path: &str, mode: u16, now_ns: u64) -> Answer<NodeId> {
        self.insert(path, Node::new(Kind::Dir(BTreeMap::new()), mode, now_ns))
    }

    /// Makes a pipe or socket; `kind` are the type bits.
    ///
    /// # Errors
    /// As [`Reference::create`].
    pub fn mknod(&mut self, path: &str, kind: u16, mode: u16, now_ns: u64) -> Answer<NodeId> {
        self.insert(path, Node::new(Kind::Special(kind), mode, now_ns))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Reference::create`]; ENOENT for an empty target.
    pub fn symlink(&mut self, path: &str, target: &[u8], now_ns: u64) -> Answer<NodeId> {
        if target.is_empty() {
            return Err(ENOENT);
        }
        self.insert(path, Node::new(Kind::Symlink(target.to_vec()), 0o777, now_ns))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// Those of the parent; EEXIST; EPERM for a directory; ENOENT if it has no name any more.
    pub fn link(&mut self, id: NodeId, path: &str, now_ns: u64) -> Answer<()> {
        let (dir, name) = self.parent(path)?;
        check_name(name)?;
        if self.entries(dir)?.contains_key(name) {
            return Err(EEXIST);
        }
        if self.node(id).is_dir() {
            return Err(EPERM);
        }
        if self.node(id).nlink == 0 {
            return Err(ENOENT);
        }
        self.node_mut(id).nlink += 1;
        self.entries_mut(dir, now_ns).insert(name.to_vec(), id);
        Ok(())
    }

    /// Drops a node without names and handles.
    fn collect(&mut self, id: NodeId) {
        if self.node(id).nlink == 0 && self.node(id).open == 0 {
            self.nodes.remove(&id);
        }
    }

    fn drop_name(&mut self, id: NodeId) {
        let node = self.node_mut(id);
        node.nlink = if node.is_dir() { 0 } else { node.nlink - 1 };
        self.collect(id);
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// ENOENT and those of the path; EISDIR.
    pub fn unlink(&mut self, path: &str, now_ns: u64) -> Answer<()> {
        let (dir, name) = self.parent(path)?;
        let id = self.lookup(dir, name)?;
        if self.node(id).is_dir() {
            return Err(EISDIR);
        }
        self.entries_mut(dir, now_ns).remove(name);
        self.drop_name(id);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT and those of the path; ENOTDIR, ENOTEMPTY.
    pub fn rmdir(&mut self, path: &str, now_ns: u64) -> Answer<()> {
        let (dir, name) = self.parent(path)?;
        let id = self.lookup(dir, name)?;
        if !self.entries(id)?.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.entries_mut(dir, now_ns).remove(name);
        self.node_mut(dir).nlink -= 1;
        self.drop_name(id);
        Ok(())
    }

    /// True if `inner` is `outer` or lies below it.
    fn is_below(&self, inner: NodeId, outer: NodeId) -> bool {
        inner == outer
            || self.entries(outer).is_ok_and(|entries| {
                entries.values().any(|id| self.node(*id).is_dir() && self.is_below(inner, *id))
            })
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of renameat2, in Linux's order.
    pub fn rename(&mut self, from: &str, to: &str, mode: RenameMode, now_ns: u64) -> Answer<()> {
        let (old_dir, old_name) = self.parent(from)?;
        let (new_dir, new_name) = self.parent(to)?;
        check_name(old_name)?;
        check_name(new_name)?;
        let source = self.lookup(old_dir, old_name)?;
        let target = self.entries(new_dir)?.get(new_name).copied();
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(EEXIST),
            (RenameMode::Exchange, None) => return Err(ENOENT),
            _ => {}
        }
        let moves_dir = self.node(source).is_dir();
        if old_dir != new_dir && moves_dir && self.is_below(new_dir, source) {
            return Err(EINVAL);
        }
        if let Some(target) = target
            && old_dir != new_dir
            && self.node(target).is_dir()
            && self.is_below(old_dir, target)
        {
            return Err(if mode == RenameMode::Exchange { EINVAL } else { ENOTEMPTY });
        }
        if target == Some(source) {
            return Ok(());
        }
        if mode == RenameMode::Exchange {
            let target = target.ok_or(ENOENT)?;
            let hits_dir = self.node(target).is_dir();
            self.entries_mut(old_dir, now_ns).insert(old_name.to_vec(), target);
            self.entries_mut(new_dir, now_ns).insert(new_name.to_vec(), source);
            let old = self.node_mut(old_dir);
            old.nlink = old.nlink + u32::from(hits_dir) - u32::from(moves_dir);
            let new = self.node_mut(new_dir);
            new.nlink = new.nlink + u32::from(moves_dir) - u32::from(hits_dir);
            return Ok(());
        }
        if let Some(target) = target {
            match (moves_dir, self.node(target).is_dir()) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
        }
        self.entries_mut(old_dir, now_ns).remove(old_name);
        self.entries_mut(new_dir, now_ns).insert(new_name.to_vec(), source);
        if moves_dir {
            self.node_mut(old_dir).nlink -= 1;
            self.node_mut(new_dir).nlink += 1;
        }
        if let Some(target) = target {
            self.node_mut(new_dir).nlink -= u32::from(self.node(target).is_dir());
            self.drop_name(target);
        }
        Ok(())
    }

    /// Opens a handle: the inode stays, whatever happens to its names.
    pub fn open(&mut self, id: NodeId) {
        self.node_mut(id).open += 1;
    }

    /// Closes a handle.
    pub fn close(&mut self, id: NodeId) {
        self.node_mut(id).open -= 1;
        self.collect(id);
    }

    /// The contents of a file.
    ///
    /// # Errors
    /// EISDIR for a directory, EINVAL for anything else that is not a file.
    pub fn file(&self, id: NodeId) -> Answer<&SparseBytes> {
        match &self.node(id).kind {
            Kind::File(bytes) => Ok(bytes),
            Kind::Dir(_) => Err(EISDIR),
            _ => Err(EINVAL),
        }
    }

    /// The contents of a file to be changed at a time.
    ///
    /// # Errors
    /// As [`Reference::file`].
    pub fn file_mut(&mut self, id: NodeId, now_ns: u64) -> Answer<&mut SparseBytes> {
        self.file(id)?;
        let node = self.node_mut(id);
        node.mtime_ns = now_ns;
        match &mut node.kind {
            Kind::File(bytes) => Ok(bytes),
            _ => unreachable!("file() said it is one"),
        }
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// EPERM for `user.` on anything but files and directories; EEXIST, ENODATA.
    pub fn set_xattr(
        &mut self,
        id: NodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Answer<()> {
        let node = self.node_mut(id);
        if name.starts_with(b"user.") && !matches!(node.kind, Kind::File(_) | Kind::Dir(_)) {
            return Err(EPERM);
        }
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => Err(EEXIST),
            (XattrMode::Replace, false) => Err(ENODATA),
            _ => {
                node.xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// EPERM as for setting; ENODATA.
    pub fn remove_xattr(&mut self, id: NodeId, name: &[u8]) -> Answer<()> {
        let node = self.node_mut(id);
        if name.starts_with(b"user.") && !matches!(node.kind, Kind::File(_) | Kind::Dir(_)) {
            return Err(EPERM);
        }
        node.xattrs.remove(name).map(drop).ok_or(ENODATA)
    }

    /// Changes mode, owner and modification time, where given.
    pub fn set_attr(
        &mut self,
        id: NodeId,
        mode: Option<u16>,
        owner: Option<(u32, u32)>,
        mtime_ns: Option<u64>,
    ) {
        let node = self.node_mut(id);
        node.mode = mode.unwrap_or(node.mode);
        (node.uid, node.gid) = owner.unwrap_or((node.uid, node.gid));
        node.mtime_ns = mtime_ns.unwrap_or(node.mtime_ns);
    }

    /// Every path of a directory or file, in byte order, with its node. The root is "".
    #[must_use]
    pub fn paths(&self) -> Vec<(String, NodeId)> {
        let mut paths = vec![(String::new(), ROOT)];
        let mut at = 0;
        while at < paths.len() {
            let (path, id) = paths[at].clone();
            if let Kind::Dir(entries) = &self.node(id).kind {
                for (name, child) in entries {
                    let name = String::from_utf8_lossy(name);
                    let below =
                        if path.is_empty() { name.into() } else { format!("{path}/{name}") };
                    paths.push((below, *child));
                }
            }
            at += 1;
        }
        paths.sort();
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Reference {
        let mut fs = Reference::default();
        fs.mkdir("a", 0o755, 1).unwrap();
        fs.mkdir("a/b", 0o755, 2).unwrap();
        fs.create("a/b/f", 0o644, 3).unwrap();
        fs.create("g", 0o600, 4).unwrap();
        fs
    }

    #[test]
    fn bad_paths_have_linux_answers() {
        let mut fs = tree();
        assert_eq!(fs.create("g/x", 0, 0), Err(ENOTDIR));
        assert_eq!(fs.create("no/x", 0, 0), Err(ENOENT));
        assert_eq!(fs.create("g", 0, 0), Err(EEXIST));
        assert_eq!(fs.create(&"n".repeat(256), 0, 0), Err(ENAMETOOLONG));
        assert_eq!(fs.unlink("a", 0), Err(EISDIR));
        assert_eq!(fs.rmdir("g", 0), Err(ENOTDIR));
        assert_eq!(fs.rmdir("a", 0), Err(ENOTEMPTY));
        assert_eq!(fs.link(fs.resolve("a").unwrap(), "h", 0), Err(EPERM));
    }

    #[test]
    fn renames_keep_the_tree_a_tree() {
        use RenameMode::{Exchange, NoReplace, Replace};
        let mut fs = tree();
        assert_eq!(fs.rename("a", "a/b/c", Replace, 0), Err(EINVAL));
        assert_eq!(fs.rename("a/b/f", "a", Replace, 0), Err(ENOTEMPTY));
        assert_eq!(fs.rename("g", "a", Replace, 0), Err(EISDIR));
        assert_eq!(fs.rename("a/b", "g", Replace, 0), Err(ENOTDIR));
        assert_eq!(fs.rename("g", "a", NoReplace, 0), Err(EEXIST));
        assert_eq!(fs.rename("g", "z", Exchange, 0), Err(ENOENT));
        fs.rename("g", "a/b", Exchange, 9).unwrap();
        assert_eq!((fs.node(ROOT).nlink, fs.node(fs.resolve("a").unwrap()).nlink), (4, 2));
        assert!(fs.resolve("g/f").is_ok());
        fs.rename("a/b", "g/f", Replace, 10).unwrap();
        assert_eq!(fs.len(), 4);
        let names: Vec<String> = fs.paths().into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, ["", "a", "g", "g/f"]);
    }

    #[test]
    fn an_open_file_outlives_its_names() {
        let mut fs = tree();
        let id = fs.resolve("g").unwrap();
        fs.open(id);
        fs.unlink("g", 5).unwrap();
        fs.file_mut(id, 6).unwrap().write(0, b"x");
        assert_eq!(fs.link(id, "h", 7), Err(ENOENT));
        fs.close(id);
        assert_eq!(fs.len(), 4);
    }
}
