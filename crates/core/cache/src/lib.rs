//! Page frames and the replacement policies that choose which frame to give up.
//!
//! ```text
//!    owner (page cache of `fs`, or Simulator on a trace)
//!      | insert / hit / set_dirty / set_pinned / remove        | victim
//!      v                                                       v
//!    Frames: slot -> (key, flags), atomics          Policy: order of the slots, one file each
//!                                                     Order + a lock; or Order alone (Simulator)
//! ```
//!
//! The owner keeps the contents; this crate keeps a slot number ([`FrameId`]), a [`PageKey`] and
//! flags per page, and one policy's order over the slots. A policy is one file in `policy/` and one
//! line in [`POLICIES`].
//!
//! Promises
//! - A hit costs no lock where the policy needs none: [`policy::clock::Clock`] sets an atomic bit.
//! - [`Policy::pick_victim`] never returns a pinned frame and does bounded work (each policy says
//!   its bound).
//! - Deterministic: the same calls in the same order give the same victims.
//! - Less than 64 bytes of memory a cached page in a [`Simulator`], whatever the policy and however
//!   scattered the pages are over a device; the contents are not in it. A policy that remembers as
//!   many pages that left has half as much for each of those.
//!
//! Assumptions: each frame's insert and remove are serialised by the owner; hits, flags and picks
//! may come from any thread at any time. A pick is advice: the owner checks again under its own
//! lock.
//!
//! Tested in each policy's file with small sequences worked by hand, and in `tests/it`: exact
//! counts at eight sizes, plain models, bounds and memory.

#![forbid(unsafe_code)]

mod frames;
mod ghosts;
mod index;
mod lists;
pub mod policy;
mod simulator;
mod spatial;

pub use frames::{FrameId, Frames, PageKey};
pub use policy::{
    Accept, Access, Entry, Order, POLICIES, Policy, VolumePolicy, entry, write_back_order,
};
pub use simulator::{
    Counts, DeviceAccess, LONG_RUN_PAGES, PageAccess, Simulator, WriteBack, next_uses,
};

/// Why a policy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// No policy of that name.
    #[error("there is no page replacement policy {name:?}; use one of: {known}")]
    UnknownPolicy {
        /// Name that was asked for.
        name: String,
        /// The names of [`POLICIES`], separated by commas.
        known: String,
    },
    /// The policy looks into the future.
    #[error(
        "the policy {name:?} needs the whole trace beforehand; compare with it in a simulation, \
         and use one of: {known}"
    )]
    NeedsFuture {
        /// Name that was asked for.
        name: String,
        /// The names of those that do not, separated by commas.
        known: String,
    },
}
