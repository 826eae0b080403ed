//! Capture of a mount: its requests and the commands to its device, in a file of events.
//!
//! ```text
//!   workers: request, answer ──> Tap::send ──┐  bounded buffer    thread "capture"
//!   volume: device commands  ──> Tap::ended ─┴──────────────────────> FILE.events
//!
//!   later, `syncline-lab trace import FILE.events`: paths, order of time, three traces
//! ```
//!
//! Promises
//! - The events of one file are of one run and have one clock: requests before the caches of the
//!   volume, commands to the device after them.
//! - Memory is bounded by [`BUFFER_BYTES_MAX`], twice.
//! - A request waits at most [`WAIT_MAX`] for room in the buffer, and not at all while the thread
//!   makes no progress. An event without room is lost and counted. The file, `status` and the log
//!   of the mount give the count. So a full or hung disk never stops the mount.
//! - The file gets its name when the mount has ended. Until then, and after a kill, its name is
//!   `FILE.events.partial`, and it holds the events up to [`WRITE_INTERVAL`] before the kill.
//!
//! Assumes: the file is not on the mount itself; it is opened before the volume is mounted.
//! Tested in `format.rs`, `place.rs`, and through mounts in
//! `lab/tests/program/trace/mount.rs`.

mod event;
mod format;
mod place;
mod process;
mod record;

pub use event::{Call, CallFlags, CallOp, Detail, Event, Found, Named, Process, Range};
pub use format::{EVENTS_MAGIC, EventReader};
pub(crate) use process::process_of;
pub(crate) use record::recorded;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use syncline_device::{BlockDevice, Clock, DeviceError, Observer, TapDevice, TraceEvent};

use crate::error::{FuseError, Result};
use crate::host::Host;
pub use place::Place;

/// Bytes of events that wait for the thread.
const BUFFER_BYTES_MAX: usize = 16 << 20;

/// Longest wait of a request for room in the buffer.
const WAIT_MAX: Duration = Duration::from_millis(100);
const WAIT_STEP: Duration = Duration::from_millis(2);

/// Interval at which the buffer is written. No request wakes the thread: that would cost the
/// request more than all the rest.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// Events written to the file, and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Events in the file.
    pub events: u64,
    /// Events for which the buffer had no room.
    pub lost: u64,
}

