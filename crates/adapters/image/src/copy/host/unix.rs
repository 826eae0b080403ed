//! Linux and macOS. Files are reached through descriptors of their directories.
//!
//! ```text
//!   the path that the user named -> base, opened once, links are followed
//!     d/e        openat2(base, BENEATH | NO_SYMLINKS), or O_NOFOLLOW for each part
//!       f        *at calls with NOFOLLOW; attributes through the descriptor of what was made
//! ```
//! Promise: a user who changes the directories during a copy cannot make it read or change anything
//! outside of them. No link is followed below the base. Attributes go to the inode that the copy
//! made, even if another one has its name by then. Tested in `cli/tests/it/races.rs`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::{HostFile, Stream, attributes, failed};
use crate::copy::side::{Meta, Reader, Side, Writer, Xattr};
use crate::stoppable::Stoppable;
use crate::{ImageError, Result, platform};

/// Directories that are kept open: a copy goes depth first.
const DIRS_MAX: usize = 4;
#[cfg(target_os = "linux")]
const SEARCH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const SEARCH: OFlags = OFlags::RDONLY;

/// The host's files in or beside a path that the user named.
pub(crate) struct Host {
    /// Permissions that new files do not get.
    umask: u32,
    /// The path of `base`.
    prefix: Vec<u8>,
    base: rustix::io::Result<Rc<OwnedFd>>,
    /// True if the path that was named may be a link, and something else than a file.
    follow: bool,
    /// Says whether a read of a pipe is to stop.
    stopped: fn() -> bool,
    /// The directories used last, by their path below `base`.
    dirs: RefCell<Vec<(Vec<u8>, Rc<OwnedFd>)>>,
    /// The file made last, which has no attributes yet.
    made: RefCell<Option<(Vec<u8>, File)>>,
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn sys_failed(path: &[u8]) -> impl Fn(Errno) -> ImageError + '_ {
    move |err| match err {
        Errno::LOOP | Errno::XDEV | Errno::MLINK => {
            let text =
                "a symbolic link is in its place; give the target of the link, or copy it again";
            ImageError::Failed(text.into()).at(path_of(path).display())
        }
        _ => ImageError::host(path_of(path), &err.into()),
    }
}

/// Opens a directory that the user named.
fn open_base(path: &[u8]) -> rustix::io::Result<Rc<OwnedFd>> {
    let path = if path.is_empty() { &b"."[..] } else { path };
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    sys::openat(CWD, path_of(path), flags, Mode::empty()).map(Rc::new)
}

impl Host {
    fn new(prefix: &[u8], follow: bool) -> Host {
        Host {
            umask: platform::umask(),
            prefix: prefix.to_vec(),
            base: open_base(prefix),
            follow,
            stopped: || false,
            dirs: RefCell::default(),
            made: RefCell::default(),
        }
    }

    /// Files in a directory. If it is named by a link, that is the caller's or root's.
    pub(crate) fn inside(dir: &[u8]) -> Host {
        let host = Host::target(dir);
        let (path, whole) = (crate::copy::trimmed(dir), host.prefix == dir);
        let Some(name) = crate::copy::last_name(path).filter(|_| !whole) else { return host };
        let base = host.base.as_ref().map_err(|err| *err);
        let link = base.and_then(|base| {
            let stat = sys::statat(&**base, path_of(name), AtFlags::SYMLINK_NOFOLLOW)?;
            let link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
            let ours = [0, platform::user().0].contains(&stat.st_uid);
            if link && !ours { Err(Errno::LOOP) } else { Ok(()) }
        });
        match link {
            Ok(()) => Host::new(dir, false),
            Err(err) => Host { prefix: dir.to_vec(), base: Err(err), ..host },
        }
    }

    /// A file or directory that is read. With `follow` it may be a link or a pipe.
    pub(crate) fn source(path: &[u8], follow: bool) -> Host {
        let path = crate::copy::trimmed(path);
        match crate::copy::last_name(path) {
            Some(name) => Host::new(path.strip_suffix(name).unwrap_or(path), follow),
            None => Host::new(path, false),
        }
    }

    /// Ends reads of a pipe when `stopped` says so.
    pub(crate) fn stopping(self, stopped: fn() -> bool) -> Host {
        Host { stopped, ..self }
    }

