//! Operations on paths.

use syncline_fs::{Attr, Create, FsError, InodeRef, RenameFlags, SetAttr, Volume, XattrFlags};

use crate::directory::Directory;
use crate::disk::{Disk, Node, Store};
use crate::error::{EEXIST, EROFS, Error, Result};
use crate::file::{Access, File};
use crate::wire::Call;

/// Attempts of an open against another thread that makes and removes the same name.
const OPEN_TRIES: u32 = 8;

/// Inode that a path names if its last component is a symbolic link.
///
/// ```
/// # let device = syncline::MemoryDevice::from_bytes(&syncline_testkit::tiny_ext4());
/// # let disk = syncline::Disk::on(std::sync::Arc::new(device), &Default::default())?;
/// use syncline::At;
///
/// disk.symlink(b"nowhere", b"/link")?;
/// assert_eq!(disk.stat(b"/link", At::Link)?.size, 7);
/// assert_eq!(disk.stat(b"/link", At::Follow).unwrap_err().errno, 2); // ENOENT
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Target of the link.
    Follow,
    /// The link.
    Link,
}

impl Disk {
    /// Opens a file; with `create` makes it, owned by root, with these permissions.
    ///
    /// # Errors
    /// ENOENT, EEXIST, EISDIR, ELOOP, EINVAL, ENOSPC, EROFS, EIO.
    pub fn open_file(&self, path: &[u8], access: Access, mode: u16) -> Result<File> {
        let access = check_access(access)?;
        let changes = access.write || access.create || access.truncate;
        let store = if changes { self.0.for_change()? } else { self.0.in_use()? };
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => {
                let number = helper.call(Call::OpenFile { path, access, mode })?;
                return Ok(File::new(&self.0, Node::Number(number), access));
            }
        };
        check_path(path)?;
        let mut tries = 0;
        let inode = loop {
            tries += 1;
            match find_or_make(volume, path, access, mode) {
                // Another thread made or removed it between two looks.
                Err(FsError::Exists) if !access.exclusive && tries < OPEN_TRIES => {}
                done => break done.map_err(|err| at(err.into(), path))?,
            }
        };
        if inode.is_symlink() {
            return Err(at(FsError::Loop.into(), path));
        }
        if changes && inode.is_dir() {
            return Err(at(FsError::IsDir.into(), path));
        }
        if access.truncate {
            volume.truncate(&inode, 0)?;
        }
        Ok(File::new(&self.0, Node::Inode(inode), access))
    }

    /// Opens a directory for reading its names.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EIO.
    pub fn open_directory(&self, path: &[u8]) -> Result<Directory> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => {
                let number = helper.call(Call::OpenDirectory { path })?;
                return Ok(Directory::new(&self.0, Node::Number(number)));
            }
        };
        let inode = find(volume, path, At::Follow)?;
        if !inode.is_dir() {
            return Err(at(FsError::NotDir.into(), path));
        }
        Ok(Directory::new(&self.0, Node::Inode(inode)))
    }

    /// Attributes.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP, EIO.
    pub fn stat(&self, path: &[u8], follow: At) -> Result<Attr> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Stat { path, follow }),
        };
        let inode = find(volume, path, follow)?;
        Ok(volume.getattr(&inode))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As [`Disk::stat`], EPERM, EFBIG, ENOSPC, EROFS.
    pub fn setattr(&self, path: &[u8], follow: At, set: &SetAttr) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::SetAttr { path, follow, set: *set }),
        };
        let inode = find(volume, path, follow)?;
        volume.setattr(&inode, set).map_err(|err| at(err.into(), path))?;
        Ok(())
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENOTDIR, ENOSPC, EROFS, EIO.
    pub fn mkdir(&self, path: &[u8], mode: u16) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Mkdir { path, mode }),
        };
        let (dir, name) = parent(volume, path)?;
        let create = Create { mode, uid: 0, gid: 0 };
        volume.mkdir(&dir, name, &create).map_err(|err| at(err.into(), path))?;
        Ok(())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EPERM, EROFS, EIO.
    pub fn unlink(&self, path: &[u8]) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Unlink { path }),
        };
        let (dir, name) = parent(volume, path)?;
        volume.unlink(&dir, name).map_err(|err| at(err.into(), path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENOTEMPTY, EROFS, EIO.
    pub fn rmdir(&self, path: &[u8]) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Rmdir { path }),
        };
        let (dir, name) = parent(volume, path)?;
        volume.rmdir(&dir, name).map_err(|err| at(err.into(), path))
    }

    /// Renames. An existing target is replaced, unless `flags` say otherwise.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOTEMPTY, EINVAL, EROFS, EIO.
    pub fn rename(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Rename { from, to, flags }),
        };
        let (from_dir, from_name) = parent(volume, from)?;
        let (to_dir, to_name) = parent(volume, to)?;
        let renamed = volume.rename(&from_dir, from_name, &to_dir, to_name, flags);
        renamed.map_err(|err| at(err.into(), from))
    }

    /// Gives a file one more name. A symbolic link is linked itself.
    ///
    /// # Errors
    /// ENOENT, EEXIST, EPERM, EMLINK, EROFS, EIO.
    pub fn link(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Link { from, to }),
        };
        let inode = find(volume, from, At::Link)?;
        let (dir, name) = parent(volume, to)?;
        volume.link(&inode, &dir, name).map_err(|err| at(err.into(), to))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// EEXIST, ENOENT, ENAMETOOLONG, ENOSPC, EROFS, EIO.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Symlink { target, path }),
        };
        check_path(target)?;
        let (dir, name) = parent(volume, path)?;
        let made = volume.symlink(&dir, name, target, &Create::default());
        made.map_err(|err| at(err.into(), path))?;
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// ENOENT, EINVAL for what is no link, EIO.
    pub fn readlink(&self, path: &[u8]) -> Result<Vec<u8>> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Readlink { path }),
        };
        let inode = find(volume, path, At::Link)?;
        volume.readlink(&inode).map_err(|err| at(err.into(), path))
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// ENODATA, ENOENT, EOPNOTSUPP, EIO.
    pub fn getxattr(&self, path: &[u8], follow: At, name: &[u8]) -> Result<Vec<u8>> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Getxattr { path, follow, name }),
        };
        let inode = find(volume, path, follow)?;
        volume.getxattr(&inode, name).map_err(|err| at(err.into(), path))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// EEXIST, ENODATA, E2BIG, ENOSPC, EPERM, EROFS, EIO.
    pub fn setxattr(
        &self,
        path: &[u8],
        follow: At,
        (name, value): (&[u8], &[u8]),
        flags: XattrFlags,
    ) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => {
                return helper.call(Call::Setxattr { path, follow, name, value, flags });
            }
        };
        let inode = find(volume, path, follow)?;
        volume.setxattr(&inode, name, value, flags).map_err(|err| at(err.into(), path))
    }

    /// Names of all attributes.
    ///
    /// # Errors
    /// ENOENT, EIO.
    pub fn listxattr(&self, path: &[u8], follow: At) -> Result<Vec<Vec<u8>>> {
        let store = self.0.in_use()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Listxattr { path, follow }),
        };
        let inode = find(volume, path, follow)?;
        volume.listxattr(&inode).map_err(|err| at(err.into(), path))
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// ENODATA, ENOENT, EPERM, EROFS, EIO.
    pub fn removexattr(&self, path: &[u8], follow: At, name: &[u8]) -> Result<()> {
        let store = self.0.for_change()?;
        let volume = match &*store {
            Store::Volume(volume) => volume,
            Store::Helper(helper) => return helper.call(Call::Removexattr { path, follow, name }),
        };
        let inode = find(volume, path, follow)?;
        volume.removexattr(&inode, name).map_err(|err| at(err.into(), path))
    }
}

