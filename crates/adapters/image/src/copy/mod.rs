//! Copies into, out of and between images.
//!
//! `side` is the interface to the host's files (`host`) or a volume (`volume`), and `tree` copies.
//! `arguments` interprets the arguments.

#[cfg(any(unix, windows))]
mod arguments;
#[cfg(any(unix, windows))]
mod host;
#[cfg_attr(not(any(unix, windows)), allow(dead_code, reason = "only archives are written"))]
pub(crate) mod side;
#[cfg_attr(not(any(unix, windows)), allow(dead_code, reason = "only its sizes are wanted"))]
mod tree;
pub(crate) mod volume;

#[cfg(any(unix, windows))]
pub use arguments::{Options, copy, copy_open, fill, fill_new};
#[cfg(unix)]
pub(crate) use arguments::{last_name, trimmed};
pub(crate) use tree::measure as measure_tree;
pub use volume::contents;

use crate::ImageError;

/// Files that were left out while the rest was copied.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files that were left out; [`Watch::remark`] heard why.
    pub failures: u64,
    /// The first reason.
    pub first: Option<ImageError>,
}

/// Changes to the attributes that [`fill`] copies, so that equal trees give equal images.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pins {
    /// Owner and group of everything.
    pub owner: Option<(u32, u32)>,
    /// Latest time of a file, seconds since 1970; access times are those of changes then.
    pub latest_s: Option<i64>,
}
