//! The same workloads with `sync=periodic`: after every cut the volume is, byte for byte, what it
//! was after one of the operations, and not before the last moment that was durable.
//!
//! A strict file's fsync takes a moment; so do time, a log that fills, and `sync`.

use syncline_crash::{Budget, Explorer};
use syncline_model::{ImageSpec, require};

use crate::crash::eager::{Turns, short_ring};
use crate::crash::history::History;
use crate::crash::judge::Judge;
use crate::crash::recorder::{Recorder, order};
use crate::crash::{
    Ground, NEEDS, ORDERED, crash_test_on, explore_options, image, lies_are_caught, long_run,
    mixed_seeds, mixed_spec, on_other_devices, only_seed, options, recovery_cuts, small, unmounts,
    workloads,
};

/// A moment a second, and no sync that waits for one.
const TIMED: &str = "sync=periodic,commit=1";
const STRICT: &str = "sync=periodic,strict=*";
const PACKED: &str = "sync=periodic,strict=*,log=packed";
/// Some files are strict; most changes of more than one page go in place where they may.
const SOME: &str = "sync=periodic,commit=1,strict=*db*,strict=*1*,eager_threshold=3";

const MOUNTS: [&str; 4] = [STRICT, SOME, PACKED, TIMED];

fn periodic_test(name: &str, spec: &ImageSpec, workload: impl Fn(&mut Recorder)) {
    if require(name, &NEEDS) {
        for mount in MOUNTS {
            crash_test_on(name, &Ground::new(spec, mount), &workload);
        }
    }
}

#[test]
fn periodic_sqlite() {
    periodic_test("periodic_sqlite", &small(4096), workloads::sqlite_delete);
    periodic_test("periodic_sqlite", &small(4096), workloads::sqlite_truncate);
    periodic_test("periodic_sqlite", &small(4096), workloads::sqlite_persist_and_wal);
}

#[test]
fn periodic_names() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    periodic_test("periodic_names", &small(4096), workloads::renames);
    periodic_test("periodic_names", &spec, workloads::references);
    periodic_test("periodic_names", &small(4096), workloads::replacements);
}

#[test]
fn periodic_reallocation() {
    periodic_test("periodic_reallocation", &small(4096), workloads::reallocation);
    periodic_test("periodic_reallocation", &small(1024), workloads::reallocation);
}

#[test]
fn periodic_overlapping() {
    periodic_test("periodic_overlapping", &small(4096), workloads::overlapping);
    periodic_test("periodic_overlapping", &small(1024), workloads::overlapping);
}

#[test]
fn periodic_directories_and_orphans() {
    let name = "periodic_directories_and_orphans";
    periodic_test(name, &small(1024), workloads::directory_growth);
    periodic_test(name, &small(1024), workloads::allocated_ahead);
    periodic_test(name, &small(1024), workloads::orphans);
}

#[test]
fn periodic_log_wrap() {
    let name = "periodic_log_wrap";
    if require(name, &NEEDS) {
        for mount in MOUNTS {
            let ground =
                Ground { base: short_ring(&small(1024), 480), mount, kernel_every: u64::MAX };
            crash_test_on(name, &ground, workloads::log_wrap);
        }
    }
}

/// Images and mount options in turn; every third log is short.
fn periodic_seed(seed: u64) -> Ground {
    let (spec, mount) = (mixed_spec(seed), MOUNTS[(seed / 2 % 4) as usize]);
    if seed.is_multiple_of(3) {
        return Ground { base: short_ring(&spec, 480), mount, kernel_every: u64::MAX };
    }
    Ground::new(&spec, mount)
}

#[test]
fn periodic_mixed_even_seeds() {
    mixed_seeds("periodic_mixed_even_seeds", 100, periodic_seed);
}

#[test]
fn periodic_mixed_odd_seeds() {
    mixed_seeds("periodic_mixed_odd_seeds", 101, periodic_seed);
}

#[test]
fn periodic_cuts_within_recovery() {
    let name = "periodic_cuts_within_recovery";
    if require(name, &NEEDS) {
        for next in [ORDERED, PACKED] {
            recovery_cuts(name, &Ground::new(&small(1024), SOME), next, workloads::orphans);
        }
    }
}

#[test]
fn a_periodic_dropped_flush_is_caught() {
    if require("a_periodic_dropped_flush_is_caught", &NEEDS) {
        lies_are_caught(STRICT);
    }
}

#[test]
fn periodic_other_devices() {
    if require("periodic_other_devices", &NEEDS) {
        on_other_devices("periodic_other_devices", STRICT);
        on_other_devices("periodic_other_devices", PACKED);
    }
}

#[test]
fn the_end_of_a_periodic_unmount() {
    if require("the_end_of_a_periodic_unmount", &NEEDS) {
        unmounts("the_end_of_a_periodic_unmount", &Ground::new(&small(4096), TIMED));
    }
}

/// The canary: modes that make one file durable at a time leave mixtures, which are seen.
#[test]
fn other_modes_leave_what_no_moment_was() {
    if !require("other_modes_leave_what_no_moment_was", &NEEDS) {
        return;
    }
    for mount in [ORDERED, "sync=eager"] {
        let base = image(&small(4096));
        let mut recorder = Recorder::by_moments(&base, &options(mount));
        workloads::mixed(&mut recorder, 5);
        let (log, history) = recorder.stop();
        let explorer = Explorer::with_options(log, explore_options());
        let mut judge = Judge::new(&history, &base, u64::MAX, u64::MAX);
        let summary = syncline_crash::run(&explorer, &Budget::new(60, 1), mount, |state| {
            let tree = judge.tree(state)?;
            history.check(&tree, state.marks())
        });
        assert!(!summary.failures.is_empty(), "{mount} passes for sync=periodic");
    }
}

/// Each mount with a mode of its own, and a cut after each.
#[test]
fn periodic_and_other_modes_in_turn() {
    if !require("periodic_and_other_modes_in_turn", &NEEDS) {
        return;
    }
    let (seeds, states) = long_run().map_or((2, 8), |all| (2 + all / 5000, 25));
    let seeds = only_seed().map_or(500..500 + seeds, |seed| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        let base = image(&mixed_spec(seed * 2));
        let mut turns = Turns::new(&base, states);
        let modes = match seed % 2 {
            0 => [SOME, ORDERED, PACKED],
            _ => ["sync=eager", TIMED, STRICT],
        };
        turns.play(&base, History::new(order(&options(modes[0]))), &modes, seed);
        turns.report("periodic_and_other_modes_in_turn");
    }
}
