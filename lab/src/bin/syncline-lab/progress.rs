//! Progress of a measurement on standard error, where that is a terminal.

use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
pub(crate) use syncline_cli::progress::bar;
use syncline_cli::{complain, interrupt};
use syncline_lab::Observer;

/// Observer of a measuring command: a bar for each count, Ctrl-C, complaints on standard error.
#[derive(Default)]
pub(crate) struct Terminal(Mutex<Option<ProgressBar>>);

impl Terminal {
    fn with(&self, change: impl FnOnce(&ProgressBar)) {
        // A bar has no state that a panic could leave half done.
        let bar = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &*bar {
            change(bar);
        }
    }
}

impl Observer for Terminal {
    fn begin(&self, what: &str, total: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar(what, total));
    }

    fn position(&self, done: u64, total: u64) {
        self.with(|bar| {
            bar.set_length(total);
            bar.set_position(done);
        });
    }

    fn advance(&self, steps: u64) {
        self.with(|bar| bar.inc(steps));
    }

    fn end(&self) {
        self.with(ProgressBar::finish_and_clear);
    }

    fn stopped(&self) -> bool {
        interrupt::asked()
    }

    fn complain(&self, text: &str) {
        complain(text);
    }
}
