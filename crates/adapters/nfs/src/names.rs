//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use nfs3_types::nfs3::{
    CREATE3resfail, CREATE3resok, LINK3resfail, LINK3resok, LOOKUP3resfail, LOOKUP3resok,
    MKDIR3resfail, MKNOD3resfail, REMOVE3resfail, REMOVE3resok, RENAME3resfail, RENAME3resok,
    SYMLINK3resfail, ftype3, nfsstat3,
};
use syncline_fs::{
    Create, FsError, InodeRef, RenameFlags, SetAttr, SetTime, Timestamp, acl, makedev,
};

use crate::arguments::{Arguments, Entry};
use crate::convert::{self, Status, status};
use crate::export::{Caller, Export, Failed};
use crate::permissions::EXECUTE;
use crate::rpc::{Reply, answer};

/// Permissions of a new file for which the client names none.
const FILE_MODE: u16 = 0o644;
/// The same of a directory.
const DIRECTORY_MODE: u16 = 0o755;
/// Permissions of a symbolic link.
const LINK_MODE: u16 = 0o777;

/// `createhow3`: the treatment of a file that exists.
enum CreateHow {
    Unchecked(SetAttr),
    Guarded(SetAttr),
    Exclusive([u8; 8]),
}

/// Times that hold the verifier of an exclusive CREATE until the client sets them, as Linux's
/// server keeps it.
fn times_of(verifier: [u8; 8]) -> SetAttr {
    let number = |from: usize| {
        verifier[from..from + 4].iter().fold(0, |value, byte| value << 8 | i64::from(*byte))
    };
    let at = |seconds: i64| {
        let seconds = seconds & 0x7fff_ffff;
        Some(SetTime::At(Timestamp { seconds, nanoseconds: 0 }))
    };
    SetAttr { atime: at(number(0)), mtime: at(number(4)), ..SetAttr::default() }
}

/// `entry` is a name that a client may make or remove.
fn plain(entry: &Entry<'_>) -> Status<()> {
    match entry.name {
        b"." | b".." | b"" => Err(nfsstat3::NFS3ERR_INVAL),
        name if name.contains(&b'/') || name.contains(&0) => Err(nfsstat3::NFS3ERR_INVAL),
        _ => Ok(()),
    }
}

