//! Files of the mounted volume, changed. Each call is durable when [`Session::sync`] returns.

use std::cell::RefCell;

use syncline_fs::{Create, FsError, RenameFlags, SetAttr, SetTime, Timestamp, XattrFlags, bits};
use syncline_image::names::{self, Removal};

use crate::failure::{Failure, Result};
use crate::session::{Session, Watched, unnamed};

/// Attributes that [`Session::set`] changes, by bit.
const MODE: u32 = 1;
const OWNER: u32 = 2;
const MTIME: u32 = 4;

/// The two texts of an input.
fn two(input: &[u8], first: u32) -> Result<(&[u8], &[u8])> {
    let split = input.split_at_checked(first as usize);
    split.ok_or_else(|| Failure::new("EINVAL", "the first argument is longer than both"))
}

impl Session {
    /// Write-back goes on as it would on a running system.
    fn changed(&self) -> Result<String> {
        self.vol()?.tick(self.now_ns())?;
        Ok(String::new())
    }

    /// Owner and group of a new file: those of its directory.
    fn owned(&self, path: &[u8], mode: u32) -> Result<Create> {
        let (dir, _) = self.vol()?.resolve_parent(path)?;
        let attr = self.vol()?.getattr(&dir);
        Ok(Create { mode: mode as u16 & 0o7777, uid: attr.uid, gid: attr.gid })
    }

    /// Writes bytes, which follow the path in `input`, to a file at `at`. A file that is not there
    /// is made.
    ///
    /// # Errors
    /// No directory for it; the volume is full or read-only.
    pub fn write(&self, input: &[u8], path: u32, at: u64, mode: u32) -> Result<String> {
        let (path, bytes) = two(input, path)?;
        let vol = self.vol()?;
        let inode = match vol.resolve(path) {
            Err(FsError::NotFound) => {
                let (dir, name) = vol.resolve_parent(path)?;
                vol.create(&dir, name, &self.owned(path, mode)?)?
            }
            found => found?,
        };
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            done += vol.write(&inode, at + done as u64, rest)?;
        }
        self.changed()
    }

    /// Changes the size of a file.
    ///
    /// # Errors
    /// As of [`Session::write`].
    pub fn truncate(&self, path: &[u8], size: u64) -> Result<String> {
        let vol = self.vol()?;
        vol.truncate(&vol.resolve(path)?, size)?;
        self.changed()
    }

    /// Makes a directory, with `parents` those above it too.
    ///
    /// # Errors
    /// The name is taken; the volume is full or read-only.
    pub fn mkdir(&self, path: &[u8], mode: u32, parents: bool) -> Result<String> {
        let vol = self.vol()?;
        if parents {
            let attr = vol.getattr(&vol.root()?);
            let create = Create { mode: mode as u16 & 0o7777, uid: attr.uid, gid: attr.gid };
            names::make_directory(vol, path, &create, true).map_err(unnamed)?;
        } else {
            let (dir, name) = vol.resolve_parent(path)?;
            vol.mkdir(&dir, name, &self.owned(path, mode)?)?;
        }
        self.changed()
    }

    /// Renames, or moves into a directory: two paths.
    ///
    /// # Errors
    /// As of rename(2); with `keep`, a target that is there.
    pub fn rename(&self, input: &[u8], from: u32, keep: bool) -> Result<String> {
        let (from, to) = two(input, from)?;
        let vol = self.vol()?;
        let (old_dir, old_name) = vol.resolve_parent(from)?;
        let (new_dir, new_name) = vol.resolve_parent(to)?;
        let flags = if keep { RenameFlags::NOREPLACE } else { RenameFlags::NONE };
        vol.rename(&old_dir, old_name, &new_dir, new_name, flags)?;
        self.changed()
    }

    /// Removes a file, with `recursive` a tree.
    ///
    /// # Errors
    /// A directory without `recursive`; the volume is read-only.
    pub fn remove(&self, path: &[u8], recursive: bool) -> Result<String> {
        let vol = self.vol()?;
        let (dir, name) = vol.resolve_parent(path)?;
        match (vol.lookup(&dir, name)?.is_dir(), recursive) {
            (false, _) => vol.unlink(&dir, name)?,
            (true, false) => vol.rmdir(&dir, name)?,
            (true, true) => {
                let how = Removal { recursive, force: false };
                let watch = Watched { host: &*self.host, remarks: RefCell::default() };
                names::remove(vol, path, how, &watch).map_err(unnamed)?;
            }
        }
        self.changed()
    }

    /// Makes a symbolic link: its path, then its target.
    ///
    /// # Errors
    /// As of [`Session::mkdir`].
    pub fn symlink(&self, input: &[u8], path: u32) -> Result<String> {
        let (path, target) = two(input, path)?;
        let (dir, name) = self.vol()?.resolve_parent(path)?;
        self.vol()?.symlink(&dir, name, target, &self.owned(path, 0o777)?)?;
        self.changed()
    }

    /// Makes another name of a file: its path, then the new one.
    ///
    /// # Errors
    /// As of link(2).
    pub fn link(&self, input: &[u8], path: u32) -> Result<String> {
        let (path, new) = two(input, path)?;
        let (dir, name) = self.vol()?.resolve_parent(new)?;
        self.vol()?.link(&self.find(path)?, &dir, name)?;
        self.changed()
    }

    /// Changes the attributes that `which` names: 1 permissions, 2 owner and group, 4 the time of
    /// the last change in seconds.
    ///
    /// # Errors
    /// No such file; the volume is read-only.
    pub fn set(
        &self,
        path: &[u8],
        which: u32,
        mode: u32,
        owner: (u32, u32),
        mtime: f64,
    ) -> Result<String> {
        let has = |bit: u32| which & bit != 0;
        let nanoseconds = (mtime.rem_euclid(1.0) * 1e9) as u32;
        let time = Timestamp { seconds: mtime.floor() as i64, nanoseconds };
        let set = SetAttr {
            mode: has(MODE).then_some(mode as u16 & 0o7777),
            uid: has(OWNER).then_some(owner.0),
            gid: has(OWNER).then_some(owner.1),
            mtime: has(MTIME).then_some(SetTime::At(time)),
            ..SetAttr::default()
        };
        let inode = self.find(path)?;
        if has(MODE) && self.vol()?.getattr(&inode).mode & bits::S_IFMT == bits::S_IFLNK {
            return Err(Failure::new("EOPNOTSUPP", "symbolic links have no permissions"));
        }
        self.vol()?.setattr(&inode, &set)?;
        self.changed()
    }

    /// Sets an extended attribute: a path, a name and a value.
    ///
    /// # Errors
    /// As of setxattr(2).
    pub fn set_xattr(&self, input: &[u8], path: u32, name: u32) -> Result<String> {
        let (path, rest) = two(input, path)?;
        let (name, value) = two(rest, name)?;
        self.vol()?.setxattr(&self.find(path)?, name, value, XattrFlags::Any)?;
        self.changed()
    }

    /// Removes an extended attribute: a path and a name.
    ///
    /// # Errors
    /// There is none; as of [`Session::set_xattr`].
    pub fn remove_xattr(&self, input: &[u8], path: u32) -> Result<String> {
        let (path, name) = two(input, path)?;
        self.vol()?.removexattr(&self.find(path)?, name)?;
        self.changed()
    }
}
