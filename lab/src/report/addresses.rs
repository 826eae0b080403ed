//! Addresses of a block trace against time, or against the number of the write, as data.
//!
//! ```text
//!   MiB |      . .:'   panel 2     a panel for each band of addresses that was touched, the top
//!  1025 |..:''                     one the highest; those between are left out
//!   145 |. . :.   .    panel 1     one series a kind of request, the same colour in each panel
//!       +---------- s              one axis of time for all, zoomed together
//! ```
//!
//! Promises: a plot has about [`POINTS_MAX`] points at most, picked by a hash of their number so
//! that no period of the workload is lost. Tested here.

use serde_json::{Value, json};
use syncline_device::{Kind, TraceEvent, TraceOp};

/// Points of one plot.
pub(crate) const POINTS_MAX: usize = 4000;
/// Bands of addresses, and the gap that may separate two, in bytes.
const BANDS_MAX: usize = 4;
const GAP_BYTES: u64 = 4 << 20;
const MIB: f64 = (1 << 20) as f64;
/// Steps of an axis that it is divided into, about.
const STEPS: f64 = 4.0;

/// Classes of points in the order in which they are drawn: name, colour, shape. No colour is that
/// of a mode or of a paper.
const CLASSES: [(&str, &str, &str); 4] = [
    ("reads", "#7f7f7f", "circle"),
    ("writes: data", "#56b4e9", "rect"),
    ("writes: metadata", "#e69f00", "diamond"),
    ("writes: journal", "#8c6d31", "triangle"),
];

/// Horizontal axis of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Along {
    /// Seconds since the first event.
    Time,
    /// The same, for offsets in files that lie above one another.
    FilesInTime,
    /// Number of the event.
    Number,
}

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

/// An axis in MiB around a band: its ends, its step, digits behind the point of its labels.
fn axis((start, end): (u64, u64)) -> (f64, f64, f64, usize) {
    let (start, end) = (start as f64 / MIB, end as f64 / MIB);
    let least = ((end - start) / STEPS).max(4096.0 / MIB);
    let power = 10f64.powi(least.log10().floor() as i32);
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    let (from, to) = ((start / step).floor() * step, (end / step).ceil() * step);
    let to = if to > from { to } else { from + step };
    let digits = (-step.log10().floor()).max(0.0) as usize;
    (from, to, step, digits)
}

