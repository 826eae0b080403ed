//! A volume of ours, read as [`TreeSource`] and written as [`TreeSink`].

use syncline_fs::{
    Create, FallocateMode, FsError, InodeRef, RenameFlags, SetAttr, SetTime, Timestamp, Volume,
    XattrFlags,
};
use syncline_testkit::{Stat, Time, TreeSink, TreeSource, Xattr};

/// The tree of a mounted volume.
#[derive(Clone)]
pub struct VolumeTree {
    volume: Volume,
}

impl VolumeTree {
    /// The whole tree of `volume`.
    #[must_use]
    pub fn new(volume: Volume) -> Self {
        Self { volume }
    }

    /// The inode of a path; symbolic links are not followed.
    pub fn find(&self, path: &[u8]) -> Result<InodeRef, FsError> {
        let mut at = self.volume.root()?;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            at = self.volume.lookup(&at, name)?;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, &'p [u8]), FsError> {
        match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => Ok((self.find(&path[..slash])?, &path[slash + 1..])),
            None => Ok((self.volume.root()?, path)),
        }
    }
}

fn owner(mode: u32) -> Create {
    Create { mode: (mode & 0o7777) as u16, uid: 0, gid: 0 }
}

/// `makedev` of Linux, 64 bits.
fn device_number((major, minor): (u32, u32)) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xfff) << 8 | (major & !0xfff) << 32 | minor & 0xff | (minor & !0xff) << 12
}

fn split_device(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major as u32, minor as u32)
}

impl TreeSource for VolumeTree {
    type Error = FsError;

    fn list(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        let mut names = Vec::new();
        self.volume.readdir(&self.find(path)?, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        })?;
        Ok(names)
    }

    fn stat(&mut self, path: &[u8]) -> Result<Stat, FsError> {
        let attr = self.volume.getattr(&self.find(path)?);
        Ok(Stat {
            ino: u64::from(attr.ino),
            mode: u32::from(attr.mode),
            uid: attr.uid,
            gid: attr.gid,
            nlink: u64::from(attr.nlink),
            size: attr.size,
            mtime: Time { seconds: attr.mtime.seconds, nanos: attr.mtime.nanoseconds },
            rdev: split_device(attr.rdev),
        })
    }

    fn read_link(&mut self, path: &[u8]) -> Result<Vec<u8>, FsError> {
        self.volume.readlink(&self.find(path)?)
    }

    fn xattrs(&mut self, path: &[u8]) -> Result<Vec<Xattr>, FsError> {
        let inode = self.find(path)?;
        let names = self.volume.listxattr(&inode)?;
        let value = |name: Vec<u8>| {
            let value = self.volume.getxattr(&inode, &name)?;
            Ok((name, value))
        };
        names.into_iter().map(value).collect()
    }

    fn read(&mut self, path: &[u8], offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        self.volume.read(&self.find(path)?, offset, into)
    }

    fn data_ranges(&mut self, path: &[u8]) -> Result<Vec<(u64, u64)>, FsError> {
        let inode = self.find(path)?;
        let mut ranges = Vec::new();
        let mut at = 0;
        loop {
            let start = match self.volume.seek_data(&inode, at) {
                Err(FsError::NoSuchOffset) => return Ok(ranges),
                other => other?,
            };
            at = self.volume.seek_hole(&inode, start)?;
            ranges.push((start, at));
        }
    }
}

impl TreeSink for VolumeTree {
    type Error = FsError;

    fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.volume.mkdir(&dir, name, &owner(mode)).map(drop)?;
        self.chmod(path, mode)
    }

    fn create(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.volume.create(&dir, name, &owner(mode)).map(drop)
    }

    fn write(&mut self, path: &[u8], offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let inode = self.find(path)?;
        let n = self.volume.write(&inode, offset, bytes)?;
        if n == bytes.len() { Ok(()) } else { Err(FsError::NoSpace) }
    }

    fn truncate(&mut self, path: &[u8], size: u64) -> Result<(), FsError> {
        self.volume.truncate(&self.find(path)?, size)
    }

    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.volume.symlink(&dir, name, target, &owner(0o777)).map(drop)
    }

    fn hard_link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), FsError> {
        let inode = self.find(existing)?;
        let (dir, name) = self.parent(path)?;
        self.volume.link(&inode, &dir, name)
    }

    fn fifo(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        self.device(path, 0o010_000 | mode & 0o7777, (0, 0))
    }

    fn device(&mut self, path: &[u8], mode: u32, rdev: (u32, u32)) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        let create = Create { mode: (mode & 0o177_777) as u16, uid: 0, gid: 0 };
        self.volume.mknod(&dir, name, &create, device_number(rdev)).map(drop)
    }

    fn set_xattr(&mut self, path: &[u8], name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.volume.setxattr(&self.find(path)?, name, value, XattrFlags::Any)
    }

    fn remove_xattr(&mut self, path: &[u8], name: &[u8]) -> Result<(), FsError> {
        self.volume.removexattr(&self.find(path)?, name)
    }

    fn chmod(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let set = SetAttr { mode: Some((mode & 0o7777) as u16), ..SetAttr::default() };
        self.volume.setattr(&self.find(path)?, &set).map(drop)
    }

    fn chown(&mut self, path: &[u8], uid: u32, gid: u32) -> Result<(), FsError> {
        let inode = self.find(path)?;
        let mode = self.volume.getattr(&inode).mode;
        // As Linux's VFS: a new owner does not inherit set-id bits.
        let strip = match (inode.is_dir(), mode & 0o010) {
            (true, _) => 0,
            (false, 0) => 0o4000,
            (false, _) => 0o6000,
        };
        let mode = (mode & strip != 0).then_some(mode & 0o7777 & !strip);
        let set = SetAttr { mode, uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.volume.setattr(&inode, &set).map(drop)
    }

    fn set_mtime(&mut self, path: &[u8], mtime: Time) -> Result<(), FsError> {
        let at = SetTime::At(Timestamp { seconds: mtime.seconds, nanoseconds: mtime.nanos });
        let set = SetAttr { atime: Some(at), mtime: Some(at), ..SetAttr::default() };
        self.volume.setattr(&self.find(path)?, &set).map(drop)
    }

    fn unlink(&mut self, path: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.volume.unlink(&dir, name)
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.volume.rmdir(&dir, name)
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), FsError> {
        let ((od, on), (nd, nn)) = (self.parent(from)?, self.parent(to)?);
        self.volume.rename(&od, on, &nd, nn, RenameFlags::NONE)
    }
}

/// Converts the model's mode to the volume's.
pub(crate) fn fallocate_mode(mode: crate::ops::Falloc) -> FallocateMode {
    use crate::ops::Falloc;
    match mode {
        Falloc::Allocate => FallocateMode::Allocate,
        Falloc::KeepSize => FallocateMode::KeepSize,
        Falloc::PunchHole => FallocateMode::PunchHole,
        Falloc::ZeroRange => FallocateMode::ZeroRange,
        Falloc::ZeroRangeKeepSize => FallocateMode::ZeroRangeKeepSize,
    }
}
