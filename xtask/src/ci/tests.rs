//! The step of the tests: one build, every test program, the examples in documentation. The checks
//! that build for themselves run beside the build, which has stretches for one processor.
//!
//! Two programs at a time; then those that need the machine to themselves, one by one. Many
//! programs end with one long test, or wait: a second one fills the other processor meanwhile.
//!
//! A process that hangs in the kernel can hang every later sync(2) of the machine. So root's runs,
//! which may mount, try it before the first program, after those that share the machine, and after
//! each of the others, and name the program after which it did not return; programs after that one
//! are not run.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::bounded::Line;
use super::programs::{self, Program};
use super::summary::Results;
use super::{Ci, Planned, cargo, pass_on};

/// Limit of the build: on a busy machine it takes three times as long.
const BUILD: Duration = Duration::from_mins(45);
/// Limit of a test program.
const PROGRAM: Duration = Duration::from_mins(15);
/// Limit of sync(2).
const SYNC: Duration = Duration::from_mins(1);
/// Programs that share the machine.
const AT_ONCE: usize = 2;

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
    let (alone, sharing): (Vec<_>, Vec<_>) = programs.into_iter().partition(|p| p.is_alone);
    // The longest first, so that it is not the last.
    let mut examples = build_cargo(ci);
    examples.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    let mut jobs = vec![("examples in documentation".to_owned(), examples)];
    jobs.extend(sharing.iter().map(|program| (program.name(), program.command(&cargo(ci.root)))));
    if sync {
        share(ci, jobs, logs.path());
        sync = sync_returns(ci, "the programs that share the machine");
    }
    for program in alone {
        let name = program.name();
        if !sync {
            ci.summary.failed.push(format!("{name}: not run: sync does not return"));
            continue;
        }
        println!("\n=== test {name}");
        let mut command = program.command(&cargo(ci.root));
        let ran = one(ci, &name, &mut command, logs.path(), &mut pass_on);
        ran.add_to(ci);
        sync = sync_returns(ci, &name);
    }
}

/// Runs the commands, [`AT_ONCE`] at a time, and prints the output of each when it has ended. The
/// suites of other languages run beside them, one after the other.
fn share(ci: &mut Ci, jobs: Vec<(String, Command)>, logs: &Path) {
    let (jobs, ended) = (Mutex::new(jobs.into_iter()), Mutex::new(Vec::new()));
    let running = &*ci;
    let work = || {
        loop {
            let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((name, mut command)) = next else { return };
            let mut said = String::new();
            let ran = one(running, &name, &mut command, logs, &mut |line| said += &line.text);
            let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
            println!("\n=== test {name}\n{said}");
            ended.push(ran);
        }
    };
    let suites = std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
        let run = |name: &&'static str| (*name, super::run_suite(running, name));
        running.suites.iter().map(run).collect()
    });
    ci.suites_ended = suites;
    for ran in ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
        ran.add_to(ci);
    }
}

/// The cargo that builds: clippy's if that is wanted.
fn build_cargo(ci: &Ci) -> Command {
    if ci.wants_clippy { super::linting_cargo(ci.root) } else { cargo(ci.root) }
}

/// The test programs, if all of them can be built.
fn build(ci: &mut Ci) -> Option<Vec<Program>> {
    let start = Instant::now();
    let mut beside = Vec::new();
    for (name, plan) in std::mem::take(&mut ci.beside) {
        match plan {
            Planned::Run(command) => beside.push((name, command)),
            other => ci.planned((name, other)),
        }
    }
    let mut command = build_cargo(ci);
    // The libraries too, for what loads them, and all else that clippy sees. Without programs that
    // no test runs, whose code is in their tests: this one would be replaced while it runs.
    command.args(["build", "--workspace", "--lib", "--tests", "--examples", "--benches"]);
    command.args(["--keep-going", "--message-format=json-render-diagnostics"]);
    let mut found = Vec::new();
    let mut each = |line: &Line| match line.error {
        true => pass_on(line),
        false => found.extend(programs::of_message(&line.text)),
    };
    let running = &*ci;
    let (built, checked) = std::thread::scope(|scope| {
        let checks = scope.spawn(|| {
            let check = |(name, mut command): (String, Command)| {
                let script = super::run_script(running, &name, &mut command);
                (name, script)
            };
            beside.into_iter().map(check).collect::<Vec<_>>()
        });
        let built = running.run("build", &mut command, BUILD, &mut each);
        (built, checks.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    ci.times.push(("  build".to_owned(), start.elapsed()));
    for (name, script) in checked {
        ci.times.push((format!("  {name}, beside it"), script.time));
        super::ran_script(ci, &name, script);
    }
    match built {
        Ok(status) if status.success() => {
            ci.summary.passed += u64::from(ci.wants_clippy);
            found.sort_by_key(Program::name);
            Some(found)
        }
        Ok(_) => {
            let what = if ci.wants_clippy { "clippy or test" } else { "test" };
            ci.summary.failed.push(format!("{what}: did not compile"));
            None
        }
        Err(reason) => {
            ci.summary.failed.push(format!("test: build: {reason}"));
            None
        }
    }
}

/// A test program, or several, that ran.
struct Ran {
    name: String,
    results: Results,
    end: Result<bool, String>,
    time: Duration,
}

impl Ran {
    fn add_to(self, ci: &mut Ci) {
        self.results.add_to(&mut ci.summary, &self.name, self.end);
        ci.times.push((format!("  {}", self.name), self.time));
    }
}

/// Seed of the cases that proptest draws. The same cases are tried each time, so that a fault which
/// nobody has met yet does not stop another's change; `make fuzz` draws others.
const CASES: &str = "PROPTEST_RNG_SEED";

/// Directory of the programs that the build has made, for tests of one that start the other.
const PROGRAMS: &str = "SYNCLINE_PROGRAMS";

/// Runs a test program, or several; `show` gets the output.
fn one(
    ci: &Ci,
    name: &str,
    command: &mut Command,
    logs: &Path,
    show: &mut dyn FnMut(&Line),
) -> Ran {
    let log = logs.join(name);
    command.env("SYNCLINE_SKIP_LOG", &log);
    let unset = |name: &str| std::env::var_os(name).is_none();
    if std::env::var("CI").is_ok_and(|ci| ci == "true") && unset("SYNCLINE_REQUIRE") {
        command.env("SYNCLINE_REQUIRE", "root,loop,e2fsck,fuse");
    }
    if unset(CASES) {
        command.env(CASES, "1");
    }
    if let Some(built) = super::built_by_tests(ci) {
        // Cargo without clippy would build the workspace once more for them.
        command.env(PROGRAMS, built.with_file_name(""));
    }
    let start = Instant::now();
    let mut results = Results::default();
    let mut each = |line: &Line| {
        show(line);
        results.line(&line.text);
    };
    let end = ci.run(name, command, PROGRAM, &mut each).map(|status| status.success());
    let skips = std::fs::read(log).unwrap_or_default();
    results.skip_log(&String::from_utf8_lossy(&skips));
    Ran { name: name.to_owned(), results, end, time: start.elapsed() }
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
