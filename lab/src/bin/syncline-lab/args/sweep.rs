//! The command line of `syncline-lab sweep`.

use std::path::PathBuf;

use clap::Args;

/// Run every combination of the traces, policies, sizes, devices and options of a plan.
///
/// A plan is a TOML file: `what` (cache, replay, lifetime or bench), and lists of `traces`,
/// `policies`, `sizes`, `devices`, `options`. Each combination is one row. Rows run in processes on
/// this machine. With the Python package `syncline[sweeps]` they also run on Dask or Ray, traces
/// may be URLs, and results are Parquet files. docs/FLEETS.md has examples.
#[derive(Debug, Args)]
pub struct Sweep {
    /// The plan.
    #[arg(value_name = "PLAN")]
    pub plan: PathBuf,
    /// Directory of the results.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// Run only the rows that the directory lacks.
    #[arg(long)]
    pub resume: bool,
    /// Executor: local, ray, ray://HOST or tcp://HOST:PORT of a Dask scheduler [default: local].
    #[arg(long, value_name = "WHERE")]
    pub executor: Option<String>,
    /// Concurrent local processes [default: one per processor].
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
}
