//! Two documents of the same command beside each other: which figures differ, and by how much.
//!
//! ```text
//!   {"schema", "runs": [{"workload", "config": {..}, "metrics": {"flushes": 3, ..}}]}
//!        subject: words, truth values and `config` of an entry       figure: path of a number
//! ```
//!
//! Any document with a `schema` is taken: entries of a list are known by their words and settings,
//! so runs in another order, or missing ones, are found. Settings can be left out of the match. The
//! largest changes come first. Nothing is judged: a figure that is larger may be better or worse.
//! Tested here.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::report::charts::Chart;
use crate::report::page::{About, Page};
use crate::report::table::{aligned, figure};

/// Numbers that tell entries of a list apart as words do.
const SETTINGS: [&str; 4] = ["pages", "streams", "flush_us", "to_us"];
/// Bars of the chart, and rows of the page's table.
const BARS_MAX: usize = 40;
const ROWS_MAX: usize = 200;
/// Units by the last words of a figure's name; the first that fits counts.
const UNITS: [(&str, &str); 11] = [
    ("mb_per_s", "MB/s"),
    ("kb_per_s", "KB/s"),
    ("_per_s", "/s"),
    ("_bytes", "B"),
    ("_kib", "KiB"),
    ("_mib", "MiB"),
    ("_us", "us"),
    ("_ms", "ms"),
    ("_s", "s"),
    ("_percent", "%"),
    ("_sectors", "sectors"),
];

/// A figure of both documents.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Subject of the measurement: words and settings of the entry.
    pub subject: String,
    /// Name of the figure.
    pub figure: String,
    /// In the first document; none if it lacks it.
    pub a: Option<f64>,
    /// In the second.
    pub b: Option<f64>,
}

impl Pair {
    /// What stands before the unit in the figure's name, the unit, and what stands behind it. The
    /// name is that without the list in which its entry is; `metrics` are of the whole run.
    fn parts(&self) -> (&str, &'static str, &str) {
        let name = self.figure.strip_prefix("runs.").unwrap_or(&self.figure);
        let name = name.strip_prefix("metrics.").unwrap_or(name);
        // Quantiles stand behind the unit.
        let before = name.trim_end_matches("_max").trim_end_matches("_mean");
        let quantile = before.rsplit_once("_p").filter(|(_, q)| q.parse::<f64>().is_ok());
        let before = quantile.map_or(before, |(before, _)| before);
        let found = UNITS.iter().find_map(|(end, unit)| Some((before.strip_suffix(end)?, *unit)));
        found.map_or((name, "", ""), |(stem, unit)| (stem, unit, &name[before.len()..]))
    }

    /// The figure's name in words, with its unit.
    fn name(&self) -> String {
        let (stem, unit, behind) = self.parts();
        let name = format!("{stem}{behind}").replace(['.', '_'], " ");
        if unit.is_empty() { name } else { format!("{}, {unit}", name.trim()) }
    }

    /// Unit of the figure, by its name; empty for a count or a ratio.
    pub fn unit(&self) -> &'static str {
        self.parts().1
    }

    /// Per cent from the first to the second, where both are there and the first is not zero.
    pub fn percent(&self) -> Option<f64> {
        let (a, b) = (self.a?, self.b?);
        (a != 0.0).then(|| (b / a - 1.0) * 100.0)
    }
}

/// Two documents, figure by figure.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentComparison {
    names: [String; 2],
    /// Figures that differ, the largest change first, then those that one document lacks.
    pub differences: Vec<Pair>,
    /// Figures that are equal.
    pub equal: usize,
}

