//! Contents and attributes: GETATTR, SETATTR, READLINK, READ, WRITE, COMMIT.

use nfs3_types::nfs3::{
    COMMIT3resfail, COMMIT3resok, GETATTR3resok, READ3resfail, READLINK3resfail, READLINK3resok,
    SETATTR3resfail, SETATTR3resok, WRITE3resfail, WRITE3resok, nfspath3, nfsstat3, post_op_attr,
    stable_how, writeverf3,
};
use nfs3_types::xdr_codec::{Opaque, Pack, Void};
use syncline_fs::InodeRef;

use crate::arguments::Arguments;
use crate::convert::{self, Status};
use crate::export::{Caller, Export, Failed};
use crate::permissions::{READ, WRITE};
use crate::record::Room;
use crate::rpc::{Reply, answer};

/// Most bytes of one READ or WRITE.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Bytes of the result of a READ before its contents.
const RESULT_BYTES: usize = 104;

/// The result of a READ up to its `len` bytes of contents: READ3resok, whose last field they are.
fn contents(attributes: post_op_attr, len: usize, eof: bool) -> Reply {
    let mut result = Vec::with_capacity(RESULT_BYTES);
    let (status, len32) = (nfsstat3::NFS3_OK as u32, len as u32);
    let packed = status
        .pack(&mut result)
        .and_then(|_| attributes.pack(&mut result))
        .and_then(|_| len32.pack(&mut result))
        .and_then(|_| eof.pack(&mut result))
        .and_then(|_| len32.pack(&mut result));
    packed.map_or(Reply::NoProcedure, |_| Reply::Contents(result, len))
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

    pub(crate) fn setattr(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (set, guard) = (args.attributes()?, args.guard()?);
            let watched = self.watch(handle)?;
            let inode = watched.inode.clone();
            let ctime = self.volume.getattr(&inode).ctime;
            if guard.is_some_and(|guard| guard != convert::time(ctime)) {
                return Err(nfsstat3::NFS3ERR_NOT_SYNC.into());
            }
            self.change(caller, &inode, &set)?;
            let obj_wcc = self.wcc(watched);
            self.stable(&inode)?;
            Ok(SETATTR3resok { obj_wcc })
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

    pub(crate) fn read(&self, mut args: Arguments<'_>, caller: &Caller, room: &mut Room) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (offset, count) = (args.u64()?, args.u32()?);
            let inode = self.find(handle)?;
            self.check_io(caller, &inode, READ)?;
            let size = self.volume.getattr(&inode).size;
            let there = u32::try_from(size.saturating_sub(offset)).unwrap_or(u32::MAX);
            let count = count.min(TRANSFER_BYTES_MAX).min(there) as usize;
            let len = self.volume.read_once(&inode, offset, room.contents(count))?;
            self.status.reads.add(len);
            self.status.traffic.read(inode.ino, len);
            let eof = offset.saturating_add(len as u64) >= size;
            Ok((len, eof, self.attributes(&inode)))
        })();
        match done {
            Ok((len, eof, attributes)) => contents(attributes, len, eof),
            Err(failed) => answer(Err::<Void, _>(failed), || READ3resfail {
                file_attributes: self.attributes_of(handle),
            }),
        }
    }

    pub(crate) fn write(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let (offset, count, how) = (args.u64()?, args.u32()?, args.u32()?);
            let data = args.opaque()?;
            if data.len() != count as usize || how > 2 {
                return Err(Failed::Garbage);
            }
            let watched = self.watch(handle)?;
            let inode = watched.inode.clone();
            self.check_io(caller, &inode, WRITE)?;
            let len = self.volume.write(&inode, offset, data)?;
            self.status.writes.add(len);
            self.status.traffic.written(inode.ino, len);
            self.drop_privileges(caller, &inode)?;
            let file_wcc = self.wcc(watched);
            let committed = self.stable_as(&inode, how)?;
            Ok(WRITE3resok {
                file_wcc,
                count: len as u32,
                committed,
                verf: writeverf3(self.verifier),
            })
        })();
        answer(done, || WRITE3resfail { file_wcc: self.wcc_of(handle) })
    }

    /// Makes what was just written as stable as `how` (`stable_how`) asks.
    fn stable_as(&self, inode: &InodeRef, how: u32) -> Status<stable_how> {
        if how == 0 {
            return Ok(stable_how::UNSTABLE);
        }
        let data_only = how == 1;
        self.sync(inode, data_only)?;
        Ok(if data_only { stable_how::DATA_SYNC } else { stable_how::FILE_SYNC })
    }

    pub(crate) fn commit(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            // The range is a hint: more than it may be committed.
            let (_offset, _count) = (args.u64()?, args.u32()?);
            let inode = self.find(handle)?;
            self.stable(&inode)?;
            let file_wcc = self.wcc(self.watch(handle)?);
            Ok(COMMIT3resok { file_wcc, verf: writeverf3(self.verifier) })
        })();
        answer(done, || COMMIT3resfail { file_wcc: self.wcc_of(handle) })
    }
}
