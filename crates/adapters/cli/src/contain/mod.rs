//! A process that gives up its rights before it reads what nobody vouches for.
//!
//! ```text
//!   open image, log, trace, sockets   with the rights of the caller
//!   Keeper::start                     a small process keeps these rights (`keeper.rs`)
//!   enter                             no new privileges, not dumpable, limits, for root an
//!                                     unprivileged user, Landlock, system calls (`filter.rs`)
//!   read the image, serve             with the open descriptors, and questions to the keeper
//! ```
//!
//! Commands that open what their arguments name, and end, have [`Bounds`] instead. The helper of a
//! library ([`crate::cmd::isolate`]) gets all that it uses from the library, and has no keeper.
//!
//! Promises
//! - After [`enter`] the process and all its threads can read and write what is open, and no other
//!   file, socket, process or device. It can run no program and get no right back.
//! - The keeper reads no byte of the image. It answers the questions of `keeper.rs` for one image
//!   and one directory, and ends with its process.
//! - `best` takes every layer that the kernel has, and [`Layers`] says which are missing. `strict`
//!   fails if one is.
//!
//! Assumes: the calling process has one thread, since Landlock restricts a thread and those that it
//! starts. Tested by a server that behaves as if taken over, in
//! `tests/fuzz_targets/tests/it/takeover.rs`.

pub(crate) mod channel;
mod command;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod filter;
mod keeper;
mod layers;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
mod no_filter;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
use no_filter as filter;

/// The attack that a test makes in a process that gave up its rights.
pub(crate) static TAKEOVER: std::sync::OnceLock<fn() -> String> = std::sync::OnceLock::new();

/// Makes that attack; its outcome.
pub(crate) fn attacked() -> String {
    TAKEOVER.get().map_or_else(String::new, |attack| attack())
}

pub(crate) use command::Bounds;
pub(crate) use keeper::{Keeper, Local, Rights, Served, keep};
pub(crate) use layers::{Keeps, Layers, Limits, enter, give_up, may_open_fuse};
