//! One mount from start to end.
//!
//! ```text
//!   Mount::start   mount(2) or fusermount3 - INIT answered - workers, maintenance, watchdog
//!   Mount::is_over true once the kernel has unmounted it
//!   Mount::end     kernel's pages synced - unmounted, lazily if in use - workers gone -
//!                  references dropped - Volume::unmount
//! ```
//!
//! `end` always ends: files that are still open are answered with an error from then on, the image
//! is clean. A volume that has latched is left recoverable.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;
use syncline_control::status::{CountsOf, Image, PartOf, Sources, Status};
use syncline_device::{Clock, Counts};
use syncline_fs::{FsError, Volume};

use thread_priority::{
    ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
    thread_schedule_policy,
};

use crate::adapter::Adapter;
use crate::affinity::CpuAffinity;
use crate::capture::{Capture, CaptureCounts, Tap};
use crate::error::{FuseError, Result};
use crate::host::{DEVICE_PATH, Host, Machine};
use crate::memory;
use crate::operations::NAMES;
use crate::options::{Affinity, FuseOptions};
use crate::parking::Parking;
use crate::serve::Serve;
use crate::wakeup::WritebackUrgency;
use crate::wire::{self, Device, Rings, flag, ring};

/// Longest sleep of the maintenance thread: what gets dirty meanwhile is not late by more.
const MAINTENANCE_MS_MAX: u64 = 1000;

/// The same while so much is dirty that it is written back: only urgent needs wake it then.
const MUCH_DIRTY_MS_MAX: u64 = 50;

/// Time for which a write-back that is due goes on without a pause: each of its wake-ups may take
/// a program and the worker bound beside it apart. On slow flash that is one step or two.
const STRETCH: Duration = Duration::from_millis(4);

/// Time without requests after which free memory goes back to the system.
const IDLE_NS: u64 = 20_000_000_000;

/// Most steps in that time: where nothing can be written, for lack of space, one does nothing.
const STRETCH_STEPS: u32 = 64;

/// Longest wait of the end for workers, after an unmount.
const END_WAIT: Duration = Duration::from_secs(2);

/// Parts of a mount.
pub struct Setup<'c> {
    /// The volume, mounted with `options.volume`.
    pub volume: Volume,
    /// The clock of the volume.
    pub clock: Arc<dyn Clock>,
    /// Options of the mount.
    pub options: FuseOptions,
    /// Path of the image, the source in the mount table.
    pub image: PathBuf,
    /// Reads the counts of the device.
    pub counts: CountsOf,
    /// Reads the status of the write buffer under the volume, if there is one.
    pub buffer: Option<PartOf>,
    /// Reads the settings that can be changed while it is mounted.
    pub settings: PartOf,
    /// Records what is done; its device is the volume's, see [`Capture::device`].
    pub capture: Option<&'c Capture>,
    /// Takes one line about something that went wrong.
    pub log: Arc<dyn Fn(&str) + Send + Sync>,
    /// Has the rights of the mount.
    pub host: Arc<dyn Host>,
    /// Rights that were given up, for the status document.
    pub sandbox: serde_json::Value,
    /// Each worker may open /dev/fuse, for a queue of its own.
    pub own_queues: bool,
    /// Rings for requests, if the kernel offers io_uring for them.
    pub rings: Option<Rings>,
    /// The reason for the format of the log, if it was chosen (`log=auto`).
    pub log_reason: Option<String>,
}

impl<'c> Setup<'c> {
    /// A mount on `dir` by this process, without a write buffer, settings that can be changed, or
    /// capture; its device is not counted. Messages go to standard error.
    pub fn new(
        dir: &Path,
        volume: Volume,
        clock: Arc<dyn Clock>,
        options: FuseOptions,
        image: PathBuf,
    ) -> Self {
        let host = Arc::new(Machine::new(dir, &image, &options));
        Setup {
            volume,
            clock,
            options,
            image,
            counts: Arc::new(Counts::default),
            buffer: None,
            settings: Arc::new(|| serde_json::Value::Null),
            capture: None,
            log: Arc::new(|line| eprintln!("{line}")),
            host,
            sandbox: serde_json::Value::Null,
            own_queues: true,
            rings: None,
            log_reason: None,
        }
    }
}

