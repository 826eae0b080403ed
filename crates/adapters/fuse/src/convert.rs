//! Conversions between fuser's types and the volume's. Errors become numbers here alone.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, INodeNo, IoctlFlags,
    LockOwner, OpenFlags, RenameFlags, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use syncline_fs::{Attr, FileKind, FsError, SetTime, Timestamp};

use crate::handle::Handle;

/// The root directory in ext4 and in FUSE.
const ROOT_EXT4: u32 = 2;

/// Seconds that ext4 can store (`s_time_min`, `s_time_max` with 256-byte inodes).
const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;

/// An argument of a request: fuser's type on the way in, ours in the table of operations.
pub(crate) trait Argument {
    type Taken;

    /// The value in our type.
    ///
    /// # Errors
    /// The number that answers the request, if the kernel means nothing of ours.
    fn taken(self) -> Result<Self::Taken, Errno>;
}

/// Conversions of arguments that cannot fail.
macro_rules! arguments {
    ($(|$value:ident: $from:ty| -> $to:ty { $taken:expr })*) => {
        $(impl<'a> Argument for $from {
            type Taken = $to;

            fn taken(self) -> Result<$to, Errno> {
                let $value = self;
                Ok($taken)
            }
        })*
    };
}

/// Arguments that are taken as they are.
macro_rules! plain_arguments {
    ($($type:ty)*) => { arguments! { $(|plain: $type| -> $type { plain })* } };
}

plain_arguments! {
    &'a [u8] bool i32 i64 u32 u64 Option<u32> Option<u64> Option<BsdFileFlags> Option<FileHandle>
    Option<LockOwner> CopyFileRangeFlags IoctlFlags LockOwner WriteFlags
}

arguments! {
    |name: &'a OsStr| -> &'a [u8] { name.as_bytes() }
    |text: &'a Path| -> &'a [u8] { text.as_os_str().as_bytes() }
    |number: FileHandle| -> Handle { number.into() }
    |flags: OpenFlags| -> OFlags { open_flags(flags.0) }
    |flags: RenameFlags| -> u32 { flags.bits() }
    |at: Option<TimeOrNow>| -> Option<SetTime> { at.map(set_time) }
    |at: Option<SystemTime>| -> Option<SetTime> { at.map(|at| SetTime::At(timestamp(at))) }
}

impl Argument for INodeNo {
    type Taken = u32;

    fn taken(self) -> Result<u32, Errno> {
        ino(self)
    }
}

/// Flags of open(2).
pub(crate) fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}

/// The number a program sees.
pub(crate) fn errno(err: &FsError) -> Errno {
    Errno::from_i32(err.errno())
}

/// The inode behind the kernel's number.
pub(crate) fn ino(node: INodeNo) -> Result<u32, Errno> {
    match node.0 {
        1 => Ok(ROOT_EXT4),
        other => u32::try_from(other).map_err(|_| Errno::ESTALE),
    }
}

/// The kernel's number for an inode.
pub(crate) fn node(ino: u32) -> INodeNo {
    if ino == ROOT_EXT4 { INodeNo::ROOT } else { INodeNo(u64::from(ino)) }
}

/// Attributes as `stat` shows them; the root keeps ext4's number there.
pub(crate) fn attr(from: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(u64::from(from.ino)),
        size: from.size,
        blocks: from.blocks,
        atime: time(from.atime),
        mtime: time(from.mtime),
        ctime: time(from.ctime),
        crtime: time(from.crtime),
        kind: file_type(kind_of_mode(from.mode)),
        perm: from.mode & 0o7777,
        nlink: from.nlink,
        uid: from.uid,
        gid: from.gid,
        // The kernel's encoding of 32 bits agrees with the one of 64 bits in its low half.
        rdev: from.rdev as u32,
        blksize: from.blksize,
        flags: 0,
    }
}

/// Attributes for a reply that also says which node a name means.
pub(crate) fn entry(from: &Attr) -> FileAttr {
    FileAttr { ino: node(from.ino), ..attr(from) }
}

