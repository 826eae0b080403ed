//! A volume as a FUSE mount: requests of the kernel become calls of `fs`.
//!
//! ```text
//!   programs -> VFS, page cache -> /dev/fuse, io_uring -> workers     `wire/`, `adapter.rs`
//!                                                   |   one row a request: `operations.rs`
//!                                                   |   events for `trace=`: `capture/`
//!                                               Serve                 `serve/`
//!                                                   | Volume          crate fs
//!   maintenance thread: Volume::tick  ---------------
//! ```
//!
//! Promises
//! - fsync, fdatasync and O_SYNC writes return after the volume has made the data durable, never
//!   before; nothing answers "not implemented" to them.
//! - The kernel checks permissions (`default_permissions`), also against ACLs; set-id bits and
//!   device files have no effect unless `suid` and `dev` ask for it.
//! - The volume is the only writer, so the kernel may keep names, attributes and pages as long as
//!   it likes.
//! - An error of a request goes to the program that asked; the mount goes on. When the volume
//!   latches, that is said once.
//!
//! Assumptions: a Linux kernel with FUSE 7.31 or later (5.4); root, fusermount3, or a program that
//! mounts and hands over the device (`service.rs`).
//! Tested in `tests/it`, through the kernel; crashes and programs in `crates/adapters/cli/tests`;
//! requests of any value in `tests/fuzz_targets`.

#![deny(unsafe_code)]

mod adapter;
mod affinity;
mod answer;
mod caller;
mod capture;
mod convert;
mod descriptor;
mod error;
mod fstab;
mod handle;
mod hint;
mod host;
mod ioctl;
mod kernel;
mod memory;
mod operations;
mod options;
mod parking;
mod ranks;
mod serve;
mod service;
mod session;
mod table;
mod wakeup;
mod wire;

pub use capture::{
    Call, CallFlags, CallOp, Capture, CaptureCounts, Detail, EVENTS_MAGIC, Event, EventReader,
    Found, Named, Place, Process, Range, TraceFile,
};
pub use descriptor::serve_descriptor;
pub use error::{FuseError, Result};
pub use hint::{Mounter, write_hint};
pub use host::{Host, Machine};
pub use memory::prepare_memory;
pub use options::{Affinity, FuseOptions, Sandbox, Uring, words};
pub use serve::STATUS_XATTR;
pub use service::{Service, ServiceHost};
pub use session::{Ended, Mount, Setup};
pub use table::MOUNT_OPTIONS;
pub use wire::Rings;
