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

mod attr;
mod balloc;
mod blockmap;
mod buffered;
mod check;
mod dcache;
mod dir;
mod eager;
mod error;
mod evict;
mod extents;
mod fallocate;
mod file;
mod group;
mod hot;
mod ialloc;
mod icache;
mod inode;
mod live;
mod mount;
mod namei;
mod options;
mod orphan;
mod pagecache;
mod path;
mod relaxed;
mod relocate;
mod seek;
mod sweep;
mod symlink;
mod sync;
mod throttle;
mod time;
mod together;
mod truncate;
mod volume;
mod writeback;
mod xattr;

pub use attr::{Attr, SetAttr, SetTime, StatFs, USER_FLAGS, type_letter};
pub use buffered::Buffered;
pub use check::{CheckProgress, CheckReport, FINDINGS_MAX, Finding};
pub use dir::{DirEntry, FileKind};
pub use error::{FsError, Result};
pub use fallocate::FallocateMode;
pub use inode::{Inode, InodeRef};
pub use live::LiveLimits;
pub use mount::MountReport;
pub use namei::{Create, NAME_BYTES_MAX, RenameFlags};
pub use options::{Alloc, Atime, LogFormat, MountOptions, OnError, SyncMode, Writeback};
pub use pagecache::CacheStats;
pub use path::{PATH_BYTES_MAX, SYMLINKS_MAX};
pub use seek::FileExtent;
pub use syncline_jbd2::JournalStats;
pub use time::Timestamp;
pub use volume::Volume;
pub use xattr::XattrFlags;
