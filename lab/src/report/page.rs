//! The page of a report: one HTML file with text, tables and charts, read without a network.
//!
//! ```text
//!   head    style, light and dark
//!   body    headings, tables, <figure> for each chart (keys, plot)
//!   footer  version, command line, host, date
//!   end     charts as JSON | Apache ECharts, vendored | page.js: draws them as SVG
//!           tables.js: wide tables in parts that fit
//! ```
//!
//! A page without charts and tables has no script. Points of all plots of a page are bounded, so
//! that a file stays under 2 MB. Tested here and, in a browser, in `lab/tests/report`.

use std::fmt::Write;
use std::io::Read;

use flate2::read::DeflateDecoder;
use serde_json::Value;
use syncline_device::TraceEvent;

use crate::report::addresses::{self, Along, POINTS_MAX};
use crate::report::charts::Chart;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const TABLES: &str = include_str!("tables.js");
/// Apache ECharts 6.1.0, `dist/echarts.common.min.js`, as `build.rs` compressed it.
const ECHARTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/echarts.deflate"));
/// Points of all plots of a page.
const PAGE_POINTS_MAX: usize = 24_000;

/// Origin of a report, for its footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Program and version.
    pub version: String,
    /// Command line.
    pub command: String,
    /// System and processors.
    pub host: String,
    /// Time of day, with its zone.
    pub date: String,
}

/// A page that is being written.
#[derive(Debug)]
pub struct Page {
    title: String,
    body: String,
    charts: Vec<Drawn>,
}

#[derive(Debug)]
enum Drawn {
    Bars(Value),
    Points(String, Vec<TraceEvent>, Along),
}

/// The chart library.
pub(crate) fn echarts() -> String {
    let mut script = String::new();
    let read = DeflateDecoder::new(ECHARTS).read_to_string(&mut script);
    // The build made the bytes; a test reads them.
    debug_assert!(read.is_ok());
    script
}

/// Text as it stands in HTML and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

/// Cells of a line, between which there are two spaces or more. The first may be empty.
fn columns(line: &str) -> Vec<String> {
    let cells = line.split("  ").map(str::trim).enumerate();
    cells
        .filter(|(at, cell)| *at == 0 || !cell.is_empty())
        .map(|(_, cell)| cell.to_owned())
        .collect()
}

/// A page up to its first heading.
pub(crate) fn head(title: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    )
}

/// The footer: where the page is from.
pub(crate) fn footer(about: &About) -> String {
    let About { version, command, host, date } = about;
    let parts = [version, command, host, date];
    let parts = parts.iter().filter(|part| !part.is_empty()).map(|part| escape(part));
    format!("<footer>{}</footer>\n", parts.collect::<Vec<_>>().join("<br>"))
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: String::new(), charts: Vec::new() }
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    /// A heading below it.
    pub fn subheading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(text));
    }

    /// A part of the page as it stands in HTML.
    pub(crate) fn html(&mut self, html: &str) {
        self.body += html;
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Text as a terminal shows it: lines of as many columns are a table, others paragraphs.
    pub fn text(&mut self, text: &str) {
        let lines: Vec<Vec<String>> = text.lines().map(columns).collect();
        for alike in lines.chunk_by(|a, b| a.len() == b.len()) {
            match alike {
                [header, body @ ..] if header.len() > 2 && !body.is_empty() => {
                    let figures = |at: &usize| {
                        let figure = |cell: &String| cell == "-" || cell.parse::<f64>().is_ok();
                        body.iter().all(|cells| figure(&cells[*at]))
                    };
                    let words = (0..header.len()).find(figures).unwrap_or(header.len());
                    self.table(header, body, words);
                }
                _ => {
                    for line in alike.iter().map(|cells| cells.join(" ")) {
                        if !line.is_empty() {
                            self.paragraph(&line);
                        }
                    }
                }
            }
        }
    }

    /// A table whose first `words` columns are words.
    pub fn table(&mut self, header: &[String], lines: &[Vec<String>], words: usize) {
        self.body += "<div class=\"scroll\"><table>\n";
        let all = std::iter::once(("th", header)).chain(lines.iter().map(|l| ("td", l.as_slice())));
        for (tag, cells) in all {
            self.body += "<tr>";
            for (column, cell) in cells.iter().enumerate() {
                let class = if column < words { " class=\"w\"" } else { "" };
                let _ = write!(self.body, "<{tag}{class}>{}</{tag}>", escape(cell));
            }
            self.body += "</tr>\n";
        }
        self.body += "</table></div>\n";
    }

    /// A chart of bars; nothing if it has no groups.
    pub fn bars(&mut self, chart: &Chart) {
        if !chart.groups.is_empty() {
            self.figure(&chart.title, Drawn::Bars(chart.document()));
        }
    }

    /// Reads and writes of a trace: seconds to the right, addresses upwards. `lost`: commands
    /// that the trace has no room for.
    pub fn addresses(&mut self, title: &str, events: &[TraceEvent], lost: u64) {
        self.points(title, events.to_vec(), lost, Along::Time);
    }

    /// As [`Page::addresses`], for offsets in files that lie above one another.
    pub(crate) fn offsets(&mut self, title: &str, events: &[TraceEvent]) {
        self.points(title, events.to_vec(), 0, Along::FilesInTime);
    }

    /// As [`Page::addresses`], writes only, by their number in place of their time.
    pub fn sequence(&mut self, title: &str, events: &[TraceEvent], lost: u64) {
        let writes = events.iter().filter(|event| event.op == syncline_device::TraceOp::Write);
        self.points(title, writes.copied().collect(), lost, Along::Number);
    }

    fn points(&mut self, title: &str, events: Vec<TraceEvent>, lost: u64, along: Along) {
        if events.is_empty() {
            return;
        }
        let heading = match lost {
            0 => title.to_owned(),
            lost => format!("{title} (without the last {lost} commands)"),
        };
        self.figure(&heading, Drawn::Points(title.to_owned(), events, along));
    }

    fn figure(&mut self, title: &str, drawn: Drawn) {
        let title = escape(title);
        let _ = writeln!(
            self.body,
            "<h3>{title}</h3>\n<figure id=\"chart-{}\" aria-label=\"{title}\">\
             <div class=\"plot\"></div></figure>",
            self.charts.len()
        );
        self.charts.push(drawn);
    }

    /// The file.
    pub fn finish(self, about: &About) -> String {
        let mut html = head(&self.title) + &self.body;
        if !self.charts.is_empty() {
            html += "<p class=\"note\">Point at a bar or point for its exact figures; drag with \
                     the zoom tool, or turn the wheel with Ctrl, to zoom; click a name to hide its \
                     series.</p>\n";
        }
        html += &footer(about);
        if !self.charts.is_empty() {
            let _ = writeln!(
                html,
                "<script type=\"application/json\" id=\"charts\">{}</script>\n\
                 <script>{}</script>\n<script>{SCRIPT}</script>",
                documents(&self.charts),
                echarts()
            );
        }
        if self.body.contains("<div class=\"scroll\">") {
            let _ = writeln!(html, "<script>{TABLES}</script>");
        }
        html + "</body></html>\n"
    }
}

