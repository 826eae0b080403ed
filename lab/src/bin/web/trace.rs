//! A trace that was dropped: its figures, the wear it causes, and who causes it.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use syncline_lab::evaluate::Origins;
use syncline_lab::experiments::{LifetimeRequest, LifetimeResult, Source, StatResult};
use syncline_lab::trace::{ImportOptions, TraceBytes, TraceWriter};
use syncline_lab::{LabError, Result};

use crate::host::{Dropped, Page};

/// Request for a trace.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// Bytes of the file.
    size: u64,
    /// Name of its format, where the content does not tell.
    format: Option<String>,
    /// The device and the load; the name of the file.
    lifetime: LifetimeRequest,
}

/// Reads it. A trace of another format is imported first, into memory.
pub(crate) fn run(request: Trace) -> Result<Value> {
    let Trace { size, format, lifetime } = request;
    let page = Page::default();
    let name = &lifetime.trace;
    let dropped = TraceBytes::new(Arc::new(Dropped), size);
    let options = ImportOptions { format, ..ImportOptions::default() };
    let source = Source::of(&dropped, name, &options)?;
    let bytes = match source.is_foreign() {
        true => imported(source, name, &page)?,
        false => dropped,
    };
    page.stage("reading");
    let source = Source::of(&bytes, name, &ImportOptions::default())?;
    let stat = StatResult::of(source, &mut |_, _| {}, &page)?;
    page.stage("wearing the device");
    let worn = match lifetime.run_on(&bytes, &page) {
        Ok(found) => worn(&found),
        // The figures of the trace stand without a device.
        Err(err @ (LabError::Usage(_) | LabError::Unsupported(_))) => {
            json!({ "refused": err.to_string() })
        }
        Err(err) => return Err(err),
    };
    Ok(json!({
        "stat": stat.text(), "statDocument": stat.document(), "worn": worn,
        "remarks": page.remarks(),
    }))
}

fn imported(source: Source, name: &Path, page: &Page) -> Result<TraceBytes> {
    page.stage("importing");
    let mut writer = TraceWriter::new(Vec::new(), &source.header())?;
    let (_, names) = source.read(&mut writer, page)?;
    let bytes = writer.finish(&names).map_err(|err| err.at(name.display()))?;
    Ok(TraceBytes::from(bytes))
}

fn worn(found: &LifetimeResult) -> Value {
    let [processes, files] = found.shares().map(|(_, rows)| rows);
    json!({
        "rows": found.rows(), "sentences": found.end_text(), "processes": processes,
        "files": files, "origins": origins(found.replay.origins()),
        "text": found.text(), "document": found.document(),
    })
}

/// Bytes programmed into the flash by kind of request.
fn origins(of: Origins) -> Vec<(&'static str, u64)> {
    vec![
        ("journal", of.journal),
        ("data of syncs", of.synced_data),
        ("other data", of.other_data),
        ("metadata in place", of.metadata),
        ("not known", of.unknown),
    ]
}
