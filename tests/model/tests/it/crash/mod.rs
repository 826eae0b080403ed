//! Power cuts in the middle of workloads. Every state that a cut may leave is recovered by us, a
//! third of them (all, in a long run) by e2fsck, and some by a kernel; all three give the same
//! tree, which is a legal outcome (`history`), and e2fsck finds nothing to correct.
//!
//! Here are the tests of `sync=ordered`; those of `sync=eager` are in `eager`.
//!
//! Variables
//! - `SYNCLINE_CRASH_STATES`: states over all workloads of each mode, for the long run (`make
//!   crash-long`); 1/20 of them go through a kernel mount.
//! - `SYNCLINE_CRASH_STATE`: one state again; a failure prints the command.

mod ace;
mod barriers;
mod clusters;
mod eager;
mod history;
mod in_inodes;
mod judge;
mod names;
mod packed;
mod periodic;
mod recorder;
mod workloads;

use syncline_device::MemoryDevice;
use syncline_fs::MountOptions;
use syncline_model::{ImageSpec, Need, mkfs, require};
use syncline_testkit::crash::{
    Budget, CrashOptions, ExploreOptions, Explorer, FaultyFlush, StateId, Summary, run, run_nested,
};

use crate::crash::history::History;
use crate::crash::judge::{Counts, Judge, recover};
use crate::crash::recorder::Recorder;

/// States per workload in a plain test run, and how many workloads share the long run.
const STATES: u64 = 200;
const WORKLOADS: u64 = 15;
/// In a plain run one of so many states is shown to stock tools, whose processes take most of the
/// time, and one of so many of these to a kernel. In a long run all are, and one of 20.
const STOCK_EVERY: u64 = 3;
const KERNEL_EVERY: u64 = 7;
const NEEDS: [Need; 1] = [Need::E2fsck];
const ORDERED: &str = "sync=ordered";

fn long_run() -> Option<u64> {
    std::env::var("SYNCLINE_CRASH_STATES").ok()?.trim().parse().ok()
}

fn states() -> u64 {
    long_run().map_or(STATES, |all| all.div_ceil(WORKLOADS))
}

/// True for the long run, and for one state again.
fn is_long() -> bool {
    long_run().is_some() || only().is_some()
}

