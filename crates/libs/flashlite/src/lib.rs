//! FlashLite: files written in random order that the device sees as sequential writes.
//!
//! For programs that fill a large file in any order: downloads from many peers or in parts,
//! restorers of images, sync clients. Each write is appended to a log with a tag that says where it
//! belongs; a map in memory finds it again; when all is there, the log is rearranged to a normal
//! file, in one sequential pass. Informed-storage paper, chapter IV.
//!
//! ```text
//!   write_at(offset, data) --> | header | tag data | tag data | ... index | tag data | ...
//!   read_at(offset)  <-- map: offset -> place in the log
//!   rearrange_to(file) --> from start to end
//! ```
//!
//! Promises
//! - What [`Log::sync_data`] covered is there after a power cut, whatever was torn behind it.
//!   After a crash the log is some prefix of the writes, in their order.
//! - No byte that was not written at that place is ever returned: a torn end is found by checksums.
//! - Opening reads tags and indexes, not data: 32 KiB for each segment of 16 MiB.
//! - No panic on any log, and no more memory than the log has tags.
//!
//! Assumes of the storage: [`Storage::sync_data`] is true, and bytes once synced stay as they are
//! ([`Log::check`] and [`Log::rearrange_to`] notice if not; [`Log::read_at`] looks only in a log
//! that was opened as [`Log::verified`]).
//!
//! Bad fit: files written in order anyway (nothing to gain), files overwritten again and again (the
//! log grows with each write until it is rearranged), and disks without room for 1.02 times the
//! file.
//!
//! The format is in `docs/FORMAT.md`. Tested in `tests/it`: against an array of bytes, by power
//! cuts, by failing storage, by fuzzed logs.

#![forbid(unsafe_code)]

mod chain;
mod cursor;
mod error;
mod file;
mod format;
mod group;
mod log;
mod map;
mod rearrange;
mod recover;
mod storage;
mod sums;
mod tail;
mod waiting;

pub use cursor::Cursor;
pub use error::{Error, Result};
pub use file::FileStorage;
pub use log::{Info, Log, Options};
pub use rearrange::{Checked, Progress, Rearrange, Rearranged};
pub use recover::{Dropped, Opened};
pub use storage::{MemoryStorage, Storage};
