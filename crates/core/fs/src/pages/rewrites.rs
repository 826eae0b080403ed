//! The share of pages in the log that write-back has to write once more.
//!
//! ```text
//!   new blocks   logged ---> written back, or freed before (a rollback journal): not written
//!   overwritten  logged, logged, logged ---> written back once
//! ```
//!
//! Counted apart, since the two kinds differ most in what becomes of them. Old counts halve.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pages that what is assumed counts for.
const ASSUMED: f64 = 16.0;
/// Ways for each page before any were written back.
const ASSUMED_WAYS: f64 = 0.25;
/// Pages after which the counts of a kind are halved.
const KEPT: u32 = 4096;

/// Counts of one kind of pages.
#[derive(Default)]
struct Share {
    logged: AtomicU32,
    /// Those of them that are written back once more.
    rewritten: AtomicU32,
}

impl Share {
    fn note(&self, logged: u32, rewritten: u32) {
        if self.logged.fetch_add(logged, Ordering::Relaxed) + logged > KEPT {
            for count in [&self.logged, &self.rewritten] {
                count.store(count.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
        self.rewritten.fetch_add(rewritten, Ordering::Relaxed);
    }

    /// The share; `assumed` until some pages were counted.
    fn get(&self, assumed: f64) -> f64 {
        let of = |count: &AtomicU32| f64::from(count.load(Ordering::Relaxed));
        let share = (of(&self.rewritten) + assumed * ASSUMED) / (of(&self.logged) + ASSUMED);
        share.min(1.0)
    }
}

/// Counts of both kinds.
#[derive(Default)]
pub(crate) struct Rewrites {
    fresh: Share,
    overwritten: Share,
    /// Pages that were written back, and ways between them.
    ways: Share,
}

impl Rewrites {
    /// A sync makes pages of one chunk durable: `due`, of which these have no block yet and these
    /// were synced before.
    pub(super) fn note_synced(&self, due: u64, delalloc: u64, synced: u64) {
        let fresh = (due & delalloc).count_ones();
        self.fresh.note(fresh, fresh);
        let overwritten = due & !delalloc;
        self.overwritten.note(overwritten.count_ones(), (overwritten & !synced).count_ones());
    }

    /// A page was forgotten.
    pub(super) fn note_dropped(&self, was_synced: bool) {
        if was_synced {
            let rewritten = &self.fresh.rewritten;
            let less = rewritten.load(Ordering::Relaxed).saturating_sub(1);
            rewritten.store(less, Ordering::Relaxed);
        }
    }

    /// Pages of which the log has the newest copy are written back, with ways to so many addresses.
    pub(crate) fn note_written(&self, pages: usize, ways: usize) {
        let few = |count: usize| u32::try_from(count).unwrap_or(KEPT);
        self.ways.note(few(pages), few(ways));
    }

    /// Ways for each page that is written back.
    pub(crate) fn ways(&self) -> f64 {
        self.ways.get(ASSUMED_WAYS)
    }

    /// The share of new blocks.
    pub(crate) fn of_fresh(&self) -> f64 {
        self.fresh.get(1.0)
    }

    /// The share of overwritten blocks.
    pub(crate) fn of_overwritten(&self) -> f64 {
        self.overwritten.get(1.0)
    }
}
