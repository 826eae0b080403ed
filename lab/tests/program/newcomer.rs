//! Pitfalls of new users: each command as it was typed, and the answer it must give.

use std::path::{Path, PathBuf};

use crate::support::serving::Serving;
use crate::support::{done, refused, run, scratch};
use syncline_lab::trace::{Flags, Header, Names, Op, Record, Sink, TraceKind, TraceWriter};
use syncline_testkit::{Need, require};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A block trace: synchronous writes of 64 KiB, one each MiB and second.
fn trace(dir: &Path) -> PathBuf {
    let header = Header { kind: TraceKind::Block, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let names = Names::default();
    for n in 0..8 {
        let write = Record::new(n * 1_000_000_000, Op::Write).range(n << 20, 64 << 10);
        writer.record(&names, &Record { flags: Flags::SYNC, ..write }).unwrap();
    }
    let path = dir.join("block.trace");
    std::fs::write(&path, writer.finish(&names).unwrap()).unwrap();
    path
}

#[test]
fn lifetime_refuses_a_device_that_the_trace_does_not_fit() {
    let dir = scratch();
    let trace = trace(dir.path());
    let said = refused(2, &["lifetime", "--trace", text(&trace), "--size", "4M"]);
    assert!(said.contains("the device has") && said.contains("--size"), "{said}");
    let device = "sd-2012:rated_cycles=1";
    let text = done(&["lifetime", "--trace", text(&trace), "--device", device, "--per-day", "100"]);
    assert!(text.contains(" hours until") || text.contains(" days until"), "{text}");
    assert!(!text.contains("0.0 years"), "{text}");
}

#[test]
fn trace_stat_names_synchronous_writes() {
    let dir = scratch();
    let said = done(&["trace", "stat", text(&trace(dir.path()))]);
    assert!(said.contains("0 sync calls; 0.52 MB written synchronously (100.0 %"), "{said}");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    let dir = scratch();
    let trace = trace(dir.path());
    let (bad, trace) = (dir.path().join("no/such.json"), text(&trace).to_owned());
    let bad = text(&bad);
    for arguments in [
        &["bench", "sqlite", "insert", "--operations", "1000000"][..],
        &["cache", "--trace", &trace],
        &["replay", "--trace", &trace, "--device", "sd-2012"],
        &["probe", "sd-2012"],
        &["latency", "--in-process", "sd-2012"],
        &["trace", "stat", &trace],
    ] {
        let began = std::time::Instant::now();
        let said = refused(1, &[arguments, &["--json", bad]].concat());
        assert!(said.contains("such.json: no such file"), "{said}");
        assert!(began.elapsed().as_secs() < 20, "{arguments:?} ran before");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left");
}

#[test]
fn a_quick_probe_is_a_small_one() {
    let document = |more: &[&str]| -> serde_json::Value {
        let text = done(&[&["probe", "nexus7-emmc", "--quick", "--json=-"], more].concat());
        serde_json::from_str(&text).unwrap()
    };
    let quick = document(&[]);
    assert_eq!(quick["region_bytes"], 32 << 20);
    assert_eq!(quick["sustained"], serde_json::json!([]));
    let most = |document: &serde_json::Value, name: &str| {
        let figures = document["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == name).unwrap()["requests"].as_u64().unwrap()
    };
    assert_eq!((most(&quick, "random-read-4k"), most(&quick, "read-1024k")), (64, 8));
    // What is given counts.
    let given = document(&["--size=8M", "--requests=100", "--sustain=8M"]);
    assert_eq!((&given["region_bytes"], most(&given, "random-read-4k")), (&(8 << 20).into(), 100));
    assert_eq!(given["sustained"].as_array().unwrap().len(), 2);
}

#[test]
fn several_devices_are_given_one_by_one() {
    let said = refused(2, &["bench", "create", "--device", "nexus7-emmc,ufs-4"]);
    assert!(said.contains("'nexus7-emmc,ufs-4'; name one; commands that take several"), "{said}");
    // The second one is refused before the first one is run.
    let said = refused(2, &["bench", "create", "--device=ufs-4", "--device=nexus"]);
    assert!(said.contains("'nexus'; nearest: nexus7-emmc"), "{said}");
    let few = ["bench", "create", "--operations=3", "--device=nexus7-emmc", "--device=ufs-4"];
    assert!(done(&few).contains("ufs-4"));
}

#[test]
fn devices_are_a_short_list_first() {
    let short = done(&["devices"]);
    let profiles = short.lines().filter(|line| line.contains("sd-2012")).count();
    assert_eq!(profiles, 1, "{short}");
    assert!(short.lines().count() < 40, "{} lines", short.lines().count());
    let long = done(&["devices", "--long"]);
    assert!(long.contains("source: ") && long.len() > 2 * short.len());
}

#[test]
fn caches_that_hold_the_trace_are_shown_once() {
    let dir = scratch();
    let trace = trace(dir.path());
    let size = "64K,1M,2M,4M";
    let ran = run(&[
        "cache",
        "--trace",
        text(&trace),
        "--policy",
        "lru,clock",
        "--size",
        size,
        "--json",
        "-",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("2M, 4M left out"), "{}", ran.err);
    let document: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 4, "{document:#}");
}

#[test]
fn flash_is_ended_by_its_own_command() {
    let test = "flash_is_ended_by_its_own_command";
    if !require(test, &[Need::Root, Need::Fuse, Need::Loop, Need::E2fsck]) {
        return;
    }
    let (serving, node) = Serving::start(&["--size", "32M", "--attach=loop"]);
    let dir = serving.path().to_str().unwrap().to_owned();
    let mnt = scratch();
    let shell = |command: String| {
        std::process::Command::new("sh").args(["-c", &command]).status().unwrap().success()
    };
    assert!(shell(format!("mke2fs -q {node} && mount {node} {}", text(mnt.path()))));
    let said = refused(1, &["flash", "detach", &dir]);
    assert!(said.contains(&format!("{node} is mounted; unmount it")), "{said}");
    assert!(shell(format!("umount {}", text(mnt.path()))));
    done(&["flash", "detach", &dir]);
    assert!(!serving.flash().exists(), "still served");
    let backing = format!("/sys/block/{}/loop/backing_file", node.trim_start_matches("/dev/"));
    assert!(!Path::new(&backing).exists(), "{node} is still attached");
    let said = refused(1, &["flash", "detach", &dir]);
    assert!(said.contains("start it with `syncline-lab flash serve"), "{said}");
}
