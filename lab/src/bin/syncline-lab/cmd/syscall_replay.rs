//! `bench replay`: system-call traces in ordered and eager mode, or in those of `--sync`.
//!
//! Without a trace those that ship are played.
//! Ctrl-C ends the run under way and reports what was done.

use syncline_lab::bench::{Document, allocation_table, table};
use syncline_lab::replay::replay_table;

use super::bench::request;
use crate::args::BenchReplay;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format;

/// Replays every trace in every mode, then prints.
pub(crate) fn run(args: &BenchReplay) -> Result<()> {
    format::check_outputs(&[args.json.as_deref()])?;
    let mut request = request(Vec::new(), &args.device);
    args.modes.set(&mut request);
    args.sync.set(&mut request);
    request.trace.clone_from(&args.trace);
    request.contents.clone_from(&args.contents);
    request.gap_max = args.gap_max;
    request.flashlite.clone_from(&args.flashlite);
    request.used = args.used;
    let mut all = Vec::new();
    let done = args.device.specs()?.into_iter().try_for_each(|device| {
        request.device = device;
        request.replay(&Terminal::default(), &mut all)
    });
    if !all.is_empty() {
        let runs: Vec<_> = all.iter().map(|replayed| replayed.run.clone()).collect();
        let text = || table(&runs) + &replay_table(&all) + &allocation_table(&runs);
        format::show(&text, &|| Document::new(runs.clone()).to_json(), args.json.as_deref())?;
    }
    Ok(done?)
}
