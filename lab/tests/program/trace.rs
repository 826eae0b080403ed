//! `trace`: through the lab, with files.

mod mount;
mod watch;

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::support;
use crate::support::{done, file, refused, run, scratch};
use serde_json::Value;
use syncline_cache::WriteBack;
use syncline_lab::evaluate::{Configuration, Evaluation};
use syncline_lab::reproduce::Mix;
use syncline_lab::trace::{NameId, Op, Origin, Record, TraceReader};

const SPC: &str = "0,8,4096,W,0.5\n0,16,4096,W,0.6\n0,8,4096,R,1.5\n";

fn args<'a>(words: &[&'a str], paths: &[&'a Path]) -> Vec<&'a OsStr> {
    let words = words.iter().map(|word| OsStr::new(*word));
    words.chain(paths.iter().map(|path| path.as_os_str())).collect()
}

#[test]
fn records_are_parted_by_device_program_and_day() {
    let dir = scratch();
    // 23:59:59.5 and later of the first day of 2026.
    let text = file(dir.path(), "disk.csv", SPC);
    let out = dir.path().join("records");
    let words = [
        "trace",
        "import",
        "--to=parquet",
        "--device-name=phone/17",
        "--app=mail",
        "--start=1767311999",
        "-o",
    ];
    let said = "3 block records of spc in 2 files, 0 bad lines, 0 events passed over, 0 repeats \
                dropped\n";
    for _ in 0..2 {
        assert_eq!(done(&args(&words, &[&out, &text])), said);
    }
    let app = out.join("device_name=phone%2F17").join("app=mail");
    for (day, records) in [("2026-01-01", 2), ("2026-01-02", 1)] {
        let day = app.join(format!("day={day}"));
        let names: Vec<_> = std::fs::read_dir(&day).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(names, [day.join("part-disk-0.parquet")]);
        let stat = done(&args(&["trace", "stat"], &[&names[0]]));
        assert!(stat.starts_with(&format!("block trace of spc: {records} records")), "{stat}");
    }
    let absent = dir.path().join("absent.csv");
    let none = dir.path().join("none");
    refused(1, &args(&words, &[&none, &absent]));
    assert!(!none.exists());
    let below_a_file = text.join("records");
    let said = refused(1, &args(&words, &[&below_a_file, &text]));
    assert!(said.contains(below_a_file.to_str().unwrap()), "{said}");
}

#[test]
fn a_trace_goes_in_and_out_and_is_measured() {
    let dir = scratch();
    let text = file(dir.path(), "disk.csv", SPC);
    let (ours, csv) = (dir.path().join("disk.trace"), dir.path().join("again.csv"));
    let said = done(&args(&["trace", "import", "--output"], &[&ours, &text]));
    assert_eq!(
        said,
        "3 block records of spc, 0 bad lines, 0 events passed over, 0 repeats dropped\n"
    );
    assert_eq!(done(&args(&["trace", "export", "--to=blkparse-csv", "-o"], &[&csv, &ours])), "");
    let csv_text = std::fs::read_to_string(&csv).unwrap();
    assert!(csv_text.ends_with("1.000000000,0,0,,R,R,8,8,0\n"), "{csv_text}");
    let html = dir.path().join("page.html");
    let page = format!("--html={}", html.display());
    let table = done(&args(&["trace", "stat", &page], &[&ours]));
    assert!(table.starts_with("block trace of spc: 3 records in 1.0 s"), "{table}");
    assert!(std::fs::read_to_string(&html).unwrap().contains("<figure"));
    // The same figures from all three.
    for path in [&ours, &csv, &text] {
        let json = done(&args(&["trace", "stat", "--json=-"], &[path]));
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["schema"], "syncline.trace-stat/1");
        assert_eq!(value["statistics"]["write"]["bytes"], 8192);
        assert_eq!(value["statistics"]["write"]["sequential_bytes"], 4096);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "no temporary file is left");
}

