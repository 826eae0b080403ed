//! New images with a tree in them ([`syncline_fs::build`]), as a side of a copy: what fills an
//! image through its volume fills these.
//!
//! ```text
//!   archive or directory -> NewTree -> syncline_fs::build -> behind -> a file that grows
//! ```
//!
//! Promises
//! - If it fails, no image is left. One whose making was cut off holds no file system.
//! - With a time given, equal trees give equal bytes: the identifier is made from time, label and
//!   the bytes of the contents.
//!
//! Nothing is read back. Tested in `tests/it/build.rs` and `cli/tests`.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;

use syncline_device::{BlockDevice, FileDevice, FileOptions, GrowingFile};
use syncline_fs::build::{Build, Built, NodeId, NodeMeta, Size};
use syncline_fs::{FsError, Timestamp, bits};

use crate::behind::Behind;
use crate::copy::side::{Kind, Meta, Reader, Side, Writer, Xattr};
use crate::mkfs::Mkfs;
use crate::{ImageError, Result, platform};

/// Permissions of files until they get their own.
const NEW_MODE: u16 = 0o600;

type Tree = Build<Box<dyn BlockDevice>>;

/// The tree of an image that is being made.
pub struct NewTree {
    build: Rc<RefCell<Tree>>,
    /// Time of the volume, and of directories that no archive names.
    time: Timestamp,
    /// The image itself, which no copy may read.
    pub(crate) itself: Vec<(u64, u64)>,
    /// The directory that was used last: files come directory by directory.
    last: RefCell<(Vec<u8>, NodeId)>,
}

/// Makes an image with what `fill` puts into it.
///
/// # Errors
/// Those of `fill`; options that are refused; a tree that does not fit; the host fails.
pub fn build<T>(
    path: &Path,
    new: &Mkfs,
    size: Size,
    fill: impl FnOnce(&NewTree) -> Result<T>,
) -> Result<T> {
    let make = |raw: &Path| {
        let made = platform::create_private(raw, new.mode, true);
        let file = made.map_err(|err| ImageError::host(raw, &err))?;
        let done = filled(file, raw, new, size, fill);
        if done.is_err() {
            // Nothing half-made stays; the first error counts.
            let _ = std::fs::remove_file(raw);
        }
        done
    };
    if crate::qcow2::is_named(path) { new.packed(path, false, make) } else { make(path) }
}

fn filled<T>(
    file: File,
    path: &Path,
    new: &Mkfs,
    size: Size,
    fill: impl FnOnce(&NewTree) -> Result<T>,
) -> Result<T> {
    // Nobody else opens it meanwhile.
    let lock = FileDevice::open_new(path, FileOptions::default())?;
    let output = file.try_clone().map_err(|err| ImageError::host(path, &err))?;
    let (done, built) =
        on_device(Box::new(Behind::new(GrowingFile::new(output))), path, new, size, fill)?;
    let bytes = if let Size::Bytes(bytes) = size { bytes } else { built.size_bytes };
    file.set_len(bytes).map_err(|err| ImageError::host(path, &err))?;
    drop(lock);
    Ok(done)
}

/// Makes a file system on a device that reads as zeros. `path` is for messages.
///
/// # Errors
/// As [`build`].
pub fn on_device<T>(
    device: Box<dyn BlockDevice>,
    path: &Path,
    new: &Mkfs,
    size: Size,
    fill: impl FnOnce(&NewTree) -> Result<T>,
) -> Result<(T, Built)> {
    let failed = |err: FsError| match err {
        FsError::NoSpace => full().at(path.display()),
        err => crate::mkfs::failed(err, path),
    };
    let options = new.tree_options(size);
    let build = Build::new(device, &options, size).map_err(failed)?;
    let tree = NewTree {
        build: Rc::new(RefCell::new(build)),
        itself: platform::identity(path).into_iter().collect(),
        time: Timestamp { seconds: options.time_s as i64, nanoseconds: 0 },
        last: RefCell::new((b"/".to_vec(), syncline_fs::build::ROOT)),
    };
    let done = fill(&tree)?;
    let Ok(build) = Rc::try_unwrap(tree.build) else {
        return Err(ImageError::Failed("a file of the tree is still open".into()));
    };
    let mut build = build.into_inner();
    let (uuid, hash_seed) = new.identity(options.time_s, build.filled_bytes());
    build.set_identity(uuid, hash_seed);
    Ok((done, build.finish().map_err(failed)?))
}

struct NewFile {
    build: Rc<RefCell<Tree>>,
    id: NodeId,
    path: Vec<u8>,
}

