//! The `syncline` program, and the code that both programs share: parse, call, print.
//!
//! One file a command in `cmd`; `image` opens images, `error` knows the exit codes. Promises:
//! errors go to standard error in one sentence with the next step; a reader that closes the pipe
//! early is no error; Ctrl-C leaves images consistent and no half-written file. Tested in `tests/`,
//! through the program.

#![forbid(unsafe_code)]

mod args;
mod cmd;
pub mod complete;
#[cfg(target_os = "linux")]
mod contain;
#[cfg(not(target_os = "linux"))]
#[path = "contain/absent.rs"]
mod contain;
#[cfg(target_os = "linux")]
pub mod control;
#[cfg(target_os = "linux")]
pub mod daemon;
pub mod error;
pub mod format;
pub mod generated;
pub mod help;
#[cfg(target_os = "linux")]
mod helper;
mod image;
pub mod interrupt;
#[cfg(target_os = "linux")]
mod mount_options;
#[cfg(target_os = "linux")]
pub mod place;
pub mod progress;
#[cfg(target_os = "linux")]
pub mod served;
pub mod version;

use std::process::ExitCode;
use std::sync::OnceLock;

use args::Command;
use clap::CommandFactory;
use error::Failure;

/// Name of the program, before its messages.
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// `syncline` with an attack for the request `takeover` of its control socket, for tests.
#[doc(hidden)]
#[cfg(target_os = "linux")]
pub fn main_with_takeover(attack: fn() -> String) -> ExitCode {
    let _ = contain::TAKEOVER.set(attack);
    main()
}

/// `syncline`: runs the command that its arguments name.
pub fn main() -> ExitCode {
    end_on_panic(complain);
    let command = help::command::<args::Cli>(args::examples::EXAMPLES);
    #[cfg(target_os = "linux")]
    let (command, arguments) =
        (mount_options::document(command), helper::arguments(std::env::args_os()));
    #[cfg(not(target_os = "linux"))]
    let arguments = Some(std::env::args_os());
    let Some(arguments) = arguments else { return ExitCode::SUCCESS };
    let cli: args::Cli = help::parse(command, arguments);
    conclude("syncline", || match cli.command {
        Some(command) if !cli.version => run(command),
        _ => version::print(cli.verbose),
    })
}

/// A panic, which is a bug, ends the process, after a message: programs get errors, and the next
/// mount recovers. A thread that unwound would commit half of a change to the image on its way, and
/// leave others waiting for it.
pub(crate) fn end_on_panic(log: impl Fn(&str) + Send + Sync + 'static) {
    std::panic::set_hook(Box::new(move |info| {
        log(&format!("internal error, please report it: {info}"));
        std::process::abort();
    }));
}

/// Runs `command` as the program of that name: with handlers of signals, and its failure as a
/// message and an exit code.
pub fn conclude(program: &'static str, command: impl FnOnce() -> error::Result<()>) -> ExitCode {
    let _ = PROGRAM.set(program);
    let Err(failure) = interrupt::install().and_then(|()| command()) else {
        return ExitCode::SUCCESS;
    };
    if let Some(text) = failure.message() {
        complain(text);
    }
    ExitCode::from(failure.code())
}

/// Name of the program that runs.
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("syncline")
}

/// Writes one line to standard error, without what a terminal acts on. A closed standard error has
/// nobody to complain to.
pub fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "{}: {}", program(), format::line(text));
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Ls(args) => cmd::ls::run(&args),
        Command::Cat(args) => cmd::cat::run(&args),
        Command::Cp(args) => cmd::cp::run(&args),
        Command::Mkdir(args) => cmd::mkdir::run(&args),
        Command::Mv(args) => cmd::mv::run(&args),
        Command::Rm(args) => cmd::rm::run(&args),
        Command::Stat(args) => cmd::stat::run(&args),
        Command::Info(args) => cmd::info::run(&args),
        Command::Check(args) => cmd::check::run(&args),
        Command::Repair(args) => cmd::repair::run(&args),
        Command::Shell(args) => cmd::shell::run(&args),
        Command::Recover(args) => cmd::recover::run(&args),
        Command::Mkfs(args) => cmd::transfer::mkfs(&args),
        Command::Resize(args) => cmd::transfer::resize(&args),
        Command::Import(args) => cmd::import::run(&args),
        Command::Export(args) => cmd::transfer::export(&args),
        Command::Serve(args) => cmd::serve::run(&args),
        #[cfg(target_os = "linux")]
        Command::Serving(command) => serve(command),
        Command::Complete(args) => {
            complete::run(args::Cli::command(), &args.words, &cmd::generated::values)
        }
        Command::Completions(args) => cmd::generated::PAGES.completions(&args.shell),
        Command::Man(args) => {
            cmd::generated::PAGES.man(args.command.as_deref(), args.all.as_deref())
        }
    }
}

/// Runs a command that needs Linux.
#[cfg(target_os = "linux")]
fn serve(command: args::Serving) -> Result<(), Failure> {
    use args::Serving;
    match command {
        Serving::Mount(args) => cmd::mount::run(&args),
        Serving::Umount(args) => cmd::umount::run(&args),
        Serving::Status(args) => cmd::status::run(&args),
        Serving::Buffer(args) => cmd::buffer::run(&args.command),
        Serving::Flashlite(args) => cmd::flashlite::run(&args.command),
        Serving::Record(args) => cmd::record::run(&args),
        Serving::RecordRead(args) => cmd::record_read::run(&args),
        Serving::Ctl(args) => cmd::ctl::run(&args.command),
        Serving::Top(args) => cmd::top::run(&args),
        Serving::Preload(args) => cmd::preload::run(&args),
        Serving::Service(args) => cmd::service::run(&args),
        Serving::Isolate(_) => cmd::isolate::run().map(|never| match never {}),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn examples_are_commands() {
        crate::help::check_examples::<crate::args::Cli>(crate::args::examples::EXAMPLES);
    }

    #[test]
    fn documents_have_commands_that_are_parsed() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
        crate::help::check_documents::<crate::args::Cli>(root.as_ref(), "syncline");
    }
}
