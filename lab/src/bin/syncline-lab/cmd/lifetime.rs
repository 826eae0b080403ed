//! `lifetime`: a block trace on a simulated device, and how long the device can take it.
//!
//! With `--watch` the trace is recorded first, into a directory of its own that is removed.

use std::path::{Path, PathBuf};

use syncline_lab::evaluate::{Shares, WearReplay};
use syncline_lab::experiments::{LifetimeRequest, LifetimeResult, Spread, span};
use syncline_lab::report::{Chart, Page};
use tempfile::TempDir;

use super::trace::watch;
use crate::about;
use crate::args::{Lifetime as Arguments, duration};
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Out};

/// Replays and prints.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    format::check_outputs(&[args.html.as_deref()])?;
    let watched = args.watch.as_deref().map(Recorded::new).transpose()?;
    let trace = watched.as_ref().map(|watched| watched.trace.clone()).or(args.trace.clone());
    let request = LifetimeRequest {
        // One of both is there, say the arguments.
        trace: trace.unwrap_or_default(),
        device: args.device.clone(),
        size: args.size.or(watched.as_ref().map(|watched| watched.size_bytes)),
        precondition: args.precondition,
        passes: args.passes,
        per_day: args.per_day,
    };
    let found = request.run(&Terminal::default())?;
    let mut out = Out::new();
    out.text(if args.json { format::document(&found.document()) } else { text(&found) })?;
    out.flush()?;
    match &args.html {
        Some(path) => format::write_file(path, page(&found).as_bytes()),
        None => Ok(()),
    }
}

/// The figures, the erases of the blocks, and who caused them.
fn page(found: &LifetimeResult) -> String {
    let mut page = Page::new(&format!("syncline-lab lifetime, {}", found.profile.name));
    end_text(found).split("\n\n").for_each(|text| page.paragraph(text.trim()));
    let mut lines = rows(found);
    lines.extend(spread_rows(&found.spread));
    page.table(&["figure", "value"].map(str::to_owned), &lines, 2);
    let names = ["1 %", "25 %", "50 %", "75 %", "99 %"].map(|part| format!("{part} of the blocks"));
    let erases: Vec<(String, f64)> =
        names.into_iter().zip(found.spread.percentiles().map(f64::from)).collect();
    page.bars(&Chart::rows("Erases of a block, at most", "erases", "erases", &erases));
    for (shares, what) in [(found.replay.processes(), "process"), (found.replay.files(), "file")] {
        let top: Vec<(String, f64)> =
            shares.top().into_iter().map(|s| (s.name, s.programmed_bytes as f64 / 1e6)).collect();
        if !top.is_empty() {
            page.bars(&Chart::rows(&format!("Flash programmed, by {what}"), "MB", "MB", &top));
        }
    }
    page.finish(&about())
}

/// A trace that was recorded for this; removed with its directory.
struct Recorded {
    _dir: TempDir,
    trace: PathBuf,
    size_bytes: u64,
}

impl Recorded {
    /// Watches a device, as `--watch BLOCKDEV TIME` says.
    fn new(words: &[std::ffi::OsString]) -> Result<Recorded> {
        let [device, time] = words else {
            return Err(Failure::Usage("--watch takes a device and a time; see --help".to_owned()));
        };
        let device = Path::new(device);
        let time = time.to_str().ok_or_else(|| "no time".to_owned()).and_then(duration);
        let time = time.map_err(|why| {
            Failure::Usage(format!("--watch takes {why}; as --watch /dev/mmcblk0 1h"))
        })?;
        // A new one that nobody else can have prepared: this runs as root.
        let host = |err| Failure::host(&std::env::temp_dir(), &err);
        let dir = TempDir::with_prefix("syncline-watch-").map_err(host)?;
        let (size_bytes, trace) = watch::for_a_time(device, time, dir.path())?;
        Ok(Recorded { _dir: dir, trace, size_bytes: WearReplay::size_for(size_bytes) })
    }
}

