//! Workloads on a simulated device or in a directory, and traces of system calls on a volume.
//!
//! One run for each workload and each value of a list. A stopped run ends after the current
//! operation: the volume is unmounted, and the result has the finished runs.

#[cfg(not(target_family = "wasm"))]
mod directory;
#[cfg(not(target_family = "wasm"))]
mod replay;

use std::path::PathBuf;

use crate::bench::{
    Cell, Entry, FLUSHES_US, Grid, INSERT_NAME, Image, ImageSource, JournalMode, Parameters, Run,
    STREAMS, Simulation, Stack, Synchronous, Trace, find,
};
use crate::observer::Observer;
use serde::Deserialize;
use syncline_fs::{MountOptions, SyncMode};
use syncline_nand::Profile;
use syncline_sqlite::Barriers;

use crate::error::{LabError, Result};
use crate::experiments::profile;

/// Request of `syncline-lab bench`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bench {
    /// Workloads or groups of workloads.
    pub workloads: Vec<String>,
    /// Device profile, with overrides.
    pub device: String,
    /// Durability of fsync; each mode runs.
    pub sync: Vec<String>,
    /// Formats of the journal, with eager sync: jbd2, packed.
    pub log: Vec<String>,
    /// SQLite's journal modes.
    pub journal_mode: Vec<String>,
    /// SQLite's synchronous: off, normal, full, extra.
    pub synchronous: String,
    /// SQLite calls fsync where it would call fdatasync.
    pub sqlite_fsync: bool,
    /// Syncs of SQLite that are barriers: none, order, all.
    pub barriers: String,
    /// Power cuts after transactions of sqlite/insert, to count what they take.
    pub cuts: u64,
    /// Intervals in milliseconds at whose multiples a write moves mtime, or off.
    pub mtime_update: Vec<String>,
    /// Operations of each run; by itself the workload's.
    pub operations: Option<u64>,
    /// Longest time of each run, seconds of its clock.
    pub runtime: Option<u64>,
    /// Each run goes on until `runtime`.
    pub time_based: bool,
    /// More percentiles of the latency.
    pub percentile_list: Vec<f64>,
    /// Replacement policy of the page cache.
    pub policy: String,
    /// Allocation policies.
    pub alloc: Vec<String>,
    /// Fill levels of an aged volume, percent; by itself a fresh one.
    pub fill: Vec<u32>,
    /// Mount options.
    pub options: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Size of the volume in MiB.
    pub size: u64,
    /// An image whose copy is used instead of a fresh volume.
    pub image: Option<PathBuf>,
    /// A directory to run in, in real time.
    pub dir: Option<PathBuf>,
    /// With the workload replay: traces of system calls; by itself those that ship.
    pub trace: Vec<PathBuf>,
    /// With the workload replay: contents of what is written: noise, or same for one byte.
    pub contents: String,
    /// With the workload replay: longest gap between two calls, milliseconds.
    pub gap_max: u64,
    /// With the workload replay: files that are kept as FlashLite logs.
    pub flashlite: Option<String>,
    /// With the workload replay: the device was filled once before.
    pub used: bool,
    /// With fjord: length of the applications, percent.
    pub scale: u64,
}

impl Default for Bench {
    fn default() -> Bench {
        Bench {
            workloads: Vec::new(),
            device: "nexus7-emmc".to_owned(),
            sync: vec!["ordered".to_owned(), "eager".to_owned()],
            log: Vec::new(),
            journal_mode: vec!["delete".to_owned()],
            synchronous: "full".to_owned(),
            sqlite_fsync: false,
            barriers: "none".to_owned(),
            cuts: 0,
            mtime_update: Vec::new(),
            operations: None,
            runtime: None,
            time_based: false,
            percentile_list: Vec::new(),
            policy: "clock".to_owned(),
            alloc: Vec::new(),
            fill: Vec::new(),
            options: String::new(),
            seed: 1,
            size: 2048,
            image: None,
            dir: None,
            trace: Vec::new(),
            contents: "noise".to_owned(),
            gap_max: 0,
            flashlite: None,
            used: false,
            scale: 100,
        }
    }
}

