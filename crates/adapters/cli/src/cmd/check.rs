//! `check`: our own check of images, and with `--compare` that of e2fsck.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use syncline_device::{BlockDevice, DeviceError, Observer, TapDevice, TraceEvent, WallClock};
use syncline_fs::{CheckProgress, CheckReport, Finding, check_device};
use syncline_image::Opening;
use syncline_image::partition::partitions;

use crate::args::Check;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::image;
use crate::progress;

/// Exit code bit of e2fsck for errors that are left.
const E2FSCK_ERRORS_LEFT: i32 = 4;
/// Findings that the text shows; `--json` has all.
const SHOWN_MAX: usize = 40;

/// Checks, prints the findings.
pub(crate) fn run(args: &Check) -> Result<()> {
    let mut bounds = Bounds { starts: args.compare, ..Bounds::default() }.over(&args.part);
    for image in &args.images {
        let Bounds { reads, fills, .. } = Bounds::reader(image);
        bounds.reads.extend(reads);
        bounds.fills.extend(fills);
    }
    let opened = bounds.when_opened();
    let mut out = Out::new();
    let (mut outcome, mut documents) = (Ok(()), Vec::new());
    for path in &args.images {
        let checked = own(args, path, &opened)
            .and_then(|report| print(args, path, &report, &mut out, &mut documents));
        if let Err(failure) = checked {
            out.flush()?;
            image::fail(&mut outcome, failure)?;
        }
    }
    if args.json {
        let document = json!({ "schema": "syncline.check/1", "images": documents });
        out.text(format!("{document:#}\n"))?;
    }
    out.flush()?;
    outcome
}

/// Longest wait between two looks at e2fsck.
const LOOK: Duration = Duration::from_millis(5);

/// Result of a request.
type Done = std::result::Result<(), DeviceError>;

/// Counts what a check reads.
#[derive(Default)]
struct ReadBytes(AtomicU64);

impl Observer for ReadBytes {
    fn ended(&self, event: &TraceEvent, _latency_ns: u64, _result: &Done) {
        self.0.fetch_add(event.len_bytes, Ordering::Relaxed);
    }
}

/// Our own check.
fn own(args: &Check, path: &Path, opened: &Arc<dyn Fn() + Send + Sync>) -> Result<CheckReport> {
    let at = |failure: Failure| failure.at(path.display());
    let bar = progress::bar("checking", 0);
    let read = Arc::new(ReadBytes::default());
    let mut follow = |at: CheckProgress| {
        bar.stage(at.stage, at.done, at.total);
        bar.set_moved(read.0.load(Ordering::Relaxed));
        !crate::interrupt::asked()
    };
    let report = if args.replay {
        let how =
            Opening { opened: Arc::clone(opened), ..image::opening(&args.part, Bounds::default()) };
        image::read(path, &how)?.vol.check(&mut follow)
    } else {
        let dev = image::opened(path, true, &args.part, &**opened)?;
        let superblock = image::superblock(&*dev, path);
        // A whole disk is not damaged: which partition is meant has to be said.
        let is_disk = partitions(&*dev).is_ok_and(|table| !table.is_empty());
        let report = if is_disk && superblock.is_err() {
            Ok(CheckReport::default())
        } else {
            let clock = Arc::new(WallClock::new());
            let dev: Arc<dyn BlockDevice> = Arc::new(TapDevice::new(dev, clock, read.clone()));
            check_device(&dev, &mut follow)
        };
        match (superblock, &report) {
            // Nor is what has never been one: no copy of a superblock leads to anything.
            (Err(failure), Ok(report)) if report.blocks_used == 0 => return Err(failure),
            _ => report,
        }
    };
    bar.clear();
    let report = report.map_err(|err| at(err.into()))?;
    crate::interrupt::check()?;
    Ok(report)
}

/// Prints the findings of one image, and asks e2fsck; fails if one of both found errors.
fn print(
    args: &Check,
    path: &Path,
    report: &CheckReport,
    out: &mut Out,
    documents: &mut Vec<Value>,
) -> Result<()> {
    if args.json {
        documents.push(document(path, report));
    } else {
        text(path, report, out)?;
    }
    let stock = if args.compare { stock(args, path, out)? } else { true };
    if report.is_clean() && stock {
        return Ok(());
    }
    let text = "the image is corrupt; run `syncline repair` on it, or save what can be read first";
    Err(Failure::Corrupt(text.into()).at(path.display()))
}

