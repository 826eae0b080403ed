//! `trace hot`: which files are updated often, and how long their blocks live.

use serde_json::json;
use syncline_lab::experiments::Source;
use syncline_lab::trace::{HotFile, HotFiles, HotGather};

use crate::args::TraceHot;
use crate::progress::Terminal;
use syncline_cli::error::Result;
use syncline_cli::format::{self, table};

/// Reads everything, then prints.
pub(crate) fn run(args: &TraceHot) -> Result<()> {
    let source = Source::open(&super::file(&args.input))?;
    let header = source.header();
    let mut gather = HotGather::default();
    let (_, names) = source.read(&mut gather, &Terminal::default())?;
    let mut found = gather.finish(&names);
    let files = found.files.len();
    found.files.truncate(args.top);
    let json = || {
        format::document(&json!({
            "schema": "syncline.trace-hot/1",
            "trace": header,
            "files": files,
            "not_followed": found.not_followed,
            "most_written": found.files,
        }))
    };
    format::show(&|| text(&found, files), &json, args.json.as_deref())
}

fn text(found: &HotFiles, files: usize) -> String {
    let header =
        ["file", "writes", "MB", "blocks", "updates", "per block", "mean lifetime s", "expected"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(found.files.iter().map(row));
    let mut text = table(&rows, &[false, true, true, true, true, true, true, false]);
    text += &format!("\n{} of {files} files, by their writes", found.files.len());
    if found.not_followed > 0 {
        text += &format!("; {} block writes were not followed", found.not_followed);
    }
    text + "\n"
}

fn row(file: &HotFile) -> Vec<String> {
    vec![
        file.name.replace(char::is_control, "?"),
        file.writes.to_string(),
        format!("{:.2}", file.written_bytes as f64 / 1e6),
        file.blocks.to_string(),
        file.updates.to_string(),
        format!("{:.1}", file.updates as f64 / file.blocks.max(1) as f64),
        file.lifetime_ms.map_or("-".to_owned(), |ms| format!("{:.3}", ms / 1e3)),
        file.expected.unwrap_or("-").to_owned(),
    ]
}
