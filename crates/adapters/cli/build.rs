//! Generates shell completions and man pages from the command line's definition, and says what is
//! built from what.
//!
//! They are put into `OUT_DIR` and from there, compressed, into the binary, which prints them:
//! `syncline completions SHELL`, `syncline man [COMMAND]`. So they always fit the binary, and a
//! package needs nothing else to install them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;
use clap_complete::Shell;
use flate2::Compression;
use flate2::write::DeflateEncoder;

#[allow(dead_code)]
#[path = "src/args.rs"]
mod args;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=src/args.rs");
    println!("cargo:rerun-if-changed=src/args");
    println!("cargo:rerun-if-changed=build.rs");
    describe_build();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(std::io::ErrorKind::NotFound)?);
    let mut command = args::examples::command("");
    let mut table = Vec::new();
    writeln!(table, "const COMPLETIONS: &[(&str, &[u8])] = &[")?;
    for shell in Shell::value_variants() {
        let path = clap_complete::generate_to(*shell, &mut command, "syncline", &out)?;
        let path = compressed(&path, &std::fs::read(&path)?)?;
        writeln!(table, "    ({:?}, include_bytes!({path:?})),", shell.to_string())?;
    }
    writeln!(table, "];\nconst PAGES: &[(&str, &[u8])] = &[")?;
    command.build();
    page(&command, "", &out, &mut table)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        page(sub, sub.get_name(), &out, &mut table)?;
    }
    writeln!(table, "];")?;
    std::fs::write(out.join("generated.rs"), table)
}

fn page(
    command: &clap::Command,
    name: &str,
    out: &Path,
    table: &mut Vec<u8>,
) -> std::io::Result<()> {
    let title = if name.is_empty() { "syncline".to_owned() } else { format!("syncline-{name}") };
    let path = out.join(format!("{title}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title.as_str()).render(&mut text)?;
    let path = compressed(&path, &text)?;
    writeln!(table, "    ({name:?}, include_bytes!({path:?})),")
}

/// Writes a file beside `path`; returns its path.
fn compressed(path: &Path, text: &[u8]) -> std::io::Result<PathBuf> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".deflate");
    std::fs::write(&name, encoder.finish()?)?;
    Ok(name.into())
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
