//! Allocation policies compared by their effect on the device.
//!
//! [`allocation_table`] groups runs that differ in `alloc=` alone, and shows time and wear of the
//! whole run, with background write-back and unmount, against ext4's allocation (hot-zones paper,
//! Figure 3: I/O time, number of garbage collections). Tested here.
use crate::report::{aligned, figure};

use crate::bench::metrics::{Config, Run};

const HEADER: [&str; 10] = [
    "workload",
    "config",
    "alloc",
    "time s",
    "gain %",
    "GC",
    "GC copies",
    "map pages",
    "erases",
    "WAF",
];

fn key(run: &Run) -> (&str, &str, Config) {
    let config = Config { alloc: None, ..run.config.clone() };
    (&run.workload, &run.device, config)
}

/// A row for each run of a group with at least two policies; empty if there is none.
pub fn allocation_table(runs: &[Run]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    let mut shown = vec![false; runs.len()];
    for first in 0..runs.len() {
        let group: Vec<usize> = (first..runs.len())
            .filter(|at| !shown[*at] && key(&runs[*at]) == key(&runs[first]))
            .collect();
        if group.iter().all(|at| runs[*at].config.alloc == runs[first].config.alloc) {
            continue;
        }
        let base = group.iter().find(|at| runs[**at].config.alloc.is_none());
        for at in &group {
            rows.push(row(&runs[*at], base.map(|base| &runs[*base])));
            shown[*at] = true;
        }
    }
    if rows.len() == 1 {
        return String::new();
    }
    format!("\n{}", aligned(&rows, 3))
}

fn row(run: &Run, base: Option<&Run>) -> Vec<String> {
    let label = Config { alloc: None, ..run.config.clone() }.label();
    let alloc = run.config.alloc.as_deref().unwrap_or("default");
    let gain = base.filter(|base| base.metrics.duration_s > 0.0).map_or("-".to_owned(), |base| {
        // The paper's "improves by": of the rate, so that 100 % is twice as fast.
        figure((base.metrics.duration_s / run.metrics.duration_s - 1.0) * 100.0)
    });
    let mut cells =
        vec![run.workload.clone(), label, alloc.to_owned(), figure(run.metrics.duration_s), gain];
    match &run.metrics.device {
        Some(device) => cells.extend([
            device.nand_gc_runs.to_string(),
            device.nand_gc_copies.to_string(),
            device.nand_map_pages.to_string(),
            device.nand_erases.to_string(),
            figure(device.write_amplification),
        ]),
        None => cells.extend(std::iter::repeat_n("-".to_owned(), 5)),
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::metrics::{DeviceMetrics, Metrics};

    fn run(workload: &str, alloc: Option<&str>, duration_s: f64) -> Run {
        let config = Config {
            sync: Some("eager".into()),
            log: None,
            journal_mode: None,
            mtime_update_ms: None,
            mtime_seen: false,
            sqlite_fsync: false,
            barriers: None,
            alloc: alloc.map(str::to_owned),
            fill_percent: Some(80),
            policy: Some("clock".into()),
            flashlite: false,
            seed: 1,
        };
        let device = DeviceMetrics { nand_gc_runs: 17, ..DeviceMetrics::default() };
        let metrics = Metrics { duration_s, device: Some(device), ..Metrics::default() };
        let foreground = metrics.clone();
        let (workload, device) = (workload.to_owned(), "nexus7-emmc".to_owned());
        Run { workload, device, config, foreground, metrics, interrupted: false }
    }

    #[test]
    fn runs_that_differ_in_the_policy_alone_are_compared() {
        assert_eq!(allocation_table(&[run("mixed", None, 2.0), run("create", None, 2.0)]), "");
        let runs = [
            run("mixed", None, 2.5),
            run("create", None, 1.0),
            run("mixed", Some("lifetime"), 2.0),
        ];
        let text = allocation_table(&runs);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 3, "{text}");
        let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(cells(lines[1])[..6], ["mixed", "eager", "80%", "default", "2.50", "0.00"]);
        assert_eq!(
            cells(lines[2])[..7],
            ["mixed", "eager", "80%", "lifetime", "2.00", "25.0", "17"]
        );
    }
}
