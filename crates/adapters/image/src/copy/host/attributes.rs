//! Attributes of the host's files, read and set through descriptors.
//!
//! A file has a descriptor of its own. A link, pipe or device is pinned by one that opens nothing
//! (`O_PATH`), checked to be what was made, and reached through `/proc/self/fd`.

use std::ffi::OsStr;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::fs::{self as sys, AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result};

use crate::copy::side::{Kind, Meta, Xattr};
use crate::{plain, platform};

/// The largest list and value that Linux knows.
const XATTR_BYTES: usize = 64 << 10;
/// Most files have no attributes, which is asked with a small buffer.
const FEW_BYTES: usize = 64;

/// Reads the attributes of `name`, which is at `path`.
pub(super) fn read(dir: &OwnedFd, name: &Path, path: &Path) -> Result<Vec<Xattr>> {
    let kind = FileType::from_raw_mode(sys::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Directory) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match sys::openat(dir, name, flags | OFlags::NOCTTY, Mode::empty()) {
            Ok(file) => return of_file(&file),
            // Attributes are for those to see, too, who may not read the file.
            Err(Errno::ACCESS | Errno::PERM) => {}
            Err(err) => return Err(err),
        }
    }
    let file = beside(dir, name, path);
    let found =
        all(|into| sys::llistxattr(&file, into), |name, into| sys::lgetxattr(&file, name, into));
    // Without /proc there are none of links and devices.
    if found == Err(Errno::NOENT) { Ok(Vec::new()) } else { found }
}

/// Reads the attributes of an open file.
pub(super) fn of_file(file: impl AsFd) -> Result<Vec<Xattr>> {
    let list = |into: &mut [u8]| sys::flistxattr(&file, into);
    all(list, |name, into| sys::fgetxattr(&file, name, into))
}

/// A path for calls that know no descriptors: the directory is pinned, the name is not followed.
#[cfg(target_os = "linux")]
fn beside(dir: &OwnedFd, name: &Path, _: &Path) -> PathBuf {
    Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name)
}

#[cfg(not(target_os = "linux"))]
fn beside(_: &OwnedFd, _: &Path, path: &Path) -> PathBuf {
    path.to_owned()
}

fn all(
    list: impl Fn(&mut [u8]) -> Result<usize>,
    get: impl Fn(&OsStr, &mut [u8]) -> Result<usize>,
) -> Result<Vec<Xattr>> {
    let mut few = [0; FEW_BYTES];
    match list(&mut few) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        _ => {}
    }
    let mut buffer = vec![0_u8; XATTR_BYTES];
    let len = list(&mut buffer)?;
    let names = buffer.get(..len).unwrap_or(&[]).to_vec();
    let mut found = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match get(OsStr::from_bytes(name), &mut buffer) {
            Ok(len) => found.push((name.to_vec(), buffer.get(..len).unwrap_or(&[]).to_vec())),
            // Gone since, or not for us to read.
            Err(Errno::NODATA | Errno::PERM | Errno::NOTSUP) => {}
            Err(err) => return Err(err),
        }
    }
    Ok(found)
}

/// Attributes to be set.
pub(super) struct Set<'a> {
    pub(super) meta: &'a Meta,
    pub(super) preserve: Option<&'a [Xattr]>,
    pub(super) umask: u32,
    /// For remarks.
    pub(super) shown: &'a Path,
}

/// The calls on one file.
trait Target {
    fn own(&self, uid: Uid, gid: Gid) -> Result<()>;
    fn attribute(&self, name: &OsStr, value: &[u8]) -> Result<()>;
    fn permit(&self, mode: Mode) -> Result<()>;
    fn times(&self, times: &Timestamps) -> Result<()>;
}

impl Target for OwnedFd {
    fn own(&self, uid: Uid, gid: Gid) -> Result<()> {
        sys::fchown(self, Some(uid), Some(gid))
    }

    fn attribute(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        sys::fsetxattr(self, name, value, XattrFlags::empty())
    }

    fn permit(&self, mode: Mode) -> Result<()> {
        sys::fchmod(self, mode)
    }

    fn times(&self, times: &Timestamps) -> Result<()> {
        sys::futimens(self, times)
    }
}

/// A link, pipe, socket or device.
struct Pinned<'a> {
    dir: &'a OwnedFd,
    name: &'a Path,
    /// A path to the descriptor.
    path: PathBuf,
    #[cfg(target_os = "linux")]
    fd: OwnedFd,
}

