//! The requests on a volume.
//!
//! What the kernel leaves to the file system, and ext4 does in the kernel: set-id bits go when a
//! file changes hands (`chown`) or is written to or truncated by somebody without privileges; what
//! is made gets the default ACL of its directory, or else the umask (`acl.rs`); files marked
//! immutable or append-only are not opened for what they refuse. With `uid=` or `gid=` every file
//! shows that owner, and what is made belongs, on disk, to the owner of its directory.
//!
//! This file is long because it answers every request of the kernel, one method each. Tested in
//! `cli/tests/mount.rs`.

use std::sync::Arc;

use syncline_device::Clock;
use syncline_fs::{
    Attr, Create, FallocateMode, FileKind, FsError, InodeRef, RenameFlags, Result, SetAttr,
    SetTime, StatFs, SyncMode, USER_FLAGS, Volume, XattrFlags,
};

use crate::acl;
use crate::bell::{Bell, Need};
use crate::caller;
use crate::nodes::Nodes;
use crate::ops::{Context, Entry, OpenHow, Operations, Way, WriteHow};
use crate::options::FuseOptions;
use crate::status::{STATUS_XATTR, Status};

const S_IFMT: u16 = 0o170_000;
const S_IFDIR: u16 = 0o040_000;
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;
const FS_IMMUTABLE_FL: u32 = 0x10;
const FS_APPEND_FL: u32 = 0x20;
const FS_DIRSYNC_FL: u32 = 0x1_0000;
/// File capabilities.
const CAPABILITY: &[u8] = b"security.capability";
/// Bits of a mode that chmod sets.
const PERMISSIONS: u32 = 0o7777;
/// The root directory.
const ROOT: u32 = 2;
/// Bytes copied at once by copy_file_range.
const COPY_BYTES: usize = 1 << 20;
/// Bytes that one copy_file_range copies at most; the program calls again.
const COPY_BYTES_MAX: u64 = 64 << 20;

/// A volume that answers the kernel.
pub(crate) struct Serve {
    vol: Volume,
    clock: Arc<dyn Clock>,
    nodes: Nodes,
    owner: Option<u32>,
    group: Option<u32>,
    eager: bool,
    status: Arc<Status>,
    /// Rung when there is more to write back than may wait.
    pub(crate) bell: Bell,
}

impl Serve {
    pub(crate) fn new(
        vol: Volume,
        clock: Arc<dyn Clock>,
        options: &FuseOptions,
        status: Arc<Status>,
    ) -> Serve {
        let eager = options.volume.sync == SyncMode::Eager;
        let (owner, group) = (options.uid, options.gid);
        let (nodes, bell) = Default::default();
        Serve { vol, clock, nodes, owner, group, eager, status, bell }
    }

    /// Lets go of every inode, for the unmount.
    pub(crate) fn clear(&self) {
        self.nodes.clear();
    }

    fn show(&self, mut attr: Attr) -> Attr {
        attr.uid = self.owner.unwrap_or(attr.uid);
        attr.gid = self.group.unwrap_or(attr.gid);
        attr
    }

    /// The attributes of a name that the kernel learns.
    fn learned(&self, inode: &InodeRef) -> Attr {
        self.nodes.looked_up(inode.ino);
        self.show(self.vol.getattr(inode))
    }

    /// Owner and permissions of what is made in `dir`.
    fn made_by(&self, ctx: Context, dir: &InodeRef, mode: u32) -> Create {
        let above = self.vol.getattr(dir);
        Create {
            mode: mode as u16,
            uid: if self.owner.is_some() { above.uid } else { ctx.uid },
            gid: if self.group.is_some() { above.gid } else { ctx.gid },
        }
    }

