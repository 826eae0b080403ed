//! The allocator against a model: every block has one owner, promises are kept, files stay whole.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::bitmap::RunMap;
use super::core::{Core, GroupSource, RANGE_BLOCKS_MAX, Range, Request};
use super::goal::{AllocPolicy, LinuxPolicy, Shape};
use super::hot::{Asked, HotZones};
use super::lifetime::ByLifetime;
use super::reserve::Source;
use crate::error::{FsError, Result};
use crate::incore::Lifetime;
use crate::store::zone::Zone;

struct Disk {
    bitmaps: Vec<Vec<u8>>,
    shape: Shape,
}

impl GroupSource for Disk {
    fn load_group(&self, group: u32) -> Result<RunMap> {
        let len = self.shape.group_len(group);
        Ok(RunMap::from_bytes(&self.bitmaps[group as usize], len))
    }
}

/// Groups whose first `metadata` blocks are taken.
fn volume(groups: u32, per_group: u32, metadata: u32) -> (Disk, Core) {
    volume_with(groups, per_group, metadata, 0)
}

/// The same with `zones` hot zones of 300 blocks; with 3, by lifetime.
fn volume_with(groups: u32, per_group: u32, metadata: u32, zones: u32) -> (Disk, Core) {
    let shape = Shape {
        first_data_block: 1,
        blocks_per_group: per_group,
        blocks_count: 1 + u64::from(groups) * u64::from(per_group) - u64::from(per_group / 2),
        groups,
        flex_log: 2,
        block_bits: 12,
    };
    let mut bitmap = vec![0_u8; per_group as usize / 8];
    for bit in 0..metadata {
        bitmap[bit as usize / 8] |= 1 << (bit % 8);
    }
    let bitmaps = vec![bitmap; groups as usize];
    let free: Vec<u32> = (0..groups).map(|g| shape.group_len(g) - metadata).collect();
    let runs = (0..groups).map(|g| (shape.group_start(g), metadata.into())).collect();
    let policy: Box<dyn AllocPolicy> = match zones {
        0 => Box::new(LinuxPolicy),
        3 => {
            let asked = Asked { count: 1, blocks: 300 };
            Box::new(ByLifetime::plan(&shape, &Zone::new(runs), asked))
        }
        count => {
            let asked = Asked { count, blocks: 300 };
            Box::new(HotZones::plan(&shape, &Zone::new(runs), asked))
        }
    };
    (Disk { bitmaps, shape }, Core::new(shape, &free, 0, policy))
}

fn request(owner: u32, goal: u64, want: u32, file_blocks: u64) -> Request {
    let source = Source::Free { privileged: true };
    Request { owner, goal, want, source, file_blocks, life: Lifetime::Long }
}

/// Writes `blocks` in steps of `step`, each at the end of the last; returns the merged ranges.
fn grow(disk: &Disk, core: &Core, owner: u32, file: &mut Vec<Range>, step: u32) {
    let size: u64 = file.iter().map(|r| u64::from(r.len)).sum();
    let mut left = step;
    while left > 0 {
        let goal = file.last().map_or(1, |r| r.start + u64::from(r.len));
        let got = core.allocate(disk, &request(owner, goal, left, size + u64::from(step))).unwrap();
        assert!(got.len <= left && got.len > 0);
        left -= got.len;
        match file.last_mut() {
            Some(last) if last.start + u64::from(last.len) == got.start => last.len += got.len,
            _ => file.push(got),
        }
    }
}

#[test]
fn one_file_appended_in_small_steps_is_one_extent() {
    let (disk, core) = volume(8, 32768, 600);
    let mut file = Vec::new();
    for _ in 0..30_000 {
        grow(&disk, &core, 12, &mut file, 1);
    }
    assert_eq!(file.len(), 1, "{file:?}");
}

#[test]
fn files_appended_in_turns_stay_in_few_extents() {
    let (disk, core) = volume(16, 32768, 600);
    let mut files = vec![Vec::new(); 4];
    for _ in 0..8192 {
        for (owner, file) in files.iter_mut().enumerate() {
            grow(&disk, &core, owner as u32 + 12, file, 1);
        }
    }
    for file in files {
        assert!(file.len() <= 24 + 8, "{} extents of 8192 blocks", file.len());
    }
}

#[test]
fn a_big_request_is_one_range_even_at_nine_tenths() {
    let (disk, core) = volume(16, 32768, 600);
    let mut filler = Vec::new();
    for _ in 0..13 {
        grow(&disk, &core, 12, &mut filler, 32168);
    }
    let got = core.allocate(&disk, &request(13, 1, 20_000, 20_000)).unwrap();
    assert_eq!(got.len, 20_000);
}

