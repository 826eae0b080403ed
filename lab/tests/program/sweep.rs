//! `sweep` without Python: rows, errors, kills, Ctrl-C, a full disk, what goes on.
//!
//! `crates/libs/syncline-py/tests/test_sweeps.py` compares the rows with those of the package.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{done, file, lab, scratch};

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../samples")
}

/// The command, where no Python is in the path.
fn sweep(plan: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = lab();
    command.env("PATH", "/nonexistent").arg("sweep").arg(plan).arg("-o").arg(out).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn rows(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("rows.jsonl")).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last row is cut short");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A plan of `cache` on a sample, with these sizes.
fn plan(dir: &Path, sizes: &str) -> PathBuf {
    let trace = samples().join("rlbench.pages.trace");
    let text = format!("traces = [{trace:?}]\npolicies = ['lru', 'clock']\nsizes = {sizes}\n");
    file(dir, "plan.toml", &text)
}

/// Ends a process with a signal.
fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Counts the whole rows while more are being written.
fn rows_so_far(out: &Path) -> usize {
    let text = fs::read(out.join("rows.jsonl")).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Waits for so many rows.
fn wait_for(out: &Path, least: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while rows_so_far(out) < least {
        assert!(Instant::now() < until, "no rows");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Many tasks, and as many rows at the end of the second run as there are tasks.
const MANY: usize = 400;

fn many(dir: &Path) -> PathBuf {
    let sizes: Vec<String> = (16..16 + MANY / 2).map(|pages| format!("'{pages}p'")).collect();
    plan(dir, &format!("[{}]", sizes.join(", ")))
}

/// Goes on with what a run before left, and looks for each task's row once.
fn goes_on_to_the_end(plan: &Path, out: &Path) {
    let again = sweep(plan, out, &["--resume"]).output().unwrap();
    assert!(again.status.success(), "{}", said(&again));
    each_once(out);
}

fn each_once(out: &Path) {
    let keys: HashSet<String> = rows(out).iter().map(|row| row["key"].to_string()).collect();
    assert_eq!((rows(out).len(), keys.len()), (MANY, MANY));
}

#[test]
fn rows_are_the_documents_of_the_command() {
    let dir = scratch();
    let out = dir.path().join("out");
    let ended = sweep(&plan(dir.path(), "['64K', '10%']"), &out, &[]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(String::from_utf8_lossy(&ended.stdout), format!("4 rows in {}\n", out.display()));
    for row in rows(&out) {
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let words = ["cache", "--trace", &text("trace"), "--policy", &text("policy")];
        let document = done(&[&words[..], &["--size", &text("size"), "--json", "-"]].concat());
        let document: Value = serde_json::from_str(&document).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text("document")).unwrap(), document);
        assert_eq!(row["hits"], document["runs"][0]["hits"]);
        assert!(row["error"].is_null() && row["key"].as_str().unwrap().len() == 16);
    }
}

#[test]
fn a_failed_task_is_a_row_with_its_error() {
    let dir = scratch();
    let out = dir.path().join("out");
    let good = samples().join("rlbench.pages.trace");
    let broken = file(dir.path(), "broken.trace", "PAR1 is no trace");
    let text = format!(
        "traces = ['none.trace', {good:?}, {broken:?}]\npolicies = ['lru']\n\
         sizes = ['64K']\noptions = ['', 'fly']\n"
    );
    let ended = sweep(&file(dir.path(), "plan.toml", &text), &out, &[]).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        said(&ended).starts_with("syncline-lab: 5 tasks failed, the first: "),
        "{}",
        said(&ended)
    );
    let errors: Vec<String> = rows(&out).iter().map(|row| row["error"].to_string()).collect();
    let with = |text: &str| errors.iter().filter(|error| error.contains(text)).count();
    assert_eq!((errors.len(), with("null"), with("unknown option `fly` of `cache`")), (6, 1, 3));
    assert_eq!((with("none.trace"), with("broken.trace")), (1, 1));
    // What failed is not run again; the exit code still tells.
    let again = sweep(&dir.path().join("plan.toml"), &out, &["--resume"]).output().unwrap();
    assert_eq!((again.status.code(), rows(&out).len()), (Some(1), 6));
}

#[test]
fn a_killed_driver_loses_only_what_ran() {
    let dir = scratch();
    let (plan, out) = (many(dir.path()), dir.path().join("out"));
    let mut child = sweep(&plan, &out, &[]).spawn().unwrap();
    wait_for(&out, 20);
    child.kill().unwrap();
    child.wait().unwrap();
    // A line that it did not end.
    let mut text = fs::read(out.join("rows.jsonl")).unwrap();
    let whole = text.iter().filter(|byte| **byte == b'\n').count();
    assert!((20..MANY).contains(&whole));
    text.extend(b"{\"key\": \"cut sho");
    fs::write(out.join("rows.jsonl"), &text).unwrap();
    let refused = sweep(&plan, &out, &[]).output().unwrap();
    assert!(said(&refused).contains("has results; resume"), "{}", said(&refused));
    goes_on_to_the_end(&plan, &out);
}

#[test]
fn an_interrupt_leaves_rows_and_no_child() {
    let dir = scratch();
    let (plan, out) = (many(dir.path()), dir.path().join("out"));
    let child = sweep(&plan, &out, &[]).spawn().unwrap();
    wait_for(&out, 5);
    signal(child.id(), "-INT");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let text = said(&ended);
    assert!(text.contains("holds what was done, go on with --resume"), "{text}");
    assert!(rows(&out).len() < MANY);
    goes_on_to_the_end(&plan, &out);
}

#[test]
fn killed_tasks_run_again() {
    let dir = scratch();
    let (plan, out) = (many(dir.path()), dir.path().join("out"));
    let mut child = sweep(&plan, &out, &["--workers", "2"]).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let mut kills = 0;
    while child.try_wait().unwrap().is_none() {
        let running = fs::read_to_string(&children).unwrap_or_default();
        let due = kills < 8 && rows_so_far(&out) > 30 * kills;
        match running.split_whitespace().next().filter(|_| due) {
            // One that has ended since is no kill.
            Some(process) => {
                kills += usize::from(
                    Command::new("kill").args(["-9", process]).status().unwrap().success(),
                );
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && kills > 2, "{kills} kills: {}", said(&ended));
    each_once(&out);
    assert!(rows(&out).iter().all(|row| row["error"].is_null()));
}

#[test]
fn a_full_disk_is_one_error_and_nothing_is_lost() {
    let dir = scratch();
    let (plan, out) = (many(dir.path()), dir.path().join("out"));
    // A file may have 64 KiB; the signal for more is not for the program.
    let mut limited = Command::new("sh");
    let syncline = lab().get_program().to_owned();
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 128; export PATH=/nonexistent; exec \"$@\"",
        "sh",
    ]);
    limited.arg(syncline).arg("sweep").arg(&plan).arg("-o").arg(&out);
    let ended = limited.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let text = said(&ended);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("make room or give access, then resume"), "{text}");
    let kept = fs::read(out.join("rows.jsonl")).unwrap();
    assert!(kept.iter().filter(|byte| **byte == b'\n').count() > 5);
    goes_on_to_the_end(&plan, &out);
    assert!(fs::read(out.join("rows.jsonl")).unwrap().starts_with(&kept[..kept.len() / 2]));
}

#[test]
fn what_only_python_does_and_plans_of_no_use_are_refused() {
    let dir = scratch();
    let good = "traces = ['a']\npolicies = ['lru']\nsizes = ['4M']\n";
    let cases = [
        ("what = 'fly'", 1, "unknown sweep `fly`; choose one of bench, cache, lifetime, replay"),
        ("traces = ['a']\npolicies = ['lru']", 1, "needs `sizes`"),
        ("what = 'replay'\ntraces = ['a']\ndevices = ['d']\nsizes = [4]", 1, "has no `sizes`"),
        ("trace = ['a']", 1, "unknown key `trace`"),
        ("traces = [", 1, "mend the TOML"),
        ("traces = [4]", 1, "`traces` are texts"),
        ("traces = ['*.none']\npolicies = ['lru']\nsizes = [4]", 1, "no trace has such a name"),
        ("what = 'bench'\ndevices = ['d']", 1, "needs either `traces` of system calls or"),
        ("traces = ['s3://b/*']\npolicies = ['lru']\nsizes = [4]", 4, "s3://b/* needs python3"),
        (&format!("{good}samples = [0.1]"), 4, "`samples` needs python3"),
    ];
    for (text, code, expected) in cases {
        let plan = file(dir.path(), "plan.toml", text);
        let ended = sweep(&plan, &dir.path().join("out"), &[]).output().unwrap();
        assert_eq!(ended.status.code(), Some(code), "{text}: {}", said(&ended));
        assert!(said(&ended).contains(expected), "{text}: {}", said(&ended));
    }
    let plan = file(dir.path(), "plan.toml", good);
    let ended = sweep(&plan, &dir.path().join("out"), &["--executor", "ray"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(4));
    let said = said(&ended);
    assert!(said.contains("ray needs python3 with the package syncline"), "{said}");
    assert!(said.contains("./syncline-*.whl"), "an index may have a stranger's package: {said}");
    assert!(!dir.path().join("out").exists());
}

#[test]
fn rows_of_another_version_are_not_gone_on_with() {
    let dir = scratch();
    let (plan, out) = (plan(dir.path(), "['64K']"), dir.path().join("out"));
    assert!(sweep(&plan, &out, &[]).output().unwrap().status.success());
    let stored = fs::read_to_string(out.join("plan.json")).unwrap();
    let version = format!("syncline-lab {}", env!("CARGO_PKG_VERSION"));
    let told = lab().arg("--version").output().unwrap().stdout;
    assert_eq!(told, format!("{version}\n").into_bytes());
    fs::write(out.join("plan.json"), stored.replace(&version, "syncline-lab 0.0.9")).unwrap();
    let ended = sweep(&plan, &out, &["--resume"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(said(&ended).contains("rows are by \"syncline-lab 0.0.9\""), "{}", said(&ended));
}
