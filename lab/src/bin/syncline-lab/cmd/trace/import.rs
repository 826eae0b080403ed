//! `trace import`: any trace into a file of ours, or into directories of Parquet files; the events
//! of a mount into three traces.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

use syncline_fuse::EVENTS_MAGIC;
use syncline_lab::experiments::Source;
use syncline_lab::trace::{Captured, Header, Report, TraceWriter, import_events};

use super::partition::Partitions;
use crate::args::{ImportForm, TraceImport};
use crate::progress::Terminal;
use syncline_cli::complain;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{Out, Staged};

/// Imports, then says what was read.
pub(crate) fn run(args: &TraceImport) -> Result<()> {
    if has_events(&args.input.trace) {
        return events(args);
    }
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

/// True for the events of a mount. Another file, and one that cannot be read, is the importers'.
fn has_events(path: &Path) -> bool {
    // A pipe cannot be rewound for the importers.
    if !std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    let mut start = [0; EVENTS_MAGIC.len() - 1];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == EVENTS_MAGIC[..start.len()]
}

/// Imports the events of a mount as traces of calls, pages and blocks.
fn events(args: &TraceImport) -> Result<()> {
    if args.to == ImportForm::Parquet {
        let text = "the events of a mount are three traces; import them as traces first, then one \
                    of the traces with --to parquet";
        return Err(Failure::Usage(text.to_owned()));
    }
    let stem = match args.output.extension() {
        Some(extension) if extension == "trace" => args.output.with_extension(""),
        _ => args.output.clone(),
    };
    let input = &args.input.trace;
    let file = File::open(input).map_err(|err| Failure::host(input, &err))?;
    let paths: [PathBuf; 3] =
        ["calls.trace", "pages.trace", "blocks.trace"].map(|name| stem.with_added_extension(name));
    let mut staged = Vec::new();
    for path in &paths {
        staged.push(Staged::new(path)?);
    }
    let out = |nr: usize| -> Result<_> { Ok(BufWriter::new(staged[nr].file(&paths[nr])?)) };
    let outs = [out(0)?, out(1)?, out(2)?];
    let (counts, outs) = import_events(BufReader::new(file), outs)
        .map_err(|err| Failure::from(err).at(input.display()))?;
    drop(outs);
    for (staged, path) in staged.into_iter().zip(&paths) {
        staged.commit(path)?;
    }
    let Captured { calls, pages, blocks, lost, cut_short } = counts;
    let at = |text: &str| complain(&format!("{}: {text}", input.display()));
    if cut_short {
        at("cut short; the events before the cut were read");
    }
    if lost > 0 {
        at(&format!("{lost} events were lost when it was recorded"));
    }
    let mut out = Out::new();
    let stem = stem.display();
    out.text(format!(
        "{stem}.calls.trace: {calls} system calls\n{stem}.pages.trace: {pages} accesses to pages\n\
         {stem}.blocks.trace: {blocks} block requests\n"
    ))?;
    out.flush()
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
