//! A volume as the test kit sees trees, so that it is compared with the kernel's.

use syncline_fs::{
    Create, FsError, InodeRef, RenameFlags, SetAttr, SetTime, Timestamp, Volume, XattrFlags,
};
use syncline_testkit::{Stat, Time, TreeSink, TreeSource, Xattr};

use crate::bed::{names, owner};

/// A volume as the test kit sees trees.
pub struct VolumeTree<'a>(pub &'a Volume);

impl VolumeTree<'_> {
    fn at(&self, path: &[u8]) -> Result<InodeRef, FsError> {
        self.0.resolve_nofollow(path)
    }

    fn parent<'p>(&self, path: &'p [u8]) -> Result<(InodeRef, &'p [u8]), FsError> {
        self.0.resolve_parent(path)
    }

    fn with_mode(&self, mode: u32) -> Create {
        Create { mode: (mode & 0xffff) as u16, uid: 0, gid: 0 }
    }
}

impl TreeSource for VolumeTree<'_> {
    type Error = FsError;

    fn list(&mut self, path: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        Ok(names(self.0, &self.at(path)?))
    }

    fn stat(&mut self, path: &[u8]) -> Result<Stat, FsError> {
        let attr = self.0.getattr(&self.at(path)?);
        let major = (attr.rdev >> 8 & 0xfff) as u32;
        let minor = ((attr.rdev & 0xff) | (attr.rdev >> 12 & 0xffff_ff00)) as u32;
        Ok(Stat {
            ino: attr.ino.into(),
            mode: attr.mode.into(),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink.into(),
            size: attr.size,
            mtime: Time { seconds: attr.mtime.seconds, nanos: attr.mtime.nanoseconds },
            rdev: (major, minor),
        })
    }

    fn read_link(&mut self, path: &[u8]) -> Result<Vec<u8>, FsError> {
        self.0.readlink(&self.at(path)?)
    }

    fn xattrs(&mut self, path: &[u8]) -> Result<Vec<Xattr>, FsError> {
        let inode = self.at(path)?;
        let names = self.0.listxattr(&inode)?;
        names
            .into_iter()
            .map(|name| {
                let value = self.0.getxattr(&inode, &name)?;
                Ok((name, value))
            })
            .collect()
    }

    fn read(&mut self, path: &[u8], offset: u64, into: &mut [u8]) -> Result<usize, FsError> {
        self.0.read(&self.at(path)?, offset, into)
    }

    fn data_ranges(&mut self, path: &[u8]) -> Result<Vec<(u64, u64)>, FsError> {
        let inode = self.at(path)?;
        let mut ranges = Vec::new();
        let mut at = 0;
        loop {
            let start = match self.0.seek_data(&inode, at) {
                Err(FsError::NoSuchOffset) => return Ok(ranges),
                other => other?,
            };
            at = self.0.seek_hole(&inode, start)?;
            ranges.push((start, at));
        }
    }
}

impl TreeSink for VolumeTree<'_> {
    type Error = FsError;

    fn mkdir(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.mkdir(&dir, name, &self.with_mode(mode)).map(drop)
    }
    fn create(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.create(&dir, name, &self.with_mode(mode)).map(drop)
    }
    fn write(&mut self, path: &[u8], offset: u64, bytes: &[u8]) -> Result<(), FsError> {
        let n = self.0.write(&self.at(path)?, offset, bytes)?;
        assert_eq!(n, bytes.len(), "a short write");
        Ok(())
    }
    fn truncate(&mut self, path: &[u8], size: u64) -> Result<(), FsError> {
        self.0.truncate(&self.at(path)?, size)
    }
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.symlink(&dir, name, target, &owner()).map(drop)
    }
    fn hard_link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.link(&self.at(existing)?, &dir, name)
    }
    fn fifo(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.mknod(&dir, name, &self.with_mode(mode & 0xfff | 0x1000), 0).map(drop)
    }
    fn device(&mut self, path: &[u8], mode: u32, rdev: (u32, u32)) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        let (major, minor) = (u64::from(rdev.0), u64::from(rdev.1));
        let number = major << 8 | minor & 0xff | (minor & !0xff) << 12;
        self.0.mknod(&dir, name, &self.with_mode(mode), number).map(drop)
    }
    fn set_xattr(&mut self, path: &[u8], name: &[u8], value: &[u8]) -> Result<(), FsError> {
        self.0.setxattr(&self.at(path)?, name, value, XattrFlags::Any)
    }
    fn remove_xattr(&mut self, path: &[u8], name: &[u8]) -> Result<(), FsError> {
        self.0.removexattr(&self.at(path)?, name)
    }
    fn chmod(&mut self, path: &[u8], mode: u32) -> Result<(), FsError> {
        let set = SetAttr { mode: Some((mode & 0xfff) as u16), ..SetAttr::default() };
        self.0.setattr(&self.at(path)?, &set).map(drop)
    }
    fn chown(&mut self, path: &[u8], uid: u32, gid: u32) -> Result<(), FsError> {
        let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        self.0.setattr(&self.at(path)?, &set).map(drop)
    }
    fn set_mtime(&mut self, path: &[u8], mtime: Time) -> Result<(), FsError> {
        let at = Timestamp { seconds: mtime.seconds, nanoseconds: mtime.nanos };
        let set = SetAttr { mtime: Some(SetTime::At(at)), ..SetAttr::default() };
        self.0.setattr(&self.at(path)?, &set).map(drop)
    }
    fn unlink(&mut self, path: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.unlink(&dir, name)
    }
    fn rmdir(&mut self, path: &[u8]) -> Result<(), FsError> {
        let (dir, name) = self.parent(path)?;
        self.0.rmdir(&dir, name)
    }
    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), FsError> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        self.0.rename(&from_dir, from_name, &to_dir, to_name, RenameFlags::NONE)
    }
}
