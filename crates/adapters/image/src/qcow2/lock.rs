//! Locks that QEMU takes on an image file, so that a running virtual machine and this process
//! refuse each other.
//!
//! QEMU (block/file-posix.c) locks one byte for each thing that it does with the image, from byte
//! 100 on, and one for each thing that it does not allow others, from byte 200 on. Things: 0 read
//! consistently, 1 write, 2 write the same, 3 change the size. Locks are shared ones of the open
//! file description; whoever finds a byte locked that contradicts its own gives up.
//!
//! Tested in `tests/it/qcow2.rs` with qemu-io.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

/// Bytes for what is done.
const DONE_AT: i64 = 100;
/// Bytes for what others may not do.
const DENIED_AT: i64 = 200;
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

fn range(kind: libc::c_int, at: i64) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes the locks of a writer or reader; they last as long as the open file.
///
/// # Errors
/// `EWOULDBLOCK` where another process contradicts.
pub(super) fn take(file: &File, writable: bool) -> Result<(), Errno> {
    let done: &[i64] = if writable { &[READ, WRITE, RESIZE] } else { &[READ] };
    let denied: &[i64] = if writable { &[WRITE, RESIZE] } else { &[WRITE] };
    let lock = |at: i64| {
        let taken = fcntl(file, FcntlArg::F_OFD_SETLK(&range(libc::F_RDLCK, at)));
        match taken {
            // A file system without such locks has no QEMU with locks on it either.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOLCK) => Ok(()),
            other => other.map(drop),
        }
    };
    done.iter().try_for_each(|thing| lock(DONE_AT + thing))?;
    denied.iter().try_for_each(|thing| lock(DENIED_AT + thing))?;
    let free = |at: i64| {
        let mut asked = range(libc::F_WRLCK, at);
        let found = fcntl(file, FcntlArg::F_OFD_GETLK(&mut asked));
        let locked = found.is_ok() && libc::c_int::from(asked.l_type) != libc::F_UNLCK;
        if locked { Err(Errno::EWOULDBLOCK) } else { Ok(()) }
    };
    done.iter().try_for_each(|thing| free(DENIED_AT + thing))?;
    denied.iter().try_for_each(|thing| free(DONE_AT + thing))
}
