//! Runs the programs.

#![allow(dead_code, missing_docs)]

pub mod container;
pub mod members;
pub mod mounted;
pub mod serving;
pub mod web;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code and output of the binary.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

/// Commands of the laboratory; all others are of `syncline`.
const LAB: [&str; 13] = [
    "advise",
    "bench",
    "cache",
    "compare",
    "devices",
    "flash",
    "latency",
    "lifetime",
    "probe",
    "replay",
    "reproduce",
    "sweep",
    "trace",
];

/// Path of a program. Cargo builds one of the two for the tests of its package.
fn program(name: &str, package: &str, known: Option<&str>) -> PathBuf {
    known.map_or_else(|| syncline_testkit::program(name, package), PathBuf::from)
}

/// `syncline`; `SYNCLINE_RUN` has the words of another one, such as Wine and a build for Windows.
pub fn binary() -> Command {
    if let Ok(words) = std::env::var("SYNCLINE_RUN") {
        let mut words = words.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words);
        return command;
    }
    Command::new(program("syncline", "syncline-cli", option_env!("CARGO_BIN_EXE_syncline")))
}

/// `syncline-lab`.
pub fn lab() -> Command {
    Command::new(program("syncline-lab", "syncline-lab", option_env!("CARGO_BIN_EXE_syncline-lab")))
}

/// The program of a command.
pub fn of(command: &OsStr) -> Command {
    if LAB.iter().any(|name| command == *name) { lab() } else { binary() }
}

/// A copy of a program, for other users. By another process: a child that a test beside this one
/// forks would inherit a descriptor that writes to it, and nobody could run it meanwhile.
pub fn copy_program(program: &Command, to: &Path) {
    let copied = Command::new("cp").arg(program.get_program()).arg(to).status();
    assert!(copied.expect("cp runs").success());
}

/// Runs it with these arguments. Lines of progress are left out: one comes every half minute, and
/// on a busy machine everything can take that long.
pub fn run<A: AsRef<OsStr>>(arguments: &[A]) -> Ran {
    let first = arguments.first().map_or(OsStr::new(""), AsRef::as_ref);
    let output = of(first).args(arguments).output().expect("the binary runs");
    let code = output.status.code().expect("it was not killed");
    let err = String::from_utf8_lossy(&output.stderr);
    let err = err.split_inclusive('\n').filter(|line| !is_progress(line)).collect();
    Ran { code, out: output.stdout, err }
}

/// True for `syncline: import: 1.0 MiB of 4.0 MiB, 12 s left`.
fn is_progress(line: &str) -> bool {
    let figures = line.rsplit(": ").next().unwrap_or_default();
    figures.starts_with(|first: char| first.is_ascii_digit())
        && figures.contains(" of ")
        && !line.contains("; ")
}

/// Runs it and expects success and silence on standard error.
pub fn done<A: AsRef<OsStr>>(arguments: &[A]) -> String {
    let ran = run(arguments);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.text());
    ran.text()
}

/// Runs it and expects this exit code, nothing on standard output and one sentence with a next step
/// on standard error.
pub fn refused<A: AsRef<OsStr>>(code: i32, arguments: &[A]) -> String {
    let ran = run(arguments);
    assert_eq!(ran.code, code, "{}", ran.err);
    assert_eq!(ran.text(), "");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    let prefix = ["syncline: ", "syncline-lab: "].iter().any(|name| ran.err.starts_with(name));
    assert!(prefix, "{}", ran.err);
    let next_step = ran.err.contains("; ") || ran.err.contains("unmount it");
    assert!(next_step, "no next step: {}", ran.err);
    ran.err
}

/// `IMAGE:/path`.
pub fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

/// A path of a test.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A directory for one test.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(syncline_testkit::scratch_dir()).expect("scratch space")
}

/// A text file.
pub fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).expect("scratch space");
    path
}
