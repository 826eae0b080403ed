//! `record` and `record-read`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support;
use crate::support::{Ran, binary, refused, run, scratch, text};
use syncline_testkit::{ImageSpec, Need, mkfs, require};

/// For hangs only.
const LONG: Duration = Duration::from_secs(120);

/// Runs it with this on standard input.
fn fed(arguments: &[&str], input: &Path) -> Ran {
    let output = binary().args(arguments).stdin(File::open(input).unwrap()).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    Ran { code: output.status.code().unwrap(), out: output.stdout, err }
}

/// 300 records of 100 bytes.
fn input(dir: &Path) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..30_000_u32).map(|n| (n / 7) as u8).collect();
    let path = dir.join("input");
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

const SMALL: [&str; 8] =
    ["--record-size", "100", "--pre", "50", "--post", "100", "--fault-at", "80,120"];

fn events(json: &str) -> Vec<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(document["schema"], "syncline.events/1");
    document["events"].as_array().unwrap().clone()
}

#[test]
fn what_is_read_from_standard_input_is_in_the_events() {
    let dir = scratch();
    let (input, bytes) = input(dir.path());
    for strategy in ["paper", "pool"] {
        let to = dir.path().join(strategy);
        std::fs::create_dir(&to).unwrap();
        let ran =
            fed(&[&["record", text(&to), "--strategy", strategy], &SMALL[..]].concat(), &input);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let said = ran.text();
        assert!(said.contains("event 1: fault at record 80\n"), "{said}");
        assert!(said.contains("event 2: 151 records, durable\n"), "{said}");
        let last = said.lines().last().unwrap_or_default();
        let (counts, slack) = last.rsplit_once("; ").unwrap();
        assert_eq!(counts, "300 records, 0 lost; 2 events, 0 faults refused");
        assert!(slack.ends_with(" of 200 records of slack used"), "{said}");
        let ran = run(&["record-read", text(&to), "--verify", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let found = events(&ran.text());
        assert_eq!(found.len(), 2);
        for (event, first) in found.iter().zip([30, 70]) {
            assert_eq!((&event["records"], &event["whole"]), (&151.into(), &true.into()));
            assert_eq!(event["first_record"], first);
            let file = event["file"].as_str().unwrap();
            let ran = run(&["record-read", file, "--extract", "-"]);
            assert_eq!(ran.out, bytes[first * 100..(first + 151) * 100]);
            let ran = run(&["record-read", file, "--follow"]);
            assert_eq!(ran.text().lines().count(), 152);
            assert!(ran.text().ends_with("end: 151 records\n"));
        }
    }
}

#[test]
fn a_damaged_event_is_named_and_the_rest_is_extracted() {
    let dir = scratch();
    let (input, bytes) = input(dir.path());
    let ran =
        fed(&[&["record", text(dir.path())], &SMALL[..6], &["--fault-at", "80"]].concat(), &input);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let file = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = file.into_iter().find(|path| path.extension().is_some()).unwrap();
    let mut damaged = std::fs::read(&file).unwrap();
    // Slots of 192 bytes: the third and the tenth record.
    damaged[2 * 192..3 * 192].fill(0);
    damaged[9 * 192 + 70] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let ran = run(&["record-read", text(&file), "--verify"]);
    assert_eq!(ran.code, 3);
    assert!(ran.text().contains("ended, with gaps"), "{}", ran.text());
    assert!(ran.err.contains("1 of 1 events are incomplete"), "{}", ran.err);
    let copy = dir.path().join("copy.bin");
    let ran = run(&["record-read", text(&file), "--extract", text(&copy)]);
    assert_eq!(ran.code, 3);
    for said in ["gap: 1 records from 32 on", "damaged: the slot at byte 1728", "149 records"] {
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    let mut expected = bytes[3000..18_100].to_vec();
    expected.drain(900..1000);
    expected.drain(200..300);
    assert_eq!(std::fs::read(copy).unwrap(), expected);
}

#[test]
fn events_of_an_image_are_files_in_it() {
    if !require("events_of_an_image_are_files_in_it", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let (input, _) = input(dir.path());
    let image = mkfs(&ImageSpec::default());
    let ran = fed(&[&["record", "--image", text(image.path())], &SMALL[..]].concat(), &input);
    assert_eq!(ran.code, 0, "{}", ran.err);
    syncline_testkit::e2fsck_clean(image.path()).unwrap();
    let names = support::done(&["ls", &support::at(image.path(), "/")]);
    let name = names.lines().find(|name| name.ends_with("000002.rec")).unwrap().to_owned();
    support::done(&["cp", &support::at(image.path(), &format!("/{name}")), text(dir.path())]);
    let ran = run(&["record-read", text(&dir.path().join(name)), "--verify"]);
    assert_eq!(ran.code, 0, "{}{}", ran.text(), ran.err);
}

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(arguments: &[&str], stdin: Stdio) -> Running {
        let mut command = binary();
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null());
        let running = Running(command.spawn().unwrap());
        let until = Instant::now() + LONG;
        while !handles_usr1(running.0.id()) {
            assert!(Instant::now() < until, "it does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// True if the process catches SIGUSR1 (10), by its status in /proc.
fn handles_usr1(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0) & 1 << 9 != 0
}

#[test]
fn a_signal_is_a_fault_and_another_ends_it() {
    let dir = scratch();
    let lengths = ["--record-size", "512", "--pre", "10", "--post", "100000", "--slack", "20000"];
    let start = ["record", text(dir.path()), "--generate", "--period-us", "1000"];
    let mut recording = Running::start(&[&start[..], &lengths].concat(), Stdio::null());
    let mut out = BufReader::new(recording.0.stdout.take().unwrap());
    recording.signal("-USR1");
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("event 1: fault at record "), "{line}");
    recording.signal("-INT");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(recording.0.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("records, durable"), "{rest}");
    let ran = run(&["record-read", text(dir.path()), "--verify"]);
    assert_eq!(ran.code, 0, "{}{}", ran.text(), ran.err);
}

#[test]
fn a_silent_pipe_can_be_interrupted() {
    let dir = scratch();
    let start = ["record", text(dir.path()), "--record-size", "64"];
    let mut recording = Running::start(&start, Stdio::piped());
    let mut out = recording.0.stdout.take().unwrap();
    recording.signal("-INT");
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    // Waiting closes the pipe first.
    let pipe = recording.0.stdin.take();
    assert!(recording.0.wait().unwrap().success());
    drop(pipe);
    let nothing = "0 records, 0 lost; 0 events, 0 faults refused; 0 of 200 records of slack used\n";
    assert_eq!(said, nothing);
}

#[test]
fn what_cannot_be_recorded_or_read_is_refused() {
    let dir = scratch();
    let nothing = support::file(dir.path(), "nothing.rec", "no recorder wrote this");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let none = text(&dir.path().join("none"));
    refused(1, &["record-read", &none]);
    refused(3, &["record-read", &text(&nothing), "--extract", "-"]);
    refused(2, &["record-read", &text(&nothing), &text(&nothing), "--follow"]);
    refused(2, &["record", &none, "--generate", "--record-size", "4"]);
    refused(1, &["record", &none, "--generate", "--strategy", "pool", "--records", "1"]);
    assert_eq!(run(&["record"]).code, 2);
}
