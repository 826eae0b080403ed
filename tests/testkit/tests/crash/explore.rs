//! The explorer on hand-made logs with known states, and against a brute-force model.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_device::{BlockDevice, DeviceError, Kind, MemoryDevice, Op, Origin, Plug, Request};
use syncline_testkit::crash::{
    Budget, CrashDevice, CrashOptions, CrashState, Exploration, ExploreOptions, Explorer, StateId,
};

const OTHER: Origin = Origin::new(Kind::Other, true);

fn device(size: u64) -> CrashDevice {
    CrashDevice::new(&MemoryDevice::new(size), CrashOptions::default())
}

fn sector(image: &MemoryDevice, number: u64) -> u8 {
    let mut content = [0; 512];
    image.read_at(number * 512, &mut content).unwrap();
    assert!(content.iter().all(|&b| b == content[0]), "sectors are atomic");
    content[0]
}

fn all_states(explorer: &Explorer, budget: &Budget) -> (Vec<CrashState>, Exploration) {
    let mut states = Vec::new();
    let stats = explorer.for_each_state(budget, |state| {
        states.push(state);
        ControlFlow::Continue(())
    });
    (states, stats)
}

/// The first sectors and the marks of every state.
fn contents(explorer: &Explorer, sectors: u64) -> Vec<(Vec<u8>, Vec<u64>)> {
    let (states, stats) = all_states(explorer, &Budget::new(u64::MAX, 1));
    assert_eq!(stats.distinct, states.len() as u64);
    assert_eq!(stats.candidates, stats.distinct + stats.duplicates);
    let of = |s: &CrashState| (0..sectors).map(|i| sector(&s.image, i)).collect();
    states.iter().map(|s| (of(s), s.marks().to_vec())).collect()
}

#[test]
fn flushed_writes_stay_and_others_are_any_subset() {
    let device = device(65536);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.write(512, &[2; 512], OTHER).unwrap();
    device.flush(OTHER).unwrap();
    device.mark(7);
    device.write(1024, &[3; 1024], OTHER).unwrap();
    let explorer = Explorer::new(device.log());
    let seen = contents(&explorer, 4);
    let state = |a, b, c, d, marks: &[u64]| (vec![a, b, c, d], marks.to_vec());
    let expected = [
        state(0, 0, 0, 0, &[]),
        state(1, 0, 0, 0, &[]),
        state(0, 2, 0, 0, &[]),
        state(1, 2, 0, 0, &[]),
        state(1, 2, 0, 0, &[7]),
        state(1, 2, 3, 0, &[7]),
        state(1, 2, 0, 3, &[7]),
        state(1, 2, 3, 3, &[7]),
    ];
    assert_eq!(seen, expected);
    let (_, stats) = all_states(&explorer, &Budget::new(u64::MAX, 1));
    assert_eq!((stats.candidates, stats.duplicates, stats.cuts), (15, 7, 5));
}

#[test]
fn a_durable_write_is_not_undone_by_an_older_one() {
    let device = device(65536);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.write_durable(0, &[2; 512], OTHER).unwrap();
    device.mark(1);
    let seen = contents(&Explorer::new(device.log()), 1);
    let expected = [(vec![0], vec![]), (vec![1], vec![]), (vec![2], vec![]), (vec![2], vec![1])];
    assert_eq!(seen, expected);
}

#[test]
fn a_fua_write_makes_nothing_else_durable() {
    let device = device(65536);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.write_durable(512, &[2; 512], OTHER).unwrap();
    device.mark(1);
    let seen: BTreeSet<_> = contents(&Explorer::new(device.log()), 2).into_iter().collect();
    let marked: Vec<_> = seen.iter().filter(|s| s.1 == [1]).map(|s| s.0.clone()).collect();
    assert_eq!(marked, [vec![0, 2], vec![1, 2]]);
    assert!(seen.contains(&(vec![0, 0], vec![])), "before it completes it may be missing");
}