fn time(at: Timestamp) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(at.nanoseconds));
    let seconds = Duration::from_secs(at.seconds.unsigned_abs());
    let whole = if at.seconds >= 0 {
        UNIX_EPOCH.checked_add(seconds)
    } else {
        UNIX_EPOCH.checked_sub(seconds)
    };
    whole.and_then(|t| t.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// A time from the kernel, within what ext4 can store.
fn timestamp(at: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match at.duration_since(UNIX_EPOCH) {
        Ok(since) => (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
        // fuser subtracts the nanoseconds of a time before 1970 instead of adding them.
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            (-seconds, before.subsec_nanos())
        }
    };
    let clamped = seconds.clamp(*SECONDS.start(), *SECONDS.end());
    Timestamp { seconds: clamped, nanoseconds: if clamped == seconds { nanoseconds } else { 0 } }
}

/// A time to set.
fn set_time(at: TimeOrNow) -> SetTime {
    match at {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(timestamp(at)),
    }
}

/// The type bits of a mode.
pub(crate) fn kind_of_mode(mode: u16) -> FileKind {
    match mode >> 12 {
        0o01 => FileKind::Fifo,
        0o02 => FileKind::CharDevice,
        0o04 => FileKind::Directory,
        0o06 => FileKind::BlockDevice,
        0o10 => FileKind::Regular,
        0o12 => FileKind::Symlink,
        0o14 => FileKind::Socket,
        _ => FileKind::Unknown,
    }
}

/// Flags of ext4, and those of `struct fsxattr` (`FS_XFLAG_*` in linux/fs.h): sync, immutable,
/// append, nodump, noatime.
const XFLAGS: [(u32, u32); 5] =
    [(0x08, 0x20), (0x10, 0x08), (0x20, 0x10), (0x40, 0x80), (0x80, 0x40)];

/// `FS_XFLAG_DAX`, which no file here has.
const XFLAG_DAX: u32 = 0x8000;

/// Size of `struct fsxattr`.
pub(crate) const FSXATTR_BYTES: usize = 28;

/// `struct fsxattr` of flags (`FS_XFLAG_*` in linux/fs.h); extent sizes and projects are not kept.
pub(crate) fn fsxattr(flags: u32) -> [u8; FSXATTR_BYTES] {
    let xflags = XFLAGS.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |sum, (_, x)| sum | x);
    let mut out = [0; FSXATTR_BYTES];
    out[..4].copy_from_slice(&u32::to_ne_bytes(xflags));
    out
}

/// The flags of a file that has `flags` after FS_IOC_FSSETXATTR with this `struct fsxattr`. As with
/// ext4, other flags and extent sizes are not looked at; `None` for a project, which needs quotas,
/// and for direct access.
pub(crate) fn flags(flags: u32, fsxattr: &[u8]) -> Option<u32> {
    let xflags = u32::from_ne_bytes(*fsxattr.first_chunk()?);
    let project = fsxattr.get(12..16)?;
    (project == [0; 4] && xflags & XFLAG_DAX == 0).then(|| {
        XFLAGS.iter().fold(
            flags,
            |sum, (flag, x)| {
                if xflags & x != 0 { sum | flag } else { sum & !flag }
            },
        )
    })
}

/// FUSE has no unknown type; what is none shows as a file.
pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular | FileKind::Unknown => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::Symlink => FileType::Symlink,
    }
}

/// Fields of an answer about nothing.
pub(crate) const NOTHING: Attr = Attr {
    ino: 0,
    mode: 0,
    uid: 0,
    gid: 0,
    nlink: 0,
    size: 0,
    blocks: 0,
    blksize: 0,
    rdev: 0,
    atime: ZERO,
    mtime: ZERO,
    ctime: ZERO,
    crtime: ZERO,
    flags: 0,
    generation: 0,
};
const ZERO: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_two_numbers() {
        assert_eq!(ino(INodeNo::ROOT), Ok(2));
        assert_eq!((node(2), node(12)), (INodeNo(1), INodeNo(12)));
        assert_eq!(ino(INodeNo(1 << 32)), Err(Errno::ESTALE));
    }

    #[test]
    fn flags_of_both_kinds() {
        for (flag, _) in XFLAGS {
            let all_but = 0x8_0000 | 0xf8 & !flag;
            assert_eq!(flags(0x8_0000 | flag, &fsxattr(all_but)), Some(all_but));
        }
        let mut project = fsxattr(0x40);
        project[12] = 1;
        assert_eq!(flags(0, &project), None);
        assert_eq!(flags(0x10, &[1; 12]), None);
        let mut direct = fsxattr(0);
        direct[..4].copy_from_slice(&XFLAG_DAX.to_ne_bytes());
        assert_eq!(flags(0, &direct), None);
        assert_eq!(flags(0, &[0; 3]), None);
    }

    #[test]
    fn times_before_1970_and_beyond_ext4() {
        let half = Timestamp { seconds: -2, nanoseconds: 500_000_000 };
        let shown = UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(time(half), shown);
        // As fuser hands over what the kernel said for `half`.
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_millis(2500)), half);
        let far = timestamp(UNIX_EPOCH + Duration::from_secs(1 << 40));
        assert_eq!(far, Timestamp { seconds: 0x3_7fff_ffff, nanoseconds: 0 });
    }
}
