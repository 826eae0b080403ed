//! The same workloads with packed records in the log: sectors of log and home blocks torn, logs
//! that wrap, cuts within recovery, changes of the log's format between crashes.

use std::sync::Arc;

use syncline_fs::{LogFormat, MountOptions};
use syncline_model::{ImageSpec, require};

use crate::crash::eager::Turns;
use crate::crash::history::History;
use crate::crash::judge::recover;
use crate::crash::recorder::{Recorder, order};
use crate::crash::{
    Ground, NEEDS, ORDERED, crash_test_on, image, lies_are_caught, long_run, mixed_seeds,
    mixed_spec, on_other_devices, only_seed, options, recovery_cuts, small, unmounts, workloads,
};

const PACKED: &str = "log=packed";
const EAGER: &str = "sync=eager";
/// Most syncs of more than one page take the ordered path.
const LOW: &str = "log=packed,eager_threshold=3";

fn packed_test(name: &str, spec: &ImageSpec, workload: impl FnOnce(&mut Recorder)) {
    if require(name, &NEEDS) {
        crash_test_on(name, &Ground::new(spec, PACKED), workload);
    }
}

#[test]
fn packed_sqlite() {
    packed_test("packed_sqlite", &small(4096), workloads::sqlite_delete);
    packed_test("packed_sqlite", &small(4096), workloads::sqlite_truncate);
    packed_test("packed_sqlite", &small(4096), workloads::sqlite_persist_and_wal);
}

#[test]
fn packed_names() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    packed_test("packed_names", &small(4096), workloads::renames);
    packed_test("packed_names", &spec, workloads::references);
    packed_test("packed_names", &small(4096), workloads::replacements);
}

#[test]
fn packed_reallocation() {
    packed_test("packed_reallocation", &small(4096), workloads::reallocation);
    packed_test("packed_reallocation", &small(1024), workloads::reallocation);
}

#[test]
fn packed_overlapping() {
    packed_test("packed_overlapping", &small(4096), workloads::overlapping);
}

#[test]
fn packed_directories_and_orphans() {
    let name = "packed_directories_and_orphans";
    packed_test(name, &small(1024), workloads::directory_growth);
    packed_test(name, &small(1024), workloads::allocated_ahead);
    packed_test(name, &small(1024), workloads::orphans);
    packed_test(name, &small(4096), workloads::first_names);
}

#[test]
fn packed_log_wrap() {
    let name = "packed_log_wrap";
    if require(name, &NEEDS) {
        let ground = Ground::short(&small(1024), PACKED);
        crash_test_on(name, &ground, workloads::log_wrap);
    }
}

#[test]
fn packed_threshold_crossings() {
    let name = "packed_threshold_crossings";
    if require(name, &NEEDS) {
        crash_test_on(name, &Ground::new(&small(1024), LOW), workloads::overlapping);
        crash_test_on(name, &Ground::new(&small(4096), LOW), workloads::reallocation);
    }
}

#[test]
fn packed_mixed() {
    let seed = only_seed().unwrap_or(23);
    println!("seed {seed}");
    packed_test("packed_mixed", &small(4096), |r| workloads::mixed(r, seed));
}

/// Images and thresholds in turn; every third log is short.
fn packed_seed(seed: u64) -> Ground {
    let spec = mixed_spec(seed);
    let mount = if (seed / 2).is_multiple_of(3) { LOW } else { PACKED };
    if seed.is_multiple_of(3) {
        return Ground::short(&spec, mount);
    }
    Ground::new(&spec, mount)
}

#[test]
fn packed_mixed_even_seeds() {
    mixed_seeds("packed_mixed_even_seeds", 100, packed_seed);
}

#[test]
fn packed_mixed_odd_seeds() {
    mixed_seeds("packed_mixed_odd_seeds", 101, packed_seed);
}

#[test]
fn packed_cuts_within_recovery() {
    let name = "packed_cuts_within_recovery";
    if !require(name, &NEEDS) {
        return;
    }
    for next in [ORDERED, PACKED] {
        recovery_cuts(name, &Ground::new(&small(1024), PACKED), next, workloads::orphans);
    }
}

#[test]
fn a_packed_dropped_flush_is_caught() {
    if require("a_packed_dropped_flush_is_caught", &NEEDS) {
        lies_are_caught(PACKED);
    }
}

#[test]
fn packed_other_devices() {
    if require("packed_other_devices", &NEEDS) {
        on_other_devices("packed_other_devices", PACKED);
    }
}

#[test]
fn the_end_of_a_packed_unmount() {
    if require("the_end_of_a_packed_unmount", &NEEDS) {
        unmounts("the_end_of_a_packed_unmount", &Ground::new(&small(4096), PACKED));
    }
}

#[test]
fn packed_records_are_asked_for_by_name_and_need_eager_syncs() {
    assert_eq!(options(PACKED).log, LogFormat::Packed);
    assert_eq!(options("log=packed,log=jbd2").log, LogFormat::Jbd2);
    assert!(MountOptions::parse("log=ext4").is_err());
    if require("packed_records_are_asked_for_by_name", &NEEDS) {
        let device = Arc::new(image(&small(4096)));
        let refused = recover(device.clone(), "sync=ordered,log=packed").map(|_| ()).unwrap_err();
        assert!(refused.contains("needs `sync=eager`"), "{refused}");
        recover(device, PACKED).unwrap().unmount().unwrap();
    }
}

/// The log changes its format from crash to crash.
#[test]
fn formats_in_turn() {
    if !require("formats_in_turn", &NEEDS) {
        return;
    }
    let (seeds, states) = long_run().map_or((2, 8), |all| (2 + all / 5000, 25));
    let seeds = only_seed().map_or(400..400 + seeds, |seed| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        let base = image(&mixed_spec(seed * 2));
        let mut turns = Turns::new(&base, states);
        let modes = match seed % 2 {
            0 => [PACKED, EAGER, PACKED],
            _ => [ORDERED, PACKED, ORDERED],
        };
        turns.play(&base, History::new(order(&options(modes[0]))), &modes, seed);
        turns.report("formats_in_turn");
    }
}
