//! `sweep`: every configuration of a plan, each a run of this program.
//!
//! The Python package `syncline.sweeps` does it where it is installed, on the executor that is
//! named. Without it, this program runs the plan on processes of this machine ([`local`]).

mod document;
mod local;
mod plan;
mod results;

use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::Sweep;
use syncline_cli::error::{Failure, Result};

/// Name of the interpreter.
const PYTHON: &str = "python3";

/// Runs the plan.
pub(crate) fn run(args: &Sweep) -> Result<()> {
    let tried = Command::new(PYTHON)
        .args(["-c", "import syncline.sweeps, pyarrow"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        return by_python(args);
    }
    match args.executor.as_deref() {
        None | Some("local") => local::run(args),
        Some(executor) => Err(needs_python(executor)),
    }
}

/// Refusal of a part that only the Python package has.
fn needs_python(what: &str) -> Failure {
    Failure::Unsupported(format!(
        "{what} needs {PYTHON} with the package syncline; \
         pip install \"$(ls ./syncline-*.whl)[sweeps]\", with the wheel that `make wheel` builds"
    ))
}

/// Runs the plan by the package; the exit code is the package's.
fn by_python(args: &Sweep) -> Result<()> {
    let failed = |err| Failure::host(Path::new("syncline-lab"), &err);
    let this = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(PYTHON);
    command.args(["-m", "syncline.sweeps"]).arg(&args.plan).arg("-o").arg(&args.output);
    if args.resume {
        command.arg("--resume");
    }
    if let Some(executor) = &args.executor {
        command.args(["--executor", executor]);
    }
    if let Some(workers) = args.workers {
        command.args(["--workers", &workers.to_string()]);
    }
    let status = command.env("SYNCLINE_LAB", this).status();
    let status = status.map_err(|err| Failure::host(Path::new(PYTHON), &err))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Said(code)),
        None => Err(Failure::Failed(format!("{PYTHON} ended with {status}; go on with --resume"))),
    }
}
