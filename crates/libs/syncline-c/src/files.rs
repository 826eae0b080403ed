//! Open files.

use std::ffi::{c_char, c_int, c_void};

use syncline::{Access, Attr, Error, FallocateMode, File, Timestamp};

use crate::pointers::{
    bytes_of, count, exports, mode, room_of, slice_of, status, store, unknown_flags,
};
use crate::table::{self, Object, on_file, on_volume};

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const EXCLUSIVE: u32 = 16;
const TRUNCATE: u32 = 32;
const DSYNC: u32 = 64;
const NOFOLLOW: u32 = crate::pointers::NOFOLLOW;
const ALL: u32 = READ | WRITE | APPEND | CREATE | EXCLUSIVE | TRUNCATE | DSYNC | NOFOLLOW;

/// `struct syncline_time` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
    pub(crate) reserved: u32,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Time {
        Time { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
    }
}

/// `struct syncline_stat` of the header.
#[repr(C)]
pub struct Stat {
    size: u64,
    blocks: u64,
    pub(crate) rdev: u64,
    ino: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    nlink: u32,
    blksize: u32,
    flags: u32,
    generation: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    ctime: Time,
    crtime: Time,
}

impl From<Attr> for Stat {
    fn from(attr: Attr) -> Stat {
        Stat {
            size: attr.size,
            blocks: attr.blocks,
            rdev: attr.rdev,
            ino: attr.ino,
            mode: attr.mode.into(),
            uid: attr.uid,
            gid: attr.gid,
            nlink: attr.nlink,
            blksize: attr.blksize,
            flags: attr.flags,
            generation: attr.generation,
            atime: attr.atime.into(),
            mtime: attr.mtime.into(),
            ctime: attr.ctime.into(),
            crtime: attr.crtime.into(),
        }
    }
}

exports! {
    fn syncline_file_open(volume: u64, path: *const c_char, flags: u32, permissions: u32,
                          file: *mut u64) -> c_int {
        status(on_volume(volume, |disk| {
            // SAFETY: the caller promises it.
            let path = unsafe { bytes_of(path) }?;
            if flags & !ALL != 0 {
                return Err(unknown_flags());
            }
            let has = |flag: u32| flags & flag != 0;
            let access = Access::default().with(|access| {
                access.read = has(READ);
                access.write = has(WRITE);
                access.append = has(APPEND);
                access.sync = has(DSYNC);
                access.create = has(CREATE);
                access.exclusive = has(EXCLUSIVE);
                access.truncate = has(TRUNCATE);
                access.nofollow = has(NOFOLLOW);
            });
            let permissions = mode(permissions)?;
            let open = || {
                let file = disk.open_file(path, access, permissions)?;
                Ok(table::insert(Object::File(file)))
            };
            // SAFETY: the caller promises it.
            unsafe { store(file, open) }
        }))
    }

    fn syncline_file_close(file: u64) -> c_int {
        status(table::remove(file, |object| match object {
            Object::File(file) => Some(file.close()),
            _ => None,
        }))
    }

    fn syncline_file_read(file: u64, into: *mut c_void, len: usize) -> i64 {
        // SAFETY: the caller promises it.
        count(on_file(file, |file| Ok(file.read(unsafe { room_of(into, len) }?)? as u64)))
    }

    fn syncline_file_write(file: u64, from: *const c_void, len: usize) -> i64 {
        // SAFETY: the caller promises it.
        count(on_file(file, |file| Ok(file.write(unsafe { slice_of(from, len) }?)? as u64)))
    }

    fn syncline_file_pread(file: u64, into: *mut c_void, len: usize, offset: u64) -> i64 {
        // SAFETY: the caller promises it.
        let read = on_file(file, |file| file.read_at(offset, unsafe { room_of(into, len) }?));
        count(read.map(|bytes| bytes as u64))
    }

    fn syncline_file_pwrite(file: u64, from: *const c_void, len: usize, offset: u64) -> i64 {
        // SAFETY: the caller promises it.
        let written = on_file(file, |file| file.write_at(offset, unsafe { slice_of(from, len) }?));
        count(written.map(|bytes| bytes as u64))
    }

    fn syncline_file_seek(file: u64, offset: i64, whence: c_int) -> i64 {
        count(on_file(file, |file| file.seek(position(file, offset, whence)?)))
    }
}

fn position(file: &File, offset: i64, whence: c_int) -> syncline::Result<u64> {
    let before = || Error::invalid("the position is before the start of the file; give another");
    let absolute = || u64::try_from(offset).map_err(|_| before());
    let from = match whence {
        0 => 0,
        1 => file.position()?,
        2 => file.stat()?.size,
        3 => return file.seek_extent(absolute()?, true),
        4 => return file.seek_extent(absolute()?, false),
        _ => return Err(unknown_flags()),
    };
    from.checked_add_signed(offset).ok_or_else(before)
}

exports! {
    fn syncline_file_truncate(file: u64, size: u64) -> c_int {
        status(on_file(file, |file| file.truncate(size)))
    }

    fn syncline_file_allocate(file: u64, how: c_int, offset: u64, len: u64) -> c_int {
        status(on_file(file, |file| {
            let how = match how {
                0x00 => FallocateMode::Allocate,
                0x01 => FallocateMode::KeepSize,
                0x03 => FallocateMode::PunchHole,
                0x10 => FallocateMode::ZeroRange,
                0x11 => FallocateMode::ZeroRangeKeepSize,
                _ => return Err(unknown_flags()),
            };
            file.allocate(how, offset, len)
        }))
    }

    fn syncline_file_sync(file: u64, data_only: c_int) -> c_int {
        status(on_file(file, |file| file.sync(data_only != 0)))
    }

    fn syncline_file_stat(file: u64, stat: *mut Stat) -> c_int {
        status(on_file(file, |file| {
            // SAFETY: the caller promises it.
            unsafe { store(stat, || Ok(file.stat()?.into())) }
        }))
    }
}
