//! The write buffer under a volume, in the configurations of its paper (informed-storage, 6.7.3),
//! and figures of the paper beside ours.
//!
//! ```text
//!   NandDevice ── RecordingDevice ──┬── home ─┐
//!     (the same size whatever       └── log ──┴── Buffer ── [data marked relaxed] ── Volume
//!      the configuration)
//! ```
//!
//! The log is the end of the same device. A run is what the application waits for; "to the end" is
//! that with unmounting and draining the log, so that nothing is left for later. Steady: the ring
//! is so short that it goes round many times within a run.
//!
//! Promises: runs repeat exactly from their seed; the native configuration has no buffer and the
//! same flash. Tested in `lab/tests/bench/runs.rs`.

#[cfg(not(target_family = "wasm"))]
mod day;
mod report;

use std::sync::Arc;
use std::time::Duration;

use crate::observer::Observer;

use crate::latency::Timer;
use serde::{Deserialize, Serialize};
use syncline_buffer::{Buffer, BufferOptions, Status};
use syncline_device::{
    BlockDevice, DeviceError, Durability, Geometry, Kind, MemoryDevice, Op, Request,
};
use syncline_fs::MountOptions;
use syncline_nand::{Counters, Profile};
use syncline_sqlite::{AppBytes, seed_sqlite};

#[cfg(not(target_family = "wasm"))]
pub use day::{AtRisk, DAY_CONFIGS, DayConfig, DayRun, day_table};
#[cfg(not(target_family = "wasm"))]
pub use report::days_json;
#[cfg(not(target_family = "wasm"))]
use report::written_mb;
pub use report::{FJORD_SCHEMA, fjord_json, fjord_table};

use crate::bench::image::Image;
use crate::bench::metrics::Metrics;
use crate::bench::runner::{Mark, Stack, since, steps};
use crate::bench::target::{Target, VolumeTarget};
use crate::bench::workloads::{Entry, Parameters};
use crate::error::Result;

/// The ring of steady runs: 4 MiB and its superblocks.
const STEADY_LOG_BYTES: u64 = (4 << 20) + 8192;

/// The ring of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// None.
    None,
    /// As long as asked for; it should not fill.
    Long,
    /// It fills at once.
    Short,
}

/// Stack under the volume, and durability of the application's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FjordConfig {
    /// Name in reports.
    pub name: &'static str,
    /// RAM buffer.
    pub ram: bool,
    /// Log.
    pub log: Ring,
    /// fsync of the application's files returns at once.
    pub relaxed_fsync: bool,
    /// Their data may stay in RAM across flushes.
    pub relaxed_data: bool,
    /// Drained and cleaned while no request comes.
    pub idle_work: bool,
}

const NATIVE: FjordConfig = FjordConfig {
    name: "native",
    ram: false,
    log: Ring::None,
    relaxed_fsync: false,
    relaxed_data: false,
    idle_work: true,
};
const LOG: FjordConfig = FjordConfig { name: "log", log: Ring::Long, ..NATIVE };
const RAM: FjordConfig = FjordConfig { name: "ram", ram: true, ..NATIVE };
const BOTH: FjordConfig = FjordConfig { name: "both", ram: true, ..LOG };
const RELAXED: FjordConfig = FjordConfig { relaxed_fsync: true, relaxed_data: true, ..NATIVE };
const RELAXED_BOTH: FjordConfig =
    FjordConfig { name: "relaxed-both", ram: true, log: Ring::Long, ..RELAXED };

const FSYNC_CONTROL: FjordConfig =
    FjordConfig { name: "fsync-control", relaxed_fsync: true, ..NATIVE };
const BUFFERING: FjordConfig = FjordConfig { name: "buffering", relaxed_data: true, ..BOTH };

/// Buffering that never takes a pause of the application for idle time.
pub const BUFFERING_BUSY: FjordConfig =
    FjordConfig { name: "buffering-busy", idle_work: false, ..BUFFERING };

