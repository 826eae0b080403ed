//! Progress of a measurement, and its end before its time.

/// Whoever watches a measurement: is told of its progress, may end it.
pub trait Watch {
    /// `done` of `total` operations are done.
    fn progress(&mut self, done: u64, total: u64);

    /// True if to stop after the current operation.
    fn cancelled(&self) -> bool;
}

/// Nobody watches.
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: u64, _: u64) {}

    fn cancelled(&self) -> bool {
        false
    }
}