/// Input of events.
pub(crate) struct Tap {
    host: Arc<dyn Host>,
    clock: Arc<dyn Clock>,
    buffer: Mutex<Vec<u8>>,
    /// The thread made no progress during the last wait.
    stuck: AtomicBool,
    lost: AtomicU64,
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Tap {
    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Events taken and lost so far.
    pub(crate) fn counts(&self) -> CaptureCounts {
        let (events, lost) = (&self.sent, &self.lost);
        CaptureCounts { events: events.load(Ordering::Relaxed), lost: lost.load(Ordering::Relaxed) }
    }

    pub(crate) fn send(&self, event: &Event) {
        let mut waited = Duration::ZERO;
        loop {
            {
                let mut buffer = self.buffer.lock();
                if buffer.len() < BUFFER_BYTES_MAX {
                    format::encode(event, &mut buffer);
                    drop(buffer);
                    self.stuck.store(false, Ordering::Relaxed);
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    return;
                }
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

    /// Writes the events to `file` until the capture ends. After a failed write they are taken and
    /// dropped, so that no request waits for room.
    fn write(&self, file: &mut File) -> io::Result<()> {
        let mut done = Ok(());
        let mut bytes = Vec::new();
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            std::mem::swap(&mut *self.buffer.lock(), &mut bytes);
            done = done.and_then(|()| file.write_all(&bytes));
            bytes.clear();
            if ended {
                return done;
            }
            thread::park_timeout(WRITE_INTERVAL);
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
        self.send(&Event::Device { event: *event, latency_ns, errno });
    }
}

const EIO: i32 = 5;

/// The file of a capture.
pub struct TraceFile {
    /// Where it gets its name.
    pub place: Arc<Place>,
    file: File,
    path: PathBuf,
}

/// A capture under way.
pub struct Capture {
    tap: Arc<Tap>,
    thread: Option<JoinHandle<io::Result<()>>>,
    path: PathBuf,
}

impl Capture {
    /// Makes the file. Its name is `file`, an extension `.events` or `.trace` left away, with
    /// `.events`.
    ///
    /// # Errors
    /// [`FuseError::Trace`]: the file cannot be made.
    pub fn create(file: &Path) -> Result<TraceFile> {
        let path = match file.extension() {
            Some(kept) if kept != "events" && kept != "trace" => {
                file.with_extension([kept, OsStr::new("events")].join(OsStr::new(".")))
            }
            _ => file.with_extension("events"),
        };
        let failed = |source| FuseError::Trace { path: path.clone(), source };
        let place = Place::new(&path).map_err(failed)?;
        let file = place.create().map_err(failed)?;
        Ok(TraceFile { place: Arc::new(place), file, path })
    }

    /// Starts the thread; `clock` is the volume's. The host has the place of the file.
    ///
    /// # Errors
    /// [`FuseError::Trace`]: there is no thread.
    pub fn start(trace: TraceFile, clock: Arc<dyn Clock>, host: Arc<dyn Host>) -> Result<Capture> {
        let TraceFile { file: mut out, path, .. } = trace;
        let failed = |source| FuseError::Trace { path: path.clone(), source };
        let buffer = Mutex::new(format::header(clock.now_ns()));
        let (stuck, lost, sent, ended) = Default::default();
        let tap = Arc::new(Tap { host, clock, buffer, stuck, lost, sent, ended });
        let writer = Arc::clone(&tap);
        let thread = thread::Builder::new().name("capture".into());
        let thread = thread.spawn(move || writer.write(&mut out)).map_err(failed)?;
        Ok(Capture { tap, thread: Some(thread), path })
    }

    /// `inner`, with its commands in the capture.
    pub fn device<D: BlockDevice>(&self, inner: D) -> TapDevice<D> {
        TapDevice::new(inner, Arc::clone(&self.tap.clock), Arc::<Tap>::clone(&self.tap))
    }

    /// For a mount.
    pub(crate) fn tap(&self) -> Arc<Tap> {
        Arc::clone(&self.tap)
    }

    /// Ends the file and gives it its name. The mount has to have ended.
    ///
    /// # Errors
    /// [`FuseError::Trace`] if the file could not be written; the mount is not affected.
    pub fn finish(mut self) -> Result<CaptureCounts> {
        let counts = self.tap.counts();
        format::encode(&Event::End { lost: counts.lost }, &mut self.tap.buffer.lock());
        let named = self.end().and_then(|()| self.tap.host.end_trace(true));
        let path = self.path.clone();
        named.map(|()| counts).map_err(|source| FuseError::Trace { path, source })
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.tap.ended.store(true, Ordering::Release);
        thread.thread().unpark();
        // It ends otherwise after a panic only, which ends the process.
        thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    }
}

impl Drop for Capture {
    /// Removes the file if [`Capture::finish`] was not called.
    fn drop(&mut self) {
        if self.thread.is_some() {
            // Nobody asked for a file that is not finished, so its errors have no reader.
            let _ = self.end();
            let _ = self.tap.host.end_trace(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Machine;
    use crate::options::FuseOptions;
    use syncline_device::VirtualClock;

    fn capture(dir: &Path) -> Capture {
        let trace = Capture::create(&dir.join("run.trace")).unwrap();
        let mut machine = Machine::new(dir, dir, &FuseOptions::default());
        machine.trace = Some(Arc::clone(&trace.place));
        Capture::start(trace, Arc::new(VirtualClock::new(1000)), Arc::new(machine)).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        std::fs::read_dir(dir).unwrap().map(name).map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_finished_capture_has_its_events_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let capture = capture(dir.path());
        let forgot = Event::Forgot { ino: 12, lookups: 3 };
        capture.tap.send(&forgot);
        assert_eq!(names(dir.path()), ["run.events.partial"]);
        assert_eq!(capture.finish().unwrap(), CaptureCounts { events: 1, lost: 0 });
        assert_eq!(names(dir.path()), ["run.events"]);
        let file = File::open(dir.path().join("run.events")).unwrap();
        let mut reader = EventReader::new(io::BufReader::new(file)).unwrap();
        assert_eq!(reader.began_ns(), 1000);
        let next = || reader.next_event().unwrap();
        let events: Vec<Event> = std::iter::from_fn(next).collect();
        assert_eq!(events, [forgot, Event::End { lost: 0 }]);
    }

    #[test]
    fn a_capture_that_is_not_finished_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        drop(capture(dir.path()));
        assert!(names(dir.path()).is_empty());
    }

    /// The thread is parked for good here: nobody empties the buffer.
    #[test]
    fn events_without_room_are_lost_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture = capture(dir.path());
        capture.end().unwrap();
        let name = vec![b'n'; 255].into_boxed_slice();
        let event = Event::Learned { dir: 2, name, found: Found::default() };
        let sends = BUFFER_BYTES_MAX / 255 + 10;
        for _ in 0..sends {
            capture.tap.send(&event);
        }
        let counts = capture.tap.counts();
        assert_eq!(counts.events + counts.lost, sends as u64);
        assert!(counts.lost > 0 && capture.tap.buffer.lock().len() < BUFFER_BYTES_MAX + 1024);
    }
}
