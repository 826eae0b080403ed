//! The project's trace file: Parquet, one column a field. `docs/FORMAT.md` is its description.
//!
//! ```text
//!   "PAR1" | row group: one chunk a column, zstd | row group | ... | footer | length | "PAR1"
//!                                                                    |
//!                                          schema, places, "syncline.trace.*" keys
//! ```
//!
//! [`COLUMNS`] is the one list of columns: adding one is one line here. Every column is optional,
//! unknown columns are passed over, and columns may be absent, so that files of other programs and
//! of later versions are read. Tested in `lab/tests/trace/format.rs`.

mod bytes;
mod group;
mod index;
mod read;
mod write;

pub use bytes::{TraceBytes, TraceStream};
pub use read::TraceReader;
pub use write::TraceWriter;

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};

use crate::error::{LabError, Result};
use crate::trace::model::{Flags, NameId, Names, Op, Origin, Record};

/// The first and the last four bytes of a file.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// Records that a writer keeps in memory before it encodes them.
pub const ROWS_PER_BATCH: usize = 1 << 17;

/// The version of the format that is written; a reader refuses others.
const VERSION: &str = "1";
const KEY_VERSION: &str = "syncline.trace.version";
const KEY_KIND: &str = "syncline.trace.kind";
const KEY_SOURCE: &str = "syncline.trace.source";
/// Records that were lost while the trace was recorded; absent: none.
const KEY_LOST: &str = "syncline.trace.lost";
/// When the trace began, nanoseconds since 1970 in UTC; absent: not known.
const KEY_START: &str = "syncline.trace.start";
/// Time that was recorded, nanoseconds; absent: until the last record.
const KEY_DURATION: &str = "syncline.trace.duration";

