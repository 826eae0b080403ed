//! Tables as bars: one SVG file, readable on light and dark pages.

use std::fmt::Write;

use super::render::evaluate;
use super::spec::{Format, Pick, Table};
use super::store::{Record, Results};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 210.0;
const VALUES: f64 = 70.0;
const BAR: f64 = 16.0;
const GAP: f64 = 12.0;
const TOP: f64 = 46.0;
const COLOURS: [&str; 4] = ["#8a94a6", "#1f7ae0", "#d9822b", "#3a9d5d"];

/// Bars of each row, one a column; each row has a scale of its own, since units differ.
pub fn svg(table: &Table, runs: &[Results]) -> Result<String, String> {
    let records: Vec<&Record> = runs.iter().flat_map(|run| &run.records).collect();
    let rows = super::render::rows(table, &records);
    let group = BAR * table.columns.len() as f64 + GAP;
    let height = TOP + group * rows.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#6b7280\">\n<title>{}</title>\n",
        escaped(&table.head)
    );
    text(&mut out, 0.0, 14.0, &table.head);
    for (at, column) in table.columns.iter().enumerate() {
        let x = LABELS + 130.0 * at as f64;
        bar(&mut out, x, 24.0, 12.0, 12.0, at);
        text(&mut out, x + 18.0, 34.0, &column.head);
    }
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + group * number as f64;
        text(&mut out, 0.0, y + BAR, &row.label);
        let mut values = Vec::new();
        for column in &table.columns {
            let parts = [row.value.parts(), column.value.parts(), table.value.parts()];
            let part = parts.into_iter().flatten().next().ok_or("a bar without a value")?;
            let record = pick(&records, &[&table.pick, &row.pick, &column.pick])?;
            values.push(evaluate(record, &table.scope, part)?);
        }
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        for (at, value) in values.iter().enumerate() {
            let y = y + BAR * at as f64;
            let width = (WIDTH - LABELS - VALUES) * value / most;
            bar(&mut out, LABELS, y, width, BAR - 2.0, at);
            let shown = super::render::number(*value, Format::Plain);
            text(&mut out, LABELS + width + 6.0, y + BAR - 4.0, &shown);
        }
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn pick<'a>(records: &[&'a Record], picks: &[&Pick]) -> Result<&'a Record, String> {
    super::render::find(records, picks)
}

fn bar(out: &mut String, x: f64, y: f64, width: f64, height: f64, at: usize) {
    let colour = COLOURS[at % COLOURS.len()];
    // A String takes every write.
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{colour}\"/>"
    );
}

fn text(out: &mut String, x: f64, y: f64, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(text));
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
