//! `replay`: a trace on a simulated device, a file, a block device, or in a directory.
//!
//! A trace of block requests is read twice: where it goes to and whether it writes, then to be
//! played; it is never in memory. `os::guard` decides what may be written to.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use indicatif::ProgressBar;
use serde_json::{Value, json};
use syncline_cache::Access;
use syncline_device::BlockDevice;
use syncline_evaluate::os::{Sender, guard, play_on};
use syncline_evaluate::{Feed, PAGE_BYTES, Pace, PageTrace, Played, Survey, VirtualPlayer};
use syncline_nand::{LatencyReport, Profile};
use syncline_replay::{DirectoryReplay, ReplayTrace};
use syncline_trace::{Op, Record, TraceKind};

use super::cache::pages;
use super::trace::source::Source;
use crate::args::Replay;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::{interrupt, progress};

/// Plays and prints.
pub(crate) fn run(args: &Replay) -> Result<()> {
    format::check_outputs(&[args.json.as_deref()])?;
    if let Some(dir) = &args.dir {
        return in_directory(args, dir);
    }
    let Some(device) = &args.device else {
        return Err(Failure::Usage("name a --device or a --dir; see --help".to_owned()));
    };
    let trace = Requests::open(args)?;
    let pace = Pace { depth: args.depth.into(), timing: args.timing };
    let path = Path::new(device);
    let real = path.extension().is_none_or(|extension| extension != "toml")
        && std::fs::metadata(path).is_ok_and(|m| m.is_file() || m.file_type().is_block_device());
    let bar = progress::bar("requests", trace.survey.records());
    let (played, direct) = if real {
        let device = guard::open(path, trace.survey.writes(), args.overwrite, args.yes)?;
        let end = trace.survey.end_bytes();
        if end > device.geometry().size_bytes {
            let text = format!(
                "{} has {} bytes, the trace goes to {end}; leave out what it does not touch with \
                 --dense, or take a larger one",
                path.display(),
                device.geometry().size_bytes
            );
            return Err(Failure::Usage(text));
        }
        let feed =
            |sender: &mut Sender<'_, '_>| trace.each(&bar, &mut |record| Ok(sender.play(record)?));
        (play_on::<Failure>(&device, pace, feed)?, Some(device.is_direct()))
    } else {
        let profile = Profile::parse_spec(device, &|path| std::fs::read_to_string(path))?;
        let mut player = VirtualPlayer::new(&profile, trace.survey.end_bytes(), pace)?;
        trace.each(&bar, &mut |record| Ok(player.play(record)?))?;
        (player.finish(), None)
    };
    bar.finish_and_clear();
    print(args, device, &played, direct)
}

/// Requests to play: those of a block trace, or the pages of a page trace.
struct Requests<'a> {
    args: &'a Replay,
    pages: Option<PageTrace>,
    survey: Survey,
}

impl<'a> Requests<'a> {
    fn open(args: &'a Replay) -> Result<Requests<'a>> {
        let path = &args.input.trace;
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            let text = "a trace is read twice, so it has to be a file; store it first";
            return Err(Failure::Usage(format!("{}: {text}", path.display())));
        }
        let source = Source::open(&args.input.input())?;
        match source.header().kind {
            TraceKind::Block => {}
            TraceKind::Page => {
                let pages = pages(&args.input, args.dense)?.pages;
                return Ok(Requests { args, survey: Survey::of_pages(&pages), pages: Some(pages) });
            }
            TraceKind::Syscall => {
                let text = format!(
                    "{}: system calls have no places on a device; play them with --dir, or make a \
                     block trace of them with `syncline cache --after-cache`",
                    path.display()
                );
                return Err(Failure::Usage(text));
            }
        }
        let mut survey = Survey::new(args.dense);
        source.read(path, &mut survey)?;
        survey.settle();
        Ok(Requests { args, pages: None, survey })
    }