/// The six of the paper, its two halves alone (table 10), and those with a log in steady state.
pub const FJORD_CONFIGS: [FjordConfig; 11] = [
    NATIVE,
    LOG,
    RAM,
    BOTH,
    FjordConfig { name: "relaxed-ram", ram: true, ..RELAXED },
    RELAXED_BOTH,
    FSYNC_CONTROL,
    BUFFERING,
    FjordConfig { name: "log-steady", log: Ring::Short, ..LOG },
    FjordConfig { name: "both-steady", log: Ring::Short, ..BOTH },
    FjordConfig { name: "relaxed-both-steady", log: Ring::Short, ..RELAXED_BOTH },
];

/// Runs of applications on one device.
pub struct Fjord<'a> {
    profile: &'a Profile,
    parameters: &'a Parameters,
    log_bytes: u64,
    home_bytes: u64,
    /// Image and room for the log.
    contents: MemoryDevice,
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FjordPart {
    /// The figures of `bench`.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Energy, where the profile has it.
    pub joules: Option<f64>,
    /// Requests after three seconds or more without one.
    pub wakeups: u64,
}

/// One application in one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FjordRun {
    /// Name of the application.
    pub workload: String,
    /// The profile with its overrides.
    pub device: String,
    /// Name of the configuration.
    pub config: String,
    /// Sync mode of the volume.
    pub sync: String,
    /// SQLite's journal mode.
    pub journal_mode: String,
    /// Bytes of the log, 0 without one.
    pub log_bytes: u64,
    /// Length of the application, percent of its public size.
    pub scale_percent: u64,
    /// Up to the end of the application.
    pub run: FjordPart,
    /// With unmounting and draining.
    pub to_the_end: FjordPart,
    /// Counters of the buffer, where there is one, to the end.
    pub buffer: Option<Status>,
}

/// Begin of what is measured.
struct Begin {
    mark: Mark,
    counters: Counters,
    app: Option<AppBytes>,
}

impl Begin {
    fn of(stack: &Stack, target: &VolumeTarget) -> Begin {
        let (mark, app) = (stack.mark(), target.app_bytes());
        Begin { mark, counters: stack.nand.counters(), app }
    }
}

/// Marks what files contain as relaxed: the buffering of the paper without its fsync control.
struct RelaxedData<D>(D);

impl<D: BlockDevice> BlockDevice for RelaxedData<D> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> std::result::Result<(), DeviceError> {
        for request in batch.iter_mut() {
            let is_data = matches!(request.origin.kind, Kind::Data { .. });
            if is_data && matches!(request.op, Op::Write { .. }) {
                request.origin.durability = Durability::Relaxed;
            }
        }
        self.0.submit(batch)
    }
}

