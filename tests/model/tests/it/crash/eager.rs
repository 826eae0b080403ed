//! The same workloads with `sync=eager`, and what only that mode has: the threshold, logs that are
//! short, changes of the mode between crashes.

use std::os::unix::fs::FileExt;

use syncline_device::MemoryDevice;
use syncline_model::{ImageSpec, Random, debugfs, e2fsck_preen, mkfs, require};
use syncline_testkit::crash::{Budget, CrashOptions, CrashState, Explorer};

use crate::crash::history::History;
use crate::crash::judge::{E2FSCK_TWO_LEAVES, Judge};
use crate::crash::recorder::{Recorder, order};
use crate::crash::{
    Ground, NEEDS, ORDERED, crash_test_on, explore_options, image, lies_are_caught, long_run,
    mixed_seeds, mixed_spec, on_other_devices, only_seed, options, recovery_cuts, small, unmounts,
    workloads,
};

const EAGER: &str = "sync=eager";
/// Most syncs of more than one page take the ordered path.
const LOW: &str = "sync=eager,eager_threshold=3";

fn eager_test(
    name: &str,
    spec: &ImageSpec,
    mount: &'static str,
    workload: impl FnOnce(&mut Recorder),
) {
    if require(name, &NEEDS) {
        crash_test_on(name, &Ground::new(spec, mount), workload);
    }
}

/// An image whose log has so few blocks: `s_first` is moved towards its end. The kernel wants 1024
/// at least.
pub fn short_ring(spec: &ImageSpec, ring: u32) -> MemoryDevice {
    let image = mkfs(spec);
    let said = debugfs(image.path(), "bmap <8> 0\n");
    let block = said.lines().find_map(|line| line.trim().parse::<u64>().ok());
    let block = block.unwrap_or_else(|| panic!("debugfs bmap said {said}"));
    let at = block * u64::from(spec.block_size_bytes);
    let device = MemoryDevice::load(image.path()).unwrap();
    let mut superblock = [0; 1024];
    device.read_at(at, &mut superblock).unwrap();
    let len = u32::from_be_bytes(superblock[16..20].try_into().unwrap());
    superblock[20..24].copy_from_slice(&(len - ring).to_be_bytes());
    device.write_at(at, &superblock).unwrap();
    device
}

#[test]
fn eager_sqlite_delete() {
    eager_test("eager_sqlite_delete", &small(4096), EAGER, workloads::sqlite_delete);
}

#[test]
fn eager_sqlite_truncate() {
    eager_test("eager_sqlite_truncate", &small(4096), EAGER, workloads::sqlite_truncate);
}

#[test]
fn eager_sqlite_persist_and_wal() {
    let name = "eager_sqlite_persist_and_wal";
    eager_test(name, &small(4096), EAGER, workloads::sqlite_persist_and_wal);
}

#[test]
fn eager_renames() {
    eager_test("eager_renames", &small(4096), EAGER, workloads::renames);
}

#[test]
fn eager_renames_in_small_blocks_with_an_orphan_file() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    let name = "eager_renames_in_small_blocks_with_an_orphan_file";
    eager_test(name, &spec, EAGER, workloads::renames);
}

#[test]
fn eager_references() {
    eager_test("eager_references", &small(4096), EAGER, workloads::references);
}

#[test]
fn eager_references_in_small_blocks_with_an_orphan_file() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    let name = "eager_references_in_small_blocks_with_an_orphan_file";
    eager_test(name, &spec, EAGER, workloads::references);
}

#[test]
fn eager_first_names() {
    eager_test("eager_first_names", &small(4096), EAGER, workloads::first_names);
}

#[test]
fn eager_first_names_in_small_blocks_with_an_orphan_file() {
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    let name = "eager_first_names_in_small_blocks_with_an_orphan_file";
    eager_test(name, &spec, EAGER, workloads::first_names);
}

#[test]
fn eager_replacements() {
    eager_test("eager_replacements", &small(4096), EAGER, workloads::replacements);
}

#[test]
fn eager_reallocation() {
    eager_test("eager_reallocation", &small(4096), EAGER, workloads::reallocation);
}

