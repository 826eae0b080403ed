//! The workloads of CrashMonkey's ACE of length 2 (Mohan et al., OSDI 2018) with `sync=periodic`:
//! two operations of its set on its files, and what they depend on, each followed by an fsync, a
//! sync or nothing.
//!
//! ```text
//!   files        foo, A/foo | bar, A/bar        directories  A | B
//!   operations   creat, mkdir, falloc, write, dwrite, mmapwrite, link, unlink, remove, rename,
//!                fsetxattr, removexattr, truncate
//! ```
//!
//! At the level of a volume direct and mapped writes are writes, and `remove` is `unlink`; they are
//! kept, so that the counts are those of the set. Of the syncs that ACE puts after each operation
//! each pair gets one choice, another one for each pair. Every file is strict, so that a sync is a
//! moment, as it is a persistence point in CrashMonkey.
//!
//! `SYNCLINE_CRASH_STATES`: all pairs; else a sample.

use syncline_fs::{Create, FallocateMode, RenameFlags, Volume, XattrFlags};
use syncline_model::{Random, require};
use syncline_testkit::crash::{Budget, CrashOptions, Explorer};

use crate::crash::history::History;
use crate::crash::judge::Judge;
use crate::crash::recorder::{Recorder, parent_of};
use crate::crash::{NEEDS, explore_options, image, long_run, only_seed, options, small};

const FILES: [&str; 2] = ["foo", "A/foo"];
const SECOND_FILES: [&str; 2] = ["bar", "A/bar"];
const OWNER: Create = Create { mode: 0o644, uid: 0, gid: 0 };
const ATTRIBUTE: &[u8] = b"user.xattr1";
/// A plain run takes one in this many pairs, about 25 of them.
const SAMPLE_EVERY: usize = 179;
const STATES: u64 = 20;

