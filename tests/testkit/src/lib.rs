//! Test support: stock images, stock judges, kernel mounts, trees to write and trees to compare.
//!
//! ```text
//!   env        what this machine can do; skip() and require(); where scratch files go
//!   image      mke2fs with fixed UUID, hash seed and time -> TempImage; debugfs
//!   judge      e2fsck: clean, preen
//!   kernel     loop device and kernel mount as guards
//!   manifest   TreeManifest: everything a user can see of a tree, from any TreeSource; diff
//!   tree       operations on a tree, applied to any TreeSink
//!   generate   gen_tree(), gen_changes(): seeded lists of operations
//!   mounted    a FUSE mount that a child of the test serves
//!   service    the program that mounts, for a service of mounts
//!   program    a program of this repository, for tests of what starts it
//!   browser    headless Chromium: what a page shows
//!   verity     files with fs-verity, without the kernel
//!   fscrypt    encrypted directories of the running kernel
//!   dir        a directory of the running kernel as TreeSource and TreeSink
//!   crash      power-cut device and explorer of crash states
//!   posix      conformance suite for any directory; the program `syncline-posix` runs it
//! ```
//!
//! Promises
//! - Nothing in here is part of the product, and of the product only `device` is used: any crate
//!   may use it in its tests, and pays no rebuild of the layers above.
//! - Judges are stock programs and the running kernel, never our own reader.
//! - Same seed, same tree; same [`ImageSpec`], same image bytes (same e2fsprogs version).
//! - A test that cannot run here says so through [`skip`], and where `SYNCLINE_REQUIRE` demands the
//!   ability, it fails.
//!
//! Each file's tests stand at its end; `tests/it/main.rs` runs all parts together on a kernel.

#![deny(unsafe_code)]

mod browser;
pub mod crash;
mod dir;
mod env;
mod fscrypt;
mod generate;
mod image;
mod judge;
mod kernel;
mod manifest;
mod mounted;
pub mod posix;
mod program;
mod rng;
mod service;
mod tree;
mod uring;
mod verity;

pub use browser::look;
pub use dir::DirTree;
pub use env::{FuzzRounds, Need, require, scratch_dir, skip};
pub use fscrypt::encrypt_dir;
pub use generate::{TreeOptions, gen_changes, gen_tree};
pub use image::{ImageSpec, TempImage, debugfs, files_in_time, files_of, mkfs, tiny_ext4};
pub use judge::{e2fsck_clean, e2fsck_preen};
pub use kernel::{KernelMount, LoopDevice};
pub use manifest::{Compare, Entry, Stat, Time, TreeManifest, TreeSource, Xattr};
pub use mounted::{Mounted, TIMEOUT, unmounted};
pub use program::program;
pub use rng::{Random, fill};
pub use service::{MountingProgram, memory};
pub use tree::{TreeOp, TreeSink, apply};
pub use uring::UringOffer;
pub use verity::Seal;
