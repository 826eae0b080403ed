//! Applications of a phone on its storage: the main experiment of the informed-storage paper's
//! chapter III (Figures 4 and 5, Tables 3 and 4), and its alternative storage.
//!
//! ```text
//!   Shape: steps ──> network, processor: the clock moves        not the storage's time
//!              └──> files, SQLite ── Volume (ordered) ── [Buffer] ── Recording ── Storage
//!                                                                     card | stripes | fast region
//! ```
//!
//! Published parameters of the applications are kept (`shapes.rs`). Processor time, network bytes
//! and database rows are ours. Steps are sequential, so the run time is the sum of
//! processor time, network time and waits for storage; write-back goes on in the background while
//! the phone waits for the network, so a fast device may not matter. Network requests use the rates
//! of Table 1, each with a round trip.
//!
//! The [`Solution`]s are the pilot solutions that section 3.1 names. Runs repeat exactly from their
//! seed. Tested in `lab/tests/bench/applications.rs`.

mod report;
mod shapes;
mod storage;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::observer::Observer;

use crate::latency::Timer;
use serde::{Deserialize, Serialize};
use syncline_buffer::{Buffer, BufferOptions, LogArea, LogId};
use syncline_device::{
    BlockDevice, Clock, MemoryDevice, OffsetDevice, RecordingDevice, VirtualClock,
};
use syncline_fs::{LogFormat, MountOptions, Volume};
use syncline_nand::Profile;
use syncline_sqlite::seed_sqlite;

pub use report::{
    APPLICATIONS_COLUMNS, APPLICATIONS_SCHEMA, applications_json, applications_table,
};
pub use storage::StorageCounts;

use crate::bench::image::Image;
use crate::bench::runner::steps;
use crate::bench::target::{Target, VolumeTarget};
use crate::bench::workloads::{Parameters, applications, random};
use crate::error::{LabError, Result};
use shapes::{SHAPES, Shape};
use storage::{Layout, Storage};

/// Devices of the chapter: the built-in storage, then the eight cards in the phone.
pub const PHONE_DEVICES: [&str; 9] = [
    "emmc-nexus-s",
    "sd-transcend",
    "sd-ridata",
    "sd-sandisk",
    "sd-kingston",
    "sd-wintec",
    "sd-adata",
    "sd-2012",
    "sd-pny",
];

/// Bytes of the fast region: 128 MiB of phase-change memory beside a card.
const FAST_BYTES: u64 = 128 << 20;
/// Bytes of the log of [`Solution::LogAndRam`].
const LOG_BYTES: u64 = 256 << 20;
const LOG_ID: LogId = *b"syncline-apps--0";
/// Pieces of work for one visit of the write buffer while the phone waits.
const TICKS_MAX: u32 = 64;

/// A network (Table 1): rates as measured there, round trips ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Name in reports.
    pub name: &'static str,
    /// Received, bytes a second.
    pub receive_bytes_per_s: u64,
    /// Sent, bytes a second.
    pub send_bytes_per_s: u64,
    /// Round trip, ns.
    pub round_trip_ns: u64,
}

/// Wi-Fi, and the cable that stands for a faster network.
pub const NETWORKS: [Network; 2] = [
    Network {
        name: "wifi",
        receive_bytes_per_s: 1_100_000,
        send_bytes_per_s: 530_000,
        round_trip_ns: 3_000_000,
    },
    Network {
        name: "usb",
        receive_bytes_per_s: 8_040_000,
        send_bytes_per_s: 7_140_000,
        round_trip_ns: 1_000_000,
    },
];

/// Storage under the applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Solution {
    /// The device as it is.
    None,
    /// 128 MiB of phase-change memory for journal, metadata and synced pages.
    FastRegion,
    /// Stripes over the card and the built-in storage.
    Stripes,
    /// The write buffer: a log on the device and 16 MiB of RAM.
    LogAndRam,
    /// fsync of the applications' files returns at once.
    NoSync,
    /// Both of these: the Fjord of chapter VI.
    Fjord,
}

impl Solution {
    /// All, in the order of reports.
    pub const ALL: [Solution; 6] = [
        Solution::None,
        Solution::FastRegion,
        Solution::Stripes,
        Solution::LogAndRam,
        Solution::NoSync,
        Solution::Fjord,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Solution::None => "none",
            Solution::FastRegion => "fast-region",
            Solution::Stripes => "stripes",
            Solution::LogAndRam => "log-ram",
            Solution::NoSync => "no-sync",
            Solution::Fjord => "fjord",
        }
    }

    fn has_buffer(self) -> bool {
        matches!(self, Solution::LogAndRam | Solution::Fjord)
    }

    /// The solution of this name.
    pub fn by_name(name: &str) -> Result<Solution> {
        let found = Solution::ALL.into_iter().find(|solution| solution.name() == name);
        found.ok_or_else(|| {
            let names = Solution::ALL.map(Solution::name).join(", ");
            LabError::Usage(format!("unknown solution `{name}`; choose of {names}"))
        })
    }
}

