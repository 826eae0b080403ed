//! Locks that QEMU takes on an image file, so that a running virtual machine and this process
//! refuse each other.
//!
//! QEMU (block/file-posix.c) locks one byte for each thing that it does with the image, from byte
//! 100 on, and one for each thing that it does not allow others, from byte 200 on. Things: 0 read
//! consistently, 1 write, 2 write the same, 3 change the size. Locks are shared ones of the open
//! file description; a process that finds a contradicting byte locked gives up.
//!
//! Tested in `tests/it/qcow2.rs` with qemu-io.

use std::fs::File;

use crate::platform::locks::{is_free, take as lock};
use crate::{ImageError, Result};

/// Bytes for what is done.
const DONE_AT: i64 = 100;
/// Bytes for what others may not do.
const DENIED_AT: i64 = 200;
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Takes the locks of a writer or reader; they last as long as the open file.
///
/// # Errors
/// Another process contradicts.
pub(super) fn take(file: &File, writable: bool) -> Result<()> {
    let done: &[i64] = if writable { &[READ, WRITE, RESIZE] } else { &[READ] };
    let denied: &[i64] = if writable { &[WRITE, RESIZE] } else { &[WRITE] };
    let taken = done.iter().all(|thing| lock(file, DONE_AT + thing))
        && denied.iter().all(|thing| lock(file, DENIED_AT + thing))
        && done.iter().all(|thing| is_free(file, DENIED_AT + thing))
        && denied.iter().all(|thing| is_free(file, DONE_AT + thing));
    let text = "another program has it open, perhaps a virtual machine; close that first";
    taken.then_some(()).ok_or_else(|| ImageError::Failed(text.to_owned()))
}
