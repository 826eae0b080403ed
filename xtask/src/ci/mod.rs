//! `make test`: every check and every test, streamed, timed and added up.
//!
//! Each step other than the tests counts as one. A step whose program is not installed is skipped.
//! Tests that cannot run on this machine write to the skip log (see `syncline_testkit::skip`);
//! where `CI=true`, root, loop devices and e2fsprogs must be there, and such a test fails instead.
//! The last line is exactly `N passed, N failed, N skipped`.
//!
//! Everything has a time limit, and nothing waits without one ([`bounded`]): a run ends after
//! [`TOTAL`] even on a machine whose kernel hangs. Steps that had no time left count as failed.

mod bounded;
mod msrv;
mod processes;
mod programs;
mod summary;
mod tests;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use bounded::{Limits, Line};
use summary::Summary;

/// The steps in their order.
pub const STEP_NAMES: [&str; 11] = [
    "fmt", "tidy", "package", "deny", "clippy", "portable", "msrv", "test", "figures", "python",
    "web",
];
/// Systems for which the program has to compile, as far as it does not need Linux.
const PORTABLE: [&str; 2] = ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];
/// Steps that are a suite of another language, by their scripts.
const SUITES: [&str; 2] = ["python", "web"];
/// Exit code of a script that cannot run on this machine.
const SKIPPED: i32 = 77;
/// Limit of a step.
const STEP: Duration = Duration::from_mins(20);
/// Limit of the whole run.
const TOTAL: Duration = Duration::from_mins(75);
/// Room that temporary files need.
const ROOM_BYTES: u64 = 2 << 30;

/// Runs the steps named in `filter`, all if it is empty.
pub fn run(root: &Path, filter: &[&str]) -> ExitCode {
    if let Some(unknown) = filter.iter().find(|name| !STEP_NAMES.contains(name)) {
        eprintln!("ci: no step {unknown}; there are: {}", STEP_NAMES.join(", "));
        return ExitCode::from(2);
    }
    let wanted = |name: &&str| filter.is_empty() || filter.contains(name);
    let mut ci = Ci::new(root);
    ci.wants_clippy = wanted(&"clippy");
    let tests = wanted(&"test");
    ci.suites = SUITES.into_iter().filter(wanted).collect();
    for (step, plan) in [("portable", portable as fn(&Path) -> Vec<_>), ("msrv", msrv_only)] {
        if tests && wanted(&step) {
            ci.beside.extend(plan(root));
        }
    }
    for name in STEP_NAMES.into_iter().filter(wanted) {
        println!("\n=== {name}");
        let start = Instant::now();
        match name {
            "fmt" => ci.check(name, cargo(root).args(["fmt", "--all", "--check"])),
            "tidy" => own(&mut ci, name, &["tidy"]),
            "package" => package(&mut ci),
            "deny" => deny(&mut ci),
            "clippy" if tests => println!("by the build of the tests"),
            "clippy" => ci.check(name, clippy(&mut cargo(root))),
            "portable" | "msrv" if tests => println!("beside the build of the tests"),
            "portable" => portable(root).into_iter().for_each(|check| ci.planned(check)),
            "msrv" => msrv_only(root).into_iter().for_each(|check| ci.planned(check)),
            "python" | "web" => suite(&mut ci, name),
            "test" => tests::run(&mut ci),
            _ => figures(&mut ci),
        }
        ci.times.push((name.to_owned(), start.elapsed()));
    }
    ci.report();
    if ci.summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A run of the checks.
struct Ci<'a> {
    root: &'a Path,
    end: Instant,
    interrupted: Arc<AtomicBool>,
    /// For temporary files.
    memory: Option<PathBuf>,
    summary: Summary,
    /// Time of each step, and of each test program under its step.
    times: Vec<(String, Duration)>,
    /// The build of the tests is that of clippy, too: one pass over each crate for both.
    wants_clippy: bool,
    /// Checks of their own builds, which run beside that of the tests: no build uses all processors
    /// all the time.
    beside: Vec<(String, Planned)>,
    /// Suites that run beside the tests, which wait for them: they wait most of their time.
    suites: Vec<&'static str>,
    /// Those that have ended.
    suites_ended: Vec<(&'static str, Script)>,
}

/// A check that is to run.
enum Planned {
    Run(Command),
    Skip(String),
    Fail(String),
}

/// A run of a script that may not be able to run on this machine.
struct Script {
    said: String,
    /// The last line of standard error: the reason of a skip.
    reason: String,
    ended: Result<ExitStatus, String>,
    time: Duration,
}

impl<'a> Ci<'a> {
    fn new(root: &'a Path) -> Self {
        let end = Instant::now() + TOTAL;
        let interrupted = Arc::default();
        // The commands have process groups of their own, so the terminal's Ctrl-C reaches only this
        // process.
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if let Err(error) = signal_hook::flag::register(signal, Arc::clone(&interrupted)) {
                println!("signal {signal} cannot be handled: {error}");
            }
        }
        let (summary, times) = Default::default();
        let (beside, suites, suites_ended) = Default::default();
        let (wants_clippy, memory) = (false, memory());
        Self {
            root,
            end,
            interrupted,
            memory,
            summary,
            times,
            wants_clippy,
            beside,
            suites,
            suites_ended,
        }
    }

    /// Runs the command within `limit` and what is left of [`TOTAL`].
    fn run(
        &self,
        name: &str,
        command: &mut Command,
        limit: Duration,
        each: &mut dyn FnMut(&Line),
    ) -> Result<ExitStatus, String> {
        if let Some(memory) = &self.memory {
            command.env("TMPDIR", memory);
        }
        let left = self.end.saturating_duration_since(Instant::now());
        if self.interrupted.load(Ordering::Relaxed) {
            return Err("not run: interrupted".to_owned());
        }
        if left.is_zero() {
            return Err("not run: total time".to_owned());
        }
        let limits = Limits::of(limit.min(left));
        bounded::run(command, &limits, &self.interrupted, each).map_err(|complaint| {
            print!("{name}: {complaint}");
            complaint.lines().next().unwrap_or_default().trim_end_matches(':').to_owned()
        })
    }

    fn count(&mut self, name: &str, good: bool) {
        if good {
            self.summary.passed += 1;
        } else {
            self.summary.failed.push(format!("step {name}"));
        }
    }

    fn check(&mut self, name: &str, command: &mut Command) {
        let ended = self.run(name, command, STEP, &mut pass_on);
        self.ended(name, ended.map(|status| status.success()));
    }

    fn planned(&mut self, (name, plan): (String, Planned)) {
        match plan {
            Planned::Run(mut command) => self.check(&name, &mut command),
            Planned::Skip(reason) => self.skip(&name, &reason),
            Planned::Fail(reason) => self.ended(&name, Err(reason)),
        }
    }

    fn ended(&mut self, name: &str, good: Result<bool, String>) {
        match good {
            Ok(good) => self.count(name, good),
            Err(reason) => self.summary.failed.push(format!("step {name}: {reason}")),
        }
    }

    fn skip(&mut self, name: &str, reason: &str) {
        println!("skipped: {reason}");
        self.summary.skipped.insert(format!("step {name}"), reason.to_owned());
    }

    fn report(&self) {
        println!("\n=== summary");
        for (name, time) in &self.times {
            println!("{:7.1} s  {name}", time.as_secs_f64());
        }
        for (name, reason) in &self.summary.skipped {
            println!("skipped: {name}: {reason}");
        }
        for name in &self.summary.failed {
            println!("failed: {name}");
        }
        println!("{}", self.summary.last_line());
    }
}

