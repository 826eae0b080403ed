//! Logs of hostile bytes: an answer or an error, within bounded memory and time.

use std::io::{self, IoSlice};
use std::ops::ControlFlow;
use std::sync::Arc;

use syncline_flashlite::{Log, MemoryStorage, Progress, Rearrange, Storage};
use syncline_testkit::{FuzzRounds, Random};

use crate::memory::peak_bytes;
use crate::support::{SMALL, apply, create, random_op};

/// A file that is only counted: a log of a few tags may be exabytes long.
pub struct Nowhere;

impl Storage for Nowhere {
    fn read_at(&self, into: &mut [u8], _: u64) -> io::Result<()> {
        into.fill(0);
        Ok(())
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

fn good_log(random: &mut Random) -> Vec<u8> {
    let storage = Arc::new(MemoryStorage::default());
    let version = if random.one_in(4) { 1 } else { 2 };
    let log = create(storage.clone(), SMALL, version);
    log.set_tags_at_once([1, 8, 64][random.index(3)]).unwrap();
    for _ in 0..random.below(30) {
        apply(&log, &random_op(random, 200_000)).unwrap();
    }
    if random.one_in(2) {
        log.close().unwrap();
    }
    storage.bytes()
}

/// Corrects the checksums of what looks like a tag, so that the fields behind it are reached.
fn reseal(bytes: &mut [u8], at: usize) {
    let Some(tag) = bytes.get_mut(at..at + 32) else { return };
    let sum =
        syncline_base::crc32c_append(syncline_base::crc32c(&(at as u64).to_le_bytes()), &tag[4..]);
    tag[..4].copy_from_slice(&sum.to_le_bytes());
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.index(bytes.len());
        let tag = match random.below(3) {
            0 => at / 32 * 32,
            1 => 4096,
            _ => (at / (64 << 10) + 1) * (64 << 10) - 32,
        };
        match random.below(6) {
            0 => bytes[at] = random.bits() as u8,
            1 => bytes.truncate(at.max(1)),
            2 => bytes.resize(bytes.len() + random.index(100_000), 0),
            3 => {
                let from = random.index(bytes.len());
                let len = random.index(5000).min(bytes.len() - from.max(at));
                bytes.copy_within(from..from + len, at);
            }
            _ => {
                if let Some(field) = bytes.get_mut(tag + 4 + random.index(28)) {
                    *field = [random.bits() as u8, 0, 0xFF, 0x7F][random.index(4)];
                }
                reseal(bytes, tag);
            }
        }
    }
}

/// Memory that an opening may take whatever the log says: blocks that it reads, bytes.
const BLOCKS_BYTES: u64 = 96 << 10;

fn feed(bytes: Vec<u8>) {
    let len = bytes.len() as u64;
    let storage = Arc::new(MemoryStorage::new(bytes));
    let (opened, peak) = peak_bytes(|| Log::open_read_only(storage.clone()));
    // A tag of 32 bytes becomes an index entry and an extent, which take up to 130 while they grow.
    assert!(peak <= BLOCKS_BYTES + 4 * len, "opening {len} B took {peak}");
    if let Ok(log) = opened {
        let mut part = vec![0; 10_000];
        for at in [0, log.len() / 2, log.len().saturating_sub(100), u64::MAX - 5] {
            let _ = log.read_at(&mut part, at);
        }
        let go = &mut |_: Progress| ControlFlow::Continue(());
        let (_, peak) = peak_bytes(|| log.check(go));
        assert!(peak <= BLOCKS_BYTES + 4 * len, "checking {len} B took {peak}");
    }
    if let Ok(log) = Log::open(storage, SMALL) {
        let _ = log.write_at(&[1; 5000], 100);
        let _ = log.sync_data();
        let release = Rearrange { release: true, step_bytes: 0 };
        let _ = log.rearrange_to(&Nowhere, release, &mut |_| ControlFlow::Continue(()));
        let _ = log.close();
    }
}

#[test]
fn fuzz_logs() {
    for seed in FuzzRounds::at_least(1000) {
        let mut random = Random::new(seed);
        let mut bytes = good_log(&mut random);
        for _ in 0..8 {
            mutate(&mut bytes, &mut random);
            feed(bytes.clone());
        }
        let noise = (0..random.index(9000)).map(|_| random.bits() as u8).collect();
        feed(noise);
    }
}