/// A volume that is mounted.
pub struct Mount {
    host: Arc<dyn Host>,
    volume: Volume,
    serve: Arc<Serve>,
    workers: Vec<JoinHandle<()>>,
    parking: Arc<Parking>,
    watchdog: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    maintenance: JoinHandle<()>,
    writeback_cache: bool,
}

/// Outcome of the end of a mount.
#[derive(Debug)]
pub struct Ended {
    /// Result of [`Volume::unmount`].
    pub volume: std::result::Result<(), FsError>,
    /// Somebody had files open, so the directory was only detached.
    pub was_busy: bool,
}

impl Mount {
    /// Mounts on `dir`, which must exist. When it returns the mount is ready for use.
    ///
    /// # Errors
    /// [`FuseError::Mount`] if the kernel or fusermount3 refuses. The volume was not unmounted
    /// then: a clone of it can be.
    pub fn start(setup: Setup<'_>, dir: &Path) -> Result<Mount> {
        let (serve, tap) = serving(&setup);
        let Setup { volume, clock, options, log, host, own_queues, rings, .. } = setup;
        let count = options.workers();
        let binds = options.affinity == Affinity::Caller && count > 1;
        let affinity =
            if binds { CpuAffinity::new(Arc::clone(&host)) } else { CpuAffinity::default() };
        let parking = Parking::new(count, affinity);
        let mounted = || host.mount(volume.is_read_only());
        let spawned = |device: OwnedFd, rings: Option<Rings>| {
            let adapter = Adapter::new(Arc::clone(&serve), tap.clone(), &options);
            let log = Arc::clone(&log);
            let spawn = Spawn { count, own_queues, rings, binds, log };
            spawn.all(adapter, device, &parking).inspect_err(|_| {
                host.unmount(false);
            })
        };
        let by_ring = rings.is_some();
        // A mount that is refused has nothing to do with the rings, and is not tried again.
        let device = mounted().map_err(|err| refused(dir, &err))?;
        let workers = spawned(device, rings).or_else(|err| match by_ring {
            true => {
                log(&format!(
                    "requests come through /dev/fuse, since io_uring does not work: {err}"
                ));
                spawned(mounted()?, None)
            }
            false => Err(err),
        });
        let workers = workers.map_err(|err| refused(dir, &err))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, serving) = (Arc::clone(&stop), Arc::clone(&serve));
        let maintenance =
            MaintenanceThread { volume: volume.clone(), serve: serving, clock, log, stop: stopped };
        let maintenance = thread::Builder::new()
            .name("maintenance".into())
            .spawn(move || maintenance.run())
            .map_err(|err| refused(dir, &err))?;
        serve.wakeup.set_thread(maintenance.thread());
        let watched = Arc::clone(&parking);
        let watchdog = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || watched.watch())
            .map_err(|err| refused(dir, &err))?;
        host.read_ahead();
        let writeback_cache = options.writeback_cache;
        Ok(Mount {
            host,
            volume,
            serve,
            workers,
            parking,
            watchdog,
            stop,
            maintenance,
            writeback_cache,
        })
    }

    /// Reports whether the mount is gone: somebody unmounted it.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(JoinHandle::is_finished)
    }

    /// Unmounts, if nobody has yet, and leaves the image clean.
    pub fn end(self) -> Ended {
        let mut was_busy = false;
        if !self.is_over() {
            // The kernel may hold written data.
            was_busy = self.host.unmount(self.writeback_cache);
            let began = Instant::now();
            while !self.is_over() && began.elapsed() < END_WAIT {
                thread::sleep(Duration::from_millis(5));
            }
        }
        self.stop.store(true, Ordering::Release);
        self.maintenance.thread().unpark();
        self.parking.finish();
        // Threads that panicked have nothing more to do either.
        let _ = self.maintenance.join();
        let _ = self.watchdog.join();
        self.serve.clear();
        let volume = self.volume.unmount();
        Ended { volume, was_busy }
    }
}

