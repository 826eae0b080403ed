//! `bench`: documents, determinism, lists, and what Ctrl-C leaves.

use crate::stopped::part;
use crate::support::{done, refused, run, scratch};
use serde_json::Value;
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
        "several",
        "sqlite/insert",
        "create",
        "create/4k-fsync",
        "--operations=5",
        "--journal-mode=delete,wal",
        "--sync=eager",
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
fn applications_run_in_each_sync_mode_and_are_summed() {
    if !require("applications_run_in_each_sync_mode", &[Need::E2fsck]) {
        return;
    }
    let modes = ["ordered", "eager", "packed", "periodic"];
    let sync = modes.join(",");
    let words = ["bench", "applications", "maps", "email", "--scale=5", "--size=256", "--json=-"];
    let found = document(&done(&[&words[..], &["--sync", &sync]].concat()));
    let all = |list: &str| found[list].as_array().unwrap().clone();
    let totals = all("totals");
    let named: Vec<&str> = totals.iter().map(|sum| sum["sync"].as_str().unwrap()).collect();
    assert_eq!(named, modes);
    for sum in &totals {
        assert_eq!(sum["application"], "all");
        let of = |value: &Value, metric: &str| value.pointer(metric).unwrap().as_f64().unwrap();
        for metric in ["/run_s", "/storage_wait_s", "/counts/nand_page_programs", "/flushes"] {
            let runs = all("runs");
            let parts = runs.iter().filter(|run| run["sync"] == sum["sync"]);
            let parts: f64 = parts.map(|run| of(run, metric)).sum();
            assert!((of(sum, metric) - parts).abs() < 1e-9 * parts.max(1.0), "{metric}: {found:#}");
        }
    }
    let pages = |at: usize| totals[at]["counts"]["nand_page_programs"].as_u64().unwrap();
    assert!(pages(2) < pages(1), "packed records are smaller: {found:#}");
}

#[test]
fn ctrl_c_reports_what_was_done() {
    if !require("ctrl_c_reports_what_was_done", &[Need::E2fsck]) {
        return;
    }
    let found = part(&["bench", "create", "--operations=100000000", "--size=4096"], true);
    assert_eq!(found.document["runs"][0]["interrupted"], true);
    for arguments in [
        &["bench", "fjord"][..],
        &["bench", "applications", "--device=all"],
        &["bench", "sqlite", "--sensitivity", "--operations=10000"],
    ] {
        let is_page = !arguments.contains(&"--sensitivity");
        let of = |list: &str| part(arguments, is_page).document[list].as_array().map(Vec::len);
        assert!(of(if is_page { "runs" } else { "cells" }) > Some(0), "{arguments:?}");
    }
}

#[test]
fn mtime_update_is_a_list_and_the_report_stands_alone() {
    if !require("mtime_update_is_a_list", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let path = dir.path().join("report.html");
    let html = format!("--html={}", path.display());
    let arguments = [
        "bench",
        "fileio",
        "random-overwrite-fsync",
        "--operations=30",
        "--size=128",
        "--device=ssd-850pro",
        "--sync=ordered",
        "--mtime-update=off,100",
        "--json=-",
        &html,
    ];
    let document = document(&done(&arguments));
    let runs = document["runs"].as_array().expect("runs");
    let intervals: Vec<_> = runs.iter().map(|run| &run["config"]["mtime_update_ms"]).collect();
    assert_eq!(intervals, [&Value::Null, &Value::from(100)]);
    let journal = |n: usize| runs[n]["metrics"]["journal_bytes"].as_u64().expect("a count");
    assert!(journal(1) < journal(0) / 2, "{} {}", journal(0), journal(1));
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("mtime=100"));
    assert_eq!(html.matches("<figure").count(), 5, "three charts of bars, a plot for each run");
    assert!(html.contains("--mtime-update=off,100"), "the command line is in the footer");
    assert!(html.contains("coarse-mtime paper"), "the paper's figures are beside ours");

    for bad in ["0", "1001", "", "no"] {
        let interval = format!("--mtime-update={bad}");
        let ran = run(&["bench", "create", "--operations=1", "--size=64", &interval]);
        assert_eq!(ran.code, 2, "{bad}: {ran:?}");
        assert!(ran.err.contains("1 to 1000"), "{ran:?}");
    }
}

