//! Power cuts in the middle of workloads. Every state that a cut may leave is recovered by e2fsck,
//! by us, and some of them by a kernel; all three give the same tree, which is a legal outcome
//! (`history`), and e2fsck finds nothing to correct.
//!
//! Variables
//! - `SYNCLINE_CRASH_STATES`: states over all workloads, for the long run (`make crash-long`);
//!   1/20 of them go through a kernel mount.
//! - `SYNCLINE_CRASH_STATE`: one state again; a failure prints the command.

mod history;
mod judge;
mod recorder;
mod workloads;

use syncline_crash::{
    Budget, CrashOptions, ExploreOptions, Explorer, Lie, StateId, Summary, run, run_nested,
};
use syncline_device::MemoryDevice;
use syncline_fs::MountOptions;
use syncline_model::{ImageSpec, Need, mkfs, require};

use crate::history::History;
use crate::judge::{Judge, recover};
use crate::recorder::Recorder;

/// States per workload in a plain test run, and how many workloads share the long run.
const STATES: u64 = 300;
const WORKLOADS: u64 = 13;
const NEEDS: [Need; 1] = [Need::E2fsck];

fn long_run() -> Option<u64> {
    std::env::var("SYNCLINE_CRASH_STATES").ok()?.trim().parse().ok()
}

fn states() -> u64 {
    long_run().map_or(STATES, |all| all.div_ceil(WORKLOADS))
}

/// A long run draws more random states per cut.
fn explore_options() -> ExploreOptions {
    let usual = ExploreOptions::default();
    let samples = if long_run().is_some() { 60 } else { usual.samples };
    ExploreOptions { samples, ..usual }
}

fn only() -> Option<StateId> {
    let id = std::env::var("SYNCLINE_CRASH_STATE").ok()?;
    Some(id.parse().expect("an id from a failure report"))
}

fn small(block_size_bytes: u32) -> ImageSpec {
    ImageSpec { block_size_bytes, journal_size_mib: Some(4), ..ImageSpec::with_size(16 << 20) }
}

fn image(spec: &ImageSpec) -> MemoryDevice {
    MemoryDevice::load(mkfs(spec).path()).unwrap()
}

fn explore(
    base: &MemoryDevice,
    workload: impl FnOnce(&mut Recorder),
    options: CrashOptions,
) -> (Explorer, History) {
    let mut recorder = Recorder::new(base, &MountOptions::default(), options);
    workload(&mut recorder);
    let (log, history) = recorder.stop();
    (Explorer::with_options(log, explore_options()), history)
}

fn summary(
    base: &MemoryDevice,
    explorer: &Explorer,
    history: &History,
    budget: &Budget,
    command: &str,
) -> Summary {
    let kernel = [Need::Root, Need::Loop].iter().all(|need| need.missing().is_none());
    let mut judge = Judge::new(history, base, kernel, 20, 7);
    let summary = run(explorer, budget, command, |state| judge.judge(state));
    println!("{command}: {summary}; {:?}", judge.counts);
    summary
}

fn crash_test(name: &str, spec: &ImageSpec, workload: impl FnOnce(&mut Recorder)) {
    if !require(name, &NEEDS) {
        return;
    }
    let base = image(spec);
    let (explorer, history) = explore(&base, workload, CrashOptions::default());
    let command = format!("cargo test -p syncline-model --test crash {name}");
    let budget = Budget::new(states(), 1).with_only(only());
    let summary = summary(&base, &explorer, &history, &budget, &command);
    if let Err(text) = summary.into_result() {
        panic!("{text}");
    }
}

#[test]
fn sqlite_delete() {
    crash_test("sqlite_delete", &small(4096), workloads::sqlite_delete);
}

#[test]
fn sqlite_persist_and_wal() {
    crash_test("sqlite_persist_and_wal", &small(4096), workloads::sqlite_persist_and_wal);
}

#[test]
fn renames() {
    crash_test("renames", &small(4096), workloads::renames);
}

#[test]
fn renames_in_small_blocks_with_an_orphan_file() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    let name = "renames_in_small_blocks_with_an_orphan_file";
    crash_test(name, &spec, workloads::renames);
}

#[test]
fn reallocation() {
    crash_test("reallocation", &small(4096), workloads::reallocation);
}

#[test]
fn reallocation_in_small_blocks() {
    crash_test("reallocation_in_small_blocks", &small(1024), workloads::reallocation);
}

#[test]
fn overlapping() {
    crash_test("overlapping", &small(4096), workloads::overlapping);
}

#[test]
fn directory_growth() {
    crash_test("directory_growth", &small(1024), workloads::directory_growth);
}

#[test]
fn log_wrap() {
    let spec = ImageSpec { journal_size_mib: Some(1), ..small(1024) };
    crash_test("log_wrap", &spec, workloads::log_wrap);
}

#[test]
fn allocated_ahead() {
    crash_test("allocated_ahead", &small(1024), workloads::allocated_ahead);
}

#[test]
fn orphans() {
    crash_test("orphans", &small(1024), workloads::orphans);
}

