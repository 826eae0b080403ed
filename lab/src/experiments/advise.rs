//! The mount options that suit a program on a device: each remedy of this project, tried on a trace
//! of the program's calls.
//!
//! ```text
//!   trace of calls ── Replay ──> Trial   one per combination: time, latency, bytes, flash pages
//!                                  |
//!                                  v     for each promise its best trial. A promise says what a
//!                               Advice   power cut keeps, and who recovers the image
//! ```
//!
//! Promises
//! - Every combination of the remedies runs ([`Remedy::all`]); nothing is estimated. Among those
//!   of the same promise none has a score more than [`NEAR`] (1 %) above that of the advised one.
//! - A score comes from two times: up to the last call, and with the unmount. Each is compared with
//!   the shortest of the same promise: shortest / own. The score is the smaller of the two. So work
//!   that is put off until after the last call does not count as saved.
//! - Equal traces and devices give equal advice.
//!
//! Not among the remedies: `mtime_update=MS`, which saves a few per cent more than `seen` in some
//! captures, since with `seen` programs still see every change of a time; allocation policies,
//! which need an aged volume; FlashLite logs, which need the name of a file.
//!
//! Tested in `lab/tests/program/advise.rs`, and beside another search in `lab/tests/replay`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use syncline_device::BlockDevice;

use crate::error::{LabError, Result};
use crate::experiments::Bench;
use crate::observer::Observer;
use crate::replay::Replayed;

/// Trials whose scores differ by less count as equal; the one that wears less is advised.
const NEAR: f64 = 0.01;
/// Gains below this are not worth a weaker promise.
const GAIN_MIN: f64 = 1.03;
/// Length of the log of a write buffer.
const LOG_BYTES: u64 = 64 << 20;
const YEAR_DAYS: f64 = 365.25;

/// Request of `syncline-lab advise`; fields are its options.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Advise {
    /// The traces of calls, and the volume; the remedies replace its sync mode.
    pub bench: Bench,
    /// Times a day that a trace happens.
    pub per_day: Option<f64>,
}

/// The data that a cut of the power keeps. The order is that of strength.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keeps {
    /// Everything that was synced.
    Syncs,
    /// All of the volume as it was a few seconds before.
    SyncPoint,
    /// Everything that was synced up to a minute before; files may be torn.
    Minute,
}

impl Keeps {
    fn name(self) -> &'static str {
        match self {
            Keeps::Syncs => "syncs",
            Keeps::SyncPoint => "sync_point",
            Keeps::Minute => "minute",
        }
    }

    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Keeps::Syncs => "every fsync",
            Keeps::SyncPoint => "the last sync point",
            Keeps::Minute => "all but the last minute",
        }
    }
}

/// The data that is kept, and true if any Linux recovers it; the strongest first.
const PROMISES: [(Keeps, bool); 6] = [
    (Keeps::Syncs, true),
    (Keeps::Syncs, false),
    (Keeps::SyncPoint, true),
    (Keeps::SyncPoint, false),
    (Keeps::Minute, true),
    (Keeps::Minute, false),
];

/// A combination of mount options.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Remedy {
    /// As for `-o`, without the name of a buffer's log.
    pub options: String,
    /// The data that a cut of the power keeps.
    pub keeps: Keeps,
    /// Any Linux recovers the image after a crash; of others Syncline does.
    pub linux: bool,
    /// With `buffer_log=`.
    pub buffer: bool,
}

impl Remedy {
    /// Every combination; the first is an ext4 as it is.
    #[must_use]
    pub fn all() -> Vec<Remedy> {
        let mut all = Vec::new();
        for base in [
            "sync=ordered",
            "sync=eager",
            "sync=eager,log=packed",
            "sync=periodic",
            "sync=periodic,log=packed",
        ] {
            let (periodic, packed) = (base.contains("periodic"), base.contains("packed"));
            for (seen, relaxed, buffer) in (0..8).map(|n| (n & 1 > 0, n & 2 > 0, n & 4 > 0)) {
                // Periodic mode has no relaxed files.
                if periodic && relaxed {
                    continue;
                }
                let more = [(seen, ",mtime_update=seen"), (relaxed, ",relaxed=*")];
                let more = more.into_iter().filter(|(is_on, _)| *is_on).map(|(_, text)| text);
                let keeps = match (periodic, relaxed) {
                    (true, _) => Keeps::SyncPoint,
                    (_, true) => Keeps::Minute,
                    _ => Keeps::Syncs,
                };
                let options = std::iter::once(base).chain(more).collect();
                all.push(Remedy { options, keeps, linux: !packed && !buffer, buffer });
            }
        }
        all
    }

