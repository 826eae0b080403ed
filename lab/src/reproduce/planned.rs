//! Runs as the catalogue declares them.
//!
//! Adding a kind of run is a struct here, a field of [`Planned`], and an arm of `Session::make`.

use crate::bench::cost_model::Locality;
use crate::bench::{Call, Synchronous};
use serde::{Deserialize, Serialize};
use syncline_nand::{Profile, calibration};

use crate::error::Result;

/// Form of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// As it is.
    #[default]
    Plain,
    /// A fraction in per cent.
    Percent,
    /// A quotient as the change in per cent.
    Change,
    /// A quotient as what it is less than one, in per cent.
    Less,
}

impl Form {
    /// The number as it is shown.
    pub fn of(self, value: f64) -> f64 {
        match self {
            Form::Plain => value,
            Form::Percent => value * 100.0,
            Form::Change => (value - 1.0) * 100.0,
            Form::Less => (1.0 - value) * 100.0,
        }
    }
}

/// One run; of the optional fields after `full` exactly one is there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// Name within the row.
    pub name: String,
    /// True if the short form leaves it out.
    #[serde(default)]
    pub full: bool,
    /// A workload of `bench`.
    pub bench: Option<Bench>,
    /// An application with a write buffer.
    pub fjord: Option<Fjord>,
    /// An application of a phone.
    pub phone: Option<Phone>,
    /// A captured program.
    pub replay: Option<Replay>,
    /// A published figure of a device.
    pub check: Option<Check>,
    /// A replacement policy on a mix of captured programs.
    pub cache: Option<Cache>,
    /// Syncs against the equations of their cost.
    pub cost: Option<Cost>,
    /// Waits of single calls.
    pub waits: Option<Waits>,
    /// A command in real time: arguments of `syncline` that end with a JSON document on standard
    /// output.
    pub command: Option<Vec<String>>,
}

impl Planned {
    /// The device of the run, to be read or replaced.
    fn device(&mut self) -> Option<&mut String> {
        let Planned { bench, fjord, phone, replay, check, cache, waits, .. } = self;
        let devices = [
            bench.as_mut().map(|run| &mut run.device),
            fjord.as_mut().map(|run| &mut run.device),
            phone.as_mut().map(|run| &mut run.device),
            replay.as_mut().map(|run| &mut run.device),
            check.as_mut().map(|run| &mut run.device),
            cache.as_mut().map(|run| &mut run.device),
            waits.as_mut().map(|run| &mut run.device),
        ];
        devices.into_iter().flatten().next()
    }

    /// The run on each profile at an end of what published figures leave open of its device; none
    /// if they leave nothing open.
    pub fn ends(&self) -> Result<Vec<Planned>> {
        let mut run = self.clone();
        let Some(device) = run.device().cloned() else { return Ok(Vec::new()) };
        let profile = Profile::parse_built_in(&device)?;
        let ends = profile.range()?.into_iter().filter(|end| end.name != profile.name);
        let at = |end: Profile| {
            let mut run = self.clone();
            run.device().into_iter().for_each(|device| device.clone_from(&end.name));
            run
        };
        Ok(ends.map(at).collect())
    }

    /// Kinds that are there.
    pub fn kinds(&self) -> usize {
        [
            self.bench.is_some(),
            self.fjord.is_some(),
            self.phone.is_some(),
            self.replay.is_some(),
            self.check.is_some(),
            self.cache.is_some(),
            self.cost.is_some(),
            self.waits.is_some(),
            self.command.is_some(),
        ]
        .into_iter()
        .filter(|there| *there)
        .count()
    }
}

/// A workload on a simulated device.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    /// Name of the workload.
    pub workload: String,
    /// Profile with overrides.
    pub device: String,
    /// Mount options.
    pub options: String,
    /// SQLite's journal mode.
    #[serde(default = "delete")]
    pub journal_mode: String,
    /// SQLite calls fsync where it would call fdatasync.
    #[serde(default)]
    pub sqlite_fsync: bool,
    /// SQLite's `synchronous`.
    #[serde(default = "full")]
    pub synchronous: Synchronous,
    /// Operations of the short form; none: the workload's.
    pub operations: Option<u64>,
    /// Operations of the full form; none: as in the short one.
    pub full_operations: Option<u64>,
    /// Share of the volume in use before, in per cent.
    pub fill_percent: Option<u32>,
    /// Seed of everything random.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Size of the volume, MiB.
    #[serde(default = "two_gib")]
    pub size_mib: u64,
    /// True if a page plots what reached the device.
    #[serde(default)]
    pub plot: bool,
}

fn delete() -> String {
    "delete".to_owned()
}

fn full() -> Synchronous {
    Synchronous::Full
}

fn seed() -> u64 {
    1
}

fn two_gib() -> u64 {
    2048
}

/// An application with and without a write buffer.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fjord {
    /// Name of the application.
    pub workload: String,
    /// Profile with overrides.
    pub device: String,
    /// Name of the configuration.
    pub config: String,
    /// Length of the short form, per cent of the public one.
    #[serde(default = "whole")]
    pub scale_percent: u64,
}

fn whole() -> u64 {
    100
}

/// An application of a phone on its storage.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Phone {
    /// Name of the application.
    pub application: String,
    /// Profile with overrides.
    pub device: String,
    /// Name of the network.
    #[serde(default = "wifi")]
    pub network: String,
    /// Name of the solution.
    #[serde(default = "none")]
    pub solution: String,
    /// Length of the short form, per cent of the paper's.
    #[serde(default = "whole")]
    pub scale_percent: u64,
}

fn wifi() -> String {
    "wifi".to_owned()
}

fn none() -> String {
    "none".to_owned()
}

/// A captured program on a simulated device.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Name of the trace that ships.
    pub trace: String,
    /// Profile with overrides.
    pub device: String,
    /// Mount options.
    pub options: String,
    /// Files that are kept as FlashLite logs; none of them otherwise.
    pub flashlite: Option<String>,
    /// True if the device was filled once before.
    #[serde(default)]
    pub used: bool,
    /// Size of the volume, MiB.
    #[serde(default = "two_gib")]
    pub size_mib: u64,
}

/// A published figure of a device, measured on its profile.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Profile.
    pub device: String,
    /// The figure, as in a profile.
    pub figure: calibration::Figure,
}

/// A replacement policy on a mix of captured programs, and what comes after it on a device.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Name of the mix.
    pub mix: String,
    /// Name of the policy.
    pub policy: String,
    /// Size, as `syncline-lab cache --size` takes it.
    pub size: String,
    /// Profile with overrides.
    pub device: String,
}

/// Syncs within a commit interval.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Sync mode.
    pub sync: String,
    /// Files that are synced.
    pub locality: Locality,
}

/// Calls on a simulated device, one after the other.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// The call.
    pub call: Call,
    /// True if another file is truncated and synced before each.
    #[serde(default)]
    pub beside: bool,
    /// Profile with overrides.
    pub device: String,
    /// Mount options.
    pub options: String,
    /// Calls of the short form.
    pub calls: u64,
    /// Calls of the full form.
    pub full_calls: u64,
}
