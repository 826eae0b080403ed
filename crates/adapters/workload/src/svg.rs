//! Two plots as inline SVG: bars, and block addresses against time. Text in, text out.
//!
//! ```text
//!   bars                          scatter
//!   ordered delete |####  38.3    MiB |      . .:' journal, metadata, data: one colour each,
//!   eager delete   |######## 117  1025|..:''       reads grey
//!                                     |~~~~~~~~~~  where nothing was touched the axis is broken
//!                                  145|. . :.   .
//!                                     +---------- s
//! ```
//!
//! Promises: no script, no reference to anything outside; all text is escaped; a plot has about
//! [`POINTS_MAX`] points at most, picked by a hash of their number so that no period of the
//! workload is lost. Tested here and in `report.rs`.

use std::fmt::Write;

use syncline_device::{Kind, TraceEvent, TraceOp};

use crate::table::figure;

/// Points of one scatter plot.
const POINTS_MAX: usize = 4000;

const WIDTH: f64 = 720.0;
const ROW: f64 = 20.0;
const LABEL: f64 = 250.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 64.0;
const TOP: f64 = 12.0;
/// Bands of addresses of a scatter plot, and the gap that may separate two, in bytes.
const BANDS_MAX: usize = 4;
const GAP_BYTES: u64 = 4 << 20;

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

/// Bands of addresses, in bytes: what was touched, without the widest gaps between.
fn bands(events: &[TraceEvent]) -> Vec<(u64, u64)> {
    let touched = events.iter().filter(|event| class(event).is_some());
    let mut offsets: Vec<u64> = touched.map(|event| event.offset_bytes).collect();
    offsets.sort_unstable();
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else { return Vec::new() };
    let gaps = offsets.windows(2).map(|pair| (pair[1] - pair[0], pair[0], pair[1]));
    let mut gaps: Vec<_> = gaps.filter(|(gap, ..)| *gap > GAP_BYTES).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    gaps.truncate(BANDS_MAX - 1);
    let mut cuts: Vec<(u64, u64)> = gaps.iter().map(|(_, below, above)| (*below, *above)).collect();
    cuts.sort_unstable();
    let starts = std::iter::once(*first).chain(cuts.iter().map(|cut| cut.1));
    let ends = cuts.iter().map(|cut| cut.0).chain(std::iter::once(*last));
    starts.zip(ends).collect()
}

/// Where an address is drawn: its band, lowest first, and in it.
fn height(bands: &[(u64, u64)], offset: u64, bottom: f64) -> f64 {
    let band = bands.partition_point(|(start, _)| *start <= offset).saturating_sub(1);
    let (start, end) = bands.get(band).copied().unwrap_or((0, 1));
    let each = (bottom - TOP) / bands.len().max(1) as f64;
    let up = (offset - start) as f64 / (end - start).max(1) as f64;
    bottom - each * (band as f64 + 0.08 + 0.84 * up)
}

/// Reads and writes as points: seconds to the right, addresses upwards.
pub(crate) fn scatter(title: &str, events: &[TraceEvent]) -> String {
    let start_ns = events.first().map_or(0, |event| event.time_ns);
    let span_ns = events.last().map_or(1, |event| (event.time_ns - start_ns).max(1));
    let along = |_, event: &TraceEvent| (event.time_ns - start_ns) as f64 / span_ns as f64;
    points(title, events, &along, &format!("{} s", figure(span_ns as f64 / 1e9)))
}

/// Writes as points: their numbers to the right, addresses upwards.
pub(crate) fn sequence(title: &str, writes: &[TraceEvent]) -> String {
    let count = writes.len();
    let along = |n: usize, _: &TraceEvent| n as f64 / count.max(1) as f64;
    points(title, writes, &along, &format!("{count} writes"))
}

