//! The same workloads with `sync=periodic`: after every cut the volume is, byte for byte, what it
//! was after one of the operations, and not before the last sync point that was durable.
//!
//! A strict file's fsync takes a sync point; so do time, a log that fills, and `sync`.

use std::ops::ControlFlow;
use std::sync::Arc;

use syncline_fs::{Create, FallocateMode, RenameFlags, Volume, XattrFlags};
use syncline_model::{ImageSpec, Random, VolumeTree, require};
use syncline_testkit::crash::{Budget, CrashOptions, Explorer};

use crate::crash::eager::Turns;
use crate::crash::history::{History, Recovered};
use crate::crash::judge::{Counts, Judge, recover};
use crate::crash::recorder::{Recorder, order, parent_of};
use crate::crash::{
    Ground, NEEDS, ORDERED, command, crash_test_on, explore_options, image, lies_are_caught,
    long_run, mixed_seeds, mixed_spec, on_other_devices, only, only_seed, options, passes,
    recovery_cuts, small, unmounts, workloads,
};

/// A sync point a second, and no sync that waits for one.
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
    periodic_test(name, &small(4096), workloads::first_names);
}

#[test]
fn periodic_log_wrap() {
    let name = "periodic_log_wrap";
    if require(name, &NEEDS) {
        for mount in MOUNTS {
            crash_test_on(name, &Ground::short(&small(1024), mount), workloads::log_wrap);
        }
    }
}