fn stock_every() -> u64 {
    if is_long() { 1 } else { STOCK_EVERY }
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

fn only_seed() -> Option<u64> {
    std::env::var("SYNCLINE_CRASH_SEED").ok()?.parse().ok()
}

fn small(block_size_bytes: u32) -> ImageSpec {
    ImageSpec { block_size_bytes, journal_size_mib: Some(4), ..ImageSpec::with_size(16 << 20) }
}

fn image(spec: &ImageSpec) -> MemoryDevice {
    MemoryDevice::load(mkfs(spec).path()).unwrap()
}

fn options(list: &str) -> MountOptions {
    MountOptions::parse(list).expect("known options")
}

fn command(name: &str) -> String {
    format!("cargo test -p syncline-model --test it crash::{name}")
}

/// Image and mount options on which a workload runs.
struct Ground {
    base: MemoryDevice,
    mount: &'static str,
    /// One in this many states is also mounted by the kernel.
    kernel_every: u64,
    /// One in this many states is judged by stock tools, the others by our recovery alone.
    stock_every: u64,
}

impl Ground {
    fn new(spec: &ImageSpec, mount: &'static str) -> Ground {
        let kernel_every = if is_long() { 20 } else { STOCK_EVERY * KERNEL_EVERY };
        Ground { base: image(spec), mount, kernel_every, stock_every: stock_every() }
    }

    /// With a log so short that it wraps.
    fn short(spec: &ImageSpec, mount: &'static str) -> Ground {
        let base = eager::short_ring(spec, 480);
        Ground { base, mount, kernel_every: u64::MAX, stock_every: stock_every() }
    }

    /// Records a workload.
    fn explore(
        &self,
        workload: impl FnOnce(&mut Recorder),
        device: CrashOptions,
    ) -> (Explorer, History) {
        let mut recorder = Recorder::new(&self.base, &options(self.mount), device);
        workload(&mut recorder);
        let (log, history) = recorder.stop();
        (Explorer::with_options(log, explore_options()), history)
    }

    fn judge(
        &self,
        explorer: &Explorer,
        history: &History,
        budget: &Budget,
        command: &str,
    ) -> Summary {
        self.judge_counted(explorer, history, budget, command).0
    }

    fn judge_counted(
        &self,
        explorer: &Explorer,
        history: &History,
        budget: &Budget,
        command: &str,
    ) -> (Summary, Counts) {
        let judge = Judge::new(history, &self.base, self.kernel_every, 7);
        let mut judge = judge.with_stock_every(self.stock_every);
        let summary = run(explorer, budget, command, |state| judge.judge(state));
        println!("{command}: {summary}; {:?}", judge.counts);
        (summary, judge.counts)
    }
}

fn passes(summary: Summary) -> u64 {
    let judged = summary.judged;
    if let Err(text) = summary.into_result() {
        panic!("{text}");
    }
    judged
}

/// Explores a workload on an image.
fn crash_test_on(name: &str, ground: &Ground, workload: impl FnOnce(&mut Recorder)) {
    let (explorer, history) = ground.explore(workload, CrashOptions::default());
    let budget = Budget::new(states(), 1).with_only(only());
    passes(ground.judge(&explorer, &history, &budget, &command(name)));
}

fn crash_test(name: &str, spec: &ImageSpec, workload: impl FnOnce(&mut Recorder)) {
    if require(name, &NEEDS) {
        crash_test_on(name, &Ground::new(spec, ORDERED), workload);
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
fn references() {
    crash_test("references", &small(4096), workloads::references);
}

#[test]
fn replacements() {
    crash_test("replacements", &small(4096), workloads::replacements);
}

/// The canary of the test above, in both modes: what it demands is not there by itself.
#[test]
fn without_auto_da_alloc_replacements_are_lost() {
    if !require("without_auto_da_alloc_replacements_are_lost", &NEEDS) {
        return;
    }
    for mount in ["sync=ordered,noauto_da_alloc", "sync=eager,noauto_da_alloc"] {
        let ground = Ground::new(&small(4096), mount);
        let (explorer, history) = ground.explore(workloads::replacements, CrashOptions::default());
        let summary = ground.judge(&explorer, &history, &Budget::new(60, 1), mount);
        assert!(!summary.failures.is_empty(), "{mount}: nothing is ever lost");
    }
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
fn first_names() {
    crash_test("first_names", &small(4096), workloads::first_names);
}

#[test]
fn mixed() {
    let seed = only_seed().unwrap_or(23);
    println!("seed {seed}");
    crash_test("mixed", &small(4096), |r| workloads::mixed(r, seed));
}

#[test]
fn mixed_in_small_blocks() {
    crash_test("mixed_in_small_blocks", &small(1024), |r| workloads::mixed(r, 42));
}

/// A cache of 192 pages, from which write-back takes what the policy names, at every write beyond
/// the fifth page: the order of pages and files on the device is not that of any file.
#[test]
fn in_the_order_of_a_policy() {
    let name = "in_the_order_of_a_policy";
    if !require(name, &NEEDS) {
        return;
    }
    let orders = [("policy", "spatialclock"), ("policy", "fab"), ("space", "clock")];
    for ((writeback, policy), seed) in orders.iter().zip([23, 71, 5]) {
        for sync in ["ordered", "eager", "periodic"] {
            let mount = format!(
                "sync={sync},cache=1M,policy={policy},writeback={writeback},dirty_ratio=3,\
                 dirty_background_ratio=1"
            );
            let ground = Ground::new(&small(4096), mount.leak());
            crash_test_on(name, &ground, |r| workloads::mixed(r, seed));
        }
    }
}

/// An image for a seed of the mixed workload: block sizes, features and groups that come into use
/// on the way, in turn.
fn mixed_spec(seed: u64) -> ImageSpec {
    let block_size = [1024, 4096, 2048, 1024][(seed / 2 % 4) as usize];
    let features = ["", "orphan_file", "^metadata_csum"][(seed / 8 % 3) as usize];
    let blocks_per_group = (seed / 4 % 3 == 1).then_some(1024);
    ImageSpec { features: features.to_owned(), blocks_per_group, ..small(block_size) }
}

/// Many seeds of the mixed workload, over block sizes and features. Two tests, for two processors;
/// `SYNCLINE_CRASH_SEED` runs one seed alone.
fn mixed_seeds(name: &str, first: u64, case: impl Fn(u64) -> Ground) {
    if !require(name, &NEEDS) {
        return;
    }
    let (wanted, states) = long_run().map_or((60, 30), |all| (all * 2 / 5, 1500));
    let (mut judged, mut seed) = (0, only_seed().unwrap_or(first));
    while judged < wanted {
        let ground = case(seed);
        let device = CrashOptions::default();
        let (explorer, history) = ground.explore(|r| workloads::mixed(r, seed), device);
        let command = format!("SYNCLINE_CRASH_SEED={seed} {}", command(name));
        let budget = Budget::new(states, seed).with_only(only());
        judged += passes(ground.judge(&explorer, &history, &budget, &command));
        if only_seed().is_some() {
            return;
        }
        seed += 2;
    }
    println!("{name}: {judged} states, seeds {first} to {}", seed - 2);
}

fn ordered_seed(seed: u64) -> Ground {
    Ground::new(&mixed_spec(seed), ORDERED)
}

#[test]
fn mixed_even_seeds() {
    mixed_seeds("mixed_even_seeds", 100, ordered_seed);
}

#[test]
fn mixed_odd_seeds() {
    mixed_seeds("mixed_odd_seeds", 101, ordered_seed);
}

/// Cuts within our own recovery: what they leave is recovered by e2fsck and by us again.
fn recovery_cuts(
    name: &str,
    ground: &Ground,
    next_mount: &str,
    workload: impl FnOnce(&mut Recorder),
) {
    let (explorer, history) = ground.explore(workload, CrashOptions::default());
    let (outer, inner) = (states() / 10, 10);
    let mut judge = Judge::new(&history, &ground.base, u64::MAX, 5);
    let command = command(name);
    let summary = run_nested(
        &explorer,
        &Budget::new(outer, 3).with_only(only()),
        &Budget::new(inner, 3),
        &command,
        |device| recover(device, next_mount).and_then(|v| v.unmount().map_err(|e| e.to_string())),
        |state| judge.judge(state),
    );
    println!("{command}: {summary}; {:?}", judge.counts);
    passes(summary);
}

#[test]
fn cuts_within_recovery() {
    let name = "cuts_within_recovery";
    if require(name, &NEEDS) {
        let ground = Ground::new(&small(1024), ORDERED);
        recovery_cuts(name, &ground, ORDERED, workloads::orphans);
    }
}

/// The canaries: a device that does not flush, and one whose single flush in the middle is a lie,
/// must be seen by the judges.
fn lies_are_caught(mount: &'static str) {
    let ground = Ground::new(&small(4096), mount);
    let honest = ground.explore(workloads::sqlite_delete, CrashOptions::default());
    let entries = &honest.0.log().entries;
    let flushes =
        entries.iter().filter(|e| matches!(e, syncline_testkit::crash::Entry::Flush)).count();
    let lies = [
        FaultyFlush::EveryFlush,
        FaultyFlush::Flush(flushes as u64 / 2),
        FaultyFlush::Flush(flushes as u64 / 2 + 1),
    ];
    let mut caught = 0;
    for faulty in lies {
        let device = CrashOptions { faulty, ..CrashOptions::default() };
        let (explorer, history) = ground.explore(workloads::sqlite_delete, device);
        let budget = Budget::new(300, 1);
        let summary = ground.judge(&explorer, &history, &budget, &format!("{faulty:?}"));
        caught += usize::from(!summary.failures.is_empty());
        if faulty == FaultyFlush::EveryFlush {
            assert_eq!(caught, 1, "a device without flushes passes for a good one");
        }
    }
    assert!(caught >= 2, "a single dropped flush is never seen");
}

#[test]
fn a_dropped_flush_is_caught() {
    if require("a_dropped_flush_is_caught", &NEEDS) {
        lies_are_caught(ORDERED);
    }
}

/// Devices without FUA and devices without a volatile cache keep the same promises.
fn on_other_devices(name: &str, mount: &'static str) {
    let ground = Ground::new(&small(4096), mount);
    for (volatile_cache, fua) in [(true, false), (false, false)] {
        let device = CrashOptions { volatile_cache, fua, ..CrashOptions::default() };
        let (explorer, history) = ground.explore(workloads::sqlite_delete, device);
        let budget = Budget::new(states() / 3, 2);
        let command = format!("{name}, volatile {volatile_cache}, fua {fua}");
        passes(ground.judge(&explorer, &history, &budget, &command));
    }
}

#[test]
fn other_devices() {
    if require("other_devices", &NEEDS) {
        on_other_devices("other_devices", ORDERED);
    }
}

/// After a clean unmount nothing is left to recover, whatever the cut was after it.
fn unmounts(name: &str, ground: &Ground) {
    let mut recorder = Recorder::new(&ground.base, &options(ground.mount), CrashOptions::default());
    workloads::overlapping(&mut recorder);
    let (log, history) = recorder.unmount();
    let explorer = Explorer::with_options(log, explore_options());
    let budget = Budget::new(states(), 5).with_only(only());
    passes(ground.judge(&explorer, &history, &budget, &command(name)));
}

#[test]
fn the_end_of_an_unmount() {
    if require("the_end_of_an_unmount", &NEEDS) {
        unmounts("the_end_of_an_unmount", &Ground::new(&small(4096), ORDERED));
    }
}
