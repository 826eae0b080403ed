//! Writes a trace file, a row group at a time (`group.rs`).
//!
//! ```text
//!   group 0 | group 1 | group 2 | footer          TraceWriter::footer_so_far
//!                               | group 3 ...     the next group goes over it
//! ```
//!
//! A recorder may be killed at any time. With a footer behind what is written so far its file is
//! whole, but for the moment in which the next group is on its way.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::TrackedWrite;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor};
use rustc_hash::FxHashMap;

use super::group::{Group, Spare};
use super::index::Index;
use super::{
    COLUMNS, Field, KEY_DURATION, KEY_KIND, KEY_LOST, KEY_SOURCE, KEY_START, KEY_VERSION, MAGIC,
    ROWS_PER_BATCH, VERSION, failed, schema,
};
use crate::error::{LabError, Result};
use crate::trace::model::{Header, NameId, Names, Record, Sink};

const CREATED_BY: &str = concat!("syncline ", env!("CARGO_PKG_VERSION"));

/// Writes records to a trace file. Without [`TraceWriter::finish`] the file has no footer and no
/// reader takes it: write under another name and rename.
pub struct TraceWriter<W: Write + Send> {
    file: TrackedWrite<W>,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    keys: Vec<KeyValue>,
    /// The row groups that are in the file.
    index: Index,
    /// Encoded records that are not in the file yet.
    group: Option<Group>,
    spare: Spare,
    pending: Vec<Record>,
    columns: Buffers,
    records: u64,
}

/// Values of one column on their way, kept to be used again.
#[derive(Default)]
struct Buffers {
    levels: Vec<i16>,
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    bits: Vec<bool>,
    /// Bytes of the names seen in this batch, shared between the rows.
    names: FxHashMap<NameId, ByteArray>,
}

impl<W: Write + Send> TraceWriter<W> {
    /// Begins a file.
    pub fn new(out: W, header: &Header) -> Result<TraceWriter<W>> {
        let level = ZstdLevel::try_new(3).map_err(failed)?;
        let keys = [
            (KEY_VERSION, VERSION),
            (KEY_KIND, header.kind.name()),
            (KEY_SOURCE, header.source.as_str()),
        ];
        let keys = keys.map(|(key, value)| KeyValue::new(key.to_owned(), value.to_owned()));
        let keys = keys.to_vec();
        let properties = WriterProperties::builder()
            .set_created_by(CREATED_BY.to_owned())
            .set_compression(Compression::ZSTD(level))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .build();
        let schema = Arc::new(SchemaDescriptor::new(schema()?));
        let mut file = TrackedWrite::new(out);
        file.write_all(MAGIC).map_err(LabError::io("trace file"))?;
        Ok(TraceWriter {
            file,
            index: Index::new(Arc::clone(&schema)),
            schema,
            properties: Arc::new(properties),
            keys,
            spare: Spare::default(),
            group: None,
            pending: Vec::new(),
            columns: Buffers::default(),
            records: 0,
        })
    }

    /// Records taken so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// True if no record waits to be encoded: the names so far are not needed any more.
    pub fn is_between_batches(&self) -> bool {
        self.pending.is_empty()
    }

    /// Says in the file how many records were lost while it was recorded.
    pub fn lost(&mut self, records: u64) {
        self.say(KEY_LOST, records);
    }

    /// Says in the file when time zero was, nanoseconds since 1970.
    pub fn started(&mut self, unix_ns: u64) {
        self.say(KEY_START, unix_ns);
    }

    /// Says in the file how long was recorded: nothing may have happened at the end.
    pub fn lasted(&mut self, duration_ns: u64) {
        self.say(KEY_DURATION, duration_ns);
    }

    fn say(&mut self, key: &str, number: u64) {
        self.keys.retain(|known| known.key != key);
        self.keys.push(KeyValue::new(key.to_owned(), number.to_string()));
    }

