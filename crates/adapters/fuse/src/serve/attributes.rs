//! Attributes, extended attributes and flags of files.

use syncline_fs::bits::{S_IFDIR, S_IFMT, S_ISGID, S_ISUID};
use syncline_fs::{Attr, FsError, InodeRef, Result, SetAttr, StatFs, USER_FLAGS, XattrFlags, acl};

use super::privileges::{check_flags, drop_privileges, without_set_id};
use super::{ROOT, Serve};
use crate::caller::Caller;

/// Extended attribute of the root that holds the status document. It is not listed: no socket to
/// find, the permissions of the root apply, and a hung daemon cannot leave a stale file.
pub const STATUS_XATTR: &str = "user.syncline.status";

const FS_DIRSYNC_FL: u32 = 0x1_0000;

/// Flags of setxattr(2).
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const XATTR_CREATE_REPLACE: i32 = 3;

/// Added to the size of an attribute whose length may change until the program asks for it.
const SLACK_BYTES: usize = 4096;

pub(crate) fn getattr(serve: &Serve, ino: u32) -> Result<Attr> {
    Ok(serve.show(serve.vol.getattr(&serve.inode(ino)?)))
}

/// Changes attributes, the size among them.
pub(crate) fn setattr(serve: &Serve, caller: Caller, ino: u32, mut set: SetAttr) -> Result<Attr> {
    let inode = serve.inode(ino)?;
    let asked_mode = set.mode.is_some();
    if serve.owner.is_some_and(|own| set.uid.is_some_and(|uid| uid != own))
        || serve.group.is_some_and(|own| set.gid.is_some_and(|gid| gid != own))
    {
        return Err(FsError::Perm);
    }
    check_flags(&serve.vol.getattr(&inode), &set)?;
    set.uid = if serve.owner.is_some() { None } else { set.uid };
    set.gid = if serve.group.is_some() { None } else { set.gid };
    if set == SetAttr::default() {
        // A chown that changes neither id, or a write about to take the bits away: what goes is
        // the bits, and the change time moves.
        set.mode = Some(without_set_id(&*serve.host, caller, &serve.vol.getattr(&inode)));
    }
    if let Some(size) = set.size.take() {
        truncate(serve, caller, &inode, size)?;
    }
    if let Some(mode) = set.mode.filter(|_| asked_mode) {
        chmod_acl(serve, &inode, mode)?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        let now = serve.vol.getattr(&inode);
        let mode = set.mode.unwrap_or(now.mode) & !S_IFMT | now.mode & S_IFMT;
        let without = without_set_id(&*serve.host, caller, &Attr { mode, ..now });
        set.mode = (set.mode.is_some() || without != now.mode).then_some(without);
    }
    if set != SetAttr::default() {
        serve.vol.setattr(&inode, &set)?;
    }
    Ok(serve.show(serve.vol.getattr(&inode)))
}

fn truncate(serve: &Serve, caller: Caller, inode: &InodeRef, size: u64) -> Result<()> {
    serve.vol.truncate(inode, size)?;
    let set_id = serve.vol.getattr(inode).mode & (S_ISUID | S_ISGID) != 0;
    if set_id && !caller.keeps_set_id(&*serve.host) {
        drop_privileges(serve, caller, inode)
    } else {
        Ok(())
    }
}

/// Changes the ACL of a file with its mode, if it has one.
fn chmod_acl(serve: &Serve, inode: &InodeRef, mode: u16) -> Result<()> {
    match serve.vol.getxattr(inode, acl::ACCESS) {
        Ok(mut access) => {
            acl::chmod(&mut access, u32::from(mode));
            serve.vol.setxattr(inode, acl::ACCESS, &access, XattrFlags::Any)
        }
        Err(FsError::NoData | FsError::NotSupported(_)) => Ok(()),
        Err(err) => Err(err),
    }
}

pub(crate) fn statfs(serve: &Serve) -> StatFs {
    serve.vol.statfs()
}

/// True for the attribute of the status document, which cannot be changed.
fn is_status(ino: u32, name: &[u8]) -> bool {
    ino == ROOT && name == STATUS_XATTR.as_bytes()
}

/// Sets an extended attribute; `flags` are those of setxattr(2).
pub(crate) fn setxattr(
    serve: &Serve,
    caller: Caller,
    ino: u32,
    (name, value): (&[u8], &[u8]),
    flags: i32,
) -> Result<()> {
    let flags = match flags {
        0 => XattrFlags::Any,
        XATTR_CREATE => XattrFlags::Create,
        XATTR_REPLACE => XattrFlags::Replace,
        XATTR_CREATE_REPLACE => XattrFlags::CreateReplace,
        _ => return Err(FsError::invalid("flags of setxattr")),
    };
    if is_status(ino, name) {
        return Err(FsError::Perm);
    }
    let inode = serve.inode(ino)?;
    serve.vol.setxattr(&inode, name, value, flags)?;
    let now = serve.vol.getattr(&inode);
    // `posix_acl_update_mode`
    if name == acl::ACCESS
        && now.mode & S_ISGID != 0
        && !caller.keeps_set_gid(&*serve.host, now.gid)
    {
        let set = SetAttr { mode: Some(now.mode & !S_ISGID), ..SetAttr::default() };
        serve.vol.setattr(&inode, &set)?;
    }
    Ok(())
}

/// Reads an extended attribute. The names of files in the status document are for who serves, and
/// for administrators: they may lie in directories that others may not enter.
pub(crate) fn getxattr(serve: &Serve, caller: Caller, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
    if is_status(ino, name) {
        let names = serve.is_servers(caller);
        let document = serve.status.document(&serve.vol, serve.nodes.open_count(), names);
        return Ok(document.into_bytes());
    }
    serve.vol.getxattr(&serve.inode(ino)?, name)
}

/// Bytes that are added to the size of an attribute for a program that asks for the size first.
pub(crate) fn xattr_slack_bytes(name: &[u8]) -> usize {
    if name == STATUS_XATTR.as_bytes() { SLACK_BYTES } else { 0 }
}

/// Lists the names of extended attributes, each with a NUL behind it.
pub(crate) fn listxattr(serve: &Serve, caller: Caller, ino: u32) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for name in serve.vol.listxattr(&serve.inode(ino)?)? {
        if name.starts_with(b"trusted.") && !caller.is_administrator(&*serve.host) {
            continue;
        }
        all.extend_from_slice(&name);
        all.push(0);
    }
    Ok(all)
}

pub(crate) fn removexattr(serve: &Serve, ino: u32, name: &[u8]) -> Result<()> {
    if is_status(ino, name) {
        return Err(FsError::Perm);
    }
    serve.vol.removexattr(&serve.inode(ino)?, name)
}

/// Sets the flags of chattr; gives nothing back.
pub(crate) fn set_flags(serve: &Serve, ino: u32, flags: u32) -> Result<Vec<u8>> {
    let inode = serve.inode(ino)?;
    let now = serve.vol.getattr(&inode);
    // chattr hands back what it does not change. As with ext4, no success for what is not done.
    let of_directories = if now.mode & S_IFMT == S_IFDIR { 0 } else { FS_DIRSYNC_FL };
    if flags & !now.flags & (!USER_FLAGS | of_directories) != 0 {
        return Err(FsError::NotSupported("a flag that cannot be changed".to_owned()));
    }
    let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
    serve.vol.setattr(&inode, &set)?;
    Ok(Vec::new())
}
