//! Ctrl-C at commands that measure: each ends soon, and what it then reports says so.

use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use syncline_lab::trace::{Header, Names, Op, Record, Sink, TraceKind, TraceWriter};
use syncline_testkit::{Need, require};

use crate::support::{file, lab, scratch};

/// Longest time from the signal to the end. It is 0.2 s on a quiet machine; a busy one decides
/// nothing here, since without the signal each of these goes on for minutes.
const SOON: Duration = Duration::from_secs(20);

/// Waits until the process handles SIGINT, and a bit.
fn started(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    let handles = || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        mask.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
    };
    while !handles() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(250));
}

/// Interrupts a command and waits for its end. `when` says whether it is the time for that.
pub fn ended(arguments: &[&str], when: &dyn Fn() -> bool) -> Output {
    let mut child = lab();
    child.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    started(&mut child);
    while !when() {
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?} has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (began, pid) = (Instant::now(), Pid::from_child(&child));
    kill_process(pid, Signal::INT).unwrap();
    let (has_ended, ends) = mpsc::channel::<()>();
    let watching = std::thread::spawn(move || {
        ends.recv_timeout(SOON).is_err_and(|err| err == RecvTimeoutError::Timeout)
            && kill_process(pid, Signal::KILL).is_ok()
    });
    let output = child.wait_with_output().unwrap();
    let took = began.elapsed();
    drop(has_ended);
    watching.join().unwrap();
    assert!(took < SOON, "{arguments:?} took {took:?}");
    output
}

/// Interrupts a command that measures; returns what it printed.
fn stopped(arguments: &[&str], when: &dyn Fn() -> bool) -> String {
    let output = ended(arguments, when);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{arguments:?}: {said}");
    // On a busy machine a run takes long enough for a line of progress.
    let last: Vec<&str> = said.lines().filter(|line| !line.ends_with(" s left")).collect();
    assert_eq!(last, ["syncline-lab: interrupted; run the command again"], "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A part of a command's result in all forms.
pub struct Part {
    pub text: String,
    pub document: Value,
    /// Nothing if it was not asked for.
    pub page: String,
}

impl Part {
    /// Every form says in its first words, and the document in a field, that it is a part.
    fn says_so(self, of: &[&str]) -> Part {
        assert!(self.text.starts_with("Interrupted: "), "{of:?}: {}", self.text);
        assert_eq!(self.document["interrupted"], true, "{of:?}");
        let first = self.page.is_empty() || self.page.contains("</h1>\n<p>Interrupted: ");
        assert!(first, "{of:?}: {}", self.page);
        self
    }
}

/// Interrupts a command after a second; if it has nothing to report by then, as on a busy machine,
/// runs it again for twice as long.
pub fn part(arguments: &[&str], with_page: bool) -> Part {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (json, html) = (at("a.json"), at("a.html"));
    let mut options = vec![format!("--json={}", json.display())];
    options.extend(with_page.then(|| format!("--html={}", html.display())));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    for time in (0..9).map(|doubled| Duration::from_secs(1 << doubled)) {
        let began = Instant::now();
        let text = stopped(&[arguments, &options].concat(), &|| began.elapsed() >= time);
        let Ok(document) = std::fs::read_to_string(&json) else { continue };
        let document = serde_json::from_str(&document).unwrap();
        let page = if with_page { std::fs::read_to_string(html).unwrap() } else { String::new() };
        return Part { text, document, page }.says_so(arguments);
    }
    panic!("{arguments:?} has nothing to report after minutes");
}

/// A trace of a million writes to one file or of a device, a millisecond apart.
fn many(kind: TraceKind) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &Header { kind, source: "test".into() }).unwrap();
    let mut names = Names::default();
    let file = names.intern("/f");
    for n in 0..1_000_000_u64 {
        let write = Record::new(n * 1_000_000, Op::Write).range(n * 977 % 90_000 * 4096, 4096);
        let file = if kind == TraceKind::Syscall { file } else { Default::default() };
        writer.record(&names, &Record { file, process: 7, inode: 12, ..write }).unwrap();
    }
    writer.finish(&names).unwrap()
}

