//! Runs of applications as a table and a document.

use crate::report::{aligned, figure};

use super::AppRun;

/// The schema name of the document.
pub const APPLICATIONS_SCHEMA: &str = "syncline.applications/1";

/// The document: all runs, and their sums.
pub fn applications_json(runs: &[AppRun]) -> String {
    let totals = totals(runs);
    let document =
        serde_json::json!({ "schema": APPLICATIONS_SCHEMA, "runs": runs, "totals": totals });
    format!("{document:#}\n")
}

/// Meanings of the columns, for pages.
pub const APPLICATIONS_COLUMNS: &str = "run s: cpu, network and storage after each other. \
     storage %: its share of the run. busy s: time in which the device worked. sq and rn: \
     sequential and random bytes, written (W) and read (R), as in the paper's table 4. pages, \
     erases: flash pages programmed, blocks erased.";

const HEADER: [&str; 17] = [
    "application",
    "device",
    "network",
    "with",
    "sync",
    "run s",
    "cpu s",
    "network s",
    "storage s",
    "storage %",
    "busy s",
    "sq W MB",
    "rn W MB",
    "sq R MB",
    "rn R MB",
    "pages",
    "erases",
];

/// A row for each run: run time and what it is made of, the bytes of Table 4, and the wear.
pub fn applications_table(runs: &[AppRun]) -> String {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    rows.extend(runs.iter().chain(&totals(runs)).map(row));
    aligned(&rows, 5)
}

/// Sums over the applications that ran on one storage, where there are several: called `all`. A
/// storage on which an interruption left some out has none.
fn totals(runs: &[AppRun]) -> Vec<AppRun> {
    let mut sums: Vec<(usize, AppRun)> = Vec::new();
    for run in runs {
        let key =
            |run: &AppRun| [&run.device, &run.network, &run.solution, &run.sync].map(String::clone);
        match sums.iter_mut().find(|(_, sum)| key(sum) == key(run)) {
            None => sums.push((1, AppRun { application: "all".to_owned(), ..run.clone() })),
            Some((count, sum)) => {
                *count += 1;
                sum.run_s += run.run_s;
                sum.cpu_s += run.cpu_s;
                sum.network_s += run.network_s;
                sum.storage_wait_s += run.storage_wait_s;
                sum.storage_busy_s += run.storage_busy_s;
                sum.flushes += run.flushes;
                sum.counts.add(&run.counts);
            }
        }
    }
    let most = sums.iter().map(|(count, _)| *count).max().unwrap_or(0).max(2);
    sums.into_iter().filter(|(count, _)| *count == most).map(|(_, sum)| sum).collect()
}

fn row(run: &AppRun) -> Vec<String> {
    let mb = |bytes: u64| figure(bytes as f64 / 1e6);
    let counts = &run.counts;
    let share = run.storage_wait_s * 100.0 / run.run_s.max(f64::MIN_POSITIVE);
    let names = [&run.application, &run.device, &run.network, &run.solution, &run.sync];
    let times = [run.run_s, run.cpu_s, run.network_s, run.storage_wait_s, share];
    let mut cells: Vec<String> = names.map(Clone::clone).to_vec();
    cells.extend(times.map(figure));
    cells.push(figure(run.storage_busy_s));
    cells.extend(
        [
            counts.sequential_written_bytes,
            counts.random_written_bytes,
            counts.sequential_read_bytes,
            counts.random_read_bytes,
        ]
        .map(mb),
    );
    cells.extend([counts.nand_page_programs, counts.nand_erases].map(|count| count.to_string()));
    cells
}
