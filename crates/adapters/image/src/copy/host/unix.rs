//! Linux and macOS.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{self as sys, AtFlags, CWD, Mode, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;

use super::{HostFile, failed, list, open};
use crate::copy::side::{Kind, Meta, Reader, Side, Writer, Xattr};
use crate::{ImageError, Result, plain, platform};

/// The host.
pub(crate) struct Host {
    /// Permissions that new files do not get.
    umask: u32,
}

impl Host {
    pub(crate) fn new() -> Host {
        Host { umask: platform::umask() }
    }
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn sys_failed(path: &[u8]) -> impl Fn(Errno) -> ImageError + '_ {
    move |err| ImageError::host(path_of(path), &err.into())
}

/// The next range with data from there on: start and end; none behind the last.
pub(super) fn data(file: &HostFile, from: u64) -> Result<Option<(u64, u64)>> {
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

impl Side for Host {
    fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Meta>> {
        let host = path_of(path);
        let found = if follow { std::fs::metadata(host) } else { std::fs::symlink_metadata(host) };
        let meta = match found {
            Ok(meta) => meta,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(failed(path)(err)),
        };
        let nanos = |value: i64| u32::try_from(value).unwrap_or(0);
        let kind = meta.file_type();
        let device = kind.is_block_device() || kind.is_char_device();
        Ok(Some(Meta {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            nlink: meta.nlink(),
            id: (meta.dev(), meta.ino()),
            rdev: if device { platform::device_of(meta.rdev()) } else { 0 },
            atime: (meta.atime(), nanos(meta.atime_nsec())),
            mtime: (meta.mtime(), nanos(meta.mtime_nsec())),
        }))
    }

    fn streams(&self) -> bool {
        true
    }

    fn list(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        list(path)
    }

    fn open(&self, path: &[u8]) -> Result<Box<dyn Reader>> {
        open(path)
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let target = std::fs::read_link(path_of(path)).map_err(failed(path))?;
        Ok(target.into_os_string().into_vec())
    }

    fn xattrs(&self, path: &[u8]) -> Result<Vec<Xattr>> {
        // The largest list and value that Linux knows.
        let mut buffer = vec![0_u8; 64 << 10];
        let len = match sys::llistxattr(path_of(path), &mut buffer[..]) {
            Ok(len) => len,
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(err) => return Err(sys_failed(path)(err)),
        };
        let list = buffer.get(..len).unwrap_or(&[]).to_vec();
        let mut found = Vec::new();
        for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            match sys::lgetxattr(path_of(path), OsStr::from_bytes(name), &mut buffer[..]) {
                Ok(len) => found.push((name.to_vec(), buffer.get(..len).unwrap_or(&[]).to_vec())),
                // Gone since, or not for us to read.
                Err(Errno::NODATA | Errno::PERM | Errno::NOTSUP) => {}
                Err(err) => return Err(sys_failed(path)(err)),
            }
        }
        Ok(found)
    }

    fn create(&self, path: &[u8]) -> Result<Box<dyn Writer>> {
        let file = File::options().write(true).create_new(true).mode(0o600).open(path_of(path));
        let file = file.map_err(failed(path))?;
        Ok(Box::new(HostFile { file, path: path.to_vec(), size: 0 }))
    }

    fn mkdir(&self, path: &[u8]) -> Result<()> {
        sys::mkdirat(CWD, path_of(path), Mode::RWXU).map_err(sys_failed(path))
    }

    fn symlink(&self, path: &[u8], target: &[u8]) -> Result<()> {
        let target = OsStr::from_bytes(target);
        std::os::unix::fs::symlink(target, path_of(path)).map_err(failed(path))
    }

    fn link(&self, existing: &[u8], path: &[u8]) -> Result<()> {
        std::fs::hard_link(path_of(existing), path_of(path)).map_err(failed(path))
    }

    fn mknod(&self, path: &[u8], meta: &Meta) -> Result<()> {
        platform::mknod(path_of(path), meta.mode, meta.rdev).map_err(failed(path))
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        std::fs::rename(path_of(from), path_of(to)).map_err(failed(to))
    }

    fn unlink(&self, path: &[u8]) -> Result<()> {
        std::fs::remove_file(path_of(path)).map_err(failed(path))
    }

    fn rmdir(&self, path: &[u8]) -> Result<()> {
        std::fs::remove_dir(path_of(path)).map_err(failed(path))
    }

    fn set_meta(
        &self,
        path: &[u8],
        meta: &Meta,
        preserve: Option<&[Xattr]>,
    ) -> Result<Option<String>> {
        let host = path_of(path);
        let mut remark = None;
        let mut bits = meta.mode & 0o7777;
        if preserve.is_none() {
            bits = bits & 0o777 & !self.umask;
        } else if let Err(err) = std::os::unix::fs::lchown(host, Some(meta.uid), Some(meta.gid)) {
            // A file that runs as its owner must not run as another.
            bits &= !0o6000;
            remark = Some(format!("{}: owner not kept: {}", host.display(), plain(&err)));
        }
        for (name, value) in preserve.unwrap_or(&[]) {
            let name = OsStr::from_bytes(name);
            if let Err(err) = sys::lsetxattr(host, name, value, sys::XattrFlags::empty()) {
                let (shown, why) = (name.to_string_lossy(), plain(&err.into()));
                remark = Some(format!("{}: attribute {shown} not kept: {why}", host.display()));
            }
        }
        if meta.kind() != Kind::Symlink {
            let permissions = platform::permissions(bits);
            sys::chmodat(CWD, host, permissions, AtFlags::empty()).map_err(sys_failed(path))?;
        }
        if preserve.is_some() {
            let time =
                |(seconds, nanos): (i64, u32)| Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
            let times =
                Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) };
            sys::utimensat(CWD, host, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(sys_failed(path))?;
        }
        Ok(remark)
    }
}
