//! Generates shell completions and man pages, and describes the build.

use std::process::Command;

#[allow(dead_code)]
#[path = "src/args.rs"]
mod args;
#[allow(dead_code)]
#[path = "src/help.rs"]
mod help;
#[path = "src/pages.rs"]
mod pages;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=src/args.rs");
    println!("cargo:rerun-if-changed=src/args");
    println!("cargo:rerun-if-changed=src/help.rs");
    println!("cargo:rerun-if-changed=src/pages.rs");
    println!("cargo:rerun-if-changed=build.rs");
    describe_build();
    pages::generate(&command())
}

/// The commands of the system that this is built for.
fn command() -> clap::Command {
    use clap::Subcommand;
    let command = help::command::<args::Cli>(args::examples::EXAMPLES);
    if std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "linux") {
        return command;
    }
    let serving = args::Serving::augment_subcommands(clap::Command::new("serving"));
    serving.get_subcommands().fold(command, |command, absent| {
        match command.find_subcommand(absent.get_name()) {
            Some(_) => command.mut_subcommand(absent.get_name(), |sub| sub.hide(true)),
            None => command,
        }
    })
}

/// Describes the build for `syncline --version --verbose`. The commit is `SYNCLINE_COMMIT`, which
/// packagers and `make dist` set; else git's, for release builds only, so that a commit makes
/// nobody's tests be built again.
fn describe_build() {
    println!("cargo:rerun-if-env-changed=SYNCLINE_COMMIT");
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let release = variable("PROFILE").is_some_and(|profile| profile == "release");
    let commit = variable("SYNCLINE_COMMIT").or_else(|| if release { commit() } else { None });
    println!("cargo:rustc-env=SYNCLINE_BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    let target = variable("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=SYNCLINE_BUILD_TARGET={target}");
    let compiler = variable("RUSTC").unwrap_or_else(|| "rustc".to_owned());
    let compiler = said(Command::new(compiler).arg("--version")).unwrap_or_default();
    println!("cargo:rustc-env=SYNCLINE_BUILD_COMPILER={compiler}");
}

/// The commit of the checkout this is built in.
fn commit() -> Option<String> {
    // What moves with the checkout, also in a worktree, where `.git` is a file.
    let log = said(Command::new("git").args(["rev-parse", "--git-path", "logs/HEAD"]))?;
    println!("cargo:rerun-if-changed={log}");
    said(Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]))
}

/// Output of a program, if it succeeds.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
