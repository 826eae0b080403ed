//! Replays system-call traces on a volume over simulated flash: the macro-benchmark of the
//! eager-sync paper (section 5.3).
//!
//! ```text
//!   records ── plan: what was there before ──> files made, unmount, mount
//!        └──── play: each call in the trace's order, gaps capped ──> Run
//! ```
//!
//! Promises: calls of all threads are made in the order of the trace, one after the other, since a
//! virtual run has one thread and one device; a run repeats exactly. Between two calls the clock
//! moves by the trace's gap, at most `gap_max_ns`, and what the background has to do by then is
//! done. Calls that cannot be made, because the trace does not show how a file came to be, are
//! counted, not guessed. Figures are those of every other run: foreground to the last call, whole
//! with the final unmount.
//!
//! `logged` keeps files of a trace as FlashLite logs, as if the program used the library.
//! `directory` plays them in a directory of the host, with threads and in real time.
//!
//! Tested in `lab/tests/replay`.

mod contents;
mod directory;
mod logged;
mod plan;
mod play;
mod samples;
mod simulated;
mod split;
mod table;

pub use contents::Contents;
pub use directory::{DirectoryReplay, DirectoryReplayed};
pub use simulated::{Replay, Replayed};
pub use split::Split;
pub use table::replay_table;

use crate::trace::{Names, Record};

/// A trace in memory.
#[derive(Debug, Default)]
pub struct ReplayTrace {
    /// Its name in tables.
    pub name: String,
    /// Records in order.
    pub records: Vec<Record>,
    /// Their names.
    pub names: Names,
}