    /// The promises that are given up beside an ext4 as it is.
    #[must_use]
    pub fn risks(&self) -> Vec<&'static str> {
        let mut risks = Vec::new();
        match self.keeps {
            Keeps::Syncs => {}
            Keeps::SyncPoint => risks.push(
                "a crash takes the whole volume back to the last sync point, about 5 s before; \
                 strict=GLOB excepts files",
            ),
            Keeps::Minute => risks.push(
                "a crash may lose the last minute of any file, synced or not, and tear it; give a \
                 narrower relaxed=GLOB",
            ),
        }
        if self.buffer {
            risks.push("the log of the buffer needs a file on another file system, or a partition");
        }
        if !self.linux {
            risks
                .push("after a crash Syncline recovers the image, and Linux refuses it until then");
        }
        risks
    }
}

/// The figures of one remedy: of all traces together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The options that were tried.
    #[serde(flatten)]
    pub remedy: Remedy,
    /// Seconds up to the last call.
    pub foreground_s: f64,
    /// Seconds with the unmount.
    pub whole_s: f64,
    /// 99th percentile of the latency of a call, microseconds; the worst of the traces.
    pub latency_us_p99: f64,
    /// Bytes to the device.
    pub written_bytes: u64,
    /// Flash pages that were programmed.
    pub pages: u64,
    /// Years until the rated cycles, if the number of runs a day is known and anything is written.
    pub years: Option<f64>,
}

impl Trial {
    fn score(&self, best: (f64, f64)) -> f64 {
        let share = |best: f64, own: f64| if own > 0.0 { best / own } else { 1.0 };
        share(best.0, self.foreground_s).min(share(best.1, self.whole_s))
    }
}

/// The trials on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The profile with its overrides.
    pub device: String,
    /// Calls of the traces that were made.
    pub calls: u64,
    /// Calls that could not be made.
    pub left_out: u64,
    /// Of [`Remedy::all`], in its order.
    pub trials: Vec<Trial>,
}

impl Advice {
    /// An ext4 as it is.
    #[must_use]
    pub fn now(&self) -> Option<&Trial> {
        self.trials.first()
    }

    /// The best trial of a promise.
    #[must_use]
    pub fn best(&self, keeps: Keeps, linux: bool) -> Option<&Trial> {
        let of: Vec<&Trial> = self
            .trials
            .iter()
            .filter(|trial| (trial.remedy.keeps, trial.remedy.linux) == (keeps, linux))
            .collect();
        let least = |time: fn(&Trial) -> f64| of.iter().map(|t| time(t)).fold(f64::MAX, f64::min);
        let best = (least(|trial| trial.foreground_s), least(|trial| trial.whole_s));
        let top = of.iter().map(|trial| trial.score(best)).fold(0.0, f64::max);
        // The first of those that program the fewest pages: it has the fewest options.
        of.into_iter()
            .filter(|trial| trial.score(best) >= top * (1.0 - NEAR))
            .min_by_key(|trial| trial.pages)
    }

    /// The best of each promise that brings something beside all stronger ones, the first without
    /// any risk.
    #[must_use]
    pub fn choices(&self) -> Vec<&Trial> {
        let mut chosen: Vec<&Trial> = Vec::new();
        for (keeps, linux) in PROMISES {
            let Some(trial) = self.best(keeps, linux) else { continue };
            let is_worth = |stronger: &&Trial| {
                trial.whole_s * GAIN_MIN < stronger.whole_s
                    || trial.foreground_s * GAIN_MIN < stronger.foreground_s
            };
            let mut stronger = chosen.iter().filter(|it| it.remedy.linux || !linux);
            if stronger.all(is_worth) {
                chosen.push(trial);
            }
        }
        chosen
    }
}

