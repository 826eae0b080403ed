//! System calls that differ between Linux and macOS.

use std::path::Path;

use rustix::fs::Mode;

/// Permissions that new files of this process do not get.
#[allow(clippy::useless_conversion, reason = "macOS has 16 bits")]
pub(crate) fn umask() -> u32 {
    // There is no call that only reads it.
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    u32::from(umask.as_raw_mode())
}

/// Permissions as system calls take them.
#[allow(clippy::unnecessary_cast, reason = "macOS has 16 bits")]
pub(crate) fn permissions(bits: u32) -> Mode {
    Mode::from_raw_mode((bits & 0o7777) as rustix::fs::RawMode)
}

/// Device number as ext4 and Linux encode it, on any system.
pub(crate) fn makedev(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & !0xfff) << 32 | (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff
}

/// Major and minor number of [`makedev`].
pub(crate) fn device_numbers(rdev: u64) -> (u32, u32) {
    let major = rdev >> 32 & !0xfff | rdev >> 8 & 0xfff;
    let minor = rdev >> 12 & !0xff | rdev & 0xff;
    (major as u32, minor as u32)
}

/// Device number of a file of this system, as [`makedev`] has it.
#[cfg(target_os = "linux")]
pub(crate) fn device_of(rdev: u64) -> u64 {
    rdev
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn device_of(rdev: u64) -> u64 {
    makedev((rdev >> 24 & 0xff) as u32, (rdev & 0xff_ffff) as u32)
}

/// Makes a fifo, device or socket that its owner may read and write.
///
/// # Errors
/// As of mknod(2); on macOS, whose device numbers are others, always.
#[cfg(target_os = "linux")]
pub(crate) fn mknod(path: &Path, mode: u32, rdev: u64) -> std::io::Result<()> {
    use rustix::fs::{CWD, FileType, mknodat};
    let kind = FileType::from_raw_mode(mode);
    Ok(mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, rdev)?)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn mknod(_: &Path, _: u32, _: u64) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Locks of QEMU, through descriptors: Linux only.
#[cfg(target_os = "linux")]
pub(crate) mod locks {
    use std::fs::File;

    use nix::errno::Errno;
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;

    fn range(kind: libc::c_int, at: i64) -> libc::flock {
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: at,
            l_len: 1,
            l_pid: 0,
        }
    }

    /// Takes a read lock of one byte. False: another process has a write lock.
    pub(crate) fn take(file: &File, at: i64) -> bool {
        let taken = fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_RDLCK, at)));
        // A file system without such locks has no QEMU with locks on it either.
        matches!(taken, Ok(_) | Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOLCK))
    }

    /// Reports whether no other process has a lock of this byte.
    pub(crate) fn is_free(file: &File, at: i64) -> bool {
        let mut asked = range(libc::F_WRLCK, at);
        let found = fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked));
        found.is_err() || libc::c_int::from(asked.l_type) == libc::F_UNLCK
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) mod locks {
    use std::fs::File;

    pub(crate) fn take(_: &File, _: i64) -> bool {
        true
    }

    pub(crate) fn is_free(_: &File, _: i64) -> bool {
        true
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_linuxes() {
        for (major, minor) in [(0, 0), (8, 1), (0xfff, 0xff), (0x1234_5678, 0x9abc_def0)] {
            let rdev = makedev(major, minor);
            assert_eq!(rdev, rustix::fs::makedev(major, minor));
            assert_eq!(device_numbers(rdev), (major, minor));
        }
    }
}