#[test]
fn what_cannot_be_read_is_said_and_leaves_nothing() {
    let dir = scratch();
    let out = dir.path().join("out.trace");
    let bad = file(dir.path(), "bad.csv", &format!("{SPC}0,8,4096,Z,2.5\n0,16,4096,W,9"));
    let ran = run(&args(&["trace", "import", "--output"], &[&out, &bad]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("1 lines could not be parsed as spc records"), "{ran:?}");
    assert!(ran.err.contains("line 4: `Z` is no operation"), "{ran:?}");
    std::fs::remove_file(&out).unwrap();
    let err = refused(3, &args(&["trace", "import", "--strict", "--output"], &[&out, &bad]));
    assert!(err.contains("line 4"), "{err}");
    let noise = file(dir.path(), "noise", "hello\n");
    refused(4, &args(&["trace", "stat"], &[&noise]));
    refused(2, &args(&["trace", "stat", "--format=nonsense"], &[&bad]));
    refused(2, &args(&["trace", "export", "--to=nonsense", "-o"], &[&out, &bad]));
    refused(1, &args(&["trace", "stat"], &[&dir.path().join("none")]));
    assert!(!out.exists());

    // A file of ours without its end.
    let good = file(dir.path(), "good.csv", SPC);
    done(&args(&["trace", "import", "--output"], &[&out, &good]));
    let bytes = std::fs::read(&out).unwrap();
    std::fs::write(&out, &bytes[..bytes.len() - 9]).unwrap();
    let err = refused(3, &args(&["trace", "stat"], &[&out]));
    assert!(err.contains("cut short"), "{err}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "no temporary file is left");
}

/// The import is under way, since it has read what the pipe does not hold, when Ctrl-C comes.
#[test]
fn an_interrupted_import_leaves_nothing() {
    let dir = scratch();
    let out = dir.path().join("out.trace");
    let mut import = support::lab();
    import.args(args(&["trace", "import", "--format=spc", "-o"], &[&out, Path::new("/dev/stdin")]));
    import.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut import = import.spawn().unwrap();
    let mut pipe = import.stdin.take().unwrap();
    // One more row group than is kept in memory; a pipe holds a hundredth of that.
    for n in 0..2 * syncline_lab::trace::ROWS_PER_BATCH {
        writeln!(pipe, "0,{n},4096,W,{}.5", n / 1000).unwrap();
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file");
    assert!(!out.exists());
    let pid = rustix::process::Pid::from_child(&import);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    // It ends although nothing more comes.
    let output = import.wait_with_output().unwrap();
    drop(pipe);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; run the command again"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn a_program_is_recorded_through_strace() {
    let traced = std::process::Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        syncline_testkit::skip(
            "a_program_is_recorded_through_strace",
            "needs strace, allowed to trace; install strace",
        );
        return;
    }
    let dir = scratch();
    let (out, data) = (dir.path().join("dd.trace"), dir.path().join("data"));
    let to = format!("of={}", data.display());
    let dd = ["dd", "if=/dev/zero", &to, "bs=4096", "count=5", "conv=fsync", "status=none"];
    let mut all = args(&["trace", "record", "-o"], &[&out]);
    all.push(OsStr::new("--"));
    all.extend(dd.iter().map(OsStr::new));
    let ran = run(&all);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.text().contains("syscall records of strace"), "{ran:?}");
    let json = done(&args(&["trace", "stat", "--json=-"], &[&out]));
    let value: Value = serde_json::from_str(&json).unwrap();
    let files = value["statistics"]["most_written"].as_array().unwrap();
    assert_eq!(files[0]["name"], data.display().to_string());
    assert_eq!(
        (&files[0]["written_bytes"], &files[0]["sync_bytes"]),
        (&20480.into(), &20480.into())
    );
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "no temporary file is left");
}

