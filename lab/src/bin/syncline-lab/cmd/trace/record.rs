//! `trace record`: runs a program and keeps what it does to files, and what reaches a device.
//!
//! ```text
//!   strace -f -ttt -y -T -o TEMPORARY COMMAND ──> import ──> OUTPUT
//!   tracefs instance of its own: block_rq_issue, block_rq_complete ──> import ──> BLOCK OUTPUT
//! ```
//!
//! Both traces are of the same run: what comes before the page cache and what comes after it. The
//! tracefs instance is removed at the end, whatever happens.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use crate::args::{TraceImport, TraceInput, TraceRecord};
use crate::tracefs::{Instance, kernel_filter};
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::Staged;
use syncline_cli::{complain, interrupt};

/// Memory of the event buffer of each processor, KiB.
const BUFFER_KIB: u32 = 32 << 10;

/// Runs the command and imports what was recorded.
pub(crate) fn run(args: &TraceRecord) -> Result<()> {
    // A place beside the output, removed when it is dropped.
    let log = Staged::new(&args.output.with_added_extension("strace"))?;
    let events = match (&args.block, &args.block_output) {
        (Some(device), Some(_)) => Some(start(device)?),
        _ => None,
    };
    let status = Command::new("strace")
        .args(["-f", "-ttt", "-y", "-T", "-s", "0", "-e", "trace=%file,%desc,%process,sync", "-o"])
        .arg(log.temporary())
        .arg("--")
        .args(&args.command)
        .status();
    let status = status.map_err(|err| match err.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::Failed("strace is not installed; install the package strace".to_owned())
        }
        _ => Failure::host(Path::new("strace"), &err),
    })?;
    let blocks = events.as_ref().map(stop).transpose()?;
    interrupt::check()?;
    import(log.temporary(), "strace", &args.output)?;
    if let (Some(text), Some(output)) = (blocks, &args.block_output) {
        let staged = Staged::new(&output.with_added_extension("events"))?;
        let failed = |err: std::io::Error| Failure::host(output, &err);
        fs::write(staged.temporary(), text).map_err(failed)?;
        import(staged.temporary(), "tracefs", output)?;
    }
    if !status.success() {
        complain(&format!("the command ended with {status}; the trace holds what it did"));
    }
    Ok(())
}

fn import(log: &Path, format: &str, output: &Path) -> Result<()> {
    let format = Some(format.to_owned());
    let input = TraceInput { format, ..TraceInput::of(log.to_owned()) };
    super::import::run(&TraceImport::of(input, output.to_owned()))
}

/// Traces the block events of one device.
fn start(device: &Path) -> Result<Instance> {
    let failed = |err: std::io::Error| Failure::host(device, &err);
    let meta = fs::metadata(device).map_err(failed)?;
    if !meta.file_type().is_block_device() {
        let text = format!("{}: not a block device; name one for --block", device.display());
        return Err(Failure::Usage(text));
    }
    let events = Instance::new().map_err(Failure::Failed)?;
    let filter = kernel_filter(meta.rdev());
    let set = |file: &str, text: &str| events.set(file, text).map_err(Failure::Failed);
    set("buffer_size_kb", &BUFFER_KIB.to_string())?;
    for event in ["block_rq_issue", "block_rq_complete"] {
        set(&format!("events/block/{event}/filter"), &filter)?;
        set(&format!("events/block/{event}/enable"), "1")?;
    }
    Ok(events)
}

/// The events so far.
fn stop(events: &Instance) -> Result<Vec<u8>> {
    events.set("tracing_on", "0").map_err(Failure::Failed)?;
    events.read().map_err(|err| Failure::host(Path::new("tracefs"), &err))
}
