//! The step of the tests: one build, every test program, the examples in documentation.
//!
//! A process that hangs in the kernel can hang every later sync(2) of the machine. So root's runs,
//! which may mount, try it before the first program and after each, and name the program after
//! which it did not return; programs after that one are not run.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::bounded::Line;
use super::programs::{self, Program};
use super::summary::Results;
use super::{Ci, STEP, cargo, pass_on};

/// Limit of a test program.
const PROGRAM: Duration = Duration::from_mins(10);
/// Limit of sync(2).
const SYNC: Duration = Duration::from_mins(1);

pub fn run(ci: &mut Ci) {
    let Some(programs) = build(ci) else { return };
    let logs = match tempfile::tempdir() {
        Ok(logs) => logs,
        Err(error) => {
            println!("no skip log can be made: {error}");
            return ci.count("test", false);
        }
    };
    let mut sync = sync_returns(ci, "the build");
    for program in programs {
        let name = program.name();
        if !sync {
            ci.summary.failed.push(format!("{name}: not run: sync does not return"));
            continue;
        }
        println!("\n=== test {name}");
        one(ci, &name, &mut program.command(&cargo(ci.root)), logs.path());
        sync = sync_returns(ci, &name);
    }
    let name = "examples in documentation";
    println!("\n=== test {name}");
    let mut doc = cargo(ci.root);
    one(ci, name, doc.args(["test", "--workspace", "--doc", "--no-fail-fast"]), logs.path());
}

/// The test programs, if all of them can be built.
fn build(ci: &mut Ci) -> Option<Vec<Program>> {
    let start = Instant::now();
    let mut command = cargo(ci.root);
    command.args(["test", "--workspace", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let mut found = Vec::new();
    let mut each = |line: &Line| match line.error {
        true => pass_on(line),
        false => found.extend(programs::of_message(&line.text)),
    };
    let built = ci.run("build", &mut command, STEP, &mut each);
    ci.times.push(("  build".to_owned(), start.elapsed()));
    match built {
        Ok(status) if status.success() => {
            found.sort_by_key(Program::name);
            Some(found)
        }
        Ok(_) => {
            ci.summary.failed.push("test: did not compile".to_owned());
            None
        }
        Err(reason) => {
            ci.summary.failed.push(format!("test: build: {reason}"));
            None
        }
    }
}

/// Runs a test program, or several, and adds up their results.
fn one(ci: &mut Ci, name: &str, command: &mut Command, logs: &Path) {
    let log = logs.join(name);
    command.env("SYNCLINE_SKIP_LOG", &log);
    let unset = |name: &str| std::env::var_os(name).is_none();
    if std::env::var("CI").is_ok_and(|ci| ci == "true") && unset("SYNCLINE_REQUIRE") {
        command.env("SYNCLINE_REQUIRE", "root,loop,e2fsck,fuse");
    }
    let start = Instant::now();
    let mut results = Results::default();
    let mut each = |line: &Line| {
        pass_on(line);
        results.line(&line.text);
    };
    let end = ci.run(name, command, PROGRAM, &mut each);
    let skips = std::fs::read(log).unwrap_or_default();
    results.skip_log(&String::from_utf8_lossy(&skips));
    results.add_to(&mut ci.summary, name, end.map(|status| status.success()));
    ci.times.push((format!("  {name}"), start.elapsed()));
}

/// Tries sync(2); that it does not return is a failure of `after`.
fn sync_returns(ci: &mut Ci, after: &str) -> bool {
    if !rustix::process::geteuid().is_root() {
        return true;
    }
    match ci.run("sync", &mut Command::new("sync"), SYNC, &mut pass_on) {
        Ok(_) => true,
        Err(reason) => {
            ci.summary.failed.push(format!("{after}: sync does not return any more: {reason}"));
            false
        }
    }
}
