//! `trace import`: any trace into a file of ours, or into directories of Parquet files.

use std::io::BufWriter;

use syncline_study::Source;
use syncline_trace::{Header, Report, TraceWriter};

use super::partition::Partitions;
use crate::args::{ImportForm, TraceImport};
use crate::error::{Failure, Result};
use crate::format::{Out, Staged};
use crate::progress::Terminal;

/// Imports, then says what was read.
pub(crate) fn run(args: &TraceImport) -> Result<()> {
    let source = Source::open(&super::file(&args.input))?;
    let header = source.header();
    if args.to == ImportForm::Parquet {
        return partitioned(args, source, header);
    }
    let staged = Staged::new(&args.output)?;
    let failed = |err| Failure::from(err).at(args.output.display());
    let out = BufWriter::new(staged.file(&args.output)?);
    let mut writer = TraceWriter::new(out, &header).map_err(failed)?;
    let (report, names) = source.read(&mut writer, &Terminal::default())?;
    let records = writer.records();
    drop(writer.finish(&names).map_err(failed)?);
    staged.commit(&args.output)?;
    tell(&header, records, "", report)
}

/// Imports into directories by device, program and day.
fn partitioned(args: &TraceImport, source: Source, header: Header) -> Result<()> {
    std::fs::create_dir_all(&args.output).map_err(|err| Failure::host(&args.output, &err))?;
    let mut parts = Partitions::new(args, header.clone(), source.started());
    let (report, names) = source.read(&mut parts, &Terminal::default())?;
    let failed = |err| Failure::from(err).at(args.output.display());
    let (records, files) = parts.finish(&names).map_err(failed)?;
    tell(&header, records, &format!(" in {files} files"), report)
}

fn tell(header: &Header, records: u64, place: &str, report: Option<Report>) -> Result<()> {
    let mut out = Out::new();
    out.text(format!("{records} {} records of {}{place}", header.kind.name(), header.source))?;
    if let Some(report) = report {
        out.text(format!(
            ", {} bad lines, {} events passed over, {} repeats dropped",
            report.bad_lines, report.passed_over, report.repeats
        ))?;
    }
    out.text("\n")?;
    out.flush()
}
