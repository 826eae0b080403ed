//! The journal of a kernel's ext4 over a device that is served here.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `EXT4_IOC_CHECKPOINT`, Linux 5.15.
const CHECKPOINT: Opcode = opcode::write::<u32>(b'f', 43);

/// Commits what the file system of `file` has changed and writes it to its places, so that its log
/// is empty for a moment. Needs root.
///
/// # Errors
/// `ENOTTY` where this is no ext4, or the kernel is older; `EPERM` without root.
pub fn empty_journal(file: &File) -> io::Result<()> {
    // SAFETY: the command reads one u32, its flags, and keeps no pointer.
    unsafe { ioctl(file, Setter::<CHECKPOINT, u32>::new(0)) }.map_err(io::Error::from)
}
