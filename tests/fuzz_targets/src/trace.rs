//! Traces of others, for each importer.

use syncline_lab::LabError;
use syncline_lab::trace::{FORMATS, Import, ImportOptions, Record};

use crate::bytes::Bytes;

/// An input is a byte that names a format or none, one of options, and the trace.
pub(crate) fn feed(bytes: &[u8]) {
    let mut front = Bytes::new(bytes);
    let (format, how) = (usize::from(front.u8()), front.u8());
    let mut options = ImportOptions { drop_repeats: how % 2 == 1, ..ImportOptions::default() };
    // Half of the time the content tells.
    options.format = (format >= 128).then(|| FORMATS[format % FORMATS.len()].name.into());
    if how % 8 == 7 {
        options.columns = Some("time_s,op,offset_sectors,len_bytes,file".into());
    }
    let mut records: Vec<Record> = Vec::new();
    let done = Import::open(front.rest(), &options).and_then(|import| import.run(&mut records));
    let Ok::<_, LabError>((report, _)) = done else { return };
    assert_eq!(report.records, records.len() as u64);
    assert!(records.iter().all(|record| record.check().is_ok()), "a record against the rules");
    assert!(records.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns), "out of order");
}
