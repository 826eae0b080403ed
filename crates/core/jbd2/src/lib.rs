//! A jbd2 journal in user space: handles, compound transactions, commit, checkpoint, recovery.
//!
//! This crate is about blocks, not files. The file system above changes metadata blocks through a
//! [`Handle`]; all handles of a few seconds make one transaction; a commit writes the transaction
//! to the log, from where stock recovery - the kernel's, e2fsck's or [`Journal::recover`] - replays
//! it.
//!
//! ```text
//!   fs:  start(credits) -> Handle: modify, create, forget -> drop        commit(tid)
//!          |                                                               |
//!   running transaction --- freeze (clone Arcs) ---> body | flush | commit block   -> durable
//!   BufferCache: newest contents                       \
//!                                                       newest committed image of each block
//!                                                           -> written in place by tick/checkpoint
//! ```
//!
//! Promises
//! - A transaction that [`Journal::commit`] acknowledged survives any power cut after it, with any
//!   stock recovery.
//! - All changes of one handle are recovered together or not at all. Uncommitted contents are never
//!   written in place.
//! - No device I/O happens under a lock that `start`, `modify` or `get` need. `start` waits only
//!   while the running transaction is frozen (memory work), or when the log is out of space.
//! - After the first failed write or flush every call fails ([`JournalError::Aborted`]).
//! - No panic and no unbounded work on any log: recovery reads each log block a fixed number of
//!   times.
//!
//! Assumptions
//! - Sectors of 512 bytes are atomic. A completed flush is true.
//! - A handle's holder does not commit or wait for locks under which others start handles.
//! - Blocks freed in a transaction are not reused before it is durable ([`Handle::on_commit`]).
//! - The file system sets `needs_recovery` in its superblock, durably, before the first commit.
//!
//! The writer produces the format of the kernel's data=ordered journal: checksums v3 (or none),
//! body, flush, commit block. With [`Checksums::V1Async`] it writes each transaction as one write
//! with one flush, and [`Journal::sync`] is a group commit of a part of the running transaction:
//! the dependency sets of a few files (`dependency_sets/`, `group_commit.rs`, `in_place.rs`). The
//! reader accepts v1, v2 and v3, 32 and 64 bit, and async commit. Tested in `tests/` with e2fsck,
//! debugfs and kernel mounts, not with this crate's own reader.
//!
//! The state in memory is in parts that each own their rules (`state.rs`). Locks have ranks
//! (`ranks.rs`): debug builds panic where one is taken in the wrong order. The protocol of commit
//! turns is checked under drawn schedules by `tests/it/schedules.rs`.

#![forbid(unsafe_code)]

mod buffer;
mod checkpoint;
mod commit;
mod deferred;
mod dependency_sets;
mod error;
mod flushes;
mod format;
mod group_commit;
mod handle;
mod in_place;
mod journal;
mod log_map;
mod log_superblock;
mod log_writer;
mod packed;
mod ranks;
mod record;
mod recover;
mod reserve;
mod ring;
mod room;
mod space;
mod state;
mod stats;
mod tid;
mod transaction;
mod turns;
mod write_back;
mod zeroed;

pub use buffer::BufferCache;
pub use dependency_sets::{Counters, Member};
pub use error::JournalError;
pub use handle::Handle;
pub use in_place::{InPlacePage, WriteAction};
pub use journal::{Checksums, Committed, Host, Journal, JournalOptions};
pub use log_map::LogMap;
pub use recover::{FastCommits, RecoverOptions, Recovery};
pub use reserve::Reservation;
pub use stats::JournalStats;
pub use tid::{Tid, tid_geq, tid_gt};
