//! The tree of a new file system, in memory until the end.
//!
//! A name takes about 70 bytes and an inode about 100. Removed inodes keep their place in the list
//! and get no number.

use std::collections::BTreeMap;

use syncline_ondisk::Timestamp;
use syncline_ondisk::dir::NAME_MAX;
use syncline_ondisk::inode::{S_IFDIR, S_IFMT, S_IFREG};

use crate::error::{FsError, Result};
use crate::names::namei::LINKS_MAX;
use crate::names::path::{PATH_BYTES_MAX, SYMLINKS_MAX};

/// An inode of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// A number that no other inode of the tree has.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0.into()
    }
}

/// Owner, permissions and times of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMeta {
    /// Permissions, and the type bits of the inode, which do not change.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
}

/// Kind of an inode, and where its contents are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    File,
    /// Place in [`Tree::dirs`].
    Dir(u32),
    /// Place in [`Tree::targets`].
    Symlink(u32),
    /// A device, pipe or socket.
    Special(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) meta: NodeMeta,
    pub(super) content: Content,
    pub(super) size: u64,
    /// Names, `.` and `..` of its directories not counted. Without one the inode is not made.
    pub(super) links: u32,
    /// Set of attributes; 0 is none.
    pub(super) xattrs: u32,
    /// First of its runs, and their number.
    pub(super) runs: (u32, u32),
    /// Its number, once it has one.
    pub(super) ino: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Dir {
    pub(super) node: NodeId,
    pub(super) parent: NodeId,
    pub(super) entries: BTreeMap<Box<[u8]>, NodeId>,
    pub(super) subdirs: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    pub(super) dirs: Vec<Dir>,
    pub(super) targets: Vec<Box<[u8]>>,
}

/// The root directory.
pub const ROOT: NodeId = NodeId(0);

impl Tree {
    /// A root directory without entries.
    pub(super) fn new(time: Timestamp) -> Self {
        let mut tree = Self::default();
        let meta =
            NodeMeta { mode: S_IFDIR | 0o755, atime: time, mtime: time, ..NodeMeta::default() };
        let root = Dir { node: ROOT, parent: ROOT, entries: BTreeMap::new(), subdirs: 0 };
        tree.dirs.push(root);
        tree.nodes.push(Node::new(meta, Content::Dir(0)));
        tree.nodes[0].links = 1;
        tree
    }

    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    pub(super) fn dir(&self, id: NodeId) -> Result<&Dir> {
        match self.node(id).content {
            Content::Dir(at) => Ok(&self.dirs[at as usize]),
            _ => Err(FsError::NotDir),
        }
    }

    fn dir_mut(&mut self, id: NodeId) -> Result<&mut Dir> {
        match self.node(id).content {
            Content::Dir(at) => Ok(&mut self.dirs[at as usize]),
            _ => Err(FsError::NotDir),
        }
    }

    /// Adds an inode under a name that is free.
    pub(super) fn add(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: NodeMeta,
        content: impl FnOnce(&mut Self, NodeId) -> Content,
    ) -> Result<NodeId> {
        let Ok(id) = u32::try_from(self.nodes.len()) else { return Err(FsError::NoSpace) };
        let id = NodeId(id);
        self.enter(dir, name, id)?;
        let content = content(self, id);
        if matches!(content, Content::Dir(_)) {
            self.dir_mut(dir)?.subdirs += 1;
        }
        self.nodes.push(Node::new(meta, content));
        self.nodes[id.0 as usize].links = 1;
        Ok(id)
    }

    /// Adds a file without a name.
    pub(super) fn add_unnamed(&mut self, meta: NodeMeta) -> Result<NodeId> {
        let Ok(id) = u32::try_from(self.nodes.len()) else { return Err(FsError::NoSpace) };
        self.nodes.push(Node::new(meta, Content::File));
        Ok(NodeId(id))
    }

    pub(super) fn add_dir(
        &mut self,
        parent: NodeId,
        name: &[u8],
        meta: NodeMeta,
    ) -> Result<NodeId> {
        self.add(parent, name, meta, |tree, node| {
            let at = tree.dirs.len() as u32;
            tree.dirs.push(Dir { node, parent, entries: BTreeMap::new(), subdirs: 0 });
            Content::Dir(at)
        })
    }

    fn enter(&mut self, dir: NodeId, name: &[u8], id: NodeId) -> Result<()> {
        check_name(name)?;
        let entries = &mut self.dir_mut(dir)?.entries;
        if entries.contains_key(name) {
            return Err(FsError::Exists);
        }
        entries.insert(name.into(), id);
        Ok(())
    }

