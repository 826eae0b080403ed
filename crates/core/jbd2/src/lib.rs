//! A jbd2 journal in user space: handles, transactions, commit, checkpoint, recovery.
//!
//! This crate knows blocks, not files. The file system above changes metadata blocks through a
//! [`Handle`]. A handle joins the running transaction. A commit writes this transaction to the log,
//! and the next handle starts a new one. After a crash [`Journal::recover`] replays the log. The
//! kernel and e2fsck can replay it too, unless it has packed records (see below).
//!
//! ```text
//!   fs:  start(credits) -> Handle: modify, create, forget -> drop        commit(tid), sync
//!          |                                                               |
//!   running transaction --- freeze (clone Arcs) ---> copies [flush] commit block   -> durable
//!                                                       \-> newest committed image of each block
//!                                                           -> written in place by tick/checkpoint
//! ```
//!
//! Promises
//! - A transaction that [`Journal::commit`] acknowledged survives any later power cut.
//! - All changes of one handle are recovered together or not at all. Uncommitted contents are never
//!   written in place.
//! - [`Handle::modify`] waits for no device I/O but the read of its block. [`Journal::start`] waits
//!   in three cases only:
//!   1. The running transaction is being frozen: `start` waits until the open handles have ended
//!      and the images of the changed blocks have been referenced.
//!   2. The running transaction is full: `start` commits it. With
//!      [`JournalOptions::owner_commits`] it waits instead until other handles return credits, and
//!      fails ([`JournalError::TooLarge`]) if none is open.
//!   3. The log has too little space: `start` checkpoints in steps.
//! - After the first failed write or flush every later `start`, commit and sync fails
//!   ([`JournalError::Aborted`]). Cached blocks can still be read.
//! - The contents of a log never cause a panic or unbounded work. Recovery reads each log block a
//!   bounded number of times.
//!
//! Assumptions
//! - The device writes each sector of 512 bytes as a whole or not at all. When a flush completes,
//!   every write that completed before the flush was issued is durable.
//! - A thread that holds a handle does not commit, and does not wait for a lock under which other
//!   threads start handles.
//! - The file system does not reuse a freed block before the transaction that freed it is durable
//!   ([`Handle::on_commit`]). There is one exception: the block may be reused at once if its new
//!   contents are journaled in the dependency set of the free (`dependency_sets/`).
//! - The file system sets `needs_recovery` in its superblock, durably, before the first commit.
//!
//! [`Checksums`] selects the format that the journal writes:
//! - `V3` is the kernel's default format with checksum v3: copies, flush, commit block.
//!   `None` is the same without checksums.
//! - `V1Async` writes each transaction as one write, with FUA or a flush. Stock recovery reads it.
//! - `Packed` writes records of changed bytes (`packed.rs`). Only this crate recovers them.
//!
//! With `V1Async` and `Packed`, [`Journal::sync`] makes a group commit (`group_commit.rs`). A group
//! commit writes the part of the running transaction that the waiting callers need: their changes,
//! and all changes that must be recovered together with these (`dependency_sets/`).
//!
//! Recovery also reads formats that this crate does not write: checksums v1 without async commit,
//! v2, and v3 with async commit, and fast commits.
//!
//! `state.rs` describes the state in memory, and `ranks.rs` the order of the locks, which debug
//! builds check. The tests in `tests/` check journals with e2fsck, debugfs and kernel mounts.
//! `tests/it/schedules.rs` runs the code that orders commits (`turns.rs`) under many thread
//! schedules.

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