/// Images and mount options in turn; every third log is short.
fn periodic_seed(seed: u64) -> Ground {
    let (spec, mount) = (mixed_spec(seed), MOUNTS[(seed / 2 % 4) as usize]);
    if seed.is_multiple_of(3) {
        return Ground::short(&spec, mount);
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

/// Everything at random that a volume can do, in several directories, until it is full; each call
/// may fail.
fn everything(r: &mut Recorder, seed: u64, steps: u32) {
    let mut random = Random::new(seed);
    let dirs = ["", "d", "d/e", "f"];
    for dir in &dirs[1..] {
        r.act(|volume| make(volume, dir, true));
    }
    for step in 0..steps {
        let path = |random: &mut Random| {
            let dir = dirs[random.index(dirs.len())];
            let name = ["a.db", "b", "c", "1", "x"][random.index(5)];
            if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
        };
        let (one, two) = (path(&mut random), path(&mut random));
        let mut is_there = false;
        r.look(|volume| is_there = volume.resolve_nofollow(&one).is_ok());
        if !is_there {
            r.act(|volume| make(volume, &one, false));
            continue;
        }
        match random.below(24) {
            choice @ 0..=10 => contents(r, &mut random, &one, choice),
            11 => r.act(|volume| drop(volume.sync())),
            12 => r.act(|volume| drop(volume.syncfs())),
            13 | 14 => {
                let datasync = random.one_in(2);
                r.act(|volume| {
                    let inode = volume.resolve_nofollow(&one);
                    drop(inode.and_then(|inode| volume.fsync(&inode, datasync)));
                });
            }
            15 => r.pass([5, 900, 5100, 31_000][random.index(4)]),
            choice => {
                let value = random.below(400) as usize;
                r.act(|volume| names(volume, (&one, &two), choice, (step as u8, value)));
            }
        }
    }
}

fn make(volume: &Volume, path: &str, dir: bool) {
    let (parent, name) = parent_of(path);
    let Ok(parent) = volume.resolve(parent) else { return };
    let owner = Create { mode: 0o700, uid: 0, gid: 0 };
    match dir {
        true => drop(volume.mkdir(&parent, name.as_bytes(), &owner)),
        false => drop(volume.create(&parent, name.as_bytes(), &owner)),
    }
}

/// A change of a file's contents; writes go block by block, since each is an operation.
fn contents(r: &mut Recorder, random: &mut Random, path: &str, choice: u64) {
    let (mut size, mut block, mut is_file) = (0, 4096, false);
    r.look(|volume| {
        let Ok(inode) = volume.resolve_nofollow(path) else { return };
        let attr = volume.getattr(&inode);
        (size, is_file) = (attr.size, attr.mode & 0o170_000 == 0o100_000);
        block = u64::from(attr.blksize);
    });
    if !is_file {
        return;
    }
    let bytes = |random: &mut Random, len: u64| {
        let mut bytes = vec![0; len as usize];
        syncline_model::fill(random.bits(), 0, &mut bytes);
        bytes
    };
    let at = random.below(size / block + 1) * block;
    match choice {
        // Long enough for new blocks in place of the old ones.
        0 | 1 => {
            let data = bytes(random, 272 << 10);
            r.fill(path, at.min(64 << 10), &data, block as usize);
        }
        2..=4 => {
            let len = block * (1 + random.below(6));
            let data = bytes(random, len);
            r.fill(path, at, &data, block as usize);
        }
        5 => {
            let len = 1 + random.below(block / 2);
            let data = bytes(random, len);
            r.fill(path, at + block / 2 - 1, &data, block as usize);
        }
        6 => {
            let to = random.below(size + block);
            r.act(|volume| {
                let inode = volume.resolve_nofollow(path);
                drop(inode.and_then(|inode| volume.truncate(&inode, to)));
            });
        }
        7 if random.one_in(4) => {
            // No room is left; then some of it again.
            let data = bytes(random, 16 << 20);
            r.fill(path, size.next_multiple_of(block), &data, 64 * block as usize);
            r.act(|volume| {
                let inode = volume.resolve_nofollow(path);
                drop(inode.and_then(|inode| volume.truncate(&inode, block)));
            });
        }
        _ => {
            use FallocateMode::{Allocate, KeepSize, PunchHole, ZeroRange};
            let mode = [Allocate, KeepSize, PunchHole, ZeroRange][random.index(4)];
            let (at, len) = (random.below(size + 1), 1 + random.below(20 * block));
            r.act(|volume| {
                let inode = volume.resolve_nofollow(path);
                drop(inode.and_then(|inode| volume.fallocate(&inode, mode, at, len)));
            });
        }
    }
}

/// A change of names or attributes.
fn names(volume: &Volume, (one, two): (&str, &str), choice: u64, (byte, len): (u8, usize)) {
    let at = |path: &str| {
        let (dir, name) = parent_of(path);
        volume.resolve(dir).map(|dir| (dir, name.to_owned().into_bytes()))
    };
    let find = |path: &str| volume.resolve_nofollow(path);
    let attribute = [&b"user.a"[..], b"user.b", b"trusted.c"][len % 3];
    let done = match choice {
        16 => at(one).and_then(|(dir, name)| volume.unlink(&dir, &name)),
        17 => at(one).and_then(|(dir, name)| volume.rmdir(&dir, &name)),
        18 | 19 => at(one).and_then(|(old, name)| {
            let (dir, new) = at(two)?;
            let exchange = choice == 19 && find(two).is_ok();
            let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::NONE };
            volume.rename(&old, &name, &dir, &new, flags)
        }),
        20 => find(one)
            .and_then(|inode| at(two).and_then(|(dir, name)| volume.link(&inode, &dir, &name))),
        21 => at(two).and_then(|(dir, name)| {
            let owner = Create { mode: 0o777, uid: 0, gid: 0 };
            volume.symlink(&dir, &name, &vec![b'a' + byte % 26; 1 + len], &owner).map(drop)
        }),
        22 => find(one).and_then(|inode| {
            volume.setxattr(&inode, attribute, &vec![byte; len], XattrFlags::Any)
        }),
        _ => find(one).and_then(|inode| volume.removexattr(&inode, attribute)),
    };
    // What cannot be done changes nothing.
    drop(done);
}

/// Seeds of [`everything`] on each image and with each mount. All states are recovered by us, one
/// of four by stock tools as well.
fn everything_seeds(name: &str, first: u64) {
    if !require(name, &NEEDS) {
        return;
    }
    let (wanted, states, steps) = long_run().map_or((40, 20, 50), |all| (all / 2, 600, 90));
    let (mut judged, mut counts, mut seed) = (0, Counts::default(), only_seed().unwrap_or(first));
    while judged < wanted {
        let ground = periodic_seed(seed);
        let ground = Ground { stock_every: 4, ..ground };
        let (explorer, history) =
            ground.explore(|r| everything(r, seed, steps), CrashOptions::default());
        let command = format!("SYNCLINE_CRASH_SEED={seed} {}", command(name));
        let budget = Budget::new(states, seed).with_only(only());
        let (summary, these) = ground.judge_counted(&explorer, &history, &budget, &command);
        judged += passes(summary);
        counts.add(&these);
        if only_seed().is_some() {
            return;
        }
        seed += 2;
    }
    println!("{name}: {judged} states, {counts:?}, seeds {first} to {}", seed - 2);
}

#[test]
fn periodic_everything_even_seeds() {
    everything_seeds("periodic_everything_even_seeds", 1000);
}

#[test]
fn periodic_everything_odd_seeds() {
    everything_seeds("periodic_everything_odd_seeds", 1001);
}

/// The canary of a sync point: one page of it as it was in the sync point before is seen, whichever
/// it is.
#[test]
fn a_page_left_out_of_a_sync_point_is_caught() {
    if !require("a_page_left_out_of_a_sync_point_is_caught", &NEEDS) {
        return;
    }
    let base = image(&small(4096));
    let mut recorder = Recorder::new(&base, &options(TIMED), CrashOptions::default());
    let old = [7; 40 << 10];
    for path in ["one", "two"] {
        recorder.act(|volume| make(volume, path, false));
        assert!(recorder.fill(path, 0, &old, 4096));
    }
    recorder.act(|volume| volume.sync().unwrap());
    for path in ["one", "two"] {
        assert!(recorder.fill(path, 0, &[9; 40 << 10], 4096));
    }
    recorder.act(|volume| volume.sync().unwrap());
    let (log, history) = recorder.stop();
    let explorer = Explorer::with_options(log, explore_options());
    // The last state: everything reached the device.
    let mut last = None;
    explorer.for_each_state(&Budget::new(u64::MAX, 1), |state| {
        last = Some(state);
        ControlFlow::Continue(())
    });
    let last = last.expect("the workload wrote");
    let read = |volume: &Volume| Recovered::read(&mut VolumeTree::new(volume.clone())).unwrap();
    for (path, page) in ["one", "two"].into_iter().flat_map(|path| (0..10).map(move |n| (path, n)))
    {
        let volume = recover(Arc::new(last.image.snapshot()), STRICT).unwrap();
        history.check(&read(&volume), last.marks()).unwrap();
        let inode = volume.resolve(path).unwrap();
        volume.write(&inode, page * 4096, &old[..4096]).unwrap();
        let seen = history.check(&read(&volume), last.marks());
        assert!(seen.is_err(), "{path}, page {page}: as in the sync point before");
    }
}

/// The canary: modes that make one file durable at a time leave mixtures, which are seen.
#[test]
fn other_modes_leave_what_no_sync_point_was() {
    if !require("other_modes_leave_what_no_sync_point_was", &NEEDS) {
        return;
    }
    for mount in [ORDERED, "sync=eager"] {
        let base = image(&small(4096));
        let mut recorder = Recorder::by_sync_points(&base, &options(mount));
        workloads::mixed(&mut recorder, 5);
        let (log, history) = recorder.stop();
        let explorer = Explorer::with_options(log, explore_options());
        let mut judge = Judge::new(&history, &base, u64::MAX, u64::MAX);
        let summary =
            syncline_testkit::crash::run(&explorer, &Budget::new(60, 1), mount, |state| {
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
