//! `bench`: workloads on a simulated device, or on a mounted directory.
//!
//! One run for each workload and each value of a list. The table goes to standard output when all
//! are done, progress to standard error while they run. Ctrl-C ends the run after the operation
//! under way: the volume is unmounted, and what was done is reported. With `--sensitivity` the
//! device is varied instead of the sync mode, and the document is another one.

use std::path::Path;

use syncline_bench::{
    Cell, DirectoryRun, Document, Entry, FLUSHES_US, Grid, Image, ImageSource, JournalMode,
    Parameters, Run, STREAMS, Sensitivity, Simulation, Stack, Synchronous, Trace, allocation_table,
    compare, comparison_table, find, report, table,
};
use syncline_fs::{MountOptions, SyncMode};
use syncline_nand::Profile;

use crate::args::Bench;
use crate::error::{Failure, Result};
use crate::format::{self, Out};
use crate::interrupt;
use crate::progress::Shown;
use crate::version::about;

/// Commands of one run that a report can plot.
const EVENTS_MAX: usize = 200_000;

/// Runs everything, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    if args.workloads == ["replay"] {
        return super::replay::run(args);
    }
    if args.workloads.iter().all(|name| name.split('/').next() == Some("applications")) {
        return super::applications::run(args);
    }
    if args.workloads.iter().all(|name| name == "fjord" || name.starts_with("fjord/")) {
        return super::fjord::run(args);
    }
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &args.workloads {
        for entry in find(name)? {
            if !entries.iter().any(|known| known.name == entry.name) {
                entries.push(entry);
            }
        }
    }
    let modes = journal_modes(args)?;
    if args.sensitivity {
        let mut cells = Vec::new();
        let done = sensitivity(args, &entries, &modes, &mut cells);
        let document = Sensitivity::new(&args.device, cells);
        let (text, json) = (document.table(), || document.to_json());
        let printed = if document.cells.is_empty() { Ok(()) } else { print(args, &text, &json) };
        return done.and(printed);
    }
    let (mut runs, mut traces) = (Vec::new(), Vec::new());
    let done = match &args.dir {
        Some(dir) => in_directory(args, dir, &entries, &modes, &mut runs),
        None => simulated(args, &entries, &modes, &mut runs, &mut traces),
    };
    // What was measured is reported, whatever came after it.
    let printed = if runs.is_empty() { Ok(()) } else { publish(args, &runs, &traces) };
    done.and(printed)
}

/// The journal modes that were asked for.
pub(super) fn journal_modes(args: &Bench) -> Result<Vec<JournalMode>> {
    let modes = args.journal_mode.iter().map(|name| JournalMode::by_name(name));
    Ok(modes.collect::<std::result::Result<_, _>>()?)
}

/// Fill levels of the volume before each run, in per cent; one run on a fresh volume if none was
/// given.
pub(super) fn fills(args: &Bench) -> Vec<Option<u32>> {
    match args.fill.as_slice() {
        [] => vec![None],
        list => list.iter().copied().map(Some).collect(),
    }
}

/// The settings of each run of `entry`: the journal mode matters to SQLite only.
pub(super) fn parameters(
    args: &Bench,
    entry: &Entry,
    modes: &[JournalMode],
) -> Result<Vec<Parameters>> {
    let synchronous = synchronous(&args.synchronous)?;
    let used = if entry.sqlite { modes } else { modes.get(..1).unwrap_or(&[]) };
    let make = |journal_mode: &JournalMode, fill_percent| Parameters {
        operations: args.operations,
        seed: args.seed,
        journal_mode: *journal_mode,
        synchronous,
        sqlite_fsync: args.sqlite_fsync,
        scale_percent: args.scale,
        fill_percent,
    };
    let fills = fills(args);
    let each = used.iter().flat_map(|mode| fills.iter().map(move |fill| make(mode, *fill)));
    Ok(each.collect())
}

fn synchronous(name: &str) -> Result<Synchronous> {
    use Synchronous::{Extra, Full, Normal, Off};
    let all = [Off, Normal, Full, Extra];
    all.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let text = format!("unknown synchronous `{name}`; choose of off, normal, full, extra");
        Failure::Usage(text)
    })
}

pub(super) fn load(args: &Bench) -> Result<(Profile, Image)> {
    let profile = Profile::parse_spec(&args.device, &|path| std::fs::read_to_string(path))?;
    Ok((profile, image(args)?))
}

/// The volume that the arguments ask for.
pub(super) fn image(args: &Bench) -> Result<Image> {
    let source = match &args.image {
        Some(path) => ImageSource::File(path.clone()),
        None if args.fill.is_empty() => ImageSource::Mke2fs { size_bytes: args.size << 20 },
        None => ImageSource::ManyFlexGroups { size_bytes: args.size << 20 },
    };
    Ok(Image::load(&source)?)
}

