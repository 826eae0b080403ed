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
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{TraceImport, TraceInput, TraceRecord};
use crate::error::{Failure, Result};
use crate::format::Staged;
use crate::{complain, interrupt};

/// Where tracefs is mounted.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Memory of the event buffer of each processor, KiB.
const BUFFER_KIB: u32 = 32 << 10;

/// Runs the command and imports what was recorded.
pub(crate) fn run(args: &TraceRecord) -> Result<()> {
    // A place beside the output, removed when it is dropped.
    let log = Staged::new(&args.output.with_added_extension("strace"))?;
    let events = match (&args.block, &args.block_output) {
        (Some(device), Some(_)) => Some(Events::start(device)?),
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
    let blocks = events.map(Events::stop).transpose()?;
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
    super::import::run(&TraceImport { input, output: output.to_owned() })
}

/// Block events of one device, in a tracefs instance of their own.
struct Events(PathBuf);

impl Events {
    fn start(device: &Path) -> Result<Events> {
        let failed = |err: std::io::Error| Failure::host(device, &err);
        let meta = fs::metadata(device).map_err(failed)?;
        if !meta.file_type().is_block_device() {
            let text = format!("{}: not a block device; name one for --block", device.display());
            return Err(Failure::Usage(text));
        }
        let root = TRACEFS.iter().map(Path::new).find(|path| path.join("instances").is_dir());
        let root = root.ok_or_else(|| {
            Failure::Failed(
                "tracefs is not there; as root: mount -t tracefs tracefs /sys/kernel/tracing"
                    .to_owned(),
            )
        })?;
        let instance = root.join("instances").join(format!("syncline-{}", std::process::id()));
        fs::create_dir(&instance).map_err(|err| Failure::host(&instance, &err))?;
        let events = Events(instance);
        // A dev_t of the kernel has 20 bits for the minor number.
        let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
        let filter = format!("dev == {}", u64::from(major) << 20 | u64::from(minor));
        events.set("buffer_size_kb", &BUFFER_KIB.to_string())?;
        for event in ["block_rq_issue", "block_rq_complete"] {
            events.set(format!("events/block/{event}/filter"), &filter)?;
            events.set(format!("events/block/{event}/enable"), "1")?;
        }
        Ok(events)
    }

    fn set(&self, name: impl AsRef<Path>, value: &str) -> Result<()> {
        let path = self.0.join(name);
        fs::write(&path, value).map_err(|err| Failure::host(&path, &err))
    }

    /// The events so far.
    fn stop(self) -> Result<Vec<u8>> {
        self.set("tracing_on", "0")?;
        let path = self.0.join("trace");
        fs::read(&path).map_err(|err| Failure::host(&path, &err))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // What cannot be removed now cannot be removed otherwise.
        let _ = fs::remove_dir(&self.0);
    }
}
