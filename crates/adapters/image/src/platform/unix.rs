//! Linux and macOS.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

/// Time between two questions whether to stop, in nanoseconds.
const WAIT_NS: i64 = 50_000_000;

/// Opens a file for reading; a FIFO without waiting for its writer.
///
/// # Errors
/// As of open(2).
pub(crate) fn open_unwaiting(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    File::options().read(true).custom_flags(flags as i32).open(path)
}

/// True if nothing was ever written to the file: it is empty, or a hole from end to end.
pub(crate) fn is_hole(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| rustix::fs::seek(file, SeekFrom::Data(0)) == Err(Errno::NXIO))
}

/// Standard input as a file.
///
/// # Errors
/// It is closed.
pub(crate) fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Waits until a read does not wait.
///
/// # Errors
/// The work is to stop ([`is_stop`]); as of poll(2).
pub(crate) fn wait_readable(file: &File, stopped: fn() -> bool) -> io::Result<()> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: WAIT_NS };
    loop {
        if stopped() {
            return Err(Errno::CANCELED.into());
        }
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(err) => return Err(err.into()),
        }
    }
}

/// True for the error of a wait that was to stop. No read gives it.
pub(crate) fn is_stop(err: &io::Error) -> bool {
    err.raw_os_error() == Some(Errno::CANCELED.raw_os_error())
}

/// The bytes of a name or path.
pub(crate) fn bytes_of(name: &OsStr) -> Cow<'_, [u8]> {
    Cow::Borrowed(name.as_bytes())
}

/// A name or path of these bytes.
pub(crate) fn os_string(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// Reads from a place in a file: bytes read, 0 at the end.
///
/// # Errors
/// As of pread(2).
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(into, at)
}

/// Writes all to a place in a file.
///
/// # Errors
/// As of pwrite(2).
pub(crate) fn write_all_at(file: &File, from: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(from, at)
}

/// Makes a new file, or empties one. A new one is no link that is there, and has these permissions
/// or is for its owner only.
///
/// # Errors
/// As of open(2).
pub(crate) fn create_private(path: &Path, mode: Option<u32>, new: bool) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    let options = options.read(true).write(true).create(!new).create_new(new).truncate(!new);
    let file = options.mode(0o600).open(path)?;
    if let Some(mode) = mode {
        // What was asked for counts, not what the umask leaves of it.
        rustix::fs::fchmod(&file, permissions(mode))?;
    }
    Ok(file)
}

/// Device and inode of a file; none if it is not there.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// User and group of this process.
pub fn user() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The number of a user of this system.
pub(crate) fn user_of(name: &[u8]) -> Option<u32> {
    let user = nix::unistd::User::from_name(std::str::from_utf8(name).ok()?);
    user.ok().flatten().map(|user| user.uid.as_raw())
}

/// The number of a group of this system.
pub(crate) fn group_of(name: &[u8]) -> Option<u32> {
    let group = nix::unistd::Group::from_name(std::str::from_utf8(name).ok()?);
    group.ok().flatten().map(|group| group.gid.as_raw())
}

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

/// Device number of a file of this system, as Linux encodes it.
#[cfg(target_os = "linux")]
pub(crate) fn device_of(rdev: u64) -> u64 {
    rdev
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn device_of(rdev: u64) -> u64 {
    syncline_fs::makedev((rdev >> 24 & 0xff) as u32, (rdev & 0xff_ffff) as u32)
}

/// Makes a fifo, device or socket in a directory, which its owner may read and write.
///
/// # Errors
/// As of mknodat(2); on macOS, whose device numbers are others, always.
#[cfg(target_os = "linux")]
pub(crate) fn mknod(
    dir: &std::os::fd::OwnedFd,
    name: &Path,
    mode: u32,
    rdev: u64,
) -> rustix::io::Result<()> {
    use rustix::fs::{FileType, mknodat};
    mknodat(dir, name, FileType::from_raw_mode(mode), Mode::RUSR | Mode::WUSR, rdev)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn mknod(_: &std::os::fd::OwnedFd, _: &Path, _: u32, _: u64) -> rustix::io::Result<()> {
    Err(rustix::io::Errno::OPNOTSUPP)
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
