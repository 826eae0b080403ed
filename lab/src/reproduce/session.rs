//! Runs of the catalogue, made by the libraries that the commands use.
//!
//! A session keeps images, mixes and what was measured, so that equal runs of several rows are made
//! once. Runs follow each other: SQLite's random numbers are seeded for the whole process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::bench::{
    BUFFERING_BUSY, Entry as Workload, FJORD_CONFIGS, Fjord, Image, ImageSource, JournalMode,
    NETWORKS, PHONE_DEVICES, Parameters, Phone, Simulation, Solution, Stack, applications,
    cost_model, find, waits,
};
use crate::evaluate::{
    CacheSize, Configuration, Evaluation, Pace, PageTrace, Played, VirtualPlayer,
};
use crate::observer::Observer;
use crate::replay::{Contents, Replay, ReplayTrace};
use serde::Serialize;
use syncline_cache::{WriteBack, entry};
use syncline_fs::MountOptions;
use syncline_nand::Profile;

use crate::error::{LabError, Result};
use crate::reproduce::catalog::{Figure, Paper, Row, Time};
use crate::reproduce::document::{Compared, Reproduced};
use crate::reproduce::finished::Finished;
use crate::reproduce::measured::Measured;
use crate::reproduce::mixed::Mix;
use crate::reproduce::planned::{self, Planned};

/// Seed of everything random.
const SEED: u64 = 1;
/// Commands of one run that a page can plot.
const EVENTS_MAX: usize = 20_000;
/// Log of the write buffer, bytes: as `syncline-lab bench fjord`.
const LOG_BYTES: u64 = 256 << 20;
/// Syncs of a run against the equations of their cost.
const SYNCS: u64 = 256;

/// Runs `syncline` with these arguments; returns its standard output, or what it complained of.
pub type Program = dyn Fn(&[String]) -> std::result::Result<Vec<u8>, String>;

/// Runs rows.
pub struct Session {
    /// True for the papers' lengths.
    full: bool,
    /// True if runs are repeated at the ends of what published figures leave open of a device.
    uncertainty: bool,
    /// True if runs that are to be plotted keep their events.
    plots: bool,
    /// The `syncline` program, for rows in real time; none: these are left out.
    program: Option<Box<Program>>,
    /// Runs of an earlier session, and the place of those of this one.
    finished: Option<Finished>,
    images: HashMap<(u64, bool), Image>,
    mixes: HashMap<&'static str, PageTrace>,
    done: HashMap<String, Measured>,
}

impl Session {
    /// A session that has measured nothing yet.
    pub fn new(full: bool, plots: bool, program: Option<Box<Program>>) -> Session {
        let (images, mixes, done) = (HashMap::new(), HashMap::new(), HashMap::new());
        Session { full, uncertainty: false, plots, program, finished: None, images, mixes, done }
    }

    /// The session with runs at the ends of what is open of each device.
    pub fn with_uncertainty(self, uncertainty: bool) -> Session {
        Session { uncertainty, ..self }
    }

    /// The session with runs taken over from `finished`, and kept there.
    pub fn with_finished(self, finished: Option<Finished>) -> Session {
        Session { finished, ..self }
    }

