//! A block trace on a simulated device, and the lifetime of the device under it.

mod text;

use std::path::{Path, PathBuf};

use crate::evaluate::{Origins, Share, Shares, WearReplay};
use crate::observer::Observer;
use crate::trace::{Names, Record, TraceBytes, TraceKind, TraceReader};
use serde::Deserialize;
use serde_json::{Value, json};
use syncline_nand::{Lifetime, Profile, SlcWear, Wear};

use crate::error::{LabError, Result};
use crate::experiments::profile;

/// A file with less than this share of what is programmed is not named alone, per cent.
const FILE_PERCENT_MIN: f64 = 25.0;
/// From this share of what is programmed on, an option that writes less of it is named, per cent.
const JOURNAL_PERCENT_MIN: f64 = 25.0;
/// As that, of data that a caller waits for.
const SYNCED_PERCENT_MIN: f64 = 50.0;
/// A run shorter than this says nothing about days, seconds.
const VERDICT_S_MIN: f64 = 1800.0;
const DAY_S: f64 = 86_400.0;
/// Shares of the blocks whose erases are told, percent.
const PERCENTILES: [u32; 5] = [1, 25, 50, 75, 99];

/// Request of `syncline-lab lifetime`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifetimeRequest {
    /// A block trace of ours.
    pub trace: PathBuf,
    /// Device profile, with overrides.
    pub device: String,
    /// Size of the device, bytes; by itself the power of two that holds the trace.
    pub size: Option<u64>,
    /// Fill the mapping to this share and overwrite at random first, percent.
    pub precondition: u32,
    /// Times that the trace runs, one after the other.
    pub passes: u64,
    /// Times a day that the trace happens; by itself as often as its own time allows.
    pub per_day: Option<f64>,
}

impl Default for LifetimeRequest {
    fn default() -> LifetimeRequest {
        LifetimeRequest {
            trace: PathBuf::new(),
            device: "nexus7-emmc".to_owned(),
            size: None,
            precondition: 80,
            passes: 1,
            per_day: None,
        }
    }
}

/// The wear that a trace causes.
pub struct LifetimeResult {
    /// The device's profile.
    pub profile: Profile,
    /// The device after the last pass.
    pub replay: WearReplay,
    /// Erases of each block.
    pub spread: Spread,
    /// Least, mean and most erases of a block.
    pub wear: Wear,
    /// Cycles of the run, and the time until the rated ones; none if nothing was written.
    pub lifetime: Option<Lifetime>,
    /// Why that time is not to be believed.
    pub no_verdict: Option<String>,
    /// The load in words: the trace, its time, and how often it happens.
    pub load: String,
    /// Wear of the SLC write cache, if there is one.
    pub slc: Option<SlcWear>,
}

impl LifetimeRequest {
    /// Replays the trace.
    #[cfg(not(target_family = "wasm"))]
    pub fn run(&self, observer: &dyn Observer) -> Result<LifetimeResult> {
        self.run_on(&super::trace_file::bytes_of(&self.trace)?, observer)
    }

    /// As [`LifetimeRequest::run`], of a trace in `bytes`, which [`LifetimeRequest::trace`] names.
    pub fn run_on(&self, bytes: &TraceBytes, observer: &dyn Observer) -> Result<LifetimeResult> {
        if self.precondition > 95 {
            return Err(LabError::Usage("precondition is at most 95 per cent".to_owned()));
        }
        let profile = profile(&self.device)?;
        let size = match self.size {
            Some(size) => size,
            None => WearReplay::size_for(end(&self.trace, bytes, observer)?),
        };
        let mut replay = WearReplay::new(&profile, size, self.precondition)?;
        observer.begin("passes", self.passes);
        for _ in 0..self.passes {
            replay.begin_pass();
            let mut play = |record: &Record, names: &Names| replay.record(record, names);
            let duration_ns = each(&self.trace, bytes, observer, &mut play)?;
            replay.idle_until(duration_ns);
            observer.advance(1);
        }
        observer.end();
        let passes = self.passes.max(1);
        let pass_s = replay.end_ns() as f64 / 1e9 / passes as f64;
        let often = match self.per_day {
            Some(per_day) => format!("{per_day} times a day"),
            None => "again and again, with the pauses it has".to_owned(),
        };
        let load = format!("{}, {pass_s:.1} s of this device, {often}", self.trace.display());
        let elapsed_ns = self.elapsed_ns(pass_s, replay.end_ns())?;
        let cycles = profile.geometry.rated_cycles;
        let spread = Spread { worn: replay.worn(), cycles };
        let wear = Wear::of(&spread.worn);
        let c = replay.device().counters();
        let lifetime = Lifetime::of(replay.device().layout(), cycles, &c, &wear, elapsed_ns);
        let no_verdict = self.no_verdict(&profile, pass_s);
        let slc = profile.slc.map(|slc| {
            let blocks = replay.device().slc_blocks();
            SlcWear::of(slc.slc_rated_cycles, blocks, c.slc_erases, elapsed_ns)
        });
        Ok(LifetimeResult { profile, replay, spread, wear, lifetime, no_verdict, load, slc })
    }