/// A table under this heading; nothing if the trace knows nobody.
fn shares_text(shares: &Shares, what: &str, all_bytes: u64) -> String {
    let top = shares.top();
    if top.is_empty() {
        return String::new();
    }
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let mut rows = vec![[what, "written MB", "programmed MB", "of all"].map(str::to_owned)];
    rows.extend(top.into_iter().map(|s| {
        let share = s.programmed_bytes as f64 * 100.0 / all_bytes.max(1) as f64;
        let programmed = mb(s.programmed_bytes);
        [s.name, mb(s.written_bytes), programmed, format!("{share:.1} %")]
    }));
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    format!("\n{}", format::table(&rows, &[false, true, true, true]))
}

/// Rows about the wear of the blocks.
fn spread_rows(spread: &Spread) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let texts = spread.percentiles().map(|erases| erases.to_string());
    vec![
        row("erases p1/p25/p50/p75/p99", texts.join(" / ")),
        row("blocks not erased", format!("{} of {}", spread.unused_blocks(), spread.worn.len())),
        row(
            "rated cycles used",
            format!("{:.3} % of the most worn block's", spread.used_percent()),
        ),
    ]
}

fn text(found: &LifetimeResult) -> String {
    let (replay, c) = (&found.replay, found.replay.device().counters());
    let mut lines = rows(found);
    lines.extend(spread_rows(&found.spread));
    if let Some(slc) = &found.slc {
        let text = format!(
            "{:.2} erases per block, {} until their rated cycles",
            slc.erases_mean,
            span(slc.years)
        );
        lines.push(vec!["write cache (SLC)".to_owned(), text]);
    }
    let shares = [(replay.processes(), "process"), (replay.files(), "file")]
        .map(|(shares, what)| shares_text(shares, what, c.programmed_bytes));
    format!("{}{}\n{}", format::table(&lines, &[]), shares.concat(), end_text(found))
}

/// How long the device lasts, as far as the trace tells.
fn end_text(found: &LifetimeResult) -> String {
    let summary = || found.summary().unwrap_or_default();
    match &found.lifetime {
        None => "nothing was written: this trace wears nothing\n".to_owned(),
        Some(_) if found.no_verdict.is_some() => format!("\n{}\n", summary()),
        Some(l) => {
            // No block was erased: nothing tells how unevenly they wear.
            let worst = match l.years_worst {
                Some(years) => format!("; {} until the first block is there", span(years)),
                None => String::new(),
            };
            format!(
                "{} until {} cycles at this load if all blocks wear evenly ({:.3} TB \
                 written){worst}\n\n{}\n",
                span(l.years_even),
                found.spread.cycles,
                l.written_tb,
                summary()
            )
        }
    }
}

fn rows(found: &LifetimeResult) -> Vec<Vec<String>> {
    let LifetimeResult { profile, replay, wear, .. } = found;
    let report = replay.device().report();
    let c = &report.counters;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("device", format!("{}, {} MiB", profile.name, replay.device().size_bytes() >> 20)),
        row("load", found.load.clone()),
        row("duration", format!("{:.1} s", replay.end_ns() as f64 / 1e9)),
        row("written", format!("{:.1} MB", c.written_bytes as f64 / 1e6)),
        row("programmed", format!("{:.1} MB", c.programmed_bytes as f64 / 1e6)),
        row("write amplification", format!("{:.2}", c.write_amplification())),
        row(
            "erases per block",
            format!("{} to {}, mean {:.2}", wear.erases_min, wear.erases_max, wear.erases_mean),
        ),
        row(
            "merges",
            format!(
                "{} switch, {} partial, {} full",
                c.switch_merges, c.partial_merges, c.full_merges
            ),
        ),
    ];
    for (name, l) in [("read", report.read), ("write", report.write), ("flush", report.flush)] {
        let us = [l.latency_us_p50, l.latency_us_p95, l.latency_us_p99, l.latency_us_p999];
        let text: Vec<String> = us.iter().map(|us| format!("{us:.0}")).collect();
        let name = format!("{name} p50/p95/p99/p99.9");
        rows.push(row(&name, format!("{} us", text.join(" / "))));
    }
    rows
}
