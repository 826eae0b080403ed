//! `bench`: workloads on a simulated device, or on a mounted directory.
//!
//! One run for each workload and each value of a list. The table goes to standard output when all
//! are done, progress to standard error while they run. Ctrl-C ends the run after the operation
//! under way: the volume is unmounted, and what was done is reported.

use std::path::Path;

use indicatif::ProgressBar;
use syncline_fs::MountOptions;
use syncline_nand::Profile;
use syncline_workload::{
    DirectoryRun, Document, Entry, Image, ImageSource, JournalMode, Parameters, Run, Simulation,
    Synchronous, Watch, find, table,
};

use crate::args::Bench;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::interrupt;
use crate::progress;

/// Runs everything, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &args.workloads {
        for entry in find(name)? {
            if !entries.iter().any(|known| known.name == entry.name) {
                entries.push(entry);
            }
        }
    }
    let modes: Vec<JournalMode> = args
        .journal_mode
        .iter()
        .map(|name| JournalMode::by_name(name))
        .collect::<std::result::Result<_, _>>()?;
    let mut runs = Vec::new();
    let done = match &args.dir {
        Some(dir) => in_directory(args, dir, &entries, &modes, &mut runs),
        None => simulated(args, &entries, &modes, &mut runs),
    };
    // What was measured is reported, whatever came after it.
    let printed = if runs.is_empty() { Ok(()) } else { report(args, &runs) };
    done.and(printed)
}

/// The settings of each run of `entry`: the journal mode matters to SQLite only.
fn parameters(args: &Bench, entry: &Entry, modes: &[JournalMode]) -> Result<Vec<Parameters>> {
    let synchronous = synchronous(&args.synchronous)?;
    let used = if entry.sqlite { modes } else { modes.get(..1).unwrap_or(&[]) };
    let make = |journal_mode: &JournalMode| Parameters {
        operations: args.operations,
        seed: args.seed,
        journal_mode: *journal_mode,
        synchronous,
    };
    Ok(used.iter().map(make).collect())
}

fn synchronous(name: &str) -> Result<Synchronous> {
    use Synchronous::{Extra, Full, Normal, Off};
    let all = [Off, Normal, Full, Extra];
    all.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let text = format!("unknown synchronous `{name}`; choose of off, normal, full, extra");
        Failure::Usage(text)
    })
}

fn simulated(
    args: &Bench,
    entries: &[&Entry],
    modes: &[JournalMode],
    runs: &mut Vec<Run>,
) -> Result<()> {
    let profile = Profile::parse_spec(&args.device, &|path| std::fs::read_to_string(path))?;
    let mounts =
        args.sync.iter().map(|sync| mount_options(args, sync)).collect::<Result<Vec<_>>>()?;
    let source = match &args.image {
        Some(path) => ImageSource::File(path.clone()),
        None => ImageSource::Mke2fs { size_bytes: args.size << 20 },
    };
    let image = Image::load(&source)?;
    for entry in entries {
        for mount in &mounts {
            for parameters in parameters(args, entry, modes)? {
                let simulation =
                    Simulation { profile: &profile, image: &image, mount, parameters: &parameters };
                let mut watch = Shown::new(entry, &parameters);
                let run = simulation.run(entry, &mut watch);
                watch.0.finish_and_clear();
                keep(run?, runs)?;
            }
        }
    }
    Ok(())
}

fn in_directory(
    args: &Bench,
    dir: &Path,
    entries: &[&Entry],
    modes: &[JournalMode],
    runs: &mut Vec<Run>,
) -> Result<()> {
    for entry in entries {
        for parameters in parameters(args, entry, modes)? {
            let run = DirectoryRun { dir: dir.to_owned(), parameters: &parameters };
            let mut watch = Shown::new(entry, &parameters);
            let run = run.run(entry, &mut watch);
            watch.0.finish_and_clear();
            keep(run?, runs)?;
        }
    }
    Ok(())
}

/// Keeps a run; stops after one that was interrupted.
fn keep(run: Run, runs: &mut Vec<Run>) -> Result<()> {
    let stopped = run.interrupted;
    runs.push(run);
    if stopped { Err(Failure::Interrupted) } else { interrupt::check() }
}

fn mount_options(args: &Bench, sync: &str) -> Result<MountOptions> {
    let usage = |err: syncline_fs::FsError| {
        Failure::Usage(format!("{err}; see the mount options in --help"))
    };
    let mut options = MountOptions::parse(&args.options).map_err(usage)?;
    options.apply(&format!("sync={sync}")).map_err(usage)?;
    options.apply(&format!("policy={}", args.policy)).map_err(usage)?;
    Ok(options)
}

fn report(args: &Bench, runs: &[Run]) -> Result<()> {
    let json = args.json.as_deref();
    let to_stdout = json == Some(Path::new("-"));
    let mut out = Out::new();
    let document = || Document::new(runs.to_vec()).to_json();
    if to_stdout {
        out.text(document())?;
    } else {
        out.text(table(runs))?;
    }
    out.flush()?;
    match json {
        Some(path) if !to_stdout => format::write_file(path, document().as_bytes()),
        _ => Ok(()),
    }
}

/// Progress on a terminal.
struct Shown(ProgressBar);

impl Shown {
    fn new(entry: &Entry, parameters: &Parameters) -> Shown {
        Shown(progress::bar(entry.name, entry.operations(parameters)))
    }
}

impl Watch for Shown {
    fn progress(&mut self, done: u64, total: u64) {
        self.0.set_length(total);
        self.0.set_position(done);
    }

    fn cancelled(&self) -> bool {
        interrupt::asked()
    }
}
