//! A row group on its way: encoded and compressed in memory until it is large enough for the file.
//!
//! ```text
//!   batch of records --> column 0: pages, zstd --> pieces   \
//!                        column 1: pages, zstd --> pieces    } large enough: into the file
//!                        ...                                /
//! ```
//!
//! A file keeps what it knows of each row group until its footer is written (`index.rs`). With
//! groups of a number of records that grows with the trace; with groups of a number of compressed
//! bytes it is a few thousandths of a per cent of the file. A file has its columns one after the
//! other in a group, so their pages wait here.
//!
//! They wait in pieces of one size, which the next group gets again: buffers that grow by doubling
//! and shrink to nothing, column by column, leave holes that an allocator fills badly, and made a
//! long import's memory grow six times as fast as what it had in use.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use parquet::column::page::{CompressedPage, PageWriteSpec, PageWriter};
use parquet::column::writer::{ColumnWriter, get_column_writer};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::SchemaDescriptor;

use super::index::{Chunk, Index};

/// Compressed bytes of a row group from which on it is ended.
const GROUP_BYTES: u64 = 16 << 20;

/// Records of a row group at most: the pages of a column wait for its dictionary uncounted.
const GROUP_RECORDS: usize = 1 << 22;

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that no column uses.
pub(super) type Spare = Arc<Mutex<Vec<Vec<u8>>>>;

/// Bytes in pieces; all but the last are full.
struct Pieces {
    pieces: Vec<Vec<u8>>,
    spare: Spare,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE_BYTES) {
            let new = || Vec::with_capacity(PIECE_BYTES);
            let spare = self.spare.lock().pop();
            self.pieces.push(spare.unwrap_or_else(new));
        }
        let Some(piece) = self.pieces.last_mut() else { return Ok(0) };
        let len = bytes.len().min(PIECE_BYTES - piece.len());
        piece.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The pages of one column.
type Pages = Arc<Mutex<TrackedWrite<Pieces>>>;

fn pages(spare: &Spare) -> TrackedWrite<Pieces> {
    TrackedWrite::new(Pieces { pieces: Vec::new(), spare: Arc::clone(spare) })
}

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
    spare: Spare,
}

impl Group {
    /// An empty one, which takes pieces from `spare`.
    pub(super) fn new(
        schema: &SchemaDescriptor,
        properties: &WriterPropertiesPtr,
        spare: &Spare,
    ) -> Group {
        let columns = schema.columns().iter().map(|column| {
            let pages: Pages = Arc::new(Mutex::new(pages(spare)));
            let waiting = Box::new(Waiting(Arc::clone(&pages)));
            (get_column_writer(Arc::clone(column), Arc::clone(properties), waiting), pages)
        });
        Group { columns: columns.collect(), records: 0, spare: Arc::clone(spare) }
    }

    /// The writers of the columns, in the order of the schema, for a batch of `records` each.
    pub(super) fn columns(
        &mut self,
        records: usize,
    ) -> impl Iterator<Item = &mut ColumnWriter<'static>> {
        self.records += records;
        self.columns.iter_mut().map(|(writer, _)| writer)
    }

    /// True if it is large enough for the file.
    pub(super) fn is_full(&self) -> bool {
        let bytes: u64 = self.columns.iter().map(|(writer, _)| bytes_of(writer)).sum();
        bytes >= GROUP_BYTES || self.records >= GROUP_RECORDS
    }

    /// Writes it to the file, and its places to the index.
    pub(super) fn end<W: Write>(self, file: &mut TrackedWrite<W>, index: &mut Index) -> Result<()> {
        let mut chunks = Vec::with_capacity(self.columns.len());
        for (writer, waiting) in self.columns {
            let close = writer.close()?;
            // A file is shorter than 2^63 bytes.
            chunks.push(Chunk::new(&close.metadata, file.bytes_written() as i64));
            let waiting = std::mem::replace(&mut *waiting.lock(), pages(&self.spare));
            for mut piece in waiting.into_inner()?.pieces {
                file.write_all(&piece)?;
                piece.clear();
                self.spare.lock().push(piece);
            }
        }
        index.push(self.records as i64, chunks);
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
