//! Sensitivity of a result to unknown properties of a device: open write streams and flush time.
//!
//! ```text
//!                  streams 1, 2, 4, 8  x  flush 0.1, 1, 5 ms
//!   each cell      ordered, eager: whole runs through the stack
//!                  xfs, f2fs, fast_commit: their counted requests on the same model (peers.rs)
//! ```
//!
//! Promises: our figures are whole runs with background write-back and the final unmount. The
//! peers' figures have foreground requests only, which favours the peers. Everything repeats from
//! the seed. Tested in `lab/tests/bench/peers.rs`.

use std::collections::BTreeMap;

use crate::observer::Observer;
use crate::report::{aligned, figure};
use serde::{Deserialize, Serialize};
use syncline_fs::{MountOptions, SyncMode};
use syncline_nand::Profile;

use crate::bench::image::Image;
use crate::bench::metrics::Metrics;
use crate::bench::peers::{Pattern, patterns, replay};
use crate::bench::runner::Simulation;
use crate::bench::workloads::{Entry, Parameters};
use crate::error::Result;

/// Open write streams of the grid.
pub const STREAMS: [u32; 4] = [1, 2, 4, 8];
/// Flush times of the grid in microseconds.
pub const FLUSHES_US: [u32; 3] = [100, 1000, 5000];
/// The file systems of the table, in its order. The kernel's own ext4 is the ordered column.
const PEERS: [&str; 3] = ["xfs", "f2fs", "fast_commit"];
/// The schema name of [`Sensitivity`].
const SCHEMA: &str = "syncline.sensitivity/1";

/// One workload on one variant of the device, in operations a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the workload.
    pub workload: String,
    /// SQLite's journal mode.
    pub journal_mode: Option<String>,
    /// Open write streams of the device.
    pub streams: u32,
    /// Time of a flush in microseconds.
    pub flush_us: u32,
    /// Ordered mode, whole run.
    pub ordered_per_s: f64,
    /// Eager mode, whole run.
    pub eager_per_s: f64,
    /// Ordered mode up to the last acknowledged call.
    pub ordered_foreground_per_s: f64,
    /// Eager mode up to the last acknowledged call.
    pub eager_foreground_per_s: f64,
    /// Rate that the counted requests of a file system would reach, foreground only.
    pub peers_per_s: BTreeMap<String, f64>,
}

impl Cell {
    /// The fastest peer; none where no counts are stored.
    pub fn best_peer(&self) -> Option<(&str, f64)> {
        let rates = PEERS.iter().filter_map(|name| Some((*name, *self.peers_per_s.get(*name)?)));
        rates.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The document of a sensitivity run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sensitivity {
    /// `syncline.sensitivity/1`.
    pub schema: String,
    /// The profile that is varied.
    pub device: String,
    /// Workload by workload, streams by streams, flush by flush.
    pub cells: Vec<Cell>,
}

impl Sensitivity {
    /// A document of these cells.
    pub fn new(device: &str, cells: Vec<Cell>) -> Sensitivity {
        Sensitivity { schema: SCHEMA.to_owned(), device: device.to_owned(), cells }
    }

    /// The JSON text, indented, with a final newline.
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("structs of strings and finite numbers always serialise") + "\n"
    }

    /// A row for each cell. The last two columns: the fastest peer, and eager to it.
    pub fn table(&self) -> String {
        let header = ["workload", "streams", "flush ms", "ordered", "eager", "ratio"];
        let mut header: Vec<String> = header.map(str::to_owned).to_vec();
        header.extend(PEERS.map(str::to_owned));
        header.extend(["best peer".to_owned(), "eager to it".to_owned()]);
        let mut rows = vec![header];
        rows.extend(self.cells.iter().map(row));
        "Operations a second. Ordered and eager: whole runs with background write-back and the \
         final unmount.\nPeers: their counted requests on the same model, foreground only.\n"
            .to_owned()
            + &aligned(&rows, 1)
    }
}

fn row(cell: &Cell) -> Vec<String> {
    let mode = cell.journal_mode.iter().map(|mode| format!(" {mode}")).collect::<String>();
    let ratio = |a: f64, b: f64| if b > 0.0 { figure(a / b) } else { "-".to_owned() };
    let mut row = vec![
        cell.workload.clone() + &mode,
        cell.streams.to_string(),
        figure(f64::from(cell.flush_us) / 1e3),
        figure(cell.ordered_per_s),
        figure(cell.eager_per_s),
        ratio(cell.eager_per_s, cell.ordered_per_s),
    ];
    row.extend(PEERS.map(|name| cell.peers_per_s.get(name).map_or("-".to_owned(), |r| figure(*r))));
    match cell.best_peer() {
        Some((name, rate)) => row.extend([name.to_owned(), ratio(cell.eager_per_s, rate)]),
        None => row.extend(["-".to_owned(), "-".to_owned()]),
    }
    row
}

/// Parameters of a sensitivity run.
pub struct Grid<'a> {
    /// The device whose streams and flush time are varied.
    pub profile: &'a Profile,
    /// The volume; unchanged.
    pub image: &'a Image,
    /// Mount options of both modes, the mode aside.
    pub mount: &'a MountOptions,
    /// Variants of the open write streams.
    pub streams: &'a [u32],
    /// Variants of the flush time, microseconds.
    pub flushes_us: &'a [u32],
}

