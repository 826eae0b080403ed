//! Encrypted directories of the running kernel: keys and policies (fscrypt).
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `FS_IOC_ADD_ENCRYPTION_KEY`.
const ADD_KEY: libc::c_ulong = 0xc050_6617;
/// `FS_IOC_SET_ENCRYPTION_POLICY`.
const SET_POLICY: libc::c_ulong = 0x800c_6613;
const ARG_BYTES: usize = 80;
const KEY_BYTES: usize = 64;
const IDENTIFIER: std::ops::Range<usize> = 8..24;

fn call(file: &File, request: libc::c_ulong, arg: &mut [u8]) -> std::io::Result<()> {
    // SAFETY: both requests read and write their structure only, which `arg` holds in full.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request as _, arg.as_mut_ptr()) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the file system of an empty directory a key, and the directory a policy of version 2 with
/// it: AES-256-XTS and AES-256-CTS, names padded to `pad` bytes (4, 8, 16 or 32). The key is gone
/// with the mount.
///
/// # Errors
/// What the kernel says: `EOPNOTSUPP` without encryption.
pub fn encrypt_dir(dir: &Path, pad: u32) -> std::io::Result<()> {
    let file = File::open(dir)?;
    let mut add = [0x5a; ARG_BYTES + KEY_BYTES];
    add[..ARG_BYTES].fill(0);
    // The kernel puts the identifier behind it.
    add[..4].copy_from_slice(&2_u32.to_ne_bytes());
    add[40..44].copy_from_slice(&(KEY_BYTES as u32).to_ne_bytes());
    call(&file, ADD_KEY, &mut add)?;
    let mut policy = [0; 24];
    policy[..4].copy_from_slice(&[2, 1, 4, (pad.trailing_zeros() - 2) as u8]);
    policy[8..].copy_from_slice(&add[IDENTIFIER]);
    call(&file, SET_POLICY, &mut policy)
}
