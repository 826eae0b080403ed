//! Fast commit areas: where they end, what counts, and what takes their place.

use std::sync::Arc;

use crate::common::Volume;
use crate::common::craft::Crafter;
use syncline_jbd2::{FastCommits, Journal, JournalError, RecoverOptions, Recovery};
use syncline_model::{ImageSpec, Need, require};
use syncline_ondisk::fast_commit::{HEAD, PAD, TAIL, UNLINK, frames};
use syncline_ondisk::jbd2::{JournalChecksum, JournalIncompat};

const BLOCK: usize = 4096;
/// Sequence after the one transaction that the logs here have.
const TID: u32 = 51;

fn volume() -> Option<Volume> {
    let is_able = require("jbd2 fast commit", &[Need::E2fsck]);
    let spec = ImageSpec { journal_size_mib: Some(8), ..ImageSpec::default() };
    is_able.then(|| crate::common::volume(&spec))
}

fn push(bytes: &mut Vec<u8>, tag: u16, value: &[u8]) {
    bytes.extend(tag.to_le_bytes());
    bytes.extend((value.len() as u16).to_le_bytes());
    bytes.extend(value);
}

/// One fast commit of `blocks` blocks with an UNLINK in each.
fn fast_commit(tid: u32, is_first: bool, blocks: usize, features: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if is_first {
        push(&mut bytes, HEAD, &[features.to_le_bytes(), tid.to_le_bytes()].concat());
    }
    for block in 1..=blocks {
        push(
            &mut bytes,
            UNLINK,
            &[&[2, 0, 0, 0, 12, 0, 0, 0], format!("n{block}").as_bytes()].concat(),
        );
        let left = block * BLOCK - bytes.len() - 4;
        if block < blocks {
            push(&mut bytes, PAD, &vec![0; left]);
        } else {
            let mut value = tid.to_le_bytes().to_vec();
            value.resize(left, 0);
            push(&mut bytes, TAIL, &value);
        }
    }
    seal(&mut bytes);
    bytes
}

/// Puts the right checksum into the TAIL.
fn seal(bytes: &mut [u8]) {
    let (mut crc, mut at) = (0, 0);
    for (nr, block) in bytes.chunks(BLOCK).enumerate() {
        for frame in frames(block) {
            crc = frame.checksum(crc);
            if frame.tag == TAIL {
                at = nr * BLOCK + frame.offset + 8;
            }
        }
    }
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A log with one transaction and this area behind it.
fn crafted<'a>(volume: &'a Volume, kind: JournalChecksum, area: &[u8]) -> Crafter<'a> {
    let mut crafter = Crafter::new(volume, kind, 1, TID - 1, |s| {
        s.s_feature_incompat.insert(JournalIncompat::FAST_COMMIT);
    });
    crafter.transaction(&[(volume.free, 1)]);
    for (nr, block) in area.chunks(BLOCK).enumerate() {
        let mut block = block.to_vec();
        block.resize(BLOCK, 0);
        crafter.overwrite(crafter.end + 1 + nr as u32, &block);
    }
    crafter
}

fn recover(crafter: &Crafter<'_>) -> Result<Recovery, JournalError> {
    Journal::recover(&crafter.image, &crafter.volume.log, RecoverOptions::default())
}

fn found(crafter: &Crafter<'_>) -> Option<FastCommits> {
    Journal::fast_commits(&crafter.image, &crafter.volume.log).unwrap()
}

fn count(volume: &Volume, area: &[u8]) -> u32 {
    recover(&crafted(volume, JournalChecksum::V3, area)).unwrap().fast_commits
}

#[test]
fn fast_commits_of_the_next_transaction_count() {
    let Some(volume) = volume() else { return };
    let area = |tid| {
        [fast_commit(tid, true, 1, 0), fast_commit(tid, false, 3, 0), fast_commit(tid, false, 1, 0)]
            .concat()
    };
    assert_eq!(count(&volume, &area(TID)), 3);
    assert_eq!(count(&volume, &area(TID - 1)), 0);
    assert_eq!(count(&volume, &area(TID + 1)), 0);
    // Stale ones of the transaction before behind those that count.
    let stale = [fast_commit(TID, true, 2, 0), area(TID - 1)].concat();
    assert_eq!(count(&volume, &stale), 1);
    let crafter = crafted(&volume, JournalChecksum::V3, &area(TID));
    let tags: Vec<u16> = found(&crafter).unwrap().frames().map(|frame| frame.tag).collect();
    let expected = [HEAD, UNLINK, TAIL, UNLINK, PAD, UNLINK, PAD, UNLINK, TAIL, UNLINK, TAIL];
    assert_eq!(tags, expected);
}

