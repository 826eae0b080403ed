//! Statistics of small traces, worked by hand, and exports.

use syncline_lab::trace::{
    ExportFormat, Exporter, Flags, Gather, Import, ImportOptions, Names, Op, Record, Sink,
    Statistics, TraceKind,
};

fn gather(names: &Names, records: &[Record]) -> Statistics {
    let mut gather = Gather::new(TraceKind::Syscall);
    for record in records {
        gather.record(names, record).unwrap();
    }
    gather.finish(names)
}

fn export(format: ExportFormat, names: &Names, records: &[Record]) -> Vec<u8> {
    let mut exporter = Exporter::new(Vec::new(), format, TraceKind::Page);
    for record in records {
        exporter.record(names, record).unwrap();
    }
    exporter.finish().unwrap()
}

#[test]
fn addresses_of_requests_are_the_devices_whatever_their_files() {
    let mut names = Names::default();
    let (a, b) = (names.intern("/a"), names.intern("/b"));
    let at = |file, offset| Record { file, ..Record::new(0, Op::Write).range(offset, 4096) };
    // Two files, one after the other on the device; then the first page again.
    let records = [at(a, 4096), at(b, 8192), at(a, 4096)];
    let of = |kind| {
        let mut gather = Gather::new(kind);
        for record in &records {
            gather.record(&names, record).unwrap();
        }
        gather.finish(&names)
    };
    let (device, files) = (of(TraceKind::Block), of(TraceKind::Syscall));
    assert_eq!((device.write.sequential_bytes, files.write.sequential_bytes), (4096, 0));
    assert_eq!(device.reuse_distance_pages.counts, [0, 1]);
    assert_eq!((device.first_accesses, device.files), (2, 2));
}