#[test]
fn small_files_are_packed() {
    let (disk, core) = volume(8, 32768, 600);
    let mut at = Vec::new();
    for owner in 100..300 {
        at.push(core.allocate(&disk, &request(owner, 1, 1, 1)).unwrap().start);
    }
    assert_eq!(at, (at[0]..at[0] + 200).collect::<Vec<_>>());
}

#[test]
fn a_dropped_window_is_free_again_and_the_last_block_is_found() {
    let (disk, core) = volume(2, 8192, 100);
    let all = core.reserve.counts().free;
    core.reserve.reserve(core.reserve.counts().available, false).unwrap();
    let promised = core.reserve.counts().delayed;
    let mut got = 0;
    let mut owner = 20;
    while got < promised {
        let source = Source::Reserved;
        let ask = Request { source, ..request(owner, 1, 7, 100) };
        got += u64::from(core.allocate(&disk, &ask).expect("promised").len);
        owner += 1;
    }
    let source = Source::Metadata;
    while got < all {
        let ask = Request { source, ..request(0, 1, 1, 0) };
        got += u64::from(core.allocate(&disk, &ask).expect("counted as free").len);
    }
    let ask = Request { source, ..request(0, 1, 1, 0) };
    assert!(matches!(core.allocate(&disk, &ask), Err(FsError::NoSpace)));
}

/// True if a block is in a zone.
fn kept(disk: &Disk, core: &Core, block: u64) -> bool {
    let (group, bit) = disk.shape.locate(block).unwrap();
    let kept = core.policy().kept_for_hot(&disk.shape, group, u64::MAX);
    kept.is_some_and(|kept| (kept.0..kept.1).contains(&bit))
}

#[test]
fn cold_files_borrow_from_a_zone_only_when_nothing_else_is_free() {
    let (disk, core) = volume_with(5, 1024, 70, 2);
    let total = core.reserve.counts().free;
    let zone = (1..disk.shape.blocks_count).filter(|b| kept(&disk, &core, *b)).count() as u64;
    assert!(zone > 200, "{zone}");
    let source = Source::Metadata;
    let life = Lifetime::Updated;
    let hot = Request { source, life, ..request(12, 1, 5, 5) };
    assert!(kept(&disk, &core, core.allocate(&disk, &hot).unwrap().start));
    let (mut taken, mut owner) = (5, 100);
    while taken < total {
        let got = core.allocate(&disk, &Request { source, ..request(owner, 1, 1, 0) }).unwrap();
        let borrowed = kept(&disk, &core, got.start);
        assert_eq!(borrowed, taken >= total - zone + 5, "block {} after {taken}", got.start);
        taken += u64::from(got.len);
        owner += 1;
    }
    assert!(matches!(core.allocate(&disk, &request(99, 1, 1, 0)), Err(FsError::NoSpace)));
}

#[test]
fn a_cold_file_borrows_the_end_of_a_zone_rather_than_being_torn() {
    let (disk, core) = volume_with(5, 1024, 70, 2);
    let source = Source::Metadata;
    let one = |owner| core.allocate(&disk, &Request { source, ..request(owner, 1, 1, 0) }).unwrap();
    // Everything outside of the zones in single blocks, every eighth of which stays taken.
    let mut outside = Vec::new();
    loop {
        let got = one(100);
        if kept(&disk, &core, got.start) {
            core.cancel(got, source);
            break;
        }
        outside.push(got);
    }
    outside.sort_unstable_by_key(|range| range.start);
    for (at, range) in outside.into_iter().enumerate() {
        if at % 8 != 0 {
            core.cancel(range, source);
        }
    }
    let plenty = core.reserve.counts().free;
    let big = core.allocate(&disk, &Request { source, ..request(101, 1, 40, 0) }).unwrap();
    assert_eq!(big.len, 40, "whole");
    let zone_at = (1..).find(|block| kept(&disk, &core, *block)).unwrap();
    let zone = (zone_at..).find(|block| !kept(&disk, &core, *block)).unwrap() - zone_at;
    assert!(kept(&disk, &core, big.start), "{big:?} is borrowed");
    assert!(big.start >= zone_at + zone / 2, "{big:?} at the end of {zone} from {zone_at}");
    assert!(plenty > 2000, "while {plenty} blocks are free");
    let small = core.allocate(&disk, &Request { source, ..request(102, 1, 7, 0) }).unwrap();
    assert!(small.len == 7 && !kept(&disk, &core, small.start), "{small:?} fits elsewhere");
    let life = Lifetime::Updated;
    let hot = core.allocate(&disk, &Request { source, life, ..request(12, zone_at, 40, 40) });
    assert_eq!(hot.unwrap(), Range { start: zone_at, len: 40 }, "the front is for hot files");
}

