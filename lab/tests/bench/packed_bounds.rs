//! Cost of a sync with packed records on the simulated eMMC. Virtual time: the figures are exact.
//! `--nocapture` prints them.

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{JournalMode, Metrics, Simulation, find};
use syncline_nand::Profile;

const OPERATIONS: u64 = 200;

/// Foreground and whole figures of a workload.
fn run(mount: &str, workload: &str, mode: JournalMode) -> Option<(Metrics, Metrics)> {
    run_of(mount, workload, mode, OPERATIONS)
}

fn run_of(
    mount: &str,
    workload: &str,
    mode: JournalMode,
    operations: u64,
) -> Option<(Metrics, Metrics)> {
    let image = crate::common::image("packed bounds")?;
    let profile = Profile::parse_built_in("nexus7-emmc").unwrap();
    let mount = MountOptions::parse(mount).unwrap();
    let parameters = crate::common::parameters(mode, Some(operations));
    let simulation =
        Simulation { profile: &profile, image, mount: &mount, parameters: &parameters };
    let run = simulation.run(find(workload).unwrap()[0], &Unobserved).unwrap();
    Some((run.foreground, run.metrics))
}

/// Requests, KiB and flushes of an operation in the foreground at most (the first one starts the
/// log, which is a request and a flush more), and the transactions a second against those of jbd2's
/// records at least.
fn costs(workload: &str, mode: JournalMode, most: (f64, f64, f64), speed: f64) {
    let Some((packed, packed_all)) = run("log=packed", workload, mode) else { return };
    let Some((jbd2, jbd2_all)) = run("log=jbd2", workload, mode) else { return };
    let per = |n: u64| n as f64 / OPERATIONS as f64;
    let figures = |metrics: &Metrics| {
        let device = metrics.device.as_ref().unwrap();
        let kib = per(device.written_bytes) / 1024.0;
        (per(device.write_requests), kib, per(device.flushes))
    };
    let gain = packed.transactions_per_s / jbd2.transactions_per_s;
    let (found, before) = (figures(&packed), figures(&jbd2));
    println!(
        "{workload} {mode:?}: {found:.2?} jbd2 {before:.2?}; {:.0}/s, {gain:.2} times jbd2; whole \
         run {:.2?} jbd2 {:.2?}",
        packed.transactions_per_s,
        figures(&packed_all),
        figures(&jbd2_all)
    );
    assert!(found.0 <= most.0 && found.1 <= most.1 && found.2 <= most.2, "{found:?}");
    assert!(gain >= speed, "{gain} times jbd2's speed");
}

#[test]
fn a_sync_is_one_request_of_a_few_kib() {
    costs("fileio/random-overwrite-fsync", JournalMode::Delete, (1.02, 8.0, 1.02), 1.1);
    costs("create/4k-fsync", JournalMode::Delete, (1.02, 8.2, 1.02), 1.9);
}

#[test]
fn a_sqlite_transaction_writes_a_fraction() {
    for workload in ["sqlite/insert", "sqlite/update"] {
        costs(workload, JournalMode::Delete, (3.02, 14.0, 3.02), 1.15);
        // Four writes and flushes take 7,452 us here, of which only the 364 us on the bus depend on
        // the length of records of one unit; the calls of SQLite take 1,024 us in either format.
        costs(workload, JournalMode::Persist, (4.02, 18.0, 4.02), 1.14);
        costs(workload, JournalMode::Wal, (1.02, 6.5, 1.02), 1.15);
        costs(workload, JournalMode::Atomic, (1.02, 8.0, 1.02), 1.15);
    }
}

#[test]
fn transactions_with_atomic_writes_a_second() {
    for workload in ["sqlite/insert", "sqlite/update"] {
        let rate = |options| {
            // As many as `syncline-lab bench` makes.
            run_of(options, workload, JournalMode::Atomic, 300)
                .map(|(run, _)| run.transactions_per_s)
        };
        let (Some(packed), Some(jbd2)) = (rate("log=packed"), rate("log=jbd2")) else { return };
        assert!(packed >= 450.0 && jbd2 >= 330.0, "{workload}: {packed}, with jbd2 {jbd2}");
        // A record as long as a flash page is programmed as soon as it has arrived.
        let pages = rate("log=packed,log_unit=8192").unwrap();
        assert!(pages > packed, "{workload}: {pages} with whole pages, {packed} without");
    }
}

/// Bytes of a whole run against ordered mode: the figure of the eager-sync paper is 0.89 for random
/// overwrites.
#[test]
fn whole_runs_write_less_than_ordered_mode() {
    let written = |options, workload, mode, operations| -> Option<f64> {
        let (_, whole) = run_of(options, workload, mode, operations)?;
        Some(whole.device.as_ref().unwrap().written_bytes as f64)
    };
    let overwrites = "fileio/random-overwrite-fsync";
    for (workload, mode, operations, most) in [
        ("sqlite/insert", JournalMode::Truncate, OPERATIONS, 0.3),
        ("sqlite/insert", JournalMode::Persist, OPERATIONS, 0.5),
        // Each page once: to the log and to its home block, as ordered mode logs the inode as well.
        (overwrites, JournalMode::Delete, 2_000, 1.0),
        // Each page about four times.
        (overwrites, JournalMode::Delete, 16_000, 0.89),
    ] {
        let Some(packed) = written("log=packed", workload, mode, operations) else { return };
        let Some(ordered) = written("sync=ordered", workload, mode, operations) else { return };
        println!("{workload} {mode:?}, {operations}: {:.3} of ordered", packed / ordered);
        assert!(packed <= ordered * most, "{workload} {mode:?}: {packed} of {ordered} bytes");
    }
}
