//! Power cuts at the storage seam: sectors lost, torn and in any order since the last sync.
//!
//! The log must open, and its contents must be those after some number of the writes made, at least
//! as many as the last sync covered. What is written after that, and cut again, must hold too.
//! `SYNCLINE_FLASHLITE_CRASH_STATES` sets how many states are tried
//! (`cargo xtask run flashlite-long`).

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use syncline_flashlite::{Log, Options, Rearrange};
use syncline_testkit::Random;

use crate::support::{Disk, LARGE, Op, SMALL, apply, apply_model, contents, create, random_op};

const SIZE: u64 = 150_000;

fn states() -> u64 {
    let text = std::env::var("SYNCLINE_FLASHLITE_CRASH_STATES").unwrap_or_default();
    text.trim().parse().unwrap_or(3000)
}

/// The contents after each call so far, with the range it wrote; `synced` is the first that a crash
/// may leave.
struct History {
    versions: Vec<(Vec<u8>, (u64, u64))>,
    synced: usize,
}

impl History {
    fn new(contents: Vec<u8>) -> History {
        History { versions: vec![(contents, (0, 0))], synced: 0 }
    }

    fn add(&mut self, op: &Op) {
        let mut next = self.versions.last().unwrap().0.clone();
        apply_model(&mut next, op);
        let range = match *op {
            Op::Write { offset, len, .. } => (offset, len),
            _ => (0, 0),
        };
        self.versions.push((next, range));
    }

    /// True if a crash may leave these contents. A long write is several records; a crash may keep
    /// only the first of them.
    fn allows(&self, found: &[u8]) -> bool {
        let versions = &self.versions[self.synced..];
        versions.iter().any(|(contents, _)| contents == found)
            || versions.windows(2).any(|pair| in_part(found, &pair[0].0, &pair[1].0, pair[1].1))
    }
}

/// True if `found` is `before` with the first part of the write that leads to `after`.
fn in_part(found: &[u8], before: &[u8], after: &[u8], (offset, len): (u64, u64)) -> bool {
    let written = offset as usize..((offset + len) as usize).min(found.len());
    let Some(new) = found.get(written.clone()) else { return false };
    let agree = new.iter().zip(&after[written.clone()]).take_while(|(a, b)| a == b).count();
    let end = written.start + agree;
    let mut expected = before.to_vec();
    expected.resize(expected.len().max(end), 0);
    expected[written.start..end].copy_from_slice(&after[written.start..end]);
    len > 0 && expected == found
}

