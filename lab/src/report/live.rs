//! The page of `top --web`: an empty frame that fetches figures and draws them as they come.

use std::fmt::Write;
use std::time::Duration;

use crate::report::page::{About, echarts, escape, footer, head};

const SCRIPT: &str = include_str!("live.js");

/// The page; it fetches `live.json` from where it was loaded once an `interval`.
///
/// The document has `what`, `warning`, `bars` (name, text, ratio), `figures` (name, text), `rates`
/// (name, value or null) and `files` (name, written, read, syncs).
pub fn live_page(title: &str, interval: Duration, about: &About) -> String {
    let mut html = head(title);
    let _ = writeln!(
        html,
        "<p id=\"what\"></p><p id=\"warning\" role=\"alert\"></p>\n\
         <div id=\"bars\"></div>\n<div class=\"scroll\"><table id=\"figures\"></table></div>\n\
         <div id=\"rates\"></div>\n<div class=\"scroll\"><table id=\"files\"></table></div>\n{}\
         <script>{}</script>\n<script>const INTERVAL_MS = {};\n{SCRIPT}</script>\
         </body></html>",
        footer(about),
        echarts(),
        interval.as_millis()
    );
    // The title is the page's only text from outside; the rest comes as JSON and is set as text.
    debug_assert!(html.contains(&escape(title)));
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_escapes_its_title_and_loads_only_the_figures() {
        let html = live_page("/mnt/<a>", Duration::from_secs(1), &About::default());
        assert!(html.contains("/mnt/&lt;a&gt;") && html.contains("INTERVAL_MS = 1000"));
        let own = html.replace(&echarts(), "");
        assert!(!own.contains("http") && !own.contains("src=") && own.contains("live.json"));
    }
}