    /// The time in which the passes happen.
    fn elapsed_ns(&self, pass_s: f64, end_ns: u64) -> Result<u64> {
        let Some(per_day) = self.per_day else { return Ok(end_ns) };
        if !(per_day > 0.0 && per_day.is_finite()) {
            return Err(LabError::Usage(
                "per_day is not above 0; give a number of times a day".to_owned(),
            ));
        }
        let each_s = DAY_S / per_day;
        if each_s < pass_s {
            let most = DAY_S / pass_s;
            let text = format!(
                "the device needs {pass_s:.1} s for the trace; give at most {most:.0} times a day"
            );
            return Err(LabError::Usage(text));
        }
        Ok((each_s * self.passes.max(1) as f64 * 1e9) as u64)
    }

    /// Why no time follows from the run.
    fn no_verdict(&self, profile: &Profile, pass_s: f64) -> Option<String> {
        let unknown =
            |line: &String| line.contains("not determined") && line.contains("rated_cycles");
        if profile.source.fitted.iter().any(unknown) && !self.device.contains("rated_cycles=") {
            let text = "no time follows: a probe does not tell the rated cycles; give them, as \
                        --device ./card.toml:rated_cycles=3000";
            return Some(text.to_owned());
        }
        (self.per_day.is_none() && pass_s < VERDICT_S_MIN).then(|| {
            let why = format!("no time follows from a trace of {pass_s:.1} s");
            format!("{why}; say how often it happens, as --per-day 20")
        })
    }
}

/// Passes every record of a block trace on. Returns how long was recorded, as far as it says that.
fn each(
    path: &Path,
    bytes: &TraceBytes,
    observer: &dyn Observer,
    take: &mut dyn FnMut(&Record, &Names) -> Result<()>,
) -> Result<u64> {
    let failed = |err: LabError| err.at(path.display());
    let mut reader = TraceReader::open(bytes.clone()).map_err(failed)?;
    if reader.header().kind != TraceKind::Block {
        let text = format!(
            "{}: a {} trace has no places on a device; record or convert a block trace",
            path.display(),
            reader.header().kind.name()
        );
        return Err(LabError::Unsupported(text));
    }
    while let Some((records, names)) = reader.next_batch().map_err(failed)? {
        if observer.stopped() {
            return Err(LabError::Interrupted);
        }
        for record in records.iter().filter(|record| !record.failed()) {
            take(record, names)?;
        }
    }
    Ok(reader.duration_ns().unwrap_or(0))
}

/// The end of the highest request of a trace, bytes.
fn end(path: &Path, bytes: &TraceBytes, observer: &dyn Observer) -> Result<u64> {
    let mut end = 0u64;
    each(path, bytes, observer, &mut |record, _| {
        end = end.max(record.offset_bytes.saturating_add(record.len_bytes));
        Ok(())
    })?;
    Ok(end.min(1 << 50))
}

/// The wear of a used device as its S.M.A.R.T. page would tell it.
pub struct Spread {
    /// Erases of each block by the trace.
    pub worn: Vec<u32>,
    /// Rated erase cycles of a block.
    pub cycles: u32,
}

impl Spread {
    /// Share of the rated cycles that the run used of the most worn block, percent.
    pub fn used_percent(&self) -> f64 {
        let most = self.worn.iter().copied().max().unwrap_or(0);
        f64::from(most) * 100.0 / f64::from(self.cycles)
    }

    /// Erases that 1, 25, 50, 75 and 99 per cent of the blocks do not exceed.
    pub fn percentiles(&self) -> [u32; PERCENTILES.len()] {
        PERCENTILES.map(|percent| Wear::percentile(&self.worn, percent))
    }

    /// Blocks that were never erased.
    pub fn unused_blocks(&self) -> usize {
        self.worn.iter().filter(|erases| **erases == 0).count()
    }

    fn json(&self, wear: &Wear) -> Value {
        let [p1, p25, p50, p75, p99] = self.percentiles();
        json!({
            "min": wear.erases_min, "mean": wear.erases_mean, "max": wear.erases_max,
            "p1": p1, "p25": p25, "p50": p50, "p75": p75, "p99": p99,
            "blocks": self.worn.len(), "blocks_not_erased": self.unused_blocks(),
            "used_percent": self.used_percent(),
        })
    }
}

fn shares_json(shares: &Shares) -> Vec<Value> {
    let share = |s: Share| {
        json!({
            "name": s.name, "written_bytes": s.written_bytes,
            "programmed_bytes": s.programmed_bytes,
        })
    };
    shares.top().into_iter().map(share).collect()
}

/// Years, or days and hours where there are less than two.
pub fn span(years: f64) -> String {
    let days = years * 365.25;
    if years >= 2.0 {
        format!("{years:.1} years")
    } else if days >= 2.0 {
        format!("{days:.1} days")
    } else {
        format!("{:.1} hours", days * 24.0)
    }
}