#[test]
fn behind_a_barrier_nothing_is_there_without_what_is_before() {
    let options = CrashOptions { barrier: true, ..CrashOptions::default() };
    let device = CrashDevice::new(&MemoryDevice::new(8192), options);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.write(512, &[2; 512], OTHER).unwrap();
    device.order(OTHER).unwrap();
    device.mark(1);
    device.write(0, &[3; 512], OTHER).unwrap();
    let seen: BTreeSet<_> = contents(&Explorer::new(device.log()), 2).into_iter().collect();
    let marked: Vec<_> = seen.iter().filter(|s| s.1 == [1]).map(|s| s.0.clone()).collect();
    assert_eq!(marked, [vec![0, 0], vec![0, 2], vec![1, 0], vec![1, 2], vec![3, 2]]);
}

#[test]
fn fua_without_fua_is_an_ordinary_write() {
    let options = CrashOptions { fua: false, ..CrashOptions::default() };
    let device = CrashDevice::new(&MemoryDevice::new(8192), options);
    let op = Op::Write { from: vec![&[1; 512]], fua: true };
    device.submit(&mut [Request { offset_bytes: 0, op, origin: OTHER }]).unwrap();
    device.mark(1);
    assert!(contents(&Explorer::new(device.log()), 1).contains(&(vec![0], vec![1])));
    // Through a plug the flush is sent that makes it durable.
    let device = CrashDevice::new(&MemoryDevice::new(8192), options);
    let mut plug = Plug::new();
    plug.write_fua(0, &[1; 512], OTHER);
    plug.submit(&device).unwrap();
    device.mark(1);
    assert!(!contents(&Explorer::new(device.log()), 1).contains(&(vec![0], vec![1])));
}

#[test]
fn without_a_volatile_cache_only_the_batch_under_way_is_open() {
    let options = CrashOptions { volatile_cache: false, ..CrashOptions::default() };
    let device = CrashDevice::new(&MemoryDevice::new(8192), options);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.write(512, &[2; 512], OTHER).unwrap();
    let seen: Vec<_> = contents(&Explorer::new(device.log()), 2).into_iter().map(|s| s.0).collect();
    assert_eq!(seen, [vec![0, 0], vec![1, 0], vec![1, 2]]);
}

#[test]
fn a_discard_happens_whole_or_not() {
    let base = MemoryDevice::from_bytes(&[9; 8192]);
    let device = CrashDevice::new(&base, CrashOptions::default());
    device.discard(0, 1024, OTHER).unwrap();
    let seen: Vec<_> = contents(&Explorer::new(device.log()), 3).into_iter().map(|s| s.0).collect();
    assert_eq!(seen, [vec![9, 9, 9], vec![0, 0, 9]]);
}

#[test]
fn the_live_view_and_power_cut() {
    let device = device(65536);
    device.write(0, &[1; 512], OTHER).unwrap();
    device.cut_power_after(1);
    let (a, b) = ([2; 512], [3; 512]);
    let mut plug = Plug::new();
    plug.write(512, &a, OTHER);
    plug.write(4096, &b, OTHER);
    assert_eq!(plug.submit(&device), Err(DeviceError::PowerCut));
    assert_eq!(device.flush(OTHER), Err(DeviceError::PowerCut));
    device.mark(5);
    let live = device.live_image();
    assert_eq!([sector(&live, 0), sector(&live, 1), sector(&live, 8)], [1, 2, 0]);
    assert_eq!(device.log().entries.len(), 2);
    assert_eq!(device.log().logged_bytes(), 1024);
}

/// A workload with one long epoch of large writes.
fn long_log() -> CrashDevice {
    let device = device(1 << 20);
    for i in 0..30u64 {
        device.write(i * 8192, &[i as u8 + 1; 8192], OTHER).unwrap();
        if i % 7 == 0 {
            device.mark(i);
        }
    }
    device.flush(OTHER).unwrap();
    device.mark(100);
    device
}