#[test]
fn eager_reallocation_in_small_blocks() {
    let name = "eager_reallocation_in_small_blocks";
    eager_test(name, &small(1024), EAGER, workloads::reallocation);
}

#[test]
fn eager_overlapping() {
    eager_test("eager_overlapping", &small(4096), EAGER, workloads::overlapping);
}

#[test]
fn eager_directory_growth() {
    eager_test("eager_directory_growth", &small(1024), EAGER, workloads::directory_growth);
}

#[test]
fn eager_log_wrap() {
    let spec = ImageSpec { journal_size_mib: Some(1), ..small(1024) };
    eager_test("eager_log_wrap", &spec, EAGER, workloads::log_wrap);
}

#[test]
fn eager_log_wrap_of_a_short_log() {
    let name = "eager_log_wrap_of_a_short_log";
    if require(name, &NEEDS) {
        let ground = Ground::short(&small(1024), EAGER);
        crash_test_on(name, &ground, workloads::log_wrap);
    }
}

/// Truncated files with two extent leaves are cut by recovery. The log is too short for a kernel.
#[test]
fn truncation_of_files_with_two_extent_leaves() {
    let name = "truncation_of_files_with_two_extent_leaves";
    if require(name, &NEEDS) {
        for mount in [EAGER, ORDERED] {
            let base = short_ring(&small(1024), 400);
            let ground = Ground { base, ..Ground::short(&small(1024), mount) };
            crash_test_on(name, &ground, workloads::log_wrap);
        }
    }
}

/// The reason for `E2FSCK_TWO_LEAVES`, without a byte of ours: once this fails e2fsck is mended.
#[test]
fn e2fsck_frees_the_second_leaf_of_an_orphan_twice() {
    if !require("e2fsck_frees_the_second_leaf_of_an_orphan_twice", &NEEDS) {
        return;
    }
    let image = mkfs(&ImageSpec { features: "^orphan_file,^metadata_csum".into(), ..small(1024) });
    let sparse = tempfile::NamedTempFile::new().unwrap();
    for extent in 0..200 {
        sparse.as_file().write_all_at(&[7; 1024], extent * 2048).unwrap();
    }
    let path = sparse.path().display();
    let said =
        debugfs(image.path(), &format!("write {path} f\nsif f size 0\nssv last_orphan 12\n"));
    assert!(!said.contains("not found"), "{said}");
    let said = e2fsck_preen(image.path()).expect_err("e2fsck cuts two leaves");
    assert!(said.contains(E2FSCK_TWO_LEAVES), "{said}");
}

#[test]
fn eager_allocated_ahead() {
    eager_test("eager_allocated_ahead", &small(1024), EAGER, workloads::allocated_ahead);
}

#[test]
fn eager_orphans() {
    eager_test("eager_orphans", &small(1024), EAGER, workloads::orphans);
}

#[test]
fn eager_threshold_crossings() {
    let name = "eager_threshold_crossings";
    if require(name, &NEEDS) {
        let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
        crash_test_on(name, &Ground::new(&spec, LOW), workloads::overlapping);
        crash_test_on(name, &Ground::new(&small(4096), LOW), workloads::reallocation);
    }
}

#[test]
fn eager_mixed() {
    let seed = only_seed().unwrap_or(23);
    println!("seed {seed}");
    eager_test("eager_mixed", &small(4096), EAGER, |r| workloads::mixed(r, seed));
}

#[test]
fn eager_mixed_in_small_blocks() {
    let name = "eager_mixed_in_small_blocks";
    eager_test(name, &small(1024), EAGER, |r| workloads::mixed(r, 42));
}

/// Images and thresholds in turn; every third log is short.
fn eager_seed(seed: u64) -> Ground {
    let spec = mixed_spec(seed);
    let mount = if (seed / 2).is_multiple_of(3) { LOW } else { EAGER };
    if seed.is_multiple_of(3) {
        return Ground::short(&spec, mount);
    }
    Ground::new(&spec, mount)
}

#[test]
fn eager_mixed_even_seeds() {
    mixed_seeds("eager_mixed_even_seeds", 100, eager_seed);
}