/// Compares two documents; `names` are for headings. Runs are matched without the settings
/// `ignored`.
///
/// # Errors
/// Documents of several commands, without a schema, or without a run in both.
pub fn compare_documents(
    names: [&str; 2],
    a: &Value,
    b: &Value,
    ignored: &[&str],
) -> Result<DocumentComparison, String> {
    let schema = |value: &Value| value.get("schema").and_then(Value::as_str).map(str::to_owned);
    match (schema(a), schema(b)) {
        (Some(one), Some(other)) if one == other => {}
        (Some(one), Some(other)) => {
            return Err(format!(
                "{} is {one}, {} is {other}; compare two results of one command",
                names[0], names[1]
            ));
        }
        (one, _) => {
            let name = if one.is_none() { names[0] } else { names[1] };
            return Err(format!("{name} names no schema; give a file that --json wrote"));
        }
    }
    let found = matched(names, a, b, ignored);
    if found.is_matched() || found.differences.is_empty() {
        return Ok(found);
    }
    let mut settings = BTreeSet::new();
    [a, b].into_iter().for_each(|document| words_of(document, &mut settings));
    let offer = settings
        .into_iter()
        .find(|setting| matched(names, a, b, &[ignored, &[*setting]].concat()).is_matched());
    Err(match offer {
        Some(setting) => format!(
            "no run in both: they differ in `{setting}`; match them without it, --ignore {setting}"
        ),
        None => "no run in both; compare two results of the same workloads".to_owned(),
    })
}

/// Names of all words and settings of the entries.
fn words_of<'v>(value: &'v Value, found: &mut BTreeSet<&'v str>) {
    match value {
        Value::Array(list) => list.iter().for_each(|inner| words_of(inner, found)),
        Value::Object(object) => {
            for (key, inner) in object {
                if inner.is_string() && key != "schema" {
                    found.insert(key);
                }
                words_of(inner, found);
            }
        }
        _ => {}
    }
}