fn simulated(
    args: &Bench,
    entries: &[&Entry],
    modes: &[JournalMode],
    runs: &mut Vec<Run>,
    traces: &mut Vec<Trace>,
) -> Result<()> {
    let mut mounts = Vec::new();
    for sync in &args.sync {
        mounts.extend(mount_options(args, &format!("sync={sync}"))?);
    }
    let (profile, image) = load(args)?;
    let events_max = if args.html.is_some() { EVENTS_MAX } else { 0 };
    for entry in entries {
        for parameters in parameters(args, entry, modes)? {
            for mount in &mounts {
                // Atomic writes are for eager sync; a list leaves them out for the other.
                let is_atomic = parameters.journal_mode == JournalMode::Atomic;
                if is_atomic && mount.sync == SyncMode::Ordered && args.sync.len() > 1 {
                    continue;
                }
                let simulation =
                    Simulation { profile: &profile, image: &image, mount, parameters: &parameters };
                let stack = Stack::new(&profile, image.snapshot(), events_max)?;
                let mut watch = shown(entry, &parameters);
                let run = simulation.run_on(&stack, entry, &mut watch);
                watch.0.finish_and_clear();
                let run = run?;
                if events_max > 0 {
                    traces.push(Trace {
                        events: stack.recording.take_events(),
                        events_lost: stack.recording.events_lost(),
                    });
                }
                keep(run, runs)?;
            }
        }
    }
    Ok(())
}

/// The grid of each workload, journal mode and interval.
fn sensitivity(
    args: &Bench,
    entries: &[&Entry],
    modes: &[JournalMode],
    cells: &mut Vec<Cell>,
) -> Result<()> {
    let mounts = mount_options(args, "sync=ordered")?;
    let [mount] = mounts.as_slice() else {
        let text = "--sensitivity takes one --mtime-update and --alloc; run it once for each";
        let text = text.to_owned();
        return Err(Failure::Usage(text));
    };
    let (profile, image) = load(args)?;
    let (profile, image) = (&profile, &image);
    let grid = Grid { profile, image, mount, streams: &STREAMS, flushes_us: &FLUSHES_US };
    for entry in entries {
        for parameters in parameters(args, entry, modes)? {
            let mut watch = shown(entry, &parameters);
            let found = grid.run(entry, &parameters, &mut watch);
            watch.0.finish_and_clear();
            cells.extend(found?);
            interrupt::check()?;
        }
    }
    Ok(())
}

pub(super) fn in_directory(
    args: &Bench,
    dir: &Path,
    entries: &[&Entry],
    modes: &[JournalMode],
    runs: &mut Vec<Run>,
) -> Result<()> {
    for entry in entries {
        for parameters in parameters(args, entry, modes)? {
            let run = DirectoryRun { dir: dir.to_owned(), parameters: &parameters };
            let mut watch = shown(entry, &parameters);
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

/// The options of each format of `--log`, each interval of `--mtime-update` and each policy of
/// `--alloc`, with `sync`.
pub(super) fn mount_options(args: &Bench, sync: &str) -> Result<Vec<MountOptions>> {
    let usage = |err: syncline_fs::FsError| {
        Failure::Usage(format!("{err}; see the mount options in --help"))
    };
    let mut base = MountOptions::parse(&args.options).map_err(usage)?;
    base.apply(sync).map_err(usage)?;
    base.apply(&format!("policy={}", args.policy)).map_err(usage)?;
    let intervals = args.mtime_update.iter().map(|interval| match interval.as_str() {
        "off" => "un_mtime_update".to_owned(),
        ms => format!("mtime_update={ms}"),
    });
    // Packed records are for eager sync; a list leaves them out for the other.
    let jbd2_only = sync == "sync=ordered" && args.log.len() > 1;
    let logs = args.log.iter().filter(|log| !(jbd2_only && *log == "packed"));
    let logs = logs.map(|log| format!("log={log}"));
    let allocs = args.alloc.iter().map(|name| format!("alloc={name}"));
    let mut all = vec![base];
    for items in [logs.collect::<Vec<_>>(), intervals.collect(), allocs.collect()] {
        if items.is_empty() {
            continue;
        }
        let mut varied = Vec::new();
        for (options, item) in all.iter().flat_map(|o| items.iter().map(move |item| (o, item))) {
            let mut options = options.clone();
            options.apply(item).map_err(usage)?;
            varied.push(options);
        }
        all = varied;
    }
    Ok(all)
}

/// Table or document, then the report.
pub(super) fn publish(args: &Bench, runs: &[Run], traces: &[Trace]) -> Result<()> {
    let text = table(runs) + &comparison_table(&compare(runs)) + &allocation_table(runs);
    print(args, &text, &|| Document::new(runs.to_vec()).to_json())?;
    match &args.html {
        Some(path) => format::write_file(path, report(runs, traces, &about()).as_bytes()),
        None => Ok(()),
    }
}

/// The text on standard output, and the document where `--json` wants it.
pub(super) fn print(args: &Bench, text: &str, document: &dyn Fn() -> String) -> Result<()> {
    let json = args.json.as_deref();
    let to_stdout = json == Some(Path::new("-"));
    let mut out = Out::new();
    if to_stdout {
        out.text(document())?;
    } else {
        out.text(text)?;
    }
    out.flush()?;
    match json {
        Some(path) if !to_stdout => format::write_file(path, document().as_bytes()),
        _ => Ok(()),
    }
}

/// Progress of a workload on a terminal.
pub(super) fn shown(entry: &Entry, parameters: &Parameters) -> Shown {
    Shown::new(entry.name, entry.operations(parameters))
}
