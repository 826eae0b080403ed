//! `replay`: a trace on a simulated device, a file, a block device, or in a directory.

use std::path::Path;

use syncline_lab::experiments::{DirectoryResult, Replay as Request, ReplayResult};
use syncline_nand::LatencyReport;

use super::trace::option;
use crate::args::Replay;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format;

/// Plays and prints.
pub(crate) fn run(args: &Replay) -> Result<()> {
    format::check_outputs(&[args.json.as_deref()])?;
    let request = Request {
        input: option(&args.input),
        device: args.device.clone(),
        dir: args.dir.clone(),
        timing: args.timing,
        depth: args.depth,
        dense: args.dense,
        overwrite: args.overwrite,
        yes: args.yes,
    };
    if let Some(dir) = &args.dir {
        let found = request.run_in(dir, &Terminal::default())?;
        let document = || format::document(&found.document(&request, dir));
        return format::show(&|| directory_text(dir, &found), &document, args.json.as_deref());
    }
    let found = request.run(&Terminal::default())?;
    let document = || format::document(&found.document(&request));
    format::show(&|| text(&found), &document, args.json.as_deref())
}

fn latency(name: &str, report: &LatencyReport) -> Option<Vec<String>> {
    let us = [
        report.latency_us_p50,
        report.latency_us_p95,
        report.latency_us_p99,
        report.latency_us_p999,
        report.latency_us_max,
    ];
    let us = us.map(|us| format!("{us:.0}")).join(" / ");
    let name = format!("{name} p50 / p95 / p99 / p99.9 / max");
    (report.count > 0).then(|| vec![name, format!("{us} us")])
}

fn text(found: &ReplayResult) -> String {
    let ReplayResult { device, played, direct } = found;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let moved = |count: u64, bytes: u64| format!("{count}, {:.1} MB", bytes as f64 / 1e6);
    let clock = match direct {
        None => "virtual time",
        Some(true) => "real time, O_DIRECT",
        Some(false) => "real time, through the page cache: the file takes no O_DIRECT",
    };
    let mut rows = vec![
        row("device", format!("{device}, {clock}")),
        row("elapsed", format!("{:.3} s", played.elapsed_s)),
        row("reads", moved(played.reads, played.read_bytes)),
        row("writes", moved(played.writes, played.written_bytes)),
        row("flushes, discards", format!("{}, {}", played.flushes, played.discards)),
    ];
    rows.extend(latency("read", &played.read));
    rows.extend(latency("write", &played.write));
    rows.extend(latency("flush", &played.flush));
    if let Some(flash) = &played.flash {
        let merges = [flash.switch_merges, flash.partial_merges, flash.full_merges];
        let [switch, partial, full] = merges;
        rows.push(row("merges", format!("{switch} switch, {partial} partial, {full} full")));
        let amplification = flash.write_amplification();
        rows.push(row(
            "erases",
            format!("{}, write amplification {amplification:.2}", flash.erases),
        ));
    }
    format::table(&rows, &[])
}

fn directory_text(dir: &Path, found: &DirectoryResult) -> String {
    let played = &found.0;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let (p50, p99) = (played.sync_latency_us_p50, played.sync_latency_us_p99);
    let rows = [
        row("directory", format!("{}, real time", dir.display())),
        row("elapsed", format!("{:.3} s", played.elapsed_s)),
        row("calls", format!("{} of {} threads", played.calls, played.threads)),
        row("left out", format!("{}, which the trace cannot explain", played.left_out)),
        row("read, written", format!("{}, {}", mb(played.read_bytes), mb(played.written_bytes))),
        row(
            "syncs p50/p99/max",
            format!("{p50:.0} / {p99:.0} / {:.0} us", played.sync_latency_us_max),
        ),
    ];
    format::table(&rows, &[])
}
