//! Charts of clustered bars as one HTML file: the shape of figures 15 to 19 of the informed-storage
//! paper (004).
//!
//! ```text
//!   95 |      ##
//!      |   ## ##      ## ##       a cluster for each group, a bar for each series, one colour each
//!      |#/ ## ##   #/ ## ##
//!    0 +-- 4 MiB ---- 8 MiB --
//! ```
//!
//! No script, nothing loaded from anywhere; a bar names its series and value when it is pointed at.
//! Tested here.

use std::fmt::Write;

use crate::report::page;
use crate::svg::escape;
use crate::table::figure;

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 24.0;
/// Share of a cluster's room that its bars take.
const BARS: f64 = 0.84;
const LINES: u32 = 4;

/// One chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The shown metric, with its unit.
    pub title: String,
    /// Names of the clusters.
    pub groups: Vec<String>,
    /// Names of the bars in each.
    pub series: Vec<String>,
    /// A value for each group and series; missing ones are not drawn.
    pub values: Vec<Vec<f64>>,
}

/// A page with `text` as it is and the charts below.
pub fn chart_report(title: &str, text: &str, charts: &[Chart]) -> String {
    let mut body = format!("<pre class=\"scroll\">{}</pre>\n", escape(text));
    for chart in charts {
        let _ = write!(body, "<h3>{}</h3>\n{}{}", escape(&chart.title), legend(chart), draw(chart));
    }
    page(&escape(title), &body)
}

/// A colour for each series, round the wheel, light and dark in turn.
fn colour(number: usize, of: usize) -> String {
    let hue = 360 * number / of.max(1);
    let light = if number.is_multiple_of(2) { 38 } else { 58 };
    format!("hsl({hue} 55% {light}%)")
}

fn legend(chart: &Chart) -> String {
    let mut html = "<p>".to_owned();
    for (number, name) in chart.series.iter().enumerate() {
        let colour = colour(number, chart.series.len());
        let _ = write!(html, "<span style=\"color:{colour}\">&#9632;</span> {} ", escape(name));
    }
    html + "</p>\n"
}

fn draw(chart: &Chart) -> String {
    let values = chart.values.iter().flatten().copied().filter(|value| value.is_finite());
    let most = values.fold(0.0, f64::max);
    let scale = if most > 0.0 { (HEIGHT - TOP - BOTTOM) / most } else { 0.0 };
    let (base, title) = (HEIGHT - BOTTOM, escape(&chart.title));
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" role=\"img\" \
         aria-label=\"{title}\">\n"
    );
    for line in 0..=LINES {
        let value = most * f64::from(line) / f64::from(LINES);
        let y = base - value * scale;
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            figure(value)
        );
    }
    let room = (WIDTH - LEFT) / chart.groups.len().max(1) as f64;
    let bar = room * BARS / chart.series.len().max(1) as f64;
    for (group, (name, values)) in chart.groups.iter().zip(&chart.values).enumerate() {
        let start = LEFT + room * (group as f64 + (1.0 - BARS) / 2.0);
        for (number, (series, value)) in chart.series.iter().zip(values).enumerate() {
            let height = if value.is_finite() { value.max(0.0) * scale } else { 0.0 };
            let _ = writeln!(
                svg,
                "<rect style=\"fill:{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{height:.1}\"><title>{}, {}: {}</title></rect>",
                colour(number, chart.series.len()),
                start + bar * number as f64,
                base - height,
                (bar - 1.0).max(1.0),
                escape(series),
                escape(name),
                figure(*value)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            LEFT + room * (group as f64 + 0.5),
            base + 18.0,
            escape(name)
        );
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_to_scale_and_the_page_stands_alone() {
        let chart = Chart {
            title: "Elapsed <s>".into(),
            groups: vec!["4 MiB".into(), "64 MiB".into()],
            series: vec!["lru".into(), "fab".into()],
            values: vec![vec![20.0, 10.0], vec![5.0, f64::NAN]],
        };
        let html = chart_report("a & b", "policy <x>", &[chart, Chart::default()]);
        for height in ["204.0", "102.0", "51.0", "0.0"] {
            assert!(html.contains(&format!("height=\"{height}\"><title>")), "{height}: {html}");
        }
        for part in ["a &amp; b", "policy &lt;x&gt;", "Elapsed &lt;s&gt;", "fab, 4 MiB: 10.0"] {
            assert!(html.contains(part), "{part} is missing: {html}");
        }
        assert_eq!(html.matches("<svg").count(), 2);
        for outside in ["http", "<script", "src=", "url(", "<x>"] {
            assert!(!html.contains(outside), "{outside}");
        }
    }
}