#[test]
fn the_first_signal_ends_a_measurement() {
    if !require("the_first_signal_ends_a_measurement", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let lines: String = (0..1_500_000_u64)
        .map(|n| format!("0,{},4096,{},{n}.5\n", n * 977 % 900_000, ["R", "W"][n as usize % 2]))
        .collect();
    let trace = file(dir.path(), "large.csv", &lines).display().to_string();
    let (of, fit) =
        (format!("--trace={trace}"), format!("--fit={}", dir.path().join("f.toml").display()));
    let place = dir.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    let [calls, blocks] = [TraceKind::Syscall, TraceKind::Block].map(|kind| {
        let path = dir.path().join(format!("{}.trace", kind.name()));
        std::fs::write(&path, many(kind)).unwrap();
        path.display().to_string()
    });
    let of_blocks = format!("--trace={blocks}");
    let out = format!("{place}/t.trace");
    for arguments in [
        &["bench", "create", "--operations=100000000"][..],
        &["bench", "sqlite", "--operations=10000000"],
        &["bench", "fileio", "--operations=100000000"],
        &["bench", "fjord"],
        &["bench", "applications"],
        // It rests for five seconds.
        &["probe", place, "--size=4M"],
        &["probe", "sd-2012", "--quick", "--tries=100000", &fit],
        // It watches the machine for five seconds.
        &["latency", place],
        &["latency", "--in-process", "nexus7-emmc"],
        &["reproduce", "--full"],
        &["cache", "--policy=all", "--jobs=1", &of],
        &["trace", "stat", &trace],
        &["trace", "import", &trace, "-o", &out],
        &["trace", "hot", &trace],
        &["trace", "export", "--to=fio", &trace, "-o", &out],
        &["trace", "join", &calls, &blocks, "-o", &out],
        &["lifetime", "--passes=1000000", &of_blocks],
        &["replay", "--device=sd-2012", "--timing", &of_blocks],
        &["replay", "--timing", &format!("--trace={calls}"), "--dir", place],
        &["advise", &calls],
        &["devices", "--check"],
    ] {
        stopped(arguments, &|| true);
    }
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0, "something is left");
}

#[test]
fn a_document_of_an_interrupted_reproduction_says_so() {
    if !require("a_document_of_an_interrupted_reproduction_says_so", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let runs = at("runs");
    // The first has two runs, the second takes minutes.
    let rows = ["informed-storage/figure-6", "informed-storage/figures-27-30"];
    let options = ["--full", "--json", &at("a.json"), "--html", &at("a.html"), "--resume", &runs];
    let is_done = || std::fs::read_to_string(&runs).is_ok_and(|text| text.lines().count() >= 3);
    let text = stopped(&[&["reproduce"], &rows[..], &options].concat(), &is_done);
    let read = |name: &str| std::fs::read_to_string(at(name)).unwrap();
    let (document, page) = (serde_json::from_str(&read("a.json")).unwrap(), read("a.html"));
    let part = Part { text, document, page }.says_so(&rows);
    let there = part.document["rows"].as_array().unwrap();
    assert!(there.len() == 1 && there[0]["row"] == rows[0], "{there:?}");
}

#[test]
fn a_document_of_an_interrupted_probe_says_so() {
    let dir = scratch();
    let place = dir.path().to_str().unwrap();
    let page = format!("--html={place}/page.html");
    let probe = ["probe", place, "--size=4M", "--requests=1000000", "--bytes=1G", "--seconds=3600"];
    // On a busy machine there may be no figure after eight seconds, and then nothing is said.
    let stopped = |arguments: &[&str]| {
        let after_s = |seconds| {
            let began = Instant::now();
            stopped(arguments, &|| began.elapsed() > Duration::from_secs(seconds))
        };
        [8, 16, 32, 64, 128].into_iter().map(after_s).find(|said| !said.is_empty()).unwrap()
    };
    let said = stopped(&[&probe[..], &["--json=-", &page]].concat());
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["interrupted"], true);
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("</h1>\n<p>Interrupted: "), "{page}");
    let said = stopped(&probe);
    assert!(said.starts_with("Interrupted: "), "{said}");
}

#[test]
fn a_document_of_an_interrupted_latency_says_so() {
    let dir = scratch();
    let place = dir.path().to_str().unwrap();
    let began = Instant::now();
    // Five seconds of idle machine, four of the first case, and the second one has begun.
    let late = || began.elapsed() > Duration::from_secs(11);
    let few = ["latency", place, "--only=write", "--operations=400", "--period-us=10000"];
    let said = stopped(&[&few[..], &["--json=-"]].concat(), &late);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["interrupted"], true);
    assert!(document["cases"].as_array().unwrap().len() < 2);
}
