//! The figures of a trace as text.

use std::fmt::Write;

use super::StatResult;
use crate::report::aligned;
use crate::trace::{Direction, Histogram, Share, Statistics};

fn mb(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / 1e6)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", part as f64 * 100.0 / whole.max(1) as f64)
}

impl StatResult {
    /// Everything, as `syncline-lab trace stat` prints it.
    pub fn text(&self) -> String {
        let StatResult { header, statistics: found } = self;
        let mut text = format!(
            "{} trace of {}: {} records in {:.1} s, {} files\n\n",
            header.kind.name(),
            header.source,
            found.records,
            found.duration_s,
            found.files
        );
        text += &directions(found);
        let calls = found.calls.iter().map(|(name, count)| format!("{name} {count}"));
        let _ = writeln!(text, "\ncalls: {}", calls.collect::<Vec<_>>().join(", "));
        let _ = writeln!(
            text,
            "failed {}; {} sync calls; {} MB written synchronously ({} % of written MB); written \
             in bursts over 128 sectors {:.2} %",
            found.failed_calls,
            found.sync_calls,
            mb(found.sync_bytes),
            percent(found.sync_bytes, found.write.bytes),
            found.sequential_ratio * 100.0
        );
        text += &shares("process", &found.processes);
        text += &shares("file", &found.most_written);
        text += "\n";
        text += &quantiles(found);
        text
    }
}

/// Tables 5.2, 5.3 and 4 of the papers.
fn directions(found: &Statistics) -> String {
    let all = found.read.bytes.saturating_add(found.write.bytes);
    let row = |name: &str, d: &Direction| {
        vec![
            name.to_owned(),
            d.calls.to_string(),
            mb(d.bytes),
            percent(d.bytes, all),
            format!("{:.2}", d.mean_bytes() / 1024.0),
            mb(d.sequential_bytes),
            mb(d.bytes - d.sequential_bytes),
        ]
    };
    let header = ["", "calls", "MB", "%", "mean KiB", "sequential MB", "random MB"];
    let rows =
        [header.map(str::to_owned).to_vec(), row("read", &found.read), row("write", &found.write)];
    aligned(&rows, 1)
}

fn shares(what: &str, list: &[Share]) -> String {
    if list.is_empty() {
        return String::new();
    }
    let header = [what, "written MB", "synced MB", "synced %", "syncs"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(list.iter().map(|share| {
        vec![
            share.name.replace(char::is_control, "?"),
            mb(share.written_bytes),
            mb(share.sync_bytes),
            percent(share.sync_bytes, share.written_bytes),
            share.sync_calls.to_string(),
        ]
    }));
    format!("\n{}", aligned(&rows, 1))
}

fn quantiles(found: &Statistics) -> String {
    let row = |name: &str, histogram: &Histogram| {
        let mut cells = vec![name.to_owned(), histogram.total().to_string()];
        cells.extend([10, 50, 90, 99].map(|percent| histogram.below(percent).to_string()));
        cells
    };
    let header = ["below (powers of two)", "values", "10 %", "50 %", "90 %", "99 %"];
    let rows = [
        header.map(str::to_owned).to_vec(),
        row("read size, bytes", &found.read.sizes),
        row("write size, bytes", &found.write.sizes),
        row("reuse distance, pages", &found.reuse_distance_pages),
        row("update interval, ms", &found.update_interval_ms),
    ];
    let mut text = aligned(&rows, 1);
    let _ = write!(text, "first accesses of a page: {}", found.first_accesses);
    if found.followed_one_in > 1 {
        let _ = write!(text, "; one page in {} was followed", found.followed_one_in);
    }
    text + "\n"
}
