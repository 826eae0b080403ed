//! The trace file: what goes in comes out, and what is damaged says so.

use std::io::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use syncline_lab::LabError;
use syncline_lab::trace::{
    Flags, Header, Names, Op, Origin, ROWS_PER_BATCH, Record, Sink, TraceKind, TraceReader,
    TraceWriter,
};
use syncline_testkit::{FuzzRounds, Random};

fn header() -> Header {
    Header { kind: TraceKind::Syscall, source: "a test".into() }
}

pub fn file_of(records: &[Record], names: &Names) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    for record in records {
        writer.record(names, record).unwrap();
    }
    assert_eq!(writer.records(), records.len() as u64);
    writer.finish(names).unwrap()
}

/// The records with the texts of their names, which survive other numbers.
fn read(file: &[u8]) -> Result<Vec<(Record, [String; 3])>, LabError> {
    let mut reader = TraceReader::open(Bytes::copy_from_slice(file))?;
    let mut all = Vec::new();
    while let Some((records, names)) = reader.next_batch()? {
        all.extend(records.iter().map(|record| with_texts(record, names)));
    }
    Ok(all)
}

fn with_texts(record: &Record, names: &Names) -> (Record, [String; 3]) {
    let ids = [record.process_name, record.file, record.target];
    let texts = ids.map(|id| names.get(id).to_owned());
    let none = Default::default();
    (Record { process_name: none, file: none, target: none, ..*record }, texts)
}