/// `SYNCLINE_CRASH_SEED` is the workload's seed.
#[test]
fn mixed() {
    let seed = std::env::var("SYNCLINE_CRASH_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(23);
    println!("seed {seed}");
    crash_test("mixed", &small(4096), |r| workloads::mixed(r, seed));
}

#[test]
fn mixed_in_small_blocks() {
    crash_test("mixed_in_small_blocks", &small(1024), |r| workloads::mixed(r, 42));
}

/// Many seeds of the mixed workload, over block sizes and features. Two tests, for two processors;
/// `SYNCLINE_CRASH_SEED` runs one seed alone.
fn mixed_seeds(name: &str, first: u64) {
    if !require(name, &NEEDS) {
        return;
    }
    let only_seed: Option<u64> =
        std::env::var("SYNCLINE_CRASH_SEED").ok().and_then(|text| text.parse().ok());
    let (wanted, budget) = long_run().map_or((60, 30), |all| (all * 2 / 5, 1500));
    let (mut judged, mut seed) = (0, only_seed.unwrap_or(first));
    while judged < wanted {
        let block_size = [1024, 4096, 2048, 1024][(seed / 2 % 4) as usize];
        let features = ["", "orphan_file", "^metadata_csum"][(seed / 8 % 3) as usize];
        let base = image(&ImageSpec { features: features.to_owned(), ..small(block_size) });
        let options = CrashOptions::default();
        let (explorer, history) = explore(&base, |r| workloads::mixed(r, seed), options);
        let command =
            format!("SYNCLINE_CRASH_SEED={seed} cargo test -p syncline-model --test crash {name}");
        let budget = Budget::new(budget, seed).with_only(only());
        let found = summary(&base, &explorer, &history, &budget, &command);
        judged += found.judged;
        if let Err(text) = found.into_result() {
            panic!("{text}");
        }
        if only_seed.is_some() {
            return;
        }
        seed += 2;
    }
    println!("{name}: {judged} states, seeds {first} to {}", seed - 2);
}

#[test]
fn mixed_even_seeds() {
    mixed_seeds("mixed_even_seeds", 100);
}

#[test]
fn mixed_odd_seeds() {
    mixed_seeds("mixed_odd_seeds", 101);
}

/// Cuts within our own recovery: what they leave is recovered by e2fsck and by us again.
#[test]
fn cuts_within_recovery() {
    if !require("cuts_within_recovery", &NEEDS) {
        return;
    }
    let base = image(&small(1024));
    let (explorer, history) = explore(&base, workloads::orphans, CrashOptions::default());
    let command = "cargo test -p syncline-model --test crash cuts_within_recovery";
    let (outer, inner) = (states() / 10, 10);
    let mut judge = Judge::new(&history, &base, false, u64::MAX, 5);
    let summary = run_nested(
        &explorer,
        &Budget::new(outer, 3).with_only(only()),
        &Budget::new(inner, 3),
        command,
        |device| recover(device).and_then(|v| v.unmount().map_err(|e| e.to_string())),
        |state| judge.judge(state),
    );
    println!("{command}: {summary}; {:?}", judge.counts);
    if let Err(text) = summary.into_result() {
        panic!("{text}");
    }
}

/// The canaries: a device that does not flush, and one whose single flush in the middle is a lie,
/// must be seen by the judges.
#[test]
fn a_dropped_flush_is_caught() {
    if !require("a_dropped_flush_is_caught", &NEEDS) {
        return;
    }
    let base = image(&small(4096));
    let honest = explore(&base, workloads::sqlite_delete, CrashOptions::default());
    let entries = &honest.0.log().entries;
    let flushes = entries.iter().filter(|e| matches!(e, syncline_crash::Entry::Flush)).count();
    let lies =
        [Lie::EveryFlush, Lie::Flush(flushes as u64 / 2), Lie::Flush(flushes as u64 / 2 + 1)];
    let mut caught = 0;
    for lie in lies {
        let options = CrashOptions { lie, ..CrashOptions::default() };
        let (explorer, history) = explore(&base, workloads::sqlite_delete, options);
        let budget = Budget::new(300, 1);
        let summary = summary(&base, &explorer, &history, &budget, &format!("{lie:?}"));
        caught += usize::from(!summary.failures.is_empty());
        if lie == Lie::EveryFlush {
            assert_eq!(caught, 1, "a device without flushes passes for a good one");
        }
    }
    assert!(caught >= 2, "a single dropped flush is never seen");
}

/// Devices without FUA and devices without a volatile cache keep the same promises.
#[test]
fn other_devices() {
    if !require("other_devices", &NEEDS) {
        return;
    }
    let base = image(&small(4096));
    for (volatile_cache, fua) in [(true, false), (false, false)] {
        let options = CrashOptions { volatile_cache, fua, lie: Lie::None };
        let (explorer, history) = explore(&base, workloads::sqlite_delete, options);
        let budget = Budget::new(states() / 3, 2);
        let command = format!("other_devices, volatile {volatile_cache}, fua {fua}");
        summary(&base, &explorer, &history, &budget, &command).into_result().unwrap();
    }
}

/// After a clean unmount nothing is left to recover, whatever the cut was after it.
#[test]
fn the_end_of_an_unmount() {
    if !require("the_end_of_an_unmount", &NEEDS) {
        return;
    }
    let base = image(&small(4096));
    let options = CrashOptions::default();
    let mut recorder = Recorder::new(&base, &MountOptions::default(), options);
    workloads::overlapping(&mut recorder);
    let (log, history) = recorder.unmount();
    let explorer = Explorer::with_options(log, explore_options());
    let budget = Budget::new(states(), 5);
    let command = "cargo test -p syncline-model --test crash the_end_of_an_unmount";
    summary(&base, &explorer, &history, &budget, command).into_result().unwrap();
}