    /// Runs of `row` in this session's form.
    pub fn runs<'r>(&self, row: &'r Row) -> Vec<&'r Planned> {
        let left_out = row.time == Time::None || row.time == Time::Real && self.program.is_none();
        let runs = row.runs.iter().filter(|run| !left_out && (self.full || !run.full));
        runs.collect()
    }

    /// Reproduces a row. `started` is told the name of each run before it begins.
    pub fn row(
        &mut self,
        paper: &Paper,
        row: &Row,
        observer: &dyn Observer,
        started: &mut dyn FnMut(&Planned),
    ) -> Result<Reproduced> {
        let mut measured = HashMap::new();
        // The same runs at the ends of what is open of their devices, one map for each end.
        let mut ends: Vec<HashMap<&str, Measured>> = Vec::new();
        for run in self.runs(row) {
            started(run);
            measured.insert(run.name.as_str(), self.make(run, observer)?);
            let open = if self.uncertainty { run.ends()? } else { Vec::new() };
            for (number, run_there) in open.iter().enumerate() {
                let there = self.make(run_there, observer)?;
                if ends.len() == number {
                    ends.push(HashMap::new());
                }
                ends[number].insert(run.name.as_str(), there);
            }
        }
        for end in &mut ends {
            for (name, there) in &measured {
                end.entry(name).or_insert_with(|| there.clone());
            }
        }
        let compared = |figure: &Figure| {
            let there = ends.iter().map(|end| ours(figure, end)).collect::<Result<Vec<_>>>()?;
            let there = there.into_iter().flatten().collect();
            Ok(Compared::new(row, figure, ours(figure, &measured)?, there))
        };
        let figures = row.figures.iter().map(compared);
        let figures = figures
            .collect::<Result<Vec<_>>>()
            .map_err(|err: LabError| LabError::Usage(format!("{}/{}: {err}", paper.id, row.id)))?;
        let plots = row.runs.iter().filter_map(|run| {
            let measured = measured.remove(run.name.as_str())?;
            (!measured.events.is_empty()).then(|| (run.name.clone(), measured))
        });
        let plots = plots.collect();
        Ok(Reproduced::new(paper, row, figures, plots))
    }

    fn make(&mut self, run: &Planned, observer: &dyn Observer) -> Result<Measured> {
        let key = key(run);
        if let Some(known) = self.done.get(&key) {
            return Ok(known.clone());
        }
        let plots = self.plots && run.bench.as_ref().is_some_and(|bench| bench.plot);
        // Real time is measured anew, and a plot needs events.
        let is_kept = run.command.is_none() && !plots;
        if let Some(known) = self.finished.as_ref().filter(|_| is_kept).and_then(|f| f.get(&key)) {
            return Ok(known.clone());
        }
        let measured = if let Some(bench) = &run.bench {
            self.bench(bench, observer)?
        } else if let Some(fjord) = &run.fjord {
            self.fjord(fjord, observer)?
        } else if let Some(phone) = &run.phone {
            self.phone(phone, observer)?
        } else if let Some(replay) = &run.replay {
            self.replay(replay, observer)?
        } else if let Some(check) = &run.check {
            let profile = Profile::parse_built_in(&check.device)?;
            Measured::default().with("value", check.figure.measure(&profile)?)
        } else if let Some(cache) = &run.cache {
            self.cache(cache, observer)?
        } else if let Some(cost) = &run.cost {
            self.cost(cost)?
        } else if let Some(waits) = &run.waits {
            self.waits(waits, observer)?
        } else if let Some(arguments) = &run.command {
            self.command(arguments)?
        } else {
            return Err(LabError::Usage(format!("run `{}` is of no kind", run.name)));
        };
        if let Some(finished) = self.finished.as_mut().filter(|_| is_kept) {
            finished.add(&key, &measured)?;
        }
        self.done.insert(key, measured.clone());
        Ok(measured)
    }

    /// A new volume; `groups`: with many flex groups, for aging.
    fn image(&mut self, size_mib: u64, groups: bool) -> Result<&Image> {
        let size_bytes = size_mib << 20;
        match self.images.entry((size_bytes, groups)) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let source = match groups {
                    true => ImageSource::ManyFlexGroups { size_bytes },
                    false => ImageSource::New { size_bytes },
                };
                Ok(place.insert(Image::load(&source)?))
            }
        }
    }

    fn bench(&mut self, run: &planned::Bench, observer: &dyn Observer) -> Result<Measured> {
        let entry = one(find(&run.workload)?, &run.workload)?;
        let profile = Profile::parse_built_in(&run.device)?;
        let mount = MountOptions::parse(&run.options)?;
        let full = run.full_operations.filter(|_| self.full);
        let parameters = Parameters {
            operations: full.or(run.operations),
            seed: run.seed,
            journal_mode: JournalMode::by_name(&run.journal_mode)?,
            sqlite_fsync: run.sqlite_fsync,
            synchronous: run.synchronous,
            fill_percent: run.fill_percent,
            ..Parameters::default()
        };
        let events_max = if self.plots && run.plot { EVENTS_MAX } else { 0 };
        let image = self.image(run.size_mib, run.fill_percent.is_some())?;
        let stack = Stack::new(&profile, image.snapshot(), events_max)?;
        let (profile, mount, parameters) = (&profile, &mount, &parameters);
        let simulation = Simulation { profile, image, mount, parameters };
        let done = simulation.run_on(&stack, entry, observer)?;
        not_stopped(observer)?;
        let mut measured = Measured::of(&done);
        measured.events = stack.recording.take_events();
        measured.events_lost = stack.recording.events_lost();
        Ok(measured)
    }

    fn fjord(&mut self, run: &planned::Fjord, observer: &dyn Observer) -> Result<Measured> {
        let entry = one(applications(&run.workload)?, &run.workload)?;
        let profile = Profile::parse_built_in(&run.device)?;
        // As the paper's phones, whose SQLite knew fsync only (6.1).
        let mount = MountOptions::parse("sync=ordered,writeback_preset=android")?;
        let scale_percent = if self.full { 100 } else { run.scale_percent };
        // Messages and sites are operations; phases are cut by the scale.
        let cut = entry.operations * scale_percent / 100;
        let operations = (entry.name != "fjord/rlbench").then_some(cut.max(1));
        let parameters = Parameters {
            seed: SEED,
            sqlite_fsync: true,
            scale_percent,
            operations,
            ..Parameters::default()
        };
        let mut known = FJORD_CONFIGS.iter().chain([&BUFFERING_BUSY]);
        let config = known.find(|known| known.name == run.config);
        let config = config.ok_or_else(|| {
            LabError::Usage(format!("no configuration `{}` of a write buffer", run.config))
        })?;
        let bench = Fjord::new(&profile, self.image(2048, false)?, &parameters, LOG_BYTES)?;
        let done = bench.run(entry, config, &mount, observer)?;
        not_stopped(observer)?;
        Ok(Measured::of(&done))
    }

    fn phone(&mut self, run: &planned::Phone, observer: &dyn Observer) -> Result<Measured> {
        let profile = Profile::parse_built_in(&run.device)?;
        let builtin = Profile::by_name(PHONE_DEVICES[0])?;
        let network = NETWORKS.iter().find(|network| network.name == run.network);
        let network =
            network.ok_or_else(|| LabError::Usage(format!("no network `{}`", run.network)))?;
        let solution = Solution::by_name(&run.solution)?;
        let mount = &MountOptions::parse("sync=ordered")?;
        let scale_percent = if self.full { 100 } else { run.scale_percent };
        let image = self.image(2048, false)?;
        let phone = Phone { image, mount, seed: SEED, scale_percent };
        let done = phone.run(&run.application, &profile, &builtin, network, solution, observer)?;
        not_stopped(observer)?;
        Ok(Measured::of(&done))
    }

    fn replay(&mut self, run: &planned::Replay, observer: &dyn Observer) -> Result<Measured> {
        let mut shipped = ReplayTrace::shipped()?;
        shipped.extend(ReplayTrace::downloads()?);
        let trace = shipped.iter().find(|trace| trace.name == run.trace);
        let trace = trace
            .ok_or_else(|| LabError::Usage(format!("no captured program `{}` ships", run.trace)))?;
        let profile = Profile::parse_built_in(&run.device)?;
        let mount = MountOptions::parse(&run.options)?;
        let image = self.image(run.size_mib, false)?;
        let (profile, mount) = (&profile, &mount);
        let contents = Contents::default();
        let replay = Replay {
            profile,
            image,
            mount,
            gap_max_ns: 0,
            seed: SEED,
            fill_percent: None,
            contents,
            flashlite: run.flashlite.as_deref(),
            used: run.used,
        };
        let done = replay.run(trace, observer)?;
        not_stopped(observer)?;
        let split = done.split;
        let syncs = trace.records.iter().filter(|record| record.op.is_sync()).count().max(1);
        let measured = Measured::of(&done.run)
            .with("ms_for_each_sync", done.run.metrics.duration_s * 1e3 / syncs as f64)
            .with("left_out_calls", done.skipped as f64)
            .with("split.sync_write_ratio", split.sync_ratio())
            .with("split.synced_file_ratio", split.of_syncs(split.synced_file_bytes))
            .with("split.other_files_ratio", split.of_syncs(split.other_files_bytes))
            .with("split.journal_ratio", split.of_syncs(split.journal_bytes))
            .with("split.journal_bytes", split.journal_bytes as f64)
            .with("split.read_requests", split.reads as f64);
        Ok(measured)
    }

    fn cache(&mut self, run: &planned::Cache, observer: &dyn Observer) -> Result<Measured> {
        let mix = Mix::by_name(&run.mix)?;
        let trace = match self.mixes.entry(mix.name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(mix.pages(SEED)?),
        };
        let trace = &*trace;
        let policy = entry(&run.policy).map_err(|err| LabError::Usage(err.to_string()))?;
        let pages = CacheSize::parse(&run.size)?.pages(trace.working_set_pages());
        let write_back = WriteBack::Lazy;
        let configuration = Configuration { policy, pages, write_back, fsync: false };
        // One page a request, as the paper's Workload Player.
        let evaluation = Evaluation { trace, next_uses: &[], merge_pages: 1 };
        let profile = Profile::parse_built_in(&run.device)?;
        let mut player = VirtualPlayer::new(&profile, trace.end_bytes(), Pace::default())?;
        let (mut at, total) = (0, trace.accesses() as u64);
        let mut follow = |done: usize| {
            at += done as u64;
            observer.position(at, total);
            !observer.stopped()
        };
        let outcome = evaluation.run(&configuration, Some(&mut player), &mut follow)?;
        let outcome = outcome.ok_or(LabError::Interrupted)?;
        let Played { elapsed_s, .. } = player.finish();
        let counts = &outcome.counts;
        Ok(Measured::default()
            .with("hit_ratio", counts.hits as f64 / (counts.hits + counts.misses) as f64)
            .with("reads", counts.reads as f64)
            .with("writes", counts.write_backs as f64)
            .with("write_runs", counts.write_runs as f64)
            .with("cost_s", outcome.cost_s())
            .with("elapsed_s", elapsed_s))
    }

    fn cost(&mut self, run: &planned::Cost) -> Result<Measured> {
        let image = self.image(64, false)?;
        let device = image.snapshot();
        let cost = cost_model::measure(device, &run.sync, run.locality, SYNCS)?;
        Ok(Measured::default()
            .with("blocks", cost.blocks as f64)
            .with("requests", cost.requests as f64)
            .with("flushes", cost.flushes as f64))
    }

    fn waits(&mut self, run: &planned::Waits, observer: &dyn Observer) -> Result<Measured> {
        let profile = Profile::parse_built_in(&run.device)?;
        let mount = MountOptions::parse(&run.options)?;
        let calls = if self.full { run.full_calls } else { run.calls };
        let image = self.image(2048, false)?;
        let done = waits((&profile, image, &mount), run.call, run.beside, calls, observer)?;
        not_stopped(observer)?;
        Ok(Measured::of(&done))
    }

    /// Runs the program itself; its document has the figures.
    fn command(&self, arguments: &[String]) -> Result<Measured> {
        let command = format!("syncline {}", arguments.join(" "));
        let failed = |reason: String| LabError::Failed(format!("{command}: {reason}"));
        let Some(program) = &self.program else {
            return Err(failed("no program was given; report this".to_owned()));
        };
        let output = program(arguments).map_err(failed)?;
        let document: serde_json::Value = serde_json::from_slice(&output)
            .map_err(|err| failed(format!("no document came: {err}; report this")))?;
        Ok(Measured::of(&document))
    }
}

