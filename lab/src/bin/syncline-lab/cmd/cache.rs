//! `cache`: replacement policies on a trace, as a table, JSON, CSV and charts.

use syncline_lab::evaluate::{Outcome, PAGE_BYTES};
use syncline_lab::experiments::{Cache as Request, CacheResult, CacheRun, PageRead};
use syncline_lab::report::{Chart, Layout, Page};

use super::bench::ranged;
use super::trace::option;
use crate::about;
use crate::args::Cache;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format::{self, Forms};

/// Runs everything, then prints.
pub(crate) fn run(mut args: Cache) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    if args.uncertainty {
        args.device = ranged(&args.device)?;
    }
    let args = &args;
    let request = Request {
        input: option(&args.input),
        policy: args.policy.clone(),
        size: args.size.clone(),
        write_back: args.write_back,
        fsync: args.fsync,
        dense: args.dense,
        merge: args.merge,
        device: args.device.clone(),
        after_cache: args.after_cache.clone(),
        jobs: args.jobs,
    };
    let found = request.run(&Terminal::default())?;
    print(args, &request, &found)
}

/// Prints and writes what was asked for.
fn print(args: &Cache, request: &Request, found: &CacheResult) -> Result<()> {
    let summary = summary(&found.read);
    let rows = rows(args, &found.runs);
    let forms = Forms {
        table: &|| {
            let right: Vec<bool> = (0..rows[0].len()).map(|column| column > 0).collect();
            format!("{summary}\n\n{}", format::table(&rows, &right))
        },
        json: &|| format::document(&found.document(request)),
        page: &|| {
            let title = format!("syncline-lab cache, {}", args.input.trace.display());
            let mut page = Page::new(&title);
            page.paragraph(&summary);
            page.table(&rows[0], &rows[1..], 1);
            charts(args, &found.runs).iter().for_each(|chart| page.bars(chart));
            page.finish(&about())
        },
    };
    format::publish(&forms, args.json.as_deref(), args.html.as_deref())?;
    match &args.csv {
        Some(path) => format::write_file(path, csv(args, &found.runs).as_bytes()),
        None => Ok(()),
    }
}

fn size(outcome: &Outcome) -> String {
    format::size(outcome.pages as u64 * PAGE_BYTES)
}

/// One line about the trace.
fn summary(read: &PageRead) -> String {
    let pages = &read.pages;
    let mut text = format!(
        "{} trace of {}: {} page accesses, {} reads and {} writes; {} distinct pages, {} of \
         addresses",
        read.header.kind.name(),
        read.header.source,
        pages.accesses(),
        pages.reads(),
        pages.accesses() as u64 - pages.reads(),
        format::size(pages.working_set_pages() * PAGE_BYTES),
        format::size(pages.end_bytes()),
    );
    if pages.left_out() > 0 {
        text += &format!("; {} records left out", pages.left_out());
    }
    text
}

/// The header, and a row for each run.
fn rows(args: &Cache, runs: &[CacheRun]) -> Vec<Vec<String>> {
    let words = ["policy", "cache", "hit %", "reads", "writes", "runs", "pages/run", "seq %"];
    let mut header: Vec<String> = words.map(str::to_owned).to_vec();
    header.push("cost s".to_owned());
    if args.fsync {
        header.push("flushes".to_owned());
    }
    for device in &args.device {
        header.extend([format!("{device} s"), "merges".to_owned(), "erases".to_owned()]);
    }
    let mut rows = vec![header];
    rows.extend(runs.iter().map(|run| row(args, run)));
    rows
}

fn row(args: &Cache, run: &CacheRun) -> Vec<String> {
    let CacheRun { outcome, played } = run;
    let counts = &outcome.counts;
    let mut row = vec![
        outcome.policy.to_owned(),
        size(outcome),
        format!("{:.2}", counts.hit_ratio() * 100.0),
        counts.reads.to_string(),
        counts.write_backs.to_string(),
        counts.write_runs.to_string(),
        format!("{:.2}", outcome.mean_run_pages()),
        format!("{:.1}", counts.sequential_ratio() * 100.0),
        format!("{:.2}", outcome.cost_s()),
    ];
    if args.fsync {
        row.push(outcome.flushes.to_string());
    }
    for played in played {
        let erases = played.flash.map_or(0, |flash| flash.erases);
        row.extend([format!("{:.2}", played.elapsed_s), CacheRun::merges(played).to_string()]);
        row.push(erases.to_string());
    }
    row
}

/// A line for each configuration, with three columns more for each device.
fn csv(args: &Cache, runs: &[CacheRun]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut text = "policy,pages,hits,misses,reads,writes,background_writes,final_writes,\
                    write_runs,sequential_ratio,flushes,cost_s"
        .to_owned();
    for device in &args.device {
        for column in ["elapsed_s", "merges", "erases"] {
            text += &format!(",{}", quoted(&format!("{device} {column}")));
        }
    }
    text += "\n";
    for CacheRun { outcome, played } in runs {
        let c = &outcome.counts;
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{},{},{}",
            outcome.policy,
            outcome.pages,
            c.hits,
            c.misses,
            c.reads,
            c.write_backs,
            c.background_writes,
            c.final_writes,
            c.write_runs,
            c.sequential_ratio(),
            outcome.flushes,
            outcome.cost_s()
        );
        for played in played {
            let erases = played.flash.map_or(0, |flash| flash.erases);
            text += &format!(",{},{},{erases}", played.elapsed_s, CacheRun::merges(played));
        }
        text += "\n";
    }
    text
}

/// As figures 15 to 19 of the informed-storage paper: a curve over the sizes for each policy; bars
/// for a single size.
fn charts(args: &Cache, runs: &[CacheRun]) -> Vec<Chart> {
    let mut series: Vec<String> = Vec::new();
    for run in runs {
        if series.iter().all(|name| *name != run.outcome.policy) {
            series.push(run.outcome.policy.to_owned());
        }
    }
    // Runs are a policy after the other for each size.
    let clusters = runs.chunks(series.len().max(1));
    let first =
        |cluster: &[CacheRun]| cluster.first().map_or(String::new(), |run| size(&run.outcome));
    let groups: Vec<String> = clusters.clone().map(first).collect();
    let chart = |title: &str, unit: &str, value: &dyn Fn(&CacheRun) -> Option<f64>| {
        let of = |cluster: &[CacheRun]| {
            cluster.iter().map(|run| value(run).unwrap_or(f64::NAN)).collect()
        };
        let values = clusters.clone().map(of).collect();
        let (groups, series) = (groups.clone(), series.clone());
        let (title, unit) = (title.to_owned(), unit.to_owned());
        let layout = if groups.len() > 1 { Layout::Lines } else { Layout::Columns };
        let group = "size of the cache".to_owned();
        Chart { title, unit, layout, group, groups, series, values, ..Chart::default() }
    };
    let mut charts = vec![
        chart("Hit ratio", "%", &|run| Some(run.outcome.counts.hit_ratio() * 100.0)),
        chart("Cost by the number of reads and writes", "s", &|run| Some(run.outcome.cost_s())),
        chart("Written pages in runs over 64 KiB", "%", &|run| {
            Some(run.outcome.counts.sequential_ratio() * 100.0)
        }),
    ];
    for (number, device) in args.device.iter().enumerate() {
        let elapsed = |run: &CacheRun| run.played.get(number).map(|played| played.elapsed_s);
        charts.push(chart(&format!("Elapsed time on {device}"), "s", &elapsed));
    }
    charts
}
