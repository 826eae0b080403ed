//! Importers: what each makes of its sample, what they say of damage, and mutated inputs.

use std::io::{BufReader, Read, Write};

use syncline_lab::LabError;
use syncline_lab::trace::{
    ExportFormat, Exporter, FORMATS, Flags, Import, ImportOptions, Names, Op, Record, Report, Sink,
    TraceKind,
};
use syncline_testkit::{FuzzRounds, Random};

use crate::samples::{TEXTS, blktrace};

type Imported = Result<(Vec<Record>, Report, Names), LabError>;

fn import_with(bytes: &[u8], options: &ImportOptions) -> Imported {
    let mut records = Vec::new();
    let (report, names) = Import::open(bytes, options)?.run(&mut records)?;
    assert_eq!(report.records, records.len() as u64);
    Ok((records, report, names))
}

fn import(bytes: &[u8]) -> (Vec<Record>, Report, Names) {
    import_with(bytes, &ImportOptions::default()).unwrap()
}

fn sample(name: &str) -> (Vec<Record>, Report, Names) {
    let (_, text) = TEXTS.iter().find(|(known, _)| *known == name).unwrap();
    import(text.as_bytes())
}

/// Milliseconds, operation, file or empty, offset, length.
fn short(records: &[Record], names: &Names) -> Vec<(u64, &'static str, String, u64, u64)> {
    let one = |r: &Record| {
        let file = names.get(r.file).to_owned();
        (r.time_ns / 1_000_000, r.op.name(), file, r.offset_bytes, r.len_bytes)
    };
    records.iter().map(one).collect()
}

