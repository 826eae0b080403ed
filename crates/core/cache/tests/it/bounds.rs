//! Invariants of every policy for any sequence of calls.

use crate::traces::phone;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use syncline_cache::{
    Access, DeviceAccess, Entry, POLICIES, PageAccess, PageKey, Simulator, WriteBack, next_uses,
};

const MODES: [WriteBack; 3] =
    [WriteBack::Lazy, WriteBack::Background(10), WriteBack::Background(90)];

fn random_accesses(seed: u64, count: usize) -> Vec<PageAccess> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut accesses = Vec::new();
    while accesses.len() < count {
        let file = rng.random_range(0..3);
        let from = rng.random_range(0..400u64) * rng.random_range(1..30);
        let access = if rng.random_range(0..2) == 0 { Access::Read } else { Access::Write };
        for index in from..from + rng.random_range(1..20) {
            accesses.push(PageAccess { key: PageKey { file, index }, access });
        }
    }
    accesses
}

/// Every written page reaches the device after its last write and before it is gone; reads of
/// pages that are not cached do.
fn judge(entry: &Entry, accesses: &[PageAccess], device: &[DeviceAccess]) {
    let mut last_write = BTreeMap::new();
    for (at, access) in accesses.iter().enumerate() {
        if access.access == Access::Write {
            last_write.insert(access.key, at as u64);
        }
    }
    let mut written = BTreeMap::new();
    for access in device.iter().filter(|access| access.access == Access::Write) {
        written.insert(access.key, access.at);
    }
    let name = entry.name;
    assert_eq!(last_write.len(), written.len(), "{name}: pages written");
    for (key, at) in last_write {
        assert!(written[&key] >= at, "{name}: {key:?} was written at {at}, saved before");
    }
    assert!(device.is_sorted_by_key(|access| access.at), "{name}");
}

#[test]
fn no_write_is_lost_the_capacity_is_kept_and_min_is_the_bound() {
    for seed in 0..4 {
        let accesses = random_accesses(seed, 6_000);
        let next = next_uses(&accesses);
        for (capacity, mode) in [1, 3, 50, 700].into_iter().zip(MODES.into_iter().cycle()) {
            let mut misses = BTreeMap::new();
            for entry in POLICIES {
                let mut simulator = Simulator::of(entry, capacity, mode);
                simulator.record();
                let mut device = Vec::new();
                for (accesses, next) in accesses.chunks(100).zip(next.chunks(100)) {
                    simulator.run(accesses, next);
                    device.extend(simulator.take_device_accesses());
                    assert!(simulator.pages() <= capacity, "{}", entry.name);
                }
                let counts = simulator.drain();
                device.extend(simulator.take_device_accesses());
                judge(entry, &accesses, &device);
                assert_eq!(counts.hits + counts.misses, accesses.len() as u64);
                assert_eq!(counts.reads + counts.write_backs, device.len() as u64);
                let writes =
                    counts.dirty_evictions + counts.background_writes + counts.final_writes;
                assert_eq!((counts.write_backs, simulator.pages()), (writes, 0), "{}", entry.name);
                misses.insert(entry.name, counts.misses);
            }
            let least = misses.values().min().copied();
            assert_eq!(least, misses.get("min").copied(), "seed {seed}: {misses:?}");
        }
    }
}

#[test]
fn pinned_pages_stay_and_forgotten_ones_are_not_written() {
    for entry in POLICIES.iter().filter(|entry| !entry.needs_future) {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut simulator = Simulator::of(entry, 40, WriteBack::Lazy);
        let mut pinned = BTreeSet::new();
        for access in random_accesses(5, 4_000) {
            let hit = simulator.access(access.key, access.access);
            assert!(hit || !pinned.contains(&access.key), "{}: {access:?}", entry.name);
            match rng.random_range(0..20) {
                0 | 2 if pinned.len() < 39 && simulator.set_pinned(access.key, true) => {
                    pinned.insert(access.key);
                }
                1 => {
                    if let Some(key) = pinned.pop_first() {
                        assert!(simulator.set_pinned(key, false), "{}: {key:?} left", entry.name);
                    }
                }
                3 | 4 if !pinned.contains(&access.key) => simulator.forget(access.key),
                _ => {}
            }
            assert!(simulator.pages() <= 40, "{}", entry.name);
        }
        assert!(!pinned.is_empty());
    }
}

#[test]
fn a_cache_of_pinned_pages_lets_others_pass() {
    for entry in POLICIES {
        let mut simulator = Simulator::of(entry, 2, WriteBack::Lazy);
        simulator.record();
        let key = |index| PageKey { file: 0, index };
        for index in 0..2 {
            simulator.access(key(index), Access::Read);
            assert!(simulator.set_pinned(key(index), true));
        }
        assert!(!simulator.access(key(5), Access::Write), "{}", entry.name);
        assert!(!simulator.access(key(5), Access::Read), "{}", entry.name);
        assert!(simulator.access(key(0), Access::Read), "{}", entry.name);
        let seen: Vec<_> = simulator.take_device_accesses();
        let seen: Vec<_> = seen.iter().map(|seen| (seen.key.index, seen.access)).collect();
        let [r, w] = [Access::Read, Access::Write];
        assert_eq!(seen, [(0, r), (1, r), (5, w), (5, r)], "{}", entry.name);
    }
}

