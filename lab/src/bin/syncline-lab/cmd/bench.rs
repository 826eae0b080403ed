//! `bench`: workloads on a simulated device, or on a mounted directory.
//!
//! One run for each workload and each value of a list. The table goes to standard output when all
//! are done, progress to standard error while they run. Ctrl-C ends the run after the operation
//! under way: the volume is unmounted, and what was done is reported. With `--sensitivity` the
//! device is varied instead of the sync mode, and the document is another one.

use std::path::Path;

use syncline_lab::bench::{
    Document, Run, Sensitivity, Trace, allocation_table, compare, comparison_table, report, table,
};
use syncline_lab::experiments::{Bench as Request, BenchResult};

use crate::about;
use crate::args::Bench;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format::{self, Out};

/// Commands of one run that a report can plot.
const EVENTS_MAX: usize = 200_000;

/// Runs everything, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    let request = request(args);
    if args.workloads == ["replay"] {
        return super::replay::run(args, &request);
    }
    if args.workloads.iter().all(|name| name.split('/').next() == Some("applications")) {
        return super::applications::run(args);
    }
    if args.workloads.iter().all(|name| name == "fjord" || name.starts_with("fjord/")) {
        return super::fjord::run(args, &request);
    }
    if args.sensitivity {
        let mut cells = Vec::new();
        let done = request.sensitivity(&Terminal::default(), &mut cells);
        let document = Sensitivity::new(&args.device, cells);
        let (text, json) = (document.table(), || document.to_json());
        let printed = if document.cells.is_empty() { Ok(()) } else { print(args, &text, &json) };
        return done.map_err(Into::into).and(printed);
    }
    let mut found = BenchResult::default();
    let events_max = if args.html.is_some() { EVENTS_MAX } else { 0 };
    let done = request.run(events_max, &Terminal::default(), &mut found);
    // What was measured is reported, whatever came after it.
    let BenchResult { runs, traces } = &found;
    let printed = if runs.is_empty() { Ok(()) } else { publish(args, runs, traces) };
    done.map_err(Into::into).and(printed)
}

fn request(args: &Bench) -> Request {
    Request {
        workloads: args.workloads.clone(),
        device: args.device.clone(),
        sync: args.sync.clone(),
        log: args.log.clone(),
        journal_mode: args.journal_mode.clone(),
        synchronous: args.synchronous.clone(),
        sqlite_fsync: args.sqlite_fsync,
        mtime_update: args.mtime_update.clone(),
        operations: args.operations,
        policy: args.policy.clone(),
        alloc: args.alloc.clone(),
        fill: args.fill.clone(),
        options: args.options.clone(),
        seed: args.seed,
        size: args.size,
        image: args.image.clone(),
        dir: args.dir.clone(),
        trace: args.trace.clone(),
        contents: args.contents.clone(),
        gap_max: args.gap_max,
        flashlite: args.flashlite.clone(),
        used: args.used,
        scale: args.scale,
    }
}

/// Table or document, then the report.
pub(super) fn publish(args: &Bench, runs: &[Run], traces: &[Trace]) -> Result<()> {
    let text = table(runs) + &comparison_table(&compare(runs)) + &allocation_table(runs);
    print(args, &text, &|| Document::new(runs.to_vec()).to_json())?;
    match &args.html {
        Some(path) => format::write_file(path, report(runs, traces, &about()).as_bytes()),
        None => Ok(()),
    }
}

/// The text on standard output, and the document where `--json` wants it.
pub(super) fn print(args: &Bench, text: &str, document: &dyn Fn() -> String) -> Result<()> {
    let json = args.json.as_deref();
    let to_stdout = json == Some(Path::new("-"));
    let mut out = Out::new();
    if to_stdout {
        out.text(document())?;
    } else {
        out.text(text)?;
    }
    out.flush()?;
    match json {
        Some(path) if !to_stdout => format::write_file(path, document().as_bytes()),
        _ => Ok(()),
    }
}
