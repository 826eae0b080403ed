//! Runs a workload on a target and measures it.
//!
//! ```text
//!   MemoryDevice (image) ── NandDevice (profile, clock) ── RecordingDevice ── Volume ── Target
//!
//!   mount, prepare, unmount | mount, open, sync | steps ......... | close, unmount
//!          not measured     |    not measured   |<- foreground -->|
//!                                               |<------------ metrics ----------->|
//! ```
//!
//! Promises: with a virtual clock a run is single-threaded and repeats to the last figure from its
//! seed. The device is fresh: only the image's preparation has aged it. An interrupted run stops
//! after the current operation, closes and unmounts, and reports the operations so far.
//!
//! Tested in `lab/tests/bench/runs.rs` (determinism, interruption), `lab/tests/bench/baseline.rs`
//! (kernel figures) and `lab/tests/bench/calibration.rs`.

use std::sync::Arc;
use std::time::Duration;

use crate::latency::Timer;
use crate::observer::Observer;
use syncline_buffer::{Buffer, BufferOptions, LogArea, LogId};
use syncline_device::{
    BlockDevice, Clock, Counts, MemoryDevice, OffsetDevice, RecordingDevice, VirtualClock,
};
use syncline_fs::{MountOptions, Volume};
use syncline_nand::{Counters, NandDevice, Profile};
use syncline_sqlite::{AppBytes, Barriers, seed_sqlite};

use crate::bench::aging::Aging;
use crate::bench::image::Image;
use crate::bench::metrics::{Config, DeviceMetrics, Metrics, Run};
use crate::bench::target::{Target, VolumeTarget};
use crate::bench::workloads::{Entry, Limits, Parameters, Workload};
use crate::error::Result;

const LOG_ID: LogId = *b"syncline-bench-0";
/// Pieces of work of a buffer for one visit while the device is idle.
pub(crate) const TICKS_MAX: u32 = 64;

/// A run on a simulated device.
pub struct Simulation<'a> {
    /// The device.
    pub profile: &'a Profile,
    /// The volume; unchanged by the run.
    pub image: &'a Image,
    /// Mount options.
    pub mount: &'a MountOptions,
    /// Error of the workload.
    pub parameters: &'a Parameters,
}

/// Devices of a simulated run, from the image up.
pub struct Stack {
    /// Contents.
    pub memory: Arc<MemoryDevice>,
    /// Time and wear.
    pub nand: Arc<NandDevice>,
    /// Counts.
    pub recording: Arc<RecordingDevice<Arc<NandDevice>>>,
    /// The clock of all.
    pub clock: Arc<VirtualClock>,
}

impl Stack {
    /// A fresh device of `profile` that holds `contents`. Keeps the first `events_max` commands.
    pub fn new(profile: &Profile, contents: MemoryDevice, events_max: usize) -> Result<Stack> {
        let clock = Arc::new(VirtualClock::default());
        let memory = Arc::new(contents);
        let nand = Arc::new(NandDevice::new(profile, memory.clone(), clock.clone())?);
        let recording = RecordingDevice::with_events(Arc::clone(&nand), clock.clone(), events_max);
        Ok(Stack { memory, nand, recording: Arc::new(recording), clock })
    }

    /// As [`Stack::new`], of a device whose power can be cut.
    pub(crate) fn with_power_cuts(profile: &Profile, contents: MemoryDevice) -> Result<Stack> {
        let clock = Arc::new(VirtualClock::default());
        let memory = Arc::new(contents);
        let nand = NandDevice::with_power_cuts(profile, memory.clone(), clock.clone())?;
        let nand = Arc::new(nand);
        let recording = Arc::new(RecordingDevice::new(Arc::clone(&nand)));
        Ok(Stack { memory, nand, recording, clock })
    }

    /// Mounts the volume, with system calls at the profile's price.
    pub fn mount(&self, options: &MountOptions, seed: u64) -> Result<VolumeTarget> {
        self.mount_on(self.recording.clone(), None, options, seed)
    }

