//! An ext4 image as a program opens it: what the C library and the Python package share.
//!
//! ```text
//!   syncline-c   syncline-py      handles, exceptions, buffers of the caller
//!         \         /
//!          library                Disk, File, Directory: locks, fork, threads, background work
//!             |
//!             fs                  Volume
//! ```
//!
//! Promises
//! - Every call may come from any thread. [`Disk::close`] waits for the calls under way and ends
//!   every file of the disk; later calls fail with EBADF.
//! - An image that another process writes to is refused (EBUSY), and for writing one that another
//!   process reads: the locks are those of `syncline_device::FileDevice`.
//! - A process that was forked from the one that opened the image is refused (EBADF), and neither
//!   touches the image nor waits for a lock when it drops what it inherited.
//! - A [`Disk`] that is dropped without [`Disk::close`] writes nothing more: the image is as after
//!   a power cut, and the next open recovers it and says so in [`Disk::opened`].
//! - Paths are bytes, relative to the root of the volume; one with a zero byte is refused (EINVAL),
//!   as are offsets of 2^63 and above.
//!
//! Permissions are not checked: the caller may do what it can do to the image. Tested through
//! both interfaces.

#![forbid(unsafe_code)]

mod directory;
mod disk;
mod error;
mod file;
mod keeper;
mod names;
mod options;
mod tools;

pub use directory::{Directory, Entry};
pub use disk::Disk;
pub use error::{Error, Result};
pub use file::{Access, File};
pub use names::{At, Change};
pub use options::OpenOptions;
pub use tools::{Make, check, make, recover};

pub use syncline_device::{BlockDevice, DeviceError, Geometry, Op, Request};
pub use syncline_fs::{
    Attr, CheckProgress, CheckReport, FallocateMode, FileKind, MountReport, SetTime, StatFs,
    Timestamp, XattrFlags,
};
