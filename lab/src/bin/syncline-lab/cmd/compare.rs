//! `compare`: two documents that `--json` wrote, figure by figure.

use std::path::Path;

use serde_json::Value;
use syncline_lab::report::compare_documents;

use crate::about;
use crate::args::Compare;
use syncline_cli::error::{Failure, Result};
use syncline_cli::format::{self, Out};

/// Longest document that is read, bytes.
const DOCUMENT_BYTES_MAX: u64 = 256 << 20;

/// Compares, prints, and writes the page.
pub(crate) fn run(args: &Compare) -> Result<()> {
    format::check_outputs(&[args.html.as_deref()])?;
    let (a, b) = (read(&args.first)?, read(&args.second)?);
    let names = [args.first.display().to_string(), args.second.display().to_string()];
    let ignored: Vec<&str> = args.ignore.iter().map(String::as_str).collect();
    let found = compare_documents([names[0].as_str(), names[1].as_str()], &a, &b, &ignored);
    let found = found.map_err(Failure::Usage)?;
    let mut out = Out::new();
    out.text(found.text())?;
    out.flush()?;
    match &args.html {
        Some(path) => format::write_file(path, found.html(&about()).as_bytes()),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Value> {
    let failed = |err| Failure::host(path, &err);
    if std::fs::metadata(path).map_err(failed)?.len() > DOCUMENT_BYTES_MAX {
        let text = format!("{}: longer than any result; give a file of --json", path.display());
        return Err(Failure::Usage(text));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    serde_json::from_slice(&bytes).map_err(|err| {
        Failure::Usage(format!("{}: not JSON ({err}); give a file of --json", path.display()))
    })
}
