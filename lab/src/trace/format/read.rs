//! Reads a trace file, a batch of records at a time.
//!
//! A file is somebody's: whatever its bytes say, the answer is records or an error. The Parquet
//! library checks most of what it reads, not all; what it gives up on with a panic is caught here
//! and is the same error as any damage.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader};
use parquet::file::serialized_reader::SerializedFileReader;

use super::{
    COLUMNS, Field, KEY_DURATION, KEY_KIND, KEY_LOST, KEY_SOURCE, KEY_START, KEY_VERSION, VERSION,
    failed,
};
use crate::error::{LabError, Result};
use crate::trace::model::{Flags, Header, NameId, Names, Op, Record, Sink, TraceKind};

/// Records that are decoded at once.
const BATCH: usize = 8192;

/// Reads a trace file. `R` is a [`super::TraceBytes`] or `bytes::Bytes`.
pub struct TraceReader<R: ChunkReader> {
    file: SerializedFileReader<R>,
    header: Header,
    names: Names,
    /// Columns of ours that the file has: place in [`COLUMNS`], place in the file.
    places: Vec<(usize, usize)>,
    /// The next row group.
    group: usize,
    open: Vec<(usize, ColumnReader)>,
    batch: Vec<Record>,
}

impl<R: ChunkReader + 'static> TraceReader<R> {
    /// Opens a file: reads its footer.
    pub fn open(bytes: R) -> Result<TraceReader<R>> {
        let file = guard(|| SerializedFileReader::new(bytes))?;
        let metadata = file.metadata();
        let header = header(metadata)?;
        let places = places(metadata)?;
        Ok(TraceReader {
            file,
            header,
            names: Names::default(),
            places,
            group: 0,
            open: Vec::new(),
            batch: Vec::new(),
        })
    }

    /// Description of the trace.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Records of the file, as its footer says.
    pub fn records(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Records that were lost while the trace was recorded.
    pub fn lost(&self) -> u64 {
        self.said(KEY_LOST).unwrap_or(0)
    }

    /// When time zero was, nanoseconds since 1970; none if nobody said it.
    pub fn started(&self) -> Option<u64> {
        self.said(KEY_START)
    }

    /// Time that was recorded, ns; none if nobody said it.
    pub fn duration_ns(&self) -> Option<u64> {
        self.said(KEY_DURATION)
    }

    fn said(&self, key: &str) -> Option<u64> {
        value(self.file.metadata(), key).and_then(|number| number.parse().ok())
    }

    /// The names of the records read so far.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The names, after the last record.
    pub fn into_names(self) -> Names {
        self.names
    }

    /// The next records with their names; none at the end.
    pub fn next_batch(&mut self) -> Result<Option<(&[Record], &Names)>> {
        loop {
            if self.open.is_empty() && !self.open_group()? {
                return Ok(None);
            }
            self.batch.clear();
            for (at, column) in &mut self.open {
                let field = &COLUMNS[*at].field;
                guard(AssertUnwindSafe(|| {
                    Ok(read(column, field, &mut self.batch, &mut self.names))
                }))??;
            }
            if !self.batch.is_empty() {
                return Ok(Some((&self.batch, &self.names)));
            }
            self.open.clear();
        }
    }

    /// Passes every record on.
    pub fn read_all(&mut self, sink: &mut dyn Sink) -> Result<()> {
        while let Some((records, names)) = self.next_batch()? {
            for record in records {
                sink.record(names, record)?;
            }
        }
        Ok(())
    }

    /// Opens the columns of the next row group; false after the last.
    fn open_group(&mut self) -> Result<bool> {
        if self.group >= self.file.num_row_groups() {
            return Ok(false);
        }
        let (file, at) = (&self.file, self.group);
        let places = &self.places;
        self.open = guard(AssertUnwindSafe(|| {
            let group = file.get_row_group(at)?;
            places
                .iter()
                .map(|(ours, theirs)| Ok((*ours, group.get_column_reader(*theirs)?)))
                .collect()
        }))?;
        self.group += 1;
        Ok(true)
    }
}

/// Calls the Parquet library. A panic of it is damage of the file.
fn guard<T>(call: impl FnOnce() -> parquet::errors::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(done) => done.map_err(failed),
        Err(_) => Err(failed(ParquetError::General("its pages contradict each other".into()))),
    }
}

/// One of the file's own keys.
fn value<'m>(metadata: &'m ParquetMetaData, key: &str) -> Option<&'m str> {
    let keys = metadata.file_metadata().key_value_metadata()?;
    keys.iter().find(|entry| entry.key == key)?.value.as_deref()
}

