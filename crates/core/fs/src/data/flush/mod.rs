//! Write-back: a straight line from cached pages to blocks that belong to a file.
//!
//! ```text
//!   file, files   one file, or small files together; `io` of each is held
//!     batch       snapshots of dirty pages
//!     plan        place of each run; delayed blocks get places in memory only
//!     (engine)    action for each page: write, skip, retry, journal
//!     send        one plug of data, no handle, no state lock held
//!     install     handles: bitmap bits, extents, unwritten -> written, i_blocks, i_disksize
//!   pages clean, unless somebody wrote to them meanwhile
//! ```
//!
//! Promises ("install after write")
//! - No transaction ever points at a block whose data was not written before the transaction could
//!   commit; the commit's flush makes that data durable before its commit record. So a crash shows
//!   no stale data.
//! - i_disksize covers only written data; in each handle it grows with the extents.
//! - An overwrite of written blocks starts no handle at all.
//! - A failed write latches the volume: the pages stay dirty, every later fsync fails.

pub(crate) mod batch;
pub(crate) mod file;
pub(crate) mod files;
pub(crate) mod install;
pub(crate) mod pass;
pub(crate) mod plan;
pub(crate) mod send;
