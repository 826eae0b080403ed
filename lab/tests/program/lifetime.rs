//! `syncline-lab lifetime`: a trace made here, figures worked out by hand, every refusal. And
//! `syncline-lab probe`: profiles, directories, files; nothing destroyed that was not meant to be.

use std::path::Path;

use crate::support::{done, refused, scratch};
use syncline_lab::trace::{Flags, Header, Names, Op, Origin, Record, Sink, TraceKind, TraceWriter};
use syncline_nand::Profile;

/// Sixteen writes of 1 MiB in order, one each 100 ms, and a flush.
fn trace(kind: TraceKind) -> Vec<u8> {
    let header = Header { kind, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let names = Names::default();
    for i in 0..16 {
        let record = Record::new(i * 100_000_000, Op::Write).range(i << 20, 1 << 20);
        writer.record(&names, &record).unwrap();
    }
    // Over the border of two units, and of no whole sector: one byte of each.
    let odd = Record::new(1_590_000_000, Op::Read).range((1 << 20) - 1, 2);
    writer.record(&names, &odd).unwrap();
    writer.record(&names, &Record::new(1_600_000_000, Op::Flush)).unwrap();
    writer.finish(&names).unwrap()
}

fn save(dir: &Path, name: &str, bytes: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_device_wakes_after_three_seconds_and_its_work_takes_energy() {
    let dir = scratch();
    let header = Header { kind: TraceKind::Block, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let names = Names::default();
    for (at, second) in [0, 2, 4, 10, 14].into_iter().enumerate() {
        let record =
            Record::new(second * 1_000_000_000, Op::Write).range((at as u64) << 20, 1 << 20);
        writer.record(&names, &record).unwrap();
    }
    let path = save(dir.path(), "pauses.trace", &writer.finish(&names).unwrap());
    let run = |device: &str| -> serde_json::Value {
        let all =
            ["lifetime", "--trace", &path, "--precondition", "0", "--json", "--device", device];
        serde_json::from_str(&done(&all)).unwrap()
    };
    let only = |what: &str| run(&format!("nexus7-emmc:read_uj=0,program_uj=0,erase_uj=0,{what}"));
    // A pause of two seconds is none, and one of six or four is one.
    let programs = only("active_mw=0,program_uj=1000");
    assert_eq!(programs["wakeups"], 2, "{programs:#}");
    let page_bytes = Profile::by_name("nexus7-emmc").unwrap().geometry.page_bytes();
    let pages = programs["programmed_bytes"].as_u64().unwrap() / page_bytes;
    let joules = programs["joules"].as_f64().unwrap();
    assert!((joules - pages as f64 / 1e3).abs() < 1e-9, "{programs:#}");
    // A watt while it works: not in the pauses.
    let busy_s = only("active_mw=1000")["joules"].as_f64().unwrap();
    assert!((0.05..2.0).contains(&busy_s), "{busy_s}");
    assert!(run("sd-2012")["joules"].is_null(), "a profile without energy");
    let table = done(&["lifetime", "--trace", &path]);
    assert!(table.contains("wake-ups") && table.contains("energy"), "{table}");
}

#[test]
fn years_follow_from_programmed_bytes() {
    let dir = scratch();
    let path = save(dir.path(), "block.trace", &trace(TraceKind::Block));
    let arguments =
        ["lifetime", "--trace", &path, "--precondition", "0", "--json", "--per-day", "1000"];
    let run = |more: &[&str]| -> serde_json::Value {
        let all: Vec<&str> = arguments.iter().chain(more).copied().collect();
        serde_json::from_str(&done(&all)).unwrap()
    };
    // Whole effective pages in order: nothing is amplified and nothing erased.
    let one = run(&["--device", "sd-2012:log_blocks=1"]);
    assert_eq!(one["schema"], "syncline.lifetime/1");
    assert_eq!((&one["size_bytes"], &one["erases"]), (&(64 << 20).into(), &0.into()));
    assert_eq!(one["written_bytes"], 16 << 20);
    assert_eq!(one["programmed_bytes"], 16 << 20);
    // 64 MiB and 7 % are 18 superblocks of 4 MiB, and 4 for logs and merging.
    let used = one["lifetime"]["cycles_used"].as_f64().unwrap();
    assert!((used - 4.0 / 22.0).abs() < 1e-9, "{one:#}");
    let years = one["lifetime"]["years_even"].as_f64().unwrap();
    let expected = 3000.0 / used * 86.4 / 31_557_600.0;
    assert!((years / expected - 1.0).abs() < 1e-9, "{one:#}");
    // Again: four superblocks are replaced; the last switch merge comes with the next pass.
    let two = run(&["--device", "sd-2012:log_blocks=1", "--passes", "2"]);
    assert_eq!((&two["erases"], &two["merges"]["switch"]), (&3.into(), &3.into()), "{two:#}");
    let many = run(&["--device", "sd-2012:log_blocks=1,rated_cycles=6000"]);
    let twice = many["lifetime"]["years_even"].as_f64().unwrap();
    assert!((twice / years - 2.0).abs() < 1e-9);
    assert!(one["lifetime"]["years_worst"].is_null(), "nothing was erased: {one:#}");
    let table = done(&[&arguments[..5], &arguments[6..]].concat());
    assert!(table.contains("nexus7-emmc, 64 MiB") && table.contains(" until 3000"), "{table}");
    assert!(table.contains("s of this device, 1000 times a day the flash of nexus7"), "{table}");
    assert!(!table.contains("until the first block"), "{table}");
}

#[test]
fn seconds_give_no_verdict_of_days() {
    let dir = scratch();
    let path = save(dir.path(), "block.trace", &trace(TraceKind::Block));
    let run = |more: &[&str]| {
        let all = [&["lifetime", "--trace", &path, "--precondition", "0"][..], more].concat();
        done(&all)
    };
    let table = run(&["--device", "sd-2012"]);
    assert!(table.contains("No time follows from a trace of ") && table.contains("--per-day 20"));
    assert!(!table.contains(" until ") && !table.contains("lasts"), "{table}");
    let json: serde_json::Value = serde_json::from_str(&run(&["--json"])).unwrap();
    assert!(json["lifetime"]["years_even"].is_null(), "{json:#}");
    assert!(json["lifetime"]["cycles_used"].is_f64() && json["load"].is_string(), "{json:#}");
    assert!(json["summary"].as_str().unwrap().starts_with("No time follows"), "{json:#}");
    // More often than the device can.
    let often = ["lifetime", "--trace", &path, "--device", "sd-2012", "--per-day", "100000"];
    assert!(refused(2, &often).contains("s for the trace; give at most"));
    refused(2, &["lifetime", "--trace", &path, "--per-day=-1"]);
    refused(2, &["lifetime", "--trace", &path, "--per-day", "nan"]);
    // A probe does not tell how often a block can be erased.
    let profile = done(&["devices", "nexus7-emmc"]);
    let fitted = profile.replace("fitted = [", "fitted = [\n  \"not determined: rated_cycles\",");
    let card = save(dir.path(), "card.toml", fitted.as_bytes());
    let said = run(&["--device", &card, "--per-day", "20"]);
    assert!(said.contains("a probe does not tell the rated cycles"), "{said}");
    let given = run(&["--device", &format!("{card}:rated_cycles=3000"), "--per-day", "20"]);
    assert!(given.contains("lasts"), "{given}");
}

/// Half an hour, most of it pauses: it repeats as it is, and the pauses count.
#[test]
fn a_long_trace_repeats_with_the_pauses_it_has() {
    let dir = scratch();
    let of = |seconds: u64| {
        let header = Header { kind: TraceKind::Block, source: "test".into() };
        let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
        let names = Names::default();
        for n in 0..9 {
            let write = Record::new(n * 200_000_000_000, Op::Write).range(n << 20, 1 << 20);
            writer.record(&names, &write).unwrap();
        }
        writer.lasted(seconds * 1_000_000_000);
        save(dir.path(), &format!("{seconds}.trace"), &writer.finish(&names).unwrap())
    };
    let json = |path: &str, passes: &str| -> serde_json::Value {
        let words = ["lifetime", "--device", "sd-2012:log_blocks=1", "--precondition", "0"];
        let more = ["--json", "--trace", path, "--passes", passes];
        serde_json::from_str(&done(&[&words[..], &more].concat())).unwrap()
    };
    let long = of(1800);
    for passes in [1.0, 2.0] {
        let found = json(&long, &passes.to_string());
        assert_eq!(found["duration_s"], 1800.0 * passes, "{found:#}");
        let used = found["lifetime"]["cycles_used"].as_f64().unwrap();
        let expected = 3000.0 / used * 1800.0 * passes / 31_557_600.0;
        let years = found["lifetime"]["years_even"].as_f64().unwrap();
        assert!((years / expected - 1.0).abs() < 1e-9, "{expected}: {found:#}");
    }
    let said = done(&["lifetime", "--trace", &long, "--device", "sd-2012"]);
    let load = format!("With {long}, 1800.0 s of this device, again and again, with the pauses it");
    assert!(said.contains(&load) && said.contains(" lasts "), "{said}");
    assert!(json(&of(1799), "1")["lifetime"]["years_even"].is_null(), "below half an hour");
}

#[test]
fn what_is_no_block_trace_is_refused() {
    let dir = scratch();
    let calls = save(dir.path(), "calls.trace", &trace(TraceKind::Syscall));
    let said = refused(4, &["lifetime", "--trace", &calls]);
    assert!(said.contains("a syscall trace has no places on a device"), "{said}");
    let text = save(dir.path(), "text.trace", b"no trace at all");
    refused(3, &["lifetime", "--trace", &text]);
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    let said = refused(1, &["lifetime", "--trace", &missing]);
    assert!(said.contains("check the path"), "{said}");
    refused(2, &["lifetime", "--trace", &calls, "--device", "nokia"]);
}

#[test]
fn processes_and_files_get_their_share() {
    let dir = scratch();
    let header = Header { kind: TraceKind::Block, source: "test".into() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    let mut names = Names::default();
    let (db, log) = (names.intern("app.db"), names.intern("logger"));
    for i in 0..32u64 {
        // One process writes in order, the other the same megabyte again and again.
        let mut record = Record::new(i * 1_000_000, Op::Write).range(i << 20, 1 << 20);
        (record.process, record.process_name, record.inode) = (7, log, 12);
        (record.origin, record.flags) = (Origin::Data, Flags::SYNC);
        if i % 2 == 1 {
            record = record.range(40 << 20, 1 << 20);
            (record.process, record.process_name, record.file) = (8, db, db);
            record.inode = 0;
        }
        writer.record(&names, &record).unwrap();
    }
    let path = save(dir.path(), "two.trace", &writer.finish(&names).unwrap());
    let arguments = ["lifetime", "--trace", &path, "--precondition", "0", "--per-day", "20"];
    let table = done(&arguments);
    assert!(table.contains("logger (7)") && table.contains("app.db (8)"), "{table}");
    let end = table.lines().last().unwrap();
    assert!(
        end.contains("20 times a day the flash of nexus7-emmc")
            && end.contains("logger wears it most"),
        "{end}"
    );
    assert!(end.contains("; of files 12, 50 %") && end.contains("100 % is data"), "{end}");
    assert!(
        table.contains("erases p1 / p25 / p50 / p75 / p99") && table.contains("rated cycles used")
    );
    let json = done(&[&arguments[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let total = |list: &str, key: &str| {
        let rows = json[list].as_array().unwrap();
        rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>()
    };
    for list in ["processes", "files"] {
        assert_eq!(json[list].as_array().unwrap().len(), 2, "{json:#}");
        assert_eq!(total(list, "written_bytes"), 32 << 20);
        assert_eq!(total(list, "programmed_bytes"), json["programmed_bytes"].as_u64().unwrap());
    }
    assert_eq!(json["erases_per_block"]["p50"], 0);
    assert_eq!(json["origins"]["synced_data"], json["programmed_bytes"]);
    assert_eq!(json["summary"], end);
}

/// Short tests.
const QUICK: [&str; 5] =
    ["--size=8M", "--requests=8", "--bytes=128K", "--seconds=1", "--sustain=1M"];

#[test]
fn a_profile_is_probed_and_fitted() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (json, html, fit) = (at("a.json"), at("a.html"), at("card.toml"));
    let first = ["probe", "sd-2012", "--json", &json, "--html", &html, "--fit", &fit];
    let table = done(&[&first[..], &QUICK, &["--tries=40"]].concat());
    assert!(table.contains("virtual time") && table.contains("fitted avg us"), "{table}");
    let document: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["schema"], "syncline.probe/1");
    assert!(document["fit"]["evaluations"].as_u64().unwrap() <= 40, "{document:#}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("sequential-read"));
    // The fitted profile is one, and its probe gives what the document says.
    let again = done(&[&["probe", fit.as_str(), "--json", "-"][..], &QUICK].concat());
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    let fitted = document["fit"]["figures"].as_array().unwrap();
    for (fitted, figure) in fitted.iter().zip(again["figures"].as_array().unwrap()) {
        assert_eq!(fitted["fitted_us"], figure["latency_us_mean"], "{}", fitted["name"]);
    }
    let said = refused(2, &["probe", "sd-2102"]);
    assert!(said.contains("nearest: sd-2012"), "{said}");
    let said = refused(2, &["probe", "sd-2012", "--destroy", "--destroy"]);
    assert!(said.contains("leave --destroy out"), "{said}");
    let said = refused(2, &["probe", "sd-2012", "--fit", "card.json"]);
    assert!(said.contains("ends in .toml"), "{said}");
    let said = refused(2, &["probe", "sd-2012", "--size=1M"]);
    assert!(said.contains("larger --size"), "{said}");
}

#[test]
fn a_directory_is_left_as_it_was() {
    let dir = scratch();
    let target = dir.path().to_str().unwrap();
    let table = done(&[&["probe", target][..], &QUICK].concat());
    assert!(table.contains("real time") && table.contains("sync-4k"), "{table}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let said = refused(2, &["probe", target, "--destroy"]);
    assert!(said.contains("leave --destroy out"), "{said}");
    let said = refused(2, &["probe", target, "--precondition=50"]);
    assert!(said.contains("leave --precondition out"), "{said}");
    let missing = format!("{target}/missing");
    assert!(refused(1, &["probe", &missing]).contains("check the path"));
}

#[test]
fn a_file_is_overwritten_only_when_asked_twice() {
    let dir = scratch();
    let bytes: Vec<u8> = (0..9u32 << 20).map(|i| (i >> 9) as u8).collect();
    let path = save(dir.path(), "card.img", &bytes);
    let table = done(&[&["probe", path.as_str()][..], &QUICK].concat());
    assert!(table.contains("only read") && !table.contains("sync-4k"), "{table}");
    assert!(std::fs::read(&path).unwrap() == bytes);
    let said = refused(2, &["probe", &path, "--destroy"]);
    assert!(said.contains("give --destroy twice"), "{said}");
    assert!(std::fs::read(&path).unwrap() == bytes);
    let said = refused(2, &[&["probe", path.as_str(), "--fit=a.toml"][..], &QUICK].concat());
    assert!(said.contains("a fit needs reads and writes"), "{said}");
    let table = done(&[&["probe", path.as_str(), "--destroy", "--destroy"][..], &QUICK].concat());
    assert!(table.contains("sync-4k"), "{table}");
    let now = std::fs::read(&path).unwrap();
    assert!(now.len() == bytes.len() && now[..8 << 20] != bytes[..8 << 20]);
    assert!(now[8 << 20..] == bytes[8 << 20..], "nothing behind the region");
}