    /// Makes something with the default ACL of `dir`, or where it has none with the umask applied.
    /// What cannot get its ACL is not made.
    fn make(
        &self,
        ctx: Context,
        dir: &InodeRef,
        name: &[u8],
        (mode, umask): (u32, u32),
        make: impl FnOnce(&Create) -> Result<InodeRef>,
    ) -> Result<InodeRef> {
        let mut access = match self.vol.getxattr(dir, acl::DEFAULT) {
            Ok(default) => default,
            Err(FsError::NoData) => return make(&self.made_by(ctx, dir, mode & !umask)),
            Err(err) => return Err(err),
        };
        let default = access.clone();
        let (mode, plain) = acl::narrow(&mut access, mode);
        let inode = make(&self.made_by(ctx, dir, mode))?;
        let set = |name, value: &[u8]| self.vol.setxattr(&inode, name, value, XattrFlags::Any);
        let directory = inode.is_dir();
        let access = if plain { Ok(()) } else { set(acl::ACCESS, &access) };
        let both =
            access.and_then(|()| if directory { set(acl::DEFAULT, &default) } else { Ok(()) });
        if let Err(err) = both {
            let undone =
                if directory { self.vol.rmdir(dir, name) } else { self.vol.unlink(dir, name) };
            return Err(undone.err().unwrap_or(err));
        }
        Ok(inode)
    }

