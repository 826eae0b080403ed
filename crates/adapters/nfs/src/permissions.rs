//! Permissions and privileges, for the user that a call names: what Linux checks on a local ext4.
//!
//! The owner of a file may read and write it whatever its mode is, as on Linux's server: a client
//! checks at open(2), and a program may have taken the permission away since.
//! Source: fs/namei.c (`generic_permission`, `may_delete`), fs/attr.c
//! (`setattr_prepare`), fs/nfsd/vfs.c.

use nfs3_types::nfs3::{ftype3, nfsstat3};
use syncline_fs::{Attr, FsError, InodeRef, SetAttr, SetTime, XattrFlags, acl};

use crate::convert::{self, Status, status};
use crate::export::{Caller, Export};

/// Permissions, as in one class of a mode.
pub(crate) const READ: u16 = 4;
/// To write to a file, to change the names in a directory.
pub(crate) const WRITE: u16 = 2;
/// To run a program, to search a directory.
pub(crate) const EXECUTE: u16 = 1;

/// `S_ISUID`, `S_ISGID`, `S_ISVTX`, `S_IXGRP`.
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const STICKY: u16 = 0o1000;
const GROUP_EXECUTE: u16 = 0o010;

const CAPABILITY: &[u8] = b"security.capability";

/// The mode without what a change by this user takes away: set-user-id, and set-group-id where a
/// group runs it or the user is none of the group. `None`: nothing goes.
fn without_set_ids(attr: &Attr, caller: &Caller) -> Option<u16> {
    let mode = attr.mode & 0o7777;
    let regular = convert::kind(attr.mode) == ftype3::NF3REG;
    let kept = mode & GROUP_EXECUTE == 0 && caller.keeps_set_gid(attr.gid);
    let cleared = mode & !(SET_UID | if kept { 0 } else { SET_GID });
    (regular && cleared != mode).then_some(cleared)
}

fn require(may: bool, otherwise: nfsstat3) -> Status<()> {
    if may { Ok(()) } else { Err(otherwise) }
}

impl Caller {
    fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Reports whether the user is in this group.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    fn keeps_set_gid(&self, gid: u32) -> bool {
        self.is_root() || self.is_in(gid)
    }
}

impl Export {
    /// Reports whether the user has all permissions of `want` on a file.
    pub(crate) fn may(&self, caller: &Caller, inode: &InodeRef, want: u16) -> bool {
        if !self.permissions {
            return true;
        }
        let attr = self.volume.getattr(inode);
        if caller.is_root() {
            let runs = convert::kind(attr.mode) == ftype3::NF3DIR || attr.mode & 0o111 != 0;
            return want & EXECUTE == 0 || runs;
        }
        let class = |shift: u32| attr.mode >> shift & want == want;
        if caller.uid == attr.uid {
            return class(6);
        }
        if attr.mode & 0o070 != 0 {
            if let Ok(acl) = self.volume.getxattr(inode, acl::ACCESS) {
                return acl::grants(&acl, caller.uid, |gid| caller.is_in(gid), attr.gid, want)
                    .unwrap_or_else(|| class(0));
            }
        }
        if caller.is_in(attr.gid) { class(3) } else { class(0) }
    }

    /// As [`Export::may`], an error otherwise.
    pub(crate) fn check(&self, caller: &Caller, inode: &InodeRef, want: u16) -> Status<()> {
        require(self.may(caller, inode, want), nfsstat3::NFS3ERR_ACCES)
    }

    /// For contents: the owner may always, and who may run a program may read it.
    pub(crate) fn check_io(&self, caller: &Caller, inode: &InodeRef, want: u16) -> Status<()> {
        let owns = || self.volume.getattr(inode).uid == caller.uid;
        let runs = || want == READ && self.may(caller, inode, EXECUTE);
        let may = self.may(caller, inode, want) || owns() || runs();
        require(may, nfsstat3::NFS3ERR_ACCES)
    }

    /// For changes of the names in a directory.
    pub(crate) fn check_names(&self, caller: &Caller, dir: &InodeRef) -> Status<()> {
        self.check(caller, dir, WRITE | EXECUTE)
    }

    /// For the removal of a name: in a sticky directory only the file's and the directory's owner.
    pub(crate) fn check_removal(&self, caller: &Caller, dir: &InodeRef, name: &[u8]) -> Status<()> {
        self.check_names(caller, dir)?;
        if !self.permissions || caller.is_root() {
            return Ok(());
        }
        let attr = self.volume.getattr(dir);
        if attr.mode & STICKY == 0 || attr.uid == caller.uid {
            return Ok(());
        }
        match self.volume.lookup(dir, name) {
            Ok(inode) => {
                let owns = self.volume.getattr(&inode).uid == caller.uid;
                require(owns, nfsstat3::NFS3ERR_PERM)
            }
            Err(FsError::NotFound) => Ok(()),
            Err(err) => Err(status(&err)),
        }
    }

