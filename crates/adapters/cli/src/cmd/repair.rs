//! `repair`: mends what `check` finds, behind an undo file.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use syncline_device::BlockDevice;
use syncline_fs::repair::Plan;
use syncline_fs::repair::undo::{self, State};
use syncline_fs::{CheckProgress, Finding};
use syncline_image::partition::partitions;

use super::check;
use crate::args::Repair;
use crate::contain::Bounds;
use crate::error::{Failure, Result};
use crate::format::Out;
use crate::{image, progress};

/// Exit codes of e2fsck.
const MENDED: u8 = 1;
const LEFT: u8 = 4;
const FAILED: u8 = 8;

/// Repairs, or says what a repair would do.
pub(crate) fn run(args: &Repair) -> Result<()> {
    let shown = args.image.display().to_string();
    let named = |failure: Failure| match failure.message() {
        // What opening says names the image.
        Some(text) if text.starts_with(&shown) => failure,
        _ => failure.at(&shown),
    };
    match repair(args).map_err(named) {
        Err(
            failure @ (Failure::Failed(_)
            | Failure::Final(_)
            | Failure::Corrupt(_)
            | Failure::Unsupported(_)),
        ) => {
            crate::complain(failure.message().unwrap_or("failed"));
            Err(Failure::Said(FAILED))
        }
        other => other,
    }
}

/// Questions on a terminal.
struct Asker {
    /// Yes to all that is left.
    is_quiet: bool,
    /// There are no more answers.
    is_over: bool,
}

impl Asker {
    fn ask(&mut self, finding: &Finding) -> bool {
        while !self.is_quiet && !self.is_over {
            eprint!("{finding} [{}]: {} (yes, no, all)? ", finding.name, finding.repair);
            let mut answer = String::new();
            match std::io::stdin().read_line(&mut answer) {
                Ok(1..) => {}
                _ => self.is_over = true,
            }
            match answer.trim() {
                "y" | "yes" => return true,
                "n" | "no" => return false,
                "a" | "all" => self.is_quiet = true,
                _ => {}
            }
        }
        self.is_quiet && !self.is_over
    }
}

fn repair(args: &Repair) -> Result<()> {
    let path = &args.image;
    let is_told = args.dry_run || args.preen || args.yes || args.roll_back;
    if !is_told && !std::io::stdin().is_terminal() {
        let text = "no terminal answers; give -n, -p or -y";
        return Err(Failure::Usage(text.into()));
    }
    let undo = &args.undo.clone().unwrap_or_else(|| default_undo(path));
    let bounds = if args.dry_run { Bounds::reader(path) } else { Bounds::writer(path).makes(undo) };
    let dev = image::opened(path, args.dry_run, &args.part, &*bounds.when_opened())?;
    if !args.dry_run && dev.geometry().read_only {
        let text = "the image cannot be written to; convert it to a plain file first";
        return Err(Failure::Failed(text.into()));
    }
    let superblock = image::superblock(&*dev, path);
    // A whole disk is not damaged: which partition is meant has to be said.
    if superblock.is_err() && partitions(&*dev).is_ok_and(|table| !table.is_empty()) {
        return superblock.map(drop);
    }
    if !args.dry_run && roll_back(args, undo, &*dev)? {
        return Err(Failure::Said(MENDED));
    }
    let bar = progress::bar("repairing", 0);
    let mut follow = |at: CheckProgress| {
        bar.stage(at.stage, at.done, at.total);
        !crate::interrupt::asked()
    };
    let asks = !(args.dry_run || args.preen || args.yes);
    let mut asker = Asker { is_quiet: false, is_over: false };
    let plan = Plan::asking(&dev, &mut follow, &mut |finding| {
        if args.preen {
            return finding.is_safe();
        } else if asks {
            bar.clear();
            return asker.ask(finding);
        }
        true
    });
    bar.clear();
    let plan = plan?;
    if asker.is_over {
        return Err(Failure::Failed(
            "the answers ended and nothing was written; run it again".into(),
        ));
    }
    if plan.before.blocks_used == 0 {
        // No copy of a superblock leads to anything.
        superblock?;
    }
    crate::interrupt::check()?;
    let writes = args.yes || asks || args.preen && plan.after.is_clean();
    if writes && !plan.changes.is_empty() {
        save(undo, &plan.undo(&*dev))?;
        plan.apply(&*dev)?;
        if args.undo.is_none() {
            fs::remove_file(undo).map_err(|err| Failure::host(undo, &err))?;
        }
    }
    report(args, &plan, writes)
}