    /// Passes every request on.
    fn each(&self, bar: &ProgressBar, play: &mut dyn FnMut(&Record) -> Result<()>) -> Result<()> {
        if let Some(pages) = &self.pages {
            for at in 0..pages.accesses() {
                let Some(page) = pages.access(at) else { break };
                let op = if page.access == Access::Write { Op::Write } else { Op::Read };
                let record = Record::new(pages.time_ns(at), op);
                play(&record.range(page.key.index * PAGE_BYTES, PAGE_BYTES))?;
                if at % 1024 == 0 {
                    bar.set_position(at as u64);
                    interrupt::check()?;
                }
            }
            return Ok(());
        }
        let source = Source::open(&self.args.input.input())?;
        let mut failed = None;
        let mut each = |record: &Record| {
            bar.inc(1);
            play(record)
        };
        let mut feed = Feed::new(&self.survey, &mut each, &mut failed);
        let read = source.read(&self.args.input.trace, &mut feed);
        match failed {
            Some(failure) => Err(failure),
            None => read.map(drop),
        }
    }
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
    let name = format!("{name} p50/p95/p99/p99.9/max");
    (report.count > 0).then(|| vec![name, format!("{us} us")])
}

fn print(args: &Replay, device: &str, played: &Played, direct: Option<bool>) -> Result<()> {
    let mut out = Out::new();
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        out.text(document(args, device, played, direct))?;
        return out.flush();
    }
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
    out.text(format::table(&rows, &[]))?;
    out.flush()?;
    match &args.json {
        Some(path) => format::write_file(path, document(args, device, played, direct).as_bytes()),
        None => Ok(()),
    }
}

fn document(args: &Replay, device: &str, played: &Played, direct: Option<bool>) -> String {
    let of = |report: &LatencyReport| {
        json!({
            "count": report.count,
            "latency_us_mean": report.latency_us_mean,
            "latency_us_p50": report.latency_us_p50,
            "latency_us_p95": report.latency_us_p95,
            "latency_us_p99": report.latency_us_p99,
            "latency_us_p999": report.latency_us_p999,
            "latency_us_max": report.latency_us_max,
        })
    };
    let flash = played.flash.as_ref().map(|flash| -> Value {
        json!({
            "page_programs": flash.page_programs,
            "erases": flash.erases,
            "merges": flash.switch_merges + flash.partial_merges + flash.full_merges,
            "write_amplification": flash.write_amplification(),
        })
    });
    let document = json!({
        "schema": "syncline.replay/1",
        "trace": args.input.trace.display().to_string(),
        "device": device,
        "clock": if direct.is_none() { "virtual" } else { "wall" },
        "direct": direct,
        "depth": args.depth,
        "timing": args.timing,
        "elapsed_s": played.elapsed_s,
        "reads": played.reads, "read_bytes": played.read_bytes,
        "writes": played.writes, "written_bytes": played.written_bytes,
        "flushes": played.flushes, "discards": played.discards,
        "read": of(&played.read), "write": of(&played.write), "flush": of(&played.flush),
        "flash": flash,
    });
    format!("{document:#}\n")
}

/// Plays system calls in a new directory in `dir`.
fn in_directory(args: &Replay, dir: &Path) -> Result<()> {
    let path = &args.input.trace;
    let source = Source::open(&args.input.input())?;
    if source.header().kind != TraceKind::Syscall {
        let text = format!("{}: only system calls play in a directory", path.display());
        return Err(Failure::Usage(text + "; play it on a --device"));
    }
    let mut records = Vec::new();
    let (_, names) = source.read(path, &mut records)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let trace = ReplayTrace { name, records, names };
    let bar = progress::bar("calls", trace.records.len() as u64);
    let replay = DirectoryReplay { dir, timing: args.timing };
    let played = replay.run(&trace, &|done| {
        bar.set_position(done);
        !interrupt::asked()
    });
    bar.finish_and_clear();
    let played = played?;
    interrupt::check()?;
    let document = json!({
        "schema": "syncline.replay/1",
        "trace": path.display().to_string(),
        "dir": dir.display().to_string(),
        "clock": "wall",
        "timing": args.timing,
        "threads": played.threads,
        "elapsed_s": played.elapsed_s,
        "calls": played.calls, "left_out": played.left_out,
        "read_bytes": played.read_bytes, "written_bytes": played.written_bytes,
        "sync_calls": played.sync_calls,
        "sync_latency_us_p50": played.sync_latency_us_p50,
        "sync_latency_us_p99": played.sync_latency_us_p99,
        "sync_latency_us_max": played.sync_latency_us_max,
    });
    let document = format!("{document:#}\n");
    let mut out = Out::new();
    if args.json.as_deref() == Some(Path::new("-")) {
        out.text(document)?;
        return out.flush();
    }
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
    out.text(format::table(&rows, &[]))?;
    out.flush()?;
    match &args.json {
        Some(path) => format::write_file(path, document.as_bytes()),
        None => Ok(()),
    }
}