fn text(path: &Path, report: &CheckReport, out: &mut Out) -> Result<()> {
    for finding in report.findings.iter().take(SHOWN_MAX) {
        let notice = if finding.is_error { "" } else { "notice: " };
        out.text(format!("{notice}{finding} [{}]\n", finding.name))?;
    }
    let hidden = report.findings.len().saturating_sub(SHOWN_MAX) as u64 + report.more;
    if hidden > 0 {
        out.text(format!("and {hidden} more (`--json` lists them)\n"))?;
    }
    if report.unreplayed {
        out.text("the journal was not replayed; `--replay` checks what is there after a replay\n")?;
    }
    let verdict = match report.errors {
        0 => "clean".to_owned(),
        1 => "1 error".to_owned(),
        errors => format!("{errors} errors"),
    };
    let orphans = match report.orphans {
        0 => String::new(),
        count => format!(", {count} orphans to be finished by the next mount"),
    };
    out.text(format!(
        "{}: {verdict}: {} directories, {} other files, {} blocks in use{orphans}\n",
        path.display(),
        report.directories,
        report.files,
        report.blocks_used
    ))
}

pub(super) fn document(path: &Path, report: &CheckReport) -> Value {
    let finding = |found: &Finding| {
        json!({
            "name": found.name,
            "error": found.is_error,
            "inode": found.inode,
            "block": found.block,
            "group": found.group,
            "text": found.what,
            "repair": found.repair,
        })
    };
    json!({
        "image": path,
        "clean": report.is_clean(),
        "errors": report.errors,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "more": report.more,
        "journal_replayed": !report.unreplayed,
        "directories": report.directories,
        "files": report.files,
        "blocks_used": report.blocks_used,
        "orphans": report.orphans,
    })
}

/// e2fsck's check; whether it found nothing, or is not there.
fn stock(args: &Check, path: &Path, out: &mut Out) -> Result<bool> {
    let mut say = |text: String| if args.json { Ok(()) } else { out.text(text) };
    let Some(program) = syncline_image::mkfs::find("e2fsck") else {
        say("e2fsck: not installed, not run\n".into())?;
        return Ok(true);
    };
    if syncline_image::is_qcow2(path) {
        say("e2fsck: not run, it does not read qcow2 (`qemu-nbd -c` makes it a device)\n".into())?;
        return Ok(true);
    }
    let dev = image::part(path, &args.part)?;
    if image::superblock(&*dev, path).is_ok_and(|sb| sb.needs_recovery()) && args.replay {
        say("e2fsck: not run, the journal must be replayed first (`syncline recover`)\n".into())?;
        return Ok(true);
    }
    drop(dev);
    let mut place = PathBuf::from(path).into_os_string();
    if let Some(start) = start_of(args, path)? {
        // Its own way to name a part of a file.
        place.push(format!("?offset={start}"));
    }
    let ran = ended(Command::new(program).arg("-fn").arg(place))?;
    match ran.status.code() {
        Some(0) => {
            say("e2fsck -fn: clean\n".into())?;
            Ok(true)
        }
        Some(code) if code & E2FSCK_ERRORS_LEFT != 0 => {
            say(format!("e2fsck -fn:\n{}", String::from_utf8_lossy(&ran.stdout)))?;
            Ok(false)
        }
        _ => {
            let said = String::from_utf8_lossy(&ran.stderr);
            let said = said.lines().last().unwrap_or("no reason given").to_owned();
            let text = format!("e2fsck could not check: {said}; run it yourself");
            Err(Failure::Failed(text))
        }
    }
}

/// Runs a program to its end, or until an interrupt, which ends it too.
fn ended(command: &mut Command) -> Result<Output> {
    let failed = |err: std::io::Error| Failure::host(Path::new("e2fsck"), &err);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // A pipe that nobody reads would hold the program up.
        let (out, err) = (scope.spawn(|| said(out)), scope.spawn(|| said(err)));
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            if crate::interrupt::asked() {
                let ended = child.kill().and_then(|()| child.wait());
                return ended.map_err(failed).and(Err(Failure::Interrupted));
            }
            std::thread::sleep(LOOK);
        };
        let (stdout, stderr) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        Ok(Output { status, stdout, stderr })
    })
}

/// All that comes out of a pipe.
fn said(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Of one that breaks, what came before.
    let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
    bytes
}

/// Returns the first byte of the partition or offset given, if any.
fn start_of(args: &Check, path: &Path) -> Result<Option<u64>> {
    let Some(number) = args.part.partition else { return Ok(args.part.offset) };
    let all = partitions(&*image::device(path, true)?)?;
    Ok(all.iter().find(|partition| partition.number == number).map(|found| found.start_bytes))
}
