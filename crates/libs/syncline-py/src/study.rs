//! The measuring commands: options as JSON in, the document of `--json` out.

use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use syncline_lab::bench::Document;
use syncline_lab::experiments::{
    Bench, BenchResult, Cache, LifetimeRequest, Probe, Replay, Source, StatResult, TraceFile,
    devices_document,
};
use syncline_lab::{LabError, Observer, Result};

use crate::observed::observed;

fn parse<T: DeserializeOwned>(options: &str) -> Result<T> {
    serde_json::from_str(options).map_err(|err| {
        // One line, so the column is the place of the value that does not fit, after its name.
        let before = options.get(..err.column()).unwrap_or(options);
        let name = before.rsplit_once("\":").and_then(|(names, _)| names.rsplit('"').next());
        let text = err.to_string();
        let text = text.split(" at line ").next().unwrap_or_default();
        LabError::Usage(format!(
            "{}: {text}; see `help` of the function",
            name.unwrap_or("options")
        ))
    })
}

/// Runs a command of the command line. `options` are the fields of its request.
#[pyfunction]
pub(crate) fn study(py: Python<'_>, command: String, options: String) -> PyResult<String> {
    observed(py, move |caller| run(&command, &options, caller))
}

fn run(command: &str, options: &str, observer: &dyn Observer) -> Result<String> {
    let document = match command {
        "cache" => {
            let request: Cache = parse(options)?;
            request.run(observer)?.document(&request)
        }
        "replay" => {
            let request: Replay = parse(options)?;
            match &request.dir {
                Some(dir) => request.run_in(dir, observer)?.document(&request, dir),
                None => request.run(observer)?.document(&request),
            }
        }
        "lifetime" => parse::<LifetimeRequest>(options)?.run(observer)?.document(),
        "trace_stat" => {
            StatResult::of(Source::open(&parse::<TraceFile>(options)?)?, &mut |_, _| {}, observer)?
                .document()
        }
        "probe" => return Ok(parse::<Probe>(options)?.run(observer)?.to_json()),
        "bench" => return bench(&parse(options)?, observer),
        "devices" => devices_document()?,
        _ => return Err(LabError::Usage(format!("unknown command `{command}`"))),
    };
    Ok(document.to_string())
}

fn bench(request: &Bench, observer: &dyn Observer) -> Result<String> {
    if request.workloads == ["replay"] {
        let mut all = Vec::new();
        request.replay(observer, &mut all)?;
        let runs = all.into_iter().map(|replayed| replayed.run).collect();
        return Ok(Document::new(runs).to_json());
    }
    let mut found = BenchResult::default();
    request.run(0, observer, &mut found)?;
    Ok(Document::new(found.runs).to_json())
}
