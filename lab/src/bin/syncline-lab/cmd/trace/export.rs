//! `trace export`: any trace in a format of another program.

use std::io::BufWriter;

use syncline_lab::experiments::Source;
use syncline_lab::trace::{ExportFormat, Exporter};

use crate::args::TraceExport;
use crate::progress::Terminal;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::Staged;

/// Exports.
pub(crate) fn run(args: &TraceExport) -> Result<()> {
    let failed = |err| Failure::from(err).at(args.output.display());
    let format = ExportFormat::by_name(&args.to)?;
    let source = Source::open(&super::file(&args.input))?;
    let kind = source.header().kind;
    let staged = Staged::new(&args.output)?;
    let mut exporter = Exporter::new(BufWriter::new(staged.file(&args.output)?), format, kind);
    source.read(&mut exporter, &Terminal::default())?;
    drop(exporter.finish().map_err(failed)?);
    Ok(staged.commit(&args.output)?)
}
