//! `flash`: the NAND simulator in real time, as a file or block device that any file system uses.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use syncline_device::{
    BlockDevice, FileDevice, FileOptions, MemoryDevice, RecordingDevice, WallClock,
};
use syncline_export::{Control, Export};
use syncline_lab::LabError;
use syncline_lab::experiments::{self};
use syncline_nand::NandDevice;

use crate::args::{FlashCommand, FlashDir, FlashServe};
use syncline_cli::control::{self, ControlSocket};
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::Out;
use syncline_cli::{daemon, interrupt, served};

/// Name of the device's file.
const FLASH: &str = "flash";
/// Request that ends the server.
const DETACH: &str = "detach";
/// Poll interval of `detach` for the end of the server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Seed of preconditioning.
const SEED: u64 = 1;

/// Runs one of the commands.
pub(crate) fn run(command: &FlashCommand) -> Result<()> {
    match command {
        FlashCommand::Serve(args) => serve(args),
        FlashCommand::Cut(args) => power(args, "cut"),
        FlashCommand::On(args) => power(args, "on"),
        FlashCommand::Detach(args) => detach(args),
        FlashCommand::Stats(args) => {
            let text = std::fs::read_to_string(args.dir.join("stats"));
            let text = text.map_err(|err| not_served(&args.dir, &err))?;
            let mut out = Out::new();
            out.text(text)?;
            out.flush()
        }
    }
}

fn not_served(dir: &Path, err: &io::Error) -> Failure {
    Failure::Failed(format!(
        "{}: {err}; start it with `syncline-lab flash serve PROFILE {0}`",
        dir.display()
    ))
}

fn power(args: &FlashDir, state: &str) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(args.dir.join("power"));
    file.and_then(|mut file| io::Write::write_all(&mut file, state.as_bytes()))
        .map_err(|err| not_served(&args.dir, &err))
}

/// Ends the server of a directory, and waits for it.
fn detach(args: &FlashDir) -> Result<()> {
    let gone = || not_served(&args.dir, &io::ErrorKind::NotFound.into());
    let dir = std::fs::canonicalize(&args.dir).map_err(|err| not_served(&args.dir, &err))?;
    control::ask(&dir, DETACH)?.ok_or_else(gone)?;
    while control::ask(&dir, "").is_ok_and(|answer| answer.is_some()) {
        interrupt::check()?;
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Answers `detach` until the server ends. Refused while something is mounted from it.
fn answer(
    dir: &Path,
    node: Option<&served::Node>,
    leave: &Arc<AtomicBool>,
) -> Result<ControlSocket> {
    let (leave, file) = (Arc::clone(leave), dir.join(FLASH));
    let node = node.map(served::Node::name);
    let dir = std::fs::canonicalize(dir).map_err(|err| Failure::host(dir, &err))?;
    let handler: control::Handler = Box::new(move |line| match line {
        DETACH => match served::mounted(&file, node.as_deref()).map_err(|err| said(&err))? {
            Some(node) => {
                Err(format!("{node} is mounted; unmount it with `umount {node}` and detach again"))
            }
            None => {
                leave.store(true, Ordering::Relaxed);
                Ok(String::new())
            }
        },
        "" => Ok(String::new()),
        other => Err(format!("`{other}` is no request; use `syncline-lab flash detach`")),
    });
    control::answer(&dir, handler)
}

fn said(failure: &Failure) -> String {
    failure.message().unwrap_or("failed").to_owned()
}

fn serve(args: &FlashServe) -> Result<()> {
    if !args.foreground && !daemon::is_child() {
        let said = daemon::start()?;
        if !said.is_empty() {
            let mut out = Out::new();
            out.text(format!("{said}\n"))?;
            return out.flush();
        }
        return Ok(());
    }
    let device = device(args)?;
    let failed = |err: &dyn std::fmt::Display| Failure::Failed(err.to_string());
    let export = export(device);
    let device = Arc::clone(&export.device);
    let served = export.serve(&args.dir).map_err(|err| failed(&err))?;
    let file = args.dir.join(FLASH);
    let (served, node) = served::attached(served, || match args.attach.as_deref() {
        None => Ok(None),
        Some("ublk") => served::beside(device).map(Some),
        Some("loop") => served::over(Some(&file)),
        Some(_) => served::either(device, &file).map(Some),
    })?;
    let leave = Arc::<AtomicBool>::default();
    let control = answer(&args.dir, node.as_ref(), &leave)?;
    daemon::ready(&node.as_ref().map_or(String::new(), served::Node::name))?;
    let stayed = served::stay(served, node.as_ref(), || !leave.load(Ordering::Relaxed));
    drop(control);
    stayed
}

/// The device: contents in memory or a file, times of the profile, power that can be cut.
fn device(args: &FlashServe) -> Result<Arc<NandDevice>> {
    let profile = experiments::profile(&args.profile)?;
    let backing: Arc<dyn BlockDevice> = match &args.image {
        None => Arc::new(MemoryDevice::new(args.size)),
        Some(path) => Arc::new(FileDevice::open(path, FileOptions::default())?),
    };
    let device = NandDevice::with_power_cuts(&profile, backing, Arc::new(WallClock::new()));
    let device = device.map_err(LabError::from)?;
    if let Some(percent) = args.precondition {
        device.precondition(percent, SEED);
    }
    Ok(Arc::new(device))
}

fn export(nand: Arc<NandDevice>) -> Export {
    let counting = Arc::new(RecordingDevice::new(Arc::clone(&nand)));
    let (on, cut, stats, counted) =
        (Arc::clone(&nand), Arc::clone(&nand), nand, Arc::clone(&counting));
    let power = Control {
        name: "power",
        read: Box::new(move || if on.has_power() { "on\n".into() } else { "cut\n".into() }),
        write: Some(Box::new(move |state| match state {
            "cut" => cut.cut().map(drop).map_err(|err| err.to_string()),
            "on" => {
                cut.power_on();
                Ok(())
            }
            other => Err(format!("`{other}` is neither cut nor on")),
        })),
    };
    let stats =
        Control { name: "stats", read: Box::new(move || document(&stats, &counted)), write: None };
    Export { device: counting, name: FLASH, controls: vec![power, stats] }
}

/// Describes the traffic that reached the device since serving began.
fn document(nand: &NandDevice, counting: &RecordingDevice<Arc<NandDevice>>) -> String {
    let (requests, flash) = (counting.counts(), nand.counters());
    let document = json!({
        "schema": "syncline.flash/1",
        "profile": nand.profile().name,
        "write_requests": requests.write_requests(),
        "written_bytes": requests.written_bytes(),
        "flushes": requests.flushes(),
        "nand_page_programs": flash.programs(),
        "nand_gc_copies": flash.gc_copies,
        "nand_erases": flash.erases,
    });
    format!("{document:#}\n")
}