    /// A directory that is written into, or what is to be made. Who may write beside it could put a
    /// link there: one is followed only if the path has a slash at its end.
    pub(crate) fn target(path: &[u8]) -> Host {
        if path.ends_with(b"/") {
            let host = Host::new(path, false);
            return if host.base.is_ok() { host } else { Host::source(path, false) };
        }
        let beside = Host::source(path, false);
        let Some(name) = crate::copy::last_name(path) else { return beside };
        let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let base = beside.base.as_ref().map_err(|err| *err);
        match base.and_then(|base| sys::openat(&**base, path_of(name), flags, Mode::empty())) {
            Ok(dir) => Host { prefix: path.to_vec(), base: Ok(Rc::new(dir)), ..beside },
            Err(_) => beside,
        }
    }

    /// The directory of a path and the name in it; `.` is the base itself.
    fn place<'p>(&self, path: &'p [u8]) -> rustix::io::Result<(Rc<OwnedFd>, &'p [u8])> {
        let base = self.base.clone()?;
        let below = path.strip_prefix(&self.prefix[..]).ok_or(Errno::XDEV)?;
        let mut parts: Vec<&[u8]> = below.split(|byte| *byte == b'/').collect();
        parts.retain(|part| !part.is_empty() && *part != b".");
        if parts.contains(&&b".."[..]) {
            return Err(Errno::XDEV);
        }
        let Some(name) = parts.pop() else { return Ok((base, b".")) };
        if parts.is_empty() {
            return Ok((base, name));
        }
        let dir = parts.join(&b'/');
        let mut dirs = self.dirs.borrow_mut();
        if let Some((_, open)) = dirs.iter().find(|(known, _)| *known == dir) {
            return Ok((Rc::clone(open), name));
        }
        let open = Rc::new(open_below(&base, &dir)?);
        if dirs.len() == DIRS_MAX {
            dirs.remove(0);
        }
        dirs.push((dir, Rc::clone(&open)));
        Ok((open, name))
    }

    /// Calls `op` with the directory and the name in it.
    fn at<T>(
        &self,
        path: &[u8],
        op: impl FnOnce(&OwnedFd, &Path) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let done = self.place(path).and_then(|(dir, name)| op(&dir, path_of(name)));
        done.map_err(sys_failed(path))
    }

    /// Reports whether this is the path that the user named, and may be a link.
    fn is_followed(&self, path: &[u8]) -> bool {
        let below = path.strip_prefix(&self.prefix[..]).unwrap_or(path);
        self.follow && below.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).count() < 2
    }
}

/// Opens a directory below another, through no link.
#[cfg(target_os = "linux")]
fn open_below(base: &OwnedFd, dir: &[u8]) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match sys::openat2(base, path_of(dir), flags, Mode::empty(), resolve) {
        // Before Linux 5.6, and where a filter forbids it.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => walk(base, dir),
        other => other,
    }
}

#[cfg(not(target_os = "linux"))]
fn open_below(base: &OwnedFd, dir: &[u8]) -> rustix::io::Result<OwnedFd> {
    walk(base, dir)
}

/// As [`open_below`], part by part.
fn walk(base: &OwnedFd, dir: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = SEARCH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut open = rustix::io::fcntl_dupfd_cloexec(base, 0)?;
    for part in dir.split(|byte| *byte == b'/') {
        open = sys::openat(&open, path_of(part), flags, Mode::empty())?;
    }
    Ok(open)
}

/// The next range with data from there on: start and end; none behind the last.
pub(super) fn data(file: &HostFile, from: u64) -> Result<Option<(u64, u64)>> {
    if file.dense {
        return Ok((from < file.size).then_some((from, file.size)));
    }
    let start = match sys::seek(&file.file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not know holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) if from < file.size => {
            return Ok(Some((from, file.size)));
        }
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
        Err(err) => return Err(sys_failed(&file.path)(err)),
    };
    let end = sys::seek(&file.file, SeekFrom::Hole(start)).map_err(sys_failed(&file.path))?;
    Ok(Some((start, end)))
}

