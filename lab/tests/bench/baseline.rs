//! The honest baseline: what the ordered mode sends to the device is what the kernel's ext4 sends
//! for the same system calls, within 15 % in requests, bytes and flushes, on a device without FUA
//! as the figures were measured on. `--nocapture` prints both side by side.
//!
//! The device is the simulated eMMC, so that time passes as on flash: on a device that takes no
//! time timestamps would not move and most commits would be empty.

use serde::Deserialize;
use syncline_lab::bench::JournalMode;

const STORED: &str = include_str!("../../../baselines/ext4-6.18.json");

/// Allowed difference in per cent.
const WITHIN_PERCENT: f64 = 15.0;

#[derive(Deserialize)]
struct Stored {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    workload: String,
    journal_mode: Option<String>,
    operations: u64,
    write_requests_per_op: f64,
    written_kib_per_op: f64,
    flushes_per_op: f64,
}

fn off_percent(ours: f64, kernel: f64) -> f64 {
    (ours / kernel - 1.0) * 100.0
}

/// Runs the rows that `wanted` picks; prints them; panics if one is off.
fn compare(test: &str, wanted: impl Fn(&Row) -> bool) {
    let Some(image) = crate::common::image(test) else { return };
    let stored: Stored = serde_json::from_str(STORED).unwrap();
    let mut wrong = Vec::new();
    let mut compared = 0;
    for row in stored.rows.iter().filter(|row| wanted(row)) {
        let mode = row.journal_mode.as_deref().unwrap_or("delete");
        let mode = JournalMode::by_name(mode).unwrap();
        let parameters = crate::common::parameters(mode, Some(row.operations));
        let run = crate::common::run(image, "nexus7-emmc", &row.workload, &parameters);
        let device = run.foreground.device.unwrap();
        let n = row.operations as f64;
        let figures = [
            ("requests", device.write_requests as f64 / n, row.write_requests_per_op),
            ("KiB", device.written_bytes as f64 / 1024.0 / n, row.written_kib_per_op),
            ("flushes", device.flushes as f64 / n, row.flushes_per_op),
        ];
        let mut line = format!("{} {}", row.workload, row.journal_mode.as_deref().unwrap_or(""));
        for (name, ours, kernel) in figures {
            let off = off_percent(ours, kernel);
            line += &format!("; {name} {ours:.3}, kernel {kernel:.3} ({off:+.1} %)");
            if off.abs() > WITHIN_PERCENT {
                wrong.push(format!("{} {mode:?}: {name} {off:+.1} %", row.workload));
            }
        }
        println!("{line}");
        compared += 1;
    }
    assert!(compared > 0, "no stored row matches");
    assert!(wrong.is_empty(), "off by more than {WITHIN_PERCENT} %: {wrong:#?}");
}

fn mode_is(row: &Row, mode: &str) -> bool {
    row.journal_mode.as_deref() == Some(mode)
}

#[test]
fn sqlite_delete() {
    compare("sqlite_delete", |row| mode_is(row, "delete"));
}

#[test]
fn sqlite_persist() {
    compare("sqlite_persist", |row| mode_is(row, "persist"));
}

#[test]
fn sqlite_wal() {
    compare("sqlite_wal", |row| mode_is(row, "wal"));
}

#[test]
fn files() {
    compare("files", |row| row.journal_mode.is_none());
}