#[test]
fn a_forgotten_page_is_not_written_back() {
    for entry in POLICIES {
        let mut simulator = Simulator::of(entry, 4, WriteBack::Lazy);
        let key = PageKey { file: 3, index: 9 };
        simulator.access(key, Access::Write);
        simulator.forget(key);
        assert!(!simulator.access(key, Access::Read));
        assert_eq!(simulator.finish().write_backs, 0, "{}", entry.name);
    }
}

/// Ranges shorter and longer than the cache: the first are looked up, the others picked of all.
#[test]
fn a_range_is_written_in_order_or_forgotten() {
    for (entry, pages) in POLICIES.iter().flat_map(|entry| [(entry, 6), (entry, u64::MAX)]) {
        let mut simulator = Simulator::of(entry, 8, WriteBack::Lazy);
        simulator.record();
        for index in [9, 4, 7, 5, 2] {
            let access = if index == 7 { Access::Read } else { Access::Write };
            simulator.access(PageKey { file: 0, index }, access);
        }
        simulator.access(PageKey { file: 1, index: 4 }, Access::Write);
        simulator.take_device_accesses();
        simulator.write_range(0, 4, pages);
        let written = |simulator: &mut Simulator| -> Vec<(u64, u64)> {
            let seen = simulator.take_device_accesses();
            seen.iter().map(|seen| (seen.key.file, seen.key.index)).collect()
        };
        assert_eq!(written(&mut simulator), [(0, 4), (0, 5), (0, 9)], "{}", entry.name);
        simulator.write_range(0, 4, pages);
        assert!(written(&mut simulator).is_empty(), "they are clean now: {}", entry.name);
        simulator.forget_range(0, 0, pages);
        let stays = if pages == 6 { 3 } else { 1 };
        assert_eq!(simulator.pages(), stays, "{}", entry.name);
        let counts = simulator.finish();
        let figures = (counts.background_writes, counts.final_writes);
        assert_eq!(figures, (3, 1), "{}: {counts:?}", entry.name);
    }
}

#[test]
fn background_writes_are_sorted_and_keep_dirty_pages_below_the_limit() {
    let mut simulator =
        Simulator::of(syncline_cache::entry("lru").unwrap(), 100, WriteBack::Background(10));
    simulator.record();
    for index in [50, 3, 2, 90, 4, 51, 1, 70, 60, 5] {
        simulator.access(PageKey { file: 0, index }, Access::Write);
    }
    assert!(simulator.take_device_accesses().is_empty(), "ten of a hundred are allowed");
    simulator.access(PageKey { file: 0, index: 0 }, Access::Write);
    let written: Vec<u64> =
        simulator.take_device_accesses().iter().map(|access| access.key.index).collect();
    assert_eq!(written, [0, 1, 2, 3, 4, 5, 50, 51, 60, 70, 90]);
    let counts = simulator.finish();
    assert_eq!((counts.background_writes, counts.final_writes, counts.write_runs), (11, 0, 5));
}

/// Pages of a 16 GiB device, scattered at worst: 16,384 cached of 4 million.
#[test]
fn a_cached_page_takes_less_than_64_bytes_and_a_remembered_one_half_of_it() {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let scattered: Vec<u64> = (0..60_000).map(|_| rng.random_range(0..1 << 22)).collect();
    let sequential: Vec<u64> = (0..60_000).collect();
    for (shape, pages) in [("scattered", scattered), ("sequential", sequential)] {
        let of = |index| PageAccess { key: PageKey { file: 0, index }, access: Access::Write };
        let accesses: Vec<PageAccess> = pages.into_iter().map(of).collect();
        let next = next_uses(&accesses);
        for entry in POLICIES {
            let mut simulator = Simulator::of(entry, 16_384, WriteBack::Lazy);
            simulator.run(&accesses, &next);
            let each = simulator.memory_bytes() as f64 / simulator.pages() as f64;
            // These remember about as many pages that left as they hold: 30 bytes for each.
            let most = if ["arc", "s3-fifo", "mglru"].contains(&entry.name) { 72.0 } else { 64.0 };
            assert!(each < most, "{} {shape}: {each:.1} bytes a page", entry.name);
        }
    }
}

#[test]
fn what_keeps_the_spatial_order_writes_in_longer_runs() {
    let of = |(index, write)| PageAccess {
        key: PageKey { file: 0, index },
        access: if write { Access::Write } else { Access::Read },
    };
    let accesses: Vec<PageAccess> = phone().into_iter().map(of).collect();
    let run = |name: &str, pages| {
        let entry = syncline_cache::entry(name).unwrap();
        let mut simulator = Simulator::of(entry, pages, WriteBack::Lazy);
        simulator.run(&accesses, &[]);
        simulator.finish()
    };
    let mut hits = [0, 0];
    for pages in [64, 128, 256, 512, 1024, 2048] {
        let [lru, clock, spatial, protected, blocks] =
            ["lru", "clock", "spatialclock", "spatial-protected", "blockclock"]
                .map(|name| run(name, pages));
        for ours in [spatial, protected, blocks] {
            assert!(ours.write_runs * 10 < lru.write_runs.min(clock.write_runs) * 7, "{pages}");
        }
        hits[0] += spatial.hits;
        hits[1] += protected.hits;
    }
    assert!(hits[1] > hits[0], "protection gives hits: {hits:?}");
}