/// Accessors of a column, by its type.
enum Field {
    /// A number, INT64.
    Number(fn(&Record) -> Option<u64>, fn(&mut Record, u64)),
    /// A signed number, INT64.
    Signed(fn(&Record) -> Option<i64>, fn(&mut Record, i64)),
    /// A name, BYTE_ARRAY (String).
    Name(fn(&Record) -> NameId, fn(&mut Record, NameId)),
    /// One of a list of words, BYTE_ARRAY (String). The setter says whether the word is known.
    Word(fn(&Record) -> Option<&'static str>, fn(&mut Record, &str) -> bool),
    /// A mark, BOOLEAN.
    Flag(Flags),
}

struct Column {
    name: &'static str,
    field: Field,
}

const fn column(name: &'static str, field: Field) -> Column {
    Column { name, field }
}

/// Zero is "not known".
fn known(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// A number of 32 bits; what does not fit is not known.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

const COLUMNS: [Column; 21] = {
    use Field::{Flag, Name, Number, Signed, Word};
    [
        column("time_ns", Number(|r| Some(r.time_ns), |r, v| r.time_ns = v)),
        column(
            "op",
            Word(|r| Some(r.op.name()), |r, v| Op::by_name(v).map(|op| r.op = op).is_some()),
        ),
        column("process", Number(|r| known(r.process.into()), |r, v| r.process = narrow(v))),
        column("thread", Number(|r| known(r.thread.into()), |r, v| r.thread = narrow(v))),
        column("process_name", Name(|r| r.process_name, |r, v| r.process_name = v)),
        column("device", Number(|r| known(r.device.into()), |r, v| r.device = narrow(v))),
        column("file", Name(|r| r.file, |r, v| r.file = v)),
        column("target", Name(|r| r.target, |r, v| r.target = v)),
        column("inode", Number(|r| known(r.inode), |r, v| r.inode = v)),
        column(
            "offset_bytes",
            Number(|r| r.op.has_range().then_some(r.offset_bytes), |r, v| r.offset_bytes = v),
        ),
        column(
            "len_bytes",
            Number(|r| r.op.has_range().then_some(r.len_bytes), |r, v| r.len_bytes = v),
        ),
        column("size_bytes", Number(|r| r.size_bytes, |r, v| r.size_bytes = Some(v))),
        column("result", Signed(|r| r.result, |r, v| r.result = Some(v))),
        column("latency_ns", Number(|r| r.latency_ns, |r, v| r.latency_ns = Some(v))),
        column(
            "origin",
            Word(
                |r| r.origin.name(),
                |r, v| Origin::by_name(v).map(|origin| r.origin = origin).is_some(),
            ),
        ),
        column("sync", Flag(Flags::SYNC)),
        column("fua", Flag(Flags::FUA)),
        column("preflush", Flag(Flags::PREFLUSH)),
        column("readahead", Flag(Flags::READAHEAD)),
        column("direct", Flag(Flags::DIRECT)),
        column("append", Flag(Flags::APPEND)),
    ]
};

/// Value of a column in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Not known.
    Null,
    /// A number.
    Number(i64),
    /// A name or a word.
    Text(&'a str),
    /// A mark.
    Flag(bool),
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// [`Cell::Number`] or null.
    Number,
    /// [`Cell::Text`] or null.
    Text,
    /// [`Cell::Flag`].
    Flag,
}

/// The columns of a trace file in order. Other tables of traces use the same columns.
pub fn columns() -> impl Iterator<Item = (&'static str, ColumnKind)> {
    COLUMNS.iter().map(|column| {
        let kind = match column.field {
            Field::Number(..) | Field::Signed(..) => ColumnKind::Number,
            Field::Name(..) | Field::Word(..) => ColumnKind::Text,
            Field::Flag(_) => ColumnKind::Flag,
        };
        (column.name, kind)
    })
}

/// The value of a column, by its place in [`columns`]; null for a place that is none.
pub fn cell<'a>(column: usize, record: &Record, names: &'a Names) -> Cell<'a> {
    let Some(column) = COLUMNS.get(column) else { return Cell::Null };
    match column.field {
        // Numbers of a record end below 2^63 (`Record::check`).
        Field::Number(get, _) => get(record)
            .and_then(|number| i64::try_from(number).ok())
            .map_or(Cell::Null, Cell::Number),
        Field::Signed(get, _) => get(record).map_or(Cell::Null, Cell::Number),
        Field::Name(get, _) => match get(record) {
            id if id.is_some() => Cell::Text(names.get(id)),
            _ => Cell::Null,
        },
        Field::Word(get, _) => get(record).map_or(Cell::Null, Cell::Text),
        Field::Flag(flag) => Cell::Flag(record.flags.has(flag)),
    }
}

impl Field {
    fn physical(&self) -> Physical {
        match self {
            Field::Number(..) | Field::Signed(..) => Physical::INT64,
            Field::Name(..) | Field::Word(..) => Physical::BYTE_ARRAY,
            Field::Flag(_) => Physical::BOOLEAN,
        }
    }
}

/// The schema of the files that are written.
fn schema() -> Result<TypePtr> {
    let mut fields = Vec::with_capacity(COLUMNS.len());
    for column in &COLUMNS {
        let physical = column.field.physical();
        let text = physical == Physical::BYTE_ARRAY;
        let built = Type::primitive_type_builder(column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(text.then_some(LogicalType::String))
            .build();
        fields.push(Arc::new(built.map_err(failed)?));
    }
    let group = Type::group_type_builder("syncline_trace").with_fields(fields).build();
    Ok(Arc::new(group.map_err(failed)?))
}

/// An error of the Parquet library as one of ours. A failed read or write keeps its cause.
fn failed(err: ParquetError) -> LabError {
    let text = match err {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => return LabError::io("trace file")(*source),
            Err(other) => other.to_string(),
        },
        other => other.to_string(),
    };
    let text = text.trim_end_matches(['.', '\n']).replace('\n', " ");
    LabError::Corrupt(format!(
        "the trace file is damaged or was cut short ({text}); make it again from its source"
    ))
}
