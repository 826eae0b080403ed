//! Runs a workload in a mounted directory, in real time.
//!
//! Device figures are not known. Tested in `lab/tests/bench/directory.rs`.

use std::path::PathBuf;

use crate::latency::Timer;
use crate::observer::Observer;

use crate::bench::metrics::{Config, Metrics, Run};
use crate::bench::runner::{journal_mode, since, steps};
use crate::bench::target::{DirectoryTarget, Target};
use crate::bench::workloads::{Entry, Parameters};
use crate::error::Result;

/// A run on a mounted directory, in real time.
pub struct DirectoryRun<'a> {
    /// Where; the run works in a subdirectory that it removes.
    pub dir: PathBuf,
    /// Error of the workload.
    pub parameters: &'a Parameters,
}

impl DirectoryRun<'_> {
    /// Runs `entry`. Device figures are not known.
    pub fn run(&self, entry: &Entry, observer: &dyn Observer) -> Result<Run> {
        let target = DirectoryTarget::new(&self.dir)?;
        let mut workload = entry.make(self.parameters);
        workload.prepare(&target)?;
        target.sync_all()?;
        workload.open(&target)?;
        target.sync_all()?;
        let (start_ns, app) = (target.now_ns(), target.app_bytes());
        let limits = entry.limits(self.parameters)?;
        let mut timer = Timer::default();
        let done = steps(&mut *workload, &target, limits, &mut timer, observer)?;
        // SQLite's own VFS moves bytes that are not seen here.
        let moved = || if entry.sqlite { None } else { since(target.app_bytes(), app) };
        let figures = || {
            Metrics::new(done.count, target.now_ns() - start_ns, &timer, moved(), None)
                .with_percentiles(&timer, &self.parameters.percentiles)
        };
        let foreground = figures();
        workload.close(&target)?;
        target.sync_all()?;
        let metrics = figures();
        let config = Config {
            journal_mode: journal_mode(entry, self.parameters),
            seed: self.parameters.seed,
            ..Config::default()
        };
        Ok(Run {
            workload: entry.name.to_owned(),
            device: self.dir.display().to_string(),
            config,
            metrics,
            foreground,
            interrupted: done.interrupted,
        })
    }
}