/// Opens what a cut left and says which version it is.
fn judge(bytes: Vec<u8>, history: &History, what: &str) -> (Disk, Vec<u8>) {
    let disk = Disk::new(bytes);
    let log = Log::open(Arc::new(disk.clone()), SMALL)
        .unwrap_or_else(|error| panic!("{what}: the log does not open: {error}"));
    let found = contents(&log);
    assert!(
        history.allows(&found),
        "{what}: the file is none of the {} states since the sync; opened {:?}",
        history.versions.len() - history.synced,
        log.opened()
    );
    let checked = log.check(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(checked.damaged, [], "{what}");
    drop(log);
    // Opening again changes nothing: what was dropped is dropped for good.
    let again = Log::open(Arc::new(disk.clone()), SMALL).unwrap();
    assert_eq!(again.opened().dropped, None, "{what}");
    assert!(contents(&again) == found, "{what}: the second opening differs");
    (disk, found)
}

/// States that were judged: of cuts that leave the same bytes after the same calls only one counts.
#[derive(Default)]
struct Tried {
    cuts: u64,
    states: HashSet<u64>,
}

impl Tried {
    fn count(&mut self, bytes: &[u8], seed: u64, synced: usize) {
        let mut hash = DefaultHasher::new();
        (bytes, seed, synced).hash(&mut hash);
        self.cuts += 1;
        self.states.insert(hash.finish());
    }
}

/// Options of the log of a run, and true if its data come in 64 and 128 KiB. Every third run puts
/// each tag on the disk at once, others 8 or 64 together; every eighth starts long data at a
/// multiple of its length.
fn options(seed: u64) -> (Options, bool) {
    let tags_at_once = [1, 8, 64][seed as usize % 3];
    let long = seed % 8 == 5;
    (Options { tags_at_once, ..if long { LARGE } else { SMALL } }, long)
}

fn run(seed: u64, tried: &mut Tried) {
    let mut random = Random::new(seed);
    let mut disk = Disk::default();
    // Every fourth log is as an earlier release made it.
    let version = if seed % 4 == 3 { 1 } else { 2 };
    let (options, long) = options(seed);
    let mut log = create(Arc::new(disk.clone()), options, version);
    let mut history = History::new(Vec::new());
    for step in 0..40 {
        let mut op = random_op(&mut random, SIZE);
        if let Op::Write { len, .. } = &mut op
            && long
            && step % 4 == 1
        {
            *len = 64 << (10 + random.below(2));
        }
        let syncs = disk.syncs();
        apply(&log, &op).unwrap();
        history.add(&op);
        if matches!(op, Op::Sync) {
            history.synced = history.versions.len() - 1;
        }
        // A sync by itself covers at least what was before this call.
        if disk.syncs() > syncs {
            history.synced = history.synced.max(history.versions.len() - 2);
        }
        for cut in 0..3 {
            let what = format!("seed {seed}, step {step}, cut {cut}");
            let bytes = disk.cut(&mut random);
            tried.count(&bytes, seed, history.synced);
            let (left, found) = judge(bytes, &history, &what);
            if cut == 2 && random.one_in(6) {
                // Life goes on from here.
                disk = left;
                log = Log::open(Arc::new(disk.clone()), options).unwrap();
                history = History::new(found);
            }
        }
    }
}

#[test]
fn every_cut_leaves_a_prefix_with_everything_synced() {
    let mut tried = Tried::default();
    let mut seed = 0;
    while (tried.states.len() as u64) < states() {
        run(seed, &mut tried);
        seed += 1;
    }
    println!("{} different states of {} cuts, {seed} runs", tried.states.len(), tried.cuts);
}

/// A disk that forgets what it synced must be noticed: else the test above proves nothing.
#[test]
fn a_disk_that_lies_about_syncs_is_caught() {
    let caught = (0..50).any(|seed| {
        let result = std::panic::catch_unwind(|| {
            let mut random = Random::new(seed);
            let disk = Disk::default();
            let log = Log::create(Arc::new(disk.clone()), SMALL).unwrap();
            let mut history = History::new(Vec::new());
            for _ in 0..10 {
                let op = random_op(&mut random, SIZE);
                apply(&log, &op).unwrap();
                history.add(&op);
            }
            // As if a sync had returned.
            history.synced = history.versions.len() - 1;
            judge(disk.cut(&mut random), &history, "a lie");
        });
        result.is_err()
    });
    assert!(caught);
}

/// Cuts while a log is rearranged, with and without giving its space back.
#[test]
fn a_rearranging_goes_on_after_any_cut() {
    let mut random = Random::new(7);
    for round in 0..(states() / 30) {
        let release = round % 2 == 0;
        let disk = Disk::default();
        let mut target = Disk::default();
        let log = create(Arc::new(disk.clone()), SMALL, if round % 8 < 2 { 1 } else { 2 });
        let mut model = Vec::new();
        for _ in 0..20 {
            let op = random_op(&mut random, SIZE);
            apply(&log, &op).unwrap();
            apply_model(&mut model, &op);
        }
        log.close().unwrap();
        let options = Rearrange { release, step_bytes: 20_000 };
        let mut disk = disk;
        for attempt in 0.. {
            let log = Log::open(Arc::new(disk.clone()), SMALL)
                .unwrap_or_else(|error| panic!("round {round}, attempt {attempt}: {error}"));
            if attempt < 4 {
                // The disks fail somewhere in the middle; then power is lost.
                disk.fail_in(random.below(30), false);
                target.fail_in(random.below(60), false);
                drop(log.rearrange_to(&target, options, &mut |_| ControlFlow::Continue(())));
                disk = Disk::new(disk.cut(&mut random));
                target = Disk::new(target.cut(&mut random));
                continue;
            }
            let done = log
                .rearrange_to(&target, options, &mut |_| ControlFlow::Continue(()))
                .unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(done.size_bytes, model.len() as u64);
            break;
        }
        assert!(target.now() == model, "round {round}: the rearranged file differs");
    }
}
