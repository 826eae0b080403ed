//! A trace as a stream of Arrow record batches (the Arrow PyCapsule interface).
//!
//! ```text
//!   trace -> thread: records -> RecordBatch -> channel of two -> ArrowArrayStream -> pyarrow, ...
//! ```
//!
//! Memory: three batches, whatever the size of the trace. The consumer takes the buffers without a
//! copy. A stream that is dropped ends its thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use syncline_lab::experiments::{Source, TraceFile};
use syncline_lab::trace::{Cell, ColumnKind, Names, Record, Sink, cell, columns};
use syncline_lab::{LabError, Unobserved};

use crate::observed::{observed, raised};

/// Records of a batch.
const BATCH: usize = 1 << 16;

type Batch = Result<RecordBatch, ArrowError>;

fn schema() -> SchemaRef {
    let field = |(name, kind)| match kind {
        ColumnKind::Number => Field::new(name, DataType::Int64, true),
        ColumnKind::Text => Field::new(name, DataType::Utf8, true),
        ColumnKind::Flag => Field::new(name, DataType::Boolean, false),
    };
    Arc::new(Schema::new(columns().map(field).collect::<Vec<_>>()))
}

enum Builder {
    Number(Int64Builder),
    Text(StringBuilder),
    Flag(BooleanBuilder),
}

impl Builder {
    fn new(kind: ColumnKind) -> Builder {
        match kind {
            ColumnKind::Number => Builder::Number(Int64Builder::new()),
            ColumnKind::Text => Builder::Text(StringBuilder::new()),
            ColumnKind::Flag => Builder::Flag(BooleanBuilder::new()),
        }
    }

    fn push(&mut self, value: Cell<'_>) {
        match (self, value) {
            (Builder::Number(builder), Cell::Number(number)) => builder.append_value(number),
            (Builder::Number(builder), _) => builder.append_null(),
            (Builder::Text(builder), Cell::Text(text)) => builder.append_value(text),
            (Builder::Text(builder), _) => builder.append_null(),
            (Builder::Flag(builder), value) => builder.append_value(value == Cell::Flag(true)),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Number(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Flag(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Gathers records and sends batches.
struct Batches {
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
    out: SyncSender<Batch>,
}

impl Batches {
    fn send(&mut self) -> Result<(), LabError> {
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        self.rows = 0;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays);
        // Nobody wants more.
        self.out.send(batch).map_err(|_| LabError::Interrupted)
    }
}

impl Sink for Batches {
    fn record(&mut self, names: &Names, record: &Record) -> Result<(), LabError> {
        for (column, builder) in self.builders.iter_mut().enumerate() {
            builder.push(cell(column, record, names));
        }
        self.rows += 1;
        if self.rows == BATCH { self.send() } else { Ok(()) }
    }
}

fn read(file: &TraceFile, mut batches: Batches) {
    let read = Source::open(file).and_then(|source| source.read(&mut batches, &Unobserved));
    let done = match read {
        Ok(_) if batches.rows > 0 => batches.send(),
        Ok(_) => Ok(()),
        Err(err) => Err(err),
    };
    match done {
        Ok(()) | Err(LabError::Interrupted) => {}
        // A reader that has gone needs no error.
        Err(err) => drop(batches.out.send(Err(ArrowError::ExternalError(Box::new(err))))),
    }
}

struct Reader {
    schema: SchemaRef,
    batches: Receiver<Batch>,
}

impl Iterator for Reader {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        self.batches.recv().ok()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn file(options: &str) -> PyResult<TraceFile> {
    let bad = |err| raised(LabError::Usage(format!("{err}; see the options of Trace")));
    serde_json::from_str(options).map_err(bad)
}

/// `(kind, source)` of a trace.
#[pyfunction]
pub(crate) fn trace_header(py: Python<'_>, options: &str) -> PyResult<(String, String)> {
    let file = file(options)?;
    observed(py, move |_| {
        let header = Source::open(&file)?.header();
        Ok((header.kind.name().to_owned(), header.source))
    })
}

/// A capsule with an `ArrowArrayStream` of the records.
#[pyfunction]
pub(crate) fn trace_stream<'py>(py: Python<'py>, options: &str) -> PyResult<Bound<'py, PyCapsule>> {
    let file = file(options)?;
    // A mistake in the name is said here; an open source stays in its thread.
    let checked = file.clone();
    observed(py, move |_| Source::open(&checked).map(drop))?;
    let schema = schema();
    let (out, batches) = sync_channel(1);
    let builders = columns().map(|(_, kind)| Builder::new(kind)).collect();
    let sink = Batches { schema: Arc::clone(&schema), builders, rows: 0, out };
    thread::spawn(move || read(&file, sink));
    let stream = FFI_ArrowArrayStream::new(Box::new(Reader { schema, batches }));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
