//! Charts of bars and lines as data; `page.js` draws them.
//!
//! ```text
//!   Columns                        Rows
//!   95 |      ##                   ordered delete |####  38.3
//!      |#/ ## ##   #/ ## ##        eager delete   |######## 117
//!    0 +-- 4 MiB ---- 8 MiB --     one series, its figures beside the bars
//!      a cluster for each group
//! ```
//!
//! A mode has one colour in all pages, of those of Okabe and Ito; other series have others. People
//! with any common colour blindness tell all of one chart apart. From the seventh series on they
//! come again with a pattern, from the 13th with another. Tested here.

use serde_json::{Value, json};

/// Modes, by the first word of a series' name, and their colours.
const MODES: [(&str, &str); 4] =
    [("ordered", "#0072b2"), ("eager", "#d55e00"), ("periodic", "#009e73"), ("packed", "#cc79a7")];

/// A published value and ours, by the first word of a series' name: the colours of a strip.
const SIDES: [(&str, &str); 2] = [("paper", MODES[0].1), ("here", MODES[1].1)];

/// Colours of other series.
const COLOURS: [&str; 6] = ["#56b4e9", "#e69f00", "#c51b7d", "#8c510a", "#cd5c5c", "#9e0142"];

/// Form of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Upwards, clustered: for a few groups with short names.
    #[default]
    Columns,
    /// To the right, a line each: for long names.
    Rows,
    /// A curve for each series over the groups, which are in order.
    Lines,
}

/// One chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The shown metric.
    pub title: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Bars or lines.
    pub layout: Layout,
    /// Quantity of the groups, with its unit; may be empty.
    pub group: String,
    /// Values on a logarithmic axis: for those of different magnitude.
    pub log: bool,
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
            ..Chart::default()
        }
    }

    /// Rows of a histogram over microseconds: the end of each bucket, a power of two, and its
    /// count. Those between that are empty are rows too.
    pub fn histogram(title: &str, counted: &str, buckets: &[(u64, u64)]) -> Chart {
        let end = buckets.last().map_or(0, |(to_us, _)| *to_us);
        let first = buckets.first().map(|(to_us, _)| *to_us);
        let ends = std::iter::successors(first, |to_us| to_us.checked_mul(2));
        let of = |end: u64| buckets.iter().find(|(to_us, _)| *to_us == end).map_or(0, |b| b.1);
        let row = |to_us: u64| (format!("at most {to_us} us"), of(to_us) as f64);
        let rows: Vec<_> = ends.take_while(|to_us| *to_us <= end).map(row).collect();
        Chart::rows(title, counted, counted, &rows)
    }

    /// Rows whose bars have the colour of their mode, which is the first word of their names, and
    /// `packed` where it is one of the words.
    pub fn modes(title: &str, unit: &str, values: &[(String, f64)]) -> Chart {
        let mode = |name: &str| {
            let mut words = name.split(' ');
            let first = words.next().unwrap_or_default();
            if words.any(|word| word == "packed") { "packed" } else { first }.to_owned()
        };
        let mut series: Vec<String> = Vec::new();
        for (name, _) in values {
            if !series.contains(&mode(name)) {
                series.push(mode(name));
            }
        }
        let row = |(name, value): &(String, f64)| {
            let of = |one: &String| if *one == mode(name) { *value } else { f64::NAN };
            series.iter().map(of).collect()
        };
        let values_of = values.iter().map(row).collect();
        Chart { series, values: values_of, ..Chart::rows(title, unit, "", values) }
    }

    /// True if no group has values of two series, so that each has room for one bar.
    fn is_exclusive(&self) -> bool {
        let drawn = |group: &Vec<f64>| group.iter().filter(|value| value.is_finite()).count();
        self.series.len() > 1 && self.values.iter().all(|group| drawn(group) <= 1)
    }

    pub(crate) fn document(&self) -> Value {
        let of = |at: usize| -> Vec<Option<f64>> {
            let value = |group: &Vec<f64>| group.get(at).copied().filter(|v| v.is_finite());
            self.values.iter().map(value).collect()
        };
        let series: Vec<Value> = (self.series.iter().enumerate())
            .map(|(at, name)| {
                let first = name.split([' ', ',']).next();
                let mode = MODES.iter().chain(&SIDES).find(|(mode, _)| Some(*mode) == first);
                let other = (COLOURS[at % COLOURS.len()], at / COLOURS.len());
                let (colour, pattern) = mode.map_or(other, |(_, colour)| (*colour, 0));
                json!({
                    "name": name,
                    "colour": colour,
                    "pattern": pattern,
                    "values": of(at),
                })
            })
            .collect();
        json!({
            "kind": "bars",
            "title": self.title,
            "unit": self.unit,
            "horizontal": self.layout == Layout::Rows,
            "lines": self.layout == Layout::Lines,
            "group": self.group,
            "log": self.log,
            "exclusive": self.is_exclusive(),
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
        let series: Vec<String> = (0..15).map(|n| format!("s{n}")).collect();
        let mut values = vec![vec![1.0; 15], vec![2.0; 3]];
        values[0][1] = f64::NAN;
        let groups = vec!["4 MiB".into(), "64 MiB".into()];
        let document = Chart { groups, series, values, ..Chart::default() }.document();
        assert_eq!(document["series"][1]["values"], json!([null, 2.0]));
        assert_eq!(document["series"][8]["values"], json!([1.0, null]));
        let looks: std::collections::BTreeSet<String> = (document["series"].as_array().unwrap())
            .iter()
            .map(|s| format!("{}{}", s["colour"], s["pattern"]))
            .collect();
        assert_eq!(looks.len(), 15);
    }

    #[test]
    fn empty_buckets_are_rows() {
        let chart = Chart::histogram("write", "calls", &[(16, 999), (128, 1)]);
        assert_eq!(chart.groups, [16, 32, 64, 128].map(|us| format!("at most {us} us")));
        assert_eq!(chart.values, [[999.0], [0.0], [0.0], [1.0]]);
        assert!(Chart::histogram("write", "calls", &[]).groups.is_empty());
    }

    #[test]
    fn a_mode_has_one_colour_in_all_charts() {
        let rows = |names: &[&str]| {
            let values: Vec<_> = names.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
            Chart::modes("t", "s", &values).document()
        };
        let colour = |document: &Value, at: usize| document["series"][at]["colour"].clone();
        let two = rows(&["ordered delete", "eager delete", "eager wal", "eager packed delete"]);
        assert_eq!(two["series"].as_array().unwrap().len(), 3, "a series for each mode");
        assert_eq!(two["series"][1]["values"], json!([null, 1.0, 1.0, null]));
        assert_eq!(two["exclusive"], true);
        assert_eq!(colour(&rows(&["eager"]), 0), colour(&two, 1));
        assert_ne!(colour(&two, 0), colour(&two, 2));
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
        let colours = [&MODES.map(|(_, colour)| colour)[..], &COLOURS].concat();
        for seen in [IDENTITY, PROTAN, DEUTAN] {
            let of = |colour: &&str| lab(apply(&seen, linear(colour)));
            let labs: Vec<[f64; 3]> = colours.iter().map(of).collect();
            for (n, a) in labs.iter().enumerate() {
                for (m, b) in labs.iter().enumerate().skip(n + 1) {
                    let apart = a.iter().zip(b).map(|(p, q)| (p - q).powi(2)).sum::<f64>().sqrt();
                    assert!(apart > 10.0, "{} and {}: {apart:.1}", colours[n], colours[m]);
                }
            }
        }
    }
}
