//! Recovery of logs made by hand: every checksum kind, torn, stale, corrupt and hostile ones. Where
//! stock recovery takes the log, e2fsck must come to the same blocks.

use crate::common::craft::Crafter;
use crate::common::{Volume, default_volume, difference};
use std::time::Instant;
use syncline_device::{BlockDevice, MemoryDevice};
use syncline_jbd2::{Journal, JournalError, RecoverOptions, Recovery};
use syncline_model::{ImageSpec, Need, TempImage, e2fsck_preen, require};
use syncline_ondisk::jbd2::{JournalChecksum, JournalIncompat};

fn recover(volume: &Volume, image: &MemoryDevice) -> Result<Recovery, JournalError> {
    Journal::recover(image, &volume.log, RecoverOptions::default())
}

/// Recovers with both and compares.
fn same_as_e2fsck(crafter: &Crafter<'_>) -> Recovery {
    let file = TempImage::zeroed(crafter.image.geometry().size_bytes);
    crafter.image.to_file(file.path()).unwrap();
    e2fsck_preen(file.path()).unwrap();
    let theirs = MemoryDevice::load(file.path()).unwrap();
    let recovery = recover(crafter.volume, &crafter.image).unwrap();
    assert_eq!(difference(&crafter.volume.log, &crafter.image, &theirs), None);
    recovery
}

/// Recovery must refuse and leave the image alone. Returns the message.
fn refused(crafter: &Crafter<'_>) -> String {
    let before = crafter.image.snapshot();
    let error = recover(crafter.volume, &crafter.image).unwrap_err();
    assert_eq!(crafter.image.first_difference(&before), None, "{error}");
    error.to_string()
}

fn value(crafter: &Crafter<'_>, block: u64) -> u8 {
    crafter.volume.block(&crafter.image, block)[9]
}

const KINDS: [JournalChecksum; 4] =
    [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3];

/// A volume without metadata checksums takes every kind of log.
fn plain_volume() -> Volume {
    let features = "^metadata_csum".into();
    crate::common::volume(&ImageSpec { features, ..ImageSpec::default() })
}

#[test]
fn each_checksum_kind_across_the_wrap_of_ring_and_sequence() {
    if !require("jbd2 kinds", &[Need::E2fsck]) {
        return;
    }
    let volume = plain_volume();
    for kind in KINDS {
        for sequence in [7, u32::MAX - 1] {
            for is_64bit in [false, true] {
                let end = volume.log.len_blocks();
                let mut crafter = Crafter::new(&volume, kind, end - 4, sequence, |s| {
                    if is_64bit {
                        s.s_feature_incompat.insert(JournalIncompat::BIT64);
                    }
                    s.s_feature_incompat.insert(JournalIncompat::REVOKE);
                });
                let (a, b, c) = (volume.free, volume.free + 1, volume.free + 2);
                crafter.transaction(&[(a, 1), (b, 1), (c, 1)]);
                crafter.revokes(&[b]);
                crafter.transaction(&[(a, 2)]);
                crafter.transaction(&[(c, 0xC0), (a, 3)]);
                let recovery = same_as_e2fsck(&crafter);
                assert_eq!((recovery.transactions, recovery.blocks_replayed), (3, 2));
                assert_eq!((recovery.revoked, recovery.revoke_records), (1, 1));
                let next = sequence.wrapping_add(4);
                assert_eq!(recovery.next_sequence, next, "one sequence is left out");
                let values = (value(&crafter, a), value(&crafter, b), value(&crafter, c));
                assert_eq!(values, (3, 0, 0xC0));
            }
        }
    }
}

