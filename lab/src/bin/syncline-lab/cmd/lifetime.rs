//! `lifetime`: a block trace on a simulated device, and how long the device can take it.
//!
//! With `--watch` the trace is recorded first, into a directory of its own that is removed.

use std::path::{Path, PathBuf};

use syncline_lab::evaluate::WearReplay;
use syncline_lab::experiments::{LifetimeRequest, LifetimeResult};
use syncline_lab::report::{Chart, Page};
use tempfile::TempDir;

use super::trace::watch;
use crate::about;
use crate::args::{Lifetime as Arguments, duration};
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Out};

/// Replays and prints.
pub(crate) fn run(args: &Arguments) -> Result<()> {
    format::check_outputs(&[args.html.as_deref()])?;
    let watched = args.watch.as_deref().map(Recorded::new).transpose()?;
    let trace = watched.as_ref().map(|watched| watched.trace.clone()).or(args.trace.clone());
    let request = LifetimeRequest {
        // One of both is there, say the arguments.
        trace: trace.unwrap_or_default(),
        device: args.device.clone(),
        size: args.size.or(watched.as_ref().map(|watched| watched.size_bytes)),
        precondition: args.precondition,
        passes: args.passes,
        per_day: args.per_day,
    };
    let found = request.run(&Terminal::default())?;
    let mut out = Out::new();
    out.text(if args.json { format::document(&found.document()) } else { found.text() })?;
    out.flush()?;
    match &args.html {
        Some(path) => format::write_file(path, page(&found).as_bytes()),
        None => Ok(()),
    }
}

/// The figures, the erases of the blocks, and who caused them.
fn page(found: &LifetimeResult) -> String {
    let mut page = Page::new(&format!("syncline-lab lifetime, {}", found.profile.name));
    found.end_text().split("\n\n").for_each(|text| page.paragraph(text.trim()));
    page.table(&["figure", "value"].map(str::to_owned), &found.rows(), 2);
    let names = ["1 %", "25 %", "50 %", "75 %", "99 %"].map(|part| format!("{part} of the blocks"));
    let erases: Vec<(String, f64)> =
        names.into_iter().zip(found.spread.percentiles().map(f64::from)).collect();
    page.bars(&Chart::rows("Erases of a block, at most", "erases", "erases", &erases));
    for (shares, what) in [(found.replay.processes(), "process"), (found.replay.files(), "file")] {
        let top: Vec<(String, f64)> =
            shares.top().into_iter().map(|s| (s.name, s.programmed_bytes as f64 / 1e6)).collect();
        if !top.is_empty() {
            page.bars(&Chart::rows(&format!("Flash programmed, by {what}"), "MB", "MB", &top));
        }
    }
    page.finish(&about())
}

/// A trace that was recorded for this; removed with its directory.
struct Recorded {
    _dir: TempDir,
    trace: PathBuf,
    size_bytes: u64,
}

impl Recorded {
    /// Watches a device, as `--watch BLOCKDEV TIME` says.
    fn new(words: &[std::ffi::OsString]) -> Result<Recorded> {
        let [device, time] = words else {
            return Err(Failure::Usage("--watch takes a device and a time; see --help".to_owned()));
        };
        let device = Path::new(device);
        let time = time.to_str().ok_or_else(|| "no time".to_owned()).and_then(duration);
        let time = time.map_err(|why| {
            Failure::Usage(format!("--watch takes {why}; as --watch /dev/mmcblk0 1h"))
        })?;
        // A new one that nobody else can have prepared: this runs as root.
        let host = |err| Failure::host(&std::env::temp_dir(), &err);
        let dir = TempDir::with_prefix("syncline-watch-").map_err(host)?;
        let (size_bytes, trace) = watch::for_a_time(device, time, dir.path())?;
        Ok(Recorded { _dir: dir, trace, size_bytes: WearReplay::size_for(size_bytes) })
    }
}
