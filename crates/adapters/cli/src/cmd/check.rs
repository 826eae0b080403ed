//! `check`: our own check of an image, then the stock one.

use std::path::Path;
use std::process::Command;

use syncline_fs::CheckReport;
use syncline_image::partition::partitions;

use crate::args::Check;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::image;
use crate::progress;

/// Exit code bit of e2fsck for errors that are left.
const E2FSCK_ERRORS_LEFT: i32 = 4;

/// Checks, prints the findings.
pub(crate) fn run(args: &Check) -> Result<()> {
    let mut out = Out::new();
    let own = own(args, &mut out)?;
    let stock = if args.no_e2fsck { true } else { stock(args, own, &mut out)? };
    out.flush()?;
    if own == Own::Clean && stock {
        return Ok(());
    }
    let text = "the image is corrupt; run `e2fsck -f` on it, or save what can be read first";
    Err(Failure::Corrupt(text.into()).at(args.image.display()))
}

/// Result of our own check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Own {
    Clean,
    Findings,
    /// It could not be mounted to be checked.
    NotOpened,
}

fn own(args: &Check, out: &mut Out) -> Result<Own> {
    let path = &args.image;
    let bounds = Bounds { starts: !args.no_e2fsck, ..Bounds::reader(path) };
    let image = match image::read(path, &image::opening(&args.part, bounds)) {
        Ok(image) => image,
        Err(Failure::Corrupt(text)) => {
            // What keeps it from being mounted is a finding; e2fsck may say more.
            out.text(format!("{text}\n"))?;
            return Ok(Own::NotOpened);
        }
        Err(other) => return Err(other),
    };
    let bar = progress::bar("checking", 0);
    let report = image.vol.check(&mut |at| {
        bar.set_prefix(at.stage);
        bar.set_length(at.total);
        bar.set_position(at.done);
        !crate::interrupt::asked()
    });
    bar.finish_and_clear();
    let report = report.map_err(|err| Failure::from(err).at(path.display()))?;
    crate::interrupt::check()?;
    print(path, &report, out)?;
    Ok(if report.is_clean() { Own::Clean } else { Own::Findings })
}

fn print(path: &Path, report: &CheckReport, out: &mut Out) -> Result<()> {
    for finding in &report.findings {
        out.text(format!("{finding}\n"))?;
    }
    if report.more > 0 {
        out.text(format!("and {} more\n", report.more))?;
    }
    let verdict = match report.findings.len() as u64 + report.more {
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

/// e2fsck's check; whether it found nothing, or is not there.
fn stock(args: &Check, own: Own, out: &mut Out) -> Result<bool> {
    let path = &args.image;
    let Some(program) = syncline_image::mkfs::find("e2fsck") else {
        out.text("e2fsck: not installed, not run\n")?;
        return Ok(true);
    };
    if syncline_image::is_qcow2(path) {
        out.text("e2fsck: not run, it does not read qcow2 (`qemu-nbd -c` makes it a device)\n")?;
        return Ok(true);
    }
    let dev = image::part(path, &args.part)?;
    if image::superblock(&*dev, path).is_ok_and(|sb| sb.needs_recovery()) {
        let first = match own {
            Own::NotOpened => "it has to repair the image to replay the journal (`e2fsck -f`)",
            _ => "the journal must be replayed first (`syncline recover`)",
        };
        out.text(format!("e2fsck: not run, {first}\n"))?;
        return Ok(true);
    }
    drop(dev);
    let mut place = path.as_os_str().to_owned();
    if let Some(start) = start_of(args)? {
        // Its own way to name a part of a file.
        place.push(format!("?offset={start}"));
    }
    let ran = Command::new(program).arg("-fn").arg(place).output();
    let ran = ran.map_err(|err| Failure::host(Path::new("e2fsck"), &err))?;
    match ran.status.code() {
        Some(0) => {
            out.text("e2fsck -fn: clean\n")?;
            Ok(true)
        }
        Some(code) if code & E2FSCK_ERRORS_LEFT != 0 => {
            out.text("e2fsck -fn:\n")?;
            out.text(String::from_utf8_lossy(&ran.stdout))?;
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

/// Returns the first byte of the partition or offset given, if any.
fn start_of(args: &Check) -> Result<Option<u64>> {
    let Some(number) = args.part.partition else { return Ok(args.part.offset) };
    let all = partitions(&*image::device(&args.image, true)?)?;
    Ok(all.iter().find(|partition| partition.number == number).map(|found| found.start_bytes))
}
