//! `bench fjord`: applications with and without the write buffer, in virtual time.
//!
//! All configurations run with `sync=ordered`, as the paper's phones did; unless `--ordered`
//! asks for these alone, the strict ones run with `sync=eager` as well, and ext4 by itself with
//! `sync=periodic`. With `--dir` the
//! applications run once on whatever is mounted there. Ctrl-C ends the run under way.
//!
//! On a terminal six remedies are told in words; `--long` and the document have every
//! configuration. The page has bars, so that they are compared at a glance.

use syncline_fs::MountOptions;
use syncline_lab::Observer;
use syncline_lab::bench::{
    DAY_CONFIGS, DayRun, Entry, FJORD_CONFIGS, Fjord, FjordConfig, FjordRun, Parameters,
    applications, day_table, days_json, find, fjord_json, fjord_table,
};
use syncline_lab::experiments::Bench as Request;
use syncline_lab::report::{Chart, Page, distinct};

use super::bench::{named, publish, request};
use crate::about;
use crate::args::BenchFjord;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Forms};
use syncline_cli::interrupt;

/// Sync mode, configuration, what it is, what a power cut keeps.
const REMEDIES: [(&str, &str, &str, &str); 7] = [
    ("ordered", "native", "ext4 as it is", "every fsync"),
    ("ordered", "both", "write buffer: RAM and a log", "every fsync"),
    ("ordered", "relaxed-both", "write buffer, its files relaxed", "all but up to a minute"),
    ("eager", "native", "eager sync", "every fsync"),
    ("eager", "both", "eager sync and write buffer", "every fsync"),
    ("eager", "fsync-control", "eager sync, its files relaxed", "all but up to a minute"),
    ("periodic", "native", "periodic sync", "the last sync point"),
];
/// Given in place of applications: the events of a phone with the pauses of a day.
const DAY: &str = "day";

/// Runs every application in every configuration, then prints.
pub(crate) fn run(args: &BenchFjord) -> Result<()> {
    args.output.check()?;
    if args.applications.iter().any(|name| name == DAY) {
        return days(args);
    }
    let workloads = named("fjord", &args.applications);
    let mut request = of(args, workloads);
    request.operations = args.operations;
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &request.workloads {
        entries.extend(applications(name)?);
    }
    let modes = request.journal_modes()?;
    if let Some(dir) = &args.dir {
        let mut runs = Vec::new();
        let terminal = Terminal::default();
        let done = request.in_directory(dir, &entries, &modes, &terminal, &mut runs);
        let printed = match runs.is_empty() {
            true => Ok(()),
            false => publish(&args.output, &runs, &[], done.is_ok()),
        };
        return done.map_err(Into::into).and(printed);
    }
    let mut runs = Vec::new();
    let done = args.device.specs()?.into_iter().try_for_each(|device| {
        request.device = device;
        simulated(args, &request, &entries, &mut runs)
    });
    if !runs.is_empty() {
        let forms = Forms {
            table: &|| if args.long { fjord_table(&runs) } else { summary(&runs) },
            json: &|| fjord_json(&runs),
            page: &|| page(&runs),
        };
        args.output.publish(&forms, done.is_ok())?;
    }
    done
}

/// A request for workloads with these options.
fn of(args: &BenchFjord, workloads: Vec<String>) -> Request {
    let mut request = request(workloads, &args.device);
    args.sqlite.set(&mut request);
    args.modes.set(&mut request);
    request.scale = args.scale;
    request
}

/// Runs the day in each of its configurations, then prints.
fn days(args: &BenchFjord) -> Result<()> {
    let alone = args.applications.len() == 1 && args.dir.is_none() && args.operations.is_none();
    if !alone || args.ordered {
        let text = "a day has its own length and configurations; give `day` alone, without --dir, \
                    --operations and --ordered";
        return Err(Failure::Usage(text.to_owned()));
    }
    let mut request = of(args, vec!["android-day".to_owned()]);
    let mut days = Vec::new();
    let done = args.device.specs()?.into_iter().try_for_each(|device| {
        request.device = device;
        days_on(args, &request, &mut days)
    });
    if !days.is_empty() {
        let forms = Forms {
            table: &|| day_table(&days),
            json: &|| days_json(&days),
            page: &|| day_page(&days),
        };
        args.output.publish(&forms, done.is_ok())?;
    }
    done
}

