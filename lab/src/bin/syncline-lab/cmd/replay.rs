//! `bench replay`: system-call traces in ordered and eager mode, or in those of `--sync`.
//!
//! Without a trace those that ship are played.
//! Ctrl-C ends the run under way and reports what was done.

use syncline_lab::bench::{Document, allocation_table, table};
use syncline_lab::experiments::Bench as Request;
use syncline_lab::replay::replay_table;

use super::bench::print;
use crate::args::Bench;
use crate::progress::Terminal;
use syncline_cli::error::Result;

/// Replays every trace in every mode, then prints.
pub(crate) fn run(args: &Bench, request: &Request) -> Result<()> {
    let mut all = Vec::new();
    let done = request.replay(&Terminal::default(), &mut all);
    if !all.is_empty() {
        let runs: Vec<_> = all.iter().map(|replayed| replayed.run.clone()).collect();
        let text = table(&runs) + &replay_table(&all) + &allocation_table(&runs);
        print(args, &text, &|| Document::new(runs.clone()).to_json())?;
    }
    Ok(done?)
}
