//! Page frames and the replacement policies that choose which frame to give up.
//!
//! ```text
//!    owner (page cache of `fs`, or Simulator on a trace)
//!      | insert / hit / set_dirty / set_pinned / remove        | victim
//!      v                                                       v
//!    Frames: slot -> (key, flags), atomics          Policy: order of the slots, one file each
//! ```
//!
//! The owner keeps the contents; this crate keeps a slot number ([`FrameId`]), a [`PageKey`] and
//! three flags per page, and one policy's order over the slots. A policy is one file and one line
//! in [`POLICIES`].
//!
//! Promises
//! - A hit costs no lock where the policy needs none ([`Clock`](clock::Clock) sets one atomic bit).
//! - [`Policy::pick_victim`] never returns a pinned frame and does bounded work (each policy says
//!   its bound).
//! - Deterministic: the same calls in the same order give the same victims.
//!
//! Assumptions: each frame's insert and remove are serialised by the owner; hits, flags and picks
//! may come from any thread at any time. A pick is advice: the owner checks again under its own
//! lock.
//!
//! Tested in each policy's file and, with exact golden counts, in `tests/golden.rs`.

#![forbid(unsafe_code)]

pub mod clock;
mod frames;
pub mod lru;
mod simulator;

pub use frames::{FrameId, Frames, PageKey};
pub use simulator::{Counts, Simulator};

/// What a caller of [`Policy::pick_victim`] can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Clean frames only: the caller cannot write back now.
    Clean,
    /// Clean and dirty frames: the caller writes a dirty victim back before it reuses the frame.
    Any,
}

/// How a page is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The content is read.
    Read,
    /// The content is modified.
    Write,
}

/// A replacement policy: an order over the frames that are in use.
///
/// The owner guarantees, for each frame: `on_insert` comes first, then any of the others,
/// `on_remove` last; the flags in [`Frames`] are set before the call that tells of them. The policy
/// guarantees what [`Policy::pick_victim`] says. Methods take `&self`: a policy locks what it must
/// and calls nothing while it does.
pub trait Policy: Send + Sync {
    /// The name in [`POLICIES`].
    fn name(&self) -> &'static str;

    /// `frame` now holds a page. `access` is the access that brought it in.
    fn on_insert(&self, frames: &Frames, frame: FrameId, access: Access);

    /// The page in `frame` was used again.
    fn on_hit(&self, frames: &Frames, frame: FrameId, access: Access);

    /// The page in `frame` became dirty or clean; the flag in `frames` says which.
    fn on_dirty(&self, frames: &Frames, frame: FrameId) {
        let _ = (frames, frame);
    }

    /// `frame` is about to be released.
    fn on_remove(&self, frames: &Frames, frame: FrameId);

    /// The frame to give up next among those that are not pinned and that `accept` allows. The
    /// frame stays in the order until `on_remove`; one that the owner cannot remove after all is
    /// treated as if it had just been passed over, so that the next pick returns another one.
    /// `None`: no such frame within the policy's work bound.
    fn pick_victim(&self, frames: &Frames, accept: Accept) -> Option<FrameId>;
}

/// Makes a policy for about `capacity_frames` frames.
pub type MakePolicy = fn(capacity_frames: usize) -> Box<dyn Policy>;

/// Every policy by name. The first is the default.
pub const POLICIES: &[(&str, MakePolicy)] =
    &[("clock", |n| Box::new(clock::Clock::new(n))), ("lru", |n| Box::new(lru::Lru::new(n)))];

/// Why a policy cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// No policy of that name.
    #[error("there is no page replacement policy {name:?}; use one of: {known}")]
    UnknownPolicy {
        /// What was asked for.
        name: String,
        /// The names of [`POLICIES`], separated by commas.
        known: String,
    },
}

/// The policy called `name`.
///
/// # Errors
/// [`CacheError::UnknownPolicy`].
pub fn policy(name: &str, capacity_frames: usize) -> Result<Box<dyn Policy>, CacheError> {
    match POLICIES.iter().find(|(known, _)| *known == name) {
        Some((_, make)) => Ok(make(capacity_frames)),
        None => {
            let names: Vec<&str> = POLICIES.iter().map(|(known, _)| *known).collect();
            Err(CacheError::UnknownPolicy { name: name.to_string(), known: names.join(", ") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_answers_to_its_name() {
        for (name, _) in POLICIES {
            assert_eq!(policy(name, 8).expect("it is in the table").name(), *name);
        }
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_known_names() {
        let error = policy("fifo", 8).err().expect("not in the table");
        assert!(error.to_string().contains("clock, lru"), "{error}");
    }
}