    /// chmod of a file with an ACL changes that, too.
    fn chmod_acl(&self, inode: &InodeRef, mode: u16) -> Result<()> {
        match self.vol.getxattr(inode, acl::ACCESS) {
            Ok(mut access) => {
                acl::chmod(&mut access, u32::from(mode));
                self.vol.setxattr(inode, acl::ACCESS, &access, XattrFlags::Any)
            }
            Err(FsError::NoData | FsError::NotSupported(_)) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Removes a name, keeping what it named for as long as the kernel knows it.
    fn remove(&self, dir: u32, name: &[u8], directory: bool) -> Result<()> {
        let dir = self.vol.iget(dir)?;
        let target = self.vol.lookup(&dir, name)?;
        if directory {
            self.vol.rmdir(&dir, name)?
        } else {
            self.vol.unlink(&dir, name)?
        }
        self.keep_if_nameless(target);
        Ok(())
    }

    fn keep_if_nameless(&self, target: InodeRef) {
        if self.vol.getattr(&target).nlink == 0 {
            self.nodes.unlinked(target);
        }
    }

    /// Takes away what `file_remove_privs` would, if it is there.
    fn drop_privileges(&self, inode: &InodeRef) -> Result<()> {
        let now = self.vol.getattr(inode);
        let without = without_set_id(&now);
        if without != now.mode {
            let set = SetAttr { mode: Some(without), ..SetAttr::default() };
            self.vol.setattr(inode, &set)?;
        }
        Ok(())
    }

    /// The capabilities of a program go when it is written to, whoever writes.
    fn drop_capabilities(&self, inode: &InodeRef) -> Result<()> {
        match self.vol.getxattr(inode, CAPABILITY) {
            Ok(_) => self.vol.removexattr(inode, CAPABILITY),
            Err(FsError::NoData) => Ok(()),
            Err(err) => Err(err),
        }
    }

    fn truncate(&self, inode: &InodeRef, size: u64) -> Result<()> {
        self.vol.truncate(inode, size)?;
        let set_id = self.vol.getattr(inode).mode & (S_ISUID | S_ISGID) != 0;
        if set_id && !caller::keeps_set_id() { self.drop_privileges(inode) } else { Ok(()) }
    }
}

/// The mode without set-user-id, and without set-group-id if a group runs it or the caller may not
/// keep it; a directory's stays (`setattr_should_drop_suidgid`).
fn without_set_id(now: &Attr) -> u16 {
    let mode = now.mode;
    if mode & S_IFMT == S_IFDIR || mode & (S_ISUID | S_ISGID) == 0 {
        return mode;
    }
    let kept = mode & S_IXGRP == 0 && mode & S_ISGID != 0 && caller::keeps_set_gid(now.gid);
    mode & !(S_ISUID | if kept { 0 } else { S_ISGID })
}

/// Refuses what a file's flags forbid (`may_setattr`): to a file that only grows, owner, mode and
/// chosen times; to an immutable one also the present time.
fn check_flags(now: &Attr, set: &SetAttr) -> Result<()> {
    let present = [set.atime, set.mtime] == [Some(SetTime::Now); 2];
    // With the time of change it is the kernel that writes back times of its own.
    let times = (set.atime.is_some() || set.mtime.is_some()) && set.ctime.is_none();
    let chosen = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || times && !present;
    let forbids = if chosen { FS_APPEND_FL | FS_IMMUTABLE_FL } else { FS_IMMUTABLE_FL };
    let any = chosen || times;
    if any && now.flags & forbids != 0 { Err(FsError::Perm) } else { Ok(()) }
}

impl Operations for Serve {
    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        let inode = match name {
            // Of a file handle only.
            b"." => self.vol.iget_handle(dir)?,
            name => self.vol.lookup(&self.vol.iget(dir)?, name)?,
        };
        self.status.traffic.named(inode.ino, name);
        Ok(self.learned(&inode))
    }

    fn forget(&self, ino: u32, lookups: u64) {
        self.nodes.forget(ino, lookups);
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        Ok(self.show(self.vol.getattr(&self.vol.iget(ino)?)))
    }

    fn setattr(&self, ino: u32, mut set: SetAttr) -> Result<Attr> {
        let inode = self.vol.iget(ino)?;
        let asked_mode = set.mode.is_some();
        if self.owner.is_some_and(|own| set.uid.is_some_and(|uid| uid != own))
            || self.group.is_some_and(|own| set.gid.is_some_and(|gid| gid != own))
        {
            return Err(FsError::Perm);
        }
        check_flags(&self.vol.getattr(&inode), &set)?;
        set.uid = if self.owner.is_some() { None } else { set.uid };
        set.gid = if self.group.is_some() { None } else { set.gid };
        if set == SetAttr::default() {
            // A chown that changes neither id, or a write about to take the bits away: what goes is
            // the bits, and the change time moves.
            set.mode = Some(without_set_id(&self.vol.getattr(&inode)));
        }
        if let Some(size) = set.size.take() {
            self.truncate(&inode, size)?;
        }
        if let Some(mode) = set.mode.filter(|_| asked_mode) {
            self.chmod_acl(&inode, mode)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let now = self.vol.getattr(&inode);
            let mode = set.mode.unwrap_or(now.mode) & !S_IFMT | now.mode & S_IFMT;
            let without = without_set_id(&Attr { mode, ..now });
            set.mode = (set.mode.is_some() || without != now.mode).then_some(without);
        }
        if set != SetAttr::default() {
            self.vol.setattr(&inode, &set)?;
        }
        Ok(self.show(self.vol.getattr(&inode)))
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        self.vol.readlink(&self.vol.iget(ino)?)
    }

    fn mknod(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u64,
    ) -> Result<Attr> {
        let dir = self.vol.iget(dir)?;
        let inode = self.make(ctx, &dir, name, (mode, umask), |create| {
            self.vol.mknod(&dir, name, create, rdev)
        })?;
        Ok(self.learned(&inode))
    }

    fn mkdir(&self, ctx: Context, dir: u32, name: &[u8], mode: u32, umask: u32) -> Result<Attr> {
        let dir = self.vol.iget(dir)?;
        let inode = self.make(ctx, &dir, name, (mode & PERMISSIONS, umask), |create| {
            self.vol.mkdir(&dir, name, create)
        })?;
        Ok(self.learned(&inode))
    }

    fn symlink(&self, ctx: Context, dir: u32, name: &[u8], target: &[u8]) -> Result<Attr> {
        let dir = self.vol.iget(dir)?;
        let create = self.made_by(ctx, &dir, 0o777);
        let inode = self.vol.symlink(&dir, name, target, &create)?;
        Ok(self.learned(&inode))
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false)
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.remove(dir, name, true)
    }

    fn rename(&self, from: (u32, &[u8]), to: (u32, &[u8]), flags: u32) -> Result<()> {
        let flags = RenameFlags::from_bits(flags)?;
        let (old, new) = (self.vol.iget(from.0)?, self.vol.iget(to.0)?);
        let replaced = match self.vol.lookup(&new, to.1) {
            Ok(inode) => Some(inode),
            Err(FsError::NotFound) => None,
            Err(err) => return Err(err),
        };
        self.vol.rename(&old, from.1, &new, to.1, flags)?;
        if let Some(replaced) = replaced {
            self.keep_if_nameless(replaced);
        }
        Ok(())
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        let inode = self.vol.iget(ino)?;
        self.vol.link(&inode, &self.vol.iget(dir)?, name)?;
        Ok(self.learned(&inode))
    }