fn any_record() -> impl Strategy<Value = (Record, [Option<u8>; 3])> {
    let numbers = (0..1u64 << 40, 0..1u64 << 50, 0..1u64 << 40, any::<u32>(), any::<u32>());
    let maybe = (
        proptest::option::of(0..1u64 << 40),
        proptest::option::of(-40i64..1 << 30),
        proptest::option::of(0..1u64 << 40),
    );
    let words = (0..Op::ALL.len(), 0..64u8, 0..4usize, 0..1u64 << 33);
    let names = proptest::array::uniform3(proptest::option::of(0..9u8));
    (numbers, maybe, words, names).prop_map(|(n, m, w, names)| {
        let origin = [Origin::Unknown, Origin::Journal, Origin::Metadata, Origin::Data][w.2];
        let mut record = Record::new(n.0, Op::ALL[w.0]);
        if record.op.has_range() {
            record = record.range(n.1, n.2);
        }
        record.process = n.3;
        record.thread = n.4;
        record.size_bytes = m.0;
        record.result = m.1;
        record.latency_ns = m.2;
        record.flags = Flags(w.1);
        record.origin = origin;
        record.inode = w.3;
        (record, names)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_records_come_back(list in proptest::collection::vec(any_record(), 0..300)) {
        let mut names = Names::default();
        let records: Vec<Record> = list
            .into_iter()
            .map(|(mut record, [process, file, target])| {
                let mut id = |n: Option<u8>| {
                    n.map_or_else(Default::default, |n| names.intern(&format!("/dir/näme{n}")))
                };
                record.process_name = id(process);
                record.file = id(file);
                record.target = id(target);
                record
            })
            .collect();
        let expected: Vec<_> = records.iter().map(|r| with_texts(r, &names)).collect();
        prop_assert_eq!(read(&file_of(&records, &names)).unwrap(), expected);
    }
}

#[test]
fn more_than_a_row_group_comes_back_in_order() {
    let mut names = Names::default();
    let records: Vec<Record> = (0..ROWS_PER_BATCH as u64 + 5000)
        .map(|n| Record {
            file: names.intern(&format!("/f{}", n % 700)),
            ..Record::new(n * 1000, Op::Write).range(n * 4096 % 7_000_000, 4096)
        })
        .collect();
    let file = file_of(&records, &names);
    // Time, offset and name of each, compressed: a few bytes a record.
    assert!(file.len() < records.len() * 16, "{} bytes", file.len());
    let mut reader = TraceReader::open(Bytes::from(file)).unwrap();
    assert_eq!(reader.records(), records.len() as u64);
    assert_eq!(reader.header(), &header());
    let mut back: Vec<Record> = Vec::new();
    reader.read_all(&mut back).unwrap();
    assert!(back == records, "names are numbered in the order of their first use");
    assert_eq!(reader.names().len(), 700);
}

/// Memory that a writer keeps of each row group grows with their number, so it must not be
/// that of the batches.
#[test]
fn a_row_group_has_many_batches_and_is_bounded() {
    let groups = |file: &[u8]| {
        let reader = SerializedFileReader::new(Bytes::copy_from_slice(file)).unwrap();
        reader.metadata().num_row_groups()
    };
    let plain = |n: u64| Record::new(n * 1000, Op::Write).range(n * 4096, 4096);
    let records: Vec<Record> = (0..3 * ROWS_PER_BATCH as u64).map(plain).collect();
    assert_eq!(groups(&file_of(&records, &Names::default())), 1);
    // Numbers that do not compress, 36 bytes a record: 16 MiB are three or four batches.
    let mut random = Random::new(3);
    let mut noise = || random.below(1 << 48);
    let records: Vec<Record> = (0..5 * ROWS_PER_BATCH as u64)
        .map(|n| Record {
            inode: noise(),
            latency_ns: Some(noise()),
            size_bytes: Some(noise()),
            result: Some(noise() as i64),
            ..plain(n).range(noise(), noise())
        })
        .collect();
    let file = file_of(&records, &Names::default());
    assert_eq!(groups(&file), 2, "{} bytes", file.len());
    let mut back: Vec<Record> = Vec::new();
    TraceReader::open(Bytes::from(file)).unwrap().read_all(&mut back).unwrap();
    assert!(back == records);
}

#[test]
fn a_file_cut_anywhere_says_so() {
    let records: Vec<Record> =
        (0..500).map(|n| Record::new(n, Op::Read).range(n * 512, 512)).collect();
    let file = file_of(&records, &Names::default());
    for len in (0..file.len()).step_by(37).chain([file.len() - 1]) {
        let err = read(&file[..len]).unwrap_err();
        assert!(matches!(err, LabError::Corrupt(_)), "{len}: {err:?}");
        assert!(err.to_string().contains("cut short"), "{err}");
    }
}

/// Takes what is written, as a file that another handle sees.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Vec<u8>>>);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_footer_on_the_way_makes_a_file_of_what_is_written() {
    let mut names = Names::default();
    let disk = Disk::default();
    let mut writer = TraceWriter::new(disk.clone(), &header()).unwrap();
    let mut records = Vec::new();
    for group in 0..5u64 {
        for n in group * 100..(group + 1) * 100 {
            let file = names.intern(&format!("/f{}", n % 7));
            records.push(Record { file, ..Record::new(n, Op::Write).range(n * 4096, 4096) });
            writer.record(&names, records.last().unwrap()).unwrap();
        }
        assert!(!writer.is_between_batches());
        let (place, footer) = writer.footer_so_far(&names).unwrap();
        assert!(writer.is_between_batches());
        let mut killed = disk.0.lock().unwrap().clone();
        assert_eq!(killed.len() as u64, place);
        assert!(read(&killed).is_err());
        killed.extend(footer);
        let expected: Vec<_> = records.iter().map(|r| with_texts(r, &names)).collect();
        assert_eq!(read(&killed).unwrap(), expected);
    }
    writer.lost(7);
    drop(writer.finish(&names).unwrap());
    let whole = disk.0.lock().unwrap().clone();
    assert_eq!(read(&whole).unwrap().len(), 500);
    assert_eq!(TraceReader::open(Bytes::from(whole)).unwrap().lost(), 7);
}

#[test]
fn numbers_that_cannot_be_stored_are_refused() {
    let mut writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let big = Record::new(1, Op::Write).range(i64::MAX as u64, 1);
    for record in [big, big.range(u64::MAX, 2), Record::new(u64::MAX, Op::Read)] {
        let err = writer.record(&Names::default(), &record).unwrap_err();
        assert!(err.to_string().contains("2^63"), "{err}");
    }
}

#[test]
fn words_have_one_name_each() {
    for op in Op::ALL {
        assert_eq!(Op::by_name(op.name()), Some(*op));
    }
    for kind in [TraceKind::Syscall, TraceKind::Page, TraceKind::Block] {
        assert_eq!(TraceKind::by_name(kind.name()), Some(kind));
    }
    assert_eq!((Op::by_name("?"), Origin::by_name("")), (None, None));
}

/// Mutated files: records or an error, never a panic that reaches the caller.
#[test]
fn fuzz_of_trace_files() {
    let mut names = Names::default();
    let records: Vec<Record> = (0..300)
        .map(|n| Record {
            file: names.intern(&format!("/f{}", n % 7)),
            flags: Flags((n % 16) as u8),
            ..Record::new(n * 1000, Op::Write).range(n * 4096, 4096)
        })
        .collect();
    let good = file_of(&records, &names);
    let mut random = Random::new(1);
    let (mut rounds, mut refused) = (0u64, 0u64);
    for _ in FuzzRounds::at_least(3000) {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            // The footer is where the structure is.
            let footer = bytes.len() - bytes.len().min(2500);
            let from = if random.one_in(2) { footer } else { 0 };
            let at = from + random.index(bytes.len() - from);
            bytes[at] = if random.one_in(2) {
                bytes[at] ^ (1 << random.below(8))
            } else {
                random.bits() as u8
            };
        }
        refused += u64::from(read(&bytes).is_err());
        rounds += 1;
    }
    assert!(refused > rounds / 20, "{refused} of {rounds}: damage is noticed");
}

/// Other programs see the name of the schema, so a moved module must not rename it.
#[test]
fn the_schema_keeps_its_name() {
    let writer = TraceWriter::new(Vec::new(), &header()).unwrap();
    let file = writer.finish(&Names::default()).unwrap();
    let name = b"syncline_trace";
    assert!(file.windows(name.len()).any(|bytes| bytes == name));
}
