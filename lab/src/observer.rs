//! Receiver of the progress and the complaints of a run, which may also stop it.

/// Observer of a run; several threads may call it at once.
pub trait Observer: Sync {
    /// Begins a count of `total` steps.
    fn begin(&self, _what: &str, _total: u64) {}

    /// Sets the count: `done` of `total` steps are done.
    fn position(&self, _done: u64, _total: u64) {}

    /// Counts more steps.
    fn advance(&self, _steps: u64) {}

    /// Says how many bytes were read and written since the count began.
    fn moved(&self, _bytes: u64) {}

    /// Ends the count, even before all steps are done.
    fn end(&self) {}

    /// True if the run must stop after the current operation.
    fn stopped(&self) -> bool {
        false
    }

    /// Tells the user something that does not end the run.
    fn complain(&self, _text: &str) {}
}

/// An observer that ignores everything and never stops a run.
pub struct Unobserved;

impl Observer for Unobserved {}