/// Refuses what makes no sense together; completes what goes without saying.
fn check_access(access: Access) -> Result<Access> {
    if !access.read && !access.write && !access.append {
        return Err(Error::invalid(
            "the file is opened neither to read nor to write; give one of them",
        ));
    }
    let write = access.write || access.append;
    if !write && (access.truncate || access.create) {
        return Err(Error::invalid("creating or truncating a file needs write access; add it"));
    }
    if access.exclusive && !access.create {
        return Err(Error::invalid("exclusive needs create; give both"));
    }
    Ok(Access { write, ..access })
}

fn find_or_make(
    volume: &Volume,
    path: &[u8],
    access: Access,
    mode: u16,
) -> syncline_fs::Result<InodeRef> {
    let link = access.nofollow || access.exclusive;
    let found = if link { volume.resolve_nofollow(path) } else { volume.resolve(path) };
    match found {
        Ok(_) if access.exclusive => Err(FsError::Exists),
        Ok(inode) => Ok(inode),
        Err(FsError::NotFound) if access.create => {
            let (dir, name) = volume.resolve_parent(path)?;
            if !link && volume.lookup(&dir, name).is_ok_and(|inode| inode.is_symlink()) {
                // A link that leads nowhere is not followed to make what it names.
                return Err(FsError::NotFound);
            }
            volume.create(&dir, name, &Create { mode, uid: 0, gid: 0 })
        }
        Err(err) => Err(err),
    }
}

fn find(volume: &Volume, path: &[u8], follow: At) -> Result<InodeRef> {
    check_path(path)?;
    let found = match follow {
        At::Follow => volume.resolve(path),
        At::Link => volume.resolve_nofollow(path),
    };
    found.map_err(|err| at(err.into(), path))
}

fn parent<'p>(volume: &Volume, path: &'p [u8]) -> Result<(InodeRef, &'p [u8])> {
    check_path(path)?;
    if path.iter().all(|byte| *byte == b'/') {
        let text = "the root directory always exists; name something in it";
        return Err(at(Error::new(EEXIST, text), path));
    }
    volume.resolve_parent(path).map_err(|err| at(err.into(), path))
}

fn check_path(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(FsError::NotFound.into());
    }
    if path.contains(&0) {
        return Err(Error::invalid("the path has a zero byte; remove it"));
    }
    Ok(())
}

fn at(err: Error, path: &[u8]) -> Error {
    // What is wrong with the whole volume is not the path's.
    if err.errno == EROFS { err } else { err.at(String::from_utf8_lossy(path)) }
}