fn expect(name: &str, expected: &[(u64, &'static str, &str, u64, u64)]) {
    let (records, report, names) = sample(name);
    let expected: Vec<_> =
        expected.iter().map(|(t, op, f, o, l)| (*t, *op, (*f).to_owned(), *o, *l)).collect();
    assert_eq!(short(&records, &names), expected, "{name}");
    assert_eq!(report.bad_lines, u64::from(name == "systor"), "{name}: {report:?}");
}

/// A write, a read, a command without blocks, a flush and a discard, as VMware records them.
fn vscsi(version: u16) -> Vec<u8> {
    let commands =
        [(0x2Au16, 512u32, 7u64), (0x88, 4096, 8), (0x12, 36, 0), (0x35, 0, 0), (0x42, 24, 0)];
    let mut bytes = Vec::new();
    for (n, (command, len, sector)) in (0u32..).zip(commands) {
        let [command, marked] = [command, version << 8].map(u16::to_le_bytes);
        let [serial, len, segments] = [n, len, 1].map(u32::to_le_bytes);
        let [sector, time, more] =
            [sector, 5_000_000 + 1500 * u64::from(n), 77].map(u64::to_le_bytes);
        match version {
            1 => bytes.extend([&serial[..], &len, &segments, &command, &marked].concat()),
            _ => bytes.extend([&command[..], &marked, &serial, &len, &segments].concat()),
        }
        bytes.extend([sector, time].concat());
        bytes.extend(&more[..if version == 1 { 0 } else { 8 }]);
    }
    bytes
}

#[test]
fn commands_of_both_versions_of_vscsi_are_requests() {
    for version in [1, 2] {
        let bytes = vscsi(version);
        let (records, report, names) = import(&bytes);
        let expected = [(0, "write", 3584, 512), (1, "read", 4096, 4096), (4, "flush", 0, 0)];
        let expected = expected.map(|(t, op, at, len)| (t, op, String::new(), at, len));
        assert_eq!(short(&records, &names), expected, "{version}");
        assert_eq!((report.passed_over, report.bad_lines, report.cut_short), (2, 0, None));
        // Cut within a command, and a damaged one.
        let (_, report, _) = import(&bytes[..bytes.len() - 5]);
        assert_eq!(report.cut_short.as_deref(), Some("command 5 is not whole"));
        let mut damaged = bytes.clone();
        let at = bytes.len() / 5 * 2 + if version == 1 { 15 } else { 3 };
        damaged[at] ^= 0x40;
        assert_eq!(import(&damaged).1.bad_lines, 1);
    }
}

#[test]
fn every_format_is_told_by_its_content() {
    for (name, text) in TEXTS {
        assert_eq!(import(text.as_bytes()).1.format, name);
    }
    assert_eq!(import(&blktrace()).1.format, "blktrace");
    assert_eq!(import(&vscsi(1)).1.format, "vscsi");
    assert_eq!(import(&vscsi(2)).1.format, "vscsi");
    // The binary ones are no texts; one of them has no mark.
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(names.len(), TEXTS.len() + 3, "{names:?}: each has a sample");
}

#[test]
fn logs_of_requests_become_bytes_and_nanoseconds() {
    expect("msr", &[(0, "read", "", 383_496_192, 32768), (1332, "write", "", 2_822_144, 4096)]);
    expect(
        "spc",
        &[(0, "write", "", 20_941_264 * 512, 8192), (2, "read", "", 20_939_840 * 512, 8192)],
    );
    expect(
        "alibaba",
        &[
            (0, "read", "", 126_703_644_672, 4096),
            (500, "write", "", 8192, 12288),
            (2000, "read", "", 512, 1024),
        ],
    );
    expect(
        "tencent",
        &[
            (0, "read", "", 12_910_952 * 512, 65536),
            (0, "write", "", 6_338_688 * 512, 4096),
            (2000, "read", "", 1_904_106_400 * 512, 196_608),
        ],
    );
    expect("systor", &[(0, "read", "", 4096, 512), (500, "write", "", 8192, 1024)]);
    expect("diskmon", &[(0, "write", "", 79153 * 512, 4096), (48_724_996, "read", "", 51200, 512)]);
    expect(
        "pixel6a",
        &[
            (0, "read", "", 29_880_920 * 512, 8192),
            (85, "write", "", 30_175_712 * 512, 4096),
            (86, "write", "", 30_175_712 * 512, 4096),
            (2_721_797, "write", "", 19_652_704 * 512, 4096),
        ],
    );
    expect("nexus5", &[(0, "write", "", 4096, 4096), (0, "read", "", 8192, 8192)]);
    expect("cloudphysics", &[(0, "write", "", 3584, 512), (2000, "read", "", 4096, 4096)]);
    expect("wiscsee", &[(0, "read", "", 299_008, 4096), (0, "write", "", 8192, 4096)]);
    expect(
        "mqsim",
        &[(0, "write", "", 264_719_034 * 512, 8192), (0, "read", "", 197_570_570 * 512, 8192)],
    );
    expect("blkparse-csv", &[(0, "write", "", 4096, 8192)]);
    expect(
        "lirs",
        &[(0, "read", "", 4096, 4096), (0, "read", "", 8192, 4096), (0, "read", "", 4096, 4096)],
    );
    expect(
        "libcachesim-csv",
        &[
            (0, "write", "", 3 * 4096, 4096),
            (1000, "read", "", 3 * 4096, 4096),
            (3000, "read", "", 1000 * 4096, 4096),
        ],
    );
    let (records, report, names) = sample("pixel6a");
    // "Crashlytics Exc-12345", cut by the set's own extraction.
    assert_eq!((report.bad_lines, names.get(records[3].process_name)), (0, "Crashlytics"));
    assert_eq!((records[1].process, names.get(records[1].process_name)), (225, "kworker/4:1H"));
    assert_eq!(records[1].time_ns, 85_840_999);
    assert!(sample("wiscsee").0[1].flags.has(Flags::SYNC));
    assert_eq!(sample("msr").0[0].latency_ns, Some(41_300));
}

#[test]
fn block_traces_have_marks_and_latencies() {
    for (records, latency_ns) in [
        (sample("blkparse").0, 250_000),
        (import(&blktrace()).0, 4000),
        (sample("tracefs").0, 1_000_000),
    ] {
        let write = records.iter().find(|r| r.op == Op::Write).unwrap();
        assert_eq!((write.latency_ns, write.len_bytes), (Some(latency_ns), 4096));
        assert!(write.flags.has(Flags::SYNC) && write.process == 697);
    }
    let (records, ..) = sample("tracefs");
    assert!(records[0].flags.has(Flags::PREFLUSH.with(Flags::FUA)));
    assert_eq!((records[1].op, records[1].latency_ns), (Op::Flush, None));
    let (records, report, _) = sample("blkparse");
    let ops: Vec<Op> = records.iter().map(|r| r.op).collect();
    assert_eq!((ops, report.passed_over), (vec![Op::Write, Op::Flush, Op::Read], 3));
    let (records, report, names) = import(&blktrace());
    assert!(records[0].flags.has(Flags::FUA));
    assert_eq!(names.get(records[0].process_name), "sqlite3");
    assert_eq!((records.len(), report.cut_short), (2, None));
    let swapped = import(&blktrace()[..150]);
    assert_eq!(swapped.1.cut_short.as_deref(), Some("event 3 is not whole"));
}

#[test]
fn strace_follows_offsets_threads_and_names() {
    expect(
        "strace",
        &[
            (0, "present", "/home/u/d/a.db", 0, 0),
            (0, "stat", "/home/u/d/a.db", 0, 0),
            (0, "open", "/home/u/d/a.db", 0, 0),
            (1, "read", "/home/u/d/a.db", 0, 100),
            (2, "write", "/home/u/d/a.db", 100, 28),
            (4, "write", "/home/u/d/a.db", 8192, 4096),
            (5, "create", "/home/u/new", 0, 0),
            (6, "fdatasync", "/home/u/d/a.db", 0, 0),
            (6, "write", "/home/u/new", 0, 5),
            (7, "write", "/home/u/new", 5, 5),
            (7, "unlink", "/home/u/none", 0, 0),
            (8, "rename", "/home/u/new", 0, 0),
            (8, "open", "/home/u/old", 0, 0),
            (8, "truncate", "/home/u/old", 0, 0),
            (8, "close", "/home/u/old", 0, 0),
        ],
    );
    let (records, _, names) = sample("strace");
    let of = |op| records.iter().find(|r| r.op == op).unwrap();
    assert_eq!(of(Op::Present).size_bytes, Some(8192));
    let sync = of(Op::Fdatasync);
    assert_eq!((sync.process, sync.thread, sync.latency_ns), (10, 11, Some(14_000_000)));
    assert_eq!(names.get(sync.process_name), "app");
    assert_eq!(names.get(of(Op::Rename).target), "/home/u/old");
    assert_eq!(of(Op::Unlink).result, Some(-2));
    assert_eq!(of(Op::Truncate).size_bytes, Some(0));
}

#[test]
fn phones_logs_get_paths_and_order() {
    let options = ImportOptions {
        preopen: Some("[/proc]\n/data/user/0/app/b.db\t77\t100\nsocket\t5\t0\n".into()),
        ..ImportOptions::default()
    };
    let text = TEXTS.iter().find(|(name, _)| *name == "android-ext4").unwrap().1;
    let (records, report, names) = import_with(text.as_bytes(), &options).unwrap();
    let expected = [
        (0, "present", "/data/data/app/b.db", 0, 0),
        (0, "create", "/data/data/app/new", 0, 0),
        (0, "open", "/data/data/app/new", 0, 0),
        (0, "write", "/data/data/app/new", 0, 3994),
        (0, "fdatasync", "/data/data/app/new", 0, 0),
        (20, "rename", "/data/data/app/new", 0, 0),
        (27, "write", "/data/data/app/old", 10, 20),
        (37, "write", "/data/data/app/b.db", 0, 20),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(t, op, f, o, l)| (*t, *op, (*f).to_owned(), *o, *l)).collect();
    assert_eq!(short(&records, &names), expected);
    assert_eq!((report.passed_over, report.bad_lines), (1, 0), "the cgroup is no storage");

    let (records, report, names) = sample("mobigen");
    let found = short(&records, &names);
    assert_eq!(found[0].2, "/data/a.db#40", "a path is told apart by its descriptor");
    let ops: Vec<&str> = found.iter().map(|r| r.1).collect();
    assert_eq!(ops, ["create", "write", "write", "fsync", "close", "unlink"]);
    assert_eq!(report.passed_over, 4, "the pipe, and a read that failed");
    assert_eq!((found[1].3, found[1].4, found[2].3), (4096, 1024, 0));
}

#[test]
fn events_of_ext4_are_calls_on_files_that_were_listed_or_made() {
    expect(
        "ext4",
        &[
            (0, "create", "/d/inode-12", 0, 0),
            // Two parts of one write, and another process's.
            (1, "write", "/d/inode-12", 2048, 3048),
            (2, "write", "/d/inode-12", 5096, 10),
            (3, "fdatasync", "/d/inode-12", 0, 0),
            (4, "present", "/d/a b", 0, 0),
            (4, "write", "/d/a b", 0, 4096),
            (5, "fsync", "/d/a b", 0, 0),
            (6, "truncate", "/d/a b", 0, 0),
            (7, "fallocate", "/d/a b", 0, 1 << 20),
            (8, "mkdir", "/inode-2050", 0, 0),
            (9, "unlink", "/d/inode-12", 0, 0),
            (10, "rmdir", "/inode-2050", 0, 0),
            (11, "sync", "", 0, 0),
        ],
    );
    let (records, report, names) = sample("ext4");
    let sizes: Vec<_> = records.iter().filter_map(|record| record.size_bytes).collect();
    assert_eq!(sizes, [9000, 5000]);
    // Another directory's file, a hole, lost events, the truncation of a removed file, a name that
    // is not the last one, and the sync that does not wait.
    assert_eq!(report.passed_over, 6);
    assert_eq!(names.get(records[1].process_name), "kworker/0:1 [x]");
}

#[test]
fn fio_logs_of_both_versions() {
    expect(
        "fio",
        &[
            (0, "open", "/data/a", 0, 0),
            (1, "write", "/data/a", 4096, 8192),
            (4, "read", "/data/a", 0, 512),
            (4, "fdatasync", "/data/a", 0, 0),
            (5, "close", "/data/a", 0, 0),
        ],
    );
    let text = b"fio version 2 iolog\nf add\nf write 0 512\nf wait 2000\nf sync\n";
    let (records, ..) = import(text);
    assert_eq!((records[0].op, records[1].time_ns), (Op::Write, 2_000_000));
}

#[test]
fn columns_describe_what_is_not_known() {
    let with =
        |columns: &str| ImportOptions { columns: Some(columns.into()), ..Default::default() };
    let text = b"when;x;what;lba;n\n1.5;?;R;10;8\n2.5;?;1;11;8\n";
    let (records, report, _) =
        import_with(text, &with("time_s,-,op,offset_sectors,len_sectors")).unwrap();
    assert_eq!((report.bad_lines, report.format), (0, "columns"));
    assert_eq!((records[1].time_ns, records[1].op), (1_000_000_000, Op::Write));
    assert_eq!((records[1].offset_bytes, records[1].len_bytes), (5632, 4096));
    for (bad, says) in
        [("time_s,op", "no offset"), ("time_h", "is no column"), ("", "is no column")]
    {
        let err = import_with(text, &with(bad)).unwrap_err();
        assert!(matches!(&err, LabError::Usage(text) if text.contains(says)), "{err}");
    }
}

#[test]
fn bad_lines_are_counted_shown_or_refused() {
    let text = "0,8,512,W,0.5\n0,8,512,Q,0.5\nnonsense\n0,16,512,R,0.6\n0,24,512,R,0.7\n";
    let (records, report, _) = import(text.as_bytes());
    assert_eq!((records.len(), report.bad_lines, report.cut_short), (3, 2, None));
    let lines: Vec<u64> = report.first_bad.iter().map(|bad| bad.0).collect();
    assert_eq!((lines, report.first_bad[0].2.as_str()), (vec![2, 3], "`Q` is no operation"));
    let strict = ImportOptions { strict: true, ..ImportOptions::default() };
    let err = import_with(text.as_bytes(), &strict).unwrap_err().to_string();
    assert!(err.starts_with("line 2: `Q` is no operation; "), "{err}");
}

#[test]
fn repeats_are_dropped_on_request() {
    let options = ImportOptions { drop_repeats: true, ..ImportOptions::default() };
    let text = TEXTS.iter().find(|(name, _)| *name == "pixel6a").unwrap().1;
    let (records, report, _) = import_with(text.as_bytes(), &options).unwrap();
    assert_eq!((records.len(), report.repeats), (3, 1));
}

#[test]
fn compressed_and_cut_inputs_are_read_as_far_as_they_go() {
    let mut text = String::new();
    for n in 0..50_000u64 {
        text += &format!("0,{},4096,W,{}.5\n", n * 7919 % 1_000_003, n);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    for bytes in [&gzip, &zstd] {
        let (records, report, _) = import(bytes);
        assert_eq!((records.len(), &report.cut_short), (50_000, &None));
        let (records, report, _) = import(&bytes[..bytes.len() * 2 / 3]);
        assert!(records.len() > 1000 && records.len() < 50_000, "{}", records.len());
        assert!(report.cut_short.is_some_and(|why| why.contains("ends early")));
    }
    let (records, report, _) = import(&text.as_bytes()[..text.len() - 8]);
    assert_eq!(records.len(), 49_999);
    assert_eq!(report.cut_short.as_deref(), Some("the last line, 50000, is not whole"));
    assert_eq!(report.bad_lines, 0);
}

#[test]
fn what_is_no_trace_is_refused_with_the_next_step() {
    for bytes in [&b""[..], b"hello\nworld\n", &[0xff; 100], b"\x1f\x8b"] {
        let err = import_with(bytes, &ImportOptions::default()).unwrap_err().to_string();
        assert!(err.contains("; "), "{err}");
    }
    let unknown = ImportOptions { format: Some("msrx".into()), ..ImportOptions::default() };
    let err = import_with(b"1\n", &unknown).unwrap_err().to_string();
    assert!(err.contains("choose of blktrace, vscsi, fio"), "{err}");
}

#[test]
fn threads_that_log_late_are_put_in_order() {
    let mut text = String::from("time_s,device,process,process_name,op,rwbs,sector,sectors,sync\n");
    for n in 0..20_000u64 {
        // Every tenth line is a second late.
        let time = if n % 10 == 9 { 999 + n } else { 1000 + n };
        text += &format!("{time}.0,0,1,a,R,R,{n},8,0\n");
    }
    let (records, ..) = import(text.as_bytes());
    assert!(records.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
    assert_eq!(records.len(), 20_000);
}

/// An endless input in small pieces, to see that memory does not grow with it.
struct Endless(u64);

impl Read for Endless {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0 += 1;
        if self.0 > 300_000 {
            return Ok(0);
        }
        let line = format!("0,{},4096,W,{}.5\n", self.0 % 1000, self.0);
        into[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

#[test]
fn records_leave_while_lines_come_in() {
    struct Last(u64, u64);
    impl syncline_lab::trace::Sink for Last {
        fn record(&mut self, _: &Names, record: &Record) -> Result<(), LabError> {
            self.0 += 1;
            self.1 = record.time_ns;
            if self.0 == 200_000 { Err(LabError::Interrupted) } else { Ok(()) }
        }
    }
    let mut sink = Last(0, 0);
    let import = Import::open(BufReader::new(Endless(0)), &ImportOptions::default()).unwrap();
    assert_eq!(import.header().kind, TraceKind::Block);
    assert!(matches!(import.run(&mut sink), Err(LabError::Interrupted)));
    assert_eq!(sink.1, 199_999 * 1_000_000_000);
}

/// Mutated inputs of every format, as themselves and as any other.
#[test]
fn fuzz_of_every_importer() {
    let mut samples: Vec<Vec<u8>> =
        TEXTS.iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
    samples.extend([blktrace(), vscsi(1), vscsi(2)]);
    samples.push(vec![1; 240]);
    samples.push(zstd::encode_all(TEXTS[4].1.as_bytes(), 1).unwrap());
    let mut random = Random::new(7);
    let mut good = 0u64;
    for _ in FuzzRounds::at_least(3000) {
        let mut bytes = samples[random.index(samples.len())].clone();
        for _ in 0..random.below(4) {
            let at = random.index(bytes.len());
            match random.below(5) {
                0 => bytes[at] = random.bits() as u8,
                1 => bytes[at] ^= 1 << random.below(8),
                2 => bytes.truncate(at.max(1)),
                3 => {
                    // A large number, or a mark, in the middle.
                    let text = ["99999999999999999999", "-1", "\"", "<", "1e308", "\n", ",", " "];
                    bytes.splice(at..at, text[random.index(text.len())].bytes());
                }
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.extend(piece);
                }
            }
        }
        let mut options = ImportOptions { drop_repeats: random.one_in(2), ..Default::default() };
        if random.one_in(3) {
            options.format = Some(FORMATS[random.index(FORMATS.len())].name.into());
        }
        if random.one_in(9) {
            options.columns = Some("time_s,op,offset_sectors,len_bytes,file".into());
        }
        if let Ok((records, ..)) = import_with(&bytes, &options) {
            good += 1;
            assert!(records.iter().all(|record| record.check().is_ok()));
            assert!(records.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
        }
    }
    assert!(good > 50, "{good} inputs were imported: the mutations are too wild");
}

/// Lines of strace for one write each, with these stamps.
fn strace(stamps: &[&str]) -> String {
    let line = |(n, stamp): (usize, &&str)| {
        format!("7 {stamp} pwrite64(3</d/a>, \"x\"..., 4096, {}) = 4096 <0.000001>\n", n * 4096)
    };
    stamps.iter().enumerate().map(line).collect()
}

fn times_ms(text: &str) -> Vec<u64> {
    import(text.as_bytes()).0.iter().map(|record| record.time_ns / 1_000_000).collect()
}

#[test]
fn times_since_the_line_before_are_added_up() {
    let absolute = strace(&["1700000000.1", "1700000001.1", "1700000001.2", "1700000004.0"]);
    assert_eq!(times_ms(&absolute), [0, 1000, 1100, 3900]);
    assert_eq!(times_ms(&strace(&["0.000000", "1.000", "0.100000", "2.8"])), [0, 1000, 1100, 3900]);
    let both = ["1700000000.1 (+     0.0)", "1700000001.1 (+     1.0)"];
    assert_eq!(times_ms(&strace(&both)), [0, 1000]);
    // The line on which a call goes on counts, and the call begins where it began.
    let resumed = "7 0.5 fsync(3</d/a> <unfinished ...>\n8 1.0 close(9) = 0\n\
                   7 0.5 <... fsync resumed>) = 0 <1.5>\n8 1.0 fsync(4</d/b>) = 0\n";
    assert_eq!(times_ms(resumed), [0, 2500]);
}

#[test]
fn what_is_mostly_unreadable_is_refused_with_the_first_reason() {
    let day = strace(&["12:34:56.123456", "12:34:57.000000", "12:34:57", "23:59:59.1"]);
    let err = import_with(day.as_bytes(), &ImportOptions::default()).unwrap_err();
    assert!(matches!(&err, LabError::Unsupported(text) if text.contains("-ttt")), "{err}");
    let named = |text: &str, format: &str| {
        let options = ImportOptions { format: Some(format.to_owned()), ..Default::default() };
        import_with(text.as_bytes(), &options).unwrap_err()
    };
    let err = named(&day, "strace");
    assert!(matches!(&err, LabError::Corrupt(text) if text.contains("-ttt")), "{err}");
    for (text, format) in [
        ("0, 4096, 512\n1, 8192, 512\n", "fio"),
        ("time,obj_id,obj_size,op\n0,x,4096,read\n0,y,4096,read\n", "libcachesim-csv"),
        ("fio version 2 iolog\n/d write a b\n/d write c d\n/d read 0 512\n", "fio"),
    ] {
        let err = named(text, format);
        assert!(matches!(&err, LabError::Corrupt(text) if text.contains("line ")), "{err}");
    }
    // As many as are read: a header, a comment.
    let (records, report, _) = import(b"fio version 2 iolog\n/d write a b\n/d read 0 512\n");
    assert_eq!((records.len(), report.bad_lines), (1, 1));
}

/// Files are told apart after a trace went out and came in again.
#[test]
fn exported_files_stay_apart() {
    let mut names = Names::default();
    let records: Vec<Record> = (0..600u64)
        .map(|n| {
            let file = names.intern(&format!("/f{n}"));
            Record { file, ..Record::new(n * 1_000_000_000, Op::Write).range(n % 7 * 4096, 4096) }
        })
        .collect();
    let export = |format, kind| {
        let mut exporter = Exporter::new(Vec::new(), format, kind);
        records.iter().for_each(|record| exporter.record(&names, record).unwrap());
        exporter.finish().unwrap()
    };
    for format in [ExportFormat::LibcachesimCsv, ExportFormat::BlkparseCsv] {
        let (back, report, _) = import(&export(format, TraceKind::Page));
        assert_eq!((back.len(), report.bad_lines), (600, 0), "{format:?}");
        for (n, (record, before)) in (0u32..).zip(back.iter().zip(&records)) {
            assert_eq!((record.device, record.offset_bytes), (n + 1, before.offset_bytes));
        }
        // In a trace of requests a name is a remark: addresses are the device's.
        let (back, ..) = import(&export(format, TraceKind::Block));
        assert!(back.iter().all(|record| record.device == 0), "{format:?}");
    }
    let options =
        ImportOptions { format: Some("oracle-general".to_owned()), ..ImportOptions::default() };
    let binary = export(ExportFormat::OracleGeneral, TraceKind::Page);
    let (back, ..) = import_with(&binary, &options).unwrap();
    assert!(back.iter().zip(1..).all(|(record, n)| record.device == n));
}