/// Nothing can be deleted in an image that is not complete: another one can be larger.
fn full() -> ImageError {
    ImageError::Final("no space left in an image of this size; give a larger --size".into())
}

fn at(path: &[u8]) -> impl Fn(FsError) -> ImageError + '_ {
    // There is nothing to recover in an image that is not complete.
    move |err| match err {
        FsError::Io(_) => crate::mkfs::failed(err, &platform::path_of(path)),
        FsError::NoSpace => full().at(path.escape_ascii()),
        err => ImageError::from(err).at(path.escape_ascii()),
    }
}

impl Writer for NewFile {
    fn write(&mut self, offset: u64, from: &[u8]) -> Result<()> {
        self.build.borrow_mut().write(self.id, offset, from).map_err(at(&self.path))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.build.borrow_mut().set_size(self.id, len).map_err(at(&self.path))
    }
}

/// Refuses what only the source of a copy does.
fn unread<T>(path: &[u8]) -> Result<T> {
    Err(at(path)(FsError::NotSupported("reading an image that is being made".into())))
}

impl NewTree {
    fn new_meta(&self, file_type: u16) -> NodeMeta {
        let (atime, mtime) = (self.time, self.time);
        NodeMeta { mode: file_type | NEW_MODE, atime, mtime, ..NodeMeta::default() }
    }

    fn resolve(&self, path: &[u8], follow: bool) -> syncline_fs::Result<NodeId> {
        let (dir, name) = self.parent(path)?;
        if name.is_empty() {
            return Ok(dir);
        }
        let build = self.build.borrow();
        let id = build.lookup(dir, name)?;
        if follow && build.meta(id).mode & bits::S_IFMT == bits::S_IFLNK {
            return build.resolve(path, true);
        }
        Ok(id)
    }

    /// The directory of a path and the name in it, which is empty for the root.
    fn parent<'p>(&self, path: &'p [u8]) -> syncline_fs::Result<(NodeId, &'p [u8])> {
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let (dir, name) =
            (&path[..slash.max(1).min(path.len())], &path[(slash + 1).min(path.len())..]);
        let mut last = self.last.borrow_mut();
        if last.0 != dir {
            let id = self.build.borrow().resolve(dir, true)?;
            last.0.clear();
            last.0.extend_from_slice(dir);
            last.1 = id;
        }
        Ok((last.1, name))
    }

    /// Calls `op` with the directory and the name in it.
    fn place<T>(
        &self,
        path: &[u8],
        op: impl FnOnce(&mut Tree, NodeId, &[u8]) -> syncline_fs::Result<T>,
    ) -> Result<T> {
        let place = self.parent(path);
        let done = place.and_then(|(dir, name)| op(&mut self.build.borrow_mut(), dir, name));
        done.map_err(at(path))
    }

    /// As [`Self::place`], for what may change where paths lead.
    fn change<T>(
        &self,
        path: &[u8],
        op: impl FnOnce(&mut Tree, NodeId, &[u8]) -> syncline_fs::Result<T>,
    ) -> Result<T> {
        let done = self.place(path, op);
        *self.last.borrow_mut() = (b"/".to_vec(), syncline_fs::build::ROOT);
        done
    }
}

/// Files whose contents come before their names: those of layers, the last of which comes first.
impl NewTree {
    /// Makes a file without a name.
    pub(crate) fn unnamed(&self) -> Result<NodeId> {
        Ok(self.build.borrow_mut().unnamed_file(self.new_meta(bits::S_IFREG))?)
    }

    /// Opens a file that was made last, or that has no contents yet. `path` is for messages.
    pub(crate) fn filling(&self, id: NodeId, path: &[u8]) -> Result<Box<dyn Writer>> {
        self.build.borrow_mut().open_empty(id).map_err(at(path))?;
        Ok(Box::new(NewFile { build: Rc::clone(&self.build), id, path: path.to_vec() }))
    }

    /// Gives a file a name.
    pub(crate) fn name(&self, id: NodeId, path: &[u8]) -> Result<()> {
        self.place(path, |build, dir, name| build.link(id, dir, name))
    }

    /// Returns whether a file has a name.
    pub(crate) fn is_named(&self, id: NodeId) -> bool {
        self.build.borrow().is_named(id)
    }

    /// The kind of what is at a path, links in its last part not followed. None: there is nothing,
    /// or a part of the path is no directory.
    pub(crate) fn kind_at(&self, path: &[u8]) -> Result<Option<Kind>> {
        match self.resolve(path, false) {
            Ok(id) => {
                let mode = self.build.borrow().meta(id).mode;
                Ok(Some(Meta { mode: mode.into(), ..Meta::default() }.kind()))
            }
            Err(FsError::NotFound | FsError::NotDir | FsError::Loop) => Ok(None),
            Err(err) => Err(at(path)(err)),
        }
    }

