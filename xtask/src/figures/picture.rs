//! Tables as bars: one SVG file, readable on light and dark pages.

use std::fmt::Write;

use super::render::evaluate;
use super::spec::{Format, Table};
use super::store::{Record, Results};

const WIDTH: f64 = 760.0;
const LABELS: f64 = 190.0;
const VALUES: f64 = 160.0;
const BAR: f64 = 16.0;
const ROW: f64 = 26.0;
const TOP: f64 = 30.0;
const AXIS: f64 = 40.0;
const COLOUR: &str = "#1f7ae0";
const RULE: &str = "#8a94a650";

/// A bar a row: the value of the second column in values of the first. All bars stand on one axis.
pub fn svg(table: &Table, runs: &[Results]) -> Result<String, String> {
    let [base, changed] = table.columns.as_slice() else {
        return Err(format!("picture {}: two columns make a ratio", table.name));
    };
    let records: Vec<&Record> = runs.iter().flat_map(|run| &run.records).collect();
    let mut bars = Vec::new();
    for row in super::render::rows(table, &records) {
        let value = |column: &super::spec::Column| {
            let parts = [row.value.parts(), column.value.parts(), table.value.parts()];
            let part = parts.into_iter().flatten().next().ok_or("a bar without a value")?;
            let record = super::render::find(&records, &[&table.pick, &row.pick, &column.pick])?;
            evaluate(record, &table.scope, part)
        };
        bars.push((row.label.clone(), value(base)?, value(changed)?));
    }
    let most = bars.iter().map(|(_, base, changed)| changed / base).fold(1.0, f64::max).ceil();
    let x = |ratio: f64| LABELS + (WIDTH - LABELS - VALUES) * ratio / most;
    let bottom = TOP + ROW * bars.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#6b7280\">\n<title>{}</title>\n",
        bottom + AXIS,
        escaped(&table.head)
    );
    text(&mut out, 0.0, 14.0, &table.head);
    for tick in 0..=most as u32 {
        let at = x(tick.into());
        rect(&mut out, at, TOP - 4.0, 1.0, bottom - TOP + 8.0, RULE);
        text(&mut out, at - 4.0, bottom + 18.0, &tick.to_string());
    }
    let what = format!("times the rate of {} (1: as fast)", base.head);
    text(&mut out, LABELS, bottom + 35.0, &what);
    for (number, (label, base, changed)) in bars.iter().enumerate() {
        let y = TOP + ROW * number as f64;
        text(&mut out, 0.0, y + BAR - 1.0, label);
        rect(&mut out, LABELS, y, x(changed / base) - LABELS, BAR, COLOUR);
        let shown = |value: f64| super::render::number(value, Format::Plain);
        let text_of = format!("{:.2} ({} to {})", changed / base, shown(*base), shown(*changed));
        text(&mut out, x(changed / base) + 6.0, y + BAR - 3.0, &text_of);
    }
    out.push_str("</svg>\n");
    Ok(out)
}

fn rect(out: &mut String, x: f64, y: f64, width: f64, height: f64, colour: &str) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::spec::Spec;
    use serde_json::json;

    /// Twice as fast is drawn twice as long as equally fast, whatever the rates are.
    #[test]
    fn all_bars_stand_on_one_axis() {
        let mut spec = Spec::default();
        spec.add(
            "[[table]]\nname = \"t\"\nruns = [\"r\"]\nscope = \"whole\"\n\
             svg = \"t.svg\"\nvalue = \"rate\"\n\
             columns = [{ head = \"a\", pick = { sync = \"a\" } }, \
             { head = \"b\", pick = { sync = \"b\" } }]\n\
             rows = [{ label = \"slow\", pick = { workload = \"slow\" } }, \
             { label = \"fast\", pick = { workload = \"fast\" } }]\n",
        )
        .unwrap();
        let record = |workload: &str, sync: &str, rate: u64| {
            let value = json!({"workload": workload, "sync": sync, "whole.rate": rate});
            value.as_object().unwrap().clone()
        };
        let records = vec![
            record("slow", "a", 30),
            record("slow", "b", 60),
            record("fast", "a", 900),
            record("fast", "b", 900),
        ];
        let svg = svg(&spec.tables[0], &[Results { records, ..Results::default() }]).unwrap();
        let bars = svg.lines().filter(|line| line.contains(COLOUR));
        let widths: Vec<f64> = bars
            .map(|bar| bar.split("width=\"").nth(1).unwrap().split('"').next().unwrap())
            .map(|width| width.parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 2);
        assert!((widths[0] / widths[1] - 2.0).abs() < 0.01, "{widths:?}");
        assert!(svg.contains("times the rate of a") && svg.contains("2.00 (30"), "{svg}");
    }
}
