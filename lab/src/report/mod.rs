//! Reports: tables of text, HTML pages with charts, two results compared.
//!
//! ```text
//!   figures of a command ──> aligned, figure ──> text
//!          |
//!          └── Page: text, tables, Chart (bars), addresses of a trace ──> one HTML file
//!   two JSON documents ──> compare_documents ──> text, page
//! ```
//!
//! Promises: a page is one file that loads nothing from anywhere and is smaller than 2 MB; all text
//! is escaped; a plot has a bounded number of points, whatever was measured. Nothing here knows
//! which command asks. Text in, text out: no clock, no files.
//!
//! Charts are drawn by Apache ECharts, vendored in `vendor` with its licence and notice. Own SVG
//! was given up for it: zoom, exact figures under the pointer and labels that keep clear of each
//! other are what such a library is for. Tested here and, in a browser, in `lab/tests/report`.

mod addresses;
mod charts;
mod compare;
mod page;
mod strip;
mod table;
mod trace_report;

pub use charts::{Chart, Layout};
pub use compare::{DocumentComparison, Pair, compare_documents};
#[cfg(not(target_family = "wasm"))]
pub(crate) use page::escape;
pub use page::{About, Page};
pub use strip::Strip;
pub use table::{aligned, figure};
pub use trace_report::{Picked, trace_report};

/// The different ones, in the order in which they come.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// First line of every form of a document whose run did not come to its end.
pub(crate) const INTERRUPTED: &str = "Interrupted: figures that are missing were not measured.";
