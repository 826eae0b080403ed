//! Workloads and the means to measure them: a SQLite VFS on a volume, benchmark programs, a runner.
//!
//! ```text
//!   WORKLOADS (sqlite, fileio, create, mixed)
//!        |  Target: the same code runs on a volume of this process or on a mounted directory
//!        v
//!   VolumeTarget ── SqliteVfs, VolumeFs ── Volume        DirectoryTarget ── std::fs, SQLite's VFS
//!        |
//!   Simulation: image, simulated flash, recording; virtual time  ──>  Run: metrics ──> JSON, table
//! ```
//!
//! Promises: simulated runs repeat exactly from their seed; figures have the published names and
//! are taken from the block trace and the flash model, never estimated. The ordered mode is held to
//! the stored figures of a kernel (`tests/baseline.rs`, `baselines/`).
//!
//! ```no_run
//! use syncline_fs::MountOptions;
//! use syncline_nand::Profile;
//! use syncline_workload::{Image, ImageSource, Parameters, Simulation, Unwatched, find, table};
//!
//! let image = Image::load(&ImageSource::default())?;
//! let profile = Profile::by_name("nexus7-emmc")?;
//! let (mount, parameters) = (MountOptions::default(), Parameters::default());
//! let simulation =
//!     Simulation { profile: &profile, image: &image, mount: &mount, parameters: &parameters };
//! for entry in find("sqlite")? {
//!     print!("{}", table(&[simulation.run(entry, &mut Unwatched)?]));
//! }
//! # Ok::<(), syncline_workload::WorkloadError>(())
//! ```

#![deny(unsafe_code)]

mod aging;
mod allocation;
mod charts;
pub mod cost_model;
mod error;
mod fjord;
mod image;
mod latency;
mod metrics;
mod papers;
pub mod peers;
pub mod probe;
mod replay;
mod report;
mod runner;
mod sensitivity;
mod stalls;
mod svg;
mod table;
mod target;
mod trace_report;
mod vfs;
mod volume_fs;
mod workloads;

pub use aging::Aging;
pub use allocation::allocation_table;
pub use charts::{Chart, chart_report};
pub use error::{Result, WorkloadError};
pub use fjord::{
    FJORD_CONFIGS, FJORD_SCHEMA, Fjord, FjordConfig, FjordPart, FjordRun, Ring, fjord_json,
    fjord_table,
};
pub use image::{Image, ImageSource};
pub use latency::Timer;
pub use metrics::{Config, DeviceMetrics, Document, Metrics, Run, SCHEMA};
pub use papers::{Comparison, Figures, compare, comparison_table};
pub use replay::{DirectoryReplay, DirectoryReplayed, Replay, ReplayTrace, Replayed, replay_table};
pub use report::{Trace, report};
pub use runner::{DirectoryRun, Simulation, Stack, Unwatched, Watch};
pub use sensitivity::{Cell, FLUSHES_US, Grid, STREAMS, Sensitivity};
pub use stalls::{
    Bucket, Calls, LATENCY_SCHEMA, LatencyCase, LatencyDocument, Machine, OUTLIERS_MAX, Outlier,
    Stall,
};
pub use table::table;
pub use target::{DirectoryTarget, Open, Target, TargetFile, VolumeTarget};
pub use trace_report::{Picked, SequencePlot, sequence_report, trace_report};
pub use vfs::{SqliteVfs, seed_sqlite};
pub use volume_fs::{AppBytes, Background, VolumeFs};
pub use workloads::{
    APPLICATIONS, Entry, JournalMode, Parameters, Synchronous, WORKLOADS, Workload, applications,
    find,
};
