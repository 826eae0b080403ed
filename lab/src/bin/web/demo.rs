//! The demo: a real SQLite on the volume over simulated devices.

use serde::Deserialize;
use serde_json::{Value, json};
use syncline_lab::bench::{Document, Run, cells, text};
use syncline_lab::experiments::{Bench, BenchResult};
use syncline_lab::{Observer, Result};

use crate::host::{Page, send};

/// Request of a demo.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Demo {
    /// Device profiles, with overrides: what is asked for runs on each.
    devices: Vec<String>,
    /// The workloads and their options.
    bench: Bench,
}

/// Runs everything; what is finished is sent after each workload, so that it stays if the page ends
/// the rest.
pub(crate) fn run(demo: Demo) -> Result<Value> {
    let Demo { devices, mut bench } = demo;
    let names: Vec<String> = bench.entries()?.iter().map(|entry| entry.name.to_owned()).collect();
    let page = Page::default();
    let mut found = BenchResult::default();
    for device in devices {
        bench.device = device;
        for name in &names {
            page.stage(&format!("{name}, {}", bench.device));
            bench.workloads = vec![name.clone()];
            bench.simulated(0, &page as &dyn Observer, &mut found)?;
            send(&shown(&found.runs).to_string());
        }
    }
    Ok(shown(&found.runs))
}

/// The table by its cells and as text, a bar for each run, and the document.
fn shown(runs: &[Run]) -> Value {
    let bar = |run: &Run| {
        json!({
            "workload": run.workload, "device": run.device, "label": run.config.label(),
            "sync": run.config.sync, "log": run.config.log,
            "operations_per_s": run.foreground.transactions_per_s,
        })
    };
    json!({
        "cells": cells(runs), "text": text(runs), "bars": runs.iter().map(bar).collect::<Vec<_>>(),
        "document": Document::new(runs.to_vec()).to_json(),
    })
}
