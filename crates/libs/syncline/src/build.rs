//! Images that are made of a tree in one pass.

use std::fs::{File, OpenOptions as HostOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use syncline_device::{FileDevice, FileOptions, GrowingFile};
use syncline_fs::bits;
use syncline_fs::build::{Build, NodeId, NodeMeta, ROOT, Size};

use crate::disk::check_host_path;
use crate::error::{Error, Result};
use crate::tools::Make;

/// Block size where [`Make`] has none.
const BLOCK_BYTES: u32 = 4096;

/// What an entry of a [`Builder`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Node<'a> {
    /// A directory; one that is there gets the attributes.
    Directory,
    /// A file, whose contents [`Builder::write`] takes next.
    File,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// One more name of the file at this path.
    Link(&'a [u8]),
    /// A device, pipe or socket, by the type bits of the mode; the number is Linux's.
    Special(u64),
}

/// A new image that is filled with a tree, and then made: one pass, no journal, the same bytes for
/// the same calls.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("root.img");
/// use syncline::{Builder, Disk, Make, Node, NodeMeta, OpenOptions, Size, Spare};
///
/// let room = Size::Spare(Spare::Bytes(16 << 20));
/// let mut builder = Builder::new(&path, &Make::default(), room)?;
/// let meta = NodeMeta { mode: 0o644, ..NodeMeta::default() };
/// builder.add(b"/etc/hostname", Node::File, meta, &[(b"user.a", b"1")])?;
/// builder.write(b"card\n")?;
/// builder.add(b"/init", Node::Symlink(b"/bin/init"), meta, &[])?;
/// let size_bytes = builder.finish()?;
/// assert_eq!(std::fs::metadata(&path)?.len(), size_bytes);
/// Disk::open(&path, &OpenOptions::default())?.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Directories that no entry names have mode 0755 and belong to root. An image below 8 MiB has no
/// journal, as with mke2fs, and is only read from then on. An image that is dropped
/// before [`Builder::finish`] is removed.
pub struct Builder {
    build: Build<GrowingFile>,
    image: New,
    size: Size,
    missing: NodeMeta,
    open: Option<(NodeId, u64)>,
    _lock: FileDevice,
}

/// A file that is removed unless it was made.
struct New {
    file: File,
    path: PathBuf,
    made: bool,
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.made {
            // What is left is no file system.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Builder {
    /// Begins an image at a path where nothing is. The size in `make` is not used.
    ///
    /// # Errors
    /// EEXIST, EINVAL and EOPNOTSUPP for options, and what the host says.
    pub fn new(path: &Path, make: &Make, size: Size) -> Result<Builder> {
        check_host_path(path)?;
        let host = |err| Error::host(path.display(), &err);
        let mut options = make.options()?;
        options.zeroed = true;
        options.block_bytes.get_or_insert(BLOCK_BYTES);
        let made =
            HostOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let image = New { file: made.map_err(host)?, path: path.to_owned(), made: false };
        let lock = FileDevice::open(path, FileOptions::default())?;
        let device = GrowingFile::new(image.file.try_clone().map_err(host)?);
        let build = Build::new(device, &options, size)?;
        let root = build.meta(ROOT);
        let missing = NodeMeta { mode: bits::S_IFDIR | 0o755, uid: 0, gid: 0, ..root };
        Ok(Builder { build, image, size, missing, open: None, _lock: lock })
    }

    /// Adds an entry. Attributes are full names and values; ACLs are as setxattr takes them.
    ///
    /// # Errors
    /// EEXIST, ENOTDIR, ENOENT for a link to nothing, ENOSPC, EINVAL, and those of attributes.
    pub fn add(
        &mut self,
        path: &[u8],
        node: Node<'_>,
        meta: NodeMeta,
        xattrs: &[(&[u8], &[u8])],
    ) -> Result<()> {
        let at = |err| Error::from(err).at(path.escape_ascii());
        self.open = None;
        let (dir, name) = self.build.parent(path, self.missing).map_err(at)?;
        let known = if name.is_empty() { Some(ROOT) } else { self.build.lookup(dir, name).ok() };
        let id = match (node, known) {
            (Node::Directory, Some(known)) if self.build.names(known).is_ok() => known,
            (Node::Directory, _) => self.build.mkdir(dir, name, meta).map_err(at)?,
            (Node::File, _) => self.build.file(dir, name, meta).map_err(at)?,
            (Node::Symlink(target), _) => {
                let meta = NodeMeta { mode: 0o777, ..meta };
                self.build.symlink(dir, name, meta, target).map_err(at)?
            }
            (Node::Special(rdev), _) => self.build.special(dir, name, meta, rdev).map_err(at)?,
            (Node::Link(target), _) => {
                let id = self.build.resolve(target, false).map_err(at)?;
                return self.build.link(id, dir, name).map_err(at);
            }
        };
        if matches!(node, Node::Directory) {
            self.build.set_meta(id, meta);
        }
        self.build.set_xattrs(id, xattrs).map_err(|(_, err)| at(err))?;
        self.open = matches!(node, Node::File).then_some((id, 0));
        Ok(())
    }

    /// Appends to the file that was added last.
    ///
    /// # Errors
    /// EINVAL if that was no file; ENOSPC, EIO.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((id, end)) = &mut self.open else {
            return Err(Error::invalid("the entry that was added last is not a file"));
        };
        self.build.write(*id, *end, bytes)?;
        *end += bytes.len() as u64;
        Ok(())
    }

    /// Leaves a hole in the file that was added last.
    ///
    /// # Errors
    /// As [`Builder::write`].
    pub fn skip(&mut self, bytes: u64) -> Result<()> {
        let Some((id, end)) = &mut self.open else {
            return Err(Error::invalid("the entry that was added last is not a file"));
        };
        *end = end.saturating_add(bytes);
        Ok(self.build.set_size(*id, *end)?)
    }

    /// Makes the image; returns its size in bytes.
    ///
    /// # Errors
    /// ENOSPC if the tree does not fit; EIO. The image is removed.
    pub fn finish(self) -> Result<u64> {
        let Builder { build, mut image, size, _lock, .. } = self;
        let built = build.finish()?;
        let bytes = if let Size::Bytes(bytes) = size { bytes } else { built.size_bytes };
        let sized = image.file.set_len(bytes);
        sized.map_err(|err| Error::host(image.path.display(), &err))?;
        image.made = true;
        Ok(bytes)
    }
}
