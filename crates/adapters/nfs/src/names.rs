//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use nfs3_types::nfs3::{
    CREATE3resfail, CREATE3resok, LINK3resfail, LINK3resok, LOOKUP3resfail, LOOKUP3resok,
    MKDIR3resfail, MKNOD3resfail, REMOVE3resfail, REMOVE3resok, RENAME3resfail, RENAME3resok,
    SYMLINK3resfail, ftype3, nfsstat3,
};
use rustix::fs::makedev;
use syncline_fs::{FsError, InodeRef, RenameFlags, SetAttr, SetTime, Timestamp};

use crate::arguments::{Arguments, Entry};
use crate::convert::{self, Status, status};
use crate::export::{Caller, Export, Failed};
use crate::rpc::{Reply, answer};

/// Permissions of a new file for which the client names none.
const FILE_MODE: u16 = 0o644;
/// The same of a directory.
const DIRECTORY_MODE: u16 = 0o755;

/// Ways of CREATE to treat a file that is there: `createmode3`.
enum How {
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
    pub(crate) fn lookup(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let dir = self.find(handle)?;
            let inode = self.volume.lookup(&dir, entry.name)?;
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
        entry: &Entry<'_>,
        make: impl FnOnce(&InodeRef) -> Result<InodeRef, Failed>,
    ) -> Result<CREATE3resok, Failed> {
        plain(entry)?;
        let dir = self.watch(entry.dir)?;
        let inode = make(&dir.inode)?;
        self.stable(&dir.inode)?;
        let (obj, obj_attributes) = self.object(&inode);
        Ok(CREATE3resok { obj, obj_attributes, dir_wcc: self.wcc(&dir) })
    }

    pub(crate) fn create(&self, mut args: Arguments<'_>, caller: Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let how = match args.u32()? {
                0 => How::Unchecked(args.attributes()?),
                1 => How::Guarded(args.attributes()?),
                2 => How::Exclusive(args.verifier()?),
                _ => return Err(Failed::Garbage),
            };
            self.made(&entry, |dir| Ok(self.created(dir, entry.name, how, caller)?))
        })();
        answer(done, || CREATE3resfail { dir_wcc: self.wcc_of(handle) })
    }

    /// A new file, or the one that is there if `how` says that it will do.
    fn created(&self, dir: &InodeRef, name: &[u8], how: How, caller: Caller) -> Status<InodeRef> {
        let (mode, then) = match &how {
            How::Unchecked(set) | How::Guarded(set) => (set.mode, rest_of(*set)),
            How::Exclusive(verifier) => (None, times_of(*verifier)),
        };
        match self.volume.create(dir, name, &caller.creates(mode, FILE_MODE)) {
            Ok(inode) => {
                self.apply(&inode, &then)?;
                Ok(inode)
            }
            Err(FsError::Exists) => self.existing(dir, name, &how),
            Err(err) => Err(status(&err)),
        }
    }

    fn existing(&self, dir: &InodeRef, name: &[u8], how: &How) -> Status<InodeRef> {
        let inode = self.volume.lookup(dir, name).map_err(|err| status(&err))?;
        let attr = self.volume.getattr(&inode);
        let is_file = convert::kind(attr.mode) == ftype3::NF3REG;
        match how {
            How::Unchecked(set) if is_file => {
                // Only the size: that is open with O_TRUNC.
                self.apply(&inode, &SetAttr { size: set.size, ..SetAttr::default() })?;
                self.stable(&inode)?;
                Ok(inode)
            }
            How::Exclusive(verifier) if is_file => {
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

    pub(crate) fn mkdir(&self, mut args: Arguments<'_>, caller: Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let set = args.attributes()?;
            self.made(&entry, |dir| {
                let create = caller.creates(set.mode, DIRECTORY_MODE);
                let inode = self.volume.mkdir(dir, entry.name, &create)?;
                self.apply(&inode, &SetAttr { size: None, ..rest_of(set) })?;
                Ok(inode)
            })
        })();
        answer(done, || MKDIR3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn symlink(&self, mut args: Arguments<'_>, caller: Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            let (_, target) = (args.attributes()?, args.opaque()?);
            self.made(&entry, |dir| {
                let create = caller.creates(None, 0o777);
                Ok(self.volume.symlink(dir, entry.name, target, &create)?)
            })
        })();
        answer(done, || SYMLINK3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn mknod(&self, mut args: Arguments<'_>, caller: Caller) -> Reply {
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
            self.made(&entry, |dir| {
                let mut create = caller.creates(set.mode, FILE_MODE);
                create.mode |= kind;
                let inode = self.volume.mknod(dir, entry.name, &create, rdev)?;
                self.apply(&inode, &SetAttr { size: None, ..rest_of(set) })?;
                Ok(inode)
            })
        })();
        answer(done, || MKNOD3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn remove(&self, args: Arguments<'_>) -> Reply {
        self.removed(args, |dir, name| self.volume.unlink(dir, name))
    }

    pub(crate) fn rmdir(&self, args: Arguments<'_>) -> Reply {
        self.removed(args, |dir, name| self.volume.rmdir(dir, name))
    }

    /// Takes a name away with `remove`. REMOVE and RMDIR have one form of result.
    fn removed(
        &self,
        mut args: Arguments<'_>,
        remove: impl FnOnce(&InodeRef, &[u8]) -> syncline_fs::Result<()>,
    ) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            let entry = args.entry()?;
            handle = entry.dir;
            plain(&entry)?;
            let dir = self.watch(handle)?;
            remove(&dir.inode, entry.name)?;
            self.stable(&dir.inode)?;
            Ok(REMOVE3resok { dir_wcc: self.wcc(&dir) })
        })();
        answer(done, || REMOVE3resfail { dir_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn rename(&self, mut args: Arguments<'_>) -> Reply {
        let mut handles: (&[u8], &[u8]) = (&[], &[]);
        let done = (|| {
            let (old, new) = (args.entry()?, args.entry()?);
            handles = (old.dir, new.dir);
            plain(&old)?;
            plain(&new)?;
            let (from, to) = (self.watch(old.dir)?, self.watch(new.dir)?);
            let flags = RenameFlags::NONE;
            self.volume.rename(&from.inode, old.name, &to.inode, new.name, flags)?;
            self.stable(&to.inode)?;
            self.stable(&from.inode)?;
            Ok(RENAME3resok { fromdir_wcc: self.wcc(&from), todir_wcc: self.wcc(&to) })
        })();
        answer(done, || RENAME3resfail {
            fromdir_wcc: self.wcc_of(handles.0),
            todir_wcc: self.wcc_of(handles.1),
        })
    }

    pub(crate) fn link(&self, mut args: Arguments<'_>) -> Reply {
        let mut handles: (&[u8], &[u8]) = (&[], &[]);
        let done = (|| {
            let (file, entry) = (args.opaque()?, args.entry()?);
            handles = (file, entry.dir);
            plain(&entry)?;
            let (inode, dir) = (self.find(file)?, self.watch(entry.dir)?);
            self.volume.link(&inode, &dir.inode, entry.name)?;
            self.stable(&dir.inode)?;
            self.stable(&inode)?;
            let file_attributes = self.attributes(&inode);
            Ok(LINK3resok { file_attributes, linkdir_wcc: self.wcc(&dir) })
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