/// One application on one storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppRun {
    /// Name of the application.
    pub application: String,
    /// The profile with its overrides.
    pub device: String,
    /// Name of the network.
    pub network: String,
    /// Name of the solution.
    pub solution: String,
    /// Sync mode of the volume; `packed` is eager with packed records.
    pub sync: String,
    /// From the first step to the last, seconds.
    pub run_s: f64,
    /// Processor time of the application and of its system calls, seconds.
    pub cpu_s: f64,
    /// Waits for the network, seconds.
    pub network_s: f64,
    /// The rest: waits for storage, seconds.
    pub storage_wait_s: f64,
    /// Time with a request under way, also in the background, seconds.
    pub storage_busy_s: f64,
    /// Bytes by burst, up to the end of the final write-back.
    pub counts: StorageCounts,
    /// Flushes of the device.
    pub flushes: u64,
}

/// Names of the applications, with what one run is.
pub fn phone_applications() -> impl Iterator<Item = (&'static str, &'static str)> {
    SHAPES.iter().map(|shape| (shape.name, shape.summary))
}

/// Runs of applications on a volume.
pub struct Phone<'a> {
    /// The volume; unchanged by the runs.
    pub image: &'a Image,
    /// Mount options of the runs.
    pub mount: &'a MountOptions,
    /// Seed of everything random.
    pub seed: u64,
    /// Share of the steps, in per cent.
    pub scale_percent: u64,
}

impl Phone<'_> {
    /// Runs `application` on a device of `profile`; `builtin` is the second device of
    /// [`Solution::Stripes`].
    pub fn run(
        &self,
        application: &str,
        profile: &Profile,
        builtin: &Profile,
        network: &Network,
        solution: Solution,
        observer: &dyn Observer,
    ) -> Result<AppRun> {
        let shape = SHAPES.iter().find(|shape| shape.name == application).ok_or_else(|| {
            let names: Vec<_> = SHAPES.iter().map(|shape| shape.name).collect();
            let names = names.join(", ");
            LabError::Usage(format!("unknown application `{application}`; choose of {names}"))
        })?;
        seed_sqlite(self.seed as u32 | 1);
        let stack = self.stack(profile, builtin, solution)?;
        let spent = self.work(&stack, shape, profile, network, observer)?;
        Ok(AppRun {
            application: shape.name.to_owned(),
            device: profile.name.clone(),
            network: network.name.to_owned(),
            solution: solution.name().to_owned(),
            sync: match (self.mount.sync.name(), self.mount.log) {
                ("eager", LogFormat::Packed) => "packed".to_owned(),
                (name, _) => name.to_owned(),
            },
            ..spent
        })
    }

    fn stack(&self, profile: &Profile, builtin: &Profile, solution: Solution) -> Result<Stack> {
        let clock = Arc::new(VirtualClock::default());
        let image = self.image.snapshot();
        let home_bytes = image.geometry().size_bytes;
        let (profiles, layout) = match solution {
            Solution::Stripes => (vec![profile, builtin], Layout::Stripes),
            Solution::FastRegion => (vec![profile], Layout::FastRegion(FAST_BYTES)),
            _ => (vec![profile], Layout::One),
        };
        let contents = match solution.has_buffer() {
            true => larger(&image, home_bytes + LOG_BYTES)?,
            false => image,
        };
        let storage = Arc::new(Storage::new(&profiles, layout, contents, clock.clone())?);
        let recording = Arc::new(RecordingDevice::new(storage.clone()));
        let buffer = match solution.has_buffer() {
            true => Some(buffer(recording.clone(), home_bytes, clock.clone())?),
            false => None,
        };
        let mut mount = self.mount.clone();
        if matches!(solution, Solution::NoSync | Solution::Fjord) {
            mount.relaxed.push("*".to_owned());
        }
        Ok(Stack { clock, storage, recording, buffer, mount })
    }

    fn work(
        &self,
        stack: &Stack,
        shape: &Shape,
        profile: &Profile,
        network: &Network,
        observer: &dyn Observer,
    ) -> Result<AppRun> {
        let parameters = Parameters {
            seed: self.seed,
            // As SQLite of that time, on phones of that time.
            sqlite_fsync: true,
            scale_percent: self.scale_percent,
            ..Parameters::default()
        };
        let syscall_us = profile.host.syscall_us;
        let mut work = work::Work::new(shape, &parameters, *network);
        let target = stack.mount(syscall_us, self.seed)?;
        work.prepare(&target)?;
        target.unmount()?;
        stack.drain()?;

        let target = stack.mount(syscall_us, self.seed)?;
        target.fs().always_fsync(true);
        work.open(&target)?;
        target.sync_all()?;
        let (before, flushes) = (stack.storage.counts(), stack.recording.counts().flushes());
        let (start_ns, calls) = (stack.clock.now_ns(), target.fs().app_bytes().calls);
        match shape.steps {
            [] => {
                // The public benchmark is a workload of its own.
                let found = applications(&format!("fjord/{}", shape.name))?;
                let mut timer = Timer::default();
                for entry in found {
                    let mut inner = entry.make(&parameters);
                    inner.prepare(&target)?;
                    inner.open(&target)?;
                    let limits = entry.limits(&parameters)?;
                    steps(&mut *inner, &target, limits, &mut timer, observer)?;
                    inner.close(&target)?;
                }
            }
            _ => work.run(&target, observer)?,
        }
        let run_ns = stack.clock.now_ns() - start_ns;
        let busy_ns = (stack.storage.counts() - before).busy_ns;
        let calls = target.fs().app_bytes().calls - calls;
        work.close()?;
        target.unmount()?;
        stack.drain()?;
        let cpu_ns = work.cpu_ns() + calls * u64::from(syscall_us) * 1000;
        let network_ns = work.network_ns();
        let seconds = |ns: u64| ns as f64 / 1e9;
        Ok(AppRun {
            application: String::new(),
            device: String::new(),
            network: String::new(),
            solution: String::new(),
            sync: String::new(),
            run_s: seconds(run_ns),
            cpu_s: seconds(cpu_ns),
            network_s: seconds(network_ns),
            storage_wait_s: seconds(run_ns.saturating_sub(cpu_ns + network_ns)),
            storage_busy_s: seconds(busy_ns),
            counts: stack.storage.counts() - before,
            flushes: stack.recording.counts().flushes() - flushes,
        })
    }
}