impl<'a> Fjord<'a> {
    /// On `profile`, with the volume of `image` and behind it a log of `log_bytes`.
    pub fn new(
        profile: &'a Profile,
        image: &Image,
        parameters: &'a Parameters,
        log_bytes: u64,
    ) -> Result<Fjord<'a>> {
        let home_bytes = image.snapshot().geometry().size_bytes;
        let contents = image.with_room(log_bytes.max(STEADY_LOG_BYTES));
        Ok(Fjord { profile, parameters, log_bytes, home_bytes, contents })
    }

    /// Runs `entry` as `config` says, with `mount`'s sync mode and other options.
    pub fn run(
        &self,
        entry: &Entry,
        config: &FjordConfig,
        mount: &MountOptions,
        observer: &dyn Observer,
    ) -> Result<FjordRun> {
        self.run_on(&self.stack()?, entry, config, mount, observer)
    }

    /// A fresh device with image and room for the log.
    pub fn stack(&self) -> Result<Stack> {
        Stack::new(self.profile, self.contents.snapshot(), 0)
    }

    /// As [`Fjord::run`], on a stack whose contents the caller wants to see.
    pub fn run_on(
        &self,
        stack: &Stack,
        entry: &Entry,
        config: &FjordConfig,
        mount: &MountOptions,
        observer: &dyn Observer,
    ) -> Result<FjordRun> {
        seed_sqlite(self.parameters.seed as u32 | 1);
        let buffer = self.buffer(stack, config)?;
        let mut mount = mount.clone();
        if config.relaxed_fsync {
            // Everything on this volume is the application's.
            mount.relaxed.push("*".to_owned());
        }
        let mut workload = entry.make(self.parameters);
        let target = self.mount(stack, buffer.as_ref(), config, &mount)?;
        workload.prepare(&target)?;
        target.unmount()?;
        Stack::drain(buffer.as_ref())?;

        let target = self.mount(stack, buffer.as_ref(), config, &mount)?;
        target.fs().always_fsync(self.parameters.sqlite_fsync);
        workload.open(&target)?;
        target.sync_all()?;
        let begin = Begin::of(stack, &target);
        let mut timer = Timer::default();
        let limits = entry.limits(self.parameters)?;
        let done = steps(&mut *workload, &target, limits, &mut timer, observer)?;
        let part = |app| self.part(stack, &begin, app, (done.count, &timer), 0);
        let run = part(target.app_bytes());
        workload.close(&target)?;
        let app_to_the_end = target.app_bytes();
        target.unmount()?;
        Stack::drain(buffer.as_ref())?;
        let to_the_end = part(app_to_the_end);
        Ok(FjordRun {
            workload: entry.name.to_owned(),
            device: self.profile.name.clone(),
            config: config.name.to_owned(),
            sync: mount.sync.name().to_owned(),
            journal_mode: self.parameters.journal_mode.name().to_owned(),
            log_bytes: self.log_bytes_of(config),
            scale_percent: self.parameters.scale_percent,
            run,
            to_the_end,
            buffer: buffer.map(|buffer| buffer.status()),
        })
    }

    /// The figures since `begin`, of which nothing was done for `idle_ns`.
    fn part(
        &self,
        stack: &Stack,
        begin: &Begin,
        app: Option<AppBytes>,
        (count, timer): (u64, &Timer),
        idle_ns: u64,
    ) -> FjordPart {
        let (device, duration_ns) = stack.since(&begin.mark);
        let moved = since(app, begin.app);
        let calls = moved.map_or(0, |moved| moved.calls);
        let busy_ns = duration_ns.saturating_sub(idle_ns + calls * self.syscall_ns());
        let counters = stack.nand.counters().since(&begin.counters);
        let joules = self.profile.energy.as_ref().map(|energy| {
            energy.joules(&counters, self.profile.geometry.dies(), busy_ns as f64 / 1e9)
        });
        FjordPart {
            metrics: Metrics::new(count, duration_ns, timer, moved, Some(device)),
            joules,
            wakeups: counters.wakeups,
        }
    }

    fn syscall_ns(&self) -> u64 {
        u64::from(self.profile.host.syscall_us) * 1000
    }

    fn log_bytes_of(&self, config: &FjordConfig) -> u64 {
        match config.log {
            Ring::None => 0,
            Ring::Long => self.log_bytes,
            Ring::Short => STEADY_LOG_BYTES,
        }
    }

    fn home(&self, stack: &Stack) -> Result<Arc<dyn BlockDevice>> {
        stack.part(0, self.home_bytes)
    }

    fn buffer(&self, stack: &Stack, config: &FjordConfig) -> Result<Option<Arc<Buffer>>> {
        if !config.ram && config.log == Ring::None {
            return Ok(None);
        }
        let log_bytes = (config.log != Ring::None).then(|| self.log_bytes_of(config));
        let defaults = BufferOptions::default();
        let ram_bytes = if config.ram { defaults.ram_bytes } else { 0 };
        let idle_after = if config.idle_work { defaults.idle_after } else { Duration::MAX };
        let options = BufferOptions { ram_bytes, idle_after, ..defaults };
        Ok(Some(stack.buffer(self.home_bytes, log_bytes, options)?))
    }

    fn mount(
        &self,
        stack: &Stack,
        buffer: Option<&Arc<Buffer>>,
        config: &FjordConfig,
        mount: &MountOptions,
    ) -> Result<VolumeTarget> {
        let top: Arc<dyn BlockDevice> = match buffer {
            None => self.home(stack)?,
            Some(buffer) if config.relaxed_data && !config.relaxed_fsync => {
                Arc::new(RelaxedData(buffer.clone()))
            }
            Some(buffer) => buffer.clone(),
        };
        stack.mount_on(top, buffer, mount, self.parameters.seed)
    }
}
