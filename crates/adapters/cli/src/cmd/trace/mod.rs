//! `trace`: import, export, stat, hot files and record of traces.
//!
//! `source` opens any trace, ours or another's; each command has a file. Output files are complete
//! or not there, also after Ctrl-C.

mod export;
mod hot;
mod import;
mod record;
pub(crate) mod source;
mod stat;

use crate::args::TraceCommand;
use crate::error::Result;

/// Runs the command.
pub(crate) fn run(command: &TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Import(args) => import::run(args),
        TraceCommand::Export(args) => export::run(args),
        TraceCommand::Stat(args) => stat::run(args),
        TraceCommand::Hot(args) => hot::run(args),
        TraceCommand::Record(args) => record::run(args),
    }
}