/// Prints a line where it came from.
fn pass_on(line: &Line) {
    if line.error {
        eprint!("{}", line.text);
    } else {
        print!("{}", line.text);
    }
}

/// The directory for temporary files, unless the user names one: that of memory, if it has room.
/// Tests make thousands of small files and remove them. For each new one ext4 then looks through
/// the inodes that were freed within the last seconds, which was a third of all processor time.
fn memory() -> Option<PathBuf> {
    let memory = PathBuf::from("/dev/shm");
    let roomy = rustix::fs::statvfs(&memory)
        .is_ok_and(|found| found.f_bavail.saturating_mul(found.f_frsize) >= ROOM_BYTES);
    let named = std::env::var_os("TMPDIR").is_some();
    (!named && roomy && tempfile::tempfile_in(&memory).is_ok()).then_some(memory)
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(crate::cargo());
    command.current_dir(root);
    command
}

fn clippy(cargo: &mut Command) -> &mut Command {
    cargo.args(["clippy", "--workspace", "--all-targets", "--profile", "test", "--keep-going"]);
    cargo.args(["--", "-D", "warnings"])
}

/// As [`cargo`], with clippy as the compiler of the workspace's crates: what `cargo clippy` does,
/// but with code, and without a pass of its own over every dependency.
fn linting_cargo(root: &Path) -> Command {
    let mut command = cargo(root);
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    let separator = "__CLIPPY_HACKERY__";
    command.env("CLIPPY_ARGS", format!("-D{separator}warnings{separator}"));
    command
}

/// Runs another task of this program, with a time limit as everything else.
fn own(ci: &mut Ci, name: &str, arguments: &[&str]) {
    match std::env::current_exe() {
        Ok(program) => ci.check(name, Command::new(program).current_dir(ci.root).args(arguments)),
        Err(error) => ci.ended(name, Err(format!("xtask is not found: {error}"))),
    }
}