/// Devices of a run, from the storage up.
struct Stack {
    clock: Arc<VirtualClock>,
    storage: Arc<Storage>,
    recording: Arc<RecordingDevice<Arc<Storage>>>,
    buffer: Option<Arc<Buffer>>,
    mount: MountOptions,
}

impl Stack {
    fn mount(&self, syscall_us: u32, seed: u64) -> Result<VolumeTarget> {
        let top: Arc<dyn BlockDevice> = match &self.buffer {
            Some(buffer) => buffer.clone(),
            None => self.recording.clone(),
        };
        let clock: Arc<dyn Clock> = self.clock.clone();
        let volume = Volume::mount(top, clock.clone(), self.mount.clone())?;
        let target = VolumeTarget::new(volume, clock, syscall_us, seed)?;
        if let Some(buffer) = self.buffer.clone() {
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

    fn drain(&self) -> Result<()> {
        Ok(self.buffer.as_ref().map_or(Ok(()), |buffer| buffer.drain())?)
    }
}

fn buffer(
    device: Arc<dyn BlockDevice>,
    home_bytes: u64,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Buffer>> {
    let home = Arc::new(OffsetDevice::new(device.clone(), 0, home_bytes)?);
    let area = OffsetDevice::new(device, home_bytes, LOG_BYTES)?;
    let log = LogArea { device: Arc::new(area), same_medium: true };
    Buffer::create_log(&log, home_bytes, LOG_ID, false)?;
    let options = BufferOptions::default();
    Ok(Arc::new(Buffer::open_measured(home, Some(log), options, Some(clock))?))
}

/// A copy of `image` with zeros behind it.
fn larger(image: &MemoryDevice, size_bytes: u64) -> Result<MemoryDevice> {
    let contents = MemoryDevice::new(size_bytes);
    let mut bytes = vec![0; 1 << 20];
    let home_bytes = image.geometry().size_bytes;
    for at in (0..home_bytes).step_by(1 << 20) {
        let len = usize::try_from((home_bytes - at).min(1 << 20)).unwrap_or(0);
        let piece = bytes.get_mut(..len).unwrap_or_default();
        image.read_at(at, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            contents.write_at(at, piece)?;
        }
    }
    Ok(contents)
}

/// Random numbers of an application.
fn numbers(seed: u64) -> rand_chacha::ChaCha8Rng {
    random(seed)
}
