//! Relaxed files under a kernel's ext4: the writes of a mounted file system that are deferrable.
//!
//! ```text
//!   kernel ext4 --- block requests ---> Hinted --- the same, with Durability ---> Buffer
//!                                         |
//!      write of a file's written extents: relaxed         everything else: strict
//!      commit block in the log: the transaction is read back; who owns which block now?
//! ```
//!
//! A block request does not say whose it is: neither NBD nor ublk nor a loop device passes on
//! write-life-time hints or I/O priorities. So the extents of the chosen files are read from the
//! device, and followed in the journal (chapter VI of the informed-storage paper marks pages
//! in the kernel instead).
//!
//! Promises
//! - A write is relaxed only if all of it lies in extents that belong to chosen files, and are
//!   written, by the newest transaction whose commit block was seen. Whatever is not certain is
//!   strict.
//! - A block that leaves its file: no write of it is relaxed after the commit block of the
//!   transaction that took it away, and what waits of it is strict before that commit block is
//!   passed on.
//! - An unmount, another mount, a freeze, a damaged or unknown journal: every file is strict.
//! - Deterministic: no clock, no thread. No bytes on the device make it panic.
//!
//! Why this is enough for a new owner's fsync, in each mode of ext4's data: the transaction that
//! takes a block from one file names the old owner's inode or extent block, and no later than in it
//! the new owner gets the block; the fsync of the new owner waits for that transaction and ends
//! with a flush, or with a commit block that is written through. Both come after the data and after
//! the block became strict here. With `data=ordered` the new owner cannot even write before:
//! `ext4_process_freed_data` gives a block back after the commit that freed it.
//!
//! Unwritten extents are strict, since the conversion of one is committed after its data was
//! flushed: else a cut would show what the block held before. No files of journals with fast or
//! asynchronous commits: there an fsync may end without the blocks of its transaction.
//!
//! Assumes that the kernel's ext4 is the only writer while it is mounted. Tested under the kernel,
//! with power cuts: `crates/adapters/export/tests/it/hints.rs`.

mod device;
mod journal;
mod mounted;
mod places;
mod tree;

pub use device::{HintError, Hinted, HintedStatus};
pub use syncline_ondisk::Timestamp;
