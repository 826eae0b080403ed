//! Names: looked up, made, removed, renamed, listed.
//!
//! A new file gets the default ACL of its directory, or else the umask
//! (`crates/core/fs/src/acl.rs`).

use syncline_fs::{Attr, Create, DirEntry, FileKind, FsError, InodeRef, RenameFlags, Result, acl};

use super::Serve;
use crate::caller::Caller;
use crate::convert::kind_of_mode;
use crate::handle::{CacheMode, Handle};
use crate::serve::OpenHow;

/// Bits of a mode that chmod sets.
const PERMISSIONS: u32 = 0o7777;

/// Flag of renameat2: a whiteout takes the old name.
const RENAME_WHITEOUT: u32 = 4;

/// A directory's inode, and a name in it.
type Name<'a> = (u32, &'a [u8]);

/// One name of a directory.
pub(crate) struct Entry<'a> {
    /// Inode number.
    pub(crate) ino: u32,
    /// Type, as far as the directory says.
    pub(crate) kind: FileKind,
    /// The name.
    pub(crate) name: &'a [u8],
    /// Cookie of the name after it.
    pub(crate) next: u64,
    /// With readdirplus, and not for `.` and `..`.
    pub(crate) attr: Option<Attr>,
}

/// Looks up a name; `.` is an inode of a file handle.
pub(crate) fn lookup(serve: &Serve, dir: u32, name: &[u8]) -> Result<Option<Attr>> {
    let found = match name {
        b"." => serve.inode(dir),
        name => serve.vol.lookup(&serve.inode(dir)?, name),
    };
    match found {
        Ok(inode) => {
            serve.status.traffic.named(inode.ino, name);
            Ok(Some(serve.learned(&inode)))
        }
        Err(FsError::NotFound) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Attributes of a name, without the kernel learning it.
pub(crate) fn peek(serve: &Serve, (dir, name): Name<'_>) -> Option<Attr> {
    let inode = serve.inode(dir).and_then(|dir| serve.vol.lookup(&dir, name)).ok()?;
    Some(serve.vol.getattr(&inode))
}

/// Reads the text of a symbolic link.
pub(crate) fn readlink(serve: &Serve, ino: u32) -> Result<Vec<u8>> {
    serve.vol.readlink(&serve.inode(ino)?)
}

/// Makes a file of any type but a directory or a link, with (mode, umask).
pub(crate) fn mknod(
    serve: &Serve,
    caller: Caller,
    (dir, name): Name<'_>,
    modes: (u32, u32),
    rdev: u32,
) -> Result<Attr> {
    let dir = serve.inode(dir)?;
    // The kernel's encoding of a device in 32 bits is Linux's of 64 bits below that.
    let inode = make(serve, caller, (&dir, Some(name)), modes, |create| {
        serve.vol.mknod(&dir, name, create, u64::from(rdev))
    })?;
    Ok(serve.learned(&inode))
}

/// Makes a directory, with (mode, umask).
pub(crate) fn mkdir(
    serve: &Serve,
    caller: Caller,
    (dir, name): Name<'_>,
    (mode, umask): (u32, u32),
) -> Result<Attr> {
    let dir = serve.inode(dir)?;
    let modes = (mode & PERMISSIONS, umask);
    let inode = make(serve, caller, (&dir, Some(name)), modes, |create| {
        serve.vol.mkdir(&dir, name, create)
    })?;
    Ok(serve.learned(&inode))
}

/// Makes a symbolic link.
pub(crate) fn symlink(
    serve: &Serve,
    caller: Caller,
    (dir, name): Name<'_>,
    target: &[u8],
) -> Result<Attr> {
    let dir = serve.inode(dir)?;
    let create = owner_and_mode(serve, caller, &dir, 0o777);
    let inode = serve.vol.symlink(&dir, name, target, &create)?;
    Ok(serve.learned(&inode))
}

/// Makes and opens a regular file, with (mode, umask).
pub(crate) fn create(
    serve: &Serve,
    caller: Caller,
    (dir, name): Name<'_>,
    (mode, umask): (u32, u32),
    how: OpenHow,
) -> Result<(Attr, Handle)> {
    let dir = serve.inode(dir)?;
    let modes = (mode & PERMISSIONS, umask);
    let inode = make(serve, caller, (&dir, Some(name)), modes, |create| {
        serve.vol.create(&dir, name, create)
    })?;
    serve.status.traffic.named(inode.ino, name);
    Ok(opened_new(serve, &inode, how))
}

/// Makes and opens a regular file without a name in `dir`, with (mode, umask).
pub(crate) fn tmpfile(
    serve: &Serve,
    caller: Caller,
    dir: u32,
    (mode, umask): (u32, u32),
    how: OpenHow,
) -> Result<(Attr, Handle)> {
    let dir = serve.inode(dir)?;
    let modes = (mode & PERMISSIONS, umask);
    // With O_EXCL the kernel itself gives it no name.
    let inode =
        make(serve, caller, (&dir, None), modes, |create| serve.vol.tmpfile(&dir, create, true))?;
    let opened = opened_new(serve, &inode, how);
    serve.nodes.unlinked(inode);
    Ok(opened)
}

fn opened_new(serve: &Serve, inode: &InodeRef, how: OpenHow) -> (Attr, Handle) {
    // Nothing of a new file is cached yet, and who only writes it reads nothing: through the
    // cache a write is copied twice and asks for the file's capabilities first.
    let cache = if how.may_bypass && !how.read { CacheMode::Bypassed } else { CacheMode::Cached };
    serve.nodes.create(inode, cache);
    (serve.learned(inode), serve.handles.next(cache, how.write))
}

/// Makes another name of a file.
pub(crate) fn link(serve: &Serve, ino: u32, (dir, name): Name<'_>) -> Result<Attr> {
    let inode = serve.inode(ino)?;
    serve.vol.link(&inode, &serve.inode(dir)?, name)?;
    serve.nodes.named(ino);
    Ok(serve.learned(&inode))
}

/// Removes a name of a file.
pub(crate) fn unlink(serve: &Serve, dir: u32, name: &[u8]) -> Result<()> {
    let dir = serve.inode(dir)?;
    let target = serve.vol.lookup(&dir, name)?;
    serve.vol.unlink(&dir, name)?;
    keep_if_nameless(serve, target);
    Ok(())
}

/// Removes an empty directory.
pub(crate) fn rmdir(serve: &Serve, dir: u32, name: &[u8]) -> Result<()> {
    let dir = serve.inode(dir)?;
    let target = serve.vol.lookup(&dir, name)?;
    serve.vol.rmdir(&dir, name)?;
    keep_if_nameless(serve, target);
    Ok(())
}

/// Renames; `flags` are those of renameat2.
pub(crate) fn rename(
    serve: &Serve,
    caller: Caller,
    from: Name<'_>,
    to: Name<'_>,
    flags: u32,
) -> Result<()> {
    let whiteout = flags & RENAME_WHITEOUT != 0;
    let flags = RenameFlags::from_bits(flags & !RENAME_WHITEOUT)?;
    let (old, new) = (serve.inode(from.0)?, serve.inode(to.0)?);
    let replaced = match serve.vol.lookup(&new, to.1) {
        Ok(inode) => Some(inode),
        Err(FsError::NotFound) => None,
        Err(err) => return Err(err),
    };
    if whiteout {
        let owner = owner_and_mode(serve, caller, &old, 0);
        serve.vol.rename_whiteout((&old, from.1), (&new, to.1), flags, &owner)?;
    } else {
        serve.vol.rename(&old, from.1, &new, to.1, flags)?;
    }
    if let Some(replaced) = replaced {
        keep_if_nameless(serve, replaced);
    }
    Ok(())
}

/// Lists names from `cookie` on, until `sink` has no room for one. `plus`: with attributes.
pub(crate) fn readdir(
    serve: &Serve,
    (dir, cookie): (u32, u64),
    handle: Handle,
    plus: bool,
    sink: &mut dyn FnMut(&Entry<'_>) -> bool,
) -> Result<()> {
    let dir = serve.inode(dir)?;
    let mut failed = None;
    let mut any = false;
    let mut each = |found: DirEntry<'_>| {
        let named = found.name != b"." && found.name != b"..";
        let (mut attr, mut kind) = (None, found.kind);
        if plus && named || kind == FileKind::Unknown {
            match serve.vol.iget(found.ino) {
                Ok(inode) => {
                    let shown = serve.show(serve.vol.getattr(&inode));
                    kind = kind_of_mode(shown.mode);
                    attr = (plus && named).then_some(shown);
                }
                Err(err) if !any => {
                    failed = Some(err);
                    return false;
                }
                // Said with the next call, which begins here.
                Err(_) => return false,
            }
        }
        let learned = attr.is_some();
        let entry = Entry { ino: found.ino, kind, name: found.name, next: found.next_cookie, attr };
        let taken = sink(&entry);
        any |= taken;
        if taken && learned {
            serve.nodes.looked_up(found.ino);
        }
        taken
    };
    if handle.is_unseen() {
        serve.vol.readdir_unseen(&dir, cookie, &mut each)?;
    } else {
        serve.vol.readdir(&dir, cookie, &mut each)?;
    }
    failed.map_or(Ok(()), Err)
}

/// Owner and permissions of what is made in `dir`.
fn owner_and_mode(serve: &Serve, caller: Caller, dir: &InodeRef, mode: u32) -> Create {
    let above = serve.vol.getattr(dir);
    Create {
        mode: mode as u16,
        uid: if serve.owner.is_some() { above.uid } else { caller.uid },
        gid: if serve.group.is_some() { above.gid } else { caller.gid },
    }
}

/// Makes something with the default ACL of `dir`, or where it has none with the umask applied.
/// What cannot get its ACL is not made.
fn make(
    serve: &Serve,
    caller: Caller,
    (dir, name): (&InodeRef, Option<&[u8]>),
    (mode, umask): (u32, u32),
    make: impl FnOnce(&Create) -> Result<InodeRef>,
) -> Result<InodeRef> {
    let (inode, _) = acl::make(&serve.vol, (dir, name), (mode, umask), |mode| {
        make(&owner_and_mode(serve, caller, dir, mode))
    })?;
    Ok(inode)
}

/// Keeps what lost its last name for as long as the kernel knows it.
fn keep_if_nameless(serve: &Serve, target: InodeRef) {
    if serve.vol.getattr(&target).nlink == 0 {
        serve.nodes.unlinked(target);
    }
}
