//! Progress on standard error, where that is a terminal; nothing otherwise.

use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use syncline_lab::experiments::Observer;

use crate::{complain, interrupt};

/// Template of [`bytes`].
const BYTES: &str = "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// A bar for `total` steps.
pub(crate) fn bar(what: &str, total: u64) -> ProgressBar {
    // Hidden by itself when standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar
}

/// A bar for bytes: how many of how many, how fast, the time left.
pub(crate) fn bytes() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(BYTES);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

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