/// Events as points, each as far to the right, from 0 to 1, as `along` says.
fn points(
    title: &str,
    events: &[TraceEvent],
    along: &dyn Fn(usize, &TraceEvent) -> f64,
    end: &str,
) -> String {
    let (right, bottom) = (WIDTH - 12.0, HEIGHT - 28.0);
    let bands = bands(events);
    let mut paths = [const { String::new() }; CLASSES.len()];
    for (n, event) in events.iter().enumerate() {
        let Some(class) = class(event) else { continue };
        // Fibonacci hashing spreads the numbers evenly over 32 bits.
        let hash = u64::from((n as u32).wrapping_mul(0x9E37_79B9));
        if hash * events.len() as u64 >= (POINTS_MAX as u64) << 32 {
            continue;
        }
        let x = MARGIN + along(n, event) * (right - MARGIN);
        let y = height(&bands, event.offset_bytes, bottom);
        let _ = write!(paths[class], "M{x:.1} {y:.1}h0");
    }
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{}\">\n\
         <path class=\"axis\" d=\"M{MARGIN} {TOP}V{bottom}H{right}\"/>\n",
        escape(title)
    );
    for (band, (start, end)) in bands.iter().enumerate() {
        let x = MARGIN - 4.0;
        for offset in if start == end { vec![start] } else { vec![start, end] } {
            let y = height(&bands, *offset, bottom) + 4.0;
            let mib = *offset as f64 / f64::from(1 << 20);
            let _ =
                writeln!(svg, "<text x=\"{x}\" y=\"{y:.0}\" text-anchor=\"end\">{mib:.1}</text>");
        }
        if band > 0 {
            let each = (bottom - TOP) / bands.len() as f64;
            let y = bottom - each * band as f64;
            let _ = writeln!(svg, "<path class=\"axis cut\" d=\"M{MARGIN} {y:.0}H{right}\"/>");
        }
    }
    for (path, name) in paths.iter().zip(CLASSES).filter(|(path, _)| !path.is_empty()) {
        let _ = writeln!(svg, "<path class=\"{name}\" d=\"{path}\"/>");
    }
    let _ = writeln!(
        svg,
        "<text x=\"4\" y=\"10\">MiB</text>\
         <text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>",
        bottom + 18.0,
        escape(end),
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
        let svg = scatter("t", &events);
        let points = svg.matches("h0").count();
        assert!((POINTS_MAX - 50..=POINTS_MAX + 50).contains(&points), "{points}");
        assert!(svg.contains("class=\"journal\"") && !svg.contains("class=\"data\""));
        let lone = scatter("t", &[event(5, u64::MAX, TraceOp::Read)]);
        assert!(lone.contains("class=\"read\" d=\"M64.0 "), "{lone}");
        let empty = scatter("t", &[event(5, 0, TraceOp::Flush)]);
        assert_eq!(empty.matches("h0").count(), 0);
    }

    #[test]
    fn a_sequence_has_equal_steps_whatever_the_time() {
        let events: Vec<_> =
            [0, 5, 5_000_000].map(|time_ns| event(time_ns, time_ns, TraceOp::Write)).to_vec();
        let svg = sequence("t", &events);
        // A third of 644 each.
        for x in ["M64.0 ", "M278.7 ", "M493.3 "] {
            assert!(svg.contains(x), "{x}: {svg}");
        }
        assert!(svg.contains(">3 writes<"), "{svg}");
    }

    #[test]
    fn the_axis_is_broken_where_nothing_was_touched() {
        let mib = 1 << 20;
        let at = [0, mib, 900 * mib, 901 * mib, 2000 * mib];
        let events: Vec<_> = at.iter().map(|offset| event(0, *offset, TraceOp::Write)).collect();
        let found = bands(&events);
        assert_eq!(found, [(0, mib), (900 * mib, 901 * mib), (2000 * mib, 2000 * mib)]);
        // A third of the height each; what is higher up on the device is higher up here.
        let heights: Vec<f64> = at.iter().map(|offset| height(&found, *offset, 312.0)).collect();
        assert!(heights.windows(2).all(|pair| pair[0] > pair[1]), "{heights:?}");
        assert!(heights[1] > 212.0 && heights[2] < 212.0, "{heights:?}");
        assert_eq!(scatter("t", &events).matches("axis cut").count(), 2);
    }
}
