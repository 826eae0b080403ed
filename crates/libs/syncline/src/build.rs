//! Images that are made of a tree in one pass.

use std::fs::{File, OpenOptions as HostOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use syncline_device::{FileDevice, FileOptions, GrowingFile};
use syncline_fs::bits;
use syncline_fs::build::{Build, NodeId, NodeMeta, ROOT, Size, Spare};
use syncline_fs::{SetAttr, SetTime};

use crate::disk::check_host_path;
use crate::error::{Error, Result};
use crate::tools::Make;

/// Extended attributes of an entry.
type Xattrs<'a> = &'a [(&'a [u8], &'a [u8])];

/// Block size where [`Make`] has none.
const BLOCK_BYTES: u32 = 4096;

/// A new image that is filled with a tree, and then made: one pass, no journal, the same bytes for
/// the same calls.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("root.img");
/// use syncline::{Builder, Disk, Make, OpenOptions, SetAttr};
///
/// let make = Make::default().with(|make| make.spare_bytes = Some(16 << 20));
/// let mut builder = Builder::new(&path, &make)?;
/// let attr = SetAttr { mode: Some(0o600), ..SetAttr::default() };
/// builder.file(b"/etc/hostname", &attr, &[(b"user.a", b"1")])?;
/// builder.write(b"card\n")?;
/// builder.symlink(b"/init", b"/bin/init", &SetAttr::default(), &[])?;
/// let size_bytes = builder.finish()?;
/// assert_eq!(std::fs::metadata(&path)?.len(), size_bytes);
/// Disk::open(&path, &OpenOptions::default())?.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Attributes that are not given: mode 0755 of directories and 0644 of others, root, the time of
/// the image. Directories that no entry names are made with these. An image below 8 MiB has no
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
    /// Begins an image at a path where nothing is.
    ///
    /// # Errors
    /// EEXIST, EINVAL and EOPNOTSUPP for options, and what the host says.
    pub fn new(path: &Path, make: &Make) -> Result<Builder> {
        check_host_path(path)?;
        let size = match (make.size_bytes, make.spare_bytes, make.spare_percent) {
            (None, None, None) => Size::Minimum,
            (Some(bytes), None, None) => Size::Bytes(bytes),
            (None, Some(bytes), None) => Size::Spare(Spare::Bytes(bytes)),
            (None, None, Some(percent)) => Size::Spare(Spare::Percent(percent.into())),
            _ => return Err(Error::invalid("a size and room beside the tree exclude each other")),
        };
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

    /// Adds a directory; one that is there gets the attributes. `xattrs` are full names and values;
    /// ACLs are as setxattr takes them.
    ///
    /// # Errors
    /// EEXIST, ENOTDIR, ENOSPC, EINVAL, and those of attributes.
    pub fn directory(&mut self, path: &[u8], attr: &SetAttr, xattrs: Xattrs<'_>) -> Result<()> {
        let meta = self.meta(0o755, attr)?;
        self.add(path, xattrs, |build, dir, name| {
            let known = if name.is_empty() { Some(ROOT) } else { build.lookup(dir, name).ok() };
            let known = known.filter(|known| build.names(*known).is_ok());
            let id = known.map_or_else(|| build.mkdir(dir, name, meta), Ok)?;
            build.set_meta(id, meta);
            Ok(id)
        })?;
        Ok(())
    }

    /// Adds a file, whose contents [`Builder::write`] takes next.
    ///
    /// # Errors
    /// As [`Builder::directory`].
    pub fn file(&mut self, path: &[u8], attr: &SetAttr, xattrs: Xattrs<'_>) -> Result<()> {
        let meta = self.meta(0o644, attr)?;
        let id = self.add(path, xattrs, |build, dir, name| build.file(dir, name, meta))?;
        self.open = Some((id, 0));
        Ok(())
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// As [`Builder::directory`]; ENAMETOOLONG for the target.
    pub fn symlink(
        &mut self,
        path: &[u8],
        target: &[u8],
        attr: &SetAttr,
        xattrs: Xattrs<'_>,
    ) -> Result<()> {
        let meta = NodeMeta { mode: 0o777, ..self.meta(0o777, attr)? };
        self.add(path, xattrs, |build, dir, name| build.symlink(dir, name, meta, target))?;
        Ok(())
    }

    /// Adds a device, pipe or socket, by the type bits of the mode; `rdev` is Linux's number.
    ///
    /// # Errors
    /// As [`Builder::directory`].
    pub fn special(
        &mut self,
        path: &[u8],
        rdev: u64,
        attr: &SetAttr,
        xattrs: Xattrs<'_>,
    ) -> Result<()> {
        let meta = self.meta(0, attr)?;
        self.add(path, xattrs, |build, dir, name| build.special(dir, name, meta, rdev))?;
        Ok(())
    }

    /// Gives the file at `target` one more name.
    ///
    /// # Errors
    /// As [`Builder::directory`]; ENOENT: nothing is there.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let at = |err| Error::from(err).at(path.escape_ascii());
        self.open = None;
        let (dir, name) = self.build.parent(path, self.missing).map_err(at)?;
        let id = self.build.resolve(target, false).map_err(at)?;
        self.build.link(id, dir, name).map_err(at)
    }

    fn meta(&self, mode: u16, attr: &SetAttr) -> Result<NodeMeta> {
        if attr.size.is_some() || attr.ctime.is_some() || attr.flags.is_some() {
            return Err(Error::invalid("an entry has no size, time of change or flags of its own"));
        }
        let time = |time: Option<SetTime>, now| match time {
            Some(SetTime::At(time)) => time,
            Some(SetTime::Now) | None => now,
        };
        Ok(NodeMeta {
            mode: attr.mode.unwrap_or(mode),
            uid: attr.uid.unwrap_or(0),
            gid: attr.gid.unwrap_or(0),
            atime: time(attr.atime, self.missing.atime),
            mtime: time(attr.mtime, self.missing.mtime),
        })
    }

    fn add(
        &mut self,
        path: &[u8],
        xattrs: Xattrs<'_>,
        make: impl FnOnce(&mut Build<GrowingFile>, NodeId, &[u8]) -> syncline_fs::Result<NodeId>,
    ) -> Result<NodeId> {
        let at = |err| Error::from(err).at(path.escape_ascii());
        self.open = None;
        let (dir, name) = self.build.parent(path, self.missing).map_err(at)?;
        let id = make(&mut self.build, dir, name).map_err(at)?;
        self.build.set_xattrs(id, xattrs).map_err(|(_, err)| at(err))?;
        Ok(id)
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
