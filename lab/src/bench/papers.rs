//! The source papers' figures beside ours.
//!
//! `baselines/papers.toml` holds what a paper measured and where it says so: a device, a workload,
//! two settings, a metric. [`compare`] finds the figures for which a list of runs has both
//! settings. Promises: nothing of a paper is in code; ours are of the whole run, with background
//! write-back and the final unmount, as `metrics` of the document has them; a device with
//! overrides is another device and is not compared. Tested here.

use crate::report::{aligned, figure};
use serde::{Deserialize, Serialize};

use crate::bench::metrics::{Config, Metrics, Run};

const STORED: &str = include_str!("../../../baselines/papers.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    figure: Vec<Published>,
}

/// One figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    source: String,
    device: String,
    workload: String,
    /// Empty: no SQLite.
    #[serde(default)]
    journal_modes: Vec<String>,
    #[serde(default)]
    sqlite_fsync: bool,
    metric: Metric,
    base: Side,
    changed: Side,
    ratio: Option<f64>,
}

/// One of the two settings, and what the paper has for it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Side {
    sync: String,
    mtime_update_ms: Option<u32>,
    value: Option<f64>,
}

/// The metrics that papers publish.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Metric {
    TransactionsPerS,
    ThroughputMbPerS,
    WrittenBytes,
    JournalBytes,
    MeanWriteSectors,
    SequentialRatio,
}

impl Metric {
    fn name(self) -> &'static str {
        match self {
            Metric::TransactionsPerS => "ops/s",
            Metric::ThroughputMbPerS => "MB/s",
            Metric::WrittenBytes => "MB written",
            Metric::JournalBytes => "MB of journal",
            Metric::MeanWriteSectors => "sectors a request",
            Metric::SequentialRatio => "sequential %",
        }
    }

    /// From the unit of the document to the unit shown.
    fn shown(self, value: f64) -> f64 {
        match self {
            Metric::WrittenBytes | Metric::JournalBytes => value / 1e6,
            Metric::SequentialRatio => value * 100.0,
            _ => value,
        }
    }

    fn of(self, metrics: &Metrics) -> Option<f64> {
        let device = metrics.device.as_ref();
        match self {
            Metric::TransactionsPerS => Some(metrics.transactions_per_s),
            Metric::ThroughputMbPerS => metrics.throughput_mb_per_s,
            Metric::WrittenBytes => device.map(|d| d.written_bytes as f64),
            Metric::JournalBytes => device.map(|d| d.journal_bytes as f64),
            Metric::MeanWriteSectors => device.map(|d| d.mean_write_sectors),
            Metric::SequentialRatio => device.map(|d| d.sequential_ratio),
        }
    }
}

/// A figure without and with the change, in the unit that [`Comparison::metric`] says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Without the change; the papers give some ratios only.
    pub base: Option<f64>,
    /// With it.
    pub changed: Option<f64>,
    /// Changed to base; none where base is 0.
    pub ratio: Option<f64>,
}

impl Figures {
    fn new(base: Option<f64>, changed: Option<f64>) -> Figures {
        let ratio = base.zip(changed).filter(|(base, _)| *base != 0.0).map(|(b, c)| c / b);
        Figures { base, changed, ratio }
    }
}

/// One figure, the paper's and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Workload, with its journal mode.
    pub workload: String,
    /// The compared metric, with its unit.
    pub metric: String,
    /// The two settings, as tables show them.
    pub settings: [String; 2],
    /// Of the paper.
    pub paper: Figures,
    /// Of these runs.
    pub ours: Figures,
    /// Place in the paper.
    pub source: String,
}

/// Every stored figure for which `runs` has both settings.
pub fn compare(runs: &[Run]) -> Vec<Comparison> {
    let stored: Stored =
        toml::from_str(STORED).expect("the file is part of the program and a test reads it");
    stored.figure.iter().flat_map(|published| of_figure(published, runs)).collect()
}

fn of_figure(published: &Published, runs: &[Run]) -> Vec<Comparison> {
    let mut found = Vec::new();
    let modes: Vec<Option<&str>> = match published.journal_modes.as_slice() {
        [] => vec![None],
        modes => modes.iter().map(|mode| Some(mode.as_str())).collect(),
    };
    for mode in modes {
        let pick = |side: &Side| runs.iter().find(|run| published.is_of(run, mode, side));
        if let (Some(base), Some(changed)) = (pick(&published.base), pick(&published.changed)) {
            found.push(published.beside(base, changed));
        }
    }
    found
}

impl Published {
    fn is_of(&self, run: &Run, mode: Option<&str>, side: &Side) -> bool {
        let Config { sync, journal_mode, mtime_update_ms, sqlite_fsync, .. } = &run.config;
        let same_run = run.device == self.device && run.workload == self.workload;
        let same_mode = journal_mode.as_deref() == mode && *sqlite_fsync == self.sqlite_fsync;
        let same_side =
            sync.as_deref() == Some(&*side.sync) && *mtime_update_ms == side.mtime_update_ms;
        let Config { alloc, fill_percent, log, mtime_seen, .. } = &run.config;
        let fresh = alloc.is_none() && fill_percent.is_none() && log.is_none() && !mtime_seen;
        same_run && same_mode && same_side && fresh && !run.interrupted
    }