fn matched(names: [&str; 2], a: &Value, b: &Value, ignored: &[&str]) -> DocumentComparison {
    let (mut order, mut found) = (Vec::new(), BTreeMap::new());
    for (at, document) in [a, b].into_iter().enumerate() {
        let mut gathered = Vec::new();
        gather(document, "", "", ignored, &mut gathered);
        for (key, value) in gathered {
            let both: &mut [Option<f64>; 2] = found.entry(key.clone()).or_insert_with(|| {
                order.push(key);
                [None, None]
            });
            both[at] = Some(value);
        }
    }
    let (mut differences, mut equal) = (Vec::new(), 0);
    for (subject, figure) in order {
        let Some([a, b]) = found.remove(&(subject.clone(), figure.clone())) else { continue };
        if a == b {
            equal += 1;
        } else {
            differences.push(Pair { subject, figure, a, b });
        }
    }
    // Equal changes stay in the order of the first document.
    let size = |pair: &Pair| pair.percent().map(f64::abs);
    differences.sort_by(|one: &Pair, other: &Pair| {
        size(other).partial_cmp(&size(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    DocumentComparison { names: names.map(str::to_owned), differences, equal }
}

/// Words and settings of an entry.
fn subject(entry: &Map<String, Value>, ignored: &[&str]) -> String {
    let counts = |key: &str| !ignored.contains(&key);
    let mut words = Vec::new();
    for (key, value) in entry.iter().filter(|(key, _)| counts(key)) {
        match value {
            Value::String(text) => words.push(text.clone()),
            Value::Bool(set) => words.extend(set.then(|| key.clone())),
            Value::Number(n) if SETTINGS.contains(&key.as_str()) => {
                words.push(format!("{key}={n}"))
            }
            Value::Object(config) if key == "config" => {
                let config = config.iter().filter(|(key, _)| counts(key));
                words.extend(config.filter_map(|(key, value)| match value {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(n) if key != "seed" => Some(format!("{key}={n}")),
                    Value::Bool(true) => Some(key.clone()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    words.join(" ")
}

/// Every number below `value`: its subject and path.
fn gather(
    value: &Value,
    about: &str,
    path: &str,
    ignored: &[&str],
    found: &mut Vec<((String, String), f64)>,
) {
    let joined = |a: &str, b: &str, by: &str| match (a, b) {
        ("", one) | (one, "") => one.to_owned(),
        _ => format!("{a}{by}{b}"),
    };
    match value {
        Value::Number(n) => {
            let n = n.as_f64().unwrap_or(f64::NAN);
            found.push(((about.to_owned(), path.to_owned()), n));
        }
        Value::Object(object) => {
            for (key, inner) in object.iter().filter(|(key, _)| *key != "config") {
                gather(inner, about, &joined(path, key, "."), ignored, found);
            }
        }
        Value::Array(list) => {
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            for (at, inner) in list.iter().enumerate() {
                let Value::Object(entry) = inner else {
                    gather(inner, about, &joined(path, &at.to_string(), "."), ignored, found);
                    continue;
                };
                let mut name = subject(entry, ignored);
                let times = seen.entry(name.clone()).or_default();
                *times += 1;
                if *times > 1 || name.is_empty() {
                    name = joined(&name, &format!("#{times}"), " ");
                }
                gather(inner, &joined(about, &name, ", "), path, ignored, found);
            }
        }
        _ => {}
    }
}

/// A change in per cent, with a digit that counts.
fn change(percent: f64) -> String {
    let digits = if percent.abs() < 0.05 { 3 } else { 1 };
    format!("{percent:+.digits$} %")
}

impl DocumentComparison {
    /// True if a figure is in both documents.
    fn is_matched(&self) -> bool {
        self.equal > 0 || self.differences.iter().any(|pair| pair.a.is_some() && pair.b.is_some())
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let [a, b] = &self.names;
        let mut rows =
            vec![["what", "figure", a.as_str(), b, "change"].map(str::to_owned).to_vec()];
        let shown = |value: Option<f64>| value.map_or("-".to_owned(), figure);
        for pair in &self.differences {
            rows.push(vec![
                pair.subject.clone(),
                pair.name(),
                shown(pair.a),
                shown(pair.b),
                pair.percent().map_or("-".to_owned(), change),
            ]);
        }
        rows
    }

    fn equal_text(&self) -> String {
        format!("{} figures differ, {} are equal", self.differences.len(), self.equal)
    }

    /// The figures that differ.
    pub fn text(&self) -> String {
        match self.differences.len() {
            0 => format!("{}\n", self.equal_text()),
            _ => format!("{}\n{}\n", aligned(&self.rows(), 2), self.equal_text()),
        }
    }

    /// A page with a chart of the largest changes, and the table.
    pub fn html(&self, about: &About) -> String {
        let mut page = Page::new("syncline-lab compare");
        page.paragraph(&format!("{} and {}: {}", self.names[0], self.names[1], self.equal_text()));
        let changed = self.differences.iter().filter_map(|pair| Some((pair, pair.percent()?)));
        let changed: Vec<(String, f64)> = changed
            .take(BARS_MAX)
            .map(|(pair, percent)| (format!("{}: {}", pair.name(), pair.subject), percent))
            .collect();
        if !changed.is_empty() {
            let title = format!("Change from {} to {}, the largest", self.names[0], self.names[1]);
            page.bars(&Chart::rows(&title, "%", "change", &changed));
        }
        let rows = self.rows();
        if let Some((header, lines)) = rows.split_first().filter(|(_, lines)| !lines.is_empty()) {
            page.heading("Figures that differ");
            if lines.len() > ROWS_MAX {
                page.paragraph(&format!(
                    "The first {ROWS_MAX} of {}; the text output has all.",
                    lines.len()
                ));
            }
            page.table(header, &lines[..lines.len().min(ROWS_MAX)], 2);
        }
        page.finish(about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(workload: &str, sync: &str, flushes: u64, rate: f64) -> Value {
        json!({"workload": workload, "config": {"sync": sync, "seed": 1},
            "metrics": {"flushes": flushes, "rate": rate}})
    }

    fn document(runs: &[Value]) -> Value {
        json!({"schema": "syncline.bench/1", "runs": runs})
    }

    #[test]
    fn runs_are_found_by_what_they_are_whatever_their_order() {
        let a = document(&[run("x", "eager", 4, 2.0), run("x", "ordered", 6, 1.0)]);
        let b = document(&[run("x", "ordered", 6, 1.5), run("y", "eager", 1, 1.0)]);
        let found = compare_documents(["a", "b"], &a, &b, &[]).unwrap();
        assert_eq!(found.equal, 1, "{found:?}");
        let changed: Vec<_> = found.differences.iter().filter_map(Pair::percent).collect();
        assert_eq!(changed, [50.0]);
        let one_sided = found.differences.iter().filter(|pair| pair.percent().is_none()).count();
        assert_eq!(one_sided, 4, "two figures of each run that the other document lacks");
        let text = found.text();
        assert!(
            text.contains("+50.0 %") && text.contains("5 figures differ, 1 are equal"),
            "{text}"
        );
        let html = found.html(&About::default());
        assert!(html.contains("<td class=\"w\">flushes</td>") && html.contains("+50.0 %"));
    }

    #[test]
    fn equal_entries_are_told_apart_and_settings_count() {
        let list = json!({"schema": "s", "cells": [
            {"streams": 1, "rate": 1.0}, {"streams": 2, "rate": 2.0}, {"n": 1.0}, {"n": 2.0}]});
        let found = compare_documents(["a", "a"], &list, &list, &[]).unwrap();
        assert_eq!((found.differences.len(), found.equal), (0, 6));
        assert_eq!(found.text(), "0 figures differ, 6 are equal\n");
    }

    #[test]
    fn runs_of_two_devices_are_matched_without_the_device() {
        let on = |device: &str, flushes: u64| {
            let mut run = run("x", "eager", flushes, 2.0);
            run["device"] = device.into();
            document(&[run])
        };
        let (a, b) = (on("card", 4), on("disk", 5));
        let err = compare_documents(["a", "b"], &a, &b, &[]).unwrap_err();
        assert!(err.starts_with("no run in both") && err.ends_with("--ignore device"), "{err}");
        let found = compare_documents(["a", "b"], &a, &b, &["device"]).unwrap();
        assert_eq!((found.differences.len(), found.equal), (1, 1), "{found:?}");
        let other = document(&[run("y", "ordered", 1, 1.0)]);
        let err = compare_documents(["a", "b"], &a, &other, &[]).unwrap_err();
        assert!(err.contains("of the same workloads"), "{err}");
    }

    #[test]
    fn the_largest_change_comes_first_and_figures_have_units() {
        let list = |x: f64, y: f64| {
            let metrics = json!({"latency_us_p50": x, "written_bytes": y, "x_per_s": 1, "n": y});
            json!({"schema": "s", "runs": [{"workload": "w", "metrics": metrics}]})
        };
        let found =
            compare_documents(["a", "b"], &list(10.0, 10.0), &list(11.0, 2.0), &[]).unwrap();
        let rows: Vec<_> =
            found.differences.iter().map(|p| (p.figure.as_str(), p.unit())).collect();
        let of = |name| format!("runs.metrics.{name}");
        let expected = [(of("n"), ""), (of("written_bytes"), "B"), (of("latency_us_p50"), "us")];
        assert_eq!(rows, expected.each_ref().map(|(name, unit)| (name.as_str(), *unit)));
        let names: Vec<_> = found.differences.iter().map(Pair::name).collect();
        assert_eq!(names, ["n", "written, B", "latency p50, us"]);
    }

    #[test]
    fn a_page_of_many_figures_is_bounded() {
        let list = |factor: u64| {
            let run = |n: u64| run(&format!("w{n}"), "eager", (n + 1) * factor, 1.0);
            document(&(0..300).map(run).collect::<Vec<_>>())
        };
        let found = compare_documents(["a", "b"], &list(1), &list(2), &[]).unwrap();
        let html = found.html(&About::default());
        assert!(html.contains("The first 200 of 300; the text output has all."));
        assert_eq!(html.matches("<td class=\"w\">flushes</td>").count(), ROWS_MAX);
        assert_eq!(html.matches("\"flushes: ").count(), BARS_MAX);
        assert_eq!(found.text().matches(" flushes ").count(), 300);
        let few = compare_documents(
            ["a", "b"],
            &document(&[run("x", "eager", 1, 1.0)]),
            &document(&[run("x", "eager", 2, 1.0)]),
            &[],
        )
        .unwrap();
        assert!(!few.html(&About::default()).contains("The first 200"));
    }

    #[test]
    fn other_documents_are_refused() {
        let a = document(&[]);
        let cache = json!({"schema": "syncline.cache/1"});
        let err = compare_documents(["a", "b"], &a, &cache, &[]).unwrap_err();
        assert!(err.contains("a is syncline.bench/1, b is syncline.cache/1"), "{err}");
        let err = compare_documents(["a", "b"], &a, &json!([1]), &[]).unwrap_err();
        assert!(err.starts_with("b names no schema"), "{err}");
    }
}
