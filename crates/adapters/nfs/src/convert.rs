//! Values of the volume as NFS has them.

use nfs3_types::nfs3::{fattr3, ftype3, nfsstat3, nfstime3, specdata3, wcc_attr};
use syncline_fs::bits::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK};
use syncline_fs::{Attr, FsError, Timestamp, device_numbers};

/// Status of a call.
pub(crate) type Status<T> = Result<T, nfsstat3>;

/// The status for an error of the volume.
pub(crate) fn status(err: &FsError) -> nfsstat3 {
    match err {
        FsError::Unsupported(_) | FsError::NotSupported(_) => nfsstat3::NFS3ERR_NOTSUPP,
        FsError::ReadOnly => nfsstat3::NFS3ERR_ROFS,
        FsError::NoSpace => nfsstat3::NFS3ERR_NOSPC,
        FsError::NotFound | FsError::NoData => nfsstat3::NFS3ERR_NOENT,
        FsError::Exists => nfsstat3::NFS3ERR_EXIST,
        FsError::NotDir => nfsstat3::NFS3ERR_NOTDIR,
        FsError::IsDir => nfsstat3::NFS3ERR_ISDIR,
        FsError::NotEmpty => nfsstat3::NFS3ERR_NOTEMPTY,
        FsError::NameTooLong => nfsstat3::NFS3ERR_NAMETOOLONG,
        FsError::TooManyLinks => nfsstat3::NFS3ERR_MLINK,
        FsError::TooBig | FsError::AtomicTooBig { .. } => nfsstat3::NFS3ERR_FBIG,
        FsError::Perm => nfsstat3::NFS3ERR_PERM,
        FsError::CrossDevice => nfsstat3::NFS3ERR_XDEV,
        FsError::Stale => nfsstat3::NFS3ERR_STALE,
        FsError::Invalid(_)
        | FsError::Range
        | FsError::ArgumentTooBig
        | FsError::Busy
        | FsError::Loop
        | FsError::NoSuchOffset => nfsstat3::NFS3ERR_INVAL,
        // The device, the image, or a latched volume.
        _ => nfsstat3::NFS3ERR_IO,
    }
}

/// A time; NFS has the years 1970 to 2106, and what lies outside is their first or last second.
pub(crate) fn time(time: Timestamp) -> nfstime3 {
    let seconds = u32::try_from(time.seconds.max(0)).unwrap_or(u32::MAX);
    nfstime3 { seconds, nseconds: time.nanoseconds }
}

/// Type of a file with this `st_mode`.
pub(crate) fn kind(mode: u16) -> ftype3 {
    match mode & S_IFMT {
        S_IFDIR => ftype3::NF3DIR,
        S_IFLNK => ftype3::NF3LNK,
        S_IFBLK => ftype3::NF3BLK,
        S_IFCHR => ftype3::NF3CHR,
        S_IFIFO => ftype3::NF3FIFO,
        S_IFSOCK => ftype3::NF3SOCK,
        _ => ftype3::NF3REG,
    }
}

/// Attributes of a file of the volume `fsid`.
pub(crate) fn attributes(attr: &Attr, fsid: u64) -> fattr3 {
    let (major, minor) = device_numbers(attr.rdev);
    fattr3 {
        type_: kind(attr.mode),
        mode: u32::from(attr.mode) & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.blocks * 512,
        rdev: specdata3 { specdata1: major, specdata2: minor },
        fsid,
        fileid: u64::from(attr.ino),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

/// Attributes before a call, by which a client sees that nobody else changed the file.
pub(crate) fn before(attr: &Attr) -> wcc_attr {
    wcc_attr { size: attr.size, mtime: time(attr.mtime), ctime: time(attr.ctime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_of_the_range_are_clamped() {
        let at = |seconds| time(Timestamp { seconds, nanoseconds: 5 }).seconds;
        assert_eq!((at(-1), at(7), at(1 << 40)), (0, 7, u32::MAX));
    }
}
