//! The table a bench prints: a row for each run, figures for each operation.
//!
//! Device figures (`req/op` and what follows) cover the whole run, with its background write-back
//! and the final unmount. Rates and latencies cover the foreground, as an application sees them.

use crate::report::{aligned, figure};

use crate::bench::allocation::allocation_table;
use crate::bench::metrics::Run;
use crate::bench::papers::{compare, comparison_table};

const HEADER: [&str; 13] = [
    "workload", "config", "ops/s", "MB/s", "p50 ms", "p99 ms", "max ms", "req/op", "KiB/op",
    "flush/op", "seq %", "pages/op", "WAF",
];
/// Columns of text; the others are figures.
const WORDS: usize = 2;
/// Columns before those of percentiles that were asked for.
const USUAL: usize = 7;

/// Names of the columns.
pub(crate) fn header(runs: &[Run]) -> Vec<String> {
    let mut names = HEADER.map(str::to_owned).to_vec();
    let percentiles = runs.first().map(|run| run.metrics.latency_us_percentiles.keys());
    let more = percentiles.into_iter().flatten().map(|percent| format!("p{percent} ms"));
    names.splice(USUAL..USUAL, more);
    names
}

/// The table, columns aligned, with a final newline.
pub fn table(runs: &[Run]) -> String {
    aligned(&cells(runs), WORDS)
}

/// Everything that a bench prints: the table, the papers' figures beside it, allocation policies.
pub fn text(runs: &[Run]) -> String {
    table(runs) + &comparison_table(&compare(runs)) + &allocation_table(runs)
}

/// The cells of the table, the names of the columns first. The first two columns are text.
pub fn cells(runs: &[Run]) -> Vec<Vec<String>> {
    let mut lines = vec![header(runs)];
    lines.extend(rows(runs));
    lines
}

/// A line for each run; with the device if there are several.
pub(crate) fn rows(runs: &[Run]) -> Vec<Vec<String>> {
    let several = runs.iter().any(|run| run.device != runs[0].device);
    let named = |run: &Run| {
        let mut cells = row(run);
        if several {
            cells[0] += &format!(", {}", run.device);
        }
        cells
    };
    runs.iter().map(named).collect()
}

fn row(run: &Run) -> Vec<String> {
    let (all, fore) = (&run.metrics, &run.foreground);
    let operations = all.operations.max(1) as f64;
    let name = match run.interrupted {
        true => format!("{} (stopped at {})", run.workload, all.operations),
        false => run.workload.clone(),
    };
    let mut cells = vec![
        name,
        run.config.label(),
        figure(fore.transactions_per_s),
        fore.throughput_mb_per_s.map_or("-".to_owned(), figure),
        figure(fore.latency_us_p50 / 1e3),
        figure(fore.latency_us_p99 / 1e3),
        figure(fore.latency_us_max / 1e3),
    ];
    cells.extend(fore.latency_us_percentiles.values().map(|us| figure(us / 1e3)));
    match &all.device {
        Some(device) => cells.extend([
            figure(device.write_requests as f64 / operations),
            figure(device.written_bytes as f64 / 1024.0 / operations),
            figure(device.flushes as f64 / operations),
            figure(device.sequential_ratio * 100.0),
            figure(device.nand_page_programs as f64 / operations),
            figure(device.write_amplification),
        ]),
        None => cells.extend(std::iter::repeat_n("-".to_owned(), 6)),
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metrics::{Config, DeviceMetrics, Document, Metrics};

    fn run() -> Run {
        let config = Config {
            sync: Some("ordered".into()),
            log: None,
            journal_mode: None,
            mtime_update_ms: None,
            mtime_seen: false,
            alloc: None,
            fill_percent: None,
            sqlite_fsync: false,
            barriers: None,
            policy: Some("clock".into()),
            flashlite: false,
            seed: 1,
        };
        let device =
            DeviceMetrics { write_requests: 6, written_bytes: 57_344, ..Default::default() };
        let metrics = Metrics {
            operations: 2,
            transactions_per_s: 123.4,
            latency_us_p50: 12_340.0,
            device: Some(device),
            ..Metrics::default()
        };
        Run {
            workload: "create/4k-fsync".into(),
            device: "nexus7-emmc".into(),
            config,
            foreground: metrics.clone(),
            metrics,
            interrupted: false,
        }
    }

    #[test]
    fn columns_line_up() {
        let text = table(&[run(), Run { interrupted: true, ..run() }]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].find("ops/s").unwrap() + 5, lines[1].find("123").unwrap() + 3);
        assert!(
            lines[1].contains("12.3") && lines[1].contains("3.00") && lines[1].contains("28.0")
        );
        assert!(lines[2].starts_with("create/4k-fsync (stopped at 2)"));
    }

    #[test]
    fn the_document_has_the_published_names_and_reads_back() {
        let document = Document::new(vec![run()]);
        let text = document.to_json();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "syncline.bench/1");
        let metrics = value["runs"][0]["metrics"].as_object().unwrap();
        for name in [
            "operations",
            "transactions_per_s",
            "duration_s",
            "write_requests",
            "written_bytes",
            "journal_bytes",
            "data_bytes",
            "metadata_bytes",
            "flushes",
            "mean_write_sectors",
            "sequential_ratio",
            "latency_us_p50",
            "latency_us_p99",
            "latency_us_max",
            "nand_page_programs",
            "nand_gc_copies",
            "nand_erases",
            "write_amplification",
        ] {
            assert!(metrics.contains_key(name), "{name} is missing");
        }
        let back: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document);
    }
}
