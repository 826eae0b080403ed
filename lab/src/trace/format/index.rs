//! Memory that a file keeps of each row group until its footer is written, in a close form.
//!
//! Parquet's own form of a group of 21 columns is 14 KB; this one is at most 3 KiB for each 16 MiB
//! of the file, so 50 GB of trace file have less than 10 MB. The footer needs all groups in
//! Parquet's form at once, when a file ends and nothing waits any more.

use std::sync::Arc;

use parquet::basic::EncodingMask;
use parquet::errors::Result;
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, PageEncodingStats, ParquetMetaData,
    ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::SchemaDescPtr;

/// One column of a row group. Places count from the start of the file, lengths are bytes.
pub(super) struct Chunk {
    values: i64,
    compressed_bytes: i64,
    plain_bytes: i64,
    first_page: i64,
    dictionary: Option<i64>,
    encodings: EncodingMask,
    /// Pages by kind and encoding, in their order: at most three.
    pages: Box<[PageEncodingStats]>,
}

impl Chunk {
    /// A column whose pages are written to the file from `start` on.
    pub(super) fn new(column: &ColumnChunkMetaData, start: i64) -> Chunk {
        Chunk {
            values: column.num_values(),
            compressed_bytes: column.compressed_size(),
            plain_bytes: column.uncompressed_size(),
            first_page: column.data_page_offset() + start,
            dictionary: column.dictionary_page_offset().map(|at| at + start),
            encodings: *column.encodings_mask(),
            pages: column.page_encoding_stats().map_or(&[][..], Vec::as_slice).into(),
        }
    }

    fn start(&self) -> i64 {
        self.dictionary.unwrap_or(self.first_page)
    }
}

/// One row group.
struct Entry {
    rows: i64,
    chunks: Box<[Chunk]>,
}

/// The row groups of a file.
pub(super) struct Index {
    schema: SchemaDescPtr,
    groups: Vec<Entry>,
}

impl Index {
    /// Of a file without row groups.
    pub(super) fn new(schema: SchemaDescPtr) -> Index {
        Index { schema, groups: Vec::new() }
    }

    /// Adds a row group of `rows` records.
    pub(super) fn push(&mut self, rows: i64, chunks: Vec<Chunk>) {
        self.groups.push(Entry { rows, chunks: chunks.into() });
    }

    /// The end of a file, with its length and the mark.
    pub(super) fn footer(
        &self,
        properties: &WriterProperties,
        keys: Vec<KeyValue>,
    ) -> Result<Vec<u8>> {
        let about = FileMetaData::new(
            properties.writer_version().as_num(),
            self.groups.iter().map(|group| group.rows).sum(),
            Some(properties.created_by().to_owned()),
            Some(keys),
            Arc::clone(&self.schema),
            None,
        );
        let groups = (0i32..).zip(&self.groups).map(|(n, entry)| self.group(n, entry, properties));
        let about = ParquetMetaData::new(about, groups.collect::<Result<_>>()?);
        let mut footer = Vec::new();
        ParquetMetaDataWriter::new(&mut footer, &about).finish()?;
        Ok(footer)
    }

    fn group(
        &self,
        ordinal: i32,
        entry: &Entry,
        properties: &WriterProperties,
    ) -> Result<RowGroupMetaData> {
        let columns = self.schema.columns().iter().zip(&entry.chunks).map(|(column, chunk)| {
            ColumnChunkMetaData::builder(Arc::clone(column))
                .set_compression(properties.compression(column.path()))
                .set_encodings_mask(chunk.encodings)
                .set_total_compressed_size(chunk.compressed_bytes)
                .set_total_uncompressed_size(chunk.plain_bytes)
                .set_num_values(chunk.values)
                .set_data_page_offset(chunk.first_page)
                .set_dictionary_page_offset(chunk.dictionary)
                .set_page_encoding_stats(chunk.pages.to_vec())
                .build()
        });
        RowGroupMetaData::builder(Arc::clone(&self.schema))
            .set_column_metadata(columns.collect::<Result<_>>()?)
            .set_total_byte_size(entry.chunks.iter().map(|chunk| chunk.plain_bytes).sum())
            .set_num_rows(entry.rows)
            .set_ordinal(ordinal)
            .set_file_offset(entry.chunks.first().map_or(0, Chunk::start))
            .build()
    }
}
