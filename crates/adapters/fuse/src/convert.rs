//! Conversions between FUSE's types and the volume's. Errors become numbers here alone.

use rustix::io::Errno;
use syncline_fs::{Attr, FileKind, FsError, SetAttr, SetTime, Timestamp, device_numbers};

/// The root directory in ext4 and in FUSE.
const ROOT_EXT4: u32 = 2;
const ROOT_FUSE: u64 = 1;

/// Seconds that ext4 can store (`s_time_min`, `s_time_max` with 256-byte inodes).
const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;

/// The number a program sees.
pub(crate) fn errno(err: &FsError) -> Errno {
    Errno::from_raw_os_error(err.errno())
}

/// The inode behind the kernel's number.
pub(crate) fn ino(node: u64) -> Result<u32, Errno> {
    match node {
        ROOT_FUSE => Ok(ROOT_EXT4),
        other => u32::try_from(other).map_err(|_| Errno::STALE),
    }
}

/// The kernel's number for an inode.
pub(crate) fn node(ino: u32) -> u64 {
    if ino == ROOT_EXT4 { ROOT_FUSE } else { u64::from(ino) }
}

/// Bytes of `struct fuse_attr`.
pub(crate) const ATTR_BYTES: usize = 88;

/// `struct fuse_attr`, as `stat` shows it; the root keeps ext4's number there.
pub(crate) fn attr(from: &Attr) -> [u8; ATTR_BYTES] {
    let seconds = |at: Timestamp| at.seconds as u64;
    let (atime, mtime, ctime) = (from.atime, from.mtime, from.ctime);
    let longs =
        [from.ino.into(), from.size, from.blocks, seconds(atime), seconds(mtime), seconds(ctime)];
    // The kernel's encoding of a device in 32 bits agrees with the one of 64 bits in its low half.
    let device = from.rdev as u32;
    let words = [
        atime.nanoseconds,
        mtime.nanoseconds,
        ctime.nanoseconds,
        from.mode.into(),
        from.nlink,
        from.uid,
        from.gid,
        device,
        from.blksize,
    ];
    let mut bytes = [0; ATTR_BYTES];
    let (for_longs, for_words) = bytes.split_at_mut(size_of_val(&longs));
    for (to, long) in for_longs.chunks_exact_mut(8).zip(longs) {
        to.copy_from_slice(&u64::to_ne_bytes(long));
    }
    for (to, word) in for_words.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&u32::to_ne_bytes(word));
    }
    bytes
}

/// Bytes of `struct fuse_statx`.
const STATX_BYTES: usize = 256;
/// All that stat(2) has, and the time of birth.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

/// `struct fuse_statx`. Linux takes no attributes from it: its masks of them are empty.
pub(crate) fn statx(from: &Attr) -> [u8; STATX_BYTES] {
    let mut bytes = [0; STATX_BYTES];
    let mut at = 0;
    let mut put = |value: &[u8]| {
        bytes[at..at + value.len()].copy_from_slice(value);
        at += value.len();
    };
    let (major, minor) = device_numbers(from.rdev);
    let attributes = 0u64;
    // Small inodes have no room for it.
    let born = if from.crtime == ZERO { 0 } else { STATX_BTIME };
    put(&(STATX_BASIC_STATS | born).to_ne_bytes());
    put(&from.blksize.to_ne_bytes());
    put(&attributes.to_ne_bytes());
    [from.nlink, from.uid, from.gid].iter().for_each(|word| put(&word.to_ne_bytes()));
    [from.mode, 0].iter().for_each(|half| put(&half.to_ne_bytes()));
    let longs = [from.ino.into(), from.size, from.blocks, attributes];
    longs.iter().for_each(|long| put(&long.to_ne_bytes()));
    for time in [from.atime, from.crtime, from.ctime, from.mtime] {
        put(&time.seconds.to_ne_bytes());
        put(&time.nanoseconds.to_ne_bytes());
        put(&[0; 4]);
    }
    [major, minor].iter().for_each(|word| put(&word.to_ne_bytes()));
    bytes
}