fn header(metadata: &ParquetMetaData) -> Result<Header> {
    let value = |key: &str| value(metadata, key);
    let foreign = || {
        LabError::Unsupported(
            "this Parquet file is not a trace of ours; export it as CSV and import that with \
             --columns"
                .into(),
        )
    };
    match value(KEY_VERSION) {
        Some(VERSION) => {}
        Some(other) => {
            let text = format!("trace format {other} is newer than this program; update it");
            return Err(LabError::Unsupported(text));
        }
        None => return Err(foreign()),
    }
    let kind = value(KEY_KIND).and_then(TraceKind::by_name).ok_or_else(foreign)?;
    Ok(Header { kind, source: value(KEY_SOURCE).unwrap_or_default().to_owned() })
}

/// Pairs our columns with those of the file. `time_ns` and `op` are required.
fn places(metadata: &ParquetMetaData) -> Result<Vec<(usize, usize)>> {
    let schema = metadata.file_metadata().schema_descr();
    let mut places = Vec::new();
    for (ours, column) in COLUMNS.iter().enumerate() {
        let theirs = schema.columns().iter().position(|c| c.path().string() == column.name);
        let Some(theirs) = theirs else {
            if ours < 2 {
                let text = format!("the trace has no column {}; make it again", column.name);
                return Err(LabError::Corrupt(text));
            }
            continue;
        };
        let found = schema.column(theirs);
        if found.physical_type() != column.field.physical() || found.max_rep_level() != 0 {
            let text =
                format!("column {} of the trace has another type; make it again", column.name);
            return Err(LabError::Corrupt(text));
        }
        places.push((ours, theirs));
    }
    Ok(places)
}

/// Reads the next values of a column into the records; the first column makes the records.
fn read(
    column: &mut ColumnReader,
    field: &Field,
    batch: &mut Vec<Record>,
    names: &mut Names,
) -> Result<()> {
    match (column, field) {
        (ColumnReader::Int64ColumnReader(column), Field::Number(_, set)) => {
            values(column, batch, |record, value| {
                u64::try_from(value).map(|value| set(record, value)).is_ok()
            })
        }
        (ColumnReader::Int64ColumnReader(column), Field::Signed(_, set)) => {
            values(column, batch, |record, value| {
                set(record, value);
                true
            })
        }
        (ColumnReader::ByteArrayColumnReader(column), Field::Word(_, set)) => {
            values(column, batch, |record, value: ByteArray| {
                value.as_utf8().is_ok_and(|word| set(record, word))
            })
        }
        (ColumnReader::ByteArrayColumnReader(column), Field::Name(_, set)) => {
            // Rows in sequence often have the same name: compare before looking it up.
            let mut last = (ByteArray::from(""), NameId::NONE);
            values(column, batch, |record, value: ByteArray| {
                if value.data() != last.0.data() {
                    let id = names.intern(&String::from_utf8_lossy(value.data()));
                    last = (value, id);
                }
                set(record, last.1);
                true
            })
        }
        (ColumnReader::BoolColumnReader(column), Field::Flag(flag)) => {
            values(column, batch, |record, value| {
                record.flags = record.flags.with(if value { *flag } else { Flags::NONE });
                true
            })
        }
        _ => Err(LabError::Corrupt("a column of the trace has another type; make it again".into())),
    }
}

fn values<T: DataType>(
    column: &mut parquet::column::reader::ColumnReaderImpl<T>,
    batch: &mut Vec<Record>,
    mut set: impl FnMut(&mut Record, T::T) -> bool,
) -> Result<()> {
    let (mut levels, mut found) = (Vec::new(), Vec::new());
    let first = batch.is_empty();
    let want = if first { BATCH } else { batch.len() };
    let (rows, ..) =
        column.read_records(want, Some(&mut levels), None, &mut found).map_err(failed)?;
    let bad = || {
        LabError::Corrupt(
            "the columns of the trace do not fit together or hold an unknown value; make it again \
             from its source"
                .into(),
        )
    };
    if first {
        batch.resize(rows, Record::new(0, Op::Stat));
    }
    // A column that may not be null has no levels.
    let levels = if levels.is_empty() { vec![1; found.len()] } else { levels };
    if rows != batch.len() || levels.len() != rows {
        return Err(bad());
    }
    let mut found = found.into_iter();
    for (record, level) in batch.iter_mut().zip(&levels) {
        if *level == 0 {
            continue;
        }
        let value = found.next().ok_or_else(bad)?;
        if !set(record, value) {
            return Err(bad());
        }
    }
    Ok(())
}