#[test]
fn a_torn_last_fast_commit_is_dropped() {
    let Some(volume) = volume() else { return };
    let whole = fast_commit(TID, true, 1, 0);
    let last = fast_commit(TID, false, 3, 0);
    for old in [0u8, 0xFF] {
        for sector in 0..last.len() / 512 {
            let mut torn = last.clone();
            torn[sector * 512..].fill(old);
            // The padding behind TAIL is not covered.
            let expected = if sector * 512 > 2 * BLOCK { 2 } else { 1 };
            assert_eq!(count(&volume, &[&whole[..], &torn].concat()), expected, "{old} {sector}");
        }
    }
    // The very first one too.
    let first = fast_commit(TID, true, 2, 0);
    assert_eq!(count(&volume, &first[..BLOCK + 8]), 0);
}

#[test]
fn damage_before_a_whole_fast_commit_is_corrupt() {
    let Some(volume) = volume() else { return };
    let area = [
        fast_commit(TID, true, 1, 0),
        fast_commit(TID, false, 2, 0),
        fast_commit(TID, false, 1, 0),
    ]
    .concat();
    for at in [12, BLOCK + 9, 2 * BLOCK + 20] {
        let mut area = area.clone();
        area[at] ^= 1;
        let error = recover(&crafted(&volume, JournalChecksum::V3, &area)).unwrap_err();
        assert!(
            matches!(&error, JournalError::Corrupt { detail, .. }
            if detail.contains("fast commit")),
            "{at}: {error}"
        );
    }
}

#[test]
fn features_of_later_kernels_are_refused_by_name() {
    let Some(volume) = volume() else { return };
    let area = fast_commit(TID, true, 1, 4);
    let error = recover(&crafted(&volume, JournalChecksum::V3, &area)).unwrap_err();
    assert!(error.to_string().contains("fast_commit with features 0x4"), "{error}");
}

#[test]
fn a_transaction_takes_the_place_of_fast_commits() {
    let Some(volume) = volume() else { return };
    for kind in
        [JournalChecksum::None, JournalChecksum::V1, JournalChecksum::V2, JournalChecksum::V3]
    {
        let crafter = crafted(&volume, kind, &fast_commit(TID, true, 2, 0));
        let log = &volume.log;
        let image: Arc<[u8]> = vec![7; BLOCK].into();
        let blocks = vec![(volume.free + 1, image)];
        let first = recover(&crafter).unwrap();
        assert_eq!((first.transactions, first.fast_commits), (1, 1), "{kind:?}");
        // Until they are replaced they are there.
        let again = recover(&crafter).unwrap();
        assert_eq!((again.transactions, again.fast_commits), (0, 1), "{kind:?}");
        Journal::replace_fast_commits(&crafter.image, log, blocks, 0).unwrap();
        let replaced = recover(&crafter).unwrap();
        assert_eq!((replaced.transactions, replaced.fast_commits), (1, 0), "{kind:?}");
        assert_eq!((replaced.last_tid, replaced.next_sequence), (Some(TID), TID + 2));
        let mut bytes = [0; 1];
        crafter.image.read_at((volume.free + 1) * BLOCK as u64, &mut bytes).unwrap();
        assert_eq!(bytes, [7]);
        assert!(!recover(&crafter).unwrap().was_needed);
    }
}

#[test]
fn more_blocks_than_the_log_holds_are_refused() {
    let Some(volume) = volume() else { return };
    let crafter = crafted(&volume, JournalChecksum::V3, &fast_commit(TID, true, 1, 0));
    recover(&crafter).unwrap();
    let image: Arc<[u8]> = vec![7; BLOCK].into();
    let many = (0..u64::from(crafter.end)).map(|nr| (volume.free + nr, Arc::clone(&image)));
    let error = Journal::replace_fast_commits(&crafter.image, &volume.log, many.collect(), 0);
    assert!(matches!(error, Err(JournalError::TooLarge { .. })), "{error:?}");
    assert_eq!(recover(&crafter).unwrap().fast_commits, 1);
}
