//! New file systems with a tree in them, laid out in one pass.
//!
//! ```text
//!   while the tree comes            at the end, when all is known
//!   |sb, descs.| contents of files | directories, xattrs | bitmaps, inode tables | journal | free
//!               \_ one behind the other, in the order in which they come
//!
//!   Build: tree (names, inodes) and contents (blocks, runs) -> finish: dirs, attrs, extents
//!          -> size -> inode tables, bitmaps, descriptors, and the superblock last
//! ```
//!
//! Nothing is read back, no journal is written, and every request is of 1 MiB or more where the
//! contents are. Contents go to the device as they come, so a tree can be a stream whose size
//! nobody knows. Tables follow the contents (`flex_bg`), so their size need not be known before.
//!
//! Promises
//! - Equal calls give equal bytes. No clock, thread, random source or file is used.
//! - A file is one extent unless a backup of the superblock is in its way, or a hole.
//! - Contents that were removed, or that got no name, are overwritten with zeros.
//! - The superblock is written last, after a flush. Before that the device holds no file system.
//! - [`Size::Minimum`] is the smallest size: with one unit of 4 KiB less the tree does not fit.
//!   It has no free inode but those that fill table blocks, and no blocks reserved for root. A tree
//!   below 1 MiB may leave free blocks that were kept for descriptors, 7 or (blocks of 1 KiB) 63.
//! - [`Size::Spare`] never runs out of blocks or inodes. With [`Size::Bytes`] a tree fits if its
//!   blocks and those of the tables do; reserved blocks are used too.
//! - Memory: about 200 bytes for a name and its inode, 16 for each run of a file, and 2 MiB.
//!
//! Assumptions
//! - The device takes writes up to the size that the result needs; its [`Geometry`] may say more.
//! - Contents come file by file, each from its start to its end.
//!
//! Limits: groups have their full size, so 8 inodes for each byte of a block at most; a tree of
//! nothing but empty files gets more blocks than it needs. A size that is not given ends at 512
//! GiB, the smallest at 64 GiB (1 KiB blocks: 8 GiB): above that descriptors would have no place.
//! The features extent, flex_bg and dir_index are needed; inline_data is not made.
//!
//! Tested in `tests/it/build.rs`: random trees against e2fsck, kernel mounts and our own reader,
//! sizes of all kinds, failing devices.
//!
//! [`Geometry`]: syncline_device::Geometry

mod attrs;
mod contents;
pub(crate) mod dirs;
mod finish;
mod fit;
mod tree;

pub use attrs::Xattr;
pub use tree::{NodeId, NodeMeta, ROOT};

use syncline_device::BlockDevice;
use syncline_ondisk::inode::{I_BLOCK_BYTES, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use syncline_ondisk::{CompatFeatures, Geometry, IncompatFeatures, Superblock};

use super::options::{Options, invalid};
use super::write;
use crate::error::{FsError, Result};
use crate::names::path::PATH_BYTES_MAX;
use attrs::Sets;
use contents::Contents;
use tree::{Content, Node, Tree};

/// Name of the directory for what e2fsck finds.
const LOST_FOUND: &[u8] = b"lost+found";

/// The size of a new file system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// In bytes.
    Bytes(u64),
    /// As small as the tree allows.
    Minimum,
    /// The size that the tree needs, and room for more.
    Spare(Spare),
}

/// Room beside the tree, for users other than root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spare {
    /// In percent of the bytes that the tree takes.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

/// A file system that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Built {
    /// Bytes from the start of the device.
    pub size_bytes: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
}

/// A file system that is filled before it is made.
pub struct Build<D: BlockDevice> {
    options: Options,
    size: Size,
    /// The layout that contents keep clear of.
    sb: Superblock,
    geo: Geometry,
    tree: Tree,
    contents: Contents<D>,
    sets: Sets,
    /// The file whose contents come.
    open: Option<NodeId>,
}

