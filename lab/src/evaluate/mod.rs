//! The evaluation framework for page caches on flash: a trace before the cache goes in, hits come
//! out, and the trace after the cache is played on a device (informed-storage paper, section
//! 5.2.1).
//!
//! ```text
//!   Record ── PageGather ──> PageTrace        accesses to pages of one address space
//!                               |  1 Evaluation::run: a policy, a size (syncline_cache::Simulator)
//!                               v
//!            Counts: hits, reads, writes, runs         Requests, merged as asked
//!                                                      |   2 TraceWriter: a block trace
//!                                                      v
//!                 3 VirtualPlayer (nand::Simulator)  or  os::play_on (file, block device)
//!                               v
//!                            Played: elapsed time, latencies, wear
//! ```
//!
//! Promises
//! - Everything but `os` is deterministic: equal traces and settings give equal figures.
//! - Memory: 8 bytes an access, twice that for policies that know the future; the trace after the
//!   cache streams.
//! - Records without a page access are counted (`PageTrace::left_out`).
//!
//! Tested in `lab/tests/evaluate`.

mod after;
mod dense;
mod lifetime;
#[cfg(not(target_family = "wasm"))]
pub mod os;
mod pages;
mod played;
mod player;
mod run;
mod size;
mod survey;

pub use dense::DenseAddresses;
pub use lifetime::{Origins, Share, Shares, WearReplay};
pub use pages::{PAGE_BYTES, PageGather, PageTrace};
pub use played::{Pace, Played};
pub use player::VirtualPlayer;
pub use run::{Configuration, Evaluation, Outcome, READ_US, WRITE_US};
pub use size::CacheSize;
pub use survey::{Feed, Survey};