#[test]
fn the_same_seed_gives_the_same_states_and_ids_rebuild_them() {
    let explorer = Explorer::new(long_log().log());
    let (states, stats) = all_states(&explorer, &Budget::new(700, 3));
    assert!(stats.candidates <= 700 && stats.distinct > 400, "{stats:?}");
    assert!(stats.possible > 1000, "{stats:?}");
    let again = Explorer::new(long_log().log());
    let (same, _) = all_states(&again, &Budget::new(700, 3));
    let ids = |states: &[CrashState]| states.iter().map(|s| s.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&states), ids(&same));
    let (other, _) = all_states(&again, &Budget::new(700, 4));
    assert_ne!(ids(&states), ids(&other));
    // Backwards, so that the explorer has to start over each time it leaves the last epoch.
    for state in states.iter().rev().step_by(7) {
        let id: StateId = state.id.to_string().parse().unwrap();
        let rebuilt = again.state(&id).unwrap();
        assert_eq!(rebuilt.image.first_difference(&state.image), None, "{id}");
        assert_eq!(rebuilt.marks(), state.marks(), "{id}");
        assert!(again.describe(&id).starts_with("cut "), "{id}");
    }
}

#[test]
fn a_long_epoch_has_cuts_drops_lone_writes_tears_and_samples() {
    let explorer = Explorer::new(long_log().log());
    let (states, stats) = all_states(&explorer, &Budget::new(u64::MAX, 3));
    assert_eq!(stats.possible, stats.candidates);
    for letter in ["c", "d", "o", "t", "u", "s", "x"] {
        let has = |s: &CrashState| s.id.choice.to_string().starts_with(letter);
        assert!(states.iter().any(has), "no state of kind {letter}");
    }
    let last = states.last().unwrap();
    assert_eq!(last.marks().last(), Some(&100));
    assert_eq!(last.image.first_difference(&long_log().live_image()), None);
}

#[test]
fn few_states_are_spread_over_the_log() {
    let explorer = Explorer::new(long_log().log());
    let (states, stats) = all_states(&explorer, &Budget::new(5, 3));
    assert_eq!((stats.cuts, stats.candidates), (5, 5));
    let first = states.first().unwrap().id.point;
    assert!(states.last().unwrap().id.point.entries > first.entries + 5);
    for seed in 0..40 {
        let (states, _) = all_states(&explorer, &Budget::new(5, seed));
        assert_eq!(states.last().unwrap().marks().last(), Some(&100), "the end, with seed {seed}");
    }
}

#[test]
fn shards_together_have_each_state_once() {
    let explorer = Explorer::new(long_log().log());
    let ids = |budget: &Budget| -> BTreeSet<String> {
        all_states(&explorer, budget).0.iter().map(|s| s.id.to_string()).collect()
    };
    let whole = ids(&Budget::new(900, 5));
    let parts: Vec<_> = (0..3).map(|i| ids(&Budget::new(900, 5).with_shard(i, 3))).collect();
    assert!(parts.iter().all(|p| p.len() > whole.len() / 5));
    assert_eq!(parts.iter().map(BTreeSet::len).sum::<usize>(), whole.len());
    assert_eq!(parts.into_iter().flatten().collect::<BTreeSet<_>>(), whole);
}

#[test]
fn ids_of_other_logs_are_refused() {
    let explorer = Explorer::new(long_log().log());
    for id in ["1:0:c1", "1:99:c0", "1:1+:c0", "1:0+:o1", "1:0+:x2", "1:0+:d1", "1:0+:t1.1"] {
        assert!(explorer.state(&id.parse().unwrap()).is_err(), "{id}");
    }
    assert!(explorer.state(&"1:0+:s99".parse().unwrap()).is_ok());
}

/// One step of a random log: (sector, fill, fua), a flush, a barrier, or a mark.
#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<(u64, u8, bool)>),
    Flush,
    Barrier,
    Mark,
}

const SECTORS: u64 = 5;

fn random_steps(random: &mut ChaCha8Rng, barriers: bool) -> Vec<Step> {
    let mut fill = 0;
    let mut steps = Vec::new();
    let mut open = 0;
    for _ in 0..random.random_range(3..14) {
        let batch = random.random_range(1..3);
        if open + batch > 8 {
            steps.push(Step::Flush);
            open = 0;
        }
        match random.random_range(0..10) {
            0 | 1 => {
                steps.push(Step::Flush);
                open = 0;
            }
            2 | 3 => steps.push(Step::Mark),
            4 | 5 if barriers => steps.push(Step::Barrier),
            _ => {
                let mut writes = Vec::new();
                let start = random.random_range(0..SECTORS - 1);
                for i in 0..batch {
                    fill += 1;
                    writes.push((start + i, fill, random.random_bool(0.25)));
                }
                open += batch;
                steps.push(Step::Batch(writes));
            }
        }
    }
    steps
}

