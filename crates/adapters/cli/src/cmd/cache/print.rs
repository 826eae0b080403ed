//! The figures of `cache` as a table, JSON, CSV and charts.

use std::path::Path;

use serde_json::{Value, json};
use syncline_evaluate::{Outcome, PAGE_BYTES, Played};
use syncline_report::{Chart, Page};

use super::{Read, Run};
use crate::args::Cache;
use crate::error::Result;
use crate::format::{self, Out};
use crate::version::about;

/// Prints and writes what was asked for.
pub(super) fn print(args: &Cache, read: &Read, runs: &[Run]) -> Result<()> {
    let text = text(args, read, runs);
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let mut out = Out::new();
    out.text(if to_stdout { document(args, read, runs) } else { text.clone() })?;
    out.flush()?;
    if let Some(path) = args.json.as_deref().filter(|_| !to_stdout) {
        format::write_file(path, document(args, read, runs).as_bytes())?;
    }
    if let Some(path) = &args.csv {
        format::write_file(path, csv(args, runs).as_bytes())?;
    }
    if let Some(path) = &args.html {
        let title = format!("syncline cache, {}", args.input.trace.display());
        let mut page = Page::new(&title);
        page.text(&text);
        charts(args, runs).iter().for_each(|chart| page.bars(chart));
        format::write_file(path, page.finish(&about()).as_bytes())?;
    }
    Ok(())
}

fn size(outcome: &Outcome) -> String {
    format::size(outcome.pages as u64 * PAGE_BYTES)
}

fn merges(played: &Played) -> u64 {
    played.flash.map_or(0, |f| f.switch_merges + f.partial_merges + f.full_merges)
}

fn text(args: &Cache, read: &Read, runs: &[Run]) -> String {
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
    text += "\n\n";
    let words = ["policy", "cache", "hit %", "reads", "writes", "runs", "pages/run", "seq %"];
    let mut header: Vec<String> = words.map(str::to_owned).to_vec();
    header.push("cost s".to_owned());
    if args.fsync {
        header.push("flushes".to_owned());
    }
    for device in &args.device {
        header.extend([format!("{device} s"), "merges".to_owned(), "erases".to_owned()]);
    }
    let right: Vec<bool> = (0..header.len()).map(|column| column > 0).collect();
    let mut rows = vec![header];
    rows.extend(runs.iter().map(|run| row(args, run)));
    text + &format::table(&rows, &right)
}

fn row(args: &Cache, run: &Run) -> Vec<String> {
    let Run { outcome, played } = run;
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
        row.extend([format!("{:.2}", played.elapsed_s), merges(played).to_string()]);
        row.push(erases.to_string());
    }
    row
}

fn document(args: &Cache, read: &Read, runs: &[Run]) -> String {
    let pages = &read.pages;
    let runs: Vec<Value> = runs.iter().map(|run| run_document(args, run)).collect();
    let document = json!({
        "schema": "syncline.cache/1",
        "trace": {
            "path": args.input.trace.display().to_string(),
            "kind": read.header.kind.name(),
            "source": read.header.source,
            "accesses": pages.accesses(),
            "reads": pages.reads(),
            "writes": pages.accesses() as u64 - pages.reads(),
            "working_set_pages": pages.working_set_pages(),
            "address_space_bytes": pages.end_bytes(),
            "left_out": pages.left_out(),
        },
        "settings": {
            "page_bytes": PAGE_BYTES,
            "write_back_percent": args.write_back,
            "fsync": args.fsync,
            "dense": args.dense,
            "merge_bytes": args.merge,
        },
        "runs": runs,
    });
    format!("{document:#}\n")
}

fn run_document(args: &Cache, run: &Run) -> Value {
    let (outcome, c) = (&run.outcome, &run.outcome.counts);
    let devices: Vec<Value> = args.device.iter().zip(&run.played).map(device_document).collect();
    json!({
        "policy": outcome.policy,
        "pages": outcome.pages,
        "hits": c.hits, "misses": c.misses, "hit_ratio": c.hit_ratio(),
        "evictions": c.evictions, "dirty_evictions": c.dirty_evictions,
        "reads": c.reads, "writes": c.write_backs,
        "background_writes": c.background_writes, "final_writes": c.final_writes,
        "write_runs": c.write_runs, "mean_run_pages": outcome.mean_run_pages(),
        "sequential_ratio": c.sequential_ratio(),
        "flushes": outcome.flushes,
        "cost_s": outcome.cost_s(),
        "devices": devices,
    })
}

fn device_document((device, played): (&String, &Played)) -> Value {
    let flash = played.flash.unwrap_or_default();
    json!({
        "device": device,
        "elapsed_s": played.elapsed_s,
        "read_requests": played.reads, "write_requests": played.writes,
        "read_latency_us_p50": played.read.latency_us_p50,
        "read_latency_us_p99": played.read.latency_us_p99,
        "write_latency_us_p50": played.write.latency_us_p50,
        "write_latency_us_p99": played.write.latency_us_p99,
        "write_latency_us_max": played.write.latency_us_max,
        "merges": merges(played), "erases": flash.erases,
        "write_amplification": flash.write_amplification(),
    })
}

/// A line for each configuration, with three columns more for each device.
fn csv(args: &Cache, runs: &[Run]) -> String {
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
    for Run { outcome, played } in runs {
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
            text += &format!(",{},{},{erases}", played.elapsed_s, merges(played));
        }
        text += "\n";
    }
    text
}

/// As figures 15 to 19 of the informed-storage paper: a cluster for each size, a bar a policy.
fn charts(args: &Cache, runs: &[Run]) -> Vec<Chart> {
    let mut series: Vec<String> = Vec::new();
    for run in runs {
        if series.iter().all(|name| *name != run.outcome.policy) {
            series.push(run.outcome.policy.to_owned());
        }
    }
    // Runs are a policy after the other for each size.
    let clusters = runs.chunks(series.len().max(1));
    let first = |cluster: &[Run]| cluster.first().map_or(String::new(), |run| size(&run.outcome));
    let groups: Vec<String> = clusters.clone().map(first).collect();
    let chart = |title: &str, unit: &str, value: &dyn Fn(&Run) -> Option<f64>| {
        let of =
            |cluster: &[Run]| cluster.iter().map(|run| value(run).unwrap_or(f64::NAN)).collect();
        let values = clusters.clone().map(of).collect();
        let (groups, series) = (groups.clone(), series.clone());
        let (title, unit) = (title.to_owned(), unit.to_owned());
        Chart { title, unit, groups, series, values, ..Chart::default() }
    };
    let mut charts = vec![
        chart("Hit ratio", "%", &|run| Some(run.outcome.counts.hit_ratio() * 100.0)),
        chart("Cost by the number of reads and writes", "s", &|run| Some(run.outcome.cost_s())),
        chart("Written pages in runs over 64 KiB", "%", &|run| {
            Some(run.outcome.counts.sequential_ratio() * 100.0)
        }),
    ];
    for (number, device) in args.device.iter().enumerate() {
        let elapsed = |run: &Run| run.played.get(number).map(|played| played.elapsed_s);
        charts.push(chart(&format!("Elapsed time on {device}"), "s", &elapsed));
    }
    charts
}
