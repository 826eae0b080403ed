//! `lifetime`: a block trace on a simulated device, and how long the device can take it.

use std::fs::File;
use std::path::Path;

use serde_json::json;
use syncline_nand::{Lifetime, Profile, Report, Simulator, Wear};
use syncline_trace::{Flags, Op, Record, TraceError, TraceKind, TraceReader};

use crate::args::Lifetime as Arguments;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::{interrupt, progress};

/// Seed of preconditioning.
const SEED: u64 = 1;
/// Smallest device that a trace is put on, bytes.
const SIZE_MIN: u64 = 64 << 20;

/// Replays and prints.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    let profile = Profile::parse_spec(&args.device, &|path| std::fs::read_to_string(path))?;
    let size = match args.size {
        Some(size) => size,
        None => end(&args.trace)?.next_power_of_two().max(SIZE_MIN),
    };
    let mut device = Simulator::new(&profile, size)?;
    device.precondition(args.precondition, SEED);
    let before = device.erases().to_vec();
    let mut replay = Replay { device, start_ns: 0, end_ns: 0 };
    let bar = progress::bar("passes", args.passes);
    for _ in 0..args.passes {
        replay.start_ns = replay.end_ns;
        each(&args.trace, &mut |record| replay.record(record))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let worn: Vec<u32> =
        replay.device.erases().iter().zip(&before).map(|(now, then)| now - then).collect();
    print(args, &profile, &replay, &Wear::of(&worn))
}

const SECTOR: u64 = 512;
/// Times of a trace beyond this one (146 years) count as this one.
const TIME_NS_MAX: u64 = 1 << 62;

/// Where a trace is on the device, and in time.
struct Replay {
    device: Simulator,
    /// When the pass began.
    start_ns: u64,
    /// When its last request was done or sent.
    end_ns: u64,
}

impl Replay {
    fn record(&mut self, record: &Record) {
        let now_ns = self.start_ns.saturating_add(record.time_ns).min(TIME_NS_MAX);
        // A device has whole sectors.
        let offset = record.offset_bytes / SECTOR * SECTOR;
        let end = record.offset_bytes.saturating_add(record.len_bytes);
        let len = (end.saturating_add(SECTOR - 1) / SECTOR * SECTOR).saturating_sub(offset);
        let device = &mut self.device;
        let mut done_ns = now_ns;
        if record.flags.has(Flags::PREFLUSH) {
            done_ns = device.flush(now_ns);
        }
        done_ns = match record.op {
            Op::Read => device.read(done_ns, offset, len),
            Op::Write => device.write(done_ns, offset, len, record.flags.has(Flags::FUA)),
            Op::Flush => device.flush(done_ns),
            Op::Discard => device.discard(done_ns, offset, len),
            _ => done_ns,
        };
        self.end_ns = self.end_ns.max(done_ns);
    }
}

/// Passes every record of a block trace on.
fn each(path: &Path, take: &mut dyn FnMut(&Record)) -> Result<()> {
    let failed = |err: TraceError| failure(err).at(path.display());
    let file = File::open(path).map_err(|err| Failure::host(path, &err))?;
    let mut reader = TraceReader::open(file).map_err(failed)?;
    if reader.header().kind != TraceKind::Block {
        let text = format!(
            "{}: a {} trace has no places on a device; record or convert a block trace",
            path.display(),
            reader.header().kind.name()
        );
        return Err(Failure::Unsupported(text));
    }
    while let Some((records, _)) = reader.next_batch().map_err(failed)? {
        interrupt::check()?;
        records.iter().filter(|record| !record.failed()).for_each(&mut *take);
    }
    Ok(())
}

/// The end of the highest request of a trace, bytes.
fn end(path: &Path) -> Result<u64> {
    let mut end = 0u64;
    each(path, &mut |record| end = end.max(record.offset_bytes.saturating_add(record.len_bytes)))?;
    Ok(end.min(1 << 50))
}

fn failure(err: TraceError) -> Failure {
    let text = err.to_string();
    match err {
        TraceError::Corrupt(_) => Failure::Corrupt(text),
        TraceError::Unsupported(_) => Failure::Unsupported(text),
        TraceError::Usage(_) => Failure::Usage(text),
        TraceError::Io { .. } | TraceError::Stopped => Failure::Failed(text),
    }
}

fn print(args: &Arguments, profile: &Profile, replay: &Replay, wear: &Wear) -> Result<()> {
    let report = replay.device.report();
    let (layout, c) = (replay.device.layout(), &report.counters);
    let cycles = profile.geometry.rated_cycles;
    let lifetime = Lifetime::of(layout, cycles, c, wear, replay.end_ns);
    let mut out = Out::new();
    if args.json {
        let life = lifetime.map(|l| {
            json!({
                "cycles_used": l.cycles_used, "wear_spread": l.wear_spread,
                "written_tb": l.written_tb, "years_even": l.years_even,
                "years_worst": l.years_worst,
            })
        });
        let document = json!({
            "schema": "syncline.lifetime/1",
            "device": profile.name, "size_bytes": replay.device.size_bytes(),
            "rated_cycles": cycles, "duration_s": replay.end_ns as f64 / 1e9,
            "written_bytes": c.written_bytes, "programmed_bytes": c.programmed_bytes,
            "write_amplification": c.write_amplification(), "erases": c.erases,
            "erases_per_block": {
                "min": wear.erases_min, "mean": wear.erases_mean, "max": wear.erases_max,
            },
            "merges": {
                "switch": c.switch_merges, "partial": c.partial_merges, "full": c.full_merges,
            },
            "lifetime": life,
        });
        out.text(format!("{document:#}\n"))?;
        return out.flush();
    }
    out.text(format::table(&rows(profile, replay, &report, wear), &[]))?;
    let end = match lifetime {
        None => "nothing was written: this trace wears nothing\n".to_owned(),
        Some(l) => format!(
            "{:.1} years until {cycles} cycles at this rate if all blocks wear evenly \
             ({:.3} TB written); {:.1} until the first block is there\n",
            l.years_even, l.written_tb, l.years_worst
        ),
    };
    out.text(end)?;
    out.flush()
}

fn rows(profile: &Profile, replay: &Replay, report: &Report, wear: &Wear) -> Vec<Vec<String>> {
    let c = &report.counters;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("device", format!("{}, {} MiB", profile.name, replay.device.size_bytes() >> 20)),
        row("duration", format!("{:.1} s", replay.end_ns as f64 / 1e9)),
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