impl Export {
    pub(crate) fn lookup(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let dir = self.find(handle)?;
            self.check(caller, &dir, EXECUTE)?;
            let inode = self.volume.lookup(&dir, entry.name)?;
            self.status.traffic.named(inode.ino, entry.name);
            let attr = self.volume.getattr(&inode);
            Ok(LOOKUP3resok {
                object: self.handle(&attr),
                obj_attributes: self.attributes(&inode),
                dir_attributes: self.attributes(&dir),
            })
        })();
        answer(done, || LOOKUP3resfail { dir_attributes: self.attributes_of(handle) })
    }

    /// Makes `entry` with `make`. CREATE, MKDIR, SYMLINK and MKNOD have one form of result.
    fn made(
        &self,
        caller: &Caller,
        entry: &Entry<'_>,
        make: impl FnOnce(&InodeRef) -> Result<InodeRef, Failed>,
    ) -> Result<CREATE3resok, Failed> {
        plain(entry)?;
        let watched = self.watch(entry.dir)?;
        let dir = watched.inode.clone();
        match self.volume.lookup(&dir, entry.name) {
            // Then nothing is made, and making says what is wrong with that.
            Ok(_) => self.check(caller, &dir, EXECUTE)?,
            Err(_) => self.check_names(caller, &dir)?,
        }
        let inode = make(&dir)?;
        self.status.traffic.named(inode.ino, entry.name);
        let dir_wcc = self.wcc(watched);
        self.stable(&dir)?;
        let (obj, obj_attributes) = self.object(&inode);
        Ok(CREATE3resok { obj, obj_attributes, dir_wcc })
    }

    /// Owner and mode of something new in `dir`, which may not be given to others.
    fn new_file(
        &self,
        caller: &Caller,
        dir: &InodeRef,
        set: &SetAttr,
        default: u16,
    ) -> Status<Create> {
        let (uid, gid) = (caller.uid, caller.gid);
        self.check_owners(caller, (uid, gid), (set.uid, set.gid))?;
        let mode = self.new_mode(caller, dir, set.mode.unwrap_or(default));
        Ok(Create { mode, uid, gid })
    }

    /// Makes `name` in `dir` with its default ACL. The client has applied its user's umask.
    fn make(
        &self,
        (dir, name): (&InodeRef, &[u8]),
        create: Create,
        make: impl FnOnce(&Create) -> syncline_fs::Result<InodeRef>,
    ) -> syncline_fs::Result<InodeRef> {
        let mode = u32::from(create.mode);
        let (inode, inherits) = acl::make(&self.volume, (dir, Some(name)), (mode, 0), |mode| {
            make(&Create { mode: mode as u16, ..create })
        })?;
        if inherits {
            // Not left to the sync of the directory: the mode alone may grant more than the ACL.
            self.volume.fsync(&inode, false)?;
        }
        Ok(inode)
    }

    pub(crate) fn create(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let how = match args.u32()? {
                0 => CreateHow::Unchecked(args.attributes()?),
                1 => CreateHow::Guarded(args.attributes()?),
                2 => CreateHow::Exclusive(args.verifier()?),
                _ => return Err(Failed::Garbage),
            };
            self.made(caller, &entry, |dir| Ok(self.created(dir, entry.name, how, caller)?))
        })();
        answer(done, || CREATE3resfail { dir_wcc: self.wcc_of(handle) })
    }

    /// A new file, or the one that is there if `how` says that it will do.
    fn created(
        &self,
        dir: &InodeRef,
        name: &[u8],
        how: CreateHow,
        caller: &Caller,
    ) -> Status<InodeRef> {
        let set = match &how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => *set,
            CreateHow::Exclusive(verifier) => times_of(*verifier),
        };
        let create = self.new_file(caller, dir, &set, FILE_MODE)?;
        match self.make((dir, name), create, |create| self.volume.create(dir, name, create)) {
            Ok(inode) => {
                self.apply(&inode, &rest_of(set))?;
                Ok(inode)
            }
            Err(FsError::Exists) => self.existing(dir, name, &how, caller),
            Err(err) => Err(status(&err)),
        }
    }

    fn existing(
        &self,
        dir: &InodeRef,
        name: &[u8],
        how: &CreateHow,
        caller: &Caller,
    ) -> Status<InodeRef> {
        let inode = self.volume.lookup(dir, name).map_err(|err| status(&err))?;
        let attr = self.volume.getattr(&inode);
        let is_file = convert::kind(attr.mode) == ftype3::NF3REG;
        match how {
            CreateHow::Unchecked(set) if is_file => {
                // Only the size: that is open with O_TRUNC.
                self.change(caller, &inode, &SetAttr { size: set.size, ..SetAttr::default() })?;
                self.stable(&inode)?;
                Ok(inode)
            }
            CreateHow::Exclusive(verifier) if is_file => {
                let made = times_of(*verifier);
                let same = (made.atime, made.mtime)
                    == (Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)));
                if same { Ok(inode) } else { Err(nfsstat3::NFS3ERR_EXIST) }
            }
            _ => Err(nfsstat3::NFS3ERR_EXIST),
        }
    }

    fn apply(&self, inode: &InodeRef, set: &SetAttr) -> Status<()> {
        if *set != SetAttr::default() {
            self.volume.setattr(inode, set).map_err(|err| status(&err))?;
        }
        Ok(())
    }

    pub(crate) fn mkdir(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let set = args.attributes()?;
            self.made(caller, &entry, |dir| {
                let create = self.new_file(caller, dir, &set, DIRECTORY_MODE)?;
                let inode = self.make((dir, entry.name), create, |create| {
                    self.volume.mkdir(dir, entry.name, create)
                })?;
                self.apply(&inode, &SetAttr { size: None, ..rest_of(set) })?;
                Ok(inode)
            })
        })();
        answer(done, || MKDIR3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn symlink(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let (_, target) = (args.attributes()?, args.opaque()?);
            self.made(caller, &entry, |dir| {
                let create = self.new_file(caller, dir, &SetAttr::default(), LINK_MODE)?;
                Ok(self.volume.symlink(dir, entry.name, target, &create)?)
            })
        })();
        answer(done, || SYMLINK3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn mknod(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            // `ftype3`; the others have calls of their own.
            let (kind, is_device) = match args.u32()? {
                3 => (0o060_000, true),
                4 => (0o020_000, true),
                6 => (0o140_000, false),
                7 => (0o010_000, false),
                _ => return Err(nfsstat3::NFS3ERR_BADTYPE.into()),
            };
            let set = args.attributes()?;
            let rdev = if is_device { makedev(args.u32()?, args.u32()?) } else { 0 };
            self.made(caller, &entry, |dir| {
                if is_device && self.permissions && caller.uid != 0 {
                    return Err(nfsstat3::NFS3ERR_PERM.into());
                }
                let mut create = self.new_file(caller, dir, &set, FILE_MODE)?;
                create.mode |= kind;
                let inode = self.make((dir, entry.name), create, |create| {
                    self.volume.mknod(dir, entry.name, create, rdev)
                })?;
                self.apply(&inode, &SetAttr { size: None, ..rest_of(set) })?;
                Ok(inode)
            })
        })();
        answer(done, || MKNOD3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn remove(&self, args: Arguments<'_>, caller: &Caller) -> Reply {
        self.removed(args, caller, |dir, name| self.volume.unlink(dir, name))
    }

    pub(crate) fn rmdir(&self, args: Arguments<'_>, caller: &Caller) -> Reply {
        self.removed(args, caller, |dir, name| self.volume.rmdir(dir, name))
    }

    /// Takes a name away with `remove`. REMOVE and RMDIR have one form of result.
    fn removed(
        &self,
        mut args: Arguments<'_>,
        caller: &Caller,
        remove: impl FnOnce(&InodeRef, &[u8]) -> syncline_fs::Result<()>,
    ) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            plain(&entry)?;
            let watched = self.watch(handle)?;
            let dir = watched.inode.clone();
            self.check_removal(caller, &dir, entry.name)?;
            remove(&dir, entry.name)?;
            let dir_wcc = self.wcc(watched);
            self.stable(&dir)?;
            Ok(REMOVE3resok { dir_wcc })
        })();
        answer(done, || REMOVE3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn rename(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handles: (&[u8], &[u8]) = (&[], &[]);
        let done = (|| {
            let (old, new) = (args.entry()?, args.entry()?);
            handles = (old.dir, new.dir);
            plain(&old)?;
            plain(&new)?;
            let (from, to) = self.watch_both(old.dir, new.dir)?;
            let (old_dir, new_dir) = (from.inode.clone(), to.inode.clone());
            self.check_removal(caller, &old_dir, old.name)?;
            self.check_removal(caller, &new_dir, new.name)?;
            if old_dir.ino != new_dir.ino {
                self.check_move(caller, &old_dir, old.name)?;
            }
            self.volume.rename(&old_dir, old.name, &new_dir, new.name, RenameFlags::NONE)?;
            let (fromdir_wcc, todir_wcc) = (self.change_of(&from), self.change_of(&to));
            drop((from, to));
            self.stable(&new_dir)?;
            self.stable(&old_dir)?;
            Ok(RENAME3resok { fromdir_wcc, todir_wcc })
        })();
        answer(done, || RENAME3resfail {
            fromdir_wcc: self.wcc_of(handles.0),
            todir_wcc: self.wcc_of(handles.1),
        })
    }

    pub(crate) fn link(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handles: (&[u8], &[u8]) = (&[], &[]);
        let done = (|| {
            let (file, entry) = (args.opaque()?, args.entry()?);
            handles = (file, entry.dir);
            plain(&entry)?;
            let (inode, watched) = (self.find(file)?, self.watch(entry.dir)?);
            let dir = watched.inode.clone();
            self.check_names(caller, &dir)?;
            self.volume.link(&inode, &dir, entry.name)?;
            let linkdir_wcc = self.wcc(watched);
            self.stable(&dir)?;
            self.stable(&inode)?;
            Ok(LINK3resok { file_attributes: self.attributes(&inode), linkdir_wcc })
        })();
        answer(done, || LINK3resfail {
            file_attributes: self.attributes_of(handles.0),
            linkdir_wcc: self.wcc_of(handles.1),
        })
    }
}

/// Attributes that a new file does not have yet: all but the permissions.
fn rest_of(set: SetAttr) -> SetAttr {
    SetAttr { mode: None, ..set }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verifier_fits_in_two_times() {
        let times = times_of([0xff, 0, 0, 1, 0, 0, 0, 2]);
        let at = |seconds| Some(SetTime::At(Timestamp { seconds, nanoseconds: 0 }));
        assert_eq!((times.atime, times.mtime), (at(0x7f00_0001), at(2)));
    }

    #[test]
    fn dots_and_slashes_are_no_names() {
        for name in [&b"."[..], b"..", b"", b"a/b", b"a\0"] {
            assert_eq!(plain(&Entry { dir: b"", name }), Err(nfsstat3::NFS3ERR_INVAL));
        }
        assert_eq!(plain(&Entry { dir: b"", name: b"..." }), Ok(()));
    }
}
