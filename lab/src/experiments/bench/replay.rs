//! Traces of system calls on a volume.

use super::{Bench, go_on};
use crate::error::{LabError, Result};
use crate::experiments::replay::calls;
use crate::experiments::trace::Source;
use crate::experiments::trace_file::TraceFile;
use crate::observer::Observer;
use crate::replay::{Contents, ReplayTrace, Replayed};
use crate::trace::TraceKind;

impl Bench {
    /// Plays traces of system calls in each of the sync modes.
    pub fn replay(&self, observer: &dyn Observer, all: &mut Vec<Replayed>) -> Result<()> {
        self.replay_over(None, observer, all)
    }

    /// As [`Bench::replay`], over a write buffer with a log of so many bytes, if they are given.
    pub(crate) fn replay_over(
        &self,
        log_bytes: Option<u64>,
        observer: &dyn Observer,
        all: &mut Vec<Replayed>,
    ) -> Result<()> {
        let (profile, image) = self.load()?;
        let (profile, image) = (&profile, &image);
        let contents = self.contents()?;
        for trace in self.traces(observer)? {
            for mode in &self.sync {
                let mounts = self.mount_options(&format!("sync={mode}"))?;
                for (fill_percent, mount) in
                    self.fills().into_iter().flat_map(|fill| mounts.iter().map(move |m| (fill, m)))
                {
                    let gap_max_ns = self.gap_max.saturating_mul(1_000_000);
                    let seed = self.seed;
                    let replay = crate::replay::Replay {
                        profile,
                        image,
                        mount,
                        gap_max_ns,
                        seed,
                        contents,
                        fill_percent,
                        flashlite: self.flashlite.as_deref(),
                        used: self.used,
                    };
                    observer.begin(&trace.name, trace.records.len() as u64);
                    let replayed = replay.run_over(&trace, log_bytes, observer);
                    observer.end();
                    all.push(replayed?);
                    go_on(observer)?;
                }
            }
        }
        Ok(())
    }

    fn contents(&self) -> Result<Contents> {
        match self.contents.as_str() {
            "noise" => Ok(Contents::Noise),
            "same" => Ok(Contents::Same),
            other => {
                let text = format!("contents `{other}`: give noise or same");
                Err(LabError::Usage(text))
            }
        }
    }

    fn traces(&self, observer: &dyn Observer) -> Result<Vec<ReplayTrace>> {
        if self.trace.is_empty() {
            return ReplayTrace::shipped();
        }
        let mut traces = Vec::new();
        for path in &self.trace {
            let source = Source::open(&TraceFile::of(path))?;
            if source.header().kind != TraceKind::Syscall {
                let text = format!(
                    "{}: replay wants a trace of system calls; this has blocks or pages",
                    path.display()
                );
                let text = text + "; record one with `syncline-lab trace record`";
                return Err(LabError::Usage(text));
            }
            traces.push(calls(source, path, observer)?);
        }
        Ok(traces)
    }
}
