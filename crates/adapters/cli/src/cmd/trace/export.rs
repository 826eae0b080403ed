//! `trace export`: any trace in a format of another program.

use std::io::BufWriter;

use syncline_trace::{ExportFormat, Exporter};

use super::source::{Source, at};
use crate::args::TraceExport;
use crate::error::Result;
use crate::format::Staged;

/// Exports.
pub(crate) fn run(args: &TraceExport) -> Result<()> {
    let failed = |err| at(&args.output, err);
    let format = ExportFormat::by_name(&args.to)?;
    let source = Source::open(&args.input)?;
    let staged = Staged::new(&args.output)?;
    let mut exporter = Exporter::new(BufWriter::new(staged.file(&args.output)?), format);
    source.read(&args.input.trace, &mut exporter)?;
    drop(exporter.finish().map_err(failed)?);
    staged.commit(&args.output)
}