    fn create(
        &self,
        ctx: Context,
        dir: u32,
        name: &[u8],
        (mode, umask): (u32, u32),
        how: OpenHow,
    ) -> Result<(Attr, Way)> {
        let dir = self.vol.iget(dir)?;
        let inode = self.make(ctx, &dir, name, (mode & PERMISSIONS, umask), |create| {
            self.vol.create(&dir, name, create)
        })?;
        // Nothing of a new file is cached yet, and who only writes it reads nothing: through the
        // cache a write is copied twice and asks for the file's capabilities first.
        let way = if how.may_pass && !how.read { Way::Past } else { Way::Cached };
        self.nodes.create(&inode, way);
        self.status.traffic.named(inode.ino, name);
        Ok((self.learned(&inode), way))
    }

    fn open(&self, ino: u32, how: OpenHow) -> Result<Way> {
        let inode = self.vol.iget(ino)?;
        let flags = self.vol.getattr(&inode).flags;
        let append_only = flags & FS_APPEND_FL != 0;
        if how.write && (flags & FS_IMMUTABLE_FL != 0 || append_only && !how.append) {
            return Err(FsError::Perm);
        }
        Ok(self.nodes.open(&inode, how.write))
    }

    fn release(&self, ino: u32, past: bool) {
        if let Ok(inode) = self.vol.iget(ino) {
            // Nobody waits for the answer of a close; a failed write has latched the volume.
            let _ = self.vol.close(&inode);
        }
        self.nodes.release(ino, past);
    }