#[test]
fn a_torn_last_transaction_of_v1_async_is_dropped_whole() {
    if !require("jbd2 v1 torn", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    for torn in 0..4 {
        let mut crafter = Crafter::new(&volume, JournalChecksum::V1, 1, 50, |_| {});
        let (a, b) = (volume.free, volume.free + 1);
        crafter.transaction(&[(a, 1), (b, 1)]);
        let at = crafter.transaction(&[(a, 2), (b, 2)]);
        // Descriptor, first copy, second copy, or nothing behind the commit block's first sector.
        let mut bytes = crafter.read(at + torn);
        bytes[512..].fill(0xEE);
        crafter.overwrite(at + torn, &bytes);
        let recovery = same_as_e2fsck(&crafter);
        let whole = torn == 3;
        assert_eq!(recovery.dropped_torn, !whole, "{torn}");
        let expected = if whole { 2 } else { 1 };
        assert_eq!((value(&crafter, a), value(&crafter, b)), (expected, expected));
    }
}

#[test]
fn a_bad_transaction_in_the_middle_is_corrupt_and_nothing_is_written() {
    if !require("jbd2 middle", &[Need::E2fsck]) {
        return;
    }
    let volume = plain_volume();
    for kind in KINDS.into_iter().skip(1) {
        for is_async in [false, true] {
            let mut crafter = Crafter::new(&volume, kind, 1, 50, |s| {
                s.s_feature_incompat.remove(JournalIncompat::ASYNC_COMMIT);
                if is_async {
                    s.s_feature_incompat.insert(JournalIncompat::ASYNC_COMMIT);
                }
            });
            let (a, b) = (volume.free, volume.free + 1);
            let at = crafter.transaction(&[(a, 1), (b, 1)]);
            crafter.transaction(&[(a, 2)]);
            crafter.overwrite(at + 2, &vec![0xEE; 4096]);
            let said = refused(&crafter);
            assert!(said.contains("corrupt"), "{kind:?} async {is_async}: {said}");
        }
    }
}

#[test]
fn bad_copies_of_the_last_transaction_are_torn_with_async_commit_only() {
    if !require("jbd2 v3 async", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    for is_async in [false, true] {
        let mut crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |s| {
            if is_async {
                s.s_feature_incompat.insert(JournalIncompat::ASYNC_COMMIT);
            }
        });
        let (a, b) = (volume.free, volume.free + 1);
        crafter.transaction(&[(a, 1), (b, 1)]);
        let at = crafter.transaction(&[(a, 2), (b, 2)]);
        crafter.overwrite(at + 2, &vec![0xEE; 4096]);
        if is_async {
            let recovery = recover(&volume, &crafter.image).unwrap();
            assert!(recovery.dropped_torn && recovery.transactions == 1, "{recovery:?}");
            assert_eq!((value(&crafter, a), value(&crafter, b)), (1, 1));
        } else {
            assert!(refused(&crafter).contains("transaction 51"));
        }
    }
}

#[test]
fn stale_blocks_behind_the_end_are_not_replayed() {
    if !require("jbd2 stale", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let (a, b) = (volume.free, volume.free + 1);
    // An older use of the log left a transaction of the very sequence that is expected next: only
    // its age gives it away, once a checksum fails.
    let mut crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |_| {});
    crafter.transaction(&[(a, 1)]);
    crafter.seconds -= 1000;
    let at = crafter.copies(&[(b, 9)]);
    crafter.commit();
    let mut bytes = crafter.read(at);
    bytes[4000] ^= 1;
    crafter.overwrite(at, &bytes);
    let recovery = recover(&volume, &crafter.image).unwrap();
    assert_eq!((recovery.transactions, value(&crafter, a), value(&crafter, b)), (1, 1, 0));
    // A transaction of a wrong sequence ends the log.
    let mut crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |_| {});
    crafter.transaction(&[(a, 1)]);
    crafter.sequence += 1;
    crafter.transaction(&[(b, 9)]);
    let recovery = same_as_e2fsck(&crafter);
    assert_eq!((recovery.transactions, value(&crafter, b)), (1, 0));
    assert!(!recovery.dropped_torn);
}

#[test]
fn blocks_off_the_device_and_in_the_log_are_refused() {
    if !require("jbd2 range", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let inside = volume.log.physical(100).unwrap();
    for (block, detail) in [(32 << 20 >> 12, "off the device"), (inside, "in the log")] {
        let mut crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |_| {});
        crafter.transaction(&[(volume.free, 1)]);
        crafter.transaction(&[(block, 1)]);
        assert!(refused(&crafter).contains(detail));
    }
}