/// The program, if the step of the tests has built it in this run.
fn built_by_tests(ci: &Ci) -> Option<PathBuf> {
    let tested = ci.times.iter().any(|(name, _)| name.trim() == "build");
    tested.then(|| crate::figures::built_by_tests(ci.root))
}

/// Documents agree with stored results, and a sample of exact runs with a repetition, by the
/// program that the tests have built if they ran.
fn figures(ci: &mut Ci) {
    let built = built_by_tests(ci);
    let built = built.as_deref().and_then(Path::to_str);
    let arguments: Vec<&str> = ["figures", "--check"].into_iter().chain(built).collect();
    own(ci, "figures", &arguments);
}

/// Packs the published crates, all at once since they need each other. Publishing compiles them.
fn package(ci: &mut Ci) {
    let manifest = match std::fs::read_to_string(ci.root.join("Cargo.toml")) {
        Ok(manifest) => manifest,
        Err(error) => return ci.ended("package", Err(format!("Cargo.toml: {error}"))),
    };
    let mut command = cargo(ci.root);
    // Tidy has fetched every dependency.
    command.args(["package", "--offline", "--locked", "--no-verify", "--allow-dirty"]);
    for name in crate::tidy::published::names(&manifest) {
        command.args(["-p", &name]);
    }
    ci.check("package", &mut command);
}

fn deny(ci: &mut Ci) {
    let there = cargo(ci.root).args(["deny", "--version"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        let reason = "cargo-deny is not installed (licences are checked by tidy all the same)";
        return ci.skip("deny", reason);
    }
    let arguments = ["deny", "check", "bans", "licenses", "sources"];
    ci.check("deny", cargo(ci.root).args(arguments));
}

/// Checks of the crates for other systems, where their standard library is installed.
fn portable(root: &Path) -> Vec<(String, Planned)> {
    let of = |target: &str| {
        let mut rustc = Command::new("rustc");
        let told = rustc.args(["--print", "target-libdir", "--target", target]).output();
        let directory = told.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let name = format!("portable {target}");
        if !directory.is_ok_and(|path| Path::new(path.trim()).is_dir()) {
            let reason = format!("no standard library; rustup target add {target}");
            return (name, Planned::Skip(reason));
        }
        let mut check = cargo(root);
        check.args(["check", "--locked", "-p", "syncline-cli", "--target", target]);
        // zstd needs a C compiler for each.
        check.args(["--no-default-features", "--features", "qcow2"]);
        check.args(["--target-dir", "target/portable"]);
        (name, Planned::Run(check))
    };
    PORTABLE.map(of).into()
}

fn msrv_only(root: &Path) -> Vec<(String, Planned)> {
    vec![("msrv".to_owned(), msrv::plan(root))]
}

/// Runs `packaging/test-NAME.sh`: the Python package in a fresh virtual environment, or the npm
/// package and the page. Without what the step of the tests has built, it is built.
fn run_suite(ci: &Ci, name: &str) -> Script {
    let mut command = Command::new("sh");
    command.arg(format!("packaging/test-{name}.sh")).current_dir(ci.root);
    if let Some(built) = built_by_tests(ci) {
        command.env("SYNCLINE_NATIVE", built.with_file_name("libsyncline_native.so"));
        command.env("SYNCLINE_LAB", built.with_file_name("syncline-lab"));
    }
    run_script(ci, name, &mut command)
}

/// Runs a script, and keeps what it says.
fn run_script(ci: &Ci, name: &str, command: &mut Command) -> Script {
    let start = Instant::now();
    let (mut said, mut reason) = (String::new(), "no reason given".to_owned());
    let mut each = |line: &Line| {
        said += &line.text;
        if line.error && !line.text.trim().is_empty() {
            line.text.trim().clone_into(&mut reason);
        }
    };
    let ended = ci.run(name, command, STEP, &mut each);
    Script { said, reason, ended, time: start.elapsed() }
}

/// Counts a suite, which has run beside the tests if there were any.
fn suite(ci: &mut Ci, name: &'static str) {
    let at = ci.suites_ended.iter().position(|(ended, _)| *ended == name);
    let ran = match at {
        Some(at) => ci.suites_ended.remove(at).1,
        None => run_suite(ci, name),
    };
    ci.times.push((format!("  {name}, beside the tests or here"), ran.time));
    ran_script(ci, name, ran);
}

/// Counts a script, which passed, failed or could not run.
fn ran_script(ci: &mut Ci, name: &str, ran: Script) {
    print!("{}", ran.said);
    if ran.ended.as_ref().is_ok_and(|status| status.code() == Some(SKIPPED)) {
        return ci.skip(name, &ran.reason);
    }
    ci.ended(name, ran.ended.map(|status| status.success()));
}
