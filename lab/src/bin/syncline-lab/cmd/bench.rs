//! `bench`: workloads on a simulated device, or on a mounted directory.
//!
//! One run for each workload and each value of a list. The table goes to standard output when all
//! are done, progress to standard error while they run. Ctrl-C ends the run after the operation
//! under way: the volume is unmounted, and the operations so far are reported. With `--sensitivity`
//! the device is varied instead of the sync mode, and the document is another one.

use syncline_lab::bench::{Document, Run, Sensitivity, Trace, WORKLOADS, report, text};
use syncline_lab::experiments::{Bench as Request, BenchResult};

use crate::about;
use crate::args::{
    Bench, BenchCommand, BenchSqlite, DeviceOptions, ModeOptions, OutputOptions, RunOptions,
    SqliteOptions, SyncOptions,
};
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Forms, Out};

/// Commands of one run that a report can plot.
const EVENTS_MAX: usize = 200_000;
/// First line of a result of a command that did not end.
const INTERRUPTED: &str = "Interrupted: not all runs are here, and the last one may be a part.";

/// Runs everything, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    let Some(command) = &args.command else { return list() };
    match command {
        BenchCommand::Sqlite(args) => sqlite(args),
        BenchCommand::Fileio(args) => counted(named("fileio", &args.tests), None, &args.run),
        BenchCommand::Create(args) => counted(named("create", &[]), None, &args.run),
        BenchCommand::Mixed(args) => counted(named("mixed", &[]), Some(&args.sqlite), &args.run),
        BenchCommand::AndroidDay(args) => {
            counted(named("android-day", &[]), Some(&args.sqlite), &args.run)
        }
        BenchCommand::Several(args) => {
            counted(args.workloads.clone(), Some(&args.sqlite), &args.run)
        }
        BenchCommand::Replay(args) => super::syscall_replay::run(args),
        BenchCommand::Fjord(args) => super::fjord::run(args),
        BenchCommand::Applications(args) => super::phone_apps::run(args),
    }
}

/// The workloads of `several`.
fn list() -> Result<()> {
    let mut out = Out::new();
    out.text(format!("{:<38}{:>10}  one operation\n", "workload", "operations"))?;
    for entry in WORKLOADS {
        out.text(format!("{:<38}{:>10}  {}\n", entry.name, entry.operations, entry.summary))?;
    }
    out.flush()
}

/// The tests of a group, all if none is named.
pub(super) fn named(group: &str, tests: &[String]) -> Vec<String> {
    match tests {
        [] => vec![group.to_owned()],
        tests => tests.iter().map(|test| format!("{group}/{test}")).collect(),
    }
}

/// A request for workloads; `set` sets what their options say.
pub(super) fn request(workloads: Vec<String>, device: &DeviceOptions) -> Request {
    let DeviceOptions { device: _, options, seed, size, image, uncertainty: _ } = device;
    Request {
        workloads,
        options: options.clone(),
        seed: *seed,
        size: *size,
        image: image.clone(),
        ..Request::default()
    }
}

impl DeviceOptions {
    /// The devices of a run, with those of `--uncertainty`. All are known before one is run.
    pub(super) fn specs(&self) -> Result<Vec<String>> {
        match self.uncertainty {
            true => ranged(&self.device),
            false => {
                for device in &self.device {
                    syncline_lab::experiments::profile(device)?;
                }
                Ok(self.device.clone())
            }
        }
    }
}

/// The devices with the ends of their open parameters; refused if none has any.
pub(super) fn ranged(devices: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for device in devices {
        all.extend(syncline_lab::experiments::range(device)?);
    }
    if all.len() == devices.len() {
        let text = format!(
            "{}: published figures leave no parameter open; leave out --uncertainty",
            devices.join(", ")
        );
        return Err(Failure::Usage(text));
    }
    Ok(all)
}

impl SqliteOptions {
    /// Puts them into a request.
    pub(super) fn set(&self, request: &mut Request) {
        if !self.journal_mode.is_empty() {
            request.journal_mode.clone_from(&self.journal_mode);
        }
        if let Some(level) = &self.synchronous {
            request.synchronous.clone_from(level);
        }
        request.sqlite_fsync = self.sqlite_fsync;
    }

    fn is_given(&self) -> bool {
        !self.journal_mode.is_empty() || self.synchronous.is_some() || self.sqlite_fsync
    }
}

