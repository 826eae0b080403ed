//! Receiver of progress and complaints of a run, and its wish to stop.

use crate::latency::Watch;

/// Observer of a run; several threads may call it at once.
pub trait Observer: Sync {
    /// Begins a count of `total` steps.
    fn begin(&self, _what: &str, _total: u64) {}

    /// Sets the count: `done` of `total` steps.
    fn position(&self, _done: u64, _total: u64) {}

    /// Counts more steps.
    fn advance(&self, _steps: u64) {}

    /// Ends the count, done or not.
    fn end(&self) {}

    /// True if the run shall stop at the next opportunity.
    fn stopped(&self) -> bool {
        false
    }

    /// Tells the user something that does not end the run.
    fn complain(&self, _text: &str) {}
}

/// Nobody observes.
pub struct Unobserved;

impl Observer for Unobserved {}

/// An observer as the watch of one run.
pub struct Watched<'a>(pub &'a dyn Observer);

impl Watch for Watched<'_> {
    fn progress(&mut self, done: u64, total: u64) {
        self.0.position(done, total);
    }

    fn cancelled(&self) -> bool {
        self.0.stopped()
    }
}
