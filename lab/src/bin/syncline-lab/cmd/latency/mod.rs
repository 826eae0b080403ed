//! `latency`: how long fallocate and write wait, with and without another thread's fsyncs.
//!
//! Source: write-latency paper, section 5.

mod causes;
mod measure;
mod stall_monitor;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use syncline_lab::LabError;

use syncline_device::WallClock;
use syncline_fs::MountOptions;
use syncline_lab::bench::{Image, ImageSource};
use syncline_lab::experiments::{self};
use syncline_lab::latency::LatencyDocument;
use syncline_nand::NandDevice;
use syncline_recorder::os::lock_memory;

use crate::about;
use crate::args::Latency;
use measure::{Plan, Watch};
use stall_monitor::StallMonitor;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Forms};
use syncline_cli::place::{Directory, InProcess, Place};

/// Options of the volume in process, as of the paper's mount.
const MOUNT: &str = "noatime,lazytime";

/// Time for which the machine is watched before the first case.
const IDLE: Duration = Duration::from_secs(5);

/// Measures and prints.
pub(crate) fn run(args: &Latency) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    let plan = Plan::new(args);
    let place = match &args.in_process {
        Some(profile) => format!("in process, {profile}, {MOUNT},{}", args.options),
        None => whole(args.dir.as_deref().unwrap_or(Path::new("."))),
    };
    let mut document = LatencyDocument::new(place.trim_end_matches(',').to_owned());
    if let Err(err) = lock_memory() {
        let why = syncline_cli::error::plain(&err);
        document.remarks.push(format!("memory is not locked: {why}; run as root for it"));
    }
    let dir = args.dir.as_deref();
    // Before anybody waits for it.
    let meta = dir.map(|dir| std::fs::metadata(dir).map_err(|err| Failure::host(dir, &err)));
    let meta = meta.transpose()?;
    let monitor = StallMonitor::start();
    if let Err(why) = &monitor {
        document.remarks.push(format!("stalls of the machine are not told apart: {why}"));
    }
    let mut watch = Watch { tracing: None, monitor: monitor.ok() };
    document.idle = watch.idle(IDLE);
    let done = match (&args.in_process, dir.zip(meta)) {
        (Some(profile), _) => {
            let place = in_process(profile, &args.options)?;
            let done = measure::all(&place, &plan, &mut document, &watch);
            let ended = place.unmount();
            done.and(ended)
        }
        (None, Some((dir, meta))) => {
            match causes::Tracing::start(meta.dev()) {
                Ok(tracing) => watch.tracing = Some(tracing),
                Err(why) => document.remarks.push(format!("no causes of outliers: {why}")),
            }
            let place = Directory(dir.to_owned());
            measure::all(&place, &plan, &mut document, &watch)
        }
        (None, None) => Err(Failure::Usage("give a directory, or --in-process PROFILE".to_owned())),
    };
    document.interrupted = done.is_err();
    // What was measured is reported, whatever came after it.
    let printed = if document.cases.is_empty() { Ok(()) } else { publish(args, &document) };
    done.and(printed)
}

/// A path that says in a report which directory it was.
fn whole(dir: &Path) -> String {
    std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned()).display().to_string()
}

fn in_process(profile: &str, options: &str) -> Result<InProcess> {
    let profile = experiments::profile(profile)?;
    let usage = |err: syncline_fs::FsError| {
        Failure::Usage(format!("{err}; see the mount options in `syncline mount --help`"))
    };
    let mount = MountOptions::parse(&format!("{MOUNT},{options}")).map_err(usage)?;
    let image = Image::load(&ImageSource::default())?;
    let clock = Arc::new(WallClock::new());
    let flash = NandDevice::new(&profile, Arc::new(image.snapshot()), clock.clone());
    let flash = flash.map_err(LabError::from)?;
    InProcess::mount(Arc::new(flash), clock, mount)
}

fn publish(args: &Latency, document: &LatencyDocument) -> Result<()> {
    let forms = Forms {
        table: &|| document.text(),
        json: &|| document.to_json(),
        page: &|| document.html(&about()),
    };
    format::publish(&forms, args.json.as_deref(), args.html.as_deref())
}

/// Removes its file at the end, whatever happens.
struct Scratch<'p, P: Place> {
    place: &'p P,
    name: String,
    file: P::File,
}

impl<'p, P: Place> Scratch<'p, P> {
    fn new(place: &'p P, what: &str) -> Result<Self> {
        let name = format!(".syncline-latency-{}-{what}", std::process::id());
        let file = place.create(&name)?;
        Ok(Scratch { place, name, file })
    }
}

impl<P: Place> Drop for Scratch<'_, P> {
    fn drop(&mut self) {
        self.place.remove(&self.name);
    }
}
