//! A trace of system calls on a volume over simulated flash, in virtual time.

use std::sync::Arc;

use crate::bench::{Config, Image, Metrics, Parameters, Run, Stack, VolumeTarget};
use crate::error::{LabError, Result};
use crate::latency::Timer;
use crate::observer::Observer;
use glob::Pattern;
use syncline_buffer::Buffer;
use syncline_device::BlockDevice;
use syncline_fs::MountOptions;
use syncline_nand::Profile;

use crate::replay::plan::Plan;
use crate::replay::play::Player;
use crate::replay::split::Split;
use crate::replay::{Contents, ReplayTrace};

/// Requests between two calls that are looked at.
const EVENTS_MAX: usize = 1 << 20;

/// A replay on a simulated device.
pub struct Replay<'a> {
    /// The device.
    pub profile: &'a Profile,
    /// The volume; unchanged by the run.
    pub image: &'a Image,
    /// Mount options.
    pub mount: &'a MountOptions,
    /// Longest gap between two calls, in nanoseconds.
    pub gap_max_ns: u64,
    /// Seed of what is written.
    pub seed: u64,
    /// Contents of what is written.
    pub contents: Contents,
    /// Share of the blocks filled before the run, as in [`Parameters`].
    pub fill_percent: Option<u32>,
    /// Files that are kept as FlashLite logs and rearranged at the end: a glob of their names, or
    /// of their paths if it has a slash.
    pub flashlite: Option<&'a str>,
    /// True if the device was filled in order once before.
    pub used: bool,
}

/// A run, and how much of the trace it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The figures.
    pub run: Run,
    /// Calls that could not be made.
    pub skipped: u64,
    /// Requests by what caused them, the unmount's included.
    pub split: Split,
}

impl Replay<'_> {
    /// Replays `trace`.
    pub fn run(&self, trace: &ReplayTrace, observer: &dyn Observer) -> Result<Replayed> {
        self.run_over(trace, None, observer)
    }

    /// Replays `trace` over a write buffer with a log of so many bytes behind the volume, if one
    /// is given.
    pub fn run_over(
        &self,
        trace: &ReplayTrace,
        log_bytes: Option<u64>,
        observer: &dyn Observer,
    ) -> Result<Replayed> {
        let flashlite = self.flashlite.map(Pattern::new).transpose();
        let flashlite = flashlite.map_err(|err| {
            LabError::Usage(format!("the files to keep as logs: {err}; correct the glob"))
        })?;
        let plan = Plan::of(&trace.records, &trace.names);
        let (stack, buffer) = self.stack(log_bytes)?;
        let target = self.mount(&stack, buffer.as_ref())?;
        plan.populate(target.fs(), &trace.names)?;
        target.unmount()?;
        Stack::drain(buffer.as_ref())?;

        let target = self.mount(&stack, buffer.as_ref())?;
        let (mark, app) = (stack.mark(), target.fs().app_bytes());
        let contents = (self.contents, self.seed);
        let fs = Arc::clone(target.fs());
        let gap_max_ns = self.gap_max_ns;
        let logs = flashlite.as_ref();
        let mut player = Player::new(fs, &trace.names, gap_max_ns, contents, logs);
        let mut timer = Timer::default();
        let total = trace.records.len() as u64;
        let (mut done, mut split) = (0, Split::default());
        stack.recording.take_events();
        for record in &trace.records {
            if observer.stopped() {
                break;
            }
            player.play(&target, record, &mut timer)?;
            let synced = record.op.is_sync().then(|| player.inode(record.file)).flatten();
            split.take(&stack.recording.take_events(), synced);
            done += 1;
            if done % 256 == 0 {
                observer.position(done, total);
            }
        }
        let (operations, skipped) = (player.played(), player.skipped());
        let moved = Some(target.fs().app_bytes() - app);
        let (device, duration_ns) = stack.since(&mark);
        let foreground = Metrics::new(operations, duration_ns, &timer, moved, Some(device));
        player.finish()?;
        drop(player);
        target.unmount()?;
        Stack::drain(buffer.as_ref())?;
        split.take(&stack.recording.take_events(), None);
        let (device, duration_ns) = stack.since(&mark);
        let metrics = Metrics::new(operations, duration_ns, &timer, moved, Some(device));
        let config = Config {
            fill_percent: self.fill_percent,
            flashlite: self.flashlite.is_some(),
            ..Config::of_mount(self.mount, self.seed)
        };
        let run = Run {
            workload: format!("replay/{}", trace.name),
            device: self.profile.name.clone(),
            config,
            metrics,
            foreground,
            interrupted: done < total,
        };
        Ok(Replayed { run, skipped, split })
    }

    /// The device with the volume, and the write buffer over it.
    fn stack(&self, log_bytes: Option<u64>) -> Result<(Stack, Option<Arc<Buffer>>)> {
        let image = self.image.snapshot();
        let home_bytes = image.geometry().size_bytes;
        let contents = log_bytes.map_or(image, |log_bytes| self.image.with_room(log_bytes));
        let stack = Stack::new(self.profile, contents, EVENTS_MAX)?;
        if self.used {
            stack.nand.fill();
        }
        let Replay { fill_percent, seed, .. } = *self;
        stack.age(self.mount, &Parameters { fill_percent, seed, ..Parameters::default() })?;
        let buffer = log_bytes.map(|_| stack.buffer(home_bytes, log_bytes, Default::default()));
        let buffer = buffer.transpose()?;
        Ok((stack, buffer))
    }

    fn mount(&self, stack: &Stack, buffer: Option<&Arc<Buffer>>) -> Result<VolumeTarget> {
        match buffer {
            Some(over) => stack.mount_on(over.clone(), Some(over), self.mount, self.seed),
            None => stack.mount(self.mount, self.seed),
        }
    }
}