    /// For a directory that gets another parent, which is a change of its own entries.
    pub(crate) fn check_move(&self, caller: &Caller, dir: &InodeRef, name: &[u8]) -> Status<()> {
        let Ok(inode) = self.volume.lookup(dir, name) else { return Ok(()) };
        match convert::kind(self.volume.getattr(&inode).mode) {
            ftype3::NF3DIR => self.check(caller, &inode, WRITE),
            _ => Ok(()),
        }
    }

    /// For new owners of a file that belongs to `now`.
    pub(crate) fn check_owners(
        &self,
        caller: &Caller,
        now: (u32, u32),
        (uid, gid): (Option<u32>, Option<u32>),
    ) -> Status<()> {
        let keeps = uid.is_none_or(|uid| uid == now.0);
        let joins = gid.is_none_or(|gid| gid == now.1 || caller.is_in(gid));
        let owns = caller.uid == now.0 && keeps && joins;
        let may = !self.permissions || caller.is_root() || uid.is_none() && gid.is_none() || owns;
        require(may, nfsstat3::NFS3ERR_PERM)
    }

    /// Sets attributes that the caller may set.
    pub(crate) fn change(&self, caller: &Caller, inode: &InodeRef, set: &SetAttr) -> Status<()> {
        let set = self.checked(caller, inode, set)?;
        if set == SetAttr::default() {
            return Ok(());
        }
        self.volume.setattr(inode, &set).map_err(|err| status(&err))?;
        match (set.mode, self.volume.getxattr(inode, acl::ACCESS)) {
            (Some(mode), Ok(mut value)) => {
                acl::chmod(&mut value, u32::from(mode));
                let set = self.volume.setxattr(inode, acl::ACCESS, &value, XattrFlags::Any);
                set.map_err(|err| status(&err))
            }
            _ => Ok(()),
        }
    }

    /// The new attributes, if the caller may set them, with what goes along: privileges.
    fn checked(&self, caller: &Caller, inode: &InodeRef, set: &SetAttr) -> Status<SetAttr> {
        let (attr, mut set) = (self.volume.getattr(inode), *set);
        let owns = !self.permissions || caller.is_root() || caller.uid == attr.uid;
        self.check_owners(caller, (attr.uid, attr.gid), (set.uid, set.gid))?;
        require(owns || set.mode.is_none(), nfsstat3::NFS3ERR_PERM)?;
        if set.size.is_some() {
            self.check_io(caller, inode, WRITE)?;
        }
        let now = Some(SetTime::Now);
        let chosen = [set.atime, set.mtime].iter().any(|time| time.is_some() && *time != now);
        // A new size brings the present time along.
        let touches = (set.atime, set.mtime) == (now, now) || set.size.is_some() && !chosen;
        if (set.atime.is_some() || set.mtime.is_some()) && !owns {
            require(touches, nfsstat3::NFS3ERR_PERM)?;
            self.check(caller, inode, WRITE)?;
        }
        if set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
            self.drop_capabilities(inode)?;
        }
        let gid = set.gid.unwrap_or(attr.gid);
        match &mut set.mode {
            Some(mode) if self.permissions && !caller.keeps_set_gid(gid) => *mode &= !SET_GID,
            Some(_) => {}
            None if set.uid.is_some() || set.gid.is_some() => {
                // For every caller, including root.
                set.mode = without_set_ids(&attr, caller);
            }
            None if set.size.is_some() && !caller.is_root() => {
                set.mode = without_set_ids(&attr, caller);
            }
            None => {}
        }
        Ok(set)
    }

    /// The privileges of a file go when it is written to.
    pub(crate) fn drop_privileges(&self, caller: &Caller, inode: &InodeRef) -> Status<()> {
        self.drop_capabilities(inode)?;
        let mode = without_set_ids(&self.volume.getattr(inode), caller);
        if caller.is_root() || mode.is_none() {
            return Ok(());
        }
        let set = SetAttr { mode, ..SetAttr::default() };
        self.volume.setattr(inode, &set).map_err(|err| status(&err))?;
        Ok(())
    }

    fn drop_capabilities(&self, inode: &InodeRef) -> Status<()> {
        match self.volume.getxattr(inode, CAPABILITY) {
            Ok(_) => self.volume.removexattr(inode, CAPABILITY).map_err(|err| status(&err)),
            Err(FsError::NoData) => Ok(()),
            Err(err) => Err(status(&err)),
        }
    }

    /// Permissions of a new file: set-group-id only for members of the group that `dir` gives it.
    pub(crate) fn new_mode(&self, caller: &Caller, dir: &InodeRef, mode: u16) -> u16 {
        let attr = self.volume.getattr(dir);
        let foreign = attr.mode & SET_GID != 0 && !caller.keeps_set_gid(attr.gid);
        let runs = mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
        if self.permissions && foreign && runs { mode & !SET_GID } else { mode }
    }
}
