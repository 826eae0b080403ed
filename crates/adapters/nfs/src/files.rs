//! Contents and attributes: GETATTR, SETATTR, READLINK, READ, WRITE, COMMIT.

use nfs3_types::nfs3::{
    COMMIT3resfail, COMMIT3resok, GETATTR3resok, READ3resfail, READ3resok, READLINK3resfail,
    READLINK3resok, SETATTR3resfail, SETATTR3resok, WRITE3resfail, WRITE3resok, ftype3, nfspath3,
    nfsstat3, stable_how, writeverf3,
};
use nfs3_types::xdr_codec::{Opaque, Void};
use syncline_fs::{Attr, SetAttr};

use crate::arguments::Arguments;
use crate::convert::{self, Status, status};
use crate::export::{Caller, Export, Failed, Watched};
use crate::rpc::{Reply, answer};

/// Most bytes of one READ or WRITE.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Set-user-id, and set-group-id where the group may execute.
fn without_set_ids(attr: &Attr) -> Option<u16> {
    let regular = convert::kind(attr.mode) == ftype3::NF3REG;
    let group = if attr.mode & 0o010 != 0 { 0o2000 } else { 0 };
    let cleared = attr.mode & 0o7777 & !(0o4000 | group);
    (regular && cleared != attr.mode & 0o7777).then_some(cleared)
}

impl Export {
    pub(crate) fn getattr(&self, mut args: Arguments<'_>) -> Reply {
        let done = (|| {
            let inode = self.find(args.opaque()?)?;
            let attr = self.volume.getattr(&inode);
            Ok(GETATTR3resok { obj_attributes: convert::attributes(&attr, self.fsid) })
        })();
        answer(done, || Void)
    }

    pub(crate) fn setattr(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (mut set, guard) = (args.attributes()?, args.guard()?);
            let watched = self.watch(handle)?;
            let attr = self.volume.getattr(&watched.inode);
            if guard.is_some_and(|guard| guard != convert::time(attr.ctime)) {
                return Err(nfsstat3::NFS3ERR_NOT_SYNC.into());
            }
            if set.mode.is_none() && (set.uid.is_some() || set.gid.is_some()) {
                set.mode = without_set_ids(&attr);
            }
            self.volume.setattr(&watched.inode, &set)?;
            self.stable(&watched.inode)?;
            Ok(SETATTR3resok { obj_wcc: self.wcc(&watched) })
        })();
        answer(done, || SETATTR3resfail { obj_wcc: self.wcc_of(handle) })
    }

    pub(crate) fn readlink(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let inode = self.find(handle)?;
            let target = self.volume.readlink(&inode)?;
            Ok(READLINK3resok {
                symlink_attributes: self.attributes(&inode),
                data: nfspath3(Opaque::owned(target)),
            })
        })();
        answer(done, || READLINK3resfail { symlink_attributes: self.attributes_of(handle) })
    }

    pub(crate) fn read(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (offset, count) = (args.u64()?, args.u32()?);
            let inode = self.find(handle)?;
            let size = self.volume.getattr(&inode).size;
            let there = u32::try_from(size.saturating_sub(offset)).unwrap_or(u32::MAX);
            let mut data = vec![0; count.min(TRANSFER_BYTES_MAX).min(there) as usize];
            let len = self.volume.read(&inode, offset, &mut data)?;
            data.truncate(len);
            Ok(READ3resok {
                file_attributes: self.attributes(&inode),
                count: len as u32,
                eof: offset.saturating_add(len as u64) >= size,
                data: Opaque::owned(data),
            })
        })();
        answer(done, || READ3resfail { file_attributes: self.attributes_of(handle) })
    }

    pub(crate) fn write(&self, mut args: Arguments<'_>, caller: Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (offset, count, how) = (args.u64()?, args.u32()?, args.u32()?);
            let data = args.opaque()?;
            if data.len() != count as usize || how > 2 {
                return Err(Failed::Garbage);
            }
            let watched = self.watch(handle)?;
            let attr = self.volume.getattr(&watched.inode);
            let len = self.volume.write(&watched.inode, offset, data)?;
            if caller.uid != 0
                && let Some(mode) = without_set_ids(&attr)
            {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                self.volume.setattr(&watched.inode, &set)?;
            }
            let committed = self.stable_as(&watched, how)?;
            Ok(WRITE3resok {
                file_wcc: self.wcc(&watched),
                count: len as u32,
                committed,
                verf: writeverf3(self.verifier),
            })
        })();
        answer(done, || WRITE3resfail { file_wcc: self.wcc_of(handle) })
    }

    /// Makes what was just written as stable as `how` (`stable_how`) asks.
    fn stable_as(&self, watched: &Watched, how: u32) -> Status<stable_how> {
        if how == 0 {
            return Ok(stable_how::UNSTABLE);
        }
        let data_only = how == 1;
        self.volume.fsync(&watched.inode, data_only).map_err(|err| status(&err))?;
        Ok(if data_only { stable_how::DATA_SYNC } else { stable_how::FILE_SYNC })
    }

    pub(crate) fn commit(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            // The range is a hint: more than it may be committed.
            let (_offset, _count) = (args.u64()?, args.u32()?);
            let watched = self.watch(handle)?;
            self.stable(&watched.inode)?;
            Ok(COMMIT3resok { file_wcc: self.wcc(&watched), verf: writeverf3(self.verifier) })
        })();
        answer(done, || COMMIT3resfail { file_wcc: self.wcc_of(handle) })
    }
}
