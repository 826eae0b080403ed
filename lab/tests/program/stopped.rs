//! Ctrl-C at commands that measure: each ends soon, and what it then reports says so.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
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

/// Interrupts a command; returns what it printed. `when` says whether it is the time for that.
fn stopped(arguments: &[&str], when: &dyn Fn() -> bool) -> String {
    let mut child = lab();
    child.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    started(&mut child);
    while !when() {
        assert!(child.try_wait().unwrap().is_none(), "{arguments:?} has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let (took, said) = (began.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(130), "{arguments:?}: {said}");
    assert!(took < SOON, "{arguments:?} took {took:?}");
    assert_eq!(said, "syncline-lab: interrupted; run the command again\n", "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
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
        &["trace", "import", &trace, "-o", &format!("{place}/t.trace")],
        &["devices", "--check"],
    ] {
        stopped(arguments, &|| true);
    }
    assert_eq!(std::fs::read_dir(place).unwrap().count(), 0, "something is left");
}

#[test]
fn a_document_of_an_interrupted_probe_says_so() {
    let dir = scratch();
    let place = dir.path().to_str().unwrap();
    let page = format!("--html={place}/page.html");
    let probe = ["probe", place, "--size=4M", "--requests=1000000", "--bytes=1G", "--seconds=3600"];
    let began = Instant::now();
    let late = || began.elapsed() > Duration::from_secs(8);
    let said = stopped(&[&probe[..], &["--json=-", &page]].concat(), &late);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["interrupted"], true);
    let page = std::fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(page.contains("</h1>\n<p>Interrupted: "), "{page}");
    let began = Instant::now();
    let late = || began.elapsed() > Duration::from_secs(8);
    let said = stopped(&probe, &late);
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