/// Every state by the definition: at each cut, each write since the last flush that is not durable
/// may have happened; the newest that did wins.
fn brute_force(steps: &[Step]) -> BTreeSet<(Vec<u8>, usize)> {
    let mut found = BTreeSet::new();
    let mut writes: Vec<(u64, u8, bool, usize)> = Vec::new();
    let mut flushed: BTreeMap<u64, u8> = BTreeMap::new();
    let (mut marks, mut barriers) = (0, 0);
    for step in steps.iter().map(Some).chain([None]) {
        let mut record = |writes: &[(u64, u8, bool, usize)], marks| {
            for mask in 0u32..1 << writes.len() {
                let mut content = flushed.clone();
                let mut legal = true;
                let durable = writes.iter().filter(|w| w.2).map(|w| w.3).max();
                let missing = (0..writes.len()).find(|i| mask >> i & 1 == 0);
                let missing = missing.map(|i| writes[i].3);
                for (i, (sector, fill, fixed, epoch)) in writes.iter().enumerate() {
                    let there = mask >> i & 1 == 1;
                    legal &= there || !fixed && durable.is_none_or(|durable| *epoch >= durable);
                    legal &= !there || missing.is_none_or(|missing| *epoch <= missing);
                    if there {
                        content.insert(*sector, *fill);
                    }
                }
                if legal {
                    let bytes = (0..SECTORS).map(|s| content.get(&s).copied().unwrap_or(0));
                    found.insert((bytes.collect(), marks));
                }
            }
        };
        // Idle before the step (marks belong to what they follow), then within it.
        if !matches!(step, Some(Step::Mark)) {
            record(&writes, marks);
        }
        match step {
            Some(Step::Batch(batch)) => {
                let open = batch.iter().map(|w| (w.0, w.1, false, barriers));
                let under_way: Vec<_> = writes.iter().copied().chain(open).collect();
                record(&under_way, marks);
                writes.extend(batch.iter().map(|w| (w.0, w.1, w.2, barriers)));
            }
            Some(Step::Flush) => {
                flushed.extend(writes.drain(..).map(|w| (w.0, w.1)));
            }
            Some(Step::Barrier) => barriers += 1,
            Some(Step::Mark) => marks += 1,
            None => {}
        }
    }
    found
}

#[test]
fn small_logs_are_explored_exhaustively() {
    for seed in 0..90 {
        let barrier = seed >= 60;
        let steps = random_steps(&mut ChaCha8Rng::seed_from_u64(seed), barrier);
        let options = CrashOptions { barrier, ..CrashOptions::default() };
        let device = CrashDevice::new(&MemoryDevice::new(8192), options);
        for step in &steps {
            match step {
                Step::Flush => device.flush(OTHER).unwrap(),
                Step::Barrier => device.order(OTHER).unwrap(),
                Step::Mark => device.mark(seed),
                Step::Batch(writes) => {
                    let content: Vec<_> = writes.iter().map(|w| [w.1; 512]).collect();
                    let request = |(w, c): (&(u64, u8, bool), _)| {
                        let op = Op::Write { from: vec![c], fua: w.2 };
                        Request { offset_bytes: w.0 * 512, op, origin: OTHER }
                    };
                    let content = content.iter().map(|c| c.as_slice());
                    let mut batch: Vec<_> = writes.iter().zip(content).map(request).collect();
                    device.submit(&mut batch).unwrap();
                }
            }
        }
        let options = ExploreOptions { exhaustive_sectors: 10, ..ExploreOptions::default() };
        let options = ExploreOptions { exhaustive_writes: 10, ..options };
        let explorer = Explorer::with_options(device.log(), options);
        let (states, _) = all_states(&explorer, &Budget::new(u64::MAX, 1));
        let content = |s: &CrashState| (0..SECTORS).map(|i| sector(&s.image, i)).collect();
        let seen: BTreeSet<_> = states.iter().map(|s| (content(s), s.marks().len())).collect();
        assert_eq!(seen.len(), states.len(), "seed {seed}: a state came twice");
        let expected = brute_force(&steps);
        assert_eq!(seen, expected, "seed {seed}: {steps:?}");
    }
}
