//! Progress on standard error, where that is a terminal; nothing otherwise.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Template of [`bytes`].
const BYTES: &str = "{wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// A bar for `total` steps.
pub fn bar(what: &str, total: u64) -> ProgressBar {
    // Hidden by itself when standard error is no terminal.
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what.to_owned());
    bar
}

/// A bar for bytes: how many of how many, how fast, the time left.
pub fn bytes() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(BYTES);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
