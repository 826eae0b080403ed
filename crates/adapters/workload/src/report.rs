//! `--html`: one file with tables and plots. No script, nothing loaded from anywhere.
//!
//! For each workload: operations a second, KiB and flushes an operation as bars, one bar a
//! setting; for each run with a trace: block addresses against time. Then the papers' figures.
//! Tested here.

use std::fmt::Write;

use syncline_device::TraceEvent;

use crate::metrics::Run;
use crate::papers::{Figures, compare};
use crate::svg::{bars, escape, scatter};
use crate::table::{HEADER, figure, row};

/// The block trace of one run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Commands in order, from the first measured operation to the end of the unmount.
    pub events: Vec<TraceEvent>,
    /// Commands that did not fit.
    pub events_lost: u64,
}

pub(crate) const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;\
color:#1b1f24}\
table{border-collapse:collapse;margin:.6em 0}\
td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid #d8dee4}\
td.w,th.w{text-align:left}h3{margin:1.2em 0 .2em;font-size:14px}\
svg{display:block;margin:.2em 0}svg text{font:12px system-ui,sans-serif;fill:#1b1f24}\
svg rect{fill:#2f6f9f}path{fill:none;stroke-width:2.4;stroke-linecap:round}\
path.axis{stroke:#8c959f;stroke-width:1}path.cut{stroke-dasharray:4 4}\
path.read,.key.read{stroke:#9aa3ad;color:#9aa3ad}\
path.data,.key.data{stroke:#2f6f9f;color:#2f6f9f}\
path.metadata,.key.metadata{stroke:#c27c0e;color:#c27c0e}\
path.journal,.key.journal{stroke:#b3303a;color:#b3303a}.scroll{overflow-x:auto}";

/// The page. `traces` belong to `runs` in order; there may be fewer.
pub fn report(runs: &[Run], traces: &[Trace]) -> String {
    let mut html = String::new();
    let mut devices: Vec<&str> = runs.iter().map(|run| run.device.as_str()).collect();
    devices.dedup();
    let _ = writeln!(html, "<p>Device: {}.</p>", escape(&devices.join(", ")));
    html += "<p>Rates and latencies are of the foreground, as an application sees them; figures \
             for each operation cover the whole run with its background write-back and the final \
             unmount.</p>\n";
    html += &rows(&HEADER.map(str::to_owned), &runs.iter().map(row).collect::<Vec<_>>(), 2);
    html += &papers(runs);
    let mut workloads: Vec<&str> = runs.iter().map(|run| run.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        html += &section(workload, runs, traces);
    }
    page("syncline bench", &html)
}

/// A page with this title and body.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\n\
         <h1>{title}</h1>\n{body}</body></html>\n"
    )
}

/// The plots of one workload.
fn section(workload: &str, runs: &[Run], traces: &[Trace]) -> String {
    let mut html = format!("<h2>{}</h2>\n", escape(workload));
    let of: Vec<(usize, &Run)> =
        runs.iter().enumerate().filter(|(_, run)| run.workload == workload).collect();
    let mut plot = |title: &str, value: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<_>> =
            of.iter().map(|(_, run)| Some((run.config.label(), value(run)?))).collect();
        if let Some(values) = values {
            let _ = write!(html, "<h3>{title}</h3>\n{}", bars(title, &values));
        }
    };
    plot("operations a second", &|run| Some(run.foreground.transactions_per_s));
    plot("KiB written an operation", &|run| per_operation(run, |d| d.written_bytes as f64 / 1024.));
    plot("flushes an operation", &|run| per_operation(run, |d| d.flushes as f64));
    for (n, run) in &of {
        let Some(trace) = traces.get(*n).filter(|trace| !trace.events.is_empty()) else { continue };
        let title = format!("block addresses against time, {}", run.config.label());
        let lost = match trace.events_lost {
            0 => String::new(),
            lost => format!(" (without the last {lost} commands)"),
        };
        let _ = write!(
            html,
            "<h3>{}{lost} <span class=\"key journal\">journal</span> \
             <span class=\"key metadata\">metadata</span> <span class=\"key data\">data</span> \
             <span class=\"key read\">reads</span></h3>\n{}",
            escape(&title),
            scatter(&title, &trace.events)
        );
    }
    html
}

fn per_operation(run: &Run, value: impl Fn(&crate::metrics::DeviceMetrics) -> f64) -> Option<f64> {
    let device = run.metrics.device.as_ref()?;
    Some(value(device) / run.metrics.operations.max(1) as f64)
}

fn papers(runs: &[Run]) -> String {
    let found = compare(runs);
    if found.is_empty() {
        return String::new();
    }
    let header =
        ["workload", "figure", "settings", "source", "paper", "", "ratio", "here", "", "ratio"];
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), figure);
    let cells = |f: Figures| [f.base, f.changed, f.ratio].map(cell);
    let lines: Vec<Vec<String>> = found
        .into_iter()
        .map(|c| {
            let words = [c.workload, c.metric, c.settings.join(" : "), c.source];
            [words.to_vec(), cells(c.paper).to_vec(), cells(c.ours).to_vec()].concat()
        })
        .collect();
    "<h2>Paper and here (whole runs)</h2>\n".to_owned()
        + &rows(&header.map(str::to_owned), &lines, 4)
}

/// An HTML table whose first `words` columns are words.
pub(crate) fn rows(header: &[String], lines: &[Vec<String>], words: usize) -> String {
    let mut html = "<div class=\"scroll\"><table>\n".to_owned();
    let all = std::iter::once(("th", header)).chain(lines.iter().map(|l| ("td", l.as_slice())));
    for (tag, cells) in all {
        html += "<tr>";
        for (column, cell) in cells.iter().enumerate() {
            let class = if column < words { " class=\"w\"" } else { "" };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", escape(cell));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Config, DeviceMetrics, Metrics};
    use syncline_device::{Kind, Origin, TraceOp};

    fn run(sync: &str, rate: f64) -> Run {
        let config = Config {
            sync: Some(sync.into()),
            log: None,
            journal_mode: Some("wal".into()),
            mtime_update_ms: Some(100),
            sqlite_fsync: false,
            alloc: None,
            fill_percent: None,
            policy: None,
            seed: 1,
        };
        let device = DeviceMetrics { written_bytes: 8192, flushes: 4, ..Default::default() };
        let metrics = Metrics {
            operations: 2,
            transactions_per_s: rate,
            device: Some(device),
            ..Metrics::default()
        };
        Run {
            workload: "sqlite/insert".into(),
            device: "./<card>.toml".into(),
            config,
            foreground: metrics.clone(),
            metrics,
            interrupted: false,
        }
    }

    #[test]
    fn a_page_stands_alone() {
        let event = TraceEvent {
            time_ns: 7,
            op: TraceOp::Write,
            offset_bytes: 4096,
            len_bytes: 4096,
            origin: Origin::new(Kind::Metadata, false),
            fua: false,
        };
        let trace = Trace { events: vec![event], events_lost: 3 };
        let html = report(&[run("ordered", 38.0), run("eager", 117.0)], &[trace]);
        for part in ["./&lt;card&gt;.toml", "eager wal mtime=100", "117", "last 3 commands"] {
            assert!(html.contains(part), "{part} is missing");
        }
        for outside in ["http", "<script", "src=", "url(", "<card>"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<svg").count(), 4, "three bars and one scatter");
        assert_eq!(html.matches("class=\"metadata\" d=\"M").count(), 1);
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let mut run = run("ordered", 1.0);
        run.metrics.device = None;
        assert_eq!(report(&[run], &[]).matches("<svg").count(), 1);
    }
}
