//! The figures as tables.

use crate::{Outcome, Phase};

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// One table, or two with the erases where there is a trace: a header and a line for each outcome.
#[must_use]
pub fn tables(outcomes: &[Outcome]) -> Vec<Vec<Vec<String>>> {
    let header = [
        "storage",
        "MiB",
        "found after the kill",
        "sent by peers",
        "writes",
        "MiB written",
        "flushes",
        "sequential %",
        "KiB in a row",
        "rearranging: MiB",
        "sequential %",
        "SHA-256",
    ];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        let phase = |of: Option<Phase>, cell: &dyn Fn(Phase) -> String| {
            of.map_or_else(|| "-".to_owned(), cell)
        };
        let percent = |phase: Phase| format!("{:.1}", phase.sequential_ratio * 100.0);
        let state = if outcome.identical { "identical" } else { "DIFFERENT" };
        let rearrange = outcome.rearrange.filter(|phase| phase.written_bytes >= 1 << 20);
        lines.push(vec![
            outcome.storage.clone(),
            mib(outcome.size_bytes),
            outcome.resumed_bytes.map_or_else(|| "-".to_owned(), mib),
            mib(outcome.sent_bytes),
            phase(outcome.download, &|phase| phase.write_requests.to_string()),
            phase(outcome.download, &|phase| mib(phase.written_bytes)),
            phase(outcome.download, &|phase| phase.flushes.to_string()),
            phase(outcome.download, &percent),
            phase(outcome.download, &|phase| format!("{:.0}", phase.mean_burst_bytes / 1024.0)),
            phase(rearrange, &|phase| mib(phase.written_bytes)),
            phase(rearrange, &percent),
            format!("{} {state}", outcome.sha256.get(..12).unwrap_or_default()),
        ]);
    }
    let mut tables = vec![lines];
    if let Some(first) = outcomes.first().filter(|first| !first.wear.is_empty()) {
        let mut header = vec!["erases, rearranging included".to_owned()];
        header.extend(outcomes.iter().map(|outcome| outcome.storage.clone()));
        let device = |(n, wear): (usize, &crate::Wear)| {
            let erases = outcomes.iter().map(|outcome| {
                outcome.wear.get(n).map_or_else(String::new, |wear| wear.erases.to_string())
            });
            std::iter::once(wear.device.clone()).chain(erases).collect()
        };
        tables.push(
            std::iter::once(header).chain(first.wear.iter().enumerate().map(device)).collect(),
        );
    }
    tables
}

/// Columns side by side, words to the left, figures to the right.
#[must_use]
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let cell = match column {
                0 => format!("{cell:width$}"),
                _ => format!("{cell:>width$}"),
            };
            text += gap;
            text += &cell;
        }
        text.push('\n');
    }
    text
}
