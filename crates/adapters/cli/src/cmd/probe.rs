//! `probe`: what a path, a block device or a profile can do, and a profile that does the same.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use syncline_device::{BlockDevice, FileDevice, FileOptions, WallClock};
use syncline_nand::Profile;
use syncline_probe::{
    DEVICE_FACTOR, DeviceTarget, Plan, ProbeDocument, ProbeTarget, Simulated, fit, probe,
};

use crate::args::Probe;
use crate::error::{Failure, Result};
use crate::format::{self, Forms};
use crate::interrupt;
use crate::progress::Shown;
use crate::version::about;

const MIB: u64 = 1 << 20;

/// Measures, fits and prints.
pub(crate) fn run(args: &Probe) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref(), args.fit.as_deref()])?;
    let mut plan = Plan {
        region_bytes: args.size / MIB * MIB,
        requests: args.requests,
        test_bytes: args.bytes,
        test_ns: args.seconds * 1_000_000_000,
        sustained_bytes: args.sustain,
        seed: args.seed,
    };
    if let Some(path) = &args.fit {
        check_fit(path)?;
    }
    let mut remarks = Vec::new();
    let (mut target, clock) = match place(&args.target) {
        Some(path) => (real(args, &path, &mut plan, &mut remarks)?, "wall"),
        None => (simulated(args, &plan)?, "virtual"),
    };
    let mut shown = Shown::new("tests", 0);
    let mut document = probe(target.as_mut(), &plan, &mut shown)?;
    shown.0.finish_and_clear();
    document.target.clone_from(&args.target);
    document.clock = clock;
    document.remarks.append(&mut remarks);
    let stopped = interrupt::check();
    if let (Some(path), Ok(())) = (&args.fit, &stopped) {
        let mut shown = Shown::new("profiles", u64::from(args.tries));
        let found = fit(&document, &plan, target.align_bytes(), args.tries, &mut shown)?;
        shown.0.finish_and_clear();
        document.set_fit(&found);
        format::write_file(path, found.profile.to_toml()?.as_bytes())?;
    }
    publish(args, &document)?;
    stopped
}

/// A fit is a file that `--device` takes for one.
fn check_fit(path: &Path) -> Result<()> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        return Ok(());
    }
    let text = format!("{}: a profile's name ends in .toml; rename it", path.display());
    Err(Failure::Usage(text))
}

/// The path of a target that is no profile.
fn place(target: &str) -> Option<PathBuf> {
    let profile = target.ends_with(".toml") || target.contains(".toml:");
    let path = PathBuf::from(target);
    (!profile && (target.contains('/') || path.exists())).then_some(path)
}

fn simulated(args: &Probe, plan: &Plan) -> Result<Box<dyn ProbeTarget>> {
    if args.destroy > 0 {
        let text = "a profile holds nothing to destroy; leave --destroy out".to_owned();
        return Err(Failure::Usage(text));
    }
    let profile = Profile::parse_spec(&args.target, &|path| std::fs::read_to_string(path))?;
    let size = plan.region_bytes.saturating_mul(DEVICE_FACTOR);
    Ok(Box::new(Simulated::new(&profile, size, args.precondition, args.seed)?))
}

/// A path: a file of our own in a directory, or what is there.
fn real(
    args: &Probe,
    path: &Path,
    plan: &mut Plan,
    remarks: &mut Vec<String>,
) -> Result<Box<dyn ProbeTarget>> {
    if args.precondition > 0 {
        let text = "only a profile is preconditioned; leave --precondition out".to_owned();
        return Err(Failure::Usage(text));
    }
    let kind = std::fs::metadata(path).map_err(|err| Failure::host(path, &err))?.file_type();
    let (device, writable) = if kind.is_dir() {
        if args.destroy > 0 {
            let text = "a directory gets a file of its own; leave --destroy out".to_owned();
            return Err(Failure::Usage(text));
        }
        (own_file(path, plan.region_bytes)?, true)
    } else if kind.is_file() || kind.is_block_device() {
        if args.destroy == 1 {
            let text = format!(
                "{}: all that is in its first {} MiB would be lost; give --destroy twice, or not \
                 at all to read only",
                path.display(),
                plan.region_bytes / MIB
            );
            return Err(Failure::Usage(text));
        }
        let writable = args.destroy > 1;
        if args.fit.is_some() && !writable {
            let text = "a fit needs reads and writes; probe a directory, or give --destroy twice";
            return Err(Failure::Usage(text.to_owned()));
        }
        let options = FileOptions { read_only: !writable, ..FileOptions::default() };
        let device = FileDevice::open(path, options)?;
        plan.region_bytes = plan.region_bytes.min(device.geometry().size_bytes / MIB * MIB);
        (device, writable)
    } else {
        let text = format!("{}: give a directory, a file or a block device", path.display());
        return Err(Failure::Usage(text));
    };
    if !writable {
        remarks.push("only read; --destroy twice overwrites it for the other tests".to_owned());
    }
    if !device.is_direct() {
        remarks.push(
            "no direct I/O here: reads and writes are those of the page cache; choose another \
             file system for figures of the device"
                .to_owned(),
        );
    }
    let clock = Arc::new(WallClock::new());
    Ok(Box::new(DeviceTarget::new(Arc::new(device), clock, writable)))
}

/// A file that has no name as soon as it is open, so that nothing is left whatever happens.
fn own_file(dir: &Path, size_bytes: u64) -> Result<FileDevice> {
    let path = dir.join(format!(".syncline-probe-{}", std::process::id()));
    let device = FileDevice::create(&path, size_bytes, FileOptions::default());
    let removed = std::fs::remove_file(&path);
    let device = device?;
    removed.map_err(|err| Failure::host(&path, &err))?;
    Ok(device)
}

fn publish(args: &Probe, document: &ProbeDocument) -> Result<()> {
    let forms = Forms {
        table: &|| document.text(),
        json: &|| document.to_json(),
        page: &|| document.html(&about()),
    };
    format::publish(&forms, args.json.as_deref(), args.html.as_deref())
}
