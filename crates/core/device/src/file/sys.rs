//! The calls on files and block devices that rustix has no safe wrapper for.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// `BLKGETSIZE64`, `linux/fs.h`: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
/// `BLKROGET`, `linux/fs.h`: `_IO(0x12, 94)`, stores an int.
const BLKROGET: Opcode = opcode::none(0x12, 94);
/// `BLKDISCARD`, `linux/fs.h`: `_IO(0x12, 119)`, takes a pointer to offset and length.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
/// `LOOP_GET_STATUS64`, `linux/loop.h`: stores a `struct loop_info64`.
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `F_SET_RW_HINT`, `fcntl(2)`: takes a pointer to a u64.
const F_SET_RW_HINT: libc::c_int = 1024 + 12;

/// Sets the expected lifetime of what is written through the inode of an open file.
pub(super) fn set_write_hint(file: &File, hint: u64) -> io::Result<()> {
    // SAFETY: F_SET_RW_HINT reads one u64 through its argument, which lives until the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), F_SET_RW_HINT, &raw const hint) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// `F_GET_RW_HINT`, `fcntl(2)`: stores a u64 through a pointer.
#[cfg(test)]
pub(super) fn write_hint(file: &File) -> io::Result<u64> {
    let mut hint = 0;
    // SAFETY: F_GET_RW_HINT stores one u64 through its argument, which lives until it returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), F_SET_RW_HINT - 1, &raw mut hint) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(hint),
    }
}

/// Device and inode number of the file under a loop device.
pub(super) fn loop_file(device: &File) -> io::Result<(u64, u64)> {
    // SAFETY: LOOP_GET_STATUS64 stores the 232 bytes of a loop_info64 through its argument, which
    // is what this getter provides; any bits are valid integers.
    let info = unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, [u64; 29]>::new())? };
    // `lo_device` and `lo_inode` are the first two fields.
    Ok((info[0], info[1]))
}

/// Size of a block device in bytes.
pub(super) fn block_device_size(file: &File) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 stores one u64 through its argument (despite the size_t in its number),
    // which is what this getter provides.
    unsafe { Ok(ioctl(file, Getter::<BLKGETSIZE64, u64>::new())?) }
}

/// Returns the write protection of a block device (`BLKROGET`). Most protected devices can be
/// opened for writing all the same.
pub(super) fn block_device_read_only(file: &File) -> io::Result<bool> {
    // SAFETY: BLKROGET stores one int through its argument, which is what this getter provides.
    unsafe { Ok(ioctl(file, Getter::<BLKROGET, i32>::new())? != 0) }
}

/// Discards a sector-aligned range of a block device.
pub(super) fn block_device_discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 through its argument, which is what this setter provides.
    unsafe { Ok(ioctl(file, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]))?) }
}
