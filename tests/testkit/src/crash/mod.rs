//! Power cuts: a device that remembers every write, and an explorer of what a cut may leave.
//!
//! ```text
//!   log      B0 B1 | F | B2 B3* M7 B4 ...        B batch of writes, F flush, * FUA, M mark
//!   cut in B4:
//!     durable    base + B0 + B1 + B3             flushed, or FUA
//!     optional   B2, B4                          any subset, torn at 512 B sectors
//!     marks      7                               what was acknowledged before the cut
//! ```
//!
//! The model (what the stack assumes of a disk, no more)
//! - A completed flush makes every write durable that completed before it; a completed FUA write is
//!   durable itself. Everything else, and all of the batch under way, may be there in any
//!   combination of sectors. Sectors are atomic. The newest of several writes to a sector that
//!   happened wins over the older ones; a durable write is never undone by an older one.
//! - Behind a cache barrier nothing is there unless everything before it is; a durable write there
//!   makes what is before it durable. Discards are not ordered.
//! - A discard is an optional write of zeroes that happens as a whole.
//!
//! Use: run a workload over a [`CrashDevice`] and [`CrashDevice::mark`] each acknowledged fsync;
//! make an [`Explorer`] of its log; [`run`] a judge over the states of a [`Budget`]. Each state has
//! a [`StateId`], from which [`Explorer::state`] rebuilds it after the same workload.
//! [`run_nested`] cuts recovery as well.
//!
//! Promises: deterministic for a log and a seed, no clock, no threads. Tested in `tests/`.

mod choices;
mod cursor;
mod device;
mod explorer;
mod log;
mod plan;
mod run;
mod state_id;

pub use device::{CrashDevice, CrashOptions, FaultyFlush};
pub use explorer::{CrashState, Exploration, ExploreOptions, Explorer};
pub use log::{Content, CrashLog, Entry, LoggedWrite};
pub use plan::{Budget, Shard};
pub use run::{Failure, Summary, run, run_nested};
pub use state_id::{Choice, Point, StateId};

/// Why a crash state could not be built.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CrashError {
    /// The text is not the id of a state.
    #[error("`{text}` is not a crash state id; copy it from the failure report as it stands")]
    BadId {
        /// The text.
        text: String,
    },
    /// The id names something that this log does not have.
    #[error("crash state {id} does not exist in this log; rerun the same workload with its seed")]
    NoSuchState {
        /// The id.
        id: String,
    },
}
