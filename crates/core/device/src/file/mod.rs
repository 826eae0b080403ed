//! A regular file or a block device as a device.
//!
//! Promises
//! - A file that is open for writing is locked against others, one for reading against writers, in
//!   a way that strangers cannot abuse (`lock.rs`); a block device is opened with `O_EXCL`.
//! - Anything that the kernel has mounted is refused for writing: devices, and files through loop
//!   devices, in any mount namespace (`mounts.rs`). [`FileOptions::lock`] turns all of this off.
//! - `O_DIRECT` where the file takes it (tried at open with a 512 B, then a 4096 B read); requests
//!   or buffers that are not aligned enough go through aligned bounce buffers or the page cache.
//! - A batch goes through io_uring where the kernel allows it. Whatever the ring does not finish in
//!   full (short transfer, any error) is done again with `pread`/`pwrite`, whose answer counts.
//! - A file in memory (tmpfs, ramfs) gets neither: there `O_DIRECT` bypasses nothing but costs the
//!   bounce buffers, and each transfer of a ring is a wake of a kernel thread.
//! - Interrupted and short transfers are continued. A read past the end of a file that shrank is an
//!   error.
//! - Flush is `fdatasync`. A FUA write to a file is `RWF_DSYNC`; those of a batch to a block device
//!   are writes and one flush behind them, because to `RWF_DSYNC` with `O_DIRECT` Linux adds a
//!   flush behind the FUA of each (`blkdev_write_iter` in block/fops.c).
//! - The lifetime of a write reaches a UFS disk and a device with write streams (`lives.rs`).
//! - Discard punches a hole or is `BLKDISCARD`, and does nothing where that is not supported.
//!
//! Outside of Linux (`portable`) requests go one by one through the page cache; a FUA write is a
//! write and a flush behind it, and a discard does nothing.
//!
//! Worst case memory: 32 bounce buffers of 512 KiB. Tested in `tests.rs` on temporary files, with
//! and without `O_DIRECT` and io_uring, and on a loop device where root allows one.

#[cfg(target_os = "linux")]
mod aligned;
mod growing;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod lives;
#[cfg(target_os = "linux")]
mod lock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod runtime;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod transfer;

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use crate::{DeviceError, Request};
pub use growing::GrowingFile;
#[cfg(target_os = "linux")]
pub use linux::{FileDevice, OpenFiles};
#[cfg(target_os = "linux")]
pub use lock::is_open;
#[cfg(target_os = "linux")]
pub use mounts::{MountEntry, Superblock, kernel_use, mount_of, mounted_image, mounts_beside};
#[cfg(not(target_os = "linux"))]
pub use portable::FileDevice;
#[cfg(target_os = "linux")]
pub use program::{SBIN, find_program, may_run};
#[cfg(target_os = "linux")]
pub use runtime::runtime_dir;

/// Options for opening a file. The default is safe and fast: writable, locked, `O_DIRECT` and
/// io_uring where available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Refuse writes; many readers may share the file.
    pub read_only: bool,
    /// Bypass the page cache where possible.
    pub direct: bool,
    /// Use io_uring for batches where possible.
    pub io_uring: bool,
    /// Refuse files that somebody else has locked or mounted.
    pub lock: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { read_only: false, direct: true, io_uring: true, lock: true }
    }
}

/// Options for files that hold data of a volume: a new one is for its owner only.
pub(crate) fn private() -> OpenOptions {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "modes are of Unix"))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes a new, sparse file of zeroes.
fn make_file(path: &Path, size_bytes: u64) -> Result<(), DeviceError> {
    let made = private().write(true).create_new(true).open(path);
    let made = made.and_then(|file| file.set_len(size_bytes));
    made.map_err(|e| open_error(path, &e, "choose another path or make room"))
}

fn open_error(path: &Path, error: &io::Error, next: &str) -> DeviceError {
    DeviceError::Open {
        path: path.display().to_string(),
        reason: format!("{error}; {next}"),
        errno: error.raw_os_error().unwrap_or(5),
    }
}

fn io_error(request: &Request<'_>, error: &io::Error) -> DeviceError {
    DeviceError::Io {
        op: request.name(),
        offset_bytes: request.offset_bytes,
        len_bytes: request.len_bytes(),
        reason: error.to_string(),
        errno: error.raw_os_error().unwrap_or(5),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
