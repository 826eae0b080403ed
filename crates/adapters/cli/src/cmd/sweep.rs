//! `sweep`: every configuration of a plan, by the Python package `syncline.sweeps`.
//!
//! The package runs this program for each configuration, on the executor that the plan's user
//! names.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::Sweep;
use crate::error::{Failure, Result};

/// Name of the interpreter.
const PYTHON: &str = "python3";

/// Runs the plan; the exit code is the package's.
pub(crate) fn run(args: &Sweep) -> Result<()> {
    let this = std::env::current_exe().map_err(|err| Failure::host(Path::new("syncline"), &err))?;
    let tried = Command::new(PYTHON)
        .args(["-c", "import syncline.sweeps, pyarrow"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        let text = format!("{PYTHON} has no package syncline; pip install 'syncline[sweeps]'");
        return Err(Failure::Unsupported(text));
    }
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
    let status = command.env("SYNCLINE", this).status();
    let status = status.map_err(|err| Failure::host(Path::new(PYTHON), &err))?;
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Said(code)),
        None => Err(Failure::Failed(format!("{PYTHON} ended with {status}; go on with --resume"))),
    }
}
