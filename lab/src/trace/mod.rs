//! Traces of storage activity: one model, one file format, readers and writers of others' formats.
//!
//! ```text
//!   strace, ftrace, MobiGen, fio iolog, blktrace, blkparse, CSVs ...      bytes of any size
//!        |  import: detected by content, gzip and zstd transparent
//!        v
//!   Record + Names                the model: system calls, pages or block requests
//!        |            |
//!   TraceWriter   Gather -> Statistics; Exporter: fio, CSVs, libCacheSim
//!        v
//!   *.trace (Parquet)  ──  TraceReader ──> Record + Names
//!
//!   *.events of a mount  ──  import_events ──> traces of its calls, pages and blocks
//! ```
//!
//! Promises
//! - Everything streams: memory is bounded by a batch of records ([`ROWS_PER_BATCH`]), a row group
//!   in its compressed form, and the distinct names of a trace; 3 KiB for each 16 MiB of a file
//!   come on top, its index.
//! - No input makes it panic: what is no trace is [`LabError::Corrupt`] or a counted bad line.
//! - Nothing in here opens files or reads a clock: bytes come in and go out through the caller.
//!
//! The format is described in `docs/FORMAT.md`. Tests: `lab/tests/trace`.

#[cfg(not(target_family = "wasm"))]
mod capture;
mod distance;
mod export;
mod format;
mod hot;
mod import;
mod kernel;
mod model;
mod owners;
mod stat;

#[cfg(not(target_family = "wasm"))]
pub use capture::{Captured, import_events};
pub use distance::Histogram;
pub use export::{ExportFormat, Exporter};
pub use format::{
    Cell, ColumnKind, MAGIC, ROWS_PER_BATCH, TraceBytes, TraceReader, TraceStream, TraceWriter,
    cell, columns,
};
pub use hot::{BLOCKS_MAX, HotFile, HotFiles, HotGather};
pub use import::{FORMATS, Format, Import, ImportOptions, Report};
pub use kernel::{EventKind, Events, KernelLayout, OWNERS_MAX, Request, TASKS_MAX, WAITING_MAX};
pub use model::{Flags, Header, NameId, Names, Op, Origin, Record, Sink, TraceKind};
pub use owners::{CallNames, Owner, Owners};
pub use stat::{Direction, Gather, Share, Statistics};