impl<D: BlockDevice> Build<D> {
    /// Begins a file system. `options` needs a block size; inodes are a least number of them.
    ///
    /// # Errors
    /// Invalid or Unsupported: options that are refused. Io: the device failed.
    pub fn new(device: D, options: &Options, size: Size) -> Result<Self> {
        let sizes = fit::nominal(options, size)?;
        let (sb, geo) = (sizes.sb, sizes.geo);
        let needs = IncompatFeatures::EXTENTS.union(IncompatFeatures::FLEX_BG);
        let sparse2 = CompatFeatures::SPARSE_SUPER2;
        if !sb.s_feature_incompat.contains(needs)
            || !sb.s_feature_compat.contains(CompatFeatures::DIR_INDEX)
            || sb.s_feature_compat.contains(sparse2) && !matches!(size, Size::Bytes(_))
        {
            let text = "a tree needs extent, flex_bg and dir_index, and a size for sparse_super2; \
                        correct -O";
            return invalid(text.into());
        }
        // An old file system is not found any more.
        if let Err(err) = write::clear(&device) {
            let _ = write::clear(&device);
            return Err(err);
        }
        let time = fit::time(options);
        let mut tree = Tree::new(time);
        let meta =
            NodeMeta { mode: S_IFDIR | 0o700, atime: time, mtime: time, ..Default::default() };
        (tree.nodes[0].meta.uid, tree.nodes[0].meta.gid) = options.root_owner;
        tree.add_dir(ROOT, LOST_FOUND, meta)?;
        let contents = Contents::new(device, &sb, &geo);
        let options = options.clone();
        Ok(Self { options, size, sb, geo, tree, contents, sets: Sets::default(), open: None })
    }

    /// Sets UUID and hash seed, which the directories depend on.
    pub fn set_identity(&mut self, uuid: [u8; 16], hash_seed: [u8; 16]) {
        (self.options.uuid, self.options.hash_seed) = (uuid, hash_seed);
    }

