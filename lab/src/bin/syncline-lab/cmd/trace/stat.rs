//! `trace stat`: the figures of a trace as a table, a document or a page with plots.

use syncline_lab::experiments::{Source, StatResult};
use syncline_lab::report::{Picked, trace_report};
use syncline_lab::trace::{Header, Record};

use crate::about;
use crate::args::TraceStat;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format::{self, Forms};

/// Reads everything, then prints.
pub(crate) fn run(args: &TraceStat) -> Result<()> {
    format::check_outputs(&[args.json.as_deref(), args.html.as_deref()])?;
    let mut picked = Picked::default();
    let source = Source::open(&super::file(&args.input))?;
    let mut pick = |header: &Header, record: &Record| picked.record(header.kind, record);
    let found = StatResult::of(source, &mut pick, &Terminal::default())?;
    let table = || found.text();
    let forms = Forms {
        table: &table,
        json: &|| format::document(&found.document()),
        page: &|| {
            let name = args.input.trace.display().to_string();
            trace_report(&name, &table(), &picked, &about())
        },
    };
    format::publish(&forms, args.json.as_deref(), args.html.as_deref())
}
