//! `bench`: documents, determinism, lists, and what Ctrl-C leaves.

mod support;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::{binary, done, run, scratch};
use syncline_testkit::{Need, require};

fn document(text: &str) -> Value {
    serde_json::from_str(text).expect("a JSON document")
}

#[test]
fn a_list_runs_each_and_runs_repeat() {
    if !require("a_list_runs_each_and_runs_repeat", &[Need::E2fsck]) {
        return;
    }
    let arguments = [
        "bench",
        "sqlite/insert",
        "create",
        "create/4k-fsync",
        "--operations=5",
        "--journal-mode=delete,wal",
        "--size=256",
        "--json=-",
    ];
    let text = done(&arguments);
    assert_eq!(text, done(&arguments), "the same seed, the same figures");
    let document = document(&text);
    assert_eq!(document["schema"], "syncline.bench/1");
    let runs = document["runs"].as_array().expect("runs");
    let names: Vec<(&str, &Value)> = runs
        .iter()
        .map(|run| (run["workload"].as_str().expect("a name"), &run["config"]["journal_mode"]))
        .collect();
    let (delete, wal) = (Value::from("delete"), Value::from("wal"));
    let expected =
        [("sqlite/insert", &delete), ("sqlite/insert", &wal), ("create/4k-fsync", &Value::Null)];
    assert_eq!(names, expected);
    for run in runs {
        assert_eq!(run["metrics"]["operations"], 5);
        assert!(run["metrics"]["flushes"].as_u64() > Some(0), "{run}");
        assert!(run["foreground"]["latency_us_p99"].as_f64() > Some(0.0), "{run}");
    }
}

#[test]
fn the_table_and_the_document_are_one_run() {
    if !require("the_table_and_the_document_are_one_run", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("figures.json");
    let json = format!("--json={}", path.display());
    let table = done(&["bench", "create", "--operations=4", "--size=64", &json]);
    assert!(table.starts_with("workload") && table.contains("create/4k-fsync"), "{table}");
    let document = document(&std::fs::read_to_string(&path).unwrap());
    assert_eq!(document["runs"][0]["metrics"]["operations"], 4);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");

    let nowhere = format!("--json={}", dir.path().join("no/such/dir.json").display());
    let ran = run(&["bench", "create", "--operations=1", "--size=64", &nowhere]);
    assert!(ran.code == 1 && ran.err.contains("check the path"), "{ran:?}");
}

#[test]
fn a_directory_is_measured_in_real_time() {
    let dir = scratch();
    let arguments = ["bench", "create", "--operations=3", "--json=-", "--dir"];
    let mut arguments: Vec<&std::ffi::OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    arguments.push(dir.path().as_os_str());
    let document = document(&done(&arguments));
    assert_eq!(document["runs"][0]["metrics"]["operations"], 3);
    assert_eq!(document["runs"][0]["metrics"]["write_requests"], Value::Null);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "it tidies up");
    arguments.push("--sync=ordered".as_ref());
    assert_eq!(run(&arguments).code, 2, "what a directory cannot be told is refused");
}

#[test]
fn ctrl_c_reports_what_was_done() {
    if !require("ctrl_c_reports_what_was_done", &[Need::E2fsck]) {
        return;
    }
    let child = binary()
        .args(["bench", "create", "--operations=100000000", "--size=4096", "--json=-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(700));
    let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let document = document(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(document["runs"][0]["interrupted"], true);
}
