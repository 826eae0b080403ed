//! `--html`: one page with tables and charts.
//!
//! For each workload: operations a second, KiB and flushes an operation as bars, one bar a
//! setting; for each run with a trace: block addresses against time. Then the papers' figures.
//! Tested here.

use crate::report::{About, Chart, Page, distinct, figure};
use syncline_device::TraceEvent;

use crate::bench::metrics::Run;
use crate::bench::papers::{Figures, compare};
use crate::bench::table::{header, rows};

/// The block trace of one run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Commands in order, from the first measured operation to the end of the unmount.
    pub events: Vec<TraceEvent>,
    /// Commands that did not fit.
    pub events_lost: u64,
}

/// The page. `traces` belong to `runs` in order; there may be fewer.
pub fn report(runs: &[Run], traces: &[Trace], about: &About) -> String {
    let mut page = Page::new("syncline-lab bench");
    let devices = distinct(runs.iter().map(|run| run.device.as_str()));
    page.paragraph(&format!("Device: {}.", devices.join(", ")));
    page.paragraph(
        "Rates and latencies are of the foreground, as an application sees them; figures for each \
         operation cover the whole run with its background write-back and the final unmount. \
         req, KiB, flush and pages /op: write requests, KiB written, flushes and flash pages \
         programmed per operation. seq %: the share of bytes in runs of adjacent requests of more \
         than 64 KiB. WAF: bytes programmed per byte written.",
    );
    page.table(&header(runs), &rows(runs), 2);
    papers(&mut page, runs);
    for workload in distinct(runs.iter().map(|run| run.workload.as_str())) {
        section(&mut page, workload, runs, traces);
    }
    page.finish(about)
}

/// The charts of one workload.
fn section(page: &mut Page, workload: &str, runs: &[Run], traces: &[Trace]) {
    page.heading(workload);
    let of: Vec<(usize, &Run)> =
        runs.iter().enumerate().filter(|(_, run)| run.workload == workload).collect();
    let one = runs.iter().all(|run| run.device == runs[0].device);
    let label = |run: &Run| match run.config.label() {
        label if one => label,
        label => format!("{label} on {}", run.device),
    };
    let mut plot = |title: &str, unit: &str, value: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<_>> =
            of.iter().map(|(_, run)| Some((label(run), value(run)?))).collect();
        if let Some(values) = values {
            page.bars(&Chart::modes(title, unit, &values));
        }
    };
    plot("operations a second", "1/s", &|run| Some(run.foreground.transactions_per_s));
    plot("written an operation", "KiB", &|run| {
        per_operation(run, |d| d.written_bytes as f64 / 1024.)
    });
    plot("flushes an operation", "flushes", &|run| per_operation(run, |d| d.flushes as f64));
    // Of many runs they stand beside each other.
    let plots = if of.len() > 2 { "<div class=\"plots\">\n" } else { "<div>\n" };
    page.html(plots);
    for (n, run) in &of {
        if let Some(trace) = traces.get(*n) {
            let title = format!("block addresses against time, {}", label(run));
            page.html("<div>\n");
            page.addresses(&title, &trace.events, trace.events_lost);
            page.html("</div>\n");
        }
    }
    page.html("</div>\n");
}

fn per_operation(
    run: &Run,
    value: impl Fn(&crate::bench::metrics::DeviceMetrics) -> f64,
) -> Option<f64> {
    let device = run.metrics.device.as_ref()?;
    Some(value(device) / run.metrics.operations.max(1) as f64)
}

fn papers(page: &mut Page, runs: &[Run]) {
    let found = compare(runs);
    if found.is_empty() {
        return;
    }
    let header = [
        "workload", "figure", "a : b", "source", "paper, a", "paper, b", "b / a", "here, a",
        "here, b", "b / a",
    ];
    let cell = |value: Option<f64>| value.map_or("-".to_owned(), figure);
    let cells = |f: Figures| [f.base, f.changed, f.ratio].map(cell);
    let lines: Vec<Vec<String>> = found
        .into_iter()
        .map(|c| {
            let words = [c.workload, c.metric, c.settings.join(" : "), c.source];
            [words.to_vec(), cells(c.paper).to_vec(), cells(c.ours).to_vec()].concat()
        })
        .collect();
    page.heading("Paper and here (whole runs)");
    page.table(&header.map(str::to_owned), &lines, 4);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metrics::{Config, DeviceMetrics, Metrics};
    use syncline_device::{Kind, Origin, TraceOp};

    fn run(sync: &str, rate: f64) -> Run {
        let config = Config {
            sync: Some(sync.into()),
            log: None,
            journal_mode: Some("wal".into()),
            mtime_update_ms: Some(100),
            mtime_seen: false,
            sqlite_fsync: false,
            barriers: None,
            alloc: None,
            fill_percent: None,
            policy: None,
            flashlite: false,
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
        let runs = [run("ordered", 38.0), run("eager", 117.0)];
        let html = report(&runs, &[trace], &About::default());
        for part in ["./&lt;card&gt;.toml", "eager wal mtime=100", "117", "last 3 commands"] {
            assert!(html.contains(part), "{part} is missing");
        }
        assert_eq!(html.matches("<figure").count(), 4, "three bars and one plot");
        assert_eq!(html.matches("writes: metadata").count(), 1);
        assert!(!html.contains("<card>"));
    }

    #[test]
    fn runs_of_several_devices_name_theirs() {
        let on = |device: &str| Run { device: device.into(), ..run("eager", 1.0) };
        let update = |device: &str| Run { workload: "sqlite/update".into(), ..on(device) };
        let runs = [on("card"), update("card"), on("disk"), update("disk")];
        let html = report(&runs, &[], &About::default());
        assert_eq!(html.matches("<h2>sqlite/").count(), 2, "each workload once, with both");
        assert!(html.contains("eager wal mtime=100 on card") && html.contains("on disk"));
        assert!(!report(&[on("card")], &[], &About::default()).contains("on card"));
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let mut run = run("ordered", 1.0);
        run.metrics.device = None;
        assert_eq!(report(&[run], &[], &About::default()).matches("<figure").count(), 1);
    }
}