#[cfg(target_os = "linux")]
impl<'a> Pinned<'a> {
    /// Pins what was made as `meta`; something else that has the name by now is refused.
    fn new(dir: &'a OwnedFd, name: &'a Path, _: &Path, meta: &Meta) -> Result<Pinned<'a>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = sys::openat(dir, name, flags, Mode::empty())?;
        let stat = sys::fstat(&fd)?;
        let made = stat.st_mode as u16 & syncline_fs::bits::S_IFMT == meta.file_type();
        let same = !meta.is_device() || stat.st_rdev == meta.rdev;
        let alone = meta.kind() == Kind::Dir || stat.st_nlink == 1;
        if !made || !same || !alone {
            return Err(Errno::LOOP);
        }
        let path = Path::new("/proc/self/fd").join(fd.as_raw_fd().to_string());
        Ok(Pinned { dir, name, path, fd })
    }
}

#[cfg(target_os = "linux")]
impl Target for Pinned<'_> {
    fn own(&self, uid: Uid, gid: Gid) -> Result<()> {
        sys::chownat(&self.fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
    }

    fn attribute(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        sys::setxattr(&self.path, name, value, XattrFlags::empty())
    }

    fn permit(&self, mode: Mode) -> Result<()> {
        sys::chmod(&self.path, mode)
    }

    fn times(&self, times: &Timestamps) -> Result<()> {
        match sys::utimensat(&self.fd, "", times, AtFlags::EMPTY_PATH) {
            // Before Linux 5.8.
            Err(Errno::INVAL) => {
                sys::utimensat(self.dir, self.name, times, AtFlags::SYMLINK_NOFOLLOW)
            }
            other => other,
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl<'a> Pinned<'a> {
    fn new(dir: &'a OwnedFd, name: &'a Path, path: &Path, _: &Meta) -> Result<Pinned<'a>> {
        Ok(Pinned { dir, name, path: path.to_owned() })
    }
}

#[cfg(not(target_os = "linux"))]
impl Target for Pinned<'_> {
    fn own(&self, uid: Uid, gid: Gid) -> Result<()> {
        sys::chownat(self.dir, self.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    fn attribute(&self, name: &OsStr, value: &[u8]) -> Result<()> {
        sys::lsetxattr(&self.path, name, value, XattrFlags::empty())
    }

    fn permit(&self, mode: Mode) -> Result<()> {
        sys::chmodat(self.dir, self.name, mode, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn times(&self, times: &Timestamps) -> Result<()> {
        sys::utimensat(self.dir, self.name, times, AtFlags::SYMLINK_NOFOLLOW)
    }
}

impl Set<'_> {
    /// To a file that was made.
    pub(super) fn to_file(&self, file: &OwnedFd) -> Result<Option<String>> {
        self.to(file)
    }

    /// To a directory, link, pipe or device.
    pub(super) fn to_name(&self, dir: &OwnedFd, name: &Path) -> Result<Option<String>> {
        if self.meta.kind() == Kind::Dir {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match sys::openat(dir, name, flags, Mode::empty()) {
                Ok(open) => return self.to(&open),
                Err(Errno::ACCESS) => {}
                Err(err) => return Err(err),
            }
        }
        self.to(&Pinned::new(dir, name, self.shown, self.meta)?)
    }

    fn to(&self, target: &impl Target) -> Result<Option<String>> {
        let (meta, mut remark) = (self.meta, None);
        let mut bits = meta.mode & 0o7777;
        let Some(xattrs) = self.preserve else {
            if meta.kind() != Kind::Symlink {
                target.permit(platform::permissions(bits & 0o777 & !self.umask))?;
            }
            return Ok(None);
        };
        let shown = self.shown.display();
        if let Err(err) = target.own(Uid::from_raw(meta.uid), Gid::from_raw(meta.gid)) {
            // A file that runs as its owner must not run as another.
            bits &= !0o6000;
            remark = Some(format!("{shown}: owner not kept: {}", plain(&err.into())));
        }
        for (name, value) in xattrs {
            let name = OsStr::from_bytes(name);
            if let Err(err) = target.attribute(name, value) {
                let (name, why) = (name.to_string_lossy(), plain(&err.into()));
                remark = Some(format!("{shown}: attribute {name} not kept: {why}"));
            }
        }
        if meta.kind() != Kind::Symlink {
            target.permit(platform::permissions(bits))?;
        }
        let time =
            |(seconds, nanos): (i64, u32)| Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
        target.times(&Timestamps {
            last_access: time(meta.atime),
            last_modification: time(meta.mtime),
        })?;
        Ok(remark)
    }
}