/// The part that answers requests, and its capture.
pub(crate) fn serving(setup: &Setup<'_>) -> (Arc<Serve>, Option<Arc<Tap>>) {
    let tap = setup.capture.map(Capture::tap);
    let sources = Sources {
        counts: Arc::clone(&setup.counts),
        buffer: setup.buffer.clone(),
        settings: Arc::clone(&setup.settings),
        capture: tap.clone().map(captured),
        sandbox: setup.sandbox.clone(),
        log_reason: setup.log_reason.clone(),
        heap: memory::heap_bytes,
    };
    let (options, clock) = (&setup.options, &setup.clock);
    let image = Image {
        path: setup.image.to_string_lossy().into_owned(),
        partition: options.partition,
        offset_bytes: options.offset,
    };
    let protocol = (DEVICE_PATH, NAMES);
    let status = Status::new(image, &options.volume, Arc::clone(clock), protocol, sources);
    let volume = setup.volume.clone();
    let serve = Serve::new(
        volume,
        Arc::clone(clock),
        &setup.options,
        Arc::new(status),
        Arc::clone(&setup.host),
    );
    (Arc::new(serve), tap)
}

/// The part of a status about a capture.
fn captured(tap: Arc<Tap>) -> PartOf {
    Arc::new(move || {
        let CaptureCounts { events, lost } = tap.counts();
        json!({ "events": events, "lost": lost })
    })
}

