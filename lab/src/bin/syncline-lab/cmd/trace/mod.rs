//! `trace`: import, export, join, mix, stat, hot files, record and watch of traces.
//!
//! Each command has a file. Output files are complete or not there, also after Ctrl-C.

mod export;
pub(crate) mod files;
mod hot;
mod import;
mod join;
mod mix;
mod partition;
mod record;
mod stat;
pub(crate) mod watch;

use syncline_lab::experiments::TraceFile;

use crate::args::{TraceCommand, TraceInput, TraceOption};
use syncline_cli::error::Result;

/// Runs the command.
pub(crate) fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Import(args) => import::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Join(args) => join::run(args),
        TraceCommand::Mix(args) => mix::run(args),
        TraceCommand::Stat(args) => stat::run(args),
        TraceCommand::Hot(args) => hot::run(args),
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Watch(args) => watch::run(args),
    }
}

/// The trace that was named, and how to read it.
pub(crate) fn file(args: &TraceInput) -> TraceFile {
    TraceFile {
        trace: args.trace.clone(),
        format: args.format.clone(),
        columns: args.columns.clone(),
        strict: args.strict,
        drop_repeats: args.drop_repeats,
        preopen: args.preopen.clone(),
    }
}

/// As [`file`], of the option `--trace`.
pub(crate) fn option(args: &TraceOption) -> TraceFile {
    TraceFile {
        format: args.format.clone(),
        drop_repeats: args.drop_repeats,
        ..TraceFile::of(&args.trace)
    }
}
