//! One policy at one size on a trace: hits, what reaches the device, and that as a trace.
//!
//! ```text
//!   chunk of accesses -> Simulator -> device accesses -> Merger -> Sink (file, player)
//!   event: pages lost, or written and flushed
//! ```
//!
//! Tested in `lab/tests/evaluate/run.rs`.

use crate::trace::Sink;
use syncline_cache::{Counts, Entry, Simulator, WriteBack};

use crate::error::Result;
use crate::evaluate::after::Merger;
use crate::evaluate::pages::{EventKind, PageTrace};

/// Accesses between two looks at the watch.
const CHUNK: usize = 1 << 14;

/// Costs of a page read and a page write in the model of the informed-storage paper, section 5.4.3,
/// microseconds.
pub const READ_US: u64 = 100;
/// As [`READ_US`].
pub const WRITE_US: u64 = 800;

/// A cache.
#[derive(Clone, Copy)]
pub struct Configuration {
    /// The policy.
    pub policy: &'static Entry,
    /// Frames, one at least.
    pub pages: usize,
    /// When dirty pages are written.
    pub write_back: WriteBack,
    /// fsync writes the dirty pages of its file and flushes the device; else it does nothing, as in
    /// informed-storage paper, whose traces have none.
    pub fsync: bool,
}

/// Result of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the policy.
    pub policy: &'static str,
    /// Frames.
    pub pages: usize,
    /// Hits, reads, writes, runs.
    pub counts: Counts,
    /// Flushes of the device.
    pub flushes: u64,
}

impl Outcome {
    /// Seconds of the cost model of the informed-storage paper, section 5.4.3.
    pub fn cost_s(&self) -> f64 {
        self.counts.cost_us(READ_US, WRITE_US) as f64 / 1e6
    }

    /// Pages of a run of writes, on average; 0 without writes.
    pub fn mean_run_pages(&self) -> f64 {
        self.counts.write_backs as f64 / self.counts.write_runs.max(1) as f64
    }
}

/// A trace, ready for many configurations at once.
pub struct Evaluation<'a> {
    /// The accesses.
    pub trace: &'a PageTrace,
    /// [`PageTrace::next_uses`]; may be empty if no policy needs the future.
    pub next_uses: &'a [u64],
    /// Longest request after the cache, in pages.
    pub merge_pages: u64,
}

impl Evaluation<'_> {
    /// Runs the trace. What reaches the device goes to `after`, if it is there; `watch` gets the
    /// accesses done since its last call and says whether to go on.
    ///
    /// Returns `Ok(None)` if the watch stopped the run.
    pub fn run(
        &self,
        configuration: &Configuration,
        mut after: Option<&mut dyn Sink>,
        watch: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Outcome>> {
        let Configuration { policy, pages, write_back, fsync } = *configuration;
        let mut run = Run {
            trace: self.trace,
            simulator: Simulator::of(policy, pages, write_back),
            merger: Merger::new(self.merge_pages),
            flushes: 0,
        };
        if after.is_some() {
            run.simulator.record();
        }
        let (mut at, mut batch, total) = (0, Vec::with_capacity(CHUNK), self.trace.accesses());
        let mut events = self.trace.events.iter().peekable();
        loop {
            while let Some(event) = events.next_if(|event| event.at <= at) {
                match event.kind {
                    EventKind::Forget => run.simulator.forget_range(0, event.first, event.pages),
                    EventKind::Sync if fsync => {
                        run.simulator.write_range(0, event.first, event.pages);
                        run.flush(at, &mut after)?;
                    }
                    EventKind::Sync => {}
                }
            }
            if at == total {
                break;
            }
            let to = events.peek().map_or(total, |event| event.at).min(total).min(at + CHUNK);
            batch.clear();
            self.trace.copy(at, to, &mut batch);
            run.simulator.run(&batch, self.next_uses.get(at..to).unwrap_or(&[]));
            run.pass(&mut after)?;
            if !watch(to - at) {
                return Ok(None);
            }
            at = to;
        }
        let counts = run.simulator.drain();
        run.pass(&mut after)?;
        if let Some(sink) = after {
            run.merger.pass(sink)?;
        }
        Ok(Some(Outcome { policy: policy.name, pages, counts, flushes: run.flushes }))
    }
}

struct Run<'a> {
    trace: &'a PageTrace,
    simulator: Simulator,
    merger: Merger,
    flushes: u64,
}

impl Run<'_> {
    /// Passes on what reached the device.
    fn pass(&mut self, after: &mut Option<&mut dyn Sink>) -> Result<()> {
        let Some(sink) = after else { return Ok(()) };
        for access in self.simulator.take_device_accesses() {
            // Of the end of the trace: the last access's.
            let time_ns = self.trace.time_ns(access.at as usize);
            self.merger.take(&access, time_ns, &mut **sink)?;
        }
        Ok(())
    }

    fn flush(&mut self, at: usize, after: &mut Option<&mut dyn Sink>) -> Result<()> {
        self.pass(after)?;
        self.flushes += 1;
        let Some(sink) = after else { return Ok(()) };
        let time_ns = self.trace.time_ns(at);
        self.merger.flush(time_ns, &mut **sink)
    }
}