#[test]
fn the_papers_figures_stand_under_the_table() {
    if !require("the_papers_figures", &[Need::E2fsck]) {
        return;
    }
    let workload = ["bench", "sqlite", "insert", "--operations=5", "--size=256"];
    let both = done(&workload);
    assert!(both.contains("Paper and here") && both.contains("table 5.4"), "{both}");
    let one = done(&[&workload[..], &["--sync=eager"]].concat());
    assert!(!one.contains("Paper and here"), "nothing to compare: {one}");
}

#[test]
fn one_table_has_several_devices() {
    if !require("one_table_has_several_devices", &[Need::E2fsck]) {
        return;
    }
    let devices = ["--device=nexus7-emmc", "--device=ufs-4"];
    let words = [&["bench", "create", "--operations=5", "--size=64"], &devices[..]].concat();
    let table = done(&words);
    for device in ["nexus7-emmc", "ufs-4"] {
        assert!(table.contains(&format!("create/4k-fsync, {device} ")), "{table}");
    }
    let refused = run(&[&["bench", "create", "--sensitivity"], &devices[..]].concat());
    assert!(refused.code == 2 && refused.err.contains("one device"), "{refused:?}");
}

#[test]
fn sensitivity_is_a_table_or_a_document() {
    if !require("sensitivity_is_a_table", &[Need::E2fsck]) {
        return;
    }
    let arguments =
        ["bench", "create", "--sensitivity", "--operations=4", "--size=128", "--json=-"];
    let document = document(&done(&arguments));
    assert_eq!(document["schema"], "syncline.sensitivity/1");
    let cells = document["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 12, "four streams and three flushes");
    assert!(cells.iter().all(|cell| cell["peers_per_s"]["xfs"].as_f64() > Some(0.0)));
    let table = done(&arguments[..5]);
    assert!(table.contains("fast_commit") && table.contains("best peer"), "{table}");
    assert_eq!(run(&["bench", "create", "--sensitivity", "--sync=eager"]).code, 2);
    let two = run(&["bench", "create", "--sensitivity", "--mtime-update=off,100"]);
    assert!(two.code == 2 && two.err.contains("run it once for each"), "{two:?}");
}

#[test]
fn fjord_compares_configurations_of_the_write_buffer() {
    if !require("fjord_compares_configurations_of_the_write_buffer", &[Need::E2fsck]) {
        return;
    }
    let arguments =
        ["bench", "fjord", "email", "--operations=3", "--size=128", "--log-size=16M", "--json=-"];
    let document = document(&done(&arguments));
    assert_eq!(document["schema"], "syncline.fjord/1");
    let runs = document["runs"].as_array().expect("runs");
    let of = |sync: &str, config: &str| {
        let is = |run: &&Value| run["sync"] == sync && run["config"] == config;
        runs.iter().find(is).unwrap_or_else(|| panic!("{sync} {config}"))
    };
    assert_eq!(of("ordered", "native")["buffer"], Value::Null);
    let log = of("ordered", "log");
    assert!(log["buffer"]["logged_pages"].as_u64().expect("a count") > 0, "{log}");
    assert_eq!(log["run"]["operations"], 3);
    assert!(of("eager", "both")["run"]["duration_s"].as_f64().expect("seconds") > 0.0);
    let ran = run(&["bench", "fjord", "mail", "--size=64"]);
    assert!(ran.code == 2 && ran.err.contains("rlbench"), "{ran:?}");
}

#[test]
fn options_that_a_workload_does_not_read_are_refused() {
    let (fileio, replay) = (["fileio"].as_slice(), ["replay"].as_slice());
    for (workload, options) in [
        (["sqlite"].as_slice(), ["--network=usb", "--gap-max=3", "--contents=same", "--scale=3"]),
        (&["sqlite"], ["--solution=log-ram", "--flashlite=*", "--used", "--long"]),
        (fileio, ["--journal-mode=wal", "--barriers=all", "--sqlite-fsync", "--cuts=3"]),
        (&["create", "--size=64"], ["--journal-mode=wal", "--network=usb", "--used", "--ordered"]),
        (
            &["several", "create"],
            ["--journal-mode=wal", "--synchronous=off", "--sqlite-fsync", "--used"],
        ),
        (replay, ["--journal-mode=wal", "--operations=3", "--html=x", "--sensitivity"]),
        (&["fjord"], ["--sync=eager", "--sensitivity", "--fill=30", "--network=usb"]),
        (&["applications"], ["--journal-mode=wal", "--log=packed", "--dir=/tmp", "--operations=3"]),
        (&["android-day"], ["--network=usb", "--trace=t", "--scale=3", "--long"]),
        (&["mixed"], ["--network=usb", "--trace=t", "--scale=3", "--log-size=3M"]),
    ] {
        for option in options {
            let ran = run(&[&["bench"][..], workload, &[option]].concat());
            assert!(ran.code == 2 && ran.out.is_empty(), "{workload:?} {option}: {ran:?}");
        }
    }
}

#[test]
fn fjord_is_told_in_words_and_on_a_page() {
    if !require("fjord_is_told_in_words_and_on_a_page", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let page = dir.path().join("fjord.html");
    let html = format!("--html={}", page.display());
    let common = ["bench", "fjord", "email", "--operations=3", "--size=128", "--log-size=16M"];
    let text = done(&[&common[..], &[&html]].concat());
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("fjord/email")).collect();
    assert_eq!(rows.len(), 7, "{text}");
    assert!(rows[0].contains("ext4 as it is") && rows[3].contains("eager sync"), "{text}");
    assert!(rows[1].contains(" %") && text.contains("--long has every"), "{text}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<tr><td class=\"w\">fjord/email").count(), 7);
    assert_eq!(html.matches("<figure").count(), 2, "time and bytes");
    let long = done(&[&common[..], &["--long"]].concat());
    assert_eq!(long.lines().filter(|line| line.starts_with("fjord/email")).count(), 19, "{long}");
}

