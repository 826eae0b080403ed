//! The measuring commands without their output: what `syncline-lab cache`, `replay`, `lifetime`,
//! `bench`, `probe` and `trace stat` do, for the command line and the Python package.
//!
//! ```text
//!   command line ── args ──┐                        ┌──> table, CSV, page: the command line
//!   Python ── options ─────┴─> request ── run ──> result ── document() ──> JSON: both
//!                               Cache, Replay ...      ^
//!                                   Observer: progress, complaints, stopping
//! ```
//!
//! Promises: equal requests give equal documents; a request with an unknown option
//! is refused. Write permission is decided in `crate::evaluate::os::guard`. Tested through
//! the command line (`lab/tests/program`) and the Python package.

#[cfg(not(target_family = "wasm"))]
mod advise;
mod bench;
#[cfg(not(target_family = "wasm"))]
mod cache;
mod devices;
mod lifetime;
#[cfg(not(target_family = "wasm"))]
mod probe;
#[cfg(not(target_family = "wasm"))]
mod replay;
mod stat;
mod trace;
#[cfg(not(target_family = "wasm"))]
mod trace_file;

#[cfg(not(target_family = "wasm"))]
pub use advise::{Advice, Advise, Keeps, Remedy, Trial, advice_document};
pub use bench::{Bench, BenchResult};
#[cfg(not(target_family = "wasm"))]
pub use cache::{Cache, CacheResult, CacheRun};
pub use devices::{devices, devices_document};
pub use lifetime::{LifetimeRequest, LifetimeResult, Spread, span};
#[cfg(not(target_family = "wasm"))]
pub use probe::Probe;
#[cfg(not(target_family = "wasm"))]
pub use replay::{DirectoryResult, Replay, ReplayResult};
pub use stat::StatResult;
pub use trace::Source;
#[cfg(not(target_family = "wasm"))]
pub use trace_file::{PageRead, TraceFile};

use crate::error::Result;
use syncline_nand::Profile;

/// The specifications of a profile at the ends of what published figures leave open, and its own.
pub fn range(spec: &str) -> Result<Vec<String>> {
    Ok(profile(spec)?.range()?.into_iter().map(|profile| profile.name).collect())
}

/// A profile of that name or file, with overrides.
pub fn profile(spec: &str) -> Result<Profile> {
    Ok(Profile::parse_spec(spec, &|path| std::fs::read_to_string(path))?)
}
