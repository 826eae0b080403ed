//! Charts of bars as data; `page.js` draws them.
//!
//! ```text
//!   Columns                        Rows
//!   95 |      ##                   ordered delete |####  38.3
//!      |#/ ## ##   #/ ## ##        eager delete   |######## 117
//!    0 +-- 4 MiB ---- 8 MiB --     one series, its figures beside the bars
//!      a cluster for each group
//! ```
//!
//! The colours are those of Okabe and Ito, which people with any common colour blindness tell
//! apart; from the seventh series on they come again with a pattern. Tested here.

use serde_json::{Value, json};

/// Colours of series. Their yellow is left out: it cannot be seen on white.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];

/// Direction of bars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Upwards, clustered: for a few groups with short names.
    #[default]
    Columns,
    /// To the right, a line each: for long names.
    Rows,
}

/// One chart of bars.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The shown metric.
    pub title: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Direction of the bars.
    pub layout: Layout,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// Names of the bars in each.
    pub series: Vec<String>,
    /// A value for each group and series; values that are missing or not finite are not drawn.
    pub values: Vec<Vec<f64>>,
}

impl Chart {
    /// One series as rows: a name and a value each.
    pub fn rows(title: &str, unit: &str, series: &str, values: &[(String, f64)]) -> Chart {
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            layout: Layout::Rows,
            groups: values.iter().map(|(name, _)| name.clone()).collect(),
            series: vec![series.to_owned()],
            values: values.iter().map(|(_, value)| vec![*value]).collect(),
        }
    }

    pub(crate) fn document(&self) -> Value {
        let of = |at: usize| -> Vec<Option<f64>> {
            let value = |group: &Vec<f64>| group.get(at).copied().filter(|v| v.is_finite());
            self.values.iter().map(value).collect()
        };
        let series: Vec<Value> = (self.series.iter().enumerate())
            .map(|(at, name)| {
                json!({
                    "name": name,
                    "colour": COLOURS[at % COLOURS.len()],
                    "pattern": at >= COLOURS.len(),
                    "values": of(at),
                })
            })
            .collect();
        json!({
            "kind": "bars",
            "title": self.title,
            "unit": self.unit,
            "horizontal": self.layout == Layout::Rows,
            "groups": self.groups,
            "series": series,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_has_its_values_and_a_look_of_its_own() {
        let series: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
        let mut values = vec![vec![1.0; 9], vec![2.0; 3]];
        values[0][1] = f64::NAN;
        let groups = vec!["4 MiB".into(), "64 MiB".into()];
        let document = Chart { groups, series, values, ..Chart::default() }.document();
        assert_eq!(document["series"][1]["values"], json!([null, 2.0]));
        assert_eq!(document["series"][8]["values"], json!([1.0, null]));
        let looks: std::collections::BTreeSet<String> = (document["series"].as_array().unwrap())
            .iter()
            .map(|s| format!("{}{}", s["colour"], s["pattern"]))
            .collect();
        assert_eq!(looks.len(), 9);
    }

    /// Linear light of a colour.
    fn linear(colour: &str) -> [f64; 3] {
        [1, 3, 5].map(|at| {
            let part = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        })
    }

    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        const XYZ: [[f64; 3]; 3] =
            [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8727]];
        let root = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let [x, y, z] = apply(&XYZ, rgb).map(root);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    fn apply(matrix: &[[f64; 3]; 3], v: [f64; 3]) -> [f64; 3] {
        matrix.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum::<f64>().clamp(0.0, 1.0))
    }

    /// Machado, Oliveira and Fernandes 2009, full severity.
    #[test]
    fn colours_are_told_apart_without_red_or_green() {
        const IDENTITY: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        const PROTAN: [[f64; 3]; 3] = [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ];
        const DEUTAN: [[f64; 3]; 3] = [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ];
        for seen in [IDENTITY, PROTAN, DEUTAN] {
            let labs = COLOURS.map(|colour| lab(apply(&seen, linear(colour))));
            for (n, a) in labs.iter().enumerate() {
                for (m, b) in labs.iter().enumerate().skip(n + 1) {
                    let apart = a.iter().zip(b).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 10.0, "{} and {}: {apart:.1}", COLOURS[n], COLOURS[m]);
                }
            }
        }
    }
}
