//! Targets of fuzzing: code that handles untrusted bytes or requests.
//!
//! ```text
//!   fuzz/ (a workspace of its own)   libFuzzer -> TARGETS[..].feed(bytes)   finds inputs
//!   tests/it                         fuzz/seeds -> TARGETS[..].feed(bytes)  replays what it found
//! ```
//!
//! A target promises for any input: it ends, does not panic, and what it asserts holds. New ones
//! get a module here, a row of [`TARGETS`] and a file in `fuzz/src/bin`.

#![forbid(unsafe_code)]

mod buffer;
mod bytes;
mod containers;
mod control;
mod flashlite;
mod fuse;
mod image;
mod journal;
mod operations;
mod recorder;
mod service;
mod streams;
mod tables;
mod trace;
mod ublk;

/// A target that is fed with bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of its file in `fuzz/src/bin` and of its folder in `fuzz/seeds`.
    pub name: &'static str,
    /// Images are needed, which e2fsprogs makes.
    pub needs_image: bool,
    /// Takes one input.
    pub feed: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "archive", needs_image: false, feed: tables::feed_archive },
    Target { name: "buffer", needs_image: false, feed: buffer::feed },
    Target { name: "control", needs_image: true, feed: control::feed },
    Target { name: "dbus", needs_image: false, feed: tables::feed_dbus },
    Target { name: "disks", needs_image: false, feed: containers::feed_disks },
    Target { name: "flashlite", needs_image: false, feed: flashlite::feed },
    Target { name: "fuse", needs_image: true, feed: fuse::feed },
    Target { name: "image", needs_image: true, feed: image::feed },
    Target { name: "journal", needs_image: true, feed: journal::feed },
    Target { name: "layers", needs_image: false, feed: containers::feed_layers },
    Target { name: "nbd", needs_image: false, feed: streams::feed_nbd },
    Target { name: "nfs", needs_image: true, feed: streams::feed_nfs },
    Target { name: "operations", needs_image: true, feed: operations::feed },
    Target { name: "partitions", needs_image: false, feed: tables::feed_partitions },
    Target { name: "recorder", needs_image: false, feed: recorder::feed },
    Target { name: "service", needs_image: false, feed: service::feed },
    Target { name: "trace", needs_image: false, feed: trace::feed },
    Target { name: "ublk", needs_image: false, feed: ublk::feed },
];

/// Feeds the target of this name.
///
/// # Panics
/// If there is none, or the target finds a fault.
pub fn feed(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.expect("a name of the table").feed)(bytes);
}