fn days_on(args: &BenchFjord, request: &Request, days: &mut Vec<DayRun>) -> Result<()> {
    let (profile, image) = request.load()?;
    let modes = request.journal_modes()?;
    let entry = find("android-day")?[0];
    for parameters in request.parameters(entry, &modes)? {
        let bench = Fjord::new(&profile, &image, &parameters, args.log_size)?;
        for config in &DAY_CONFIGS {
            for mount in phones(args, request.mount_options(&format!("sync={}", config.sync))?)? {
                let terminal = Terminal::default();
                terminal.begin(DAY, 1);
                let day = bench.day(config, &mount, &terminal);
                terminal.end();
                interrupt::check()?;
                days.push(day?);
            }
        }
    }
    Ok(())
}

fn day_page(days: &[DayRun]) -> String {
    let mut page = Page::new("A day of a phone");
    let bar = |day: &DayRun| format!("{} {}, {}", day.sync, day.config, day.policies);
    for device in &distinct(days.iter().map(|day| day.device.as_str())) {
        page.heading(device);
        let of = |value: fn(&DayRun) -> f64| -> Vec<(String, f64)> {
            let ours = days.iter().filter(|day| day.device == *device);
            ours.map(|day| (bar(day), value(day))).collect()
        };
        page.bars(&Chart::rows("wake-ups", "", device, &of(|day| day.run.wakeups as f64)));
        page.bars(&Chart::rows("energy", "J", device, &of(|day| day.run.joules.unwrap_or(0.0))));
    }
    page.finish(&about())
}

/// Reports whether a configuration has to run for the rows that are asked for.
fn wanted(args: &BenchFjord, sync: &str, config: &FjordConfig) -> bool {
    let told = |(of, name, ..): &(&str, &str, &str, &str)| *of == sync && *name == config.name;
    args.long || args.output.json.is_some() || REMEDIES.iter().any(told)
}

/// A remedy's share of the time and bytes of what it is compared with.
struct Told<'a> {
    run: &'a FjordRun,
    what: &'static str,
    keeps: &'static str,
    time_s: f64,
    mb: f64,
    /// Per cent more or less than the first; none for the first itself.
    change: Option<(f64, f64)>,
}

impl Told<'_> {
    /// The application, and the device if there are several.
    fn name(&self, several: bool) -> String {
        match several {
            true => format!("{}, {}", self.run.workload, self.run.device),
            false => self.run.workload.clone(),
        }
    }
}