    /// Removes a file, or a directory with what is in it. Only the contents of `/lost+found` go.
    pub(crate) fn remove_tree(&self, path: &[u8]) -> Result<()> {
        if path == b"/lost+found" {
            return self.remove_below(path);
        }
        self.change(path, |build, dir, name| build.remove_tree(dir, name))
    }

    /// Removes what is in a directory.
    pub(crate) fn remove_below(&self, path: &[u8]) -> Result<()> {
        let below = self.list(path)?;
        below.iter().try_for_each(|name| self.remove_tree(&crate::names::join(path, name)))
    }

    /// Drops the contents of all files that got no name, or lost it.
    pub(crate) fn discard_unnamed(&self) -> Result<()> {
        Ok(self.build.borrow_mut().discard_unnamed()?)
    }
}

impl Side for NewTree {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let id = match self.resolve(path, follow) {
            Ok(id) => id,
            Err(FsError::NotFound) => return Ok(None),
            Err(err) => return Err(at(path)(err)),
        };
        let meta = self.build.borrow().meta(id);
        let time = |time: Timestamp| (time.seconds, time.nanoseconds);
        Ok(Some(Meta {
            mode: meta.mode.into(),
            uid: meta.uid,
            gid: meta.gid,
            id: (0, id.number()),
            atime: time(meta.atime),
            mtime: time(meta.mtime),
            ..Meta::default()
        }))
    }

    fn stages(&self) -> bool {
        // Nobody sees the image before it is complete.
        false
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let id = self.resolve(path, true).map_err(at(path))?;
        let build = self.build.borrow();
        let names = build.names(id).map_err(at(path))?;
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        unread(path)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        unread(path)
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        unread(path)
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        let meta = self.new_meta(bits::S_IFREG);
        let id = self.place(path, |build, dir, name| build.file(dir, name, meta))?;
        Ok(Box::new(NewFile { build: Rc::clone(&self.build), id, path: path.to_vec() }))
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        let meta = self.new_meta(bits::S_IFDIR);
        self.place(path, |build, dir, name| build.mkdir(dir, name, meta).map(drop))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let meta = NodeMeta { mode: bits::S_IFLNK | 0o777, ..NodeMeta::default() };
        let block_size = self.build.borrow().block_bytes();
        let made = self
            .place(path, |build, dir, name| Ok(build.symlink(dir, name, meta, target).map(drop)))?;
        match made {
            Err(FsError::NameTooLong) => {
                Err(crate::copy::volume::long_link(target, block_size).at(path.escape_ascii()))
            }
            other => other.map_err(at(path)),
        }
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        let id = self.resolve(existing, false).map_err(at(existing))?;
        self.place(path, |build, dir, name| build.link(id, dir, name))
    }

    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()> {
        let new = self.new_meta(meta.file_type());
        self.place(path, |build, dir, name| build.special(dir, name, new, meta.rdev).map(drop))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        self.link(from, to)?;
        self.unlink(from)
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.change(path, |build, dir, name| build.unlink(dir, name))
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.unlink(path)
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        let id = self.resolve(path, false).map_err(at(path))?;
        let mut build = self.build.borrow_mut();
        let old = build.meta(id);
        let time = |(seconds, nanoseconds): (i64, u32)| Timestamp { seconds, nanoseconds };
        let is_link = meta.kind() == Kind::Symlink;
        let mode = if is_link { old.mode } else { (meta.mode & 0o7777) as u16 };
        let Some(preserve) = preserve else {
            build.set_meta(id, NodeMeta { mode, ..old });
            return Ok(None);
        };
        build.set_meta(
            id,
            NodeMeta {
                mode,
                uid: meta.uid,
                gid: meta.gid,
                atime: time(meta.atime),
                mtime: time(meta.mtime),
            },
        );
        let mut xattrs: Vec<(&[u8], &[u8])> =
            preserve.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let mut remark = None;
        while let Err((i, err)) = build.set_xattrs(id, &xattrs) {
            let (name, value) = xattrs.remove(i);
            match err {
                FsError::NoSpace => {
                    let bytes = (value.len(), build.block_bytes());
                    return Err(crate::copy::volume::too_large(path, name, bytes));
                }
                FsError::NotSupported(_) | FsError::Perm | FsError::Invalid(_) => {
                    let (shown, name) =
                        (String::from_utf8_lossy(path), String::from_utf8_lossy(name));
                    remark = Some(format!("{shown}: attribute {name} not kept: {err}"));
                }
                err => return Err(at(path)(err)),
            }
        }
        Ok(remark)
    }
}