    fn read(&self, ino: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.status.reads.add(into.len());
        self.status.traffic.read(ino, into.len());
        // The kernel caches what it reads.
        self.vol.read_once(&self.vol.iget(ino)?, offset, into)
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8], how: WriteHow) -> Result<usize> {
        self.status.writes.add(data.len());
        self.status.traffic.written(ino, data.len());
        let inode = self.vol.iget(ino)?;
        if how.drop_set_id {
            self.drop_privileges(&inode)?;
        }
        if how.uncached {
            self.drop_capabilities(&inode)?;
        }
        if how.sync || how.dsync {
            let from = self.clock.now_ns();
            let done = self.vol.write_sync(&inode, offset, data, !how.sync)?;
            self.status.synced(self.clock.now_ns().saturating_sub(from));
            return Ok(done);
        }
        let done = self.vol.write(&inode, offset, data)?;
        self.bell.ring(Need::of(&self.vol));
        // Eager mode puts the data of the next fsync into its log; until then nobody waits for it.
        if how.direct && !self.eager {
            self.vol.writeback_range(&inode, offset, done as u64)?;
        }
        Ok(done)
    }

    fn fsync(&self, ino: u32, datasync: bool) -> Result<()> {
        let from = self.clock.now_ns();
        self.vol.fsync(&self.vol.iget(ino)?, datasync)?;
        self.status.traffic.synced(ino);
        self.status.synced(self.clock.now_ns().saturating_sub(from));
        Ok(())
    }

    fn readdir(
        &self,
        dir: u32,
        cookie: u64,
        plus: bool,
        sink: &mut dyn FnMut(&Entry<'_>) -> bool,
    ) -> Result<()> {
        let dir = self.vol.iget(dir)?;
        let mut failed = None;
        let mut any = false;
        self.vol.readdir(&dir, cookie, &mut |found| {
            let named = found.name != b"." && found.name != b"..";
            let (mut attr, mut kind) = (None, found.kind);
            if plus && named || kind == FileKind::Unknown {
                match self.vol.iget(found.ino) {
                    Ok(inode) => {
                        let shown = self.show(self.vol.getattr(&inode));
                        kind = crate::convert::kind_of_mode(shown.mode);
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
            let entry =
                Entry { ino: found.ino, kind, name: found.name, next: found.next_cookie, attr };
            let taken = sink(&entry);
            any |= taken;
            if taken && learned {
                self.nodes.looked_up(found.ino);
            }
            taken
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn statfs(&self) -> StatFs {
        self.vol.statfs()
    }

    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()> {
        if ino == ROOT && name == STATUS_XATTR.as_bytes() {
            return Err(FsError::Perm);
        }
        let inode = self.vol.iget(ino)?;
        self.vol.setxattr(&inode, name, value, flags)?;
        let now = self.vol.getattr(&inode);
        // `posix_acl_update_mode`
        if name == acl::ACCESS && now.mode & S_ISGID != 0 && !caller::keeps_set_gid(now.gid) {
            let set = SetAttr { mode: Some(now.mode & !S_ISGID), ..SetAttr::default() };
            self.vol.setattr(&inode, &set)?;
        }
        Ok(())
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
        if ino == ROOT && name == STATUS_XATTR.as_bytes() {
            return Ok(self.status.document(&self.vol, self.nodes.open_count()).into_bytes());
        }
        self.vol.getxattr(&self.vol.iget(ino)?, name)
    }

    fn listxattr(&self, ino: u32) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for name in self.vol.listxattr(&self.vol.iget(ino)?)? {
            if name.starts_with(b"trusted.") && !caller::is_administrator() {
                continue;
            }
            all.extend_from_slice(&name);
            all.push(0);
        }
        Ok(all)
    }

    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()> {
        if ino == ROOT && name == STATUS_XATTR.as_bytes() {
            return Err(FsError::Perm);
        }
        self.vol.removexattr(&self.vol.iget(ino)?, name)
    }

    fn fallocate(&self, ino: u32, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.vol.fallocate(&self.vol.iget(ino)?, mode, offset, len)
    }

    fn seek(&self, ino: u32, offset: u64, data: bool) -> Result<u64> {
        let inode = self.vol.iget(ino)?;
        if data { self.vol.seek_data(&inode, offset) } else { self.vol.seek_hole(&inode, offset) }
    }

    fn copy(&self, from: (u32, u64), to: (u32, u64), len: u64) -> Result<u64> {
        let (source, target) = (self.vol.iget(from.0)?, self.vol.iget(to.0)?);
        let len = len.min(COPY_BYTES_MAX);
        let mut buffer = vec![0; COPY_BYTES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let want = buffer.len().min((len - done) as usize);
            let step = self
                .vol
                .read(&source, from.1.saturating_add(done), &mut buffer[..want])
                .and_then(|n| self.vol.write(&target, to.1.saturating_add(done), &buffer[..n]));
            match step {
                Ok(0) => break,
                Ok(n) => done += n as u64,
                Err(_) if done > 0 => break,
                Err(err) => return Err(err),
            }
        }
        Ok(done)
    }

    fn set_flags(&self, ino: u32, flags: u32) -> Result<()> {
        let inode = self.vol.iget(ino)?;
        let now = self.vol.getattr(&inode);
        // chattr hands back what it does not change. As with ext4, no success for what is not done.
        let of_directories = if now.mode & S_IFMT == S_IFDIR { 0 } else { FS_DIRSYNC_FL };
        if flags & !now.flags & (!USER_FLAGS | of_directories) != 0 {
            return Err(FsError::NotSupported("a flag that cannot be changed".to_owned()));
        }
        let set = SetAttr { flags: Some(flags), ..SetAttr::default() };
        self.vol.setattr(&inode, &set).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S_IFREG: u16 = 0o100_000;

    fn file(mode: u16, flags: u32) -> Attr {
        Attr { mode, flags, gid: 7, ..crate::convert::NOTHING }
    }

    #[test]
    fn set_id_bits_go_as_in_linux() {
        let left = |mode| without_set_id(&file(mode, 0));
        caller::serve(0, 1000, 7);
        assert_eq!(left(S_IFREG | 0o6755), S_IFREG | 0o755);
        // Without group execution set-group-id means mandatory locking, and stays for members.
        assert_eq!(left(S_IFREG | 0o6745), S_IFREG | 0o2745);
        let fifo = 0o010_000;
        assert_eq!(left(fifo | 0o6711), fifo | 0o711);
        caller::serve(0, 1000, 1000);
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
        let (grows, fixed) = (file(S_IFREG, FS_APPEND_FL), file(S_IFREG, FS_IMMUTABLE_FL));
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