/// Fields of a SETATTR that are set, bits of `valid` (`FATTR_*`).
const SET_MODE: u32 = 1;
const SET_UID: u32 = 1 << 1;
const SET_GID: u32 = 1 << 2;
const SET_SIZE: u32 = 1 << 3;
/// Bits of each time: it is set, and it is set to the present time.
const SET_TIMES: [(u32, u32); 3] = [(1 << 4, 1 << 7), (1 << 5, 1 << 8), (1 << 10, 0)];

/// The changes of a SETATTR: (mode, owner, group), and the times of access, contents and change
/// with their nanoseconds.
pub(crate) fn set_attr(
    valid: u32,
    size: u64,
    (mode, uid, gid): (u32, u32, u32),
    times: [(i64, u32); 3],
) -> SetAttr {
    let is = |bit: u32| valid & bit != 0;
    let time = |nr: usize| {
        let ((set, now), (seconds, nanoseconds)) = (SET_TIMES[nr], times[nr]);
        let at = || SetTime::At(timestamp(seconds, nanoseconds));
        is(set).then(|| if is(now) { SetTime::Now } else { at() })
    };
    SetAttr {
        mode: is(SET_MODE).then_some((mode & 0o7777) as u16),
        uid: is(SET_UID).then_some(uid),
        gid: is(SET_GID).then_some(gid),
        size: is(SET_SIZE).then_some(size),
        atime: time(0),
        mtime: time(1),
        ctime: time(2),
        flags: None,
    }
}

/// A time from the kernel, within what ext4 can store.
fn timestamp(seconds: i64, nanoseconds: u32) -> Timestamp {
    let clamped = seconds.clamp(*SECONDS.start(), *SECONDS.end());
    let exact = clamped == seconds && nanoseconds < 1_000_000_000;
    Timestamp { seconds: clamped, nanoseconds: if exact { nanoseconds } else { 0 } }
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

/// The type of a directory entry (`DT_*`). FUSE has no unknown one; what is none shows as a file.
pub(crate) fn file_type(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 1,
        FileKind::CharDevice => 2,
        FileKind::Directory => 4,
        FileKind::BlockDevice => 6,
        FileKind::Regular | FileKind::Unknown => 8,
        FileKind::Symlink => 10,
        FileKind::Socket => 12,
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
        assert_eq!((ino(1), node(2), node(12)), (Ok(2), 1, 12));
        assert_eq!(ino(1 << 32), Err(Errno::STALE));
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
        let bytes = attr(&Attr { mtime: half, rdev: 0x103, blksize: 4096, ..NOTHING });
        assert_eq!(bytes[32..40], (-2_i64).to_ne_bytes());
        assert_eq!(bytes[52..56], 500_000_000_u32.to_ne_bytes());
        assert_eq!(bytes[76..84], [0x103, 4096_u32].map(u32::to_ne_bytes).concat());
        assert_eq!(timestamp(-2, 500_000_000), half);
        let far = Timestamp { seconds: 0x3_7fff_ffff, nanoseconds: 0 };
        assert_eq!(timestamp(1 << 40, 1), far);
    }

    #[test]
    fn a_setattr_sets_what_it_says() {
        let times = [(1, 2), (3, 4), (5, 6)];
        let set = |valid| set_attr(valid, 7, (0o100_644, 8, 9), times);
        assert_eq!(set(0), SetAttr::default());
        let at = |seconds, nanoseconds| Some(SetTime::At(Timestamp { seconds, nanoseconds }));
        let all = set(0b100_0011_1111);
        assert_eq!(
            (all.mode, all.uid, all.gid, all.size),
            (Some(0o644), Some(8), Some(9), Some(7))
        );
        assert_eq!((all.atime, all.mtime, all.ctime), (at(1, 2), at(3, 4), at(5, 6)));
        let now = set(0b1_1011_0000);
        assert_eq!((now.atime, now.mtime), (Some(SetTime::Now), Some(SetTime::Now)));
    }
}