    /// Bytes of contents so far.
    #[must_use]
    pub fn filled_bytes(&self) -> u64 {
        self.contents.used.count() * self.geo.block_size as u64
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Exists, NotDir, NameTooLong, Invalid: the name or its place.
    pub fn mkdir(&mut self, dir: NodeId, name: &[u8], meta: NodeMeta) -> Result<NodeId> {
        self.tree.add_dir(dir, name, of_type(meta, S_IFDIR))
    }

    /// Makes a file and opens it for [`Self::write`]; the one before is closed.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; those of a write to the file before.
    pub fn file(&mut self, dir: NodeId, name: &[u8], meta: NodeMeta) -> Result<NodeId> {
        self.close()?;
        let meta = of_type(meta, S_IFREG);
        let id = self.tree.add(dir, name, meta, |_, _| Content::File)?;
        self.begin(id);
        Ok(id)
    }

    /// Makes a file without a name and opens it, as [`Self::file`]. It gets one by [`Self::link`];
    /// without one it is not made.
    ///
    /// # Errors
    /// Those of a write to the file before; NoSpace.
    pub fn unnamed_file(&mut self, meta: NodeMeta) -> Result<NodeId> {
        self.close()?;
        let id = self.tree.add_unnamed(of_type(meta, S_IFREG))?;
        self.begin(id);
        Ok(id)
    }

    /// Opens a file that has no contents yet.
    ///
    /// # Errors
    /// Invalid: it has, or is no file. Those of a write to the file before.
    pub fn open_empty(&mut self, id: NodeId) -> Result<()> {
        self.close()?;
        let node = self.tree.node(id);
        if !node.is_file() || node.size > 0 {
            return invalid("contents come file by file, from start to end".into());
        }
        self.begin(id);
        Ok(())
    }

    /// Returns whether an inode has a name.
    #[must_use]
    pub fn is_named(&self, id: NodeId) -> bool {
        self.tree.node(id).links > 0
    }

    /// Drops the contents of all files without a name.
    ///
    /// # Errors
    /// Those of a write to the open file; Io.
    pub fn discard_unnamed(&mut self) -> Result<()> {
        self.close()?;
        for node in self.tree.nodes.iter_mut().filter(|node| node.links == 0) {
            self.contents.free(std::mem::take(&mut node.runs))?;
        }
        Ok(())
    }

    fn begin(&mut self, id: NodeId) {
        self.tree.node_mut(id).runs = (self.contents.runs.len() as u32, 0);
        self.open = Some(id);
    }

    /// Writes to the open file, at or behind its end. What is left out reads as zeros and takes no
    /// blocks.
    ///
    /// # Errors
    /// Invalid: another file is open, or `at` is before its end. NoSpace, TooBig, Io.
    pub fn write(&mut self, file: NodeId, at: u64, bytes: &[u8]) -> Result<()> {
        let node = self.tree.node_mut(file);
        if self.open != Some(file) || at < node.size {
            return invalid("contents come file by file, from start to end".into());
        }
        self.contents.write(node.runs.0, at, bytes)?;
        node.size = at + bytes.len() as u64;
        Ok(())
    }

    /// Sets the size of the open file, at or behind its end.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn set_size(&mut self, file: NodeId, size: u64) -> Result<()> {
        let node = self.tree.node_mut(file);
        if self.open != Some(file) || size < node.size {
            return invalid("the size of a file is at or behind its contents".into());
        }
        if size > (self.geo.block_size as u64) << 32 {
            return Err(FsError::TooBig);
        }
        node.size = size;
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(id) = self.open.take() else { return Ok(()) };
        let from = self.tree.node(id).runs.0;
        self.contents.flush(from)?;
        self.tree.node_mut(id).runs.1 = self.contents.runs.len() as u32 - from;
        Ok(())
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; NotFound: an empty target. NameTooLong: it needs more than a block.
    pub fn symlink(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: NodeMeta,
        target: &[u8],
    ) -> Result<NodeId> {
        self.close()?;
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.contains(&0) {
            return invalid("a symbolic link's target cannot contain NUL".into());
        }
        // Linux stores the terminating NUL too.
        if target.len() > (self.geo.block_size - 1).min(PATH_BYTES_MAX) {
            return Err(FsError::NameTooLong);
        }
        let id = self.tree.add(dir, name, of_type(meta, S_IFLNK), |tree, _| {
            tree.targets.push(target.into());
            Content::Symlink(tree.targets.len() as u32 - 1)
        })?;
        self.begin(id);
        if target.len() >= I_BLOCK_BYTES {
            self.write(id, 0, target)?;
        }
        self.tree.node_mut(id).size = target.len() as u64;
        self.close()?;
        Ok(id)
    }

    /// Makes a device, pipe or socket, by the type bits of the mode. `rdev` is in Linux's encoding.
    ///
    /// # Errors
    /// As [`Self::mkdir`].
    pub fn special(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: NodeMeta,
        rdev: u64,
    ) -> Result<NodeId> {
        if matches!(meta.mode & S_IFMT, S_IFREG | S_IFDIR | S_IFLNK | 0) {
            return invalid("the mode is not that of a device, pipe or socket".into());
        }
        self.tree.add(dir, name, meta, |_, _| Content::Special(rdev))
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; Perm for a directory, TooManyLinks.
    pub fn link(&mut self, id: NodeId, dir: NodeId, name: &[u8]) -> Result<()> {
        self.tree.link(id, dir, name)
    }

    /// Takes a name away; with the last one the inode goes, and an empty directory.
    ///
    /// # Errors
    /// NotFound, NotEmpty, NotDir; Busy for lost+found.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.close()?;
        if dir == ROOT && name == LOST_FOUND {
            return Err(FsError::Busy);
        }
        let (id, last) = self.tree.unlink(dir, name)?;
        if last {
            let runs = std::mem::take(&mut self.tree.node_mut(id).runs);
            self.contents.free(runs)?;
        }
        Ok(())
    }

    /// As [`Self::unlink`], a directory with all that is in it.
    ///
    /// # Errors
    /// NotFound, NotDir; Busy for lost+found.
    pub fn remove_tree(&mut self, dir: NodeId, name: &[u8]) -> Result<()> {
        let mut left = vec![(dir, Box::<[u8]>::from(name))];
        while let Some((dir, name)) = left.last() {
            let id = self.lookup(*dir, name)?;
            match self.tree.dir(id).ok().and_then(|dir| dir.entries.keys().next()) {
                Some(below) => left.push((id, below.clone())),
                None => {
                    self.unlink(*dir, &name.clone())?;
                    left.pop();
                }
            }
        }
        Ok(())
    }

    /// Sets owner, permissions and times.
    pub fn set_meta(&mut self, id: NodeId, meta: NodeMeta) {
        let node = self.tree.node_mut(id);
        node.meta = of_type(meta, node.file_type());
    }

    /// Sets all attributes of an inode. The permissions of an ACL are those of the mode.
    ///
    /// # Errors
    /// The place of the attribute in `xattrs` that cannot be kept, and why: NoSpace does not fit;
    /// the others are those of [`crate::Volume::setxattr`].
    pub fn set_xattrs(
        &mut self,
        id: NodeId,
        xattrs: &[Xattr<'_>],
    ) -> std::result::Result<(), (usize, FsError)> {
        let room = fit::xattr_bytes(self.geo.inode_size);
        let node = self.tree.node_mut(id);
        node.xattrs = self.sets.add(node.meta.mode, xattrs, (room, self.geo.block_size))?;
        Ok(())
    }

    /// The inode at a path from the root.
    ///
    /// # Errors
    /// NotFound, NotDir, Loop, NameTooLong.
    pub fn resolve(&self, path: &[u8], follow_last: bool) -> Result<NodeId> {
        self.tree.resolve(path, follow_last)
    }

    /// The inode with a name in a directory.
    ///
    /// # Errors
    /// NotFound, NotDir.
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<NodeId> {
        self.tree.dir(dir)?.entries.get(name).copied().ok_or(FsError::NotFound)
    }

    /// The directory for a path, and the name in it. Directories that are missing are made.
    ///
    /// # Errors
    /// As [`Self::mkdir`]; Loop.
    pub fn parent<'p>(&mut self, path: &'p [u8], missing: NodeMeta) -> Result<(NodeId, &'p [u8])> {
        let trimmed = &path[..path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1)];
        let at = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (above, name) = trimmed.split_at(at);
        for (end, _) in above.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/') {
            if let Err(FsError::NotFound) = self.resolve(&above[..end], true) {
                let (dir, name) = self.parent(&above[..end], missing)?;
                self.mkdir(dir, name, missing)?;
            }
        }
        Ok((self.resolve(above, true)?, name))
    }

    /// Owner, permissions and times.
    #[must_use]
    pub fn meta(&self, id: NodeId) -> NodeMeta {
        self.tree.node(id).meta
    }

    /// The names in a directory, sorted.
    ///
    /// # Errors
    /// NotDir.
    pub fn names(&self, dir: NodeId) -> Result<impl Iterator<Item = &[u8]>> {
        Ok(self.tree.dir(dir)?.entries.keys().map(|name| &name[..]))
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.geo.block_size
    }
}

fn of_type(meta: NodeMeta, file_type: u16) -> NodeMeta {
    NodeMeta { mode: meta.mode & !S_IFMT | file_type, ..meta }
}

impl<D: BlockDevice> Build<D> {
    /// Inodes that are made, in the order of their numbers.
    fn live(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let all = (0..).map(NodeId).zip(&self.tree.nodes);
        all.filter(|(_, node)| node.links > 0)
    }
}
