//! Progress of a measurement on standard error.

use std::sync::{Mutex, PoisonError};

pub(crate) use syncline_cli::progress::{Bar, bar};
use syncline_cli::{complain, interrupt};
use syncline_lab::Observer;

/// Observer of a measuring command: a bar for each count, Ctrl-C, complaints on standard error.
#[derive(Default)]
pub(crate) struct Terminal(Mutex<Option<Bar>>);

impl Terminal {
    fn with(&self, change: impl FnOnce(&Bar)) {
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
            bar.set_total(total);
            bar.set_done(done);
        });
    }

    fn advance(&self, steps: u64) {
        self.with(|bar| bar.add(steps));
    }

    fn moved(&self, bytes: u64) {
        self.with(|bar| bar.set_moved(bytes));
    }

    fn end(&self) {
        self.with(Bar::clear);
    }

    fn stopped(&self) -> bool {
        interrupt::asked()
    }

    fn complain(&self, text: &str) {
        complain(text);
    }
}
