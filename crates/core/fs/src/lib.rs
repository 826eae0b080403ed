//! ext4 volume: inodes, directories, allocation, page cache and sync on any block device.
//!
//! Promises
//! - On disk it is ext4: stock e2fsck and a stock kernel recover the image at every instant.
//! - fsync never lies: after a failed write the volume latches ([`FsError::Latched`]).
//! - No panic on any image, argument or device answer.
//! - Deterministic: time and devices are parameters, no thread is started here.
//!
//! See [`volume`](crate::Volume) for the parts and the lock order.

#![forbid(unsafe_code)]

pub mod acl;
mod check;
mod data;
mod error;
mod fast_commit;
mod incore;
mod inode;
mod map;
mod mount;
mod names;
pub mod options;
mod pages;
mod ranks;
mod space;
mod store;
mod time;
mod volume;

pub use check::{CheckProgress, CheckReport, FINDINGS_MAX, Finding};
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
pub use mount::MountReport;
pub use names::create::Create;
pub use names::dir::{DirEntry, FileKind};
pub use names::namei::NAME_BYTES_MAX;
pub use names::path::{PATH_BYTES_MAX, SYMLINKS_MAX};
pub use names::rename::RenameFlags;
pub use options::{
    Alloc, Atime, LiveLimits, LogFormat, MountOptions, OnError, SyncMode, VOLUME_OPTIONS, Writeback,
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
