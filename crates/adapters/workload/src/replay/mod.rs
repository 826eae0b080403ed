//! Replays system-call traces on a volume over simulated flash: the macro-benchmark of the
//! eager-sync paper (section 5.3).
//!
//! ```text
//!   records ── plan: what was there before ──> files made, unmount, mount
//!        └──── play: each call in the trace's order, gaps capped ──> Run
//! ```
//!
//! Promises: calls of all threads are made in the order of the trace, one after the other, since a
//! virtual run has one thread and one device; a run repeats exactly. Between two calls the clock
//! moves by the trace's gap, at most `gap_max_ns`, and what the background has to do by then is
//! done. Calls that cannot be made, because the trace does not show how a file came to be, are
//! counted, not guessed. Figures are those of every other run: foreground to the last call, whole
//! with the final unmount.
//!
//! `directory` plays them in a directory of the host, with threads and in real time.
//!
//! Tested in `tests/replay.rs`.

mod directory;
mod plan;
mod play;
mod samples;
mod table;

pub use directory::{DirectoryReplay, DirectoryReplayed};
pub use table::replay_table;

use std::sync::Arc;

use syncline_fs::{MountOptions, SyncMode};
use syncline_nand::Profile;
use syncline_trace::{Names, Record};

use crate::error::Result;
use crate::image::Image;
use crate::latency::Timer;
use crate::metrics::{Config, Metrics, Run};
use crate::runner::{Stack, Watch, alloc_name, log_name, since};
use crate::target::Target;
use crate::workloads::Parameters;
use plan::Plan;
use play::Player;

/// A trace in memory.
#[derive(Debug, Default)]
pub struct ReplayTrace {
    /// Its name in tables.
    pub name: String,
    /// Records in order.
    pub records: Vec<Record>,
    /// Their names.
    pub names: Names,
}

/// A replay on a simulated device.
pub struct Replay<'a> {
    /// The device.
    pub profile: &'a Profile,
    /// The volume; unchanged by the run.
    pub image: &'a Image,
    /// How it is mounted.
    pub mount: &'a MountOptions,
    /// Longest gap between two calls, in nanoseconds.
    pub gap_max_ns: u64,
    /// Seed of what is written.
    pub seed: u64,
    /// How full the volume is made before, as in [`crate::Parameters`].
    pub fill_percent: Option<u32>,
}

/// A run, and how much of the trace it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The figures.
    pub run: Run,
    /// Calls that could not be made.
    pub skipped: u64,
}

impl Replay<'_> {
    /// Replays `trace`.
    ///
    /// # Errors
    /// Whatever the volume reports: no space, if the trace needs a larger volume.
    pub fn run(&self, trace: &ReplayTrace, watch: &mut dyn Watch) -> Result<Replayed> {
        let stack = Stack::new(self.profile, self.image.snapshot(), 0)?;
        let plan = Plan::of(&trace.records, &trace.names);
        let Replay { fill_percent, seed, .. } = *self;
        let parameters = Parameters { fill_percent, seed, ..Parameters::default() };
        stack.age(self.mount, &parameters)?;
        let target = stack.mount(self.mount, self.seed)?;
        plan.populate(target.fs(), &trace.names)?;
        target.unmount()?;

        let target = stack.mount(self.mount, self.seed)?;
        let (mark, app) = (stack.mark(), target.app_bytes());
        let mut player = Player::new(Arc::clone(target.fs()), &trace.names, self.gap_max_ns);
        let mut timer = Timer::default();
        let total = trace.records.len() as u64;
        let mut done = 0;
        for record in &trace.records {
            if watch.cancelled() {
                break;
            }
            player.play(&target, record, &mut timer)?;
            done += 1;
            if done % 256 == 0 {
                watch.progress(done, total);
            }
        }
        let (operations, skipped) = (player.played(), player.skipped());
        drop(player);
        let moved = since(target.app_bytes(), app);
        let (device, duration_ns) = stack.since(&mark);
        let foreground = Metrics::new(operations, duration_ns, &timer, moved, Some(device));
        target.unmount()?;
        let (device, duration_ns) = stack.since(&mark);
        let metrics = Metrics::new(operations, duration_ns, &timer, moved, Some(device));
        let sync = match self.mount.sync {
            SyncMode::Ordered => "ordered",
            SyncMode::Eager => "eager",
        };
        let config = Config {
            sync: Some(sync.to_owned()),
            log: log_name(self.mount),
            journal_mode: None,
            mtime_update_ms: self.mount.mtime_update_ms,
            sqlite_fsync: false,
            alloc: alloc_name(self.mount),
            fill_percent: self.fill_percent,
            policy: Some(self.mount.policy.clone()),
            seed: self.seed,
        };
        let run = Run {
            workload: format!("replay/{}", trace.name),
            device: self.profile.name.clone(),
            config,
            metrics,
            foreground,
            interrupted: done < total,
        };
        Ok(Replayed { run, skipped })
    }
}
