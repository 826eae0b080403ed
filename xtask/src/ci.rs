//! `make test`: every check and every test, streamed, timed and added up.
//!
//! Each step other than the tests counts as one. A step whose program is not installed is skipped.
//! Tests that cannot run on this machine write to the skip log (see `syncline_testkit::skip`);
//! where `CI=true`, root, loop devices and e2fsprogs must be there, and such a test fails instead.
//! The last line is exactly `N passed, N failed, N skipped`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::summary::Summary;

/// The steps in their order.
pub const STEP_NAMES: [&str; 7] = ["fmt", "tidy", "deny", "clippy", "test", "figures", "python"];
/// Exit code of a script that cannot run on this machine.
const SKIPPED: i32 = 77;

/// Runs the steps named in `filter`, all if it is empty.
pub fn run(root: &Path, filter: &[&str]) -> ExitCode {
    if let Some(unknown) = filter.iter().find(|name| !STEP_NAMES.contains(name)) {
        eprintln!("ci: no step {unknown}; there are: {}", STEP_NAMES.join(", "));
        return ExitCode::from(2);
    }
    let mut summary = Summary::default();
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for name in STEP_NAMES {
        if !filter.is_empty() && !filter.contains(&name) {
            continue;
        }
        println!("\n=== {name}");
        let start = Instant::now();
        match name {
            "fmt" => check(&mut summary, name, cargo(root).args(["fmt", "--all", "--check"])),
            "tidy" => tidy(root, &mut summary),
            "deny" => deny(root, &mut summary),
            "clippy" => check(&mut summary, name, clippy(&mut cargo(root))),
            "python" => python(root, &mut summary),
            "test" => tests(root, &mut summary),
            _ => {
                let tested = times.iter().any(|(name, _)| *name == "test");
                count(&mut summary, name, figures(root, tested));
            }
        }
        times.push((name, start.elapsed()));
    }
    report(&summary, &times);
    if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// With the profile of the tests, so that build scripts (SQLite) run once for both.
fn clippy(cargo: &mut Command) -> &mut Command {
    cargo.args(["clippy", "--workspace", "--all-targets", "--profile", "test", "--keep-going"]);
    cargo.args(["--", "-D", "warnings"])
}

fn count(summary: &mut Summary, name: &str, good: bool) {
    if good {
        summary.passed += 1;
    } else {
        summary.failed.push(format!("step {name}"));
    }
}

fn check(summary: &mut Summary, name: &str, command: &mut Command) {
    let good = match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            println!("{name} cannot be run: {error}");
            false
        }
    };
    count(summary, name, good);
}

fn tidy(root: &Path, summary: &mut Summary) {
    let good = crate::tidy::run(root) == ExitCode::SUCCESS;
    count(summary, "tidy", good);
}

/// Documents agree with stored results, and a sample of exact runs with a repetition.
fn figures(root: &Path, tested: bool) -> bool {
    if tested {
        return crate::figures::check_after_tests(root);
    }
    crate::figures::main(root, &["--check"]) == ExitCode::SUCCESS
}

fn deny(root: &Path, summary: &mut Summary) {
    let there = cargo(root).args(["deny", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        let reason = "cargo-deny is not installed (licences are checked by tidy all the same)";
        println!("skipped: {reason}");
        summary.skipped.insert("step deny".to_owned(), reason.to_owned());
        return;
    }
    let arguments = ["deny", "check", "bans", "licenses", "sources"];
    check(summary, "deny", cargo(root).args(arguments));
}

/// The wheel in a fresh virtual environment, with its own suite. The reason of a skip is the last
/// line that the script says.
fn python(root: &Path, summary: &mut Summary) {
    let script = "packaging/test-python.sh";
    let ran = Command::new("sh").arg(script).current_dir(root).stdout(Stdio::inherit()).output();
    let Ok(ran) = ran else { return count(summary, "python", false) };
    let said = String::from_utf8_lossy(&ran.stderr);
    print!("{said}");
    if ran.status.code() == Some(SKIPPED) {
        let reason = said.lines().last().unwrap_or("no reason given").to_owned();
        summary.skipped.insert("step python".to_owned(), reason);
        return;
    }
    count(summary, "python", ran.status.success());
}

fn tests(root: &Path, summary: &mut Summary) {
    let log = match tempfile::NamedTempFile::new() {
        Ok(log) => log,
        Err(error) => {
            println!("no skip log can be made: {error}");
            return count(summary, "test", false);
        }
    };
    let mut command = cargo(root);
    command.args(["test", "--workspace", "--no-fail-fast"]);
    command.env("SYNCLINE_SKIP_LOG", log.path()).stdout(Stdio::piped());
    let unset = |name: &str| std::env::var_os(name).is_none();
    if std::env::var("CI").is_ok_and(|ci| ci == "true") && unset("SYNCLINE_REQUIRE") {
        command.env("SYNCLINE_REQUIRE", "root,loop,e2fsck,fuse");
    }
    if unset("SYNCLINE_FUZZ_SECONDS") {
        command.env("SYNCLINE_FUZZ_SECONDS", "10");
    }
    let success = stream(&mut command, |line| summary.test_line(line));
    let skips = std::fs::read(log.path()).unwrap_or_default();
    summary.skip_log(&String::from_utf8_lossy(&skips));
    summary.tests_done(success);
}

/// Runs the command, passes its standard output on line by line; whether it succeeded.
fn stream(command: &mut Command, mut each: impl FnMut(&str)) -> bool {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("{:?} cannot be run: {error}", command.get_program());
            return false;
        }
    };
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        // Tests may print bytes that are no text.
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            print!("{text}");
            let _ = std::io::stdout().flush();
            each(&text);
            line.clear();
        }
    }
    child.wait().is_ok_and(|status| status.success())
}

fn report(summary: &Summary, times: &[(&str, Duration)]) {
    println!("\n=== summary");
    for (name, time) in times {
        println!("{name:8} {:6.1} s", time.as_secs_f64());
    }
    for (name, reason) in &summary.skipped {
        println!("skipped: {name}: {reason}");
    }
    for name in &summary.failed {
        println!("failed: {name}");
    }
    println!("{}", summary.last_line());
}
