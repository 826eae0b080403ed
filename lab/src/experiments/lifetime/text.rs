//! The result of a lifetime as text: the table of its figures, who wears the device, and how long
//! it lasts.

use super::{LifetimeResult, Spread, span};
use crate::evaluate::Shares;
use crate::report::aligned;

/// Columns of a table in which nothing stands to the right.
const ALL_WORDS: usize = 2;

impl LifetimeResult {
    /// Everything, as `syncline-lab lifetime` prints it.
    pub fn text(&self) -> String {
        let tables = self.shares().map(|(what, rows)| shares_text(what, rows));
        format!("{}{}\n{}", aligned(&self.rows(), ALL_WORDS), tables.concat(), self.end_text())
    }

    /// Costs by process and by file, the largest first: name, MB written, MB programmed, share.
    /// Those of which the trace knows nobody are empty.
    pub fn shares(&self) -> [(&'static str, Vec<Vec<String>>); 2] {
        let all_bytes = self.replay.device().counters().programmed_bytes;
        let of = |shares: &Shares| share_rows(shares, all_bytes);
        [("process", of(self.replay.processes())), ("file", of(self.replay.files()))]
    }

    /// How long the device lasts, as far as the trace tells.
    pub fn end_text(&self) -> String {
        let summary = || self.summary().unwrap_or_default();
        match &self.lifetime {
            None => "nothing was written: this trace wears nothing\n".to_owned(),
            Some(_) if self.no_verdict.is_some() => format!("\n{}\n", summary()),
            Some(l) => {
                // No block was erased: nothing tells how unevenly they wear.
                let worst = match l.years_worst {
                    Some(years) => format!("; {} until the first block is there", span(years)),
                    None => String::new(),
                };
                format!(
                    "{} until {} cycles at this load if all blocks wear evenly ({:.3} TB \
                     written){worst}\n\n{}\n",
                    span(l.years_even),
                    self.spread.cycles,
                    l.written_tb,
                    summary()
                )
            }
        }
    }

    /// The figures: name and value.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let LifetimeResult { profile, replay, wear, .. } = self;
        let report = replay.device().report();
        let c = &report.counters;
        let row = |name: &str, value: String| vec![name.to_owned(), value];
        let mut rows = vec![
            row("device", format!("{}, {} MiB", profile.name, replay.device().size_bytes() >> 20)),
            row("load", self.load.clone()),
            row("duration", format!("{:.1} s", replay.end_ns() as f64 / 1e9)),
            row("written", format!("{:.1} MB", c.written_bytes as f64 / 1e6)),
            row("programmed", format!("{:.1} MB", c.programmed_bytes as f64 / 1e6)),
            row("write amplification", format!("{:.2}", c.write_amplification())),
            row(
                "erases per block",
                format!("{} to {}, mean {:.2}", wear.erases_min, wear.erases_max, wear.erases_mean),
            ),
            row(
                "merges",
                format!(
                    "{} switch, {} partial, {} full",
                    c.switch_merges, c.partial_merges, c.full_merges
                ),
            ),
        ];
        rows.push(row("wake-ups", format!("{} (after 3 s without a request)", c.wakeups)));
        if let Some(joules) = replay.joules(profile) {
            rows.push(row("energy", format!("{joules:.1} J (without idle time)")));
        }
        for (name, l) in [("read", report.read), ("write", report.write), ("flush", report.flush)] {
            let us = [l.latency_us_p50, l.latency_us_p95, l.latency_us_p99, l.latency_us_p999];
            let text: Vec<String> = us.iter().map(|us| format!("{us:.0}")).collect();
            let name = format!("{name} p50 / p95 / p99 / p99.9");
            rows.push(row(&name, format!("{} us", text.join(" / "))));
        }
        rows.extend(spread_rows(&self.spread));
        if let Some(slc) = &self.slc {
            let text = format!(
                "{:.2} erases per block, {} until their rated cycles",
                slc.erases_mean,
                span(slc.years)
            );
            rows.push(row("write cache (SLC)", text));
        }
        rows
    }
}

fn share_rows(shares: &Shares, all_bytes: u64) -> Vec<Vec<String>> {
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    let row = |s: crate::evaluate::Share| {
        let share = s.programmed_bytes as f64 * 100.0 / all_bytes.max(1) as f64;
        let programmed = mb(s.programmed_bytes);
        vec![s.name, mb(s.written_bytes), programmed, format!("{share:.1} %")]
    };
    shares.top().into_iter().map(row).collect()
}

/// A table under this heading; nothing if the trace knows nobody.
fn shares_text(what: &str, mut rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    rows.insert(0, [what, "written MB", "programmed MB", "of all"].map(str::to_owned).to_vec());
    format!("\n{}", aligned(&rows, 1))
}

/// Rows about the wear of the blocks.
fn spread_rows(spread: &Spread) -> Vec<Vec<String>> {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let texts = spread.percentiles().map(|erases| erases.to_string());
    vec![
        row("erases p1 / p25 / p50 / p75 / p99", texts.join(" / ")),
        row("blocks not erased", format!("{} of {}", spread.unused_blocks(), spread.worn.len())),
        row(
            "rated cycles used",
            format!("{:.3} % of the most worn block's", spread.used_percent()),
        ),
    ]
}
