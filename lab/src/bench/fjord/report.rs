//! Runs of the write buffer as a table and a document, with the paper's figures beside ours.
//!
//! The figures of the paper are in `baselines/fjord.toml`, none in code.

use crate::report::{aligned, figure};
use serde::Deserialize;

use super::{FjordPart, FjordRun};

/// The schema name of the document.
pub const FJORD_SCHEMA: &str = "syncline.fjord/1";
const STORED: &str = include_str!("../../../../baselines/fjord.toml");

/// The document: all runs.
///
/// # Panics
/// Never: strings and finite numbers always serialise.
pub fn fjord_json(runs: &[FjordRun]) -> String {
    let document = serde_json::json!({ "schema": FJORD_SCHEMA, "runs": runs });
    format!("{document:#}\n")
}

/// The document of days, which are no runs of applications.
///
/// # Panics
/// Never: strings and finite numbers always serialise.
#[cfg(not(target_family = "wasm"))]
pub fn days_json(days: &[super::DayRun]) -> String {
    let document = serde_json::json!({ "schema": FJORD_SCHEMA, "runs": [], "days": days });
    format!("{document:#}\n")
}

/// Figures of the paper for a configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    source: String,
    device: String,
    workload: String,
    config: String,
    /// Against native; more than one where several phones share the storage.
    #[serde(default)]
    run_time_percent: Vec<f64>,
    #[serde(default)]
    written_percent: Vec<f64>,
}

impl Published {
    /// The paper's phones had what is called ordered here.
    fn is_of(&self, run: &FjordRun) -> bool {
        let ours = (&run.device, &run.workload, &run.config);
        run.sync == "ordered" && (&self.device, &self.workload, &self.config) == ours
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    figure: Vec<Published>,
}

const HEADER: [&str; 12] = [
    "workload", "config", "run s", "%", "paper", "MB", "%", "paper", "flushes", "all s", "all MB",
    "all J",
];

/// A row for each run: time and traffic of the run against the native one, the paper's beside them,
/// then everything to the end.
///
/// # Panics
/// Never: the stored figures are checked by a test.
pub fn fjord_table(runs: &[FjordRun]) -> String {
    let stored: Stored = toml::from_str(STORED).expect("the stored figures parse, by a test");
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    for run in runs {
        let native = runs.iter().find(|r| {
            r.config == "native"
                && r.sync == "ordered"
                && (&r.workload, &r.device) == (&run.workload, &run.device)
        });
        rows.push(row(run, native, &stored.figure));
    }
    let mut sources: Vec<&str> = Vec::new();
    for figure in &stored.figure {
        let shown = runs.iter().any(|run| figure.is_of(run));
        if shown && !sources.contains(&figure.source.as_str()) {
            sources.push(&figure.source);
        }
    }
    let sources = sources.iter().map(|source| format!("paper: {source}\n"));
    aligned(&rows, 2) + &sources.collect::<String>()
}

pub(super) fn written_mb(part: &FjordPart) -> f64 {
    part.metrics.device.as_ref().map_or(0.0, |device| device.written_bytes as f64 / 1e6)
}

fn row(run: &FjordRun, native: Option<&FjordRun>, stored: &[Published]) -> Vec<String> {
    let change = |of: &dyn Fn(&FjordPart) -> f64| match native {
        Some(native) if of(&native.run) > 0.0 => {
            format!("{:+.0}", (of(&run.run) / of(&native.run) - 1.0) * 100.0)
        }
        _ => "-".to_owned(),
    };
    let paper = |of: &dyn Fn(&Published) -> &Vec<f64>| {
        let figures = stored.iter().filter(|figure| figure.is_of(run));
        let figures: Vec<String> =
            figures.flat_map(of).map(|value| format!("{value:+.0}")).collect();
        if figures.is_empty() { "-".to_owned() } else { figures.join("/") }
    };
    let flushes = run.run.metrics.device.as_ref().map_or(0, |device| device.flushes);
    let config =
        if run.sync == "eager" { format!("eager {}", run.config) } else { run.config.clone() };
    vec![
        run.workload.clone(),
        config,
        figure(run.run.metrics.duration_s),
        change(&|part| part.metrics.duration_s),
        paper(&|p| &p.run_time_percent),
        figure(written_mb(&run.run)),
        change(&written_mb),
        paper(&|p| &p.written_percent),
        flushes.to_string(),
        figure(run.to_the_end.metrics.duration_s),
        figure(written_mb(&run.to_the_end)),
        run.to_the_end.joules.map_or("-".to_owned(), figure),
    ]
}

#[cfg(test)]
mod tests {
    use syncline_nand::Profile;

    use super::super::FJORD_CONFIGS;
    use super::*;
    use crate::bench::workloads::APPLICATIONS;

    #[test]
    fn stored_figures_name_what_exists() {
        let stored: Stored = toml::from_str(STORED).unwrap();
        for figure in &stored.figure {
            assert!(FJORD_CONFIGS.iter().any(|c| c.name == figure.config), "{}", figure.config);
            assert!(APPLICATIONS.iter().any(|e| e.name == figure.workload), "{}", figure.workload);
            Profile::by_name(&figure.device).unwrap();
            assert!(figure.source.contains("informed-storage paper"));
            assert_ne!(figure.run_time_percent.len() + figure.written_percent.len(), 0);
        }
    }
}