    /// Part of the device, its requests counted with all others.
    pub(crate) fn part(&self, start_bytes: u64, len_bytes: u64) -> Result<Arc<dyn BlockDevice>> {
        Ok(Arc::new(OffsetDevice::new(self.recording.clone(), start_bytes, len_bytes)?))
    }

    /// A write buffer over the first `home_bytes` of the device, with a new log behind them.
    pub(crate) fn buffer(
        &self,
        home_bytes: u64,
        log_bytes: Option<u64>,
        options: BufferOptions,
    ) -> Result<Arc<Buffer>> {
        let mut area = None;
        if let Some(len) = log_bytes {
            let log = LogArea { device: self.part(home_bytes, len)?, same_medium: true };
            Buffer::create_log(&log, home_bytes, LOG_ID, false)?;
            area = Some(log);
        }
        let (home, clock) = (self.part(0, home_bytes)?, self.clock.clone());
        Ok(Arc::new(Buffer::open_measured(home, area, options, Some(clock))?))
    }

    /// Mounts the volume on `top`, a part of this device or `buffer` over it, whose work is done
    /// while no request comes.
    pub(crate) fn mount_on(
        &self,
        top: Arc<dyn BlockDevice>,
        buffer: Option<&Arc<Buffer>>,
        options: &MountOptions,
        seed: u64,
    ) -> Result<VolumeTarget> {
        let volume = Volume::mount(top, self.clock.clone(), options.clone())?;
        let syscall_us = self.nand.profile().host.syscall_us;
        let target = VolumeTarget::new(volume, self.clock.clone(), syscall_us, seed)?;
        if let Some(buffer) = buffer.cloned() {
            target.fs().set_background(Box::new(move |now_ns| {
                // A failure has latched the buffer: the next write reports it.
                for _ in 0..TICKS_MAX {
                    if !matches!(buffer.tick(Duration::from_nanos(now_ns)), Ok(true)) {
                        break;
                    }
                }
            }));
        }
        Ok(target)
    }

    /// Brings everything that a buffer has to its place.
    pub(crate) fn drain(buffer: Option<&Arc<Buffer>>) -> Result<()> {
        Ok(buffer.map_or(Ok(()), |buffer| buffer.drain())?)
    }

    /// Uses the volume for weeks, if the parameters ask for one that is not fresh.
    pub fn age(&self, mount: &MountOptions, parameters: &Parameters) -> Result<()> {
        let Some(fill_percent) = parameters.fill_percent else { return Ok(()) };
        let target = self.mount(mount, parameters.seed)?;
        Aging { fill_percent, seed: parameters.seed }.run(&target)?;
        target.unmount()
    }

    /// Marks the begin of a phase.
    pub fn mark(&self) -> Mark {
        Mark {
            now_ns: self.clock.now_ns(),
            counts: self.recording.begin_phase(),
            nand: self.nand.counters(),
        }
    }

    /// The device's figures and the nanoseconds since `mark`.
    pub fn since(&self, mark: &Mark) -> (DeviceMetrics, u64) {
        let counts = self.recording.counts() - mark.counts;
        let nand = self.nand.counters().since(&mark.nand);
        (DeviceMetrics::new(&counts, &nand), self.clock.now_ns() - mark.now_ns)
    }
}

/// Begin of a phase: the clock and the counters.
pub struct Mark {
    now_ns: u64,
    counts: Counts,
    nand: Counters,
}

