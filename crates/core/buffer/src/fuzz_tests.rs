//! Fuzzed logs: opening ends within bounds, and an accepted log can be read and drained.

use std::sync::Arc;

use proptest::test_runner::{Config, TestRunner};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use syncline_device::{BlockDevice, Kind, MemoryDevice, OffsetDevice, Origin};

use crate::format::{PAGE_BYTES, reseal};
use crate::{Buffer, BufferError, BufferOptions, LogArea};

const PAGES: u64 = 64;
const HOME: u64 = PAGES * PAGE_BYTES as u64;
const LOG_PAGES: u64 = 70;
const ID: [u8; 16] = [3; 16];
const STRICT: Origin = Origin::new(Kind::Other, true);

fn open(device: &Arc<MemoryDevice>) -> Result<Buffer, BufferError> {
    let part = |start, len| Arc::new(OffsetDevice::new(device.clone(), start, len).unwrap());
    let area = LogArea { device: part(HOME, LOG_PAGES * PAGE_BYTES as u64), same_medium: true };
    Buffer::open(part(0, HOME), Some(area), BufferOptions::default())
}

/// A log with entries, headers, opaque pages and records.
fn used(rng: &mut ChaCha8Rng) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(HOME + LOG_PAGES * PAGE_BYTES as u64));
    let part = OffsetDevice::new(device.clone(), HOME, LOG_PAGES * PAGE_BYTES as u64).unwrap();
    let area = LogArea { device: Arc::new(part), same_medium: true };
    Buffer::create_log(&area, HOME, ID, true).unwrap();
    let buffer = open(&device).unwrap();
    for _ in 0..rng.random_range(1..60) {
        let page = rng.random_range(0..PAGES - 16);
        let dense = rng.random_bool(0.4);
        let pages = if rng.random_bool(0.1) { 16 } else { 1 };
        let bytes: Vec<u8> = (0..pages * PAGE_BYTES)
            .map(|at| if dense || at % 64 < 9 { rng.random() } else { 0 })
            .collect();
        buffer.write(page * PAGE_BYTES as u64, &bytes, STRICT).unwrap();
        if rng.random_bool(0.5) {
            buffer.flush(STRICT).unwrap();
        }
    }
    device
}

/// Changes a page of the log, mostly where its fields are; often with a right checksum.
fn mutate(device: &MemoryDevice, rng: &mut ChaCha8Rng) {
    let page = rng.random_range(0..LOG_PAGES);
    let at = HOME + page * PAGE_BYTES as u64;
    let mut bytes = vec![0; PAGE_BYTES];
    device.read_at(at, &mut bytes).unwrap();
    for _ in 0..rng.random_range(1..4) {
        let end = if rng.random_bool(0.8) { 80 } else { PAGE_BYTES };
        let at = rng.random_range(0..end);
        let long = at..PAGE_BYTES.min(at + 8);
        match rng.random_range(0..4) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes[long].fill(0xff),
            _ => bytes[long].fill(0),
        }
    }
    if rng.random_bool(0.7) {
        reseal(&mut bytes, &ID, page < 2);
    }
    device.write_at(at, &bytes).unwrap();
}

#[test]
fn fuzz_logs() {
    let (mut seeds, mut opened) = (syncline_testkit::FuzzRounds::at_least(500), 0);
    for seed in &mut seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let device = used(&mut rng);
        for _ in 0..rng.random_range(1..4) {
            mutate(&device, &mut rng);
        }
        if let Ok(buffer) = open(&device) {
            opened += 1;
            let mut all = vec![0; HOME as usize];
            let read = buffer.read(0, &mut all, STRICT);
            let drained = buffer.drain();
            assert_eq!(read.is_ok(), drained.is_ok(), "seed {seed}: {read:?}, {drained:?}");
            if drained.is_ok() {
                let mut home = vec![0; HOME as usize];
                device.read_at(0, &mut home).unwrap();
                assert!(home == all, "seed {seed}");
            }
        }
    }
    let rounds = seeds.begun();
    assert!(opened > 0 && opened < rounds, "{opened} of {rounds} opened");
}

#[test]
fn fuzz_areas_of_any_bytes() {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let front = proptest::collection::vec(proptest::num::u8::ANY, 2 * PAGE_BYTES);
    runner
        .run(&front, |mut front| {
            front[..8].copy_from_slice(b"SYNCBUF1");
            reseal(&mut front[..PAGE_BYTES], &ID, true);
            let size = HOME + LOG_PAGES * PAGE_BYTES as u64;
            let device = Arc::new(MemoryDevice::new(size));
            device.write_at(HOME, &front).unwrap();
            assert!(open(&device).is_err());
            Ok(())
        })
        .unwrap();
}
