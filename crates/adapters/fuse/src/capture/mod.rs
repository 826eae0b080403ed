//! Capture of a mount: its requests and the commands to its device, as traces.
//!
//! ```text
//!   workers: request, answer ──> Tap::send ──┐  bounded queue     thread "capture"
//!   volume: device commands  ──> Tap::ended ─┴──> Scribe: paths, order of time
//!                                                   ├─> FILE.calls.trace
//!                                                   ├─> FILE.pages.trace
//!                                                   └─> FILE.blocks.trace
//! ```
//!
//! Promises
//! - The three traces are of one run and have one time: calls and pages before the caches of the
//!   volume, block requests after them.
//! - Memory is bounded: the queue ([`QUEUE`] events), the calls that are put into order, one row
//!   group of each trace, and the names that the kernel knows.
//! - A request waits for a place in the queue for [`WAIT_MAX`] at most, and not at all while the
//!   thread does not get on. An event without a place is lost, counted, and said in the traces, in
//!   `status` and at the end. So a trace on a full or hung disk never stops the mount.
//! - The files have their names when the mount has ended. Until then, and after a kill, they are
//!   called `*.trace.partial` and have the records up to their last footer.
//!
//! Assumes: the files are not on the mount itself; they are opened before it is mounted.
//! Tested in `scribe_tests.rs`, `order.rs`, `tree.rs`, and through mounts in
//! `crates/adapters/cli/tests/it/trace/mount.rs`.

mod event;
mod order;
mod place;
mod process;
mod record;
mod scribe;
#[cfg(test)]
mod scribe_tests;
mod tree;

pub(crate) use event::{Detail, Event};
pub(crate) use record::recorded;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use syncline_device::{BlockDevice, Clock, DeviceError, Observer, TapDevice, TraceEvent};
use syncline_trace::TraceError;

use crate::error::{FuseError, Result};
use scribe::Scribe;

/// Events between the workers and the thread.
const QUEUE: usize = 1 << 17;

/// Longest wait of a request for a place in the queue.
const WAIT_MAX: Duration = Duration::from_millis(100);
const WAIT_STEP: Duration = Duration::from_millis(2);

/// Records written to each trace, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// System calls.
    pub calls: u64,
    /// Accesses to pages.
    pub pages: u64,
    /// Block requests.
    pub blocks: u64,
    /// Events that found no place in the queue.
    pub lost: u64,
}

/// Input of events.
pub(crate) struct Tap {
    clock: Arc<dyn Clock>,
    queue: SyncSender<Event>,
    /// The thread did not get on when somebody waited last.
    stuck: AtomicBool,
    lost: AtomicU64,
    sent: AtomicU64,
}

impl Tap {
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Events taken and lost so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    pub(crate) fn send(&self, event: Event) {
        let mut event = event;
        let mut waited = Duration::ZERO;
        loop {
            match self.queue.try_send(event) {
                Ok(()) => {
                    self.stuck.store(false, Ordering::Relaxed);
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                // The capture has ended.
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(back)) => event = back,
            }
            if waited >= WAIT_MAX || self.stuck.load(Ordering::Relaxed) {
                self.stuck.store(true, Ordering::Relaxed);
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            thread::sleep(WAIT_STEP);
            waited += WAIT_STEP;
        }
    }
}

impl Observer for Tap {
    fn ended(
        &self,
        event: &TraceEvent,
        latency_ns: u64,
        result: &std::result::Result<(), DeviceError>,
    ) {
        let errno = match result {
            Ok(()) => None,
            Err(DeviceError::Io { errno, .. }) => Some(*errno),
            Err(_) => Some(EIO),
        };
        self.send(Event::Device { event: *event, latency_ns, errno });
    }
}

const EIO: i32 = 5;

/// A capture under way.
pub struct Capture {
    tap: Arc<Tap>,
    thread: Option<JoinHandle<std::result::Result<CaptureCounts, TraceError>>>,
    first: PathBuf,
}

impl Capture {
    /// Opens the files and starts the thread. `file` is the common part of their names, an
    /// extension `.trace` left away; `clock` is the volume's.
    ///
    /// # Errors
    /// [`FuseError::Trace`]: a file cannot be made.
    pub fn start(file: &Path, clock: Arc<dyn Clock>) -> Result<Capture> {
        let stem = match file.extension() {
            Some(extension) if extension == "trace" => file.with_extension(""),
            _ => file.to_owned(),
        };
        let first = stem.with_added_extension("calls.trace");
        let failed = |source: TraceError| FuseError::Trace { path: stem.clone(), source };
        let scribe = Scribe::new(&stem, Arc::clone(&clock)).map_err(failed)?;
        let (queue, events) = sync_channel(QUEUE);
        let (stuck, lost, sent) = Default::default();
        let tap = Arc::new(Tap { clock, queue, stuck, lost, sent });
        let thread = thread::Builder::new().name("capture".into());
        let thread = thread.spawn(move || scribe.run(&events));
        let io = |source| failed(TraceError::Io { what: "capture thread", source });
        let thread = Some(thread.map_err(io)?);
        Ok(Capture { tap, thread, first })
    }

    /// `inner`, with its commands in the capture.
    pub fn device<D: BlockDevice>(&self, inner: D) -> TapDevice<D> {
        TapDevice::new(inner, Arc::clone(&self.tap.clock), Arc::<Tap>::clone(&self.tap))
    }

    /// For a mount.
    pub(crate) fn tap(&self) -> Arc<Tap> {
        Arc::clone(&self.tap)
    }

    /// Ends the traces and gives them their names. To be called after the mount has ended.
    ///
    /// # Errors
    /// [`FuseError::Trace`] if a trace could not be written; the mount does not suffer from it.
    pub fn finish(mut self) -> Result<CaptureCounts> {
        match self.end(true) {
            Some(done) => {
                done.map_err(|source| FuseError::Trace { path: self.first.clone(), source })
            }
            None => Ok(CaptureCounts::default()),
        }
    }

    fn end(&mut self, keep: bool) -> Option<std::result::Result<CaptureCounts, TraceError>> {
        let thread = self.thread.take()?;
        let lost = self.tap.lost.load(Ordering::Relaxed);
        // The thread always empties the queue; it is gone only after a panic, which ends all.
        let _ = self.tap.queue.send(Event::End { keep, lost });
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Capture {
    /// Without [`Capture::finish`] nothing is left behind.
    fn drop(&mut self) {
        let _ = self.end(false);
    }
}
