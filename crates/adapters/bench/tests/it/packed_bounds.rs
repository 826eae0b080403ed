//! Cost of a sync with packed records on the simulated eMMC. Virtual time: the figures are exact.
//! `--nocapture` prints them.

use syncline_bench::{JournalMode, Metrics, Simulation, find};
use syncline_fs::MountOptions;
use syncline_latency::Unwatched;
use syncline_nand::Profile;

const OPERATIONS: u64 = 200;

/// Foreground and whole figures of a workload.
fn run(mount: &str, workload: &str, mode: JournalMode) -> Option<(Metrics, Metrics)> {
    let image = crate::common::image("packed bounds")?;
    let profile = Profile::parse_built_in("nexus7-emmc").unwrap();
    let mount = MountOptions::parse(mount).unwrap();
    let parameters = crate::common::parameters(mode, Some(OPERATIONS));
    let simulation =
        Simulation { profile: &profile, image, mount: &mount, parameters: &parameters };
    let run = simulation.run(find(workload).unwrap()[0], &mut Unwatched).unwrap();
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
    costs("create/4k-fsync", JournalMode::Delete, (1.02, 8.2, 1.02), 1.1);
}

#[test]
fn a_sqlite_transaction_writes_a_fraction() {
    costs("sqlite/insert", JournalMode::Delete, (3.02, 14.0, 3.02), 1.1);
    costs("sqlite/insert", JournalMode::Persist, (4.02, 18.0, 4.02), 1.1);
    costs("sqlite/insert", JournalMode::Wal, (1.02, 6.5, 1.02), 1.1);
    costs("sqlite/update", JournalMode::Delete, (3.02, 14.0, 3.02), 1.1);
    costs("sqlite/update", JournalMode::Persist, (4.02, 18.0, 4.02), 1.1);
    costs("sqlite/update", JournalMode::Wal, (1.02, 6.5, 1.02), 1.1);
}

#[test]
fn a_sqlite_transaction_with_atomic_writes_is_one_request() {
    for workload in ["sqlite/insert", "sqlite/update"] {
        costs(workload, JournalMode::Atomic, (1.02, 8.0, 1.02), 1.1);
        // Records as long as a flash page, which is programmed without being read before.
        let unit = "log=packed,log_unit=8192";
        let Some((packed, _)) = run(unit, workload, JournalMode::Atomic) else { return };
        let Some((jbd2, _)) = run("log=jbd2", workload, JournalMode::Atomic) else { return };
        assert!(packed.transactions_per_s >= 450.0 && jbd2.transactions_per_s >= 330.0);
    }
}