/// Describes the plot with about `most` points.
pub(crate) fn document(title: &str, events: &[TraceEvent], along: Along, most: usize) -> Value {
    let start_ns = events.first().map_or(0, |event| event.time_ns);
    let span_ns = events.last().map_or(0, |event| event.time_ns - start_ns).max(1);
    let (name, unit, end) = match along {
        Along::Time | Along::FilesInTime => ("time", "s", span_ns as f64 / 1e9),
        Along::Number => ("number of the write", "", events.len() as f64),
    };
    let bands = bands(events);
    let mut panels: Vec<[Vec<Value>; CLASSES.len()]> =
        bands.iter().map(|_| std::array::from_fn(|_| Vec::new())).collect();
    for (n, event) in events.iter().enumerate() {
        let Some(class) = class(event) else { continue };
        // Fibonacci hashing spreads the numbers evenly over 32 bits.
        let hash = u64::from((n as u32).wrapping_mul(0x9E37_79B9));
        if hash * events.len() as u64 >= (most as u64) << 32 {
            continue;
        }
        let x = match along {
            Along::Time | Along::FilesInTime => ((event.time_ns - start_ns) / 1000) as f64 / 1e6,
            Along::Number => n as f64,
        };
        let band = bands.partition_point(|(start, _)| *start <= event.offset_bytes);
        if let Some(panel) = panels.get_mut(band.saturating_sub(1)) {
            panel[class].push(json!([x, event.offset_bytes, event.len_bytes]));
        }
    }
    let used: Vec<usize> =
        (0..CLASSES.len()).filter(|at| panels.iter().any(|panel| !panel[*at].is_empty())).collect();
    let series = |at: &usize| {
        let (name, colour, symbol) = CLASSES[*at];
        json!({"name": name, "colour": colour, "symbol": symbol, "pattern": 0})
    };
    // The highest addresses on top.
    let panels = bands.iter().zip(&panels).rev().map(|(band, points)| {
        let (from, to, step, digits) = axis(*band);
        let points: Vec<&Vec<Value>> = used.iter().map(|at| &points[*at]).collect();
        json!({
            "from": from * MIB, "to": to * MIB, "step": step * MIB, "digits": digits,
            "points": points,
        })
    });
    json!({
        "kind": "points",
        "title": title,
        "x_name": name,
        "x_unit": unit,
        "x_end": end,
        "y_name": if along == Along::FilesInTime { "offset" } else { "address" },
        "series": used.iter().map(series).collect::<Vec<_>>(),
        "panels": panels.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use syncline_device::Origin;

    fn event(time_ns: u64, offset_bytes: u64, op: TraceOp) -> TraceEvent {
        let origin = Origin::new(Kind::Journal, true);
        TraceEvent { time_ns, op, offset_bytes, len_bytes: 4096, origin, fua: false }
    }

    fn count(document: &Value) -> usize {
        let panels = document["panels"].as_array().unwrap().iter();
        let points = panels.flat_map(|panel| panel["points"].as_array().unwrap());
        points.map(|points| points.as_array().unwrap().len()).sum()
    }

    #[test]
    fn points_are_thinned_and_named() {
        let events: Vec<_> =
            (0..10_000).map(|n| event(n * 1000, n * 4096, TraceOp::Write)).collect();
        let found = document("t", &events, Along::Time, POINTS_MAX);
        assert!((POINTS_MAX - 50..=POINTS_MAX + 50).contains(&count(&found)), "{}", count(&found));
        assert_eq!(found["series"][0]["name"], "writes: journal");
        assert_eq!(found["series"].as_array().unwrap().len(), 1);
        let lone = document("t", &[event(5, u64::MAX, TraceOp::Read)], Along::Time, 10);
        assert_eq!((count(&lone), &lone["series"][0]["name"]), (1, &json!("reads")));
        assert_eq!(count(&document("t", &[event(5, 0, TraceOp::Flush)], Along::Time, 10)), 0);
    }

    #[test]
    fn a_sequence_has_equal_steps_whatever_the_time() {
        let events: Vec<_> =
            [0, 5, 5_000_000].map(|time_ns| event(time_ns, 4096, TraceOp::Write)).to_vec();
        let found = document("t", &events, Along::Number, 10);
        let points = found["panels"][0]["points"][0].as_array().unwrap().clone();
        let along: Vec<&Value> = points.iter().map(|point| &point[0]).collect();
        assert_eq!(along, [&json!(0.0), &json!(1.0), &json!(2.0)]);
        assert_eq!(found["x_end"], json!(3.0));
    }

    #[test]
    fn a_panel_for_each_band_the_highest_on_top() {
        let mib = 1 << 20;
        let at = [0, mib, 900 * mib, 901 * mib, 2000 * mib];
        let events: Vec<_> = at.iter().map(|offset| event(0, *offset, TraceOp::Write)).collect();
        assert_eq!(bands(&events), [(0, mib), (900 * mib, 901 * mib), (2000 * mib, 2000 * mib)]);
        let found = document("t", &events, Along::Time, 100);
        let panels = found["panels"].as_array().unwrap();
        let sizes: Vec<usize> =
            panels.iter().map(|p| p["points"][0].as_array().unwrap().len()).collect();
        assert_eq!(sizes, [1, 2, 2]);
        assert!(panels[0]["from"].as_f64() > panels[1]["from"].as_f64());
    }

    #[test]
    fn axes_have_round_ends_that_hold_the_band() {
        for (band, from, to, digits) in [
            ((0, 1 << 20), 0.0, 1.0, 1),
            ((900 << 20, 1000 << 20), 900.0, 1000.0, 0),
            ((137_100_000, 137_300_000), 130.7, 131.0, 1),
        ] {
            let (at_least, at_most, step, shown) = axis(band);
            assert!((at_least - from).abs() < 0.06 && (at_most - to).abs() < 0.06, "{band:?}");
            assert!(at_least * MIB <= band.0 as f64 && at_most * MIB >= band.1 as f64, "{band:?}");
            assert!(((at_most - at_least) / step) < 7.0 && shown >= digits, "{band:?} {shown}");
        }
        let (from, to, ..) = axis((5 << 20, 5 << 20));
        assert!(to > from);
    }
}
