//! Table of ioctls: one row each.
//!
//! Sources: linux/fs.h, linux/ext4.h, linux/f2fs.h. The kernel hands over as many bytes of the
//! argument as the number's own size field says. Tested in
//! `tests/testkit/src/posix` and below.

use syncline_fs::{FsError, Result};

use crate::caller::Caller;
use crate::capture::Detail;
use crate::convert;
use crate::handle::Handle;
use crate::parking::Class;
use crate::serve::{Serve, atomic, attributes, space};

/// Caller, and the inode and open file through which.
type Asked = (Caller, u32, Handle);

/// Work of an ioctl; the bytes that the program gets.
type Work = fn(&Serve, Asked, &[u8]) -> Result<Vec<u8>>;

/// Part of the kernel's copy of an inode that an ioctl has made wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// None.
    Nothing,
    /// The attributes.
    Attributes,
    /// The contents, and the attributes.
    Contents,
}

/// One ioctl.
pub(crate) struct Ioctl {
    /// Number.
    cmd: u32,
    /// Bytes that the program hands over at least.
    bytes_in: usize,
    /// Class, for the parking of workers.
    pub(crate) class: Class,
    /// Record in a capture, by inode and input.
    pub(crate) trace: fn(u32, &[u8]) -> Option<Detail>,
    /// Part of the kernel's copy that goes afterwards.
    stale: Stale,
    work: Work,
}

/// An ioctl that is answered from memory and not recorded.
const fn query(cmd: u32, work: Work) -> Ioctl {
    let (class, trace) = (Class::Attributes, |_: u32, _: &[u8]| None);
    Ioctl { cmd, bytes_in: 0, class, trace, stale: Stale::Nothing, work }
}

/// As [`query`], for one that takes bytes and changes attributes.
const fn change(cmd: u32, bytes_in: usize, work: Work) -> Ioctl {
    Ioctl { bytes_in, stale: Stale::Attributes, ..query(cmd, work) }
}

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
const EXT4_IOC_SHUTDOWN: u32 = 0x8004_587d;
const F2FS_IOC_START_ATOMIC_WRITE: u32 = 0xf501;
const F2FS_IOC_COMMIT_ATOMIC_WRITE: u32 = 0xf502;
/// Also known as `F2FS_IOC_ABORT_VOLATILE_WRITE`.
const F2FS_IOC_ABORT_ATOMIC_WRITE: u32 = 0xf505;
const F2FS_IOC_GET_FEATURES: u32 = 0x8004_f50c;

/// Every ioctl.
const IOCTLS: &[Ioctl] = &[
    query(FS_IOC_GETFLAGS, |serve, (_, ino, _), _| {
        Ok(attributes::getattr(serve, ino)?.flags.to_ne_bytes().to_vec())
    }),
    query(FS_IOC_GETVERSION, |serve, (_, ino, _), _| {
        Ok(attributes::getattr(serve, ino)?.generation.to_ne_bytes().to_vec())
    }),
    // The kernel asks for it before it changes flags.
    query(FS_IOC_FSGETXATTR, |serve, (_, ino, _), _| {
        Ok(convert::fsxattr(attributes::getattr(serve, ino)?.flags).to_vec())
    }),
    change(FS_IOC_SETFLAGS, size_of::<u32>(), |serve, (_, ino, _), input| {
        let flags = input.first_chunk().map_or(0, |flags| u32::from_ne_bytes(*flags));
        attributes::set_flags(serve, ino, flags)
    }),
    change(FS_IOC_FSSETXATTR, convert::FSXATTR_BYTES, |serve, (_, ino, _), input| {
        let now = attributes::getattr(serve, ino)?.flags;
        let refused = || FsError::NotSupported("a project or direct access".to_owned());
        attributes::set_flags(serve, ino, convert::flags(now, input).ok_or_else(refused)?)
    }),
    Ioctl {
        bytes_in: space::TRIM_BYTES,
        class: Class::Sync,
        ..query(FITRIM, |serve, (caller, _, _), input| space::trim(serve, caller, input))
    },
    // Its number says that it reads, so the kernel keeps the argument, which says what is to be
    // durable. All of it is what every value allows.
    Ioctl {
        class: Class::Sync,
        ..query(EXT4_IOC_SHUTDOWN, |serve, (caller, _, _), _| space::shutdown(serve, caller))
    },
    query(F2FS_IOC_GET_FEATURES, |serve, _, _| Ok(atomic::features(serve))),
    query(F2FS_IOC_START_ATOMIC_WRITE, |serve, (_, ino, handle), _| {
        atomic::start(serve, ino, handle).map(|()| Vec::new())
    }),
    Ioctl {
        class: Class::Sync,
        trace: |ino, _| Detail::sync(ino, true),
        ..change(F2FS_IOC_COMMIT_ATOMIC_WRITE, 0, |serve, (_, _, handle), _| {
            atomic::commit(serve, handle).map(|()| Vec::new())
        })
    },
    Ioctl {
        stale: Stale::Contents,
        ..query(F2FS_IOC_ABORT_ATOMIC_WRITE, |serve, (_, _, handle), _| {
            atomic::abort(serve, handle);
            Ok(Vec::new())
        })
    },
];

/// The row of an ioctl.
pub(crate) fn row(cmd: u32) -> Option<&'static Ioctl> {
    IOCTLS.iter().find(|row| row.cmd == cmd)
}

/// Does the ioctl of a row, and tells `changed` what of the kernel's copy is old.
///
/// # Errors
/// [`FsError::Invalid`] if the program hands over too little; else as the row's work.
pub(crate) fn serve(
    row: Option<&Ioctl>,
    serve: &Serve,
    asked: Asked,
    input: &[u8],
    changed: impl FnOnce(Stale),
) -> Result<Vec<u8>> {
    let row = row.filter(|row| input.len() >= row.bytes_in);
    let row = row.ok_or_else(|| FsError::invalid("too few bytes for an ioctl"))?;
    let output = (row.work)(serve, asked, input)?;
    changed(row.stale);
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_one_row_and_its_size_holds_the_input() {
        for ioctl in IOCTLS {
            assert!(IOCTLS.iter().filter(|other| other.cmd == ioctl.cmd).count() == 1);
            assert!((ioctl.cmd >> 16 & 0x3fff) as usize >= ioctl.bytes_in, "{:x}", ioctl.cmd);
        }
        assert!(row(0x5401).is_none(), "of a terminal");
    }
}
