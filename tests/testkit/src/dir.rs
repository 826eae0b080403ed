//! A directory of the running kernel, read as [`TreeSource`] and written as [`TreeSink`].
//!
//! Uses system calls that do not follow symbolic links, and sets modes after creation so that the
//! test process' umask does not matter.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self as sys, AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::manifest::{Stat, Time, TreeSource, Xattr};
use crate::tree::TreeSink;

/// A directory, usually one below a [`crate::KernelMount`].
#[derive(Clone, Debug)]
pub struct DirTree {
    root: PathBuf,
}

impl DirTree {
    /// The tree below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn full(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(OsStr::from_bytes(path)) }
    }

    fn make_node(
        &self,
        path: &[u8],
        kind: FileType,
        mode: u32,
        rdev: (u32, u32),
    ) -> std::io::Result<()> {
        let dev = sys::makedev(rdev.0, rdev.1);
        sys::mknodat(CWD, self.full(path), kind, Mode::from_raw_mode(0o600), dev)?;
        self.set_mode(path, mode)
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> std::io::Result<()> {
        let permissions = std::fs::Permissions::from_mode(mode & 0o7777);
        std::fs::set_permissions(self.full(path), permissions)
    }
}

impl TreeSource for DirTree {
    type Error = std::io::Error;

    fn list(&mut self, path: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
        let names = std::fs::read_dir(self.full(path))?;
        names.map(|entry| Ok(entry?.file_name().into_vec())).collect()
    }

    fn stat(&mut self, path: &[u8]) -> std::io::Result<Stat> {
        let meta = std::fs::symlink_metadata(self.full(path))?;
        let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(u32::MAX);
        Ok(Stat {
            ino: meta.ino(),
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: meta.size(),
            mtime: Time { seconds: meta.mtime(), nanos },
            rdev: (sys::major(meta.rdev()), sys::minor(meta.rdev())),
        })
    }

    fn read_link(&mut self, path: &[u8]) -> std::io::Result<Vec<u8>> {
        Ok(std::fs::read_link(self.full(path))?.into_os_string().into_vec())
    }

    fn xattrs(&mut self, path: &[u8]) -> std::io::Result<Vec<Xattr>> {
        let full = self.full(path);
        let mut buffer = vec![0_u8; 64 * 1024];
        let n = match sys::llistxattr(&full, &mut buffer[..]) {
            Err(Errno::NOTSUP) => 0,
            other => other?,
        };
        let names: Vec<Vec<u8>> =
            buffer[..n].split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
        let mut found = Vec::new();
        for name in names {
            let n = sys::lgetxattr(&full, OsStr::from_bytes(&name), &mut buffer[..])?;
            found.push((name, buffer[..n].to_vec()));
        }
        Ok(found)
    }

    fn read(&mut self, path: &[u8], offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        std::fs::File::open(self.full(path))?.read_at(into, offset)
    }

    fn data_ranges(&mut self, path: &[u8]) -> std::io::Result<Vec<(u64, u64)>> {
        let file = std::fs::File::open(self.full(path))?;
        let mut ranges = Vec::new();
        let mut at = 0;
        loop {
            let start = match sys::seek(&file, sys::SeekFrom::Data(at)) {
                Err(Errno::NXIO) => return Ok(ranges),
                other => other?,
            };
            at = match sys::seek(&file, sys::SeekFrom::Hole(start)) {
                // Linux's answer for data in the inode with a hole behind it.
                Err(Errno::NOENT) => file.metadata()?.len(),
                other => other?,
            };
            ranges.push((start, at));
        }
    }
}

impl TreeSink for DirTree {
    type Error = std::io::Error;

    fn mkdir(&mut self, path: &[u8], mode: u32) -> std::io::Result<()> {
        std::fs::create_dir(self.full(path))?;
        self.set_mode(path, mode)
    }

    fn create(&mut self, path: &[u8], mode: u32) -> std::io::Result<()> {
        std::fs::File::create_new(self.full(path))?;
        self.set_mode(path, mode)
    }

    fn write(&mut self, path: &[u8], offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().write(true).open(self.full(path))?;
        file.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, path: &[u8], size: u64) -> std::io::Result<()> {
        std::fs::OpenOptions::new().write(true).open(self.full(path))?.set_len(size)
    }

    fn symlink(&mut self, path: &[u8], target: &[u8]) -> std::io::Result<()> {
        std::os::unix::fs::symlink(OsStr::from_bytes(target), self.full(path))
    }

    fn hard_link(&mut self, path: &[u8], existing: &[u8]) -> std::io::Result<()> {
        std::fs::hard_link(self.full(existing), self.full(path))
    }

    fn fifo(&mut self, path: &[u8], mode: u32) -> std::io::Result<()> {
        self.make_node(path, FileType::Fifo, mode, (0, 0))
    }

    fn device(&mut self, path: &[u8], mode: u32, rdev: (u32, u32)) -> std::io::Result<()> {
        self.make_node(path, FileType::from_raw_mode(mode), mode, rdev)
    }

    fn set_xattr(&mut self, path: &[u8], name: &[u8], value: &[u8]) -> std::io::Result<()> {
        let name = OsStr::from_bytes(name);
        Ok(sys::lsetxattr(self.full(path), name, value, XattrFlags::empty())?)
    }

    fn remove_xattr(&mut self, path: &[u8], name: &[u8]) -> std::io::Result<()> {
        Ok(sys::lremovexattr(self.full(path), OsStr::from_bytes(name))?)
    }

    fn chmod(&mut self, path: &[u8], mode: u32) -> std::io::Result<()> {
        self.set_mode(path, mode)
    }

    fn chown(&mut self, path: &[u8], uid: u32, gid: u32) -> std::io::Result<()> {
        std::os::unix::fs::lchown(self.full(path), Some(uid), Some(gid))
    }

    fn set_mtime(&mut self, path: &[u8], mtime: Time) -> std::io::Result<()> {
        let time = Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanos.into() };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(sys::utimensat(CWD, self.full(path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn unlink(&mut self, path: &[u8]) -> std::io::Result<()> {
        std::fs::remove_file(self.full(path))
    }

    fn rmdir(&mut self, path: &[u8]) -> std::io::Result<()> {
        std::fs::remove_dir(self.full(path))
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> std::io::Result<()> {
        std::fs::rename(self.full(from), self.full(to))
    }
}
