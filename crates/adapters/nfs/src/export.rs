//! The volume as it is exported: handles, attributes, durability.

use nfs3_types::nfs3::{Nfs3Option, nfs_fh3, nfsstat3, post_op_attr, post_op_fh3, wcc_data};
use nfs3_types::xdr_codec::Opaque;
use syncline_fs::{Attr, Create, FsError, InodeRef, Volume};

use crate::arguments::Garbage;
use crate::convert::{self, Status, status};

/// Bytes of a file handle: volume, inode number, generation.
const HANDLE_BYTES: usize = 16;

/// User that a call names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A volume, its number for clients, and the verifier of this run of the server.
pub(crate) struct Export {
    pub(crate) volume: Volume,
    pub(crate) fsid: u64,
    pub(crate) verifier: [u8; 8],
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

/// The change of a directory or file by one call, for `wcc_data`.
pub(crate) struct Watched {
    pub(crate) inode: InodeRef,
    before: Attr,
}

impl Export {
    /// The file that a handle names.
    pub(crate) fn find(&self, handle: &[u8]) -> Status<InodeRef> {
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
    pub(crate) fn watch(&self, handle: &[u8]) -> Status<Watched> {
        let inode = self.find(handle)?;
        let before = self.volume.getattr(&inode);
        Ok(Watched { inode, before })
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

    pub(crate) fn wcc(&self, watched: &Watched) -> wcc_data {
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
    pub(crate) fn stable(&self, inode: &InodeRef) -> Status<()> {
        self.volume.fsync(inode, false).map_err(|err| status(&err))
    }
}

impl Caller {
    /// Owner and mode of a new file.
    pub(crate) fn creates(self, mode: Option<u16>, default: u16) -> Create {
        Create { mode: mode.unwrap_or(default), uid: self.uid, gid: self.gid }
    }
}
