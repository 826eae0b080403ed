//! Operations on paths.

use std::ffi::{c_char, c_int, c_void};

use syncline::{At, Disk, Error, RenameFlags, Result, SetAttr, SetTime, Timestamp, XattrFlags};

use crate::files::{Stat, Time};
use crate::pointers::{
    NOFOLLOW, at, bytes_of, copy_out, count, exports, mode, slice_of, status, store, unknown_flags,
};
use crate::table::on_volume;

/// `SYNCLINE_NOW`.
const NOW: u32 = 0x3fff_ffff;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;

/// A call with one path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn on_path(
    volume: u64,
    path: *const c_char,
    call: impl FnOnce(&Disk, &[u8]) -> Result<()>,
) -> c_int {
    // SAFETY: the caller promises it.
    status(on_volume(volume, |disk| call(disk, unsafe { bytes_of(path) }?)))
}

/// A call with two paths.
///
/// # Safety
/// Both are null or C strings.
unsafe fn on_paths(
    volume: u64,
    (from, to): (*const c_char, *const c_char),
    call: impl FnOnce(&Disk, &[u8], &[u8]) -> Result<()>,
) -> c_int {
    status(on_volume(volume, |disk| {
        // SAFETY: the caller promises it.
        let (from, to) = unsafe { (bytes_of(from)?, bytes_of(to)?) };
        call(disk, from, to)
    }))
}

exports! {
    fn syncline_stat(volume: u64, path: *const c_char, flags: u32, stat: *mut Stat) -> c_int {
        let call = |disk: &Disk, path: &[u8]| {
            let follow = at(flags)?;
            // SAFETY: the caller promises it.
            unsafe { store(stat, || Ok(disk.stat(path, follow)?.into())) }
        };
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, call) }
    }

    fn syncline_chmod(volume: u64, path: *const c_char, flags: u32, permissions: u32) -> c_int {
        let call = |disk: &Disk, path: &[u8]| {
            let set = SetAttr { mode: Some(mode(permissions)?), ..SetAttr::default() };
            disk.setattr(path, at(flags)?, &set)
        };
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, call) }
    }

    fn syncline_chown(volume: u64, path: *const c_char, flags: u32, uid: u32, gid: u32) -> c_int {
        let call = |disk: &Disk, path: &[u8]| {
            let given = |id: u32| (id != u32::MAX).then_some(id);
            let set = SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() };
            disk.setattr(path, at(flags)?, &set)
        };
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, call) }
    }
}

/// # Safety
/// `time` is null or such a structure.
pub(crate) unsafe fn time_of(time: *const Time) -> Result<Option<SetTime>> {
    // SAFETY: the caller promises it.
    let Some(time) = (unsafe { time.as_ref() }) else { return Ok(None) };
    match (time.nanoseconds, time.reserved) {
        (NOW, 0) => Ok(Some(SetTime::Now)),
        (nanoseconds, 0) if nanoseconds < 1_000_000_000 => {
            Ok(Some(SetTime::At(Timestamp { seconds: time.seconds, nanoseconds })))
        }
        _ => Err(Error::invalid("a time has a second's nanoseconds or more; give less than 10^9")),
    }
}

exports! {
    fn syncline_utimes(volume: u64, path: *const c_char, flags: u32, atime: *const Time,
                       mtime: *const Time) -> c_int {
        let call = |disk: &Disk, path: &[u8]| {
            // SAFETY: the caller promises both.
            let (atime, mtime) = unsafe { (time_of(atime)?, time_of(mtime)?) };
            disk.setattr(path, at(flags)?, &SetAttr { atime, mtime, ..SetAttr::default() })
        };
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, call) }
    }

    fn syncline_mkdir(volume: u64, path: *const c_char, permissions: u32) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, |disk, path| disk.mkdir(path, mode(permissions)?)) }
    }

    fn syncline_rmdir(volume: u64, path: *const c_char) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, Disk::rmdir) }
    }

    fn syncline_unlink(volume: u64, path: *const c_char) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, Disk::unlink) }
    }

    fn syncline_rename(volume: u64, from: *const c_char, to: *const c_char, flags: u32) -> c_int {
        // SAFETY: the caller promises it.
        unsafe {
            on_paths(volume, (from, to), |disk, from, to| {
                disk.rename(from, to, RenameFlags::from_bits(flags)?)
            })
        }
    }

    fn syncline_link(volume: u64, from: *const c_char, to: *const c_char) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { on_paths(volume, (from, to), Disk::link) }
    }

    fn syncline_symlink(volume: u64, target: *const c_char, path: *const c_char) -> c_int {
        // SAFETY: the caller promises it.
        unsafe { on_paths(volume, (target, path), Disk::symlink) }
    }

    fn syncline_readlink(volume: u64, path: *const c_char, target: *mut c_char,
                         size: usize) -> i64 {
        count(on_volume(volume, |disk| {
            // SAFETY: the caller promises it.
            let value = disk.readlink(unsafe { bytes_of(path) }?)?;
            // SAFETY: the caller promises it.
            unsafe { copy_out(&value, target.cast(), size) }
        }))
    }

    fn syncline_getxattr(volume: u64, path: *const c_char, flags: u32, name: *const c_char,
                         value: *mut c_void, size: usize) -> i64 {
        count(on_volume(volume, |disk| {
            // SAFETY: the caller promises both.
            let (path, name) = unsafe { (bytes_of(path)?, bytes_of(name)?) };
            let known = disk.getxattr(path, at(flags)?, name)?;
            // SAFETY: the caller promises it.
            unsafe { copy_out(&known, value, size) }
        }))
    }

    fn syncline_listxattr(volume: u64, path: *const c_char, flags: u32, names: *mut c_char,
                          size: usize) -> i64 {
        count(on_volume(volume, |disk| {
            // SAFETY: the caller promises it.
            let path = unsafe { bytes_of(path) }?;
            let mut known = Vec::new();
            for name in disk.listxattr(path, at(flags)?)? {
                known.extend_from_slice(&name);
                known.push(0);
            }
            // SAFETY: the caller promises it.
            unsafe { copy_out(&known, names.cast(), size) }
        }))
    }

    fn syncline_setxattr(volume: u64, path: *const c_char, flags: u32, name: *const c_char,
                         value: *const c_void, size: usize) -> c_int {
        let call = |disk: &Disk, path: &[u8]| {
            let how = match flags & !NOFOLLOW {
                0 => XattrFlags::Any,
                XATTR_CREATE => XattrFlags::Create,
                XATTR_REPLACE => XattrFlags::Replace,
                _ => return Err(unknown_flags()),
            };
            let follow = if flags & NOFOLLOW == 0 { At::Follow } else { At::Link };
            // SAFETY: the caller promises both.
            let attribute = unsafe { (bytes_of(name)?, slice_of(value, size)?) };
            disk.setxattr(path, follow, attribute, how)
        };
        // SAFETY: the caller promises it.
        unsafe { on_path(volume, path, call) }
    }

    fn syncline_removexattr(volume: u64, path: *const c_char, flags: u32,
                            name: *const c_char) -> c_int {
        let call = |disk: &Disk, path: &[u8], name: &[u8]| disk.removexattr(path, at(flags)?, name);
        // SAFETY: the caller promises it.
        unsafe { on_paths(volume, (path, name), call) }
    }
}
