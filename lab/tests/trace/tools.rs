//! Importers and exporters against logs that the real tools made: times, offsets, lengths.
//!
//! The stored logs run everywhere; where a tool is installed (`make deps`), it makes one more.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use syncline_lab::trace::{
    ExportFormat, Exporter, Import, ImportOptions, Names, Op, Record, Report, Sink, TraceKind,
};
use syncline_testkit::skip;

use crate::samples::blktrace_spread;

fn import(bytes: &[u8]) -> (Vec<Record>, Report, Names) {
    let mut records = Vec::new();
    let import = Import::open(bytes, &ImportOptions::default()).unwrap();
    let (report, names) = import.run(&mut records).unwrap();
    assert_eq!((report.bad_lines, &report.cut_short), (0, &None), "{report:?}");
    (records, report, names)
}

/// Says that a tool is not there.
fn missing(test: &str, tool: &str) -> bool {
    let ran = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if ran.is_err() {
        skip(test, &format!("needs {tool}; run `make deps` as root"));
    }
    ran.is_err()
}

fn seconds(records: &[Record]) -> f64 {
    records.last().map_or(0.0, |record| record.time_ns as f64 / 1e9)
}

fn fio(dir: &Path, more: &[&str]) -> Duration {
    let begun = Instant::now();
    let mut command = Command::new("fio");
    command.current_dir(dir).args(["--name=j", "--output=out.txt"]).args(more);
    assert!(command.status().unwrap().success(), "{command:?}");
    begun.elapsed()
}

#[test]
fn a_log_of_fio_has_the_time_that_fio_took() {
    let (records, report, names) = import(include_bytes!("tools/fio-3.33.log"));
    let writes: Vec<&Record> = records.iter().filter(|r| r.op == Op::Write).collect();
    assert_eq!((report.format, writes.len()), ("fio", 64));
    assert!((1.3..1.5).contains(&seconds(&records)), "{} s", seconds(&records));
    let gap_ns = writes[1].time_ns - writes[0].time_ns;
    assert!((20_000_000..21_000_000).contains(&gap_ns), "thinktime is 20 ms: {gap_ns}");
    assert_eq!((names.get(writes[0].file), writes[0].len_bytes), ("/data/f.dat", 4096));
    assert!(records.iter().any(|r| r.op == Op::Fsync));
}

#[test]
fn fio_writes_what_is_imported_and_replays_what_is_exported() {
    if missing("fio_writes_what_is_imported_and_replays_what_is_exported", "fio") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let job = ["--filename=f", "--rw=write", "--bs=4k", "--size=40k", "--thinktime=50000"];
    let took = fio(dir.path(), &[&job[..], &["--write_iolog=log"]].concat());
    let (records, ..) = import(&std::fs::read(dir.path().join("log")).unwrap());
    assert_eq!(records.iter().filter(|r| r.op == Op::Write).count(), 10);
    let span = seconds(&records);
    assert!(span >= 0.45 && span <= took.as_secs_f64(), "{span} s of {took:?}");

    let mut names = Names::default();
    let file = names.intern("g");
    std::fs::write(dir.path().join("g"), vec![0; 64 << 10]).unwrap();
    let mut exporter = Exporter::new(Vec::new(), ExportFormat::Fio, TraceKind::Syscall);
    for n in 0..5u64 {
        let write = Record::new(n * 250_000_000, Op::Write).range(n * 4096, 4096);
        exporter.record(&names, &Record { file, ..write }).unwrap();
    }
    std::fs::write(dir.path().join("export"), exporter.finish().unwrap()).unwrap();
    fio(dir.path(), &["--read_iolog=export", "--output-format=json"]);
    let out = std::fs::read_to_string(dir.path().join("out.txt")).unwrap();
    let of = |key: &str| {
        let at = out.find("\"write\" : {").unwrap();
        let after = out[at..].split_once(key).unwrap().1;
        let digits: String = after.chars().skip(3).take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap()
    };
    assert_eq!(of("\"total_ios\""), 5);
    let ran_ms = of("\"runtime\"");
    // fio does not wait before the last one.
    assert!((700..10_000).contains(&ran_ms), "0.75 s of requests took {ran_ms} ms");
}

#[test]
fn a_log_of_strace_has_seconds_and_latencies() {
    let (records, report, names) = import(include_bytes!("tools/strace-6.1.log"));
    assert_eq!(report.format, "strace");
    let of = |op| records.iter().find(|r| r.op == op).unwrap();
    let (write, sync, read) = (of(Op::Write), of(Op::Fdatasync), of(Op::Read));
    assert_eq!((write.offset_bytes, write.len_bytes, read.len_bytes), (8192, 4096, 100));
    let slept_ns = sync.time_ns - write.time_ns;
    assert!((400_000_000..420_000_000).contains(&slept_ns), "{slept_ns}");
    assert_eq!(sync.latency_ns, Some(23_837_000));
    assert_eq!(of(Op::Truncate).size_bytes, Some(4096));
    assert_eq!(names.get(of(Op::Rename).target), "/data/b.db");
    assert_eq!(names.get(of(Op::Unlink).file), "/data/b.db");
}

