//! An ext4 volume on any block device: inodes, directories, allocation, page cache and sync.
//!
//! Promises
//! - The image is an ext4 at every instant: stock e2fsck and a stock kernel recover it. There are
//!   two exceptions: `log=packed`, and a write buffer ([`Buffered`]). In both, stock tools refuse
//!   the image until it is unmounted, and only this crate recovers it.
//! - After a failed write or flush the volume latches. From then on every write and fsync fails
//!   ([`FsError::Latched`]), and reads go on.
//! - No image, argument or device answer causes a panic.
//! - A run is deterministic: time and devices are parameters, and this crate starts no thread.
//!
//! Assumptions
//! - Sectors of 512 bytes are atomic. When a flush completes, every write that completed before the
//!   flush was issued is durable.
//! - No other program writes to the device while the volume is mounted.
//! - The program that owns the [`Volume`] calls [`Volume::tick`] when
//!   [`Volume::next_deadline_ns`] says. Background write-back and commits happen in this call.
//!
//! The tests in `tests/it` check the images with e2fsck and with kernel mounts. Those in
//! `tests/model` also cut the power. See the source of [`Volume`] (`volume.rs`) for the parts and
//! the lock order.

#![forbid(unsafe_code)]

pub mod acl;
mod check;
mod data;
mod error;
mod fast_commit;
mod incore;
mod inode;
mod map;
mod memory;
pub mod mkfs;
mod mount;
mod names;
pub mod options;
mod pages;
mod ranks;
pub mod repair;
mod space;
mod store;
mod time;
mod volume;

pub use check::{CheckProgress, CheckReport, FINDINGS_MAX, Finding, check_device};
pub use data::atomic::AtomicWrite;
pub use data::engine::eager::EagerCosts;
pub use data::fallocate::FallocateMode;
pub use data::schedule::state::SyncPointStats;
pub use data::seek::FileExtent;
pub use error::{FsError, Result};
pub use incore::Inode;
pub use inode::attr::{Attr, SetAttr, SetTime, StatFs, USER_FLAGS, type_letter};
pub use inode::reference::InodeRef;
pub use inode::xattr::XattrFlags;
pub use memory::MemoryStats;
pub use mkfs::build;
pub use mount::MountReport;
pub use names::create::Create;
pub use names::dir::{DirEntry, FileKind};
pub use names::namei::NAME_BYTES_MAX;
pub use names::path::{PATH_BYTES_MAX, SYMLINKS_MAX};
pub use names::rename::RenameFlags;
pub use options::{
    Alloc, Atime, LiveLimits, LogFormat, MountOptions, MtimeUpdate, OnError, Rescue, SyncMode,
    VOLUME_OPTIONS, Writeback,
};
pub use pages::CacheStats;
pub use store::buffered::Buffered;
pub use syncline_cache::VolumePolicy;
pub use syncline_jbd2::JournalStats;
pub use time::Timestamp;
pub use volume::Volume;

/// Bits of a mode, as in [`Attr`], and of the flags of an inode.
pub mod bits {
    pub use syncline_ondisk::inode::flags::{APPEND, IMMUTABLE};
    pub use syncline_ondisk::inode::{
        S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID, S_ISUID,
        S_IXGRP,
    };
}
