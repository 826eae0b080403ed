//! Mutated journals: recovery answers, in bounded time and memory, and never panics. What it
//! accepts it accepts again with nothing left to do.

use crate::common::craft::Crafter;
use crate::common::volume;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::AssertUnwindSafe;
use syncline_device::BlockDevice;
use syncline_jbd2::{Journal, LogMap, RecoverOptions};
use syncline_model::{FuzzRounds, ImageSpec, Need, require};
use syncline_ondisk::jbd2::{JournalChecksum, JournalIncompat};

/// Changes a few bytes of a block, mostly where its fields are.
fn mutate(bytes: &mut [u8], rng: &mut ChaCha8Rng) {
    for _ in 0..rng.random_range(1..5) {
        let end = if rng.random_bool(0.7) { 64 } else { bytes.len() };
        let at = rng.random_range(0..end);
        let four = at..bytes.len().min(at + 4);
        match rng.random_range(0..4) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes[four].fill(0xFF),
            _ => bytes[four].fill(0),
        }
    }
}

fn craft<'a>(volume: &'a crate::common::Volume, rng: &mut ChaCha8Rng) -> Crafter<'a> {
    let kind = [
        JournalChecksum::None,
        JournalChecksum::None,
        JournalChecksum::V1,
        JournalChecksum::V2,
        JournalChecksum::V3,
    ][rng.random_range(0..5)];
    let (is_64bit, is_async) = (rng.random(), rng.random());
    let start = rng.random_range(1..volume.log.len_blocks());
    let mut crafter = Crafter::new(volume, kind, start, rng.random(), |s| {
        for (flag, set) in
            [(JournalIncompat::BIT64, is_64bit), (JournalIncompat::ASYNC_COMMIT, is_async)]
        {
            if set {
                s.s_feature_incompat.insert(flag);
            }
        }
    });
    for _ in 0..rng.random_range(1..6) {
        let revoked: Vec<u64> =
            (0..rng.random_range(0..5)).map(|_| volume.free + rng.random_range(0..40)).collect();
        if !revoked.is_empty() {
            crafter.revokes(&revoked);
        }
        let copies: Vec<(u64, u8)> = (0..rng.random_range(1..20))
            .map(|_| (volume.free + rng.random_range(0..40), rng.random()))
            .collect();
        crafter.transaction(&copies);
    }
    crafter
}

#[test]
fn mutated_journals_are_answered() {
    if !require("jbd2 fuzz", &[Need::E2fsck]) {
        return;
    }
    let volume = volume(&ImageSpec::default());
    let (mut seeds, mut accepted) = (FuzzRounds::at_least(200), 0u64);
    for seed in &mut seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let base = craft(&volume, &mut rng);
        for _ in 0..40 {
            let image = base.image.snapshot();
            let start = base.at.saturating_sub(rng.random_range(1..60)).max(1);
            let targets = [0, start, start + 1, base.at.saturating_sub(1)];
            for _ in 0..rng.random_range(1..4) {
                let log_block = targets[rng.random_range(0..4)].min(base.end - 1);
                let offset = volume.log.physical(log_block).unwrap() * 4096;
                let mut bytes = vec![0; 4096];
                image.read_at(offset, &mut bytes).unwrap();
                mutate(&mut bytes, &mut rng);
                image.write_at(offset, &bytes).unwrap();
            }
            let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
                Journal::recover(&image, &volume.log, RecoverOptions::default())
            }));
            let result = caught.unwrap_or_else(|_| {
                panic!("seed {seed} panics; rerun with this seed in tests/it/fuzz.rs")
            });
            if result.is_ok() {
                accepted += 1;
                let again = Journal::recover(&image, &volume.log, RecoverOptions::default());
                assert!(!again.unwrap().was_needed, "seed {seed}");
            }
        }
    }
    println!("{} journals, {accepted} accepted", seeds.begun() * 40);
    assert!(accepted > 0);
}

#[test]
fn odd_log_maps_are_answered() {
    if !require("jbd2 fuzz maps", &[Need::E2fsck]) {
        return;
    }
    let volume = volume(&ImageSpec::default());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for _ in 0..500 {
        let extents = (0..rng.random_range(0..4))
            .map(|_| {
                let first = if rng.random() { rng.random() } else { rng.random_range(0..9000) };
                (first, rng.random_range(0..2000))
            })
            .collect();
        let block_size = 1 << rng.random_range(0..20);
        let log = LogMap { block_size, extents };
        let options = RecoverOptions { dry_run: true, ..RecoverOptions::default() };
        assert!(Journal::recover(&volume.image, &log, options).is_err());
    }
    assert!(volume.image.geometry().size_bytes > 0);
}