    /// Gives an inode, other than a directory, one more name.
    pub(super) fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) -> Result<()> {
        if matches!(self.node(id).content, Content::Dir(_)) {
            return Err(FsError::Perm);
        }
        if self.node(id).links >= u32::from(LINKS_MAX) {
            return Err(FsError::TooManyLinks);
        }
        self.enter(dir, name, id)?;
        self.node_mut(id).links += 1;
        Ok(())
    }

    /// Takes a name away. Returns the inode, and whether this was its last name.
    pub(super) fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Result<(NodeId, bool)> {
        let id = *self.dir(dir)?.entries.get(name).ok_or(FsError::NotFound)?;
        let is_dir = matches!(self.node(id).content, Content::Dir(_));
        if is_dir && !self.dir(id)?.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        let dir = self.dir_mut(dir)?;
        dir.entries.remove(name);
        dir.subdirs -= u32::from(is_dir);
        let node = self.node_mut(id);
        node.links -= 1;
        Ok((id, node.links == 0))
    }

    /// The inode at a path from the root. Symbolic links lead nowhere outside of the tree.
    pub(super) fn resolve(&self, path: &[u8], follow_last: bool) -> Result<NodeId> {
        if path.len() > PATH_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        // Components that are left, the next one last. A link's target goes on top of them.
        let mut rest: Vec<&[u8]> = parts(path).rev().collect();
        let (mut at, mut links) = (ROOT, 0);
        while let Some(name) = rest.pop() {
            let dir = self.dir(at)?;
            let next = match name {
                b"." => at,
                b".." => dir.parent,
                _ => *dir.entries.get(name).ok_or(FsError::NotFound)?,
            };
            let Content::Symlink(target) = self.node(next).content else {
                at = next;
                continue;
            };
            if rest.is_empty() && !follow_last {
                return Ok(next);
            }
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(FsError::Loop);
            }
            let target = &self.targets[target as usize];
            if target.starts_with(b"/") {
                at = ROOT;
            }
            rest.extend(parts(target).rev());
        }
        Ok(at)
    }
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// Refuses names that no entry can have.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0)
    {
        return Err(FsError::invalid(format!("`{}` is not a file name", name.escape_ascii())));
    }
    Ok(())
}

impl Node {
    fn new(meta: NodeMeta, content: Content) -> Self {
        Self { meta, content, size: 0, links: 0, xattrs: 0, runs: (0, 0), ino: 0 }
    }

    pub(super) fn file_type(&self) -> u16 {
        self.meta.mode & S_IFMT
    }

    pub(super) fn is_file(&self) -> bool {
        self.file_type() == S_IFREG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_ondisk::inode::S_IFLNK;

    fn tree() -> Tree {
        Tree::new(Timestamp::default())
    }

    fn link(tree: &mut Tree, dir: NodeId, name: &[u8], target: &[u8]) -> NodeId {
        let meta = NodeMeta { mode: S_IFLNK | 0o777, ..NodeMeta::default() };
        tree.add(dir, name, meta, |tree, _| {
            tree.targets.push(target.into());
            Content::Symlink(tree.targets.len() as u32 - 1)
        })
        .unwrap()
    }

    #[test]
    fn links_lead_nowhere_outside() {
        let mut tree = tree();
        let dir = tree.add_dir(ROOT, b"d", NodeMeta::default()).unwrap();
        let below = tree.add_dir(dir, b"e", NodeMeta::default()).unwrap();
        let up = link(&mut tree, below, b"up", b"../../../../d");
        assert_eq!(tree.resolve(b"/d/e/up/e", true), Ok(below));
        assert_eq!(tree.resolve(b"d/e/up", false), Ok(up));
        assert_eq!(tree.resolve(b"//d/./e/..", true), Ok(dir));
        link(&mut tree, dir, b"loop", b"loop");
        assert_eq!(tree.resolve(b"/d/loop/x", true), Err(FsError::Loop));
        link(&mut tree, dir, b"gone", b"/nothing");
        assert_eq!(tree.resolve(b"/d/gone", true), Err(FsError::NotFound));
        link(&mut tree, dir, b"root", b"/");
        assert_eq!(tree.resolve(b"/d/root/d", true), Ok(dir));
    }

    #[test]
    fn names_and_links_are_counted() {
        let mut tree = tree();
        let dir = tree.add_dir(ROOT, b"d", NodeMeta::default()).unwrap();
        let file = tree.add(dir, b"f", NodeMeta::default(), |_, _| Content::File).unwrap();
        tree.link(file, ROOT, b"g").unwrap();
        assert_eq!(tree.link(file, ROOT, b"g"), Err(FsError::Exists));
        assert_eq!(tree.link(dir, ROOT, b"h"), Err(FsError::Perm));
        assert_eq!(tree.unlink(ROOT, b"d"), Err(FsError::NotEmpty));
        assert_eq!(tree.unlink(dir, b"f"), Ok((file, false)));
        assert_eq!(tree.unlink(ROOT, b"d"), Ok((dir, true)));
        assert_eq!(tree.dir(ROOT).unwrap().subdirs, 0);
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(tree.link(file, ROOT, bad), Err(FsError::Invalid(_))), "{bad:?}");
        }
        assert_eq!(tree.link(file, ROOT, &[b'x'; 256]), Err(FsError::NameTooLong));
    }
}