/// Identity of a run: equal ones are made once.
fn key(run: &Planned) -> String {
    // Structs of strings and numbers always serialise.
    fn text(value: &impl Serialize) -> String {
        serde_json::to_string(value).unwrap_or_default()
    }
    let Planned { bench, fjord, phone, replay, check, cache, cost, waits, command, .. } = run;
    text(&(bench, fjord, phone, replay, check, cache, cost, waits, command))
}

/// The figure of these runs; none if one of them is not in this form.
fn ours(figure: &Figure, runs: &HashMap<&str, Measured>) -> Result<Option<f64>> {
    let value = |run: &str, metric: &str| -> Result<Option<f64>> {
        let Some(measured) = runs.get(run) else { return Ok(None) };
        match measured.get(metric) {
            Some(value) => Ok(Some(value)),
            None => {
                let names: Vec<&str> = measured.names().collect();
                let names = names.join(", ");
                let text = format!("run `{run}` has no metric `{metric}`; it has {names}");
                Err(LabError::Usage(text))
            }
        }
    };
    let Some(mut found) = value(&figure.run, &figure.metric)? else { return Ok(None) };
    for more in &figure.plus {
        let Some(more) = value(more, &figure.metric)? else { return Ok(None) };
        found += more;
    }
    if let Some(less) = &figure.less {
        let Some(less) = value(less, &figure.metric)? else { return Ok(None) };
        found -= less;
    }
    let mut divide = |by: Option<f64>| match by {
        Some(by) if by != 0.0 => {
            found /= by;
            true
        }
        _ => false,
    };
    if let Some(per) = &figure.per
        && !divide(value(&figure.run, per)?)
    {
        return Ok(None);
    }
    if let Some(over) = &figure.over
        && !divide(value(over, &figure.metric)?)
    {
        return Ok(None);
    }
    let picks =
        [(&figure.over_greatest, f64::max as fn(f64, f64) -> f64), (&figure.over_least, f64::min)];
    for (others, pick) in picks {
        if others.is_empty() {
            continue;
        }
        let values = others.iter().map(|other| value(other, &figure.metric));
        let values = values.collect::<Result<Option<Vec<f64>>>>()?;
        if !divide(values.and_then(|values| values.into_iter().reduce(pick))) {
            return Ok(None);
        }
    }
    Ok(Some(figure.form.of(found * figure.scale)))
}

fn one(found: Vec<&'static Workload>, name: &str) -> Result<&'static Workload> {
    match found.as_slice() {
        [entry] => Ok(entry),
        _ => Err(LabError::Usage(format!("`{name}` is a group; name one workload"))),
    }
}

fn not_stopped(observer: &dyn Observer) -> Result<()> {
    if observer.stopped() { Err(LabError::Interrupted) } else { Ok(()) }
}