/// The charts as JSON that may stand in a script element.
fn documents(charts: &[Drawn]) -> String {
    let plots = charts.iter().filter(|chart| matches!(chart, Drawn::Points(..))).count();
    let most = POINTS_MAX.min(PAGE_POINTS_MAX / plots.max(1));
    let each = charts.iter().map(|chart| match chart {
        Drawn::Bars(document) => document.clone(),
        Drawn::Points(title, events, along) => addresses::document(title, events, *along, most),
    });
    Value::Array(each.collect()).to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::{Kind, Origin, TraceOp};

    fn about() -> About {
        About {
            version: "syncline 1".into(),
            command: "syncline-lab bench '<x>'".into(),
            host: "Linux 6".into(),
            date: "2026-01-01 00:00:00 UTC".into(),
        }
    }

    #[test]
    fn a_page_stands_alone_and_says_where_it_is_from() {
        let mut page = Page::new("a & b");
        page.table(&["x".into(), "y".into()], &[vec!["<card>".into(), "1".into()]], 1);
        page.bars(&Chart::rows("</script><b>", "s", "one", &[("<i>".into(), 1.0)]));
        let html = page.finish(&about());
        for part in ["a &amp; b", "&lt;card&gt;", "&#39;&lt;x&gt;&#39;", "Linux 6", "UTC"] {
            assert!(html.contains(part), "{part} is missing");
        }
        let own = html.replace(&echarts(), "");
        for outside in ["http", "src=", "url(", "<link", "@import", "<card>", "<i>\""] {
            assert!(!own.contains(outside), "{outside}");
        }
        assert_eq!(own.matches("</script>").count(), 4, "text does not end a script");
        assert!(html.len() < 2_000_000);
    }

    #[test]
    fn text_of_columns_is_a_table() {
        let mut page = Page::new("t");
        let table = "        calls   MB\nread       24  0.1\n-           1    -\n";
        page.text(&format!("a trace  of <x>\n\n{table}last: 5\n"));
        let html = page.finish(&About::default());
        for part in [
            "<p>a trace of &lt;x&gt;</p>",
            "<th class=\"w\"></th><th>calls</th><th>MB</th>",
            "<td class=\"w\">-</td><td>1</td><td>-</td></tr>\n</table></div>\n<p>last: 5</p>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn a_page_without_charts_and_tables_has_no_script() {
        let mut page = Page::new("t");
        page.bars(&Chart::default());
        page.addresses("without events", &[], 0);
        let html = page.finish(&About::default());
        assert!(!html.contains("<script") && !html.contains("without events"));
    }

    #[test]
    fn a_sequence_shows_writes_only() {
        let origin = Origin::new(Kind::Data { inode: 12 }, false);
        let event = |op, offset_bytes| TraceEvent {
            time_ns: 0,
            op,
            offset_bytes,
            len_bytes: 4096,
            origin,
            fua: false,
        };
        let events = [event(TraceOp::Write, 0), event(TraceOp::Read, 8192)];
        let mut page = Page::new("x");
        page.sequence("a & b", &events, 2);
        page.sequence("not drawn", &events[1..], 0);
        let html = page.finish(&About::default());
        for part in ["a &amp; b", "last 2 commands", "[0.0,0,4096]", "writes: data"] {
            assert!(html.contains(part), "{part} is missing");
        }
        assert!(!html.contains("not drawn") && !html.contains("8192,4096]"));
    }

    #[test]
    fn a_page_of_many_plots_stays_small() {
        let origin = Origin::new(Kind::Journal, false);
        let event = |n: u64| TraceEvent {
            time_ns: n * 1_000_003,
            op: TraceOp::Write,
            offset_bytes: n * 123_456_789 % (64 << 30),
            len_bytes: 131_072,
            origin,
            fua: false,
        };
        let events: Vec<_> = (0..5000).map(event).collect();
        let mut page = Page::new("t");
        (0..40).for_each(|n| page.addresses(&format!("plot {n}"), &events, n));
        let html = page.finish(&about());
        assert!(html.len() < 2_000_000, "{}", html.len());
        assert!(html.contains("plot 7 (without the last 7 commands)"));
    }
}