impl ModeOptions {
    /// Puts them into a request.
    pub(super) fn set(&self, request: &mut Request) {
        request.log.clone_from(&self.log);
        request.mtime_update.clone_from(&self.mtime_update);
        request.policy.clone_from(&self.policy);
        request.alloc.clone_from(&self.alloc);
    }
}

impl SyncOptions {
    /// Puts them into a request.
    pub(super) fn set(&self, request: &mut Request) {
        request.sync.clone_from(&self.sync);
        request.fill.clone_from(&self.fill);
    }
}

impl OutputOptions {
    /// Fails if a file cannot be written: before a run, not after it.
    pub(super) fn check(&self) -> Result<()> {
        format::check_outputs(&[self.json.as_deref(), self.html.as_deref()])
    }

    /// Prints and writes a result. One of a command that did not end says so first, in each form.
    pub(super) fn publish(&self, forms: &Forms<'_>, ended: bool) -> Result<()> {
        let (table, json, page) = (forms.table, forms.json, forms.page);
        let marked = Forms {
            table: &|| format!("{INTERRUPTED}\n{}", table()),
            json: &|| json().replacen('{', "{\n  \"interrupted\": true,", 1),
            page: &|| page().replacen("</h1>", &format!("</h1>\n<p>{INTERRUPTED}</p>"), 1),
        };
        let forms = if ended { forms } else { &marked };
        format::publish(forms, self.json.as_deref(), self.html.as_deref())
    }
}

fn sqlite(args: &BenchSqlite) -> Result<()> {
    let inserts = args.tests.is_empty() || args.tests.iter().any(|test| test == "insert");
    if args.cuts > 0 && !inserts {
        let text = "--cuts counts inserts; add the test insert";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut request = request(named("sqlite", &args.tests), &args.run.device);
    request.barriers.clone_from(&args.barriers);
    request.cuts = args.cuts;
    counted_of(request, Some(&args.sqlite), &args.run)
}

/// Runs workloads that count operations.
fn counted(workloads: Vec<String>, sqlite: Option<&SqliteOptions>, run: &RunOptions) -> Result<()> {
    counted_of(request(workloads, &run.device), sqlite, run)
}

fn counted_of(
    mut request: Request,
    sqlite: Option<&SqliteOptions>,
    run: &RunOptions,
) -> Result<()> {
    run.output.check()?;
    run.modes.set(&mut request);
    run.sync.set(&mut request);
    request.operations = run.operations;
    request.runtime = run.runtime;
    request.time_based = run.time_based;
    request.percentile_list.clone_from(&run.percentile_list);
    request.dir.clone_from(&run.dir);
    if let Some(sqlite) = sqlite {
        sqlite.set(&mut request);
        if sqlite.is_given() && !request.entries()?.iter().any(|entry| entry.sqlite) {
            let text = "none of these workloads runs SQLite; leave out its options";
            return Err(Failure::Usage(text.to_owned()));
        }
    }
    if run.sensitivity {
        let [device] = run.device.device.as_slice() else {
            return Err(Failure::Usage("--sensitivity varies one device; name one".to_owned()));
        };
        request.device.clone_from(device);
        let mut cells = Vec::new();
        let done = request.sensitivity(&Terminal::default(), &mut cells);
        let document = Sensitivity::new(&request.device, cells);
        let printed = if document.cells.is_empty() {
            Ok(())
        } else {
            let (table, json) = (|| document.table(), || document.to_json());
            let forms = Forms { table: &table, json: &json, page: &String::new };
            run.output.publish(&forms, done.is_ok())
        };
        return done.map_err(Into::into).and(printed);
    }
    let mut found = BenchResult::default();
    let events_max = if run.output.html.is_some() { EVENTS_MAX } else { 0 };
    let devices = run.device.specs()?;
    let done = devices.into_iter().try_for_each(|device| {
        request.device = device;
        request.run(events_max, &Terminal::default(), &mut found)
    });
    // After an error the finished runs are still reported.
    let BenchResult { runs, traces } = &found;
    let printed = match runs.is_empty() {
        true => Ok(()),
        false => publish(&run.output, runs, traces, done.is_ok()),
    };
    done.map_err(Into::into).and(printed)
}

/// Table or document, then the report.
pub(super) fn publish(
    output: &OutputOptions,
    runs: &[Run],
    traces: &[Trace],
    ended: bool,
) -> Result<()> {
    let forms = Forms {
        table: &|| text(runs),
        json: &|| Document::new(runs.to_vec()).to_json(),
        page: &|| report(runs, traces, &about()),
    };
    output.publish(&forms, ended)
}