/// Workers of a mount.
struct Spawn {
    count: usize,
    own_queues: bool,
    rings: Option<Rings>,
    /// Workers may be bound to processors.
    binds: bool,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Spawn {
    /// Answers INIT and starts the workers.
    fn all(
        self,
        mut adapter: Adapter,
        device: OwnedFd,
        parking: &Arc<Parking>,
    ) -> io::Result<Vec<JoinHandle<()>>> {
        let device = Device::new(device);
        let mut has_ring = false;
        device.handshake(|offer| {
            has_ring = self.rings.is_some() && offer.flags & flag::OVER_IO_URING != 0;
            adapter.agree(offer, has_ring)
        })?;
        // The cell is new.
        let _ = adapter.device.set(device.clone());
        let (adapter, mut threads) = (Arc::new(adapter), Vec::new());
        // None is served before the rings are there, or given up.
        adapter.serve.set_by_ring(has_ring);
        let by_ring = match self.rings.filter(|_| has_ring) {
            Some(rings) => ring::start(rings, &device, &adapter, self.binds, &mut threads)?,
            None => false,
        };
        if has_ring && !by_ring {
            (self.log)("requests come through /dev/fuse: the kernel refused a queue of io_uring");
        }
        adapter.serve.set_by_ring(by_ring);
        parking.affinity.set_device(device.as_fd().try_clone_to_owned()?);
        // What does not come through the rings needs one worker, which waits for nobody.
        let (count, parking) = match by_ring {
            true => (1, Parking::new(1, CpuAffinity::default())),
            false => (self.count, Arc::clone(parking)),
        };
        for nr in 0..count {
            let own = if nr > 0 && self.own_queues { device.further()? } else { device.clone() };
            let (adapter, parking, log) =
                (Arc::clone(&adapter), Arc::clone(&parking), Arc::clone(&self.log));
            let worker = thread::Builder::new().name(format!("fuse-{nr}"));
            threads.push(worker.spawn(move || {
                if let Err(err) = wire::serve(&own, &adapter, &parking) {
                    log(&format!("a worker ended: {err}"));
                }
            })?);
        }
        Ok(threads)
    }
}

fn refused(dir: &Path, err: &std::io::Error) -> FuseError {
    let text = err.to_string();
    let text = text.trim().trim_start_matches("fusermount3: ");
    if text.contains("; ") {
        // It has the next step.
        return FuseError::Mount(format!("{}: cannot be mounted on: {text}", dir.display()));
    }
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device_error = opened.err().map(|err| err.kind());
    let next = if device_error == Some(std::io::ErrorKind::PermissionDenied) {
        "/dev/fuse is root's alone: make it usable with chmod 666 /dev/fuse, or a udev rule"
    } else if device_error.is_some() {
        "load the kernel module: modprobe fuse"
    } else if text.contains("/etc/mtab") {
        "make it, as root: ln -s ../proc/self/mounts /etc/mtab"
    } else if text.contains("user_allow_other") {
        "add the line user_allow_other to /etc/fuse.conf, or mount without allow_other"
    } else if err.kind() == std::io::ErrorKind::NotFound {
        "check that the directory exists and that fuse3 is installed"
    } else {
        "check that the directory is yours and empty, and that fuse3 is installed"
    };
    FuseError::Mount(format!("{}: cannot be mounted on: {text}; {next}", dir.display()))
}

/// The maintenance thread: work that a kernel does in timers.
struct MaintenanceThread {
    volume: Volume,
    serve: Arc<Serve>,
    clock: Arc<dyn Clock>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
    stop: Arc<AtomicBool>,
}

/// Gives the calling thread, in a process with real-time priority, the lowest there is: below the
/// workers, so that no request waits for a processor that writes back, and still above what is not
/// real-time, which must not hold up a lock of ours.
fn step_back() {
    if let Ok(policy @ ThreadSchedulePolicy::Realtime(_)) = thread_schedule_policy() {
        // Without it write-back only has the priority that it was given.
        let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
    }
}

/// Time since the last request.
#[derive(Default)]
struct Idle {
    requests: u64,
    since_ns: u64,
    said: bool,
}

impl Idle {
    /// True once in each stretch of [`IDLE_NS`] without a request.
    fn is_over(&mut self, requests: u64, now_ns: u64) -> bool {
        if self.requests != requests {
            *self = Idle { requests, since_ns: now_ns, said: false };
        }
        let over = !self.said && now_ns.saturating_sub(self.since_ns) >= IDLE_NS;
        self.said |= over;
        over
    }
}

impl MaintenanceThread {
    fn run(self) {
        step_back();
        let (mut said, mut steps, mut rested_ns) = (false, 0, 0);
        let mut idle = Idle::default();
        while !self.stop.load(Ordering::Acquire) {
            let urgency = WritebackUrgency::of(&self.volume);
            self.serve.wakeup.begin_round(urgency);
            if urgency == WritebackUrgency::Now {
                self.volume.hurry_writeback();
            }
            let now = self.clock.now_ns();
            let due = self.volume.next_deadline_ns();
            let is_due = due.is_some_and(|due| due <= now);
            let ticked = if is_due { self.volume.tick(now) } else { Ok(()) };
            if let Some(latched) = self.volume.latched() {
                if !said {
                    (self.log)(&latched.to_string());
                    said = true;
                }
            } else if let Err(err) = ticked {
                (self.log)(&format!("write-back: {err}"));
            } else if is_due
                && steps < STRETCH_STEPS
                && Duration::from_nanos(now.saturating_sub(rested_ns)) < STRETCH
            {
                steps += 1;
                continue;
            }
            let longest_ms = if urgency >= WritebackUrgency::Soon {
                MUCH_DIRTY_MS_MAX
            } else {
                MAINTENANCE_MS_MAX
            };
            let rest_ms = due.map_or(longest_ms, |due| {
                // One millisecond at least: a deadline that does not move must not spin.
                due.saturating_sub(now).div_ceil(1_000_000).clamp(1, longest_ms)
            });
            let rest_ms = if said { MAINTENANCE_MS_MAX } else { rest_ms };
            if idle.is_over(self.serve.requests(), now) {
                self.volume.release_spare_pages();
                memory::give_back();
            }
            thread::park_timeout(Duration::from_millis(rest_ms));
            (steps, rested_ns) = (0, self.clock.now_ns());
        }
    }
}
