//! Workloads in a directory, in real time.

use std::path::Path;

use super::{Bench, BenchResult, keep};
use crate::bench::{DirectoryRun, Entry, JournalMode, Run};
use crate::error::Result;
use crate::observer::Observer;

impl Bench {
    /// Runs the workloads; with [`Bench::dir`] there, else on a simulated device. `events_max`
    /// commands of each run's block trace are kept.
    ///
    /// On an error or an interruption the finished runs are in `result`.
    pub fn run(
        &self,
        events_max: usize,
        observer: &dyn Observer,
        result: &mut BenchResult,
    ) -> Result<()> {
        let Some(dir) = &self.dir else { return self.simulated(events_max, observer, result) };
        let (entries, modes) = (self.entries()?, self.journal_modes()?);
        self.in_directory(dir, &entries, &modes, observer, &mut result.runs)
    }

    /// Runs the workloads in a directory, in real time.
    pub fn in_directory(
        &self,
        dir: &Path,
        entries: &[&Entry],
        modes: &[JournalMode],
        observer: &dyn Observer,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        for entry in entries {
            for parameters in self.parameters(entry, modes)? {
                let run = DirectoryRun { dir: dir.to_owned(), parameters: &parameters };
                observer.begin(entry.name, entry.operations(&parameters));
                let run = run.run(entry, observer);
                observer.end();
                keep(run?, runs, observer)?;
            }
        }
        Ok(())
    }
}
