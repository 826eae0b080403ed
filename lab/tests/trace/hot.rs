//! Update frequency and lifetimes of a trace worked by hand.

use syncline_lab::trace::{HotFile, HotFiles, HotGather, Names, Op, Record, Sink};

fn gather(names: &Names, records: &[Record]) -> HotFiles {
    let mut gather = HotGather::default();
    for record in records {
        gather.record(names, record).unwrap();
    }
    gather.finish(names)
}

fn row<'a>(found: &'a HotFiles, name: &str) -> &'a HotFile {
    found.files.iter().find(|file| file.name == name).unwrap()
}

#[test]
fn updates_and_lifetimes_by_file() {
    let mut names = Names::default();
    let [db, log, new, old] =
        ["/app.db", "/app.db-journal", "/a.tmp", "/a.xml"].map(|name| names.intern(name));
    let at = |ms: u64, op, file| Record { file, ..Record::new(ms * 1_000_000, op) };
    let mut records = Vec::new();
    for n in 0..100 {
        records.push(at(n * 100, Op::Write, log).range(0, 8192));
        records.push(at(n * 100 + 10, Op::Write, db).range(4096 * (n % 4), 4096));
        records.push(at(n * 100 + 30, Op::Unlink, log));
    }
    records.push(at(20_000, Op::Write, old).range(0, 4096));
    records.push(at(20_001, Op::Write, new).range(0, 5000));
    records.push(Record { target: old, ..at(20_011, Op::Rename, new) });
    records.push(Record { size_bytes: Some(4096), ..at(20_021, Op::Truncate, old) });
    records.push(Record { result: Some(-5), ..at(20_030, Op::Write, old).range(0, 4096) });
    let found = gather(&names, &records);
    assert_eq!(found.not_followed, 0);
    let order: Vec<_> = found.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(order, ["/app.db", "/app.db-journal", "/a.xml"]);

    let db = row(&found, "/app.db");
    assert_eq!((db.writes, db.written_bytes, db.blocks), (100, 409_600, 4));
    assert_eq!((db.updates, db.ended, db.lifetime_ms), (96, 96, Some(400.0)));
    assert_eq!(db.expected, Some("updated"));
    let log = row(&found, "/app.db-journal");
    assert_eq!((log.blocks, log.updates, log.ended), (200, 0, 200), "new blocks each time");
    assert_eq!((log.lifetime_ms, log.expected), (Some(30.0), Some("short")));
    // One block replaced after 11 ms, one of two cut off after 20 ms; the other lives.
    let xml = row(&found, "/a.xml");
    assert_eq!((xml.writes, xml.blocks, xml.ended), (2, 3, 2));
    assert_eq!((xml.lifetime_ms, xml.expected), (Some(15.5), None));
}

#[test]
fn addresses_stand_for_files_where_there_are_none() {
    let names = Names::default();
    let at = |s: u64, offset| Record::new(s * 1_000_000_000, Op::Write).range(offset, 4096);
    let far = 130 << 20;
    let found = gather(&names, &[at(0, 0), at(2, 0), at(3, far)]);
    assert_eq!(found.files.len(), 2);
    let front = row(&found, "device 0, 0 MiB to 64 MiB");
    assert_eq!((front.updates, front.lifetime_ms), (1, Some(2000.0)));
    assert_eq!(row(&found, "device 0, 128 MiB to 192 MiB").blocks, 1);
}

#[test]
fn endless_writes_are_counted_and_not_followed() {
    let mut names = Names::default();
    let file = names.intern("/big");
    let record = Record { file, ..Record::new(0, Op::Write) }.range(0, 1 << 40);
    let found = gather(&names, &[record]);
    assert_eq!(row(&found, "/big").blocks, 1 << 14);
    assert_eq!(found.not_followed, (1 << 28) - (1 << 14));
    assert_eq!(gather(&names, &[Record { file, ..Record::new(0, Op::Write) }]).files[0].blocks, 0);
}