/// The undo file of a repair that names none: NAME.undo in the current directory.
fn default_undo(image: &Path) -> PathBuf {
    let mut name = image.file_name().unwrap_or(image.as_os_str()).to_owned();
    name.push(".undo");
    name.into()
}

/// Rolls back an interrupted repair, or any if that was asked for. False if there is no undo file,
/// or only one of a repair without --undo that had ended.
fn roll_back(args: &Repair, file: &Path, dev: &dyn BlockDevice) -> Result<bool> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(err) if err.kind() == ErrorKind::NotFound && !args.roll_back => return Ok(false),
        Err(err) => return Err(Failure::host(file, &err)),
    };
    let changes = undo::decode(&bytes, dev)?;
    let state = undo::state(&changes, dev)?;
    if state != State::Between && args.undo.is_none() {
        fs::remove_file(file).map_err(|err| Failure::host(file, &err))?;
        return Ok(false);
    }
    if state != State::Between && !args.roll_back {
        let text = format!("{} exists; name another undo file", file.display());
        return Err(Failure::Usage(text));
    }
    undo::roll_back(&changes, dev)?;
    if args.undo.is_none() {
        fs::remove_file(file).map_err(|err| Failure::host(file, &err))?;
    }
    let mut out = Out::new();
    let why = if state == State::Between { "the repair was interrupted; " } else { "" };
    let text = "rolled back to the state before the repair";
    out.text(format!("{}: {why}{text}\n", args.image.display()))?;
    out.flush()?;
    Ok(true)
}

/// Writes the undo file and makes it durable, with its name.
fn save(file: &Path, bytes: &[u8]) -> Result<()> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let written = || {
        let mut to = OpenOptions::new().write(true).create_new(true).open(file)?;
        to.write_all(bytes)?;
        to.sync_all()?;
        // Windows opens no directory, and makes names durable by itself.
        match cfg!(windows) {
            true => Ok(()),
            false => File::open(parent.unwrap_or(Path::new(".")))?.sync_all(),
        }
    };
    written().map_err(|err| Failure::host(file, &err))
}

fn report(args: &Repair, plan: &Plan, writes: bool) -> Result<()> {
    let mut out = Out::new();
    let is_mended = writes && !plan.changes.is_empty();
    let left = if is_mended { &plan.after } else { &plan.before };
    if args.json {
        let document = json!({
            "schema": "syncline.repair/1",
            "before": check::document(&args.image, &plan.before),
            "after": check::document(&args.image, &plan.after),
            "replayed": plan.replayed,
            "changed_pieces": plan.changes.len(),
            "written": is_mended,
        });
        out.text(format!("{document:#}\n"))?;
    } else {
        if plan.replayed {
            out.text("the journal is not empty: replay it\n")?;
        }
        for finding in &plan.before.findings {
            let is_left = plan.after.findings.contains(finding);
            let does = if is_left { "left" } else { finding.repair };
            out.text(format!("{finding} [{}]: {does}\n", finding.name))?;
        }
        let verb = if is_mended { "mended" } else { "can be mended" };
        out.text(format!(
            "{}: {} errors, {} {verb}\n",
            args.image.display(),
            plan.before.errors,
            plan.before.errors - plan.after.errors
        ))?;
    }
    out.flush()?;
    match (left.is_clean(), is_mended) {
        (false, _) => Err(Failure::Said(LEFT)),
        (true, true) => Err(Failure::Said(MENDED)),
        (true, false) => Ok(()),
    }
}
