//! `trace import`: any trace into a file of ours.

use std::io::BufWriter;

use syncline_study::Source;
use syncline_trace::TraceWriter;

use crate::args::TraceImport;
use crate::error::{Failure, Result};
use crate::format::{Out, Staged};
use crate::progress::Terminal;

/// Imports, then says what was read.
pub(crate) fn run(args: &TraceImport) -> Result<()> {
    let source = Source::open(&super::file(&args.input))?;
    let header = source.header();
    let staged = Staged::new(&args.output)?;
    let failed = |err| Failure::from(err).at(args.output.display());
    let out = BufWriter::new(staged.file(&args.output)?);
    let mut writer = TraceWriter::new(out, &header).map_err(failed)?;
    let (report, names) = source.read(&mut writer, &Terminal::default())?;
    let records = writer.records();
    drop(writer.finish(&names).map_err(failed)?);
    staged.commit(&args.output)?;
    let mut out = Out::new();
    out.text(format!("{records} {} records of {}", header.kind.name(), header.source))?;
    if let Some(report) = report {
        out.text(format!(
            ", {} bad lines, {} events passed over, {} repeats dropped",
            report.bad_lines, report.passed_over, report.repeats
        ))?;
    }
    out.text("\n")?;
    out.flush()
}
