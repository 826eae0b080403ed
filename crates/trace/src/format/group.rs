//! A row group on its way: encoded and compressed in memory until it is large enough for the file.
//!
//! ```text
//!   batch of records --> column 0: pages, zstd --> bytes   \
//!                        column 1: pages, zstd --> bytes    } large enough: into the file
//!                        ...                               /
//! ```
//!
//! A file keeps what it knows of each row group until its footer is written: some 20 KB for 21
//! columns. With groups of a number of records that grows with the trace; with groups of a number
//! of compressed bytes it is a thousandth of the file. A file has its columns one after the other
//! in a group, so their pages wait here.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;

/// Compressed bytes of a row group from which on it is ended.
const GROUP_BYTES: u64 = 16 << 20;

/// Records of a row group at most: the pages of a column wait for its dictionary uncounted.
const GROUP_RECORDS: usize = 1 << 22;

/// The pages of one column.
type Pages = Arc<Mutex<TrackedWrite<Vec<u8>>>>;

/// Hands pages on to where they wait; the column's writer has this end.
struct Waiting(Pages);

impl PageWriter for Waiting {
    fn write_page(&mut self, page: CompressedPage) -> Result<PageWriteSpec> {
        SerializedPageWriter::new(&mut *self.0.lock()).write_page(page)
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A row group that is being made.
pub(super) struct Group {
    columns: Vec<(ColumnWriter<'static>, Pages)>,
    records: usize,
}

impl Group {
    /// An empty one.
    pub(super) fn new(schema: &SchemaDescriptor, properties: &WriterPropertiesPtr) -> Group {
        let columns = schema.columns().iter().map(|column| {
            let pages: Pages = Arc::new(Mutex::new(TrackedWrite::new(Vec::new())));
            let waiting = Box::new(Waiting(Arc::clone(&pages)));
            (get_column_writer(Arc::clone(column), Arc::clone(properties), waiting), pages)
        });
        Group { columns: columns.collect(), records: 0 }
    }

    /// The writers of the columns, in the order of the schema, for a batch of `records` each.
    pub(super) fn columns(
        &mut self,
        records: usize,
    ) -> impl Iterator<Item = &mut ColumnWriter<'static>> {
        self.records += records;
        self.columns.iter_mut().map(|(writer, _)| writer)
    }

    /// Whether it is large enough for the file.
    pub(super) fn is_full(&self) -> bool {
        let bytes: u64 = self.columns.iter().map(|(writer, _)| bytes_of(writer)).sum();
        bytes >= GROUP_BYTES || self.records >= GROUP_RECORDS
    }

    /// Writes it to the file.
    pub(super) fn end<W: Write + Send>(self, file: &mut SerializedFileWriter<W>) -> Result<()> {
        let mut group = file.next_row_group()?;
        for (writer, pages) in self.columns {
            let close = writer.close()?;
            let pages = std::mem::replace(&mut *pages.lock(), TrackedWrite::new(Vec::new()));
            group.append_column(&Bytes::from(pages.into_inner()?), close)?;
        }
        group.close()?;
        Ok(())
    }
}

/// Compressed bytes of a column so far, without those that wait for its dictionary.
fn bytes_of(writer: &ColumnWriter<'_>) -> u64 {
    match writer {
        ColumnWriter::BoolColumnWriter(column) => column.get_total_bytes_written(),
        ColumnWriter::Int64ColumnWriter(column) => column.get_total_bytes_written(),
        ColumnWriter::ByteArrayColumnWriter(column) => column.get_total_bytes_written(),
        // The schema has no others.
        _ => 0,
    }
}