impl Simulation<'_> {
    /// Runs `entry`.
    ///
    /// After an error nothing is left behind.
    pub fn run(&self, entry: &Entry, observer: &dyn Observer) -> Result<Run> {
        let stack = Stack::new(self.profile, self.image.snapshot(), 0)?;
        self.run_on(&stack, entry, observer)
    }

    /// As [`Simulation::run`], on a stack whose trace or contents the caller wants to see.
    pub fn run_on(&self, stack: &Stack, entry: &Entry, observer: &dyn Observer) -> Result<Run> {
        let (target, mut workload) = self.open(stack, entry)?;
        stack.recording.take_events();
        let (mark, app) = (stack.mark(), target.app_bytes());
        let limits = entry.limits(self.parameters)?;
        let mut timer = Timer::default();
        let done = steps(&mut *workload, &target, limits, &mut timer, observer)?;
        let moved = since(target.app_bytes(), app);
        let (device, duration_ns) = stack.since(&mark);
        let foreground = Metrics::new(done.count, duration_ns, &timer, moved, Some(device))
            .with_percentiles(&timer, &self.parameters.percentiles);

        workload.close(&target)?;
        let moved = since(target.app_bytes(), app);
        target.unmount()?;
        let (device, duration_ns) = stack.since(&mark);
        let mut metrics = Metrics::new(done.count, duration_ns, &timer, moved, Some(device))
            .with_percentiles(&timer, &self.parameters.percentiles);
        if self.parameters.cuts > 0 && !done.interrupted {
            let lost = self.lost(entry, done.count, self.parameters.cuts, observer)?;
            metrics.lost_transactions_max = Some(lost.transactions_max);
            metrics.lost_ms_max = Some(lost.ms_max);
        }
        Ok(Run {
            workload: entry.name.to_owned(),
            device: self.profile.name.clone(),
            config: self.config(entry),
            metrics,
            foreground,
            interrupted: done.interrupted,
        })
    }

    /// Ages and mounts the volume and takes the workload to its first measured step.
    pub(crate) fn open(
        &self,
        stack: &Stack,
        entry: &Entry,
    ) -> Result<(VolumeTarget, Box<dyn Workload>)> {
        let seed = self.parameters.seed;
        seed_sqlite(seed as u32 | 1);
        let mut workload = entry.make(self.parameters);
        stack.age(self.mount, self.parameters)?;
        let target = stack.mount(self.mount, seed)?;
        workload.prepare(&target)?;
        target.unmount()?;

        let target = stack.mount(self.mount, seed)?;
        target.fs().always_fsync(entry.sqlite && self.parameters.sqlite_fsync);
        if entry.sqlite {
            target.fs().use_barriers(self.parameters.barriers);
        }
        workload.open(&target)?;
        target.sync_all()?;
        Ok((target, workload))
    }

    fn config(&self, entry: &Entry) -> Config {
        Config {
            journal_mode: journal_mode(entry, self.parameters),
            sqlite_fsync: entry.sqlite && self.parameters.sqlite_fsync,
            barriers: barriers(entry, self.parameters),
            fill_percent: self.parameters.fill_percent,
            ..Config::of_mount(self.mount, self.parameters.seed)
        }
    }
}

pub(super) fn journal_mode(entry: &Entry, parameters: &Parameters) -> Option<String> {
    entry.sqlite.then(|| parameters.journal_mode.name().to_owned())
}

fn barriers(entry: &Entry, parameters: &Parameters) -> Option<String> {
    let used = entry.sqlite && parameters.barriers != Barriers::None;
    used.then(|| parameters.barriers.name().to_owned())
}

/// Operations of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) count: u64,
    /// Somebody stopped it.
    pub(crate) interrupted: bool,
}

/// The measured loop.
pub(crate) fn steps(
    workload: &mut dyn Workload,
    target: &dyn Target,
    limits: Limits,
    timer: &mut Timer,
    observer: &dyn Observer,
) -> Result<Done> {
    let start_ns = target.now_ns();
    let mut count = 0;
    while count < limits.operations {
        let passed_ns = target.now_ns() - start_ns;
        if limits.runtime_ns.is_some_and(|runtime_ns| passed_ns >= runtime_ns) {
            break;
        }
        if observer.stopped() {
            return Ok(Done { count, interrupted: true });
        }
        workload.step(target, count, timer)?;
        count += 1;
        match limits.runtime_ns {
            Some(runtime_ns) if limits.operations == u64::MAX => {
                observer.position((target.now_ns() - start_ns).min(runtime_ns), runtime_ns);
            }
            _ => observer.position(count, limits.operations),
        }
    }
    Ok(Done { count, interrupted: false })
}

/// Bytes moved since `start`, where they can be counted.
pub(crate) fn since(now: Option<AppBytes>, start: Option<AppBytes>) -> Option<AppBytes> {
    Some(now? - start?)
}
