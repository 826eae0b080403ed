//! The `syncline-lab` program: parse, call, print.
//!
//! One file a command in `cmd`. Output, errors and signals are those of `syncline`. Tested in
//! `lab/tests/program`, through the program.

#![forbid(unsafe_code)]

mod args;
mod cmd;
mod progress;
mod tracefs;

use std::process::ExitCode;

use args::Command;
use clap::CommandFactory;
use syncline_cli::error::Failure;
use syncline_cli::{complete, conclude, help, version};
use syncline_lab::report::About;

fn main() -> ExitCode {
    let command = help::command::<args::Cli>(args::examples::EXAMPLES);
    let cli: args::Cli = help::parse(command, std::env::args_os());
    conclude("syncline-lab", || match cli.command {
        Some(command) if !cli.version => run(command),
        _ => version::print(cli.verbose),
    })
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Advise(args) => cmd::advise::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Trace(args) => cmd::trace::run(&args.command),
        Command::Cache(args) => cmd::cache::run(*args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Replay(args) => cmd::block_replay::run(&args),
        Command::Reproduce(args) => cmd::reproduce::run(&args),
        Command::Sweep(args) => cmd::sweep::run(&args),
        Command::Devices(args) => cmd::devices::run(&args),
        Command::Flash(args) => cmd::flash::run(&args.command),
        Command::Latency(args) => cmd::latency::run(&args),
        Command::Lifetime(args) => cmd::lifetime::run(&args),
        Command::Probe(args) => cmd::probe::run(&args),
        Command::Complete(args) => {
            complete::run(args::Cli::command(), &args.words, &cmd::generated::values)
        }
        Command::Completions(args) => cmd::generated::PAGES.completions(&args.shell),
        Command::Man(args) => {
            cmd::generated::PAGES.man(args.command.as_deref(), args.all.as_deref())
        }
    }
}

/// Origin of a report that is written now.
fn about() -> About {
    About {
        version: version::build(),
        command: version::command_line(),
        host: version::host(),
        date: version::date(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn examples_are_commands() {
        syncline_cli::help::check_examples::<super::args::Cli>(super::args::examples::EXAMPLES);
    }

    #[test]
    fn documents_have_commands_that_are_parsed() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        syncline_cli::help::check_documents::<super::args::Cli>(root.as_ref(), "syncline-lab");
    }
}