/// The mount option that writes less of what was programmed most.
fn advice(origins: &Origins, programmed_bytes: u64) -> String {
    let percent = |bytes: u64| bytes as f64 * 100.0 / programmed_bytes.max(1) as f64;
    let synced = percent(origins.synced_data);
    let journal = percent(origins.journal);
    if percent(origins.unknown) >= 50.0 {
        "The trace does not tell journal from data; one of `syncline mount -o trace=NAME` does."
            .to_owned()
    } else if journal >= JOURNAL_PERCENT_MIN {
        format!(
            "{journal:.0} % is the journal, written at syncs: `log=packed` writes bytes in place \
             of blocks there; `sync=periodic` writes hardly any, and a power cut then takes the \
             last seconds."
        )
    } else if synced >= SYNCED_PERCENT_MIN {
        format!(
            "{synced:.0} % is data of syncs and unmounts: `relaxed=GLOB` writes it later, for \
             files that may lose a minute; `sync=periodic` does for all files, and they lose \
             seconds."
        )
    } else {
        "Little of it is written for syncs, and no option of the mount writes less of the rest."
            .to_owned()
    }
}

impl LifetimeResult {
    /// Sentences for a reader: how long the flash lasts, who wears it, and which option of a mount
    /// helps; none if nothing was programmed.
    pub fn summary(&self) -> Option<String> {
        let programmed = self.replay.device().counters().programmed_bytes;
        let lifetime = self.lifetime.as_ref()?;
        let percent = |share: &Share| share.programmed_bytes as f64 * 100.0 / programmed as f64;
        let device = (&self.profile.name, self.replay.device().size_bytes() >> 20);
        let mut text = match &self.no_verdict {
            None => format!(
                "With {} the flash of {}, {} MiB, lasts {}.",
                self.load,
                device.0,
                device.1,
                span(lifetime.years_even)
            ),
            Some(why) => format!("{}.", capital(why)),
        };
        if let Some(program) = self.replay.processes().by_program().most() {
            text += &format!(" {} wears it most, {:.0} %", program.name, percent(program));
        }
        let directories = self.replay.files().by_directory();
        let file = self.replay.files().most();
        let single = file.filter(|file| percent(file) >= FILE_PERCENT_MIN);
        if let Some(place) = single.or(directories.most()).or(file) {
            let of = if single.is_some() { "of files" } else { "of directories" };
            text += &format!("; {of} {}, {:.0} %", place.name, percent(place));
        }
        if !text.ends_with('.') {
            text.push('.');
        }
        Some(format!("{text} {}", advice(&self.replay.origins(), programmed)))
    }

    /// The document of schema `syncline.lifetime/1`.
    pub fn document(&self) -> Value {
        let (replay, c) = (&self.replay, self.replay.device().counters());
        let origins = replay.origins();
        let believed = self.no_verdict.is_none();
        let life = self.lifetime.as_ref().map(|l| {
            json!({
                "cycles_used": l.cycles_used, "wear_spread": l.wear_spread,
                "written_tb": l.written_tb, "years_even": believed.then_some(l.years_even),
                "years_worst": l.years_worst.filter(|_| believed),
            })
        });
        json!({
            "schema": "syncline.lifetime/1",
            "device": self.profile.name, "size_bytes": replay.device().size_bytes(),
            "rated_cycles": self.spread.cycles, "duration_s": replay.end_ns() as f64 / 1e9,
            "written_bytes": c.written_bytes, "programmed_bytes": c.programmed_bytes,
            "write_amplification": c.write_amplification(), "erases": c.erases,
            "wakeups": c.wakeups, "joules": replay.joules(&self.profile),
            "erases_per_block": self.spread.json(&self.wear),
            "slc": self.slc.as_ref().map(|slc| json!({
                "erases_per_block_mean": slc.erases_mean,
                "years": Some(slc.years).filter(|years| years.is_finite()),
                "folded_units": c.slc_folded_units,
            })),
            "processes": shares_json(replay.processes()), "files": shares_json(replay.files()),
            "merges": {
                "switch": c.switch_merges, "partial": c.partial_merges, "full": c.full_merges,
            },
            "lifetime": life,
            "origins": {
                "journal": origins.journal, "synced_data": origins.synced_data,
                "other_data": origins.other_data, "metadata": origins.metadata,
                "unknown": origins.unknown,
            },
            "load": self.load,
            "summary": self.summary(),
        })
    }
}

/// A sentence of a message that begins in the middle of one.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
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

    #[test]
    fn the_option_is_for_what_is_programmed_most() {
        let say = |journal, synced_data, other_data, unknown| {
            advice(&Origins { journal, synced_data, other_data, metadata: 0, unknown }, 100)
        };
        assert!(say(40, 10, 50, 0).contains("40 % is the journal"));
        assert!(say(20, 60, 20, 0).contains("60 % is data"));
        assert!(say(5, 5, 90, 0).contains("no option"));
        assert!(say(20, 20, 0, 60).contains("does not tell"));
    }
}