#[test]
fn hot_files_are_shown() {
    let dir = scratch();
    let text = file(dir.path(), "disk.csv", SPC);
    let shown = done(&args(&["trace", "hot"], &[&text]));
    let row: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["device", "0,", "0", "MiB"], "{shown}");
    assert_eq!(row[7..], ["2", "0.01", "2", "0", "0.0", "-", "-"], "{shown}");
    assert!(shown.ends_with("1 of 1 files, by their writes\n"), "{shown}");
    let json = done(&args(&["trace", "hot", "--top=0", "--json=-"], &[&text]));
    let value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "syncline.trace-hot/1");
    assert_eq!(
        (value["files"].as_u64(), value["most_written"].as_array().unwrap().len()),
        (Some(1), 0)
    );
}

#[test]
fn block_requests_get_files_and_processes_of_the_calls() {
    let dir = scratch();
    let sample = |kind: &str| {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../samples");
        format!("{samples}/rlbench.{kind}.trace")
    };
    let (calls, blocks) = (sample("calls"), sample("blocks"));
    let out = dir.path().join("named.trace").to_str().unwrap().to_owned();
    let said = done(&["trace", "join", &calls, &blocks, "-o", &out]);
    assert_eq!(said, "1234 of 1256 block requests have a file\n");
    let records = |path: &str| {
        let mut reader = TraceReader::open(File::open(path).unwrap()).unwrap();
        let mut list = Vec::new();
        while let Some((records, names)) = reader.next_batch().unwrap() {
            let line = |r: &Record| {
                let named = (names.get(r.file).to_owned(), names.get(r.process_name).to_owned());
                (named, Record { file: NameId::NONE, process_name: NameId::NONE, ..*r })
            };
            list.extend(records.iter().map(line));
        }
        list
    };
    // The samples have them already; nothing else of a request changes.
    let (before, after) = (records(&blocks), records(&out));
    assert_eq!(before, after);
    let wal = after.iter().filter(|((file, _), r)| file == "/rl.db-wal" && r.op == Op::Write);
    assert!(wal.clone().count() > 400);
    for origin in [Origin::Data, Origin::Journal] {
        let of = wal.clone().find(|(_, record)| record.origin == origin).unwrap();
        assert_eq!((of.0.1.as_str(), of.1.process), ("python3", 19482));
    }

    let out = dir.path().join("none").to_str().unwrap().to_owned();
    let said = refused(2, &["trace", "join", &blocks, &calls, "-o", &out]);
    assert!(said.contains("block trace; give the syscall trace first"), "{said}");
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_mix_is_a_trace_with_the_counts_of_the_paper() {
    let dir = scratch();
    let path = dir.path().join("w1.trace");
    let said = done(&args(&["trace", "mix", "w1", "-o"], &[&path]));
    assert_eq!(said, "23666 page reads and 47350 page writes\n");
    let words = ["cache", "--policy=lru", "--size=4M", "--json=-", "--trace"];
    let found: Value = serde_json::from_str(&done(&args(&words, &[&path]))).unwrap();
    // As the rows of `reproduce` take it from memory.
    let pages = Mix::by_name("w1").unwrap().pages(1).unwrap();
    let policy = syncline_cache::entry("lru").unwrap();
    let write_back = WriteBack::Lazy;
    let configuration = Configuration { policy, pages: 1024, write_back, fsync: false };
    let evaluation = Evaluation { trace: &pages, next_uses: &[], merge_pages: 1 };
    let counts = evaluation.run(&configuration, None, &mut |_| true).unwrap().unwrap().counts;
    let run = &found["runs"][0];
    assert_eq!([&run["hits"], &run["write_runs"]], [counts.hits, counts.write_runs], "{run}");
    let none = dir.path().join("w4.trace");
    let said = refused(2, &args(&["trace", "mix", "w4", "-o"], &[&none]));
    assert!(said.contains("w1, w2, w3"), "{said}");
    assert!(!none.exists());
}