#[test]
fn a_small_trace_worked_by_hand() {
    let mut names = Names::default();
    let (a, b, app) = (names.intern("/a"), names.intern("/b"), names.intern("app"));
    let at = |ms: u64, op, file| Record {
        file,
        process: 5,
        process_name: app,
        ..Record::new(ms * 1_000_000, op)
    };
    let records = [
        at(0, Op::Create, a),
        at(0, Op::Write, a).range(0, 4096),
        at(10, Op::Write, a).range(4096, 65536),
        at(20, Op::Fsync, a),
        at(30, Op::Write, b).range(8192, 1000),
        at(40, Op::Read, a).range(0, 100),
        at(50, Op::Write, a).range(0, 4096),
        Record { result: Some(-5), ..at(60, Op::Write, a).range(0, 4096) },
        Record { flags: Flags::SYNC, ..at(2000, Op::Write, b).range(0, 24) },
    ];
    let found = gather(&names, &records);
    assert_eq!((found.records, found.duration_s, found.files), (9, 2.0, 2));
    assert_eq!((found.read.calls, found.read.bytes, found.read.sequential_bytes), (1, 100, 0));
    assert_eq!((found.write.calls, found.write.bytes), (5, 74_752));
    assert_eq!(found.write.sequential_bytes, 65536);
    assert_eq!((found.sync_calls, found.failed_calls, found.sync_bytes), (1, 1, 69_656));
    // 69,632 bytes are one burst of 136 sectors.
    assert!((found.sequential_ratio - 69_632.0 / 74_752.0).abs() < 1e-12);
    assert_eq!(found.calls, [("read", 1), ("write", 6), ("create", 1), ("fsync", 1)]);
    let process = &found.processes[0];
    assert_eq!((process.name.as_str(), process.written_bytes), ("app (5)", 74_752));
    let files: Vec<_> =
        found.most_written.iter().map(|f| (f.name.as_str(), f.sync_bytes, f.sync_calls)).collect();
    assert_eq!(files, [("/a", 69_632, 1), ("/b", 24, 0)]);
    // Page 0 of /a again after 17 others (0 to 16 of /a, 2 of /b), then at once.
    assert_eq!(found.reuse_distance_pages.counts, [1, 0, 0, 0, 0, 1]);
    assert_eq!(found.update_interval_ms.counts, [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!((found.first_accesses, found.followed_one_in), (19, 1));
}

#[test]
fn exports_are_what_the_other_programs_read() {
    let mut names = Names::default();
    let name = names.intern("a b,c");
    let records = [
        Record {
            process: 7,
            process_name: name,
            flags: Flags::SYNC.with(Flags::FUA),
            ..Record::new(1_500_000_000, Op::Write).range(4096, 8192)
        },
        Record::new(2_000_000_000, Op::Flush),
        Record::new(2_500_000_000, Op::Read).range(8192, 512),
    ];
    let text = |format| String::from_utf8(export(format, &names, &records)).unwrap();
    assert_eq!(
        text(ExportFormat::BlkparseCsv),
        "time_s,device,process,process_name,op,rwbs,sector,sectors,sync\n\
         1.500000000,0,7,a b_c,W,WFS,8,16,1\n2.000000000,0,0,,F,F,0,0,0\n\
         2.500000000,0,0,,R,R,16,1,0\n"
    );
    assert_eq!(
        text(ExportFormat::Fio),
        "fio version 3 iolog\n1500000 /dev/replayed add\n1500000 /dev/replayed open\n\
         1500000 /dev/replayed write 4096 8192\n2000000 /dev/replayed sync\n\
         2500000 /dev/replayed read 8192 512\n"
    );
    assert_eq!(
        text(ExportFormat::LibcachesimCsv),
        "time,obj_id,obj_size,op\n1,1,4096,write\n1,2,4096,write\n2,2,4096,read\n"
    );
    let binary = export(ExportFormat::OracleGeneral, &names, &records);
    let access = |n: usize| {
        let bytes = &binary[n * 24..(n + 1) * 24];
        let id = u64::from_le_bytes(bytes[4..12].try_into().unwrap());
        (id, i64::from_le_bytes(bytes[16..].try_into().unwrap()))
    };
    assert_eq!((binary.len(), access(0), access(1), access(2)), (72, (1, -1), (2, 2), (2, -1)));
    assert_eq!(binary[..4], [1, 0, 0, 0]);
    assert_eq!(binary[12..16], [0, 16, 0, 0]);
    let err = ExportFormat::by_name("csv").unwrap_err().to_string();
    assert!(err.ends_with("choose of fio, blkparse-csv, libcachesim-csv, oracle-general"), "{err}");
}

#[test]
fn pages_of_two_devices_are_different_pages() {
    let on = |device| Record { device, ..Record::new(0, Op::Read).range(0, 4096) };
    let text =
        export(ExportFormat::LibcachesimCsv, &Names::default(), &[on(9), on(5), on(9), on(5)]);
    let text = String::from_utf8(text).unwrap();
    let ids: Vec<_> = text.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(ids, ["0", "4294967296", "0", "4294967296"]);
}

#[test]
fn pages_of_files_stay_apart_in_an_export_of_requests() {
    let mut names = Names::default();
    let (a, b) = (names.intern("/a"), names.intern("/b"));
    let at = |file, op, offset, len| Record { file, ..Record::new(0, op).range(offset, len) };
    // The last one ends in a sector of the next page.
    let records = [
        at(a, Op::Write, 0, 4096),
        at(b, Op::Write, 0, 4096),
        at(a, Op::Read, 0, 4096),
        at(b, Op::Write, 4000, 200),
    ];
    let text = export(ExportFormat::BlkparseCsv, &names, &records);
    let mut back = Vec::new();
    Import::open(&text[..], &ImportOptions::default()).unwrap().run(&mut back).unwrap();
    let pages = |kind, names: &Names, records: &[Record]| {
        let mut gather = Gather::new(kind);
        records.iter().for_each(|record| gather.record(names, record).unwrap());
        let found = gather.finish(names);
        (found.first_accesses, found.reuse_distance_pages.counts)
    };
    let (first, reuse) = pages(TraceKind::Page, &names, &records);
    assert_eq!((first, pages(TraceKind::Block, &Names::default(), &back).0), (3, 3));
    assert_eq!(pages(TraceKind::Block, &Names::default(), &back).1, reuse);
}

#[test]
fn an_export_is_imported_again() {
    let names = Names::default();
    let records: Vec<Record> = (0..500u64)
        .map(|n| Record {
            flags: Flags::when(n % 3 == 0, Flags::SYNC),
            process: 4,
            ..Record::new(n * 1_000_000, if n % 2 == 0 { Op::Write } else { Op::Read })
                .range(n * 7 % 90 * 512, 4096)
        })
        .collect();
    let text = export(ExportFormat::BlkparseCsv, &names, &records);
    let mut back = Vec::new();
    Import::open(&text[..], &ImportOptions::default()).unwrap().run(&mut back).unwrap();
    assert!(back == records);
}