impl Grid<'_> {
    /// The cells of one workload. Stops early when `observer` says so, with the cells that are
    /// complete.
    pub fn run(
        &self,
        entry: &Entry,
        parameters: &Parameters,
        observer: &dyn Observer,
    ) -> Result<Vec<Cell>> {
        let mode = entry.sqlite.then(|| parameters.journal_mode.name());
        let all = patterns()?;
        let of_entry = |p: &&Pattern| p.workload == entry.name && p.journal_mode.as_deref() == mode;
        let peers: Vec<&Pattern> = all.iter().filter(of_entry).collect();
        let mut cells = Vec::new();
        for streams in self.streams {
            for flush_us in self.flushes_us {
                let mut profile = self.profile.clone();
                profile.ftl.streams = *streams;
                profile.timing.flush_us = *flush_us;
                let Some(cell) = self.cell(&profile, entry, parameters, &peers, observer)? else {
                    return Ok(cells);
                };
                cells.push(cell);
            }
        }
        Ok(cells)
    }

    /// One cell; none if the run was interrupted.
    fn cell(
        &self,
        profile: &Profile,
        entry: &Entry,
        parameters: &Parameters,
        peers: &[&Pattern],
        observer: &dyn Observer,
    ) -> Result<Option<Cell>> {
        profile.validate()?;
        let mut runs = Vec::new();
        for sync in [SyncMode::Ordered, SyncMode::Eager] {
            let mount = self.mount.clone().with(|options| options.sync = sync);
            let simulation = Simulation { profile, image: self.image, mount: &mount, parameters };
            let run = simulation.run(entry, observer)?;
            if run.interrupted {
                return Ok(None);
            }
            runs.push(run);
        }
        let [ordered, eager] = runs.as_slice() else { return Ok(None) };
        let operations = entry.operations(parameters);
        let calls = calls_per_operation(&eager.foreground);
        let mut peers_per_s = BTreeMap::new();
        for pattern in peers {
            let rate = replay(pattern, profile, calls, operations, parameters.seed)?;
            peers_per_s.insert(pattern.file_system.clone(), rate);
        }
        Ok(Some(Cell {
            workload: entry.name.to_owned(),
            journal_mode: eager.config.journal_mode.clone(),
            streams: profile.ftl.streams,
            flush_us: profile.timing.flush_us,
            ordered_per_s: ordered.metrics.transactions_per_s,
            eager_per_s: eager.metrics.transactions_per_s,
            ordered_foreground_per_s: ordered.foreground.transactions_per_s,
            eager_foreground_per_s: eager.foreground.transactions_per_s,
            peers_per_s,
        }))
    }
}

fn calls_per_operation(metrics: &Metrics) -> f64 {
    metrics.app_calls.unwrap_or(0) as f64 / metrics.operations.max(1) as f64
}
