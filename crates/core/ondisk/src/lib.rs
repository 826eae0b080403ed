//! ext4 and jbd2 structures: decode, encode, checksum. Bytes only, no I/O, no clock.
//!
//! ```text
//!  device bytes ── superblock ── geometry ── group descriptors ── bitmaps
//!                                \── inodes ── extent nodes / block maps ── file blocks
//!                                          ├── dir, htree, orphan_file   blocks of files
//!                                          ├── xattr, inline             in the inode or a block
//!                                          └── verity                    behind the end of a file
//!  encrypted directories ── nokey  names as they are shown without the key
//!  journal inode ── jbd2: superblock, descriptor, revoke, commit
//!                └─ fast_commit: tags behind the log
//! ```
//!
//! Promises
//! - No function panics on any bytes or arguments; disk values are validated before use.
//! - `decode` then `encode_into` over the same bytes changes nothing, so that fields not modelled
//!   survive; checksums are recomputed by encode.
//! - Searches and scans (directory entries, extents, tags) allocate nothing.
//!
//! Field names are Linux's (fs/ext4/ext4.h, include/linux/jbd2.h). Errors tell corrupt bytes
//! ([`OndiskError::Corrupt`]) from features not handled ([`OndiskError::Unsupported`]).
//!
//! Tested beside each module and on images made by stock mke2fs in `tests/`.

#![forbid(unsafe_code)]

pub mod bitmap;
pub mod blockmap;
pub mod bytes;
pub mod casefold;
pub mod checksum;
pub mod device_number;
pub mod dir;
mod dirhash;
pub mod ea_inode;
mod error;
pub mod extent;
pub mod fast_commit;
mod features;
mod geometry;
pub mod group;
pub mod htree;
pub mod inline;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod nokey;
pub mod orphan_file;
pub mod packed;
pub mod run_time;
pub mod superblock;
pub mod verity;
pub mod write_log;
pub mod xattr;

pub use error::{Location, OndiskError, Result};
pub use features::{CompatFeatures, FeatureCheck, IncompatFeatures, RoCompatFeatures};
pub use geometry::Geometry;
pub use group::GroupDesc;
pub use inode::{Inode, Timestamp};
pub use superblock::Superblock;