/// Runs of a bench so far, also of one that failed or was stopped.
#[derive(Default)]
pub struct BenchResult {
    /// The runs.
    pub runs: Vec<Run>,
    /// Block traces of the first runs, if they were asked for.
    pub traces: Vec<Trace>,
}

impl Bench {
    /// The workloads that were named, each once.
    pub fn entries(&self) -> Result<Vec<&'static Entry>> {
        let mut entries: Vec<&Entry> = Vec::new();
        for name in &self.workloads {
            for entry in find(name)? {
                if !entries.iter().any(|known| known.name == entry.name) {
                    entries.push(entry);
                }
            }
        }
        Ok(entries)
    }

    /// The journal modes that were asked for.
    pub fn journal_modes(&self) -> Result<Vec<JournalMode>> {
        let modes = self.journal_mode.iter().map(|name| JournalMode::by_name(name));
        modes.collect::<std::result::Result<_, _>>()
    }

    /// Fill levels of the volume before each run, in per cent; one run on a fresh volume if none
    /// was given.
    pub fn fills(&self) -> Vec<Option<u32>> {
        match self.fill.as_slice() {
            [] => vec![None],
            list => list.iter().copied().map(Some).collect(),
        }
    }

    /// The settings of each run of `entry`: the journal mode matters to SQLite only.
    pub fn parameters(&self, entry: &Entry, modes: &[JournalMode]) -> Result<Vec<Parameters>> {
        let synchronous = synchronous(&self.synchronous)?;
        let barriers = barriers(&self.barriers)?;
        let used = if entry.sqlite { modes } else { modes.get(..1).unwrap_or(&[]) };
        let make = |journal_mode: &JournalMode, fill_percent| Parameters {
            operations: self.operations,
            runtime_ns: self.runtime.map(|seconds| seconds.saturating_mul(1_000_000_000)),
            time_based: self.time_based,
            percentiles: self.percentile_list.clone(),
            seed: self.seed,
            journal_mode: *journal_mode,
            synchronous,
            sqlite_fsync: self.sqlite_fsync,
            barriers,
            cuts: if entry.name == INSERT_NAME { self.cuts } else { 0 },
            scale_percent: self.scale,
            fill_percent,
        };
        let fills = self.fills();
        let each = used.iter().flat_map(|mode| fills.iter().map(move |fill| make(mode, *fill)));
        Ok(each.collect())
    }

    /// The device and the volume.
    pub fn load(&self) -> Result<(Profile, Image)> {
        let profile = profile(&self.device)?;
        let source = match &self.image {
            Some(path) => ImageSource::File(path.clone()),
            None if self.fill.is_empty() => ImageSource::New { size_bytes: self.size << 20 },
            None => ImageSource::ManyFlexGroups { size_bytes: self.size << 20 },
        };
        Ok((profile, Image::load(&source)?))
    }

    /// The options of each format of [`Bench::log`], each interval of [`Bench::mtime_update`] and
    /// each policy of [`Bench::alloc`], with `sync`.
    pub fn mount_options(&self, sync: &str) -> Result<Vec<MountOptions>> {
        let usage = |err: syncline_fs::FsError| {
            LabError::Usage(format!("{err}; see the mount options in --help"))
        };
        let mut base = MountOptions::parse(&self.options).map_err(usage)?;
        base.apply(sync).map_err(usage)?;
        base.apply(&format!("policy={}", self.policy)).map_err(usage)?;
        let intervals = self.mtime_update.iter().map(|interval| match interval.as_str() {
            "off" => "un_mtime_update".to_owned(),
            ms => format!("mtime_update={ms}"),
        });
        // Packed records are for eager sync; a list leaves them out for the other.
        let jbd2_only = sync == "sync=ordered" && self.log.len() > 1;
        let logs = self.log.iter().filter(|log| !(jbd2_only && *log == "packed"));
        let logs = logs.map(|log| format!("log={log}"));
        let allocs = self.alloc.iter().map(|name| format!("alloc={name}"));
        let mut all = vec![base];
        for items in [logs.collect::<Vec<_>>(), intervals.collect(), allocs.collect()] {
            if items.is_empty() {
                continue;
            }
            let mut varied = Vec::new();
            for (options, item) in all.iter().flat_map(|o| items.iter().map(move |i| (o, i))) {
                let mut options = options.clone();
                options.apply(item).map_err(usage)?;
                varied.push(options);
            }
            all = varied;
        }
        Ok(all)
    }

    /// Runs the workloads on a simulated device. `events_max` commands of each run's block trace
    /// are kept.
    ///
    /// On an error or an interruption the finished runs are in `result`.
    pub fn simulated(
        &self,
        events_max: usize,
        observer: &dyn Observer,
        result: &mut BenchResult,
    ) -> Result<()> {
        let (entries, modes) = (self.entries()?, self.journal_modes()?);
        let mut mounts = Vec::new();
        for sync in &self.sync {
            mounts.extend(self.mount_options(&format!("sync={sync}"))?);
        }
        let (profile, image) = self.load()?;
        for entry in entries {
            for parameters in self.parameters(entry, &modes)? {
                for mount in &mounts {
                    // Atomic writes are for eager sync; a list leaves them out for the other.
                    let is_atomic = parameters.journal_mode == JournalMode::Atomic;
                    if is_atomic && mount.sync == SyncMode::Ordered && self.sync.len() > 1 {
                        continue;
                    }
                    let (profile, image, parameters) = (&profile, &image, &parameters);
                    let simulation = Simulation { profile, image, mount, parameters };
                    let stack = Stack::new(profile, image.snapshot(), events_max)?;
                    observer.begin(entry.name, entry.operations(parameters));
                    let run = simulation.run_on(&stack, entry, observer);
                    observer.end();
                    let run = run?;
                    if events_max > 0 {
                        result.traces.push(Trace {
                            events: stack.recording.take_events(),
                            events_lost: stack.recording.events_lost(),
                        });
                    }
                    keep(run, &mut result.runs, observer)?;
                }
            }
        }
        Ok(())
    }

    /// The grid of write streams and flush times of each workload, journal mode and interval.
    pub fn sensitivity(&self, observer: &dyn Observer, cells: &mut Vec<Cell>) -> Result<()> {
        let (entries, modes) = (self.entries()?, self.journal_modes()?);
        let mounts = self.mount_options("sync=ordered")?;
        let [mount] = mounts.as_slice() else {
            let text = "--sensitivity takes one --mtime-update and --alloc; run it once for each";
            return Err(LabError::Usage(text.to_owned()));
        };
        let (profile, image) = self.load()?;
        let (profile, image) = (&profile, &image);
        let grid = Grid { profile, image, mount, streams: &STREAMS, flushes_us: &FLUSHES_US };
        for entry in entries {
            for parameters in self.parameters(entry, &modes)? {
                observer.begin(entry.name, entry.operations(&parameters));
                let found = grid.run(entry, &parameters, observer);
                observer.end();
                cells.extend(found?);
                go_on(observer)?;
            }
        }
        Ok(())
    }
}

fn synchronous(name: &str) -> Result<Synchronous> {
    use Synchronous::{Extra, Full, Normal, Off};
    let all = [Off, Normal, Full, Extra];
    all.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let text = format!("unknown synchronous `{name}`; choose of off, normal, full, extra");
        LabError::Usage(text)
    })
}

fn barriers(name: &str) -> Result<Barriers> {
    Barriers::ALL.into_iter().find(|choice| choice.name() == name).ok_or_else(|| {
        LabError::Usage(format!("unknown barriers `{name}`; choose of none, order, all"))
    })
}

/// Keeps a run; stops after one that was interrupted.
fn keep(run: Run, runs: &mut Vec<Run>, observer: &dyn Observer) -> Result<()> {
    let stopped = run.interrupted;
    runs.push(run);
    if stopped { Err(LabError::Interrupted) } else { go_on(observer) }
}

fn go_on(observer: &dyn Observer) -> Result<()> {
    if observer.stopped() { Err(LabError::Interrupted) } else { Ok(()) }
}
