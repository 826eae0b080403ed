//! Table 5.4 of the eager-sync paper beside ours.
use crate::report::{aligned, figure};

use crate::replay::simulated::Replayed;

/// Of the paper: what is in the name of a trace, and ordered and eager MB/s, MB written, sectors a
/// request, percent sequential.
const PAPER: [(&str, [[f64; 2]; 4]); 3] = [
    ("facebook", [[0.91, 1.19], [85.0, 91.8], [45.73, 91.15], [1.23, 59.02]]),
    ("gmail", [[1.69, 2.08], [306.2, 292.2], [25.74, 70.99], [0.13, 17.15]]),
    // Chrome; ours is captured from Chromium.
    ("chrom", [[3.80, 5.05], [149.8, 146.0], [63.02, 126.05], [3.49, 14.44]]),
];

fn figures(replayed: &Replayed) -> Option<[f64; 4]> {
    let run = &replayed.run;
    let device = run.metrics.device.as_ref()?;
    Some([
        run.foreground.throughput_mb_per_s.unwrap_or(0.0),
        device.written_bytes as f64 / 1e6,
        device.mean_write_sectors,
        device.sequential_ratio * 100.0,
    ])
}

/// A row for each trace that ran in both modes, and one for the paper's of that name.
pub fn replay_table(all: &[Replayed]) -> String {
    let header = [
        "trace", "", "MB/s", "eager", "ratio", "MB", "eager", "ratio", "sectors", "eager", "ratio",
        "seq %", "eager", "left out",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let of = |sync: &'static str| {
        all.iter().filter(move |replayed| replayed.run.config.sync.as_deref() == Some(sync))
    };
    for base in of("ordered") {
        let name = &base.run.workload;
        let alike = |other: &&Replayed| {
            let (config, this) = (&other.run.config, &base.run.config);
            let volume = config.alloc == this.alloc && config.fill_percent == this.fill_percent;
            (&other.run.workload, &other.run.device) == (name, &base.run.device) && volume
        };
        let Some(changed) = of("eager").find(alike) else { continue };
        let (Some(a), Some(b)) = (figures(base), figures(changed)) else { continue };
        let pairs = [0, 1, 2, 3].map(|n| [a[n], b[n]]);
        let short = name.strip_prefix("replay/").unwrap_or(name);
        let mut ours = row(short, "here", pairs);
        ours.push(changed.skipped.to_string());
        rows.push(ours);
        let paper = PAPER.iter().find(|(known, _)| short.contains(known));
        rows.extend(paper.map(|(known, pairs)| row(known, "paper", *pairs)));
    }
    match rows.len() {
        1 => String::new(),
        _ => format!("\nEager-sync paper, table 5.4, and here\n{}", aligned(&rows, 2)),
    }
}

fn row(name: &str, whose: &str, pairs: [[f64; 2]; 4]) -> Vec<String> {
    let mut cells = vec![name.to_owned(), whose.to_owned()];
    for (n, [ordered, eager]) in pairs.into_iter().enumerate() {
        cells.extend([figure(ordered), figure(eager)]);
        if n < 3 {
            cells.push(if ordered > 0.0 { figure(eager / ordered) } else { "-".to_owned() });
        }
    }
    cells
}