#[test]
fn a_day_is_compared_under_the_policies_of_a_mount() {
    if !require("a_day_is_compared_under_the_policies_of_a_mount", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let page = dir.path().join("day.html");
    let html = format!("--html={}", page.display());
    let common = ["bench", "fjord", "day", "--scale=2", "--log-size=16M"];
    let text = done(&[&common[..], &[&html]].concat());
    assert!(text.contains("wake-ups") && text.contains("power,session"), "{text}");
    assert_eq!(text.lines().filter(|line| line.contains("relaxed-both")).count(), 5, "{text}");
    assert_eq!(std::fs::read_to_string(&page).unwrap().matches("<figure").count(), 2);
    let document = document(&done(&[&common[..], &["--json=-"]].concat()));
    let days = document["days"].as_array().expect("days");
    assert!(days.iter().all(|day| day["run"]["wakeups"].as_u64() > Some(0)), "{document:#}");
    for more in [&["email"][..], &["--operations=3"], &["--ordered"], &["--dir=/tmp"]] {
        let ran = run(&[&common[..3], more].concat());
        assert!(ran.code == 2 && ran.err.contains("give `day` alone"), "{more:?}: {ran:?}");
    }
}

#[test]
fn policies_are_compared_on_an_aged_volume() {
    if !require("policies_are_compared_on_an_aged_volume", &[Need::E2fsck]) {
        return;
    }
    let common = [
        "bench",
        "create",
        "--operations=5",
        "--size=64",
        "--sync=eager",
        "--alloc=default,lifetime",
    ];
    let text = done(&[&common[..], &["--fill=60"]].concat());
    let rows: Vec<_> = text.lines().filter(|line| line.contains(" 60%")).collect();
    assert_eq!(rows.len(), 4, "{text}");
    assert!(text.contains("GC copies") && rows[3].contains("lifetime"), "{text}");
    let json = done(&[&common[..], &["--fill=60", "--json=-"]].concat());
    let value = document(&json);
    let config = |run: usize| &value["runs"][run]["config"];
    assert_eq!((&config(0)["alloc"], &config(0)["fill_percent"]), (&Value::Null, &60.into()));
    assert_eq!(config(1)["alloc"], "lifetime");
    assert!(value["runs"][1]["metrics"]["nand_gc_runs"].is_u64(), "{json}");
    assert_eq!(run(&["bench", "create", "--fill=96"]).code, 2, "no volume is that full");
    let err = refused(2, &["bench", "create", "--alloc=linux"]);
    assert!(err.contains("default, hot_zones, lifetime"), "{err}");
}

/// Seconds of synced data, whole runs on a simulated device: all of it to the log, all in place,
/// and as the mount measures.
fn synced_s(device: &str, trace: &std::path::Path) -> [f64; 3] {
    let log = "eager_threshold=100000,eager_stream=64M,eager_run=64M";
    [log, "eager_threshold=0", "noatime"].map(|options| {
        let trace = format!("--trace={}", trace.display());
        let (device, options) = (format!("--device={device}"), format!("-o{options}"));
        let fixed = ["bench", "replay", "--sync=eager", "--size=256", "--json=-"];
        let text = done(&[&fixed[..], &[&trace, &device, &options]].concat());
        document(&text)["runs"][0]["metrics"]["duration_s"].as_f64().unwrap()
    })
}

#[test]
fn syncs_go_where_the_measured_costs_of_the_device_say() {
    if !require("syncs_go_where_the_measured_costs_of_the_device_say", &[Need::E2fsck]) {
        return;
    }
    let dir = scratch();
    let trace = |name: &str, writes: &dyn Fn(u64) -> Vec<(u64, u64)>, syncs: u64| {
        let mut text = "fio version 2 iolog\n/f add\n/f open\n".to_owned();
        for n in 0..syncs {
            for (at, bytes) in writes(n) {
                text += &format!("/f write {at} {bytes}\n");
            }
            text += "/f sync 0 0\n";
        }
        let path = dir.path().join(name);
        std::fs::write(&path, text + "/f close\n").unwrap();
        path
    };
    // 128 pages of every fourth block, another quarter with each sync.
    let scattered = |n| (0..128).map(|page| ((page * 4 + n % 4) * 4096, 4096)).collect();
    let scattered = trace("scattered", &scattered, 32);
    let new = trace("new", &|n| vec![(n << 17, 1 << 17)], 64);
    let run = trace("run", &|n| vec![((n % 8) << 18, 1 << 18)], 64);
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.05;
    // An eMMC: an address costs more than a copy of its page; runs of 128 KiB and more go in place.
    let [log, place, measured] = synced_s("nexus7-emmc", &scattered);
    assert!(log < 0.8 * place && near(measured, log), "{log} {place} {measured}");
    let [log, place, measured] = synced_s("nexus7-emmc", &run);
    assert!(place < 0.9 * log && near(measured, place), "{log} {place} {measured}");
    // A card that merges 4 MiB for each address out of order. The first syncs pay to learn it.
    let [log, place, measured] = synced_s("sd-2012:log_blocks=1", &new);
    assert!(log < 0.5 * place && measured < 1.3 * log, "{log} {place} {measured}");
    // UFS: addresses cost nothing.
    let [log, place, measured] = synced_s("galaxy-s6-ufs", &run);
    assert!(place < 0.9 * log && near(measured, place), "{log} {place} {measured}");
}
