//! Any [`BlockDevice`](syncline_device::BlockDevice) as one file in a FUSE directory, over the
//! network block device protocol ([`NbdServer`]), or as a block device of the kernel
//! ([`UblkServer`]); no logic.
//!
//! ```text
//!   kernel ext4, xfs, btrfs
//!        |  block requests, flushes
//!   /dev/loopN   losetup --direct-io=on      (any kernel; ublk: see `ublk`)
//!        |  FUSE_READ, FUSE_WRITE (1 MiB at most), FUSE_FSYNC, FUSE_FALLOCATE (punch)
//!   DIR/flash --------> BlockDevice::submit   one request each, in the thread that read it
//!   DIR/power, stats    Control: a text that is read and maybe written, as in sysfs
//! ```
//!
//! Promises
//! - A read or write of the file is one device request of the same size (the kernel cuts at 1 MiB,
//!   and at 256 pages of the caller's buffer); nothing is cached here or in the kernel
//!   (`FOPEN_DIRECT_IO`), so the latency is the device's.
//! - `fsync` and `fdatasync` of the file are one `Flush` and return after it. `O_SYNC` and
//!   `O_DSYNC` writes are FUA writes, or a write and a flush where the device has no FUA. A punched
//!   hole is a discard.
//! - A device error is `EIO`, never a short success.
//!
//! Writes of parts of sectors of 512 bytes are a read and a write. Tested in `tests/it/export.rs`
//! and `tests/it/nbd.rs`; ublk in a guest, `cargo xtask run guest`.

#![deny(unsafe_code)]

mod bytes;
mod filesystem;
mod journal;
mod nbd;
mod server;
mod ublk;

pub use journal::empty_journal;
pub use nbd::{Listen, NbdError, NbdServed, NbdServer, NbdSocket};
pub use server::{Export, ExportError, Mounted, Served};
pub use ublk::{
    UblkDevice, UblkError, UblkQueue, UblkRequests, UblkRing, UblkServed, UblkServer, UblkServing,
};

/// A text file beside the device.
pub struct Control {
    /// File name.
    pub name: &'static str,
    /// The text now.
    pub read: Box<dyn Fn() -> String + Send + Sync>,
    /// Takes what was written, or says why not; `None`: read-only.
    pub write: Option<ControlWrite>,
}

/// Handler for a text that is written to a control. The error goes to the log; the writer gets
/// `EINVAL`.
pub type ControlWrite = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;
