//! The MOUNT protocol, version 3 (RFC 1813, appendix I), on the port of NFS.

use nfs3_types::mount::{
    dirpath, export_node, fhandle3, mountlist, mountres3, mountres3_ok, mountstat3,
};
use nfs3_types::nfs3::ftype3;
use nfs3_types::rpc::auth_flavor;
use nfs3_types::xdr_codec::{List, Opaque, Void};
use syncline_fs::FsError;

use crate::arguments::Arguments;
use crate::convert;
use crate::export::Export;
use crate::rpc::{Reply, packed};

/// Longest path that a client may mount, in bytes.
const PATH_BYTES_MAX: usize = 1024;

impl Export {
    /// A call of the MOUNT program.
    pub(crate) fn mount_call(&self, procedure: u32, args: Arguments<'_>) -> Reply {
        match procedure {
            // NULL, UMNT, UMNTALL: nobody is remembered.
            0 | 3 | 4 => packed(&Void),
            1 => self.mnt(args),
            2 => packed(&mountlist::default()),
            5 => {
                let root = dirpath(Opaque::borrowed(b"/"));
                packed(&List(vec![export_node { ex_dir: root, ex_groups: List::default() }]))
            }
            _ => Reply::NoProcedure,
        }
    }

    /// The handle of a directory: MNT.
    fn mnt(&self, mut args: Arguments<'_>) -> Reply {
        let Ok(path) = args.opaque() else { return Reply::Garbage };
        if path.len() > PATH_BYTES_MAX {
            return packed(&mountres3::Err(mountstat3::MNT3ERR_NAMETOOLONG));
        }
        let path = if path.is_empty() { b"/" } else { path };
        let found = self.volume.resolve(path);
        let attr = found.map(|inode| self.volume.getattr(&inode));
        packed(&match attr {
            Ok(attr) if convert::kind(attr.mode) == ftype3::NF3DIR => {
                let fhandle = fhandle3(self.handle(&attr).data);
                let flavors = [auth_flavor::AUTH_UNIX, auth_flavor::AUTH_NULL];
                let auth_flavors = flavors.map(|flavor| flavor as u32).to_vec();
                mountres3::Ok(mountres3_ok { fhandle, auth_flavors })
            }
            Ok(_) | Err(FsError::NotDir) => mountres3::Err(mountstat3::MNT3ERR_NOTDIR),
            Err(FsError::NotFound) => mountres3::Err(mountstat3::MNT3ERR_NOENT),
            Err(FsError::NameTooLong) => mountres3::Err(mountstat3::MNT3ERR_NAMETOOLONG),
            Err(_) => mountres3::Err(mountstat3::MNT3ERR_IO),
        })
    }
}
