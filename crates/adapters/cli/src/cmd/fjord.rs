//! `bench fjord`: applications with and without the write buffer, in virtual time.
//!
//! All configurations run with `sync=ordered`, as the paper's phones did; unless `--sync ordered`
//! asks for these alone, the strict ones run with `sync=eager` as well. With `--dir` the
//! applications run once on whatever is mounted there. Ctrl-C ends the run under way.

use syncline_fs::MountOptions;
use syncline_workload::{
    Entry, FJORD_CONFIGS, Fjord, FjordConfig, FjordRun, Parameters, applications, fjord_json,
    fjord_table,
};

use super::bench::{
    in_directory, journal_modes, load, mount_options, parameters, print, publish, shown,
};
use crate::args::Bench;
use crate::error::{Failure, Result};
use crate::interrupt;

/// Runs every application in every configuration, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    let mut entries: Vec<&Entry> = Vec::new();
    for name in &args.workloads {
        entries.extend(applications(name)?);
    }
    let modes = journal_modes(args)?;
    if let Some(dir) = &args.dir {
        let mut runs = Vec::new();
        let done = in_directory(args, dir, &entries, &modes, &mut runs);
        let printed = if runs.is_empty() { Ok(()) } else { publish(args, &runs, &[]) };
        return done.and(printed);
    }
    if args.sensitivity || args.html.is_some() {
        let text = "fjord has neither a sensitivity grid nor a report; use --json".to_owned();
        return Err(Failure::Usage(text));
    }
    let mut runs = Vec::new();
    let done = simulated(args, &entries, &mut runs);
    if !runs.is_empty() {
        print(args, &fjord_table(&runs), &|| fjord_json(&runs))?;
    }
    done
}

/// Without options of the user, write-back is as on the paper's phones (6.1).
fn phones(args: &Bench, mut mounts: Vec<MountOptions>) -> Result<Vec<MountOptions>> {
    if args.options.is_empty() {
        for mount in &mut mounts {
            mount.apply("writeback_preset=android")?;
        }
    }
    Ok(mounts)
}

fn simulated(args: &Bench, entries: &[&Entry], runs: &mut Vec<FjordRun>) -> Result<()> {
    let ordered = phones(args, mount_options(args, "sync=ordered")?)?;
    let eager = match args.sync.as_slice() {
        [only] if only == "ordered" => Vec::new(),
        _ => phones(args, mount_options(args, "sync=eager")?)?,
    };
    let (profile, image) = load(args)?;
    let modes = journal_modes(args)?;
    for &entry in entries {
        for parameters in parameters(args, entry, &modes)? {
            let bench = Fjord::new(&profile, &image, &parameters, args.log_size)?;
            for mount in &ordered {
                for config in &FJORD_CONFIGS {
                    one(&bench, entry, &parameters, config, mount, runs)?;
                }
            }
            // With eager sync only fsync of relaxed files is relaxed: nothing of theirs waits in
            // RAM, so the buffer's share shows in the strict configurations.
            for mount in &eager {
                for config in FJORD_CONFIGS.iter().filter(|config| !config.relaxed_data) {
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
    let mut watch = shown(entry, parameters);
    let run = bench.run(entry, config, mount, &mut watch);
    watch.0.finish_and_clear();
    // A run that was interrupted is not comparable.
    interrupt::check()?;
    runs.push(run?);
    Ok(())
}