const LIVES: [Lifetime; 3] = [Lifetime::Long, Lifetime::Updated, Lifetime::Short];

#[derive(Clone, Debug)]
enum Step {
    Reserve { blocks: u32 },
    Write { owner: u32, want: u32, goal: u32, small: bool },
    Cancel { pick: usize },
    Free { pick: usize },
    Close { owner: u32 },
    Index,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1_u32..400).prop_map(|blocks| Step::Reserve { blocks }),
        8 => (12_u32..16, 1_u32..300, 0_u32..5000, any::<bool>())
            .prop_map(|(owner, want, goal, small)| Step::Write { owner, want, goal, small }),
        1 => any::<usize>().prop_map(|pick| Step::Cancel { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Free { pick }),
        1 => (12_u32..16).prop_map(|owner| Step::Close { owner }),
        1 => Just(Step::Index),
    ];
    prop::collection::vec(step, 1..120)
}

/// Adds a range to the model; no block may have two owners.
fn claim(owned: &mut BTreeMap<u64, ()>, disk: &Disk, range: Range) {
    for block in range.start..range.start + u64::from(range.len) {
        let (group, bit) = disk.shape.locate(block).expect("inside of the volume");
        let byte = disk.bitmaps[group as usize][bit as usize / 8];
        assert_eq!(byte >> (bit % 8) & 1, 0, "block {block} is metadata");
        assert!(owned.insert(block, ()).is_none(), "block {block} was handed out twice");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// proptest prints the seed and the shrunk steps of a failure.
    #[test]
    fn every_block_has_one_owner_and_promises_are_kept(steps in steps(), zones in 0_u32..4) {
        let (disk, core) = volume_with(5, 1024, 70, zones);
        let total = core.reserve.counts().free;
        let mut owned = BTreeMap::new();
        let mut ranges: Vec<(Range, Source)> = Vec::new();
        let mut promised = 0_u64;
        for step in steps {
            match step {
                Step::Reserve { blocks } => {
                    let room = core.reserve.counts().available >= u64::from(blocks);
                    let got = core.reserve.reserve(u64::from(blocks), false).is_ok();
                    prop_assert_eq!(room, got);
                    promised += if got { u64::from(blocks) } else { 0 };
                }
                Step::Write { owner, want, goal, small } => {
                    let want = u64::from(want).min(promised) as u32;
                    if want == 0 { continue; }
                    let file_blocks = if small { 4 } else { 200 };
                    let ask = Request {
                        source: Source::Reserved,
                        life: LIVES[owner as usize % 3],
                        ..request(owner, u64::from(goal), want, file_blocks)
                    };
                    let got = core.allocate(&disk, &ask).expect("it was promised");
                    prop_assert!(got.len <= want && got.len <= RANGE_BLOCKS_MAX);
                    promised -= u64::from(got.len);
                    claim(&mut owned, &disk, got);
                    ranges.push((got, Source::Reserved));
                }
                Step::Index => {
                    let ask = Request { source: Source::Metadata, ..request(0, 1, 1, 0) };
                    let room = core.reserve.counts().free > 0;
                    match core.allocate(&disk, &ask) {
                        Ok(got) => {
                            prop_assert!(room);
                            claim(&mut owned, &disk, got);
                            ranges.push((got, Source::Metadata));
                        }
                        Err(_) => prop_assert!(!room),
                    }
                }
                Step::Cancel { pick } | Step::Free { pick } => {
                    if ranges.is_empty() { continue; }
                    let (range, source) = ranges.swap_remove(pick % ranges.len());
                    for block in range.start..range.start + u64::from(range.len) {
                        owned.remove(&block);
                    }
                    if matches!(step, Step::Cancel { .. }) {
                        core.cancel(range, source);
                        promised += if source == Source::Reserved { range.len.into() } else { 0 };
                    } else {
                        core.reserve.freed(range.len.into());
                        core.give(range);
                        core.reserve.committed(range.len.into());
                    }
                }
                Step::Close { owner } => core.drop_window(owner),
            }
            let counts = core.reserve.counts();
            prop_assert_eq!(counts.delayed, promised);
            prop_assert_eq!(counts.free + promised + owned.len() as u64, total);
        }
    }
}