#[allow(clippy::useless_conversion, clippy::unnecessary_cast, reason = "macOS has other widths")]
fn meta_of(stat: &Stat) -> Meta {
    let nanos = |value| u32::try_from(value).unwrap_or(0);
    let device = matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::BlockDevice | FileType::CharacterDevice
    );
    Meta {
        mode: u32::from(stat.st_mode),
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        nlink: stat.st_nlink as u64,
        id: (stat.st_dev as u64, stat.st_ino as u64),
        rdev: if device { platform::device_of(stat.st_rdev as u64) } else { 0 },
        atime: (stat.st_atime as i64, nanos(stat.st_atime_nsec)),
        mtime: (stat.st_mtime as i64, nanos(stat.st_mtime_nsec)),
    }
}

impl Side for Host {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let flags = match follow && self.is_followed(path) {
            true => AtFlags::empty(),
            false => AtFlags::SYMLINK_NOFOLLOW,
        };
        let found =
            self.place(path).and_then(|(dir, name)| sys::statat(&*dir, path_of(name), flags));
        match found {
            Ok(stat) => Ok(Some(meta_of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(err) => Err(sys_failed(path)(err)),
        }
    }

    fn streams(&self) -> bool {
        true
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = self.at(path, |dir, name| sys::openat(dir, name, flags, Mode::empty()))?;
        let mut names = Vec::new();
        for entry in sys::Dir::new(dir).map_err(sys_failed(path))? {
            let name = entry.map_err(sys_failed(path))?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        let followed = self.is_followed(path);
        // A pipe in the place of a file must not be waited for here.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::RDONLY | OFlags::CLOEXEC;
        let flags = if followed { flags } else { flags | OFlags::NOFOLLOW };
        let file = self.at(path, |dir, name| sys::openat(dir, name, flags, Mode::empty()))?;
        let file = File::from(file);
        let meta = file.metadata().map_err(failed(path))?;
        if meta.is_file() {
            let dense = meta.blocks().saturating_mul(512) >= meta.len();
            let (path, size) = (path.to_vec(), meta.len());
            return Ok(Box::new(HostFile { file, path, size, dense }));
        }
        if !followed {
            let text = "something else took the file's place; copy it again";
            return Err(ImageError::Failed(text.into()).at(path_of(path).display()));
        }
        let file = Stoppable::new(file, self.stopped);
        Ok(Box::new(Stream { file, path: path.to_vec() }))
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.at(path, |dir, name| Ok(sys::readlinkat(dir, name, Vec::new())?.into_bytes()))
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        self.at(path, |dir, name| attributes::read(dir, name, path_of(path)))
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let file =
            self.at(path, |dir, name| sys::openat(dir, name, flags | OFlags::CLOEXEC, mode))?;
        let file = File::from(file);
        let same = file.try_clone().map_err(failed(path))?;
        *self.made.borrow_mut() = Some((path.to_vec(), same));
        Ok(Box::new(HostFile { file, path: path.to_vec(), size: 0, dense: true }))
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        self.at(path, |dir, name| sys::mkdirat(dir, name, Mode::RWXU))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        self.at(path, |dir, name| sys::symlinkat(path_of(target), dir, name))
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        let (from, old) = self.place(existing).map_err(sys_failed(existing))?;
        let flags = AtFlags::empty();
        self.at(path, |dir, name| sys::linkat(&*from, path_of(old), dir, name, flags))
    }

    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()> {
        self.at(path, |dir, name| platform::mknod(dir, name, meta.mode, meta.rdev))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let (dir, old) = self.place(from).map_err(sys_failed(from))?;
        self.at(to, |into, name| sys::renameat(&*dir, path_of(old), into, name))
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        self.at(path, |dir, name| sys::unlinkat(dir, name, AtFlags::empty()))
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        self.at(path, |dir, name| sys::unlinkat(dir, name, AtFlags::REMOVEDIR))
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        let made = self.made.borrow_mut().take_if(|(known, _)| known == path);
        let set = attributes::Set { meta, preserve, umask: self.umask, shown: path_of(path) };
        match made {
            Some((_, file)) => set.to_file(&file.into()).map_err(sys_failed(path)),
            None => self.at(path, |dir, name| set.to_name(dir, name)),
        }
    }
}
