//! The volume: ACCESS, FSSTAT, FSINFO, PATHCONF.

use nfs3_types::nfs3::{
    ACCESS3_DELETE, ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ,
    ACCESS3resfail, ACCESS3resok, FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK,
    FSINFO3resfail, FSINFO3resok, FSSTAT3resfail, FSSTAT3resok, PATHCONF3resfail, PATHCONF3resok,
    ftype3, nfstime3,
};
use syncline_fs::InodeRef;

use crate::arguments::Arguments;
use crate::convert;
use crate::export::{Caller, Export};
use crate::files::TRANSFER_BYTES_MAX;
use crate::permissions::{EXECUTE, READ, WRITE};
use crate::rpc::{Reply, answer};

/// `EXT4_LINK_MAX`.
const LINKS_MAX: u32 = 65_000;
/// 2^32 blocks of 4 KiB without the last, as ext4's `s_maxbytes`.
const FILE_BYTES_MAX: u64 = (1 << 44) - 4096;

impl Export {
    pub(crate) fn access(&self, mut args: Arguments<'_>, caller: &Caller) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let asked = args.u32()?;
            let inode = self.find(handle)?;
            let obj_attributes = self.attributes(&inode);
            Ok(ACCESS3resok { obj_attributes, access: asked & self.granted(caller, &inode) })
        })();
        answer(done, || ACCESS3resfail { obj_attributes: self.attributes_of(handle) })
    }

    /// Rights of the caller on a file, as ACCESS has them.
    fn granted(&self, caller: &Caller, inode: &InodeRef) -> u32 {
        let mode = self.volume.getattr(inode).mode;
        let directory = convert::kind(mode) == ftype3::NF3DIR;
        let mut granted = 0;
        if self.may(caller, inode, READ) {
            granted |= ACCESS3_READ;
        }
        let delete = if directory { ACCESS3_DELETE } else { 0 };
        if !self.volume.is_read_only() && self.may(caller, inode, WRITE) {
            granted |= ACCESS3_MODIFY | ACCESS3_EXTEND | delete;
        }
        if self.may(caller, inode, EXECUTE) && (directory || mode & 0o111 != 0) {
            granted |= if directory { ACCESS3_LOOKUP } else { ACCESS3_EXECUTE };
        }
        granted
    }

    pub(crate) fn fsstat(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let inode = self.find(handle)?;
            let stat = self.volume.statfs();
            let bytes = |blocks: u64| blocks * u64::from(stat.block_size);
            Ok(FSSTAT3resok {
                obj_attributes: self.attributes(&inode),
                tbytes: bytes(stat.blocks),
                fbytes: bytes(stat.blocks_free),
                abytes: bytes(stat.blocks_available),
                tfiles: stat.files,
                ffiles: stat.files_free,
                afiles: stat.files_free,
                invarsec: 0,
            })
        })();
        answer(done, || FSSTAT3resfail { obj_attributes: self.attributes_of(handle) })
    }

    pub(crate) fn fsinfo(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let inode = self.find(handle)?;
            let multiple = self.volume.statfs().block_size;
            Ok(FSINFO3resok {
                obj_attributes: self.attributes(&inode),
                rtmax: TRANSFER_BYTES_MAX,
                rtpref: TRANSFER_BYTES_MAX,
                rtmult: multiple,
                wtmax: TRANSFER_BYTES_MAX,
                wtpref: TRANSFER_BYTES_MAX,
                wtmult: multiple,
                dtpref: 64 << 10,
                maxfilesize: FILE_BYTES_MAX,
                time_delta: match self.volume.time_granularity_ns() {
                    ns @ 0..1_000_000_000 => nfstime3 { seconds: 0, nseconds: ns },
                    _ => nfstime3 { seconds: 1, nseconds: 0 },
                },
                properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            })
        })();
        answer(done, || FSINFO3resfail { obj_attributes: self.attributes_of(handle) })
    }

    pub(crate) fn pathconf(&self, mut args: Arguments<'_>) -> Reply {
        let mut handle: &[u8] = &[];
        let done = (|| {
            handle = args.opaque()?;
            let inode = self.find(handle)?;
            Ok(PATHCONF3resok {
                obj_attributes: self.attributes(&inode),
                linkmax: LINKS_MAX,
                name_max: self.volume.statfs().name_len,
                no_trunc: true,
                chown_restricted: true,
                case_insensitive: self.volume.folds_case(inode.ino),
                case_preserving: true,
            })
        })();
        answer(done, || PATHCONF3resfail { obj_attributes: self.attributes_of(handle) })
    }
}