#[test]
fn a_trace_of_the_kernel_has_sectors_and_latencies() {
    let (records, report, names) = import(include_bytes!("tools/tracefs-6.18.log"));
    assert_eq!(report.format, "tracefs");
    let short: Vec<_> = records
        .iter()
        .map(|r| (r.time_ns / 1_000_000, r.op, r.offset_bytes, r.len_bytes))
        .collect();
    assert_eq!(
        short,
        [
            (0, Op::Write, 65536, 4096),
            (520, Op::Write, 800 << 10, 8192),
            (522, Op::Flush, 0, 0),
            (1045, Op::Read, 65536, 4096),
        ]
    );
    assert_eq!(records[0].latency_ns, Some(1_613_000));
    assert_eq!((names.get(records[0].process_name), records[0].process), ("dd", 26397));
}

#[test]
fn blkparse_and_its_binary_input_are_the_same_requests() {
    let name = "blkparse_and_its_binary_input_are_the_same_requests";
    let (binary, ..) = import(&blktrace_spread());
    let agree = |text: &[u8]| {
        let (records, report, _) = import(text);
        assert_eq!((report.format, &records), ("blkparse", &binary));
    };
    agree(include_bytes!("tools/blkparse-1.2.txt"));
    assert_eq!((binary[1].time_ns, binary[1].latency_ns), (1_500_005_000, Some(500_000_000)));
    if missing(name, "blkparse") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let stream = dir.path().join("stream");
    std::fs::write(&stream, blktrace_spread()).unwrap();
    let input = std::fs::File::open(&stream).unwrap();
    let ran = Command::new("blkparse").args(["-i", "-"]).stdin(input).output().unwrap();
    agree(&ran.stdout);
}

#[test]
fn strace_is_imported_as_it_is_recorded() {
    let name = "strace_is_imported_as_it_is_recorded";
    if missing(name, "strace") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = "echo hello > f; sleep 0.3; sync f";
    let mut command = Command::new("strace");
    command.current_dir(dir.path()).args(["-f", "-ttt", "-y", "-T", "-o"]).arg(&log);
    let ran = command.args(["sh", "-c", script]).output().unwrap();
    if !ran.status.success() {
        return skip(name, "needs ptrace, which is not allowed here");
    }
    let (records, _, names) = import(&std::fs::read(&log).unwrap());
    let of = |op| {
        let file = |r: &&Record| r.op == op && names.get(r.file).ends_with("/f");
        records.iter().find(file).unwrap_or_else(|| panic!("no {op:?} of f"))
    };
    let (write, sync) = (of(Op::Write), of(Op::Fsync));
    assert_eq!(write.len_bytes, 6);
    assert!((0.3..10.0).contains(&((sync.time_ns - write.time_ns) as f64 / 1e9)));
}

#[test]
fn libcachesim_exports_are_imported_again() {
    let mut names = Names::default();
    let file = names.intern("a");
    let records: Vec<Record> = (0..300u64)
        .map(|n| {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            Record { file, ..Record::new(n * 500_000_000, op).range(n * 7 % 50 * 4096, 8192) }
        })
        .collect();
    let export = |format| {
        let mut exporter = Exporter::new(Vec::new(), format, TraceKind::Page);
        records.iter().for_each(|record| exporter.record(&names, record).unwrap());
        exporter.finish().unwrap()
    };
    let (csv, report, _) = import(&export(ExportFormat::LibcachesimCsv));
    assert_eq!((report.format, csv.len()), ("libcachesim-csv", 600));
    let options = ImportOptions { format: Some("oracle-general".into()), ..Default::default() };
    let mut binary: Vec<Record> = Vec::new();
    let bytes = export(ExportFormat::OracleGeneral);
    Import::open(&bytes[..], &options).unwrap().run(&mut binary).unwrap();
    let mut said = String::new();
    for (n, (csv, binary)) in csv.iter().zip(&binary).enumerate() {
        let source = &records[n / 2];
        let page = source.offset_bytes / 4096 + n as u64 % 2;
        // A file is a device of its own.
        let expected = (1, page * 4096, 4096, source.time_ns / 1_000_000_000);
        for (got, op) in [(csv, source.op), (binary, Op::Read)] {
            let time_s = got.time_ns / 1_000_000_000;
            let found = (got.device, got.offset_bytes, got.len_bytes, time_s);
            if found != expected || got.op != op {
                writeln!(said, "{n}: {got:?}, {expected:?}").unwrap();
            }
        }
    }
    assert_eq!((said.as_str(), binary.len()), ("", 600));
    let mut cut: Vec<Record> = Vec::new();
    let (report, _) = Import::open(&bytes[..100], &options).unwrap().run(&mut cut).unwrap();
    assert_eq!((cut.len(), report.cut_short.as_deref()), (4, Some("access 5 is not whole")));
}