#[test]
fn a_revoke_block_that_claims_too_much_is_corrupt() {
    if !require("jbd2 revoke length", &[Need::E2fsck]) {
        return;
    }
    let volume = plain_volume();
    let mut crafter = Crafter::new(&volume, JournalChecksum::None, 1, 50, |_| {});
    crafter.copies(&[(volume.free, 1)]);
    let at = crafter.revokes(&[1]);
    crafter.commit();
    let mut bytes = crafter.read(at);
    bytes[12..16].copy_from_slice(&5000u32.to_be_bytes());
    crafter.overwrite(at, &bytes);
    assert!(refused(&crafter).contains("revoke"));
}

#[test]
fn a_ring_of_control_blocks_ends() {
    if !require("jbd2 ring", &[Need::E2fsck]) {
        return;
    }
    let volume = plain_volume();
    let mut crafter = Crafter::new(&volume, JournalChecksum::None, 1, 50, |_| {});
    for _ in crafter.first..crafter.end {
        crafter.revokes(&[volume.free]);
    }
    let recovery = recover(&volume, &crafter.image).unwrap();
    assert_eq!((recovery.transactions, recovery.dropped_torn), (0, true));
}

#[test]
fn unknown_features_and_a_bad_superblock_are_refused() {
    if !require("jbd2 superblock", &[Need::E2fsck]) {
        return;
    }
    let volume = default_volume();
    let mut crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |s| {
        s.s_feature_incompat = JournalIncompat::from_bits(0x410);
    });
    crafter.transaction(&[(volume.free, 1)]);
    let error = recover(&volume, &crafter.image).unwrap_err();
    assert!(matches!(error, JournalError::Unsupported { .. }), "{error}");
    let crafter = Crafter::new(&volume, JournalChecksum::V3, 1, 50, |_| {});
    for at in [0, 12, 16, 20, 30, 100] {
        let mut block = crafter.read(0);
        block[at] ^= 0x40;
        crafter.overwrite(0, &block);
        assert!(refused(&crafter).contains("corrupt"), "byte {at}");
        block[at] ^= 0x40;
        crafter.overwrite(0, &block);
    }
    let crafter = Crafter::new(&volume, JournalChecksum::V3, 5000, 50, |_| {});
    assert!(refused(&crafter).contains("start"));
}

#[test]
fn a_full_log_of_64_mib_is_recovered_quickly() {
    if !require("jbd2 64 MiB", &[Need::E2fsck]) {
        return;
    }
    let spec = ImageSpec { size_bytes: 512 << 20, ..ImageSpec::default() };
    let volume = crate::common::volume(&ImageSpec { journal_size_mib: Some(64), ..spec });
    // Large transactions, as full commits leave them, and many small ones, as eager syncs do.
    for (kind, copies) in
        [(JournalChecksum::V3, 250), (JournalChecksum::V1, 250), (JournalChecksum::V1, 2)]
    {
        let mut crafter = Crafter::new(&volume, kind, 1, 50, |s| {
            if kind == JournalChecksum::V1 {
                s.s_feature_incompat.insert(JournalIncompat::ASYNC_COMMIT);
            }
        });
        let mut transactions = 0;
        while crafter.at + copies + 2 < crafter.end {
            // All different, so that each copy is checked and replayed.
            let first = 85_000 + u64::from(transactions) * u64::from(copies);
            let blocks: Vec<(u64, u8)> =
                (first..first + u64::from(copies)).map(|block| (block, 5)).collect();
            crafter.transaction(&blocks);
            transactions += 1;
        }
        // The best of three: other tests run beside this one.
        let took = (0..3).map(|_| {
            let image = crafter.image.snapshot();
            let started = Instant::now();
            let recovery = recover(&volume, &image).unwrap();
            let took = started.elapsed();
            assert_eq!(
                (recovery.transactions, recovery.blocks_replayed),
                (transactions, transactions * copies)
            );
            took
        });
        let took = took.min().unwrap();
        println!("{kind:?}, {transactions} transactions: {} us", took.as_micros());
        assert!(took.as_secs_f64() < 1.0, "{took:?}");
    }
}