/// Range of a write or fallocate, by ACE's names.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// Behind the end.
    Append,
    /// From 8000 to 12096 bytes.
    OverlapUnalignedStart,
    /// From 2 KiB before the end to 2 KiB behind it.
    OverlapExtend,
    /// The first 8 KiB.
    OverlapStart,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Create(&'static str),
    Mkdir(&'static str),
    Falloc(&'static str, FallocateMode, Span),
    Write(&'static str, Span),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Rename(&'static str, &'static str),
    SetXattr(&'static str),
    RemoveXattr(&'static str),
    Truncate(&'static str, u64),
}

#[derive(Clone, Copy, Debug)]
enum Sync {
    Nothing,
    Fsync(&'static str),
    Fdatasync(&'static str),
    All,
}

/// ACE's operations with all their arguments.
fn operations() -> Vec<Op> {
    let modes = [
        FallocateMode::ZeroRange,
        FallocateMode::ZeroRange,
        FallocateMode::PunchHole,
        FallocateMode::KeepSize,
        FallocateMode::Allocate,
    ];
    let spans = [Span::Append, Span::OverlapUnalignedStart, Span::OverlapExtend];
    let mut all: Vec<Op> = vec![Op::Mkdir("A")];
    for file in FILES {
        all.extend([Op::Create(file), Op::SetXattr(file), Op::RemoveXattr(file)]);
        all.extend([Op::Truncate(file, 8192), Op::Truncate(file, 5000)]);
        all.extend(modes.iter().flat_map(|mode| spans.map(|span| Op::Falloc(file, *mode, span))));
        all.extend(spans.map(|span| Op::Write(file, span)));
        // Direct writes, then mapped ones.
        for _ in 0..2 {
            all.extend([Span::Append, Span::OverlapStart].map(|span| Op::Write(file, span)));
        }
    }
    for file in FILES.into_iter().chain(SECOND_FILES) {
        all.extend([Op::Unlink(file), Op::Unlink(file)]);
        for second in SECOND_FILES.into_iter().filter(|second| *second != file) {
            all.extend([Op::Link(file, second), Op::Rename(file, second)]);
        }
    }
    all.push(Op::Rename("A", "B"));
    all
}

fn exists(r: &mut Recorder, path: &str) -> bool {
    let mut found = false;
    r.look(|volume| found = volume.resolve_nofollow(path).is_ok());
    found
}

/// Makes a file of 16 KiB, or a directory, that an operation needs.
fn depend(r: &mut Recorder, path: &'static str) {
    if exists(r, path) {
        return;
    }
    if path == "A" || path == "B" {
        return r.act(|volume| mkdir(volume, path));
    }
    let (dir, name) = parent_of(path);
    if !dir.is_empty() {
        depend(r, "A");
    }
    r.act(|volume| {
        if let Ok(dir) = volume.resolve(dir) {
            let _ = volume.create(&dir, name.as_bytes(), &OWNER);
        }
    });
    r.act(|volume| write(volume, path, 0, 16 << 10, 1));
}

fn mkdir(volume: &Volume, path: &str) {
    let Ok(root) = volume.root() else { return };
    let _ = volume.mkdir(&root, path.as_bytes(), &Create { mode: 0o755, ..OWNER });
}

fn write(volume: &Volume, path: &str, at: u64, len: u64, seed: u64) {
    let mut bytes = vec![0; len as usize];
    syncline_model::fill(seed << 8 | at, 0, &mut bytes);
    if let Ok(inode) = volume.resolve_nofollow(path) {
        let _ = volume.write(&inode, at, &bytes);
    }
}

fn size(volume: &Volume, path: &str) -> u64 {
    volume.resolve_nofollow(path).map_or(0, |inode| volume.getattr(&inode).size)
}

/// First byte and length.
fn range(volume: &Volume, path: &str, span: Span) -> (u64, u64) {
    let size = size(volume, path);
    match span {
        Span::Append => (size, 4096),
        Span::OverlapUnalignedStart => (8000, 4096),
        Span::OverlapExtend => (size.saturating_sub(2048), 4096),
        Span::OverlapStart => (0, 8192),
    }
}

/// Does one operation after those that it depends on; `seed` makes contents differ.
fn perform(r: &mut Recorder, op: Op, seed: u64) {
    match op {
        Op::Create(path) if path.starts_with("A/") => depend(r, "A"),
        Op::Falloc(path, ..) | Op::Write(path, _) | Op::Link(path, _) | Op::Unlink(path) => {
            depend(r, path);
        }
        Op::Rename(path, _) | Op::SetXattr(path) | Op::Truncate(path, _) => depend(r, path),
        Op::RemoveXattr(path) => {
            depend(r, path);
            r.act(|volume| set_xattr(volume, path, 0));
        }
        Op::Create(_) | Op::Mkdir(_) => {}
    }
    if let Op::Link(_, to) | Op::Rename(_, to) = op
        && to.starts_with("A/")
    {
        depend(r, "A");
    }
    if let Op::Link(_, to) = op
        && exists(r, to)
    {
        r.act(|volume| unlink(volume, to));
    }
    r.act(|volume| apply(volume, op, seed));
}

fn set_xattr(volume: &Volume, path: &str, seed: u64) {
    if let Ok(inode) = volume.resolve_nofollow(path) {
        let value = [b'0' + (seed % 10) as u8; 40];
        let _ = volume.setxattr(&inode, ATTRIBUTE, &value, XattrFlags::Any);
    }
}

fn unlink(volume: &Volume, path: &str) {
    let (dir, name) = parent_of(path);
    if let Ok(dir) = volume.resolve(dir) {
        let _ = volume.unlink(&dir, name.as_bytes());
    }
}

/// Runs an operation; one that cannot be done changes nothing, as in ACE.
fn apply(volume: &Volume, op: Op, seed: u64) {
    let find = |path: &str| volume.resolve_nofollow(path);
    let parent = |path: &'static str| {
        let (dir, name) = parent_of(path);
        volume.resolve(dir).map(|dir| (dir, name.as_bytes()))
    };
    let _ = match op {
        Op::Create(path) => {
            parent(path).and_then(|(dir, name)| volume.create(&dir, name, &OWNER).map(drop))
        }
        Op::Mkdir(path) => {
            mkdir(volume, path);
            Ok(())
        }
        Op::Falloc(path, mode, span) => {
            let (at, len) = range(volume, path, span);
            find(path).and_then(|inode| volume.fallocate(&inode, mode, at, len))
        }
        Op::Write(path, span) => {
            let (at, len) = range(volume, path, span);
            write(volume, path, at, len, seed);
            Ok(())
        }
        Op::Link(path, to) => find(path)
            .and_then(|inode| parent(to).and_then(|(dir, name)| volume.link(&inode, &dir, name))),
        Op::Unlink(path) => {
            unlink(volume, path);
            Ok(())
        }
        Op::Rename(path, to) => parent(path).and_then(|(old, name)| {
            let (dir, new) = parent(to)?;
            volume.rename(&old, name, &dir, new, RenameFlags::NONE)
        }),
        Op::SetXattr(path) => {
            set_xattr(volume, path, seed);
            Ok(())
        }
        Op::RemoveXattr(path) => find(path).and_then(|inode| volume.removexattr(&inode, ATTRIBUTE)),
        Op::Truncate(path, size) => find(path).and_then(|inode| volume.truncate(&inode, size)),
    };
}

fn persist(r: &mut Recorder, sync: Sync) {
    r.act(|volume| {
        let _ = match sync {
            Sync::Nothing => Ok(()),
            Sync::Fsync(path) => {
                volume.resolve_nofollow(path).and_then(|inode| volume.fsync(&inode, false))
            }
            Sync::Fdatasync(path) => {
                volume.resolve_nofollow(path).and_then(|inode| volume.fsync(&inode, true))
            }
            Sync::All => volume.sync(),
        };
    });
}

/// One of ACE's persistence points; the last of a workload is never nothing.
fn point(random: &mut Random, is_last: bool) -> Sync {
    let paths = ["foo", "bar", "A/foo", "A/bar", "A", ""];
    match random.below(if is_last { 4 } else { 6 }) {
        0 | 1 => Sync::Fsync(paths[random.index(paths.len())]),
        2 => Sync::Fdatasync(paths[random.index(4)]),
        3 => Sync::All,
        _ => Sync::Nothing,
    }
}

fn explore(test: &str, mount: &'static str, block_size: u32) {
    if !require(test, &NEEDS) {
        return;
    }
    let base = image(&small(block_size));
    let all = operations();
    let pairs = (0..all.len() * all.len())
        .filter(|nr| long_run().is_some() || nr % SAMPLE_EVERY == block_size as usize % 100);
    let (mut workloads, mut judged, mut stock) = (0, 0, 0);
    for nr in pairs {
        if only_seed().is_some_and(|seed| seed != nr as u64) {
            continue;
        }
        let (one, two) = (all[nr / all.len()], all[nr % all.len()]);
        let mut random = Random::new(nr as u64);
        let mut recorder = Recorder::new(&base, &options(mount), CrashOptions::default());
        perform(&mut recorder, one, 2);
        persist(&mut recorder, point(&mut random, false));
        perform(&mut recorder, two, 3);
        persist(&mut recorder, point(&mut random, true));
        let (log, history): (_, History) = recorder.stop();
        let explorer = Explorer::with_options(log, explore_options());
        let mut judge = Judge::new(&history, &base, u64::MAX, 5).with_stock_every(10);
        let command = format!("SYNCLINE_CRASH_SEED={nr} {}", crate::crash::command(test));
        let summary =
            syncline_testkit::crash::run(&explorer, &Budget::new(STATES, 1), &command, |state| {
                judge.judge(state)
            });
        (judged, stock) = (judged + summary.judged, stock + judge.counts.stock);
        workloads += 1;
        if let Err(text) = summary.into_result() {
            panic!("{one:?}, {two:?}: {text}");
        }
    }
    println!("{test}: {workloads} workloads, {judged} states, {stock} of them by e2fsck");
}

#[test]
fn ace_pairs() {
    explore("ace_pairs", "sync=periodic,strict=*", 4096);
}

#[test]
fn ace_pairs_packed() {
    explore("ace_pairs_packed", "sync=periodic,strict=*,log=packed", 1024);
}
