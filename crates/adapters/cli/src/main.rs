//! The `syncline` binary: parse, call, print.
//!
//! One file a command in `cmd`; `image` opens images, `error` knows the exit codes. Promises:
//! errors go to standard error in one sentence with the next step; a reader that closes the pipe
//! early is no error; Ctrl-C leaves images consistent and no half-written file. Tested in `tests/`,
//! through the binary.

#![forbid(unsafe_code)]

mod archive_stream;
mod args;
mod cmd;
mod control;
mod daemon;
mod error;
mod format;
mod helper;
mod image;
mod interrupt;
mod mount_options;
mod place;
mod progress;
mod served;
mod tracefs;
mod version;

use std::process::ExitCode;

use args::Command;
use error::Failure;

fn main() -> ExitCode {
    let cli = match helper::arguments(std::env::args_os()) {
        Some(arguments) => args::examples::parse(arguments, &mount_options::help()),
        None => return ExitCode::SUCCESS,
    };
    let done = interrupt::install().and_then(|()| match cli.command {
        Some(command) if !cli.version => run(command),
        _ => version::print(cli.verbose),
    });
    let failure = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(failure) => failure,
    };
    if let Some(text) = failure.message() {
        complain(text);
    }
    ExitCode::from(failure.code())
}

/// One line on standard error, without what a terminal acts on. A closed standard error is nobody's
/// to complain about.
pub(crate) fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "syncline: {}", format::line(text));
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Bench(args) => cmd::bench::run(&args),
        Command::Ls(args) => cmd::ls::run(&args),
        Command::Cat(args) => cmd::cat::run(&args),
        Command::Cp(args) => cmd::cp::run(&args),
        Command::Mkdir(args) => cmd::mkdir::run(&args),
        Command::Mv(args) => cmd::mv::run(&args),
        Command::Rm(args) => cmd::rm::run(&args),
        Command::Stat(args) => cmd::stat::run(&args),
        Command::Info(args) => cmd::info::run(&args),
        Command::Check(args) => cmd::check::run(&args),
        Command::Recover(args) => cmd::recover::run(&args),
        Command::Mkfs(args) => cmd::transfer::mkfs(&args),
        Command::Resize(args) => cmd::transfer::resize(&args),
        Command::Import(args) => cmd::transfer::import(&args),
        Command::Serve(args) => cmd::serve::run(&args),
        Command::Export(args) => cmd::transfer::export(&args),
        Command::Mount(args) => cmd::mount::run(&args),
        Command::Umount(args) => cmd::umount::run(&args),
        Command::Status(args) => cmd::status::run(&args),
        Command::Trace(args) => cmd::trace::run(&args.command),
        Command::Cache(args) => cmd::cache::run(&args),
        Command::Compare(args) => cmd::compare::run(&args),
        Command::Replay(args) => cmd::player::run(&args),
        Command::Reproduce(args) => cmd::reproduce::run(&args),
        Command::Sweep(args) => cmd::sweep::run(&args),
        Command::Devices(args) => cmd::devices::run(&args),
        Command::Buffer(args) => cmd::buffer::run(&args.command),
        Command::Flash(args) => cmd::flash::run(&args.command),
        Command::Flashlite(args) => cmd::flashlite::run(&args.command),
        Command::Record(args) => cmd::record::run(&args),
        Command::RecordRead(args) => cmd::record_read::run(&args),
        Command::Latency(args) => cmd::latency::run(&args),
        Command::Lifetime(args) => cmd::lifetime::run(&args),
        Command::Ctl(args) => cmd::ctl::run(&args.command),
        Command::Top(args) => cmd::top::run(&args),
        Command::Preload(args) => cmd::preload::run(&args),
        Command::Probe(args) => cmd::probe::run(&args),
        Command::Completions(args) => cmd::generated::completions(&args),
        Command::Man(args) => cmd::generated::man(&args),
    }
}