#[test]
fn eager_mixed_odd_seeds() {
    mixed_seeds("eager_mixed_odd_seeds", 101, eager_seed);
}

#[test]
fn eager_cuts_within_recovery() {
    let name = "eager_cuts_within_recovery";
    if !require(name, &NEEDS) {
        return;
    }
    let spec = ImageSpec { features: "orphan_file".to_owned(), ..small(1024) };
    recovery_cuts(name, &Ground::new(&small(1024), EAGER), ORDERED, workloads::orphans);
    recovery_cuts(name, &Ground::new(&spec, EAGER), EAGER, workloads::orphans);
}

#[test]
fn an_eager_dropped_flush_is_caught() {
    if require("an_eager_dropped_flush_is_caught", &NEEDS) {
        lies_are_caught(EAGER);
    }
}

#[test]
fn eager_other_devices() {
    if require("eager_other_devices", &NEEDS) {
        on_other_devices("eager_other_devices", EAGER);
    }
}

#[test]
fn the_end_of_an_eager_unmount() {
    if require("the_end_of_an_eager_unmount", &NEEDS) {
        unmounts("the_end_of_an_eager_unmount", &Ground::new(&small(4096), EAGER));
    }
}

/// One image after crash after crash, each mount in another mode than the one before.
pub struct Turns {
    base: MemoryDevice,
    states: u64,
    judged: u64,
    kernel: u64,
}

impl Turns {
    pub fn new(base: &MemoryDevice, states: u64) -> Turns {
        Turns { base: base.snapshot(), states, judged: 0, kernel: 0 }
    }

    pub fn report(&self, name: &str) {
        println!("{name}: {} states judged, {} by a kernel", self.judged, self.kernel);
    }

    /// Works in one mode, cuts, judges, and goes on from some of the states in the next.
    pub fn play(&mut self, base: &MemoryDevice, history: History, modes: &[&str], seed: u64) {
        let Some((mount, rest)) = modes.split_first() else { return };
        let mount = options(mount);
        let mut recorder = Recorder::resume(base, &mount, CrashOptions::default(), history);
        workloads::mixed_steps(&mut recorder, seed, 35);
        let (log, history) = recorder.stop();
        let explorer = Explorer::with_options(log, explore_options());
        let mut judge = Judge::new(&history, &self.base, 3, 2);
        let mut next: Vec<CrashState> = Vec::new();
        let budget = Budget::new(self.states, seed);
        let summary = syncline_testkit::crash::run(&explorer, &budget, "modes_in_turn", |state| {
            judge.judge(state)?;
            if next.len() < 2 && Random::new(seed ^ self.judged).one_in(3) {
                next.push(explorer.state(&state.id).map_err(|e| e.to_string())?);
            }
            self.judged += 1;
            Ok(())
        });
        self.kernel += judge.counts.kernel;
        summary.into_result().unwrap_or_else(|text| panic!("seed {seed}, {modes:?}: {text}"));
        for (n, state) in (1..).zip(next) {
            let tree = judge.tree(&state).unwrap();
            let order = order(&options(rest.first().copied().unwrap_or(EAGER)));
            let after = history.after(&tree, state.marks(), order).unwrap();
            self.play(&state.image, after, rest, seed * 3 + n);
        }
    }
}

/// eager -> crash -> ordered -> crash -> eager -> crash; a kernel mounts every third state.
#[test]
fn modes_in_turn() {
    if !require("modes_in_turn", &NEEDS) {
        return;
    }
    let (seeds, states) = long_run().map_or((2, 8), |all| (2 + all / 5000, 25));
    let seeds = only_seed().map_or(300..300 + seeds, |seed| seed..seed + 1);
    for seed in seeds {
        println!("seed {seed}");
        let base = image(&mixed_spec(seed * 2));
        let mut turns = Turns::new(&base, states);
        let modes = match seed % 2 {
            0 => [EAGER, ORDERED, EAGER],
            _ => [ORDERED, LOW, ORDERED],
        };
        turns.play(&base, History::new(order(&options(modes[0]))), &modes, seed);
        turns.report("modes_in_turn");
    }
}