fn several(told: &[Told<'_>]) -> bool {
    told.iter().any(|one| one.run.device != told[0].run.device)
}

/// The remedies of each application that ran.
fn told(runs: &[FjordRun]) -> Vec<Told<'_>> {
    let mb = |run: &FjordRun| {
        run.run.metrics.device.as_ref().map_or(0.0, |device| device.written_bytes as f64 / 1e6)
    };
    let mut found = Vec::new();
    let mut series: Vec<&FjordRun> = runs.iter().collect();
    series.dedup_by_key(|run| (&run.workload, &run.device));
    for one in series {
        let of = |sync: &str, config: &str| {
            runs.iter().find(|run| {
                (&run.workload, &run.device) == (&one.workload, &one.device)
                    && (run.sync.as_str(), run.config.as_str()) == (sync, config)
            })
        };
        let base = of("ordered", "native").map(|run| (run.run.metrics.duration_s, mb(run)));
        for (sync, config, what, keeps) in REMEDIES {
            let Some(run) = of(sync, config) else { continue };
            let (time_s, mb) = (run.run.metrics.duration_s, mb(run));
            let first = (sync, config) == ("ordered", "native");
            let percent = |now: f64, then: f64| (now / then.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
            let change = base.filter(|_| !first);
            let change = change.map(|(s, bytes)| (percent(time_s, s), percent(mb, bytes)));
            found.push(Told { run, what, keeps, time_s, mb, change });
        }
    }
    found
}

fn summary_rows(told: &[Told<'_>]) -> Vec<Vec<String>> {
    let header =
        ["application", "with", "time s", "change", "written MB", "change", "a power cut keeps"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let several = several(told);
    for told in told {
        let change = |of: fn((f64, f64)) -> f64| {
            told.change.map_or(String::new(), |change| format!("{:+.0} %", of(change)))
        };
        rows.push(vec![
            told.name(several),
            told.what.to_owned(),
            format!("{:.2}", told.time_s),
            change(|change| change.0),
            format!("{:.2}", told.mb),
            change(|change| change.1),
            told.keeps.to_owned(),
        ]);
    }
    rows
}

fn summary(runs: &[FjordRun]) -> String {
    let right = [false, false, true, true, true, true, false];
    let more = "\n--long has every configuration beside the paper's figures.\n";
    format::table(&summary_rows(&told(runs)), &right) + more
}

/// Bars of the time and bytes of each application, and the table.
fn page(runs: &[FjordRun]) -> String {
    let told = told(runs);
    let mut page = Page::new("Applications with and without the write buffer");
    let devices = distinct(runs.iter().map(|run| run.device.as_str()));
    page.paragraph(&format!("Virtual time on {}.", devices.join(", ")));
    let several = several(&told);
    for name in &distinct(told.iter().map(|one| one.name(several))) {
        page.heading(name);
        let of = |value: fn(&Told<'_>) -> f64| -> Vec<(String, f64)> {
            let ours = told.iter().filter(|one| one.name(several) == *name);
            ours.map(|one| (one.what.to_owned(), value(one))).collect()
        };
        page.bars(&Chart::rows("time", "s", name, &of(|one| one.time_s)));
        page.bars(&Chart::rows("written", "MB", name, &of(|one| one.mb)));
    }
    let rows = summary_rows(&told);
    if let Some((header, lines)) = rows.split_first() {
        page.heading("All of them");
        page.table(header, lines, 2);
    }
    page.finish(&about())
}

/// Without options of the user, write-back is as on the paper's phones (6.1).
fn phones(args: &BenchFjord, mut mounts: Vec<MountOptions>) -> Result<Vec<MountOptions>> {
    if args.device.options.is_empty() {
        for mount in &mut mounts {
            mount.apply("writeback_preset=android")?;
        }
    }
    Ok(mounts)
}

fn simulated(
    args: &BenchFjord,
    request: &Request,
    entries: &[&Entry],
    runs: &mut Vec<FjordRun>,
) -> Result<()> {
    let ordered = phones(args, request.mount_options("sync=ordered")?)?;
    let eager = match args.ordered {
        true => Vec::new(),
        false => phones(args, request.mount_options("sync=eager")?)?,
    };
    let periodic = match args.ordered {
        true => Vec::new(),
        false => phones(args, request.mount_options("sync=periodic")?)?,
    };
    let (profile, image) = request.load()?;
    let modes = request.journal_modes()?;
    for &entry in entries {
        for parameters in request.parameters(entry, &modes)? {
            let bench = Fjord::new(&profile, &image, &parameters, args.log_size)?;
            for mount in &ordered {
                for config in FJORD_CONFIGS.iter().filter(|c| wanted(args, "ordered", c)) {
                    one(&bench, entry, &parameters, config, mount, runs)?;
                }
            }
            // With eager sync only fsync of relaxed files is relaxed: nothing of theirs waits in
            // RAM, so the buffer's share shows in the strict configurations.
            for mount in &eager {
                let strict = FJORD_CONFIGS.iter().filter(|config| !config.relaxed_data);
                for config in strict.filter(|config| wanted(args, "eager", config)) {
                    one(&bench, entry, &parameters, config, mount, runs)?;
                }
            }
            // Nothing waits for a sync there, so there is nothing to relax.
            for mount in &periodic {
                let native = FJORD_CONFIGS.iter().filter(|config| config.name == "native");
                for config in native {
                    one(&bench, entry, &parameters, config, mount, runs)?;
                }
            }
        }
    }
    Ok(())
}

fn one(
    bench: &Fjord<'_>,
    entry: &Entry,
    parameters: &Parameters,
    config: &FjordConfig,
    mount: &MountOptions,
    runs: &mut Vec<FjordRun>,
) -> Result<()> {
    let terminal = Terminal::default();
    terminal.begin(entry.name, entry.operations(parameters));
    let run = bench.run(entry, config, mount, &terminal);
    terminal.end();
    // A run that was interrupted is not comparable.
    interrupt::check()?;
    runs.push(run?);
    Ok(())
}