impl Advise {
    /// Runs every remedy on the device of the request.
    ///
    /// # Errors
    /// [`LabError::Usage`] for a trace that is not of calls; those of a replay; [`LabError::
    /// Interrupted`], with nothing advised, since every combination has to run.
    pub fn run(&self, observer: &dyn Observer) -> Result<Advice> {
        if self.per_day.is_some_and(|times| !(times > 0.0 && times.is_finite())) {
            return Err(LabError::Usage("per day: no time; give a number above 0".to_owned()));
        }
        let size_bytes = self.bench.load()?.1.snapshot().geometry().size_bytes;
        let remedies = Remedy::all();
        let mut advice = Advice {
            device: self.bench.device.clone(),
            calls: 0,
            left_out: 0,
            trials: Vec::with_capacity(remedies.len()),
        };
        let base = self.bench.options.clone();
        let mut bench = self.bench.clone();
        observer.begin("combinations", remedies.len() as u64);
        for remedy in remedies {
            bench.options = [&*base, &*remedy.options].join(",").trim_matches(',').to_owned();
            bench.sync = bench_mode(&remedy);
            let mut runs = Vec::new();
            bench.replay_over(remedy.buffer.then_some(LOG_BYTES), &Inner(observer), &mut runs)?;
            advice.calls = runs.iter().map(|one| one.run.metrics.operations).sum();
            advice.left_out = runs.iter().map(|one| one.skipped).sum();
            advice.trials.push(self.trial(remedy, &runs, size_bytes)?);
            observer.advance(1);
        }
        observer.end();
        Ok(advice)
    }

    fn trial(&self, remedy: Remedy, runs: &[Replayed], size_bytes: u64) -> Result<Trial> {
        let sum = |of: fn(&Replayed) -> f64| runs.iter().map(of).sum();
        let devices = || runs.iter().filter_map(|one| one.run.metrics.device.as_ref());
        let pages = devices().map(|device| device.nand_page_programs).sum();
        Ok(Trial {
            remedy,
            foreground_s: sum(|one| one.run.foreground.duration_s),
            whole_s: sum(|one| one.run.metrics.duration_s),
            latency_us_p99: runs
                .iter()
                .map(|one| one.run.foreground.latency_us_p99)
                .fold(0.0, f64::max),
            written_bytes: devices().map(|device| device.written_bytes).sum(),
            pages,
            years: self.years(pages, size_bytes)?,
        })
    }

    /// Years of a device of the volume's size.
    fn years(&self, pages: u64, size_bytes: u64) -> Result<Option<f64>> {
        let Some(per_day) = self.per_day.filter(|_| pages > 0) else { return Ok(None) };
        let profile = super::profile(&self.bench.device)?;
        let layout = profile.layout(size_bytes)?;
        let all = f64::from(layout.blocks) * f64::from(layout.pages_per_block);
        let cycles = f64::from(profile.geometry.rated_cycles);
        Ok(Some(cycles * all / (pages as f64 * per_day * YEAR_DAYS)))
    }
}

/// Counts combinations, not the calls of each.
struct Inner<'a>(&'a dyn Observer);

impl Observer for Inner<'_> {
    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

/// The mode for [`Bench::sync`]; the options have it, too.
fn bench_mode(remedy: &Remedy) -> Vec<String> {
    let mode = remedy.options.split([',', '=']).nth(1).unwrap_or_default();
    vec![mode.to_owned()]
}

/// As one document.
#[must_use]
pub fn advice_document(all: &[Advice], traces: &[PathBuf]) -> Value {
    let devices: Vec<Value> = all.iter().map(device_document).collect();
    json!({ "schema": "syncline.advise/1", "traces": traces, "devices": devices })
}

fn device_document(advice: &Advice) -> Value {
    let name = |remedy: &Remedy| {
        let recovers = if remedy.linux { "" } else { "_syncline" };
        format!("{}{recovers}", remedy.keeps.name())
    };
    let promises = PROMISES.into_iter().filter_map(|(keeps, linux)| advice.best(keeps, linux));
    let best = promises.map(|trial| (name(&trial.remedy), shares(trial, advice)));
    let advised: Vec<String> =
        advice.choices().into_iter().map(|trial| name(&trial.remedy)).collect();
    let mut document = json!({ "device": advice.device, "calls": advice.calls,
        "left_out": advice.left_out, "advised": advised, "trials": advice.trials });
    if let Value::Object(fields) = &mut document {
        fields.extend(best);
    }
    document
}

/// A trial beside an ext4 as it is.
fn shares(trial: &Trial, advice: &Advice) -> Value {
    let of = |own: f64, now: fn(&Trial) -> f64| {
        advice.now().map(now).filter(|now| *now > 0.0).map_or(1.0, |now| own / now)
    };
    json!({ "options": trial.remedy.options, "buffer": trial.remedy.buffer,
        "time_share": of(trial.whole_s, |now| now.whole_s),
        "latency_share": of(trial.latency_us_p99, |now| now.latency_us_p99),
        "pages_share": of(trial.pages as f64, |now| now.pages as f64) })
}
