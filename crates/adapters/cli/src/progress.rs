//! Progress on standard error, where that is a terminal; nothing otherwise.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use syncline_latency::Watch;

use crate::interrupt;

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

/// A bar that a run moves; Ctrl-C cancels the run.
pub(crate) struct Shown(pub(crate) ProgressBar);

impl Shown {
    /// A bar for `total` steps.
    pub(crate) fn new(what: &str, total: u64) -> Shown {
        Shown(bar(what, total))
    }
}

impl Watch for Shown {
    fn progress(&mut self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}
