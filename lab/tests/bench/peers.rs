//! Peers: patterns add up to the counts, the method is right about the kernel's own ext4, and the
//! grid is what it says.

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::peers::{Step, patterns, replay};
use syncline_lab::bench::{Cell, Grid, JournalMode, Sensitivity, find};
use syncline_nand::Profile;

#[test]
fn patterns_add_up_to_what_was_counted() {
    let patterns = patterns().unwrap();
    assert!(patterns.len() >= 24, "{}", patterns.len());
    for pattern in &patterns {
        let (mut writes, mut flushes, mut bytes) = (0.0, 0.0, 0);
        for step in pattern.parse().unwrap() {
            match step {
                Step::Flush => flushes += 1.0,
                Step::Random { len_bytes }
                | Step::At { len_bytes, .. }
                | Step::Again { len_bytes, .. }
                | Step::Next { len_bytes }
                | Step::Log { len_bytes, .. } => {
                    writes += 1.0;
                    bytes += len_bytes;
                }
            }
        }
        let (counted, kib) = (pattern.counted, bytes as f64 / 1024.0);
        let name = format!("{} {} {:?}", pattern.file_system, pattern.workload, counted);
        assert!((writes - counted.writes).abs() <= 0.5, "{name}: {writes} writes");
        assert!((flushes - counted.flushes).abs() <= 0.5, "{name}: {flushes} flushes");
        assert!((kib / counted.kib - 1.0).abs() <= 0.06, "{name}: {kib} KiB");
        let known = find(&pattern.workload).unwrap();
        assert_eq!((known.len(), known[0].sqlite), (1, pattern.journal_mode.is_some()), "{name}");
    }
}

#[test]
fn a_step_that_makes_no_sense_is_refused_by_name() {
    let mut pattern = patterns().unwrap().remove(0);
    for bad in ["", "random", "random x", "log:a 4 4 4", "at: 4 4", "write 4", "random 99999999"] {
        pattern.steps = vec!["flush".into(), bad.into()];
        let err = pattern.parse().unwrap_err().to_string();
        assert!(err.contains(&format!("`{bad}`")), "{err}");
    }
}

/// The kernel's ext4 as a pattern against our ordered mode through the whole stack: both send the
/// same counts, so what differs is the assumed places.
#[test]
fn the_pattern_of_ext4_costs_what_the_ordered_mode_costs() {
    let Some(image) = crate::common::image("the_pattern_of_ext4") else { return };
    let patterns = patterns().unwrap();
    let mut wrong = Vec::new();
    for pattern in patterns.iter().filter(|p| p.file_system == "ext4") {
        let mode = pattern.journal_mode.as_deref().unwrap_or("delete");
        let parameters = crate::common::parameters(
            JournalMode::by_name(mode).unwrap(),
            Some(if pattern.counted.kib > 99.0 { 64 } else { 300 }),
        );
        for device in ["nexus7-emmc", "nexus7-emmc:streams=4,flush_us=1000"] {
            let run = crate::common::run(image, device, &pattern.workload, &parameters).foreground;
            let calls = run.app_calls.unwrap() as f64 / run.operations as f64;
            let profile = Profile::parse_built_in(device).unwrap();
            let rate = replay(pattern, &profile, calls, run.operations, 1).unwrap();
            let off = (rate / run.transactions_per_s - 1.0) * 100.0;
            println!(
                "{device} {} {mode}: pattern {rate:.1}/s, ordered {:.1}/s ({off:+.1} %)",
                pattern.workload, run.transactions_per_s
            );
            if off.abs() > 20.0 {
                wrong.push(format!("{device} {} {mode}: {off:+.1} %", pattern.workload));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_grid_has_a_cell_for_each_variant_and_repeats() {
    let Some(image) = crate::common::image("a_grid_has_a_cell") else { return };
    let (profile, mount) = (Profile::by_name("nexus7-emmc").unwrap(), MountOptions::default());
    let grid = Grid {
        profile: &profile,
        image,
        mount: &mount,
        streams: &[1, 4],
        flushes_us: &[100, 5000],
    };
    let parameters = crate::common::parameters(JournalMode::Wal, Some(40));
    let entry = find("sqlite/insert").unwrap()[0];
    let cells = grid.run(entry, &parameters, &Unobserved).unwrap();
    assert_eq!(cells, grid.run(entry, &parameters, &Unobserved).unwrap());
    let variants: Vec<_> = cells.iter().map(|c| (c.streams, c.flush_us)).collect();
    assert_eq!(variants, [(1, 100), (1, 5000), (4, 100), (4, 5000)]);
    for cell in &cells {
        assert!(cell.peers_per_s.values().all(|rate| *rate > 0.0), "{cell:?}");
        assert!(cell.best_peer().is_some() && cell.eager_per_s > 0.0, "{cell:?}");
    }
    // A dearer flush is dearer for everybody.
    for pair in cells.chunks(2) {
        assert!(pair[0].eager_per_s > pair[1].eager_per_s);
        for (name, rate) in &pair[0].peers_per_s {
            assert!(rate > &pair[1].peers_per_s[name], "{name}");
        }
    }
    let document = Sensitivity::new("nexus7-emmc", cells);
    let back: Sensitivity = serde_json::from_str(&document.to_json()).unwrap();
    let shape = |cells: &[Cell]| cells.iter().map(|c| (c.streams, c.flush_us)).collect::<Vec<_>>();
    assert_eq!(shape(&back.cells), shape(&document.cells));
    assert_eq!(back.cells[0].peers_per_s.keys().len(), 4);
    assert_eq!(document.table().lines().count(), 2 + 1 + 4);
}
