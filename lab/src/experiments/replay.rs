//! A trace on a simulated device, a file, a block device, or in a directory.
//!
//! A trace of block requests is read twice: for its extent and whether it writes, then for the
//! replay; it is never in memory. `os::guard` decides which targets may be written to.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::evaluate::os::{Sender, guard, play_on};
use crate::evaluate::{Feed, PAGE_BYTES, Pace, PageTrace, Played, Survey, VirtualPlayer};
use crate::observer::Observer;
use crate::replay::{DirectoryReplay, DirectoryReplayed, ReplayTrace};
use crate::trace::{Op, Record, TraceKind};
use serde::Deserialize;
use serde_json::{Value, json};
use syncline_cache::Access;
use syncline_device::BlockDevice;
use syncline_nand::LatencyReport;

use crate::error::{LabError, Result};
use crate::experiments::profile;
use crate::experiments::trace::Source;
use crate::experiments::trace_file::TraceFile;

/// Request of `syncline-lab replay`; fields are its options.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Replay {
    /// The trace.
    pub input: TraceFile,
    /// Device profile, with overrides, or a file or block device.
    pub device: Option<String>,
    /// Play system calls in a new directory in this one.
    pub dir: Option<PathBuf>,
    /// Keep the times of the trace, instead of going as fast as possible.
    pub timing: bool,
    /// Requests that are under way at once.
    pub depth: u16,
    /// Leave out of the address space what the trace never touches.
    pub dense: bool,
    /// Write to the file or block device; what is there is lost.
    pub overwrite: bool,
    /// Also if it is mounted or carries a file system.
    pub yes: bool,
}

impl Default for Replay {
    fn default() -> Replay {
        Replay {
            input: TraceFile::default(),
            device: None,
            dir: None,
            timing: false,
            depth: 1,
            dense: false,
            overwrite: false,
            yes: false,
        }
    }
}

/// Figures of a trace that was played on a device.
pub struct ReplayResult {
    /// The device as it was named.
    pub device: String,
    /// The figures.
    pub played: Played,
    /// True if a real device was played on past the page cache; nothing for a simulated one.
    pub direct: Option<bool>,
}

/// Figures of a trace that was played in a directory.
pub struct DirectoryResult(pub DirectoryReplayed);

impl Replay {
    /// Plays on [`Replay::device`].
    pub fn run(&self, observer: &dyn Observer) -> Result<ReplayResult> {
        let Some(device) = &self.device else {
            return Err(LabError::Usage("name a --device or a --dir; see --help".to_owned()));
        };
        if !(1..=256).contains(&self.depth) {
            return Err(LabError::Usage("depth is 1 to 256".to_owned()));
        }
        let trace = Requests::open(self, observer)?;
        let pace = Pace { depth: self.depth.into(), timing: self.timing };
        let path = Path::new(device);
        let device_or_file = |m: &std::fs::Metadata| m.is_file() || m.file_type().is_block_device();
        let real = path.extension().is_none_or(|extension| extension != "toml")
            && std::fs::metadata(path).is_ok_and(|m| device_or_file(&m));
        observer.begin("requests", trace.survey.records());
        let (played, direct) = if real {
            self.on_real(path, &trace, pace)?
        } else {
            let profile = profile(device)?;
            let mut player = VirtualPlayer::new(&profile, trace.survey.end_bytes(), pace)?;
            trace.each(&mut |record| player.play(record))?;
            (player.finish(), None)
        };
        observer.end();
        Ok(ReplayResult { device: device.clone(), played, direct })
    }

    fn on_real(
        &self,
        path: &Path,
        trace: &Requests<'_>,
        pace: Pace,
    ) -> Result<(Played, Option<bool>)> {
        let device = guard::open(path, trace.survey.writes(), self.overwrite, self.yes)?;
        let end = trace.survey.end_bytes();
        if end > device.geometry().size_bytes {
            let text = format!(
                "{} has {} bytes, the trace goes to {end}; leave out what it does not touch with \
                 --dense, or take a larger one",
                path.display(),
                device.geometry().size_bytes
            );
            return Err(LabError::Usage(text));
        }
        let feed = |sender: &mut Sender<'_, '_>| trace.each(&mut |record| sender.play(record));
        let played = play_on(&device, pace, feed)?;
        Ok((played, Some(device.is_direct())))
    }

    /// Plays system calls in a new directory in `dir`.
    pub fn run_in(&self, dir: &Path, observer: &dyn Observer) -> Result<DirectoryResult> {
        let path = &self.input.trace;
        let source = Source::open(&self.input)?;
        if source.header().kind != TraceKind::Syscall {
            let text = format!("{}: only system calls play in a directory", path.display());
            return Err(LabError::Usage(text + "; play it on a --device"));
        }
        let trace = calls(source, path, observer)?;
        observer.begin("calls", trace.records.len() as u64);
        let replay = DirectoryReplay { dir, timing: self.timing };
        let total = trace.records.len() as u64;
        let played = replay.run(&trace, &|done| {
            observer.position(done, total);
            !observer.stopped()
        });
        observer.end();
        let played = played?;
        if observer.stopped() {
            return Err(LabError::Interrupted);
        }
        Ok(DirectoryResult(played))
    }
}