    /// Ends the row group, however short it is, and passes all groups on to what is written to.
    /// Gives the place behind them, and the footer that makes a file of them: to be written there
    /// beside the writer, whose next group goes to the same place.
    pub fn footer_so_far(&mut self, names: &Names) -> Result<(u64, Vec<u8>)> {
        self.end_group(names)?;
        self.file.flush().map_err(LabError::io("trace file"))?;
        Ok((self.file.bytes_written() as u64, self.footer()?))
    }

    /// Completes the file, and returns the stream.
    pub fn finish(mut self, names: &Names) -> Result<W> {
        self.end_group(names)?;
        // Room for the footer.
        self.spare.lock().clear();
        let footer = self.footer()?;
        self.file.write_all(&footer).map_err(LabError::io("trace file"))?;
        self.file.into_inner().map_err(failed)
    }

    fn footer(&self) -> Result<Vec<u8>> {
        self.index.footer(&self.properties, self.keys.clone()).map_err(failed)
    }

    /// Encodes the records that wait.
    fn encode(&mut self, names: &Names) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let new = || Group::new(&self.schema, &self.properties, &self.spare);
        let group = self.group.get_or_insert_with(new);
        for (column, writer) in COLUMNS.iter().zip(group.columns(self.pending.len())) {
            self.columns.fill(&column.field, &self.pending, names);
            self.columns.write(writer).map_err(failed)?;
        }
        self.pending.clear();
        self.columns.names.clear();
        Ok(())
    }

    fn end_group(&mut self, names: &Names) -> Result<()> {
        self.encode(names)?;
        if let Some(group) = self.group.take() {
            group.end(&mut self.file, &mut self.index).map_err(failed)?;
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for TraceWriter<W> {
    fn record(&mut self, names: &Names, record: &Record) -> Result<()> {
        record.check()?;
        self.pending.push(*record);
        self.records += 1;
        if self.pending.len() == ROWS_PER_BATCH {
            self.encode(names)?;
            if self.group.as_ref().is_some_and(Group::is_full) {
                self.end_group(names)?;
            }
        }
        Ok(())
    }
}

/// A number that [`Record::check`] has seen.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Buffers {
    fn fill(&mut self, field: &Field, records: &[Record], names: &Names) {
        self.levels.clear();
        self.numbers.clear();
        self.texts.clear();
        self.bits.clear();
        for record in records {
            let there = match field {
                Field::Number(get, _) => keep(&mut self.numbers, get(record).map(stored)),
                Field::Signed(get, _) => keep(&mut self.numbers, get(record)),
                Field::Name(get, _) => {
                    let id = get(record);
                    let text = id.is_some().then(|| {
                        let new = || ByteArray::from(names.get(id));
                        self.names.entry(id).or_insert_with(new).clone()
                    });
                    keep(&mut self.texts, text)
                }
                Field::Word(get, _) => keep(&mut self.texts, get(record).map(ByteArray::from)),
                Field::Flag(flag) => keep(&mut self.bits, record.flags.has(*flag).then_some(true)),
            };
            self.levels.push(i16::from(there));
        }
    }

    fn write(&self, writer: &mut ColumnWriter<'_>) -> parquet::errors::Result<()> {
        let levels = Some(self.levels.as_slice());
        match writer {
            ColumnWriter::Int64ColumnWriter(column) => {
                column.write_batch(&self.numbers, levels, None)?
            }
            ColumnWriter::ByteArrayColumnWriter(column) => {
                column.write_batch(&self.texts, levels, None)?
            }
            ColumnWriter::BoolColumnWriter(column) => {
                column.write_batch(&self.bits, levels, None)?
            }
            // The schema has no others.
            _ => 0,
        };
        Ok(())
    }
}

fn keep<T>(list: &mut Vec<T>, value: Option<T>) -> bool {
    let there = value.is_some();
    list.extend(value);
    there
}
