//! Benchmarks: workloads, targets to run them on, a runner, and the papers' figures beside ours.
//!
//! ```text
//!   WORKLOADS (sqlite, fileio, create, sparse, mixed), APPLICATIONS (fjord)
//!        |  Target: the same code runs on a volume of this process or on a mounted directory
//!        v
//!   VolumeTarget ── sqlite ── Volume                     DirectoryTarget ── std::fs, SQLite's VFS
//!        |
//!   Simulation: image, simulated flash, recording; virtual time  ──>  Run: metrics ──> JSON, table
//!   aging: years of use before a run; sensitivity, peers: other devices, other file systems
//! ```
//!
//! Promises: simulated runs repeat exactly from their seed; figures have the published names and
//! are taken from the block trace and the flash model, never estimated. The ordered mode is held to
//! the stored figures of a kernel (`lab/tests/bench/baseline.rs`, `baselines/`).
//!
//! ```no_run
//! use syncline_fs::MountOptions;
//! use syncline_lab::Unobserved;
//! use syncline_lab::bench::{Image, ImageSource, Parameters, Simulation, find, table};
//! use syncline_nand::Profile;
//!
//! let image = Image::load(&ImageSource::default())?;
//! let profile = Profile::by_name("nexus7-emmc")?;
//! let (mount, parameters) = (MountOptions::default(), Parameters::default());
//! let simulation =
//!     Simulation { profile: &profile, image: &image, mount: &mount, parameters: &parameters };
//! for entry in find("sqlite")? {
//!     print!("{}", table(&[simulation.run(entry, &Unobserved)?]));
//! }
//! # Ok::<(), syncline_lab::LabError>(())
//! ```

mod aging;
mod allocation;
mod applications;
mod calls;
pub mod cost_model;
mod cuts;
#[cfg(not(target_family = "wasm"))]
mod directory;
mod fjord;
mod image;
mod metrics;
mod papers;
pub mod peers;
mod report;
mod runner;
mod sensitivity;
mod table;
mod target;
mod workloads;

pub use aging::Aging;
pub use allocation::allocation_table;
pub use applications::{
    APPLICATIONS_COLUMNS, APPLICATIONS_SCHEMA, AppRun, NETWORKS, Network, PHONE_DEVICES, Phone,
    Solution, StorageCounts, applications_json, applications_table, phone_applications,
};
pub use calls::{Call, Waits, waits};
#[cfg(not(target_family = "wasm"))]
pub use directory::DirectoryRun;
#[cfg(not(target_family = "wasm"))]
pub use fjord::{AtRisk, DAY_CONFIGS, DayConfig, DayRun, day_table, days_json};
pub use fjord::{
    BUFFERING_BUSY, FJORD_CONFIGS, FJORD_SCHEMA, Fjord, FjordConfig, FjordPart, FjordRun, Ring,
    fjord_json, fjord_table,
};
pub use image::{Image, ImageSource};
pub use metrics::{Config, DeviceMetrics, Document, Metrics, Run, SCHEMA};
pub use papers::{Comparison, Figures, compare, comparison_table};
pub use report::{Trace, report};
pub use runner::{Mark, Simulation, Stack};
pub use sensitivity::{Cell, FLUSHES_US, Grid, STREAMS, Sensitivity};
pub use table::{cells, table, text};
#[cfg(not(target_family = "wasm"))]
pub use target::DirectoryTarget;
pub use target::{Open, Target, TargetFile, VolumeTarget};
pub use workloads::{
    APPLICATIONS, Entry, INSERT_NAME, JournalMode, Parameters, Synchronous, WORKLOADS, Workload,
    applications, find,
};
