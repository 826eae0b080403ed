//! `bench replay`: system-call traces in ordered and eager mode.
//!
//! Without a trace those that ship are played. Both modes run unless `--sync ordered` asks for one.
//! Ctrl-C ends the run under way and reports what was done.

use syncline_bench::{Image, allocation_table, table};
use syncline_nand::Profile;
use syncline_replay::{Contents, Replay, ReplayTrace, Replayed, replay_table};
use syncline_trace::TraceKind;

use super::bench::{fills, load, mount_options, print};
use super::trace::source::Source;
use crate::args::{Bench, TraceInput};
use crate::error::{Failure, Result};
use crate::interrupt;
use crate::progress::Shown;

/// Replays every trace in every mode, then prints.
pub(crate) fn run(args: &Bench) -> Result<()> {
    let modes: &[&str] = match args.sync.as_slice() {
        [only] if only == "ordered" => &["ordered"],
        _ => &["ordered", "eager"],
    };
    let (profile, image) = load(args)?;
    let mut all = Vec::new();
    let done = replay_all(args, modes, &profile, &image, &mut all);
    if !all.is_empty() {
        let runs: Vec<_> = all.iter().map(|replayed| replayed.run.clone()).collect();
        let text = table(&runs) + &replay_table(&all) + &allocation_table(&runs);
        print(args, &text, &|| syncline_bench::Document::new(runs.clone()).to_json())?;
    }
    done
}

fn replay_all(
    args: &Bench,
    modes: &[&str],
    profile: &Profile,
    image: &Image,
    all: &mut Vec<Replayed>,
) -> Result<()> {
    for trace in traces(args)? {
        for mode in modes {
            let mounts = mount_options(args, &format!("sync={mode}"))?;
            for (fill_percent, mount) in
                fills(args).into_iter().flat_map(|fill| mounts.iter().map(move |m| (fill, m)))
            {
                let gap_max_ns = args.gap_max.saturating_mul(1_000_000);
                let seed = args.seed;
                let contents = contents(args);
                let replay =
                    Replay { profile, image, mount, gap_max_ns, seed, contents, fill_percent };
                let mut watch = Shown::new(&trace.name, trace.records.len() as u64);
                let replayed = replay.run(&trace, &mut watch);
                watch.0.finish_and_clear();
                all.push(replayed?);
                interrupt::check()?;
            }
        }
    }
    Ok(())
}

fn contents(args: &Bench) -> Contents {
    if args.contents == "same" { Contents::Same } else { Contents::Noise }
}

fn traces(args: &Bench) -> Result<Vec<ReplayTrace>> {
    if args.trace.is_empty() {
        return Ok(ReplayTrace::shipped()?);
    }
    let mut traces = Vec::new();
    for path in &args.trace {
        let source = Source::open(&TraceInput::of(path.clone()))?;
        if source.header().kind != TraceKind::Syscall {
            let text = format!(
                "{}: replay wants a trace of system calls; this has blocks or pages",
                path.display()
            );
            return Err(Failure::Usage(text + "; record one with `syncline trace record`"));
        }
        let mut records = Vec::new();
        let (_, names) = source.read(path, &mut records)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        traces.push(ReplayTrace { name, records, names });
    }
    Ok(traces)
}
