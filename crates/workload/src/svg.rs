//! Two plots as inline SVG: bars, and block addresses against time. Text in, text out.
//!
//! ```text
//!   bars                          scatter
//!   ordered delete |####  38.3    MiB |   . .. :  journal, metadata, data: one colour each,
//!   eager delete   |######## 117      |..:........ reads grey
//!                                     +---------- s
//! ```
//!
//! Promises: no script, no reference to anything outside; all text is escaped; a plot has at most
//! [`POINTS_MAX`] points, every n-th if there are more. Tested here and in `report.rs`.

use std::fmt::Write;

use syncline_device::{Kind, TraceEvent, TraceOp};

use crate::table::figure;

/// Points of one scatter plot.
const POINTS_MAX: usize = 4000;

const WIDTH: f64 = 720.0;
const ROW: f64 = 20.0;
const LABEL: f64 = 250.0;
const HEIGHT: f64 = 240.0;
const MARGIN: f64 = 56.0;

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

/// Horizontal bars from zero, one for each label.
pub(crate) fn bars(title: &str, values: &[(String, f64)]) -> String {
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let height = ROW * values.len() as f64;
    let title = escape(title);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{title}\">\n"
    );
    for (n, (label, value)) in values.iter().enumerate() {
        let (y, label) = (ROW * n as f64, escape(label));
        let share = if most > 0.0 { value / most } else { 0.0 };
        let width = share * (WIDTH - LABEL - 80.0);
        let (text_y, after, shown) = (y + 14.0, LABEL + width + 6.0, figure(*value));
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{text_y}\" text-anchor=\"end\">{label}</text>\
             <rect x=\"{LABEL}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"{:.0}\"/>\
             <text x=\"{after:.1}\" y=\"{text_y}\">{shown}</text>",
            LABEL - 8.0,
            y + 3.0,
            ROW - 6.0,
        );
    }
    svg + "</svg>\n"
}

/// Classes of points, in the order in which they are drawn: a name for the legend and the style.
const CLASSES: [&str; 4] = ["read", "data", "metadata", "journal"];

fn class(event: &TraceEvent) -> Option<usize> {
    match (event.op, event.origin.kind) {
        (TraceOp::Flush | TraceOp::Discard, _) => None,
        (TraceOp::Read, _) => Some(0),
        (TraceOp::Write, Kind::Data { .. } | Kind::Other) => Some(1),
        (TraceOp::Write, Kind::Metadata) => Some(2),
        (TraceOp::Write, Kind::Journal) => Some(3),
    }
}

/// Reads and writes as points: seconds to the right, MiB of the device upwards.
pub(crate) fn scatter(title: &str, events: &[TraceEvent], size_bytes: u64) -> String {
    let start_ns = events.first().map_or(0, |event| event.time_ns);
    let span_ns = events.last().map_or(1, |event| (event.time_ns - start_ns).max(1));
    let every = events.len().div_ceil(POINTS_MAX).max(1);
    let (right, bottom) = (WIDTH - 12.0, HEIGHT - 28.0);
    let mut paths = [const { String::new() }; CLASSES.len()];
    for event in events.iter().step_by(every) {
        let Some(class) = class(event) else { continue };
        let along = (event.time_ns - start_ns) as f64 / span_ns as f64;
        let up = event.offset_bytes as f64 / size_bytes.max(1) as f64;
        let x = MARGIN + along * (right - MARGIN);
        let y = bottom - up.min(1.0) * (bottom - 12.0);
        let _ = write!(paths[class], "M{x:.1} {y:.1}h0");
    }
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{}\">\n\
         <path class=\"axis\" d=\"M{MARGIN} 12V{bottom}H{right}\"/>\n",
        escape(title)
    );
    for (path, name) in paths.iter().zip(CLASSES).filter(|(path, _)| !path.is_empty()) {
        let _ = writeln!(svg, "<path class=\"{name}\" d=\"{path}\"/>");
    }
    let (mib, seconds) = (size_bytes >> 20, span_ns as f64 / 1e9);
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"20\" text-anchor=\"end\">{mib} MiB</text>\
         <text x=\"{:.0}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\
         <text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{} s</text>",
        MARGIN - 4.0,
        MARGIN - 4.0,
        bottom + 18.0,
        figure(seconds),
    );
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::Origin;

    fn event(time_ns: u64, offset_bytes: u64, op: TraceOp) -> TraceEvent {
        let origin = Origin::new(Kind::Journal, true);
        TraceEvent { time_ns, op, offset_bytes, len_bytes: 4096, origin, fua: false }
    }

    #[test]
    fn bars_are_to_scale_and_escaped() {
        let svg = bars("a<b", &[("one".into(), 10.0), ("two & three".into(), 5.0)]);
        assert!(svg.contains("width=\"390.0\"") && svg.contains("width=\"195.0\""), "{svg}");
        assert!(svg.contains("a&lt;b") && svg.contains("two &amp; three"), "{svg}");
        assert!(bars("none", &[("zero".into(), 0.0)]).contains("width=\"0.0\""));
    }

    #[test]
    fn points_are_thinned_and_stay_inside() {
        let events: Vec<_> =
            (0..10_000).map(|n| event(n * 1000, n * 4096, TraceOp::Write)).collect();
        let svg = scatter("t", &events, 10_000 * 4096);
        let points = svg.matches("h0").count();
        assert!((3000..=POINTS_MAX).contains(&points), "{points}");
        assert!(svg.contains("class=\"journal\"") && !svg.contains("class=\"data\""));
        // An address behind the end, which no device has, is drawn at the top.
        let svg = scatter("t", &[event(5, u64::MAX, TraceOp::Read)], 4096);
        assert!(svg.contains("class=\"read\" d=\"M56.0 12.0h0\""), "{svg}");
        let empty = scatter("t", &[event(5, 0, TraceOp::Flush)], 4096);
        assert_eq!(empty.matches("h0").count(), 0);
    }
}
