//! `lifetime`: a block trace on a simulated device, and how long the device can take it.

use std::fs::File;
use std::path::Path;

use serde_json::json;
use syncline_evaluate::{Share, Shares, WearReplay};
use syncline_nand::{Lifetime, Profile, Report, SlcWear, Wear};
use syncline_trace::{Names, Record, TraceError, TraceKind, TraceReader};

use crate::args::Lifetime as Arguments;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::{interrupt, progress};

/// Shares of the blocks whose erases are told, percent.
const PERCENTILES: [u32; 5] = [1, 25, 50, 75, 99];

/// Replays and prints.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    let profile = Profile::parse_spec(&args.device, &|path| std::fs::read_to_string(path))?;
    let size = match args.size {
        Some(size) => size,
        None => WearReplay::size_for(end(&args.trace)?),
    };
    let mut replay = WearReplay::new(&profile, size, args.precondition)?;
    let bar = progress::bar("passes", args.passes);
    for _ in 0..args.passes {
        replay.begin_pass();
        each(&args.trace, &mut |record, names| Ok(replay.record(record, names)?))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    print(args, &profile, &replay, &replay.worn())
}

fn shares_json(shares: &Shares) -> Vec<serde_json::Value> {
    let share = |s: Share| {
        json!({
            "name": s.name, "written_bytes": s.written_bytes,
            "programmed_bytes": s.programmed_bytes,
        })
    };
    shares.top().into_iter().map(share).collect()
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

/// Passes every record of a block trace on.
fn each(path: &Path, take: &mut dyn FnMut(&Record, &Names) -> Result<()>) -> Result<()> {
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
    while let Some((records, names)) = reader.next_batch().map_err(failed)? {
        interrupt::check()?;
        for record in records.iter().filter(|record| !record.failed()) {
            take(record, names)?;
        }
    }
    Ok(())
}

/// The end of the highest request of a trace, bytes.
fn end(path: &Path) -> Result<u64> {
    let mut end = 0u64;
    each(path, &mut |record, _| {
        end = end.max(record.offset_bytes.saturating_add(record.len_bytes));
        Ok(())
    })?;
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

/// The wear of a used device as its S.M.A.R.T. page would tell it.
struct Spread<'a> {
    worn: &'a [u32],
    cycles: u32,
}

impl Spread<'_> {
    /// Share of the rated cycles that the run used of the most worn block, percent.
    fn used_percent(&self) -> f64 {
        let most = self.worn.iter().copied().max().unwrap_or(0);
        f64::from(most) * 100.0 / f64::from(self.cycles)
    }

    fn percentiles(&self) -> [u32; PERCENTILES.len()] {
        PERCENTILES.map(|percent| Wear::percentile(self.worn, percent))
    }

    fn unused_blocks(&self) -> usize {
        self.worn.iter().filter(|erases| **erases == 0).count()
    }

    fn json(&self, wear: &Wear) -> serde_json::Value {
        let [p1, p25, p50, p75, p99] = self.percentiles();
        json!({
            "min": wear.erases_min, "mean": wear.erases_mean, "max": wear.erases_max,
            "p1": p1, "p25": p25, "p50": p50, "p75": p75, "p99": p99,
            "blocks": self.worn.len(), "blocks_not_erased": self.unused_blocks(),
            "used_percent": self.used_percent(),
        })
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let texts = self.percentiles().map(|erases| erases.to_string());
        vec![
            row("erases p1/p25/p50/p75/p99", texts.join(" / ")),
            row("blocks not erased", format!("{} of {}", self.unused_blocks(), self.worn.len())),
            row(
                "rated cycles used",
                format!("{:.3} % of the most worn block's", self.used_percent()),
            ),
        ]
    }
}

fn print(args: &Arguments, profile: &Profile, replay: &WearReplay, worn: &[u32]) -> Result<()> {
    let wear = &Wear::of(worn);
    let report = replay.device().report();
    let (layout, c) = (replay.device().layout(), &report.counters);
    let cycles = profile.geometry.rated_cycles;
    let lifetime = Lifetime::of(layout, cycles, c, wear, replay.end_ns());
    let spread = Spread { worn, cycles };
    let slc = profile.slc.map(|slc| {
        let blocks = replay.device().slc_blocks();
        SlcWear::of(slc.slc_rated_cycles, blocks, c.slc_erases, replay.end_ns())
    });
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
            "device": profile.name, "size_bytes": replay.device().size_bytes(),
            "rated_cycles": cycles, "duration_s": replay.end_ns() as f64 / 1e9,
            "written_bytes": c.written_bytes, "programmed_bytes": c.programmed_bytes,
            "write_amplification": c.write_amplification(), "erases": c.erases,
            "erases_per_block": spread.json(wear),
            "slc": slc.map(|slc| json!({
                "erases_per_block_mean": slc.erases_mean,
                "years": Some(slc.years).filter(|years| years.is_finite()),
                "folded_units": c.slc_folded_units,
            })),
            "processes": shares_json(replay.processes()), "files": shares_json(replay.files()),
            "merges": {
                "switch": c.switch_merges, "partial": c.partial_merges, "full": c.full_merges,
            },
            "lifetime": life,
        });
        out.text(format!("{document:#}\n"))?;
        return out.flush();
    }
    let mut lines = rows(profile, replay, &report, wear);
    lines.extend(spread.rows());
    if let Some(slc) = slc {
        let text = format!(
            "{:.2} erases per block, {} until their rated cycles",
            slc.erases_mean,
            span(slc.years)
        );
        lines.push(vec!["write cache (SLC)".to_owned(), text]);
    }
    out.text(format::table(&lines, &[]))?;
    out.text(shares_text(replay.processes(), "process", c.programmed_bytes))?;
    out.text(shares_text(replay.files(), "file", c.programmed_bytes))?;
    out.text("\n")?;
    let end = match lifetime {
        None => "nothing was written: this trace wears nothing\n".to_owned(),
        Some(l) => format!(
            "{} until {cycles} cycles at this rate if all blocks wear evenly \
             ({:.3} TB written); {} until the first block is there\n",
            span(l.years_even),
            l.written_tb,
            span(l.years_worst)
        ),
    };
    out.text(end)?;
    out.flush()
}

fn rows(profile: &Profile, replay: &WearReplay, report: &Report, wear: &Wear) -> Vec<Vec<String>> {
    let c = &report.counters;
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let mut rows = vec![
        row("device", format!("{}, {} MiB", profile.name, replay.device().size_bytes() >> 20)),
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

/// Years, or days and hours where there are less than two.
fn span(years: f64) -> String {
    let days = years * 365.25;
    if years >= 2.0 {
        format!("{years:.1} years")
    } else if days >= 2.0 {
        format!("{days:.1} days")
    } else {
        format!("{:.1} hours", days * 24.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_are_days_and_hours() {
        assert_eq!(span(11.04), "11.0 years");
        assert_eq!(span(5.0 / 365.25), "5.0 days");
        assert_eq!(span(0.5 / 365.25), "12.0 hours");
        assert_eq!(span(f64::INFINITY), "inf years");
    }
}
