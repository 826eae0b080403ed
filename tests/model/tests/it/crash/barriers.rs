//! Order without waiting: `fdatabarrier` on a device with a cache barrier, and on others.

use syncline_model::require;
use syncline_testkit::crash::{Budget, CrashOptions, Entry, FaultyFlush};

use crate::crash::recorder::Recorder;
use crate::crash::{Ground, NEEDS, command, mixed_spec, passes, small, states, workloads};

/// The second writes most data in place, so that the log has no copies of blocks that are freed.
const MOUNTS: [&str; 3] = ["sync=eager", "sync=eager,eager_threshold=1,discard", "log=packed"];

const BARRIER: CrashOptions =
    CrashOptions { volatile_cache: true, fua: true, barrier: true, faulty: FaultyFlush::None };

fn barrier_test(name: &str, ground: &Ground, device: CrashOptions, workload: fn(&mut Recorder)) {
    let (explorer, history) = ground.explore(workload, device);
    let barriers = explorer.log().entries.iter().filter(|e| matches!(e, Entry::Barrier)).count();
    assert_eq!(barriers > 5, device.barrier, "{name}: {barriers} barriers");
    passes(ground.judge(&explorer, &history, &Budget::new(states() / 3, 1), &command(name)));
}

#[test]
fn nothing_is_there_without_what_a_barrier_was_before() {
    let name = "barriers::nothing_is_there_without_what_a_barrier_was_before";
    if !require(name, &NEEDS) {
        return;
    }
    for (seed, mount) in (0..).zip(MOUNTS) {
        let ground = Ground::new(&small(4096), mount);
        barrier_test(name, &ground, BARRIER, workloads::sqlite_delete_with_barriers);
        let ground = Ground::new(&mixed_spec(seed), mount);
        barrier_test(name, &ground, BARRIER, |r| workloads::barriers(r, 3));
        let ground = Ground::short(&small(1024), mount);
        let device = CrashOptions { fua: false, ..BARRIER };
        barrier_test(name, &ground, device, |r| workloads::barriers(r, 5));
    }
}

/// Without a cache barrier it is a sync, in every mode.
#[test]
fn a_barrier_is_a_sync_on_other_devices() {
    let name = "barriers::a_barrier_is_a_sync_on_other_devices";
    if !require(name, &NEEDS) {
        return;
    }
    for mount in ["sync=ordered", "sync=eager", "log=packed"] {
        let ground = Ground::new(&small(4096), mount);
        let device = CrashOptions::default();
        barrier_test(name, &ground, device, workloads::sqlite_delete_with_barriers);
    }
}

/// The canary: a barrier that orders nothing is seen.
#[test]
fn a_dropped_barrier_is_caught() {
    let name = "barriers::a_dropped_barrier_is_caught";
    if !require(name, &NEEDS) {
        return;
    }
    for mount in MOUNTS {
        let ground = Ground::new(&small(4096), mount);
        let device = CrashOptions { faulty: FaultyFlush::Barrier, ..BARRIER };
        let (explorer, history) = ground.explore(workloads::sqlite_delete_with_barriers, device);
        let summary = ground.judge(&explorer, &history, &Budget::new(300, 1), mount);
        assert!(!summary.failures.is_empty(), "{mount}: nothing is out of order");
    }
}
