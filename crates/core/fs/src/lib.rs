//! An ext4 volume on any block device: inodes, directories, allocation, page cache and sync.
//!
//! Promises
//! - The image is an ext4 at every instant: after a crash stock e2fsck and a stock kernel recover
//!   it. With `log=packed` or a write buffer below the volume ([`Buffered`]) this does not hold:
//!   stock tools refuse the image of a mounted volume, and only this crate recovers it after a
//!   crash.
//! - After a failed write or flush, or when corruption is found, the volume latches. From then on
//!   every write and fsync fails ([`FsError::Latched`]), and reads go on. With `errors=continue`
//!   corruption latches it only within a change.
//! - No image, argument or device answer causes a panic.
//! - Time and devices are parameters, and this crate starts no thread. So a run with one thread and
//!   a virtual clock is deterministic.
//!
//! Assumptions
//! - The device writes each sector of 512 bytes as a whole or not at all. When a flush completes,
//!   every write that completed before the flush was issued is durable.
//! - No other program writes to the device while the volume is mounted.
//! - The owner of the [`Volume`] calls [`Volume::tick`] at the time that
//!   [`Volume::next_deadline_ns`] returns. `tick` does background write-back and commits.
//!
//! The tests in `tests/it` check the images with e2fsck and with kernel mounts. The tests of the
//! crate `syncline-model` also cut the power. The source of [`Volume`] (`volume.rs`) describes the
//! parts of a volume, and `ranks.rs` the order of the locks.

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
pub use syncline_ondisk::device_number::{device_numbers, makedev};
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
