//! Any device as a block device of the kernel: ublk, `/dev/ublkbN`.
//!
//! ```text
//!   kernel ext4, xfs, btrfs, dm, bcache
//!        |  requests of 1 MiB at most, flushes, FUA, discards
//!   /dev/ublkbN      descriptors of 32 requests, shared memory
//!        |  io_uring: FETCH, COMMIT_AND_FETCH
//!   queue thread --> 4 workers --> Bytes --> BlockDevice
//!        ^               |  data of a request: pread, pwrite of /dev/ublkcN (USER_COPY)
//!        `--- socket ----'  results
//! ```
//!
//! Source: the kernel's documentation (Documentation/block/ublk.rst) and its user header
//! (linux/ublk_cmd.h). Needs Linux 6.5 with `ublk_drv`, and root.
//!
//! Not through the crate libublk: its bindings are made by libclang when it is built, which users
//! would have to install, and one of its dependencies (bitmaps) is under the MPL, which this
//! project does not take. What is needed of the interface is six commands.
//!
//! Promises
//! - Limits are the device's: sectors of 512 bytes, 4096 as the physical size, write cache, FUA,
//!   discard and read-only as its geometry says. Where the device has no FUA the kernel sends a
//!   flush instead.
//! - A flush or FUA write is answered when the device has answered it. An error of the device is an
//!   I/O error, never a short success.
//! - The process that answers requests needs no right: another one may add, start and stop the
//!   device ([`UblkDevice`], [`UblkQueue`]).
//! - [`UblkServed::stop`] answers what is under way and removes the device. When the process is
//!   killed the kernel removes it, and requests fail; what is left of its name goes with the next
//!   device that is made here.
//! - Bounded: 32 requests, 4 of them at the device, 1 MiB of memory each.
//!
//! Tested in `ublk/abi.rs` (bytes), in `fuzz` (descriptors) and, as a whole, in a guest (`make
//! guest`).

mod abi;
mod control;
mod queue;
mod requests;
mod server;
mod sys;

pub use requests::UblkRequests;
pub use server::{UblkDevice, UblkError, UblkQueue, UblkServed, UblkServer, UblkServing};
pub use sys::UblkRing;
