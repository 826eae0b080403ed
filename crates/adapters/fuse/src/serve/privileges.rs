//! Privileges of files: set-id bits and capabilities go when a file changes hands (`chown`) or is
//! written to or truncated by somebody without privileges; files marked immutable or append-only
//! refuse changes.

use syncline_fs::bits::{APPEND, IMMUTABLE, S_IFDIR, S_IFMT, S_ISGID, S_ISUID, S_IXGRP};
use syncline_fs::{Attr, FsError, InodeRef, Result, SetAttr, SetTime};

use super::Serve;
use crate::caller::Caller;
use crate::host::Host;

/// File capabilities.
const CAPABILITY: &[u8] = b"security.capability";

/// Takes the set-id bits away that `file_remove_privs` would.
pub(super) fn drop_privileges(serve: &Serve, caller: Caller, inode: &InodeRef) -> Result<()> {
    let now = serve.vol.getattr_unseen(inode);
    let without = without_set_id(&*serve.host, caller, &now);
    if without != now.mode {
        let set = SetAttr { mode: Some(without), ..SetAttr::default() };
        serve.vol.setattr(inode, &set)?;
    }
    Ok(())
}

/// Removes the capabilities of a program, as a write by any user does.
pub(super) fn drop_capabilities(serve: &Serve, inode: &InodeRef) -> Result<()> {
    match serve.vol.getxattr(inode, CAPABILITY) {
        Ok(_) => serve.vol.removexattr(inode, CAPABILITY),
        Err(FsError::NoData) => Ok(()),
        Err(err) => Err(err),
    }
}

/// The mode without set-user-id, and without set-group-id if a group runs it or the caller may not
/// keep it; a directory's stays (`setattr_should_drop_suidgid`).
pub(super) fn without_set_id(host: &dyn Host, caller: Caller, now: &Attr) -> u16 {
    let mode = now.mode;
    if mode & S_IFMT == S_IFDIR || mode & (S_ISUID | S_ISGID) == 0 {
        return mode;
    }
    let kept = mode & S_IXGRP == 0 && mode & S_ISGID != 0 && caller.keeps_set_gid(host, now.gid);
    mode & !(S_ISUID | if kept { 0 } else { S_ISGID })
}

/// Refuses what a file's flags forbid (`may_setattr`): to a file that only grows, owner, mode and
/// chosen times; to an immutable one also the present time.
pub(super) fn check_flags(now: &Attr, set: &SetAttr) -> Result<()> {
    let present = [set.atime, set.mtime] == [Some(SetTime::Now); 2];
    // With the time of change it is the kernel that writes back times of its own.
    let times = (set.atime.is_some() || set.mtime.is_some()) && set.ctime.is_none();
    let chosen = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || times && !present;
    let forbids = if chosen { APPEND | IMMUTABLE } else { IMMUTABLE };
    let any = chosen || times;
    if any && now.flags & forbids != 0 { Err(FsError::Perm) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;
    use crate::options::FuseOptions;
    use syncline_fs::bits::S_IFREG;

    fn file(mode: u16, flags: u32) -> Attr {
        Attr { mode, flags, gid: 7, ..crate::convert::NOTHING }
    }

    #[test]
    fn set_id_bits_go_as_in_linux() {
        let caller = |gid| Caller { thread: 0, uid: 1000, gid };
        let host = &Machine::new("/".as_ref(), "/".as_ref(), &FuseOptions::default());
        let left = |mode| without_set_id(host, caller(7), &file(mode, 0));
        assert_eq!(left(S_IFREG | 0o6755), S_IFREG | 0o755);
        // Without group execution set-group-id means mandatory locking, and stays for members.
        assert_eq!(left(S_IFREG | 0o6745), S_IFREG | 0o2745);
        let fifo = 0o010_000;
        assert_eq!(left(fifo | 0o6711), fifo | 0o711);
        let left = |mode| without_set_id(host, caller(1000), &file(mode, 0));
        assert_eq!(left(S_IFREG | 0o6745), S_IFREG | 0o745);
        let directory = 0o040_000 | 0o6755;
        assert_eq!(left(directory), directory);
    }

    #[test]
    fn flags_forbid_what_linux_forbids() {
        let at = SetTime::At(syncline_fs::Timestamp { seconds: 1, nanoseconds: 0 });
        let now = Some(SetTime::Now);
        let none = SetAttr::default();
        let touch = SetAttr { atime: now, mtime: now, ..none };
        let chosen = [
            SetAttr { mtime: Some(at), ..none },
            SetAttr { atime: now, ..none },
            SetAttr { uid: Some(1), ..none },
            SetAttr { mode: Some(0), ..none },
        ];
        let (grows, fixed) = (file(S_IFREG, APPEND), file(S_IFREG, IMMUTABLE));
        for set in chosen {
            assert_eq!(check_flags(&grows, &set), Err(FsError::Perm), "{set:?}");
            assert_eq!(check_flags(&fixed, &set), Err(FsError::Perm), "{set:?}");
            assert_eq!(check_flags(&file(S_IFREG, 0), &set), Ok(()));
        }
        assert_eq!(check_flags(&grows, &touch), Ok(()));
        assert_eq!(check_flags(&fixed, &touch), Err(FsError::Perm));
        assert_eq!((check_flags(&grows, &none), check_flags(&fixed, &none)), (Ok(()), Ok(())));
        let written_back = SetAttr { mtime: Some(at), ctime: Some(at), ..none };
        assert_eq!(check_flags(&grows, &written_back), Ok(()));
    }
}