/// A trace of system calls in memory.
pub(crate) fn calls(source: Source, path: &Path, observer: &dyn Observer) -> Result<ReplayTrace> {
    let mut records = Vec::new();
    let (_, names) = source.read(&mut records, observer)?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ReplayTrace { name, records, names })
}

/// Requests to play: those of a block trace, or the pages of a page trace.
struct Requests<'a> {
    request: &'a Replay,
    observer: &'a dyn Observer,
    pages: Option<PageTrace>,
    survey: Survey,
}

impl<'a> Requests<'a> {
    fn open(request: &'a Replay, observer: &'a dyn Observer) -> Result<Requests<'a>> {
        let path = &request.input.trace;
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            let text = "a trace is read twice, so it has to be a file; store it first";
            return Err(LabError::Usage(format!("{}: {text}", path.display())));
        }
        let source = Source::open(&request.input)?;
        match source.header().kind {
            TraceKind::Block => {}
            TraceKind::Page => {
                let pages = request.input.pages(request.dense, observer)?.pages;
                let survey = Survey::of_pages(&pages);
                return Ok(Requests { request, observer, survey, pages: Some(pages) });
            }
            TraceKind::Syscall => {
                let text = format!(
                    "{}: system calls have no places on a device; play them with --dir, or make a \
                     block trace of them with `syncline-lab cache --after-cache`",
                    path.display()
                );
                return Err(LabError::Usage(text));
            }
        }
        let mut survey = Survey::new(request.dense);
        source.read(&mut survey, observer)?;
        survey.finish();
        Ok(Requests { request, observer, pages: None, survey })
    }

    /// Passes every request on.
    fn each(&self, play: &mut dyn FnMut(&Record) -> Result<()>) -> Result<()> {
        if let Some(pages) = &self.pages {
            for at in 0..pages.accesses() {
                let Some(page) = pages.access(at) else { break };
                let op = if page.access == Access::Write { Op::Write } else { Op::Read };
                let record = Record::new(pages.time_ns(at), op);
                play(&record.range(page.key.index * PAGE_BYTES, PAGE_BYTES))?;
                if at % 1024 == 0 {
                    self.observer.position(at as u64, pages.accesses() as u64);
                    if self.observer.stopped() {
                        return Err(LabError::Interrupted);
                    }
                }
            }
            return Ok(());
        }
        let source = Source::open(&self.request.input)?;
        let mut failed = None;
        let mut each = |record: &Record| {
            self.observer.advance(1);
            play(record)
        };
        let mut feed = Feed::new(&self.survey, &mut each, &mut failed);
        let read = source.read(&mut feed, self.observer);
        match failed {
            Some(failure) => Err(failure),
            None => read.map(drop),
        }
    }
}

impl ReplayResult {
    /// The document of schema `syncline.replay/1`.
    pub fn document(&self, request: &Replay) -> Value {
        let of = |report: &LatencyReport| {
            json!({
                "count": report.count,
                "latency_us_mean": report.latency_us_mean,
                "latency_us_p50": report.latency_us_p50,
                "latency_us_p95": report.latency_us_p95,
                "latency_us_p99": report.latency_us_p99,
                "latency_us_p999": report.latency_us_p999,
                "latency_us_max": report.latency_us_max,
            })
        };
        let played = &self.played;
        let flash = played.flash.as_ref().map(|flash| -> Value {
            json!({
                "page_programs": flash.programs(),
                "erases": flash.erases,
                "merges": flash.switch_merges + flash.partial_merges + flash.full_merges,
                "write_amplification": flash.write_amplification(),
            })
        });
        json!({
            "schema": "syncline.replay/1",
            "trace": request.input.trace.display().to_string(),
            "device": self.device,
            "clock": if self.direct.is_none() { "virtual" } else { "wall" },
            "direct": self.direct,
            "depth": request.depth,
            "timing": request.timing,
            "elapsed_s": played.elapsed_s,
            "reads": played.reads, "read_bytes": played.read_bytes,
            "writes": played.writes, "written_bytes": played.written_bytes,
            "flushes": played.flushes, "discards": played.discards,
            "read": of(&played.read), "write": of(&played.write), "flush": of(&played.flush),
            "flash": flash,
        })
    }
}

impl DirectoryResult {
    /// The document of schema `syncline.replay/1`.
    pub fn document(&self, request: &Replay, dir: &Path) -> Value {
        let played = &self.0;
        json!({
            "schema": "syncline.replay/1",
            "trace": request.input.trace.display().to_string(),
            "dir": dir.display().to_string(),
            "clock": "wall",
            "timing": request.timing,
            "threads": played.threads,
            "elapsed_s": played.elapsed_s,
            "calls": played.calls, "left_out": played.left_out,
            "read_bytes": played.read_bytes, "written_bytes": played.written_bytes,
            "sync_calls": played.sync_calls,
            "sync_latency_us_p50": played.sync_latency_us_p50,
            "sync_latency_us_p99": played.sync_latency_us_p99,
            "sync_latency_us_max": played.sync_latency_us_max,
        })
    }
}