    fn beside(&self, base: &Run, changed: &Run) -> Comparison {
        let shown = |value: Option<f64>| value.map(|value| self.metric.shown(value));
        let of = |run: &Run| shown(self.metric.of(&run.metrics));
        let mut paper = Figures::new(shown(self.base.value), shown(self.changed.value));
        paper.ratio = self.ratio.or(paper.ratio);
        let mode = base.config.journal_mode.iter().map(|mode| format!(" {mode}"));
        Comparison {
            workload: base.workload.clone() + &mode.collect::<String>(),
            metric: self.metric.name().to_owned(),
            settings: [&base.config, &changed.config].map(settings),
            paper,
            ours: Figures::new(of(base), of(changed)),
            source: self.source.clone(),
        }
    }
}

/// The varied setting: the sync mode, the interval.
fn settings(config: &Config) -> String {
    let mtime = config.mtime_update_ms.map(|ms| format!("mtime={ms}"));
    let words = [config.sync.clone(), mtime];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The comparisons as a table with its title; empty without any.
pub fn comparison_table(found: &[Comparison]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let header =
        ["workload", "figure", "settings", "paper", "", "ratio", "here", "", "ratio", "source"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), figure);
    let width = found.iter().map(|c| c.source.chars().count()).max().unwrap_or(0);
    for c in found {
        let figures = [c.paper, c.ours].map(|f| [f.base, f.changed, f.ratio].map(cell)).concat();
        let mut row = vec![c.workload.clone(), c.metric.clone(), c.settings.join(" : ")];
        row.extend(figures);
        row.push(format!("{:<width$}", c.source));
        rows.push(row);
    }
    "\nPaper and here (whole runs, with background write-back and the final unmount)\n".to_owned()
        + &aligned(&rows, 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metrics::DeviceMetrics;

    fn run(sync: &str, mtime_update_ms: Option<u32>, written_bytes: u64) -> Run {
        let device = DeviceMetrics { written_bytes, sequential_ratio: 0.5, ..Default::default() };
        let metrics = Metrics {
            operations: 10,
            transactions_per_s: written_bytes as f64,
            device: Some(device),
            ..Metrics::default()
        };
        let config = Config {
            sync: Some(sync.into()),
            log: None,
            journal_mode: Some("delete".into()),
            mtime_update_ms,
            mtime_seen: false,
            sqlite_fsync: false,
            barriers: None,
            alloc: None,
            fill_percent: None,
            policy: Some("clock".into()),
            flashlite: false,
            seed: 1,
        };
        Run {
            workload: "sqlite/insert".into(),
            device: "nexus7-emmc".into(),
            config,
            foreground: metrics.clone(),
            metrics,
            interrupted: false,
        }
    }

    #[test]
    fn figures_of_both_settings_are_found_and_divided() {
        let found = compare(&[run("eager", None, 300), run("ordered", None, 100)]);
        let tps = found.iter().find(|c| c.metric == "ops/s").expect("a stored figure");
        assert_eq!(tps.ours, Figures::new(Some(100.0), Some(300.0)));
        assert_eq!(tps.ours.ratio, Some(3.0));
        assert_eq!(tps.settings, ["ordered".to_owned(), "eager".to_owned()]);
        assert!(tps.paper.ratio.is_some_and(|ratio| ratio > 1.0));
        let sequential = found.iter().find(|c| c.metric == "sequential %").expect("a figure");
        assert_eq!((sequential.ours.base, sequential.paper.ratio), (Some(50.0), None));
        let text = comparison_table(&found);
        assert!(text.contains("ordered : eager") && text.contains("table 5.4"), "{text}");
    }

    #[test]
    fn other_devices_settings_and_halves_are_not_compared() {
        let other = Run { device: "nexus7-emmc:streams=4".into(), ..run("eager", None, 3) };
        let stopped = Run { interrupted: true, ..run("eager", None, 3) };
        for second in [other, stopped, run("eager", Some(100), 3), run("ordered", None, 3)] {
            let found = compare(&[run("ordered", None, 1), second]);
            assert!(found.is_empty(), "{found:?}");
        }
        assert_eq!(comparison_table(&[]), "");
    }

    #[test]
    fn every_stored_figure_says_enough() {
        let stored: Stored = toml::from_str(STORED).unwrap();
        for figure in &stored.figure {
            let known = crate::bench::find(&figure.workload).unwrap();
            assert_eq!(known.len(), 1, "{}", figure.source);
            assert_eq!(known[0].sqlite, !figure.journal_modes.is_empty(), "{}", figure.source);
            let values = figure.base.value.is_some() && figure.changed.value.is_some();
            assert!(values || figure.ratio.is_some(), "{}: nothing to compare", figure.source);
            assert!(figure.source.contains("paper, "), "{}", figure.source);
            syncline_nand::Profile::by_name(&figure.device).unwrap();
        }
    }
}
