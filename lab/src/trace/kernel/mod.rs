//! Block requests from the kernel's own event buffers, as tracefs gives them: binary pages.
//!
//! ```text
//!   per_cpu/cpuN/trace_pipe_raw ── page ──> Events::page     decoded, one list for all processors
//!                                           Events::take     in the order of time
//!   ext4_writepages ... _result  of a task: its writes are of this inode
//!   block_bio_queue              who asked for these sectors, and for which inode
//!   block_rq_issue ──────────────────────────────────────> a request, in the order of issue
//!   block_rq_complete                                      and its latency
//! ```
//!
//! The text that tracefs prints (`lab/src/trace/import/tracefs.rs`) costs the kernel a microsecond
//! a line; pages cost a copy. That is what lets a recorder follow 10,000 requests a second.
//!
//! Promises: any bytes give requests or an error, never a panic; memory is bounded
//! ([`WAITING_MAX`], [`OWNERS_MAX`], [`TASKS_MAX`]) besides the pages of one round.
//!
//! Assumes pages of the machine that decodes them (its byte order and width). Tests:
//! `lab/tests/trace/kernel.rs`; a real kernel in the tests of `syncline-lab trace watch`.

mod layout;
mod page;
mod requests;

pub use layout::{EventKind, KernelLayout};
pub use requests::{Events, OWNERS_MAX, Request, TASKS_MAX, WAITING_MAX};
