//! Cost of eager syncs on the simulated eMMC, and the longest that a call waits. Virtual time:
//! the figures are exact. `--nocapture` prints them.

use syncline_fs::MountOptions;
use syncline_lab::Unobserved;
use syncline_lab::bench::{JournalMode, Run, Simulation, find};
use syncline_nand::Profile;

/// Runs one workload in a sync mode.
fn run(test: &str, sync: &str, workload: &str, operations: u64) -> Option<Run> {
    let image = crate::common::image(test)?;
    let profile = Profile::parse_built_in("nexus7-emmc").unwrap();
    let mount = MountOptions::parse(sync).unwrap();
    let parameters = crate::common::parameters(JournalMode::Delete, Some(operations));
    let simulation =
        Simulation { profile: &profile, image, mount: &mount, parameters: &parameters };
    Some(simulation.run(find(workload).unwrap()[0], &Unobserved).unwrap())
}

#[test]
fn a_rollback_journal_costs_its_data_and_its_inode() {
    let Some(eager) = run("eager sqlite", "sync=eager", "sqlite/update", 100) else { return };
    let device = eager.foreground.device.unwrap();
    let per = |n: u64| n as f64 / 100.0;
    let kib = per(device.written_bytes) / 1024.0;
    println!("{} requests, {} flushes, {kib} KiB", per(device.write_requests), per(device.flushes));
    assert!(per(device.write_requests) <= 3.02 && per(device.flushes) <= 3.02);
    assert!(kib <= 53.0, "{kib} KiB an update");
    let Some(ordered) = run("eager sqlite", "sync=ordered", "sqlite/update", 100) else { return };
    let (eager, ordered) = (eager.metrics, ordered.metrics);
    let bytes = |m: &syncline_lab::bench::Metrics| m.device.as_ref().unwrap().written_bytes as f64;
    assert!(bytes(&eager) <= 1.0 * bytes(&ordered));
    assert!(eager.transactions_per_s >= 2.5 * ordered.transactions_per_s);
}

#[test]
fn random_overwrites_are_sequential_on_the_device_and_no_call_waits_for_more_than_a_step() {
    let name = "fileio/random-overwrite-fsync";
    let Some(eager) = run("eager overwrites", "sync=eager", name, 8000) else { return };
    let Some(ordered) = run("eager overwrites", "sync=ordered", name, 2000) else { return };
    let device = eager.metrics.device.unwrap();
    let (max_us, sequential) = (eager.metrics.latency_us_max, device.sequential_ratio);
    let mean = device.mean_write_sectors / ordered.metrics.device.unwrap().mean_write_sectors;
    println!("longest sync {max_us} us, sequential {sequential}, mean request {mean} times");
    // The log is used up more than once: write-back falls into the run, step by step.
    assert!((10_000.0..120_000.0).contains(&max_us), "longest sync {max_us} us");
    assert!(sequential >= 0.99 && mean >= 2.5, "sequential {sequential}, mean {mean} times");
    assert!(eager.metrics.transactions_per_s >= 2.5 * ordered.metrics.transactions_per_s);
}
