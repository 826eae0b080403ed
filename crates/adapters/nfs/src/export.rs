//! The volume as it is exported: handles, attributes, durability.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nfs3_types::nfs3::{Nfs3Option, nfs_fh3, nfsstat3, post_op_attr, post_op_fh3, wcc_data};
use nfs3_types::xdr_codec::Opaque;
use syncline_control::status::Status;
use syncline_fs::{Attr, FsError, InodeRef, Volume};

use crate::arguments::Garbage;
use crate::convert::{self, status};

/// Bytes of a file handle: volume, inode number, generation.
const HANDLE_BYTES: usize = 16;

/// Most groups that a call names.
pub(crate) const GROUPS_MAX: usize = 16;
/// User and group of a call that names none: nobody.
const NOBODY: u32 = 65_534;

/// User that a call names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Those beside `gid`, which stands for those that are not named.
    pub(crate) groups: [u32; GROUPS_MAX],
}

impl Default for Caller {
    fn default() -> Caller {
        Caller { uid: NOBODY, gid: NOBODY, groups: [NOBODY; GROUPS_MAX] }
    }
}

/// Locks of files, each for many.
const LOCKS: usize = 256;

/// A volume, its number for clients, and the verifier of this run of the server.
pub(crate) struct Export {
    pub(crate) volume: Volume,
    pub(crate) status: Arc<Status>,
    pub(crate) fsid: u64,
    pub(crate) verifier: [u8; 8],
    /// Checks permissions of the caller.
    pub(crate) permissions: bool,
    /// Held from the attributes before a change to those behind it.
    changing: Vec<Mutex<()>>,
}

/// Why a call has no result.
pub(crate) enum Failed {
    /// An error that the result carries.
    Status(nfsstat3),
    /// Arguments without meaning.
    Garbage,
}

impl From<nfsstat3> for Failed {
    fn from(status: nfsstat3) -> Failed {
        Failed::Status(status)
    }
}

impl From<FsError> for Failed {
    fn from(err: FsError) -> Failed {
        Failed::Status(status(&err))
    }
}

impl From<Garbage> for Failed {
    fn from(_: Garbage) -> Failed {
        Failed::Garbage
    }
}

/// A directory or file that one call changes, for `wcc_data`. No other call does meanwhile: a
/// client whose attributes are those from before takes the change for its own, and keeps its
/// cache.
pub(crate) struct Watched<'a> {
    pub(crate) inode: InodeRef,
    before: Attr,
    _changing: Option<MutexGuard<'a, ()>>,
}

impl Export {
    pub(crate) fn new(
        (volume, status): (Volume, Arc<Status>),
        fsid: u64,
        verifier: [u8; 8],
        permissions: bool,
    ) -> Export {
        let changing = (0..LOCKS).map(|_| Mutex::default()).collect();
        Export { volume, status, fsid, verifier, permissions, changing }
    }

    fn lock_nr(inode: &InodeRef) -> usize {
        inode.ino as usize % LOCKS
    }

    fn lock(&self, nr: usize) -> Option<MutexGuard<'_, ()>> {
        self.changing.get(nr).map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The file that a handle names.
    pub(crate) fn find(&self, handle: &[u8]) -> Result<InodeRef, nfsstat3> {
        let bytes: &[u8; HANDLE_BYTES] =
            handle.try_into().map_err(|_| nfsstat3::NFS3ERR_BADHANDLE)?;
        let number = |from: usize| {
            bytes[from..from + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
        };
        if bytes[..8] != self.fsid.to_be_bytes() {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        let inode = self.volume.iget_handle(number(8)).map_err(|err| status(&err))?;
        let attr = self.volume.getattr(&inode);
        if attr.generation != number(12) || attr.nlink == 0 {
            return Err(nfsstat3::NFS3ERR_STALE);
        }
        Ok(inode)
    }

    /// As [`Export::find`], with the attributes as they are before the call.
    pub(crate) fn watch(&self, handle: &[u8]) -> Result<Watched<'_>, nfsstat3> {
        let inode = self.find(handle)?;
        let changing = self.lock(Export::lock_nr(&inode));
        Ok(Watched { before: self.volume.getattr(&inode), inode, _changing: changing })
    }

    /// As [`Export::watch`] for two directories.
    pub(crate) fn watch_both(
        &self,
        one: &[u8],
        other: &[u8],
    ) -> Result<(Watched<'_>, Watched<'_>), nfsstat3> {
        let inodes = (self.find(one)?, self.find(other)?);
        let (first, second) = (Export::lock_nr(&inodes.0), Export::lock_nr(&inodes.1));
        // In ascending order, so that no two calls wait for each other.
        let low = self.lock(first.min(second));
        let high = if first == second { None } else { self.lock(first.max(second)) };
        let watched = |inode: InodeRef, changing| Watched {
            before: self.volume.getattr(&inode),
            inode,
            _changing: changing,
        };
        Ok((watched(inodes.0, low), watched(inodes.1, high)))
    }

    pub(crate) fn handle(&self, attr: &Attr) -> nfs_fh3 {
        let mut bytes = Vec::with_capacity(HANDLE_BYTES);
        bytes.extend_from_slice(&self.fsid.to_be_bytes());
        bytes.extend_from_slice(&attr.ino.to_be_bytes());
        bytes.extend_from_slice(&attr.generation.to_be_bytes());
        nfs_fh3 { data: Opaque::owned(bytes) }
    }

    pub(crate) fn attributes(&self, inode: &InodeRef) -> post_op_attr {
        let attr = self.volume.getattr(inode);
        Nfs3Option::Some(convert::attributes(&attr, self.fsid))
    }

    /// The attributes that go with an error, if the handle is good.
    pub(crate) fn attributes_of(&self, handle: &[u8]) -> post_op_attr {
        self.find(handle).map_or(Nfs3Option::None, |inode| self.attributes(&inode))
    }

    /// The end of the change. What is made durable afterwards changes no attributes.
    pub(crate) fn wcc(&self, watched: Watched<'_>) -> wcc_data {
        self.change_of(&watched)
    }

    /// The change so far.
    pub(crate) fn change_of(&self, watched: &Watched<'_>) -> wcc_data {
        wcc_data {
            before: Nfs3Option::Some(convert::before(&watched.before)),
            after: self.attributes(&watched.inode),
        }
    }

    /// As [`Export::wcc`] for an error: nothing is known of the time before.
    pub(crate) fn wcc_of(&self, handle: &[u8]) -> wcc_data {
        wcc_data { before: Nfs3Option::None, after: self.attributes_of(handle) }
    }

    pub(crate) fn object(&self, inode: &InodeRef) -> (post_op_fh3, post_op_attr) {
        let attr = self.volume.getattr(inode);
        let attributes = convert::attributes(&attr, self.fsid);
        (Nfs3Option::Some(self.handle(&attr)), Nfs3Option::Some(attributes))
    }

    /// Makes a file or directory durable, with the names that changed in it.
    pub(crate) fn stable(&self, inode: &InodeRef) -> Result<(), nfsstat3> {
        self.sync(inode, false)
    }

    /// As fsync(2), or with `data_only` fdatasync(2).
    pub(crate) fn sync(&self, inode: &InodeRef, data_only: bool) -> Result<(), nfsstat3> {
        let began = Instant::now();
        self.volume.fsync(inode, data_only).map_err(|err| status(&err))?;
        self.status.traffic.synced(inode.ino);
        self.status.synced(began.elapsed().as_nanos() as u64);
        Ok(())
    }
}
